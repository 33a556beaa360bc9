"""Checkpoints that are written while the training goes on: the same bytes, whole or absent, and an error is not lost."""

import json
import threading
from pathlib import Path

import pytest

from training.test_resume import (  # noqa: F401
    INT,
    KILL,
    STEPS,
    TERM,
    Fragile,
    Moment,
    assert_same,
    check,
    curve,
    reference,
    run,
    saved_step,
    server,
    settings,
    tokens,
)
from zellige import Data, Net
from zellige.models.checkpoint import layout
from zellige.models.checkpoint import write as writer
from zellige.training.ema import EMA
from zellige.training.train import train

SAVED = ("step-000004", "step-000006", "step-000008")  # of 3, 4, 6 and 8 the last three


def same_checkpoints(folder: Path, other: Path) -> None:
    """The same files in the same checkpoints: tensors and tokenizer to the byte, the numbers but for the clock."""
    curves = [curve(run) for run in (folder, other)]
    assert curves[0] == curves[1]
    for name in SAVED:
        a, b = (run / "checkpoints" / name for run in (folder, other))
        assert {p.name for p in a.iterdir()} == {p.name for p in b.iterdir()}
        assert {"model.safetensors", "training.safetensors", "training.json", "SHA256SUMS"} <= {
            p.name for p in a.iterdir()
        }
        for file in a.glob("*.safetensors"):
            assert content(file) == content(b / file.name), (name, file.name)
        for file in a.glob("tokenizer*"):
            assert file.read_bytes() == (b / file.name).read_bytes()
        assert numbers(a) == numbers(b)
    for points in (folder / "checkpoints", other / "checkpoints"):
        assert sorted(p.name for p in points.iterdir()) == ["best", "last", *SAVED]
    assert (folder / "checkpoints" / "last").readlink() == Path(SAVED[-1])


def content(file: Path) -> tuple[dict, bytes]:
    """A file's header and its tensors: of a shard, safetensors writes the entries of its metadata in an order that changes."""
    data = file.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


def numbers(checkpoint: Path) -> dict:
    """training.json without how long things took."""
    timeless = lambda entries: {name: value for name, value in entries.items() if name != "seconds"}  # noqa: E731
    return json.loads((checkpoint / "training.json").read_text(), object_hook=timeless)


def test_a_step_that_is_taken_meanwhile_changes_nothing(tmp_path, monkeypatch):
    """Every write is held until the weights and the average have moved on; until then nobody sees its folder."""
    net = Net(layers=1, hidden=16, heads=2, length=8, conv=3, dropout=0.1)
    here = {"data": Data.of(tokens(), vocabulary=7), "net": net}
    train(Fragile, run=tmp_path / "at-once", train=settings(), **here)

    moved, held, taken = threading.Condition(), [], [0]
    update, write = EMA.update, writer.write_model

    def take(average, step):
        update(average, step)
        with moved:
            taken[0] = step
            moved.notify_all()

    def hold(folder, model, tokenizer, config, about, defaults):
        step, points = about["step"], folder.parent
        with moved:
            assert moved.wait_for(lambda: taken[0] > step or step == STEPS, timeout=60)
        newest = layout.newest(points)
        assert newest is None or layout.step_of(newest) < step
        assert threading.current_thread() is not threading.main_thread()
        held.append(step)
        write(folder, model, tokenizer, config, about, defaults)

    monkeypatch.setattr(EMA, "update", take)
    monkeypatch.setattr(writer, "write_model", hold)
    train(Fragile, run=tmp_path / "meanwhile", train=settings(async_save=True), **here)
    assert held == [3, 4, 6, 8]
    same_checkpoints(tmp_path / "meanwhile", tmp_path / "at-once")


# As in `test_resume.ALONE`: saved are steps 3, 4 (best), 6 and 8, and tensors are written twice a checkpoint.
INTERRUPTED = {
    "killed while saving": (Moment("write", 5, KILL), "killed", 4),
    "SIGTERM within an accumulation": (Moment("loss", 9, TERM), "exit 143", 5),
    "Ctrl-C twice": (Moment("loss", 9, -INT), "exit 130", 4),
    "disk full": (Moment("write", 5, "full"), "InputError: no space left while saving step 6 (needs", 4),
    "disk full in the end": (Moment("write", 8, "full"), "InputError: no space left while saving step 8 (needs", 6),
}


MOSTLY = ("killed while saving", "disk full in the end")  # the others take as long and fail with these


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in MOSTLY else pytest.mark.long) for case in INTERRUPTED]
)
def test_interrupted(case, server, reference, tmp_path):  # noqa: F811
    check(server, reference, tmp_path / "run", *INTERRUPTED[case], async_save=True)


@pytest.mark.parametrize("at", [5, 7])  # said at the next save, or in the end
def test_another_error_is_said_and_the_last_step_saved(at, server, reference, tmp_path):  # noqa: F811
    ended = run(server, tmp_path / "run", Moment("write", at, "raise"), async_save=True)
    assert ended[0]["end"] == "Trouble: write"
    assert saved_step(tmp_path / "run") == STEPS
    assert_same(tmp_path / "run", reference(1))


@pytest.mark.long
def test_sharded(server, tmp_path):  # noqa: F811
    """Two processes write their parts while they train, and say it where one cannot; stopped, the run goes on bit for bit."""
    how = {"world": 2, "strategy": "fsdp"}
    ended = run(server, tmp_path / "at-once", **how)
    assert ended[0]["end"] == "finished", ended
    ended = run(server, tmp_path / "meanwhile", Moment("write", 3, "slow", (0,)), async_save=True, **how)
    assert ended[0]["end"] == "finished", ended
    same_checkpoints(tmp_path / "meanwhile", tmp_path / "at-once")
    assert len(list((tmp_path / "meanwhile/checkpoints/last").glob(layout.SHARDS))) == 2
    ended = run(server, tmp_path / "stopped", Moment("loss", 5, TERM, (1,)), async_save=True, **how)
    assert ended[0]["end"] == "exit 143", ended
    assert saved_step(tmp_path / "stopped") == 5
    assert run(server, tmp_path / "stopped", resume=True, async_save=True, **how)[0]["end"] == "finished"
    assert_same(tmp_path / "stopped", tmp_path / "at-once")
    ended = run(server, tmp_path / "full", Moment("write", 5, "full", (0,)), async_save=True, **how)
    assert ended[0]["end"].startswith("InputError: no space left while saving step 6 (needs"), ended
    assert saved_step(tmp_path / "full") == 4
