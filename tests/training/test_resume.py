"""A run that is interrupted and resumed is, bit for bit, the run that was not: loss curve, validation, every weight.

Each case interrupts a small run at a known moment, checks what is on the disk, resumes, and compares all that the unbroken
run wrote: the columns of metrics.csv, the averaged weights, the weights, the optimizer's moments, the samples. Each case
also says *which* step was resumed: an older checkpoint would give the same curve.

The runs are processes of their own, forked from a server that has imported the trainer once.
"""

import contextlib
import csv
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from zellige import Data, Net, Train
from zellige.base import files
from zellige.methods.mdlm import MDLM
from zellige.models import model
from zellige.models.checkpoint import write
from zellige.models.checkpoint.layout import newest
from zellige.models.checkpoint.read import best as best_checkpoint
from zellige.models.checkpoint.read import load_tensors
from zellige.show.progress import Progress
from zellige.training.train import train

STEPS, ACCUMULATE, VALIDATE, SAVE = 8, 2, 4, 3
TERM, INT, KILL = int(signal.SIGTERM), int(signal.SIGINT), int(signal.SIGKILL)


@dataclass(frozen=True)
class Moment:
    """`what` happens at the `at`-th call (from 1) of `where`, on the ranks `on`.

    A signal; "raise"; "full", a full disk; "slow", a second passes; "group", SIGTERM to the data workers too.
    """

    # start (of Lightning), loss, terms, write (of a file of tensors), point (of last), row (of the data), gone (a folder that is
    # removed, in the middle of it), config (before it is written)
    where: str = ""
    at: int = 0
    what: int | str = ""
    on: tuple[int, ...] = (0, 1)


class Trouble(RuntimeError):
    """What goes wrong on purpose."""


def _rank() -> int:
    return int(os.environ.get("RANK") or os.environ.get("LOCAL_RANK", "0"))


def _strike(moment: Moment, calls: list, where: str) -> None:
    if moment.where != where or _rank() not in moment.on:
        return
    calls.append(1)
    if len(calls) != moment.at:
        return
    if moment.what == "raise":
        raise Trouble(where)
    if moment.what == "full":
        raise OSError(28, "No space left on device")
    if moment.what == "slow":
        return time.sleep(1)
    if moment.what == "group":
        for child in multiprocessing.active_children():  # first, and with all the time that one needs to end by it
            subprocess.run(["kill", "-TERM", str(child.pid)], check=True)  # by somebody else than the trainer
        time.sleep(0.5)
    times = 2 if moment.what == -INT else 1
    for _ in range(times):
        os.kill(os.getpid(), TERM if moment.what == "group" else abs(int(moment.what)))


class Fragile(MDLM):
    """MDLM that something happens to."""

    name = "fragile"
    moment, calls = Moment(), []

    def loss(self, batch, generator=None):
        value = super().loss(batch, generator)
        _strike(self.moment, self.calls, "loss")
        return value

    def terms(self, batch, generator=None):
        value = super().terms(batch, generator)
        _strike(self.moment, self.calls, "terms")
        return value


class Notes(Progress):
    def __init__(self):
        self.notes: list[str] = []
        self.losses: list[float | None] = []

    def note(self, text):
        self.notes.append(text)

    def step(self, step, loss, unit, speed):
        self.losses.append(loss)


def tokens() -> torch.Tensor:
    return torch.randint(0, 7, (150, 8), generator=torch.Generator().manual_seed(5))


def settings(**more) -> Train:
    usual = {
        "steps": STEPS, "batch": 4, "accumulate": ACCUMULATE, "lr": 1e-2, "warmup": 2, "validate_every": VALIDATE,
        "validate_rows": 4, "save_every": SAVE, "log_every": 1, "samples": 1, "sample_steps": 3, "ema": 0.9,
        "tensorboard": False, "device": "cpu", "keep": 3, "seed": 1,
    }  # fmt: skip
    return Train(**(usual | more))


def attempt(folder: Path, moment: Moment, resume: bool, more: dict) -> None:
    """One process: train, and write down how it ended."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
    multiprocessing.set_start_method("fork", force=True)  # of data workers; a child of the server would ask the server
    Fragile.moment, Fragile.calls = moment, []
    vars(sys.modules["zellige.training.session"])["forecast"] = lambda *_, **__: []  # it asks for losses too
    places = {"save_tensors": ("write", write), "point": ("point", files)}
    for name, (where, *modules) in places.items():
        plain = getattr(modules[0], name)

        def broken(*args, _plain=plain, _where=where):
            if _where == "write":
                _plain(*args)  # what is interrupted is a folder that is half there
            _strike(moment, Fragile.calls, _where)
            if _where == "point":
                _plain(*args)

        for module in modules:
            setattr(module, name, broken)
    for module, name, where in (
        (shutil, "rmtree", "gone"),
        (sys.modules["zellige.training.session"], "write_config", "config"),
    ):
        plain = getattr(module, name)

        def struck(*args, _plain=plain, _where=where, **how):
            if moment.where == _where == "gone":
                next(p for p in Path(args[0]).rglob("*") if p.is_file()).unlink()
            _strike(moment, Fragile.calls, _where)
            return _plain(*args, **how)

        setattr(module, name, struck)
    if moment.where == "start":
        from zellige.training.fit import Loop

        load = Loop.train_dataloader
        begun = lambda loop: (_strike(moment, Fragile.calls, "start"), load(loop))[1]  # noqa: E731
        setattr(Loop, "train_dataloader", begun)  # noqa: B010
    if moment.where == "row":
        from zellige.data import Rows

        get = Rows.__getitem__
        read = lambda rows, i: (_strike(moment, Fragile.calls, "row"), get(rows, i))[1]  # noqa: E731
        setattr(Rows, "__getitem__", read)  # noqa: B010
    notes, end = Notes(), "finished"
    more = dict(more)
    net = Net(layers=1, hidden=16, heads=2, length=8, conv=3, dropout=more.pop("dropout", 0.1))
    try:
        train(
            Fragile, data=Data.of(tokens(), vocabulary=7), net=net, run=folder, resume=resume,
            overwrite=more.pop("overwrite", False), progress=notes, train=settings(**more),
        )  # fmt: skip
    except SystemExit as problem:
        end = f"exit {problem.code}"
    except Exception as problem:
        end = f"{type(problem).__name__}: {problem}"
    text = json.dumps({"end": end, "notes": notes.notes, "losses": notes.losses})
    (folder.parent / f"{folder.name}-{_rank()}.json").write_text(text)


def _ranked(rank: int, world: int, nodes: int, port: int, *what) -> None:
    each = world // nodes
    os.environ |= {"LOCAL_RANK": str(rank % each), "WORLD_SIZE": str(world), "NODE_RANK": str(rank // each)}
    if nodes > 1:  # as torchrun has it; else as Lightning
        os.environ |= {"RANK": str(rank), "LOCAL_WORLD_SIZE": str(each), "GROUP_RANK": str(rank // each)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    attempt(*what)


@pytest.fixture(scope="module")
def server():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lightning", "zellige.training.fit", "zellige.training.session", __name__])
    return context


def run(
    server, folder: Path, moment: Moment = Moment(), *, resume: bool = False, world: int = 1, nodes: int = 1, **more
) -> list[dict]:
    """Run in `world` processes on so many nodes; how each ended ({} for one that was killed)."""
    reports = [folder.parent / f"{folder.name}-{rank}.json" for rank in range(world)]
    for report in reports:
        report.unlink(missing_ok=True)
    if world == 1:
        processes = [server.Process(target=attempt, args=(folder, moment, resume, more))]
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        more = {"devices": world // nodes, "accumulate": 1} | more
        processes = [
            server.Process(target=_ranked, args=(rank, world, nodes, port, folder, moment, resume, more))
            for rank in range(world)
        ]
    for process in processes:
        process.start()
    deadline = time.monotonic() + 60
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0.1))
    hung = [p for p in processes if p.is_alive()]
    for process in hung:
        process.kill()
    assert not hung, "a process did not end"
    return [json.loads(r.read_text()) if r.exists() else {} for r in reports]


SAME = ("step", "epoch", "tokens", "loss", "rate", "gradient_norm", "validation", "validation_low", "validation_high")


def curve(folder: Path) -> list[list[str]]:
    with (folder / "metrics.csv").open() as file:
        return [[row[name] for name in SAME] for row in csv.DictReader(file)]


def assert_same(folder: Path, reference: Path) -> None:
    """Everything that the run says is bit for bit what the unbroken one says."""
    assert curve(folder) == curve(reference)
    assert len(curve(folder)) == STEPS
    a, b = (newest(f / "checkpoints") for f in (folder, reference))
    assert a is not None
    assert b is not None
    assert a.name == b.name == f"step-{STEPS:06d}"
    for name in ("model.safetensors", "training.safetensors"):
        (x, _), (y, _) = load_tensors(a / name), load_tensors(b / name)
        assert x.keys() == y.keys()
        assert all(torch.equal(x[k], y[k]) for k in x), name
    best = [best_checkpoint(f / "checkpoints") for f in (folder, reference)]
    assert None not in best
    assert len({f.name for f in best if f}) == 1
    written = sorted(p.name for p in (reference / "samples").iterdir())
    assert sorted(p.name for p in (folder / "samples").iterdir()) == written
    for name in written:
        assert (folder / "samples" / name).read_bytes() == (reference / "samples" / name).read_bytes()
    assert not [p for p in (folder / "checkpoints").iterdir() if p.name.startswith(".")]


@pytest.fixture(scope="module")
def reference(server, tmp_path_factory):
    """The unbroken run: of one process in two parts, or of two processes."""
    made: dict[int, Path] = {}

    def of(world: int) -> Path:
        if world not in made:
            made[world] = tmp_path_factory.mktemp("reference") / "run"
            assert run(server, made[world], world=world)[0]["end"] == "finished"
        return made[world]

    return of


def saved_step(folder: Path) -> int:
    last = newest(folder / "checkpoints")
    return int(last.name.removeprefix("step-")) if last else 0


def check(server, reference, folder: Path, moment: Moment, ends: str, resumed: int, world: int = 1, **more) -> None:
    """Interrupt, look at the disk, resume, compare."""
    first = run(server, folder, moment, world=world, **more)
    assert first[0].get("end", "killed").startswith(ends), first
    assert saved_step(folder) == resumed
    if (folder / "samples").is_dir():  # as a process leaves them that is killed while it writes them
        (folder / "samples" / ".step-000004.jsonl.99.part").touch()
    second = run(server, folder, resume=True, world=world, **more)
    assert [r["end"] for r in second] == ["finished"] + ["exit 0"] * (world - 1), second
    told = next(n for n in second[0]["notes"] if n.startswith("resumed"))
    assert told.startswith(f"resumed at step {resumed} of {STEPS}")
    assert len(second[0]["losses"]) == STEPS - resumed
    assert_same(folder, reference(world))


# ---------------------------------------------------------------------------------------------------- copies
def follow_links(a: Path, b: Path) -> None:
    shutil.copytree(a, b)  # as cp -rL, or an object store, has it


def without_links(a: Path, b: Path) -> None:  # rsync -r --no-links
    links = {p for p in a.rglob("*") if p.is_symlink()}
    shutil.copytree(a, b, ignore=lambda folder, names: [n for n in names if Path(folder, n) in links])


def links_as_files(a: Path, b: Path) -> None:  # git where core.symlinks is false, some archives
    without_links(a, b)
    for link in (p for p in a.rglob("*") if p.is_symlink()):
        (b / link.relative_to(a)).write_text(os.readlink(link))


def archived(kind: str, a: Path, b: Path) -> None:
    shutil.unpack_archive(shutil.make_archive(str(b.parent / "archive"), kind, a), b)


def zipped(a: Path, b: Path) -> None:
    subprocess.run(["zip", "-qr", str(b.parent / "archive.zip"), "."], cwd=a, check=True)
    shutil.unpack_archive(b.parent / "archive.zip", b)


COPIES = {
    "cp -r": lambda a, b: subprocess.run(["cp", "-r", str(a), str(b)], check=True),
    "cp -rL": lambda a, b: subprocess.run(["cp", "-rL", str(a), str(b)], check=True),
    "copytree": follow_links,
    "without links": without_links,
    "links as files": links_as_files,
    "zip": zipped,
    "make_archive zip": lambda a, b: archived("zip", a, b),
    "make_archive tar": lambda a, b: archived("gztar", a, b),
    "dangling": lambda a, b: (without_links(a, b), (b / "checkpoints" / "last").symlink_to("step-000999")),
}


SAME_COPIES = ("cp -rL", "make_archive zip", "make_archive tar")  # of links they make what another way does


@pytest.mark.parametrize("way", [pytest.param(w, marks=[pytest.mark.long] if w in SAME_COPIES else []) for w in COPIES])
def test_a_copy_goes_on_bit_for_bit(way, server, stopped, reference, tmp_path):
    """However people copy a run, and whatever that makes of its links."""
    if way == "zip" and not shutil.which("zip"):
        pytest.skip("no zip here")
    folder = tmp_path / "run"
    COPIES[way](stopped, folder)
    before = {p.name for p in (folder / "checkpoints").iterdir()}
    assert {"step-000004", "step-000005"} <= before
    (folder / "checkpoints" / "step-000004-backup").mkdir()
    for name in ("last", "best"):
        assert model.load(folder, method=Fragile, checkpoint=name).about["step"] == {"last": 5, "best": 4}[name]
    again = run(server, folder, resume=True)
    assert again[0]["end"] == "finished", again
    assert any(n.startswith(f"resumed at step 5 of {STEPS}") for n in again[0]["notes"])
    assert (folder / "checkpoints" / "step-000004-backup").is_dir()
    assert_same(folder, reference(1))


@pytest.fixture(scope="module")
def stopped(server, tmp_path_factory):
    """A run that was stopped at step 5."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    assert run(server, folder, Moment("loss", 9, TERM))[0]["end"] == "exit 143"
    return folder


# A step has two parts, so its parts are the calls 2 step - 1 and 2 step of `loss`. Validation: steps 4 and 8; saved: steps 3,
# 4 (best), 6, ... A validation asks `terms` twice; tensors are written twice a checkpoint.
ALONE = {
    "killed within an accumulation": (Moment("loss", 10, KILL), "killed", 4),
    "killed between two steps": (Moment("loss", 7, KILL), "killed", 3),
    "killed in validation": (Moment("terms", 1, KILL), "killed", 3),
    "killed while saving": (Moment("write", 5, KILL), "killed", 4),
    "killed while saving the first": (Moment("write", 1, KILL), "killed", 0),
    "killed before last links to it": (Moment("point", 4, KILL), "killed", 6),
    "killed before best links to it": (Moment("point", 3, KILL), "killed", 4),
    "SIGTERM before the first step": (Moment("start", 1, TERM), "exit 143", 0),
    "SIGTERM within an accumulation": (Moment("loss", 9, TERM), "exit 143", 5),
    "SIGTERM in the last part": (Moment("loss", 10, TERM), "exit 143", 5),
    "SIGTERM in validation": (Moment("terms", 1, TERM), "exit 143", 4),
    "SIGTERM in the last validation": (Moment("terms", 3, TERM), "exit 143", 8),
    "SIGTERM while saving": (Moment("write", 5, TERM), "exit 143", 6),
    "Ctrl-C within an accumulation": (Moment("loss", 3, INT), "exit 130", 2),
    "Ctrl-C twice": (Moment("loss", 9, -INT), "exit 130", 4),
    "exception within an accumulation": (Moment("loss", 10, "raise"), "Trouble", 4),
    "exception in the first part": (Moment("loss", 11, "raise"), "Trouble", 5),
    "exception in validation": (Moment("terms", 1, "raise"), "Trouble", 4),
    "exception in the last validation": (Moment("terms", 3, "raise"), "Trouble", 8),
    "exception while saving": (Moment("write", 6, "raise"), "Trouble", 6),
    "exception in the data": (Moment("row", 17, "raise"), "Trouble", 4),
    "disk full while saving": (Moment("write", 5, "full"), "InputError: no space left while saving step 6 (needs", 4),
}
TOGETHER = {
    "SIGTERM on rank 0": (Moment("loss", 5, TERM, (0,)), "exit 143", 5),
    "SIGTERM on rank 1": (Moment("loss", 5, TERM, (1,)), "exit 143", 5),
    "SIGTERM on both": (Moment("loss", 5, TERM), "exit 143", 5),
    "SIGTERM on rank 0 before the first step": (Moment("start", 1, TERM, (0,)), "exit 143", 0),
    "SIGTERM on rank 1 before the first step": (Moment("start", 1, TERM, (1,)), "exit 143", 0),
    "SIGTERM in validation, which rank 0 does": (Moment("terms", 1, TERM, (0,)), "exit 143", 4),
    "rank 1 killed": (Moment("loss", 6, KILL, (1,)), "", 5),
    "both killed": (Moment("loss", 6, KILL), "killed", 4),
    "exception on rank 1": (Moment("loss", 6, "raise", (1,)), "", 5),
    "exception on rank 0": (Moment("loss", 6, "raise", (0,)), "Trouble", 5),
    "exception in validation": (Moment("terms", 1, "raise", (0,)), "Trouble", 4),
    "killed while saving": (Moment("write", 5, KILL, (0,)), "killed", 4),
}


# What the others of its kind show as well; each takes a training and its continuation.
ALIKE = (
    "killed between two steps",
    "killed while saving the first",
    "SIGTERM in the last part",
    "SIGTERM in the last validation",
    "exception in the first part",
    "exception in the last validation",
    "exception while saving",
    "SIGTERM on both",
    "SIGTERM on rank 0 before the first step",
    "rank 1 killed",
    "exception on rank 0",
    "exception in validation",
)


def cases(names):
    return [pytest.param(name, marks=pytest.mark.long if name in ALIKE else []) for name in names]


@pytest.mark.parametrize("case", cases(ALONE))
def test_one_process(case, server, reference, tmp_path):
    check(server, reference, tmp_path / "run", *ALONE[case])


@pytest.mark.parametrize(
    "case",
    [
        "killed within an accumulation",
        "SIGTERM within an accumulation",
        pytest.param("exception in validation", marks=pytest.mark.long),
        pytest.param("SIGTERM while saving", marks=pytest.mark.long),
    ],
)
def test_two_workers(case, server, reference, tmp_path):
    check(server, reference, tmp_path / "run", *ALONE[case], workers=2)


@pytest.mark.parametrize(
    ("where", "at", "after"),
    [
        *(("gone", 1, after) for after in ("overwrite", "resume")),
        ("config", 1, "resume"),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (("gone", 2, "overwrite"), ("gone", 2, "resume"), ("config", 1, "overwrite"))
        ),
    ],
)
def test_killed_while_a_run_is_overwritten(where, at, after, server, stopped, reference, tmp_path):
    """The folder is a run at every moment: it can be overwritten again, or the old run begun anew, and nothing of it is left."""
    folder = tmp_path / "run"
    shutil.copytree(stopped, folder, symlinks=True)
    assert run(server, folder, Moment(where, at, KILL), overwrite=True) == [{}]
    plain = run(server, folder)[0]["end"]
    assert plain == f"InputError: '{folder}' holds a run; add `resume` to continue it or `overwrite` to replace it"
    again = run(server, folder, resume=after == "resume", overwrite=after == "overwrite")
    assert again[0]["end"] == "finished"
    assert_same(folder, reference(1))
    earlier = (
        {"metrics-before.csv"} if after == "resume" else set()
    )  # the curve that was there, where it was not removed yet
    assert {p.name for p in folder.iterdir()} - earlier == {p.name for p in reference(1).iterdir()}


def test_worker_fails(server, reference, tmp_path):
    """An exception in a process that reads data: the steps before it are saved."""
    folder = tmp_path / "run"
    first = run(server, folder, Moment("row", 9, "raise"), workers=2)
    assert first[0]["end"].startswith("Trouble")
    step = saved_step(folder)
    assert step > 0
    assert run(server, folder, resume=True, workers=2)[0]["notes"][1].startswith(f"resumed at step {step} ")
    assert_same(folder, reference(1))


def test_signal_to_the_workers_too(server, reference, tmp_path):
    """As a batch system sends it: the processes that read data get it as well, here before the trainer does."""
    folder = tmp_path / "run"
    first = run(server, folder, Moment("loss", 9, "group"), workers=2)
    assert first[0]["end"] == "exit 143"
    step = saved_step(folder)
    assert step == 5  # they go on reading until it is saved
    assert run(server, folder, resume=True, workers=2)[0]["notes"][1].startswith(f"resumed at step {step} ")
    assert_same(folder, reference(1))


@pytest.mark.parametrize("case", cases(TOGETHER))
def test_two_processes(case, server, reference, tmp_path):
    check(server, reference, tmp_path / "run", *TOGETHER[case], world=2)


def test_two_processes_have_the_gradient_of_one(server, tmp_path):
    """On the same batch: one process at once, one process in two parts, two processes; to 1e-6."""
    ways: dict[str, Any] = {"once": {"accumulate": 1}, "parts": {"accumulate": 2}, "processes": {"world": 2}}
    moments = {}
    for name, how in ways.items():
        run(server, tmp_path / name, steps=1, warmup=0, clip=0.0, dropout=0.0, validate_rows=2, samples=0, **how)
        last = newest(tmp_path / name / "checkpoints")
        assert last is not None
        saved, _ = load_tensors(last / "training.safetensors")
        moments[name] = {
            k: v / (1 - 0.9) for k, v in saved.items() if k.endswith("exp_avg")
        }  # after one step: the gradient
    assert max(float(g.abs().max()) for g in moments["once"].values()) > 1e-2
    for name in ("parts", "processes"):
        assert moments[name].keys() == moments["once"].keys()
        for key, gradient in moments["once"].items():
            torch.testing.assert_close(moments[name][key], gradient, rtol=0, atol=1e-6)


def test_sharded(server, reference, tmp_path):
    """FSDP: the numbers of two whole copies, and the same again when it is stopped and goes on."""
    whole, folder = tmp_path / "whole", tmp_path / "run"
    run(server, whole, world=2, strategy="fsdp")
    first = run(server, folder, Moment("loss", 5, TERM, (1,)), world=2, strategy="fsdp")
    assert first[0]["end"] == "exit 143", first
    assert saved_step(folder) == 5
    assert run(server, folder, resume=True, world=2, strategy="fsdp")[0]["end"] == "finished"
    assert_same(folder, whole)
    a, b = (load_tensors(f / "checkpoints" / "last" / "model.safetensors")[0] for f in (whole, reference(2)))
    assert a.keys() == b.keys()
    for key in a:
        torch.testing.assert_close(a[key], b[key], rtol=0, atol=1e-5)


SCRIPT = """
import sys, torch
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
from training.test_resume import Fragile, Net, Notes, settings, tokens
from zellige import Data
from zellige.training.train import train

class Show(Notes):
    def note(self, text):
        print(text, flush=True)
    def step(self, step, loss, unit, speed):
        print("step", step, flush=True)

if __name__ == "__main__":
    net = Net(layers=1, hidden=16, heads=2, length=8, conv=3, dropout=0.1)
    run = train(Fragile, data=Data.of(tokens(), vocabulary=7), net=net, run={folder!r}, progress=Show(),
                train=settings(devices=2, accumulate=1, steps=100_000))
    print("done", run.steps, flush=True)
"""


def _script(tmp_path: Path, folder: Path) -> subprocess.Popen:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(tests=str(Path(__file__).parents[1]), folder=str(folder)))
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE", "NODE_RANK")}
    return subprocess.Popen(
        [sys.executable, str(path)], stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    )


@pytest.mark.long
def test_script_that_starts_its_own_processes(server, tmp_path):
    """As a person has it: one command, which starts the second process; the signal reaches the first only."""
    folder = tmp_path / "run"
    first = _script(tmp_path, folder)
    assert first.stdout is not None
    seen = 0
    for line in first.stdout:
        if line.startswith("step"):
            seen += 1
            if seen == 3:
                first.send_signal(signal.SIGTERM)
        if line.startswith("stopped and saved"):
            assert f"{saved_step(folder)}" in line
    assert first.wait(60) == 143
    assert 3 <= saved_step(folder) < 20
    step = saved_step(folder)
    again = run(server, folder, world=2, resume=True, steps=step + 3)
    assert [r["end"] for r in again] == ["finished", "exit 0"]
    assert len(again[0]["losses"]) == 3


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_random_moments(seed, server, reference, tmp_path):
    """A signal from outside, at any moment at all, again and again until the run is through."""
    dice = random.Random(seed)
    folder, workers, resumed = tmp_path / "run", dice.choice([0, 2]), 0
    for _ in range(60):
        there = (folder / "config.json").exists()
        process = server.Process(target=attempt, args=(folder, Moment(), there, {"workers": workers}))
        report = tmp_path / "run-0.json"
        report.unlink(missing_ok=True)
        process.start()
        process.join(0.1 + 0.4 * dice.random())
        if process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, dice.choice([KILL, TERM, INT]))
        process.join(60)
        assert not process.is_alive()
        assert saved_step(folder) >= resumed
        resumed = saved_step(folder)
        if report.exists() and json.loads(report.read_text())["end"] == "finished":
            break
    else:
        assert run(server, folder, resume=True, workers=workers)[0]["end"] == "finished"
    assert_same(folder, reference(1))
