import json
import math
import os
import pickle
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
import torch

from testing.disks import small_disk
from zellige import Config, Data, InputError, Net, Train, load
from zellige.base import files
from zellige.data.tokenizer import Characters, Integers
from zellige.methods import METHODS, build
from zellige.methods.mdlm import MDLM
from zellige.models import model as checkpoint
from zellige.models.checkpoint.layout import newest, sample_files, samples_file, steps
from zellige.models.checkpoint.read import best, load_tensors
from zellige.models.checkpoint.write import link, pack, prune, save_tensors, unpack, write_checksums
from zellige.models.model import Model

TINY = Net(layers=1, hidden=16, heads=2, length=8, condition=8)
FILES = ["SHA256SUMS", "config.json", "model.safetensors", "tokenizer.json"]


def model(method: str = "mdlm", size: int = 5, net=TINY) -> Model:
    torch.manual_seed(0)
    config = Config(method, METHODS[method].Config(), Data(), net, Train(), "runs/a")
    made = build(method, size, net, config.options)
    for p in made.parameters():
        torch.nn.init.normal_(p)
    return Model(made, Integers(size), config, {"step": 12})


def same(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    x, y = a.state_dict(), b.state_dict()
    return x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x)


@pytest.fixture
def saved(tmp_path) -> Path:
    return model().save(tmp_path / "model")


# ---------------------------------------------------------------------------------------------------- there and back
@pytest.mark.parametrize("method", METHODS)
def test_round_trip(method, tmp_path):
    one = model(method)
    one.save(tmp_path / "out")
    two = load(tmp_path / "out")
    assert same(one.method, two.method)
    assert (two.config, two.about, two.tokenizer.fingerprint) == (one.config, one.about, one.tokenizer.fingerprint)
    assert not two.method.training
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == FILES
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    x = torch.randint(0, one.tokenizer.size, (2, 8))
    torch.testing.assert_close(one.method.network.features(x, *_time(one)), two.method.network.features(x, *_time(two)))


def test_equal_models_are_equal_files(tmp_path):
    folders = [model().save(tmp_path / str(n)) for n in range(12)]
    assert len({tuple(file.read_bytes() for file in sorted(folder.iterdir())) for folder in folders}) == 1


def _time(model: Model) -> tuple:
    return (torch.tensor([0.3, 0.6]),) if type(model.method).timed(model.config.options) else ()


def test_loading_leaves_the_random_numbers_alone(saved):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    load(saved)
    assert torch.equal(torch.get_rng_state(), before)


def test_saving_twice_replaces(saved):
    other = model()
    torch.nn.init.zeros_(next(other.method.parameters()))
    other.save(saved)
    assert same(load(saved).method, other.method)


def test_saving_twice_leaves_nothing_of_the_earlier_model(saved):
    """Its card and its evaluations are of other weights."""
    model().save_pretrained(saved)
    (saved / "evaluate-text-test.json").write_text("{}")
    assert sorted(file.name for file in model().save(saved).iterdir()) == FILES


@pytest.mark.parametrize(
    "theirs",
    [
        ["notes.txt"],
        ["config.json", "src/precious.py"],
        ["config.json", "README.md"],
        ["config.json", "model.safetensors", "tokenizer.json", "README.md"],  # which others may have published
        [*FILES, "training.json", "training.safetensors", "metrics.csv"],  # a checkpoint
        [*FILES, ".git/config"],
    ],
)
@pytest.mark.parametrize("write", ["save", "save_pretrained", "export"])
def test_save_keeps_what_is_not_a_model(write, theirs, tmp_path):
    folder = tmp_path / "mine"
    for name in theirs:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    with pytest.raises(InputError, match=r"mine' holds something that is not a model; choose another folder"):
        getattr(model(), write)(folder)
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == {*theirs}
    assert {(folder / name).read_text() for name in theirs} == {"mine"}


def test_text_and_unit():
    m = model(size=3)
    assert m.unit == "nats/token"
    m.tokenizer = Characters("abc")
    assert m.unit == "bits/char"
    assert m.text(torch.tensor([[0, 1, 3], [2, 2, 2]])) == ["ab·", "ccc"]
    assert m.text(torch.tensor([0, 1, 2])) == ["abc"]


class Own(MDLM):
    name = "own"


class Mine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = torch.nn.Embedding(6, 4), torch.nn.Linear(4, 6)

    def features(self, x, time=None, **kw):
        return self.embed(x)

    def head(self, h):
        return self.out(h)


def test_own_classes_are_handed_over(tmp_path):
    config = Config("own", Own.Config(), Data(), TINY, Train(), "", "Mine")
    one = Model(build(Own, 5, Mine(), length=8), Integers(5), config)
    one.save(tmp_path / "out")
    with pytest.raises(InputError, match="'own' is not a method of Zellige; hand its class over"):
        load(tmp_path / "out", net=Mine())
    with pytest.raises(InputError, match=r"trained with an own network \(Mine\); hand it over"):
        load(tmp_path / "out", method=Own)
    two = load(tmp_path / "out", method=Own, net=Mine())
    assert type(two.method) is Own
    assert same(one.method, two.method)


# ---------------------------------------------------------------------------------------------------- what is refused
CHANGED = (
    "has changed since it was written (SHA256SUMS); copy the folder again, or take it as it is with `checksums=False`"
)


def test_checksums_are_those_of_sha256sum(saved):
    done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=saved, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        ["config.json: OK", "model.safetensors: OK", "tokenizer.json: OK"],
    )


def test_what_has_changed_is_refused_unless_asked_for(saved, tmp_path, monkeypatch):
    """Another run's weights of the same shape, another tokenizer, an edited config: each by its name."""
    monkeypatch.chdir(saved)
    other = model()
    torch.nn.init.normal_(next(other.method.parameters()))
    other.save(tmp_path / "other")
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        before = Path(name).read_bytes()
        changed = (tmp_path / "other" / name).read_bytes() if name == "model.safetensors" else before + b" "
        Path(name).write_bytes(changed)
        assert fails(saved) == f"'{name}' {CHANGED}"
        assert load(saved, checksums=False).about["step"] == 12
        Path(name).write_bytes(before)
    assert same(load(saved).method, model().method)


def test_checksums_that_are_damaged(saved, monkeypatch):
    monkeypatch.chdir(saved)
    sums = Path("SHA256SUMS")
    lines = sums.read_text().splitlines(keepends=True)
    accept = "copy the folder again, or take it as it is with `checksums=False`"
    for damaged, message in (
        ("".join(lines).replace("  ", " "), f"line 1 of 'SHA256SUMS' is no checksum; {accept}"),
        ("", f"line 1 of 'SHA256SUMS' is no checksum; {accept}"),
        ("".join(lines[:1]), f"'SHA256SUMS' does not list 'tokenizer.json'; {accept}"),
        ("".join([lines[0], *lines]), f"line 2 of 'SHA256SUMS' is no checksum; {accept}"),
    ):
        sums.write_text(damaged)
        assert fails(saved) == message
    sums.unlink()
    sums.symlink_to("SHA256SUMS")
    assert fails(saved) == f"'{saved}/SHA256SUMS' is a link that leads in a circle; {accept}"
    sums.unlink()
    assert load(saved).about["step"] == 12  # as a folder of an earlier version


@pytest.mark.parametrize(("value", "name"), [(math.nan, "NaN"), (math.inf, "infinity"), (-math.inf, "infinity")])
def test_weights_that_are_not_finite(value, name, tmp_path):
    one = model()
    with torch.no_grad():
        one.method.get_parameter("network.embedding.weight")[2, 3] = value
    one.save(tmp_path / "m")
    assert fails(tmp_path / "m") == (
        f"the weights are not finite: network.embedding.weight has {name} for 1 of its 96 numbers; "
        "take an earlier checkpoint, or copy or download it again"
    )


def test_a_buffer_may_be_infinite_but_not_nan(tmp_path):
    for value, refused in ((-math.inf, False), (math.nan, True)):
        network = Mine()
        network.register_buffer("barrier", torch.full((3,), value))
        one = Model(
            build(Own, 5, network, length=8), Integers(5), Config("own", Own.Config(), net=TINY, network="Mine")
        )
        one.save(tmp_path / "out")
        if refused:
            assert "network.barrier has NaN for 3 of its 3 numbers" in fails(tmp_path / "out", method=Own, net=network)
        else:
            load(tmp_path / "out", method=Own, net=network)


def fails(path, **how) -> str:
    with pytest.raises(InputError) as caught:
        load(path, **how)
    return str(caught.value)


@pytest.mark.parametrize("keep", [0, 5, 8, 100, 0.5, -1])
def test_truncated(saved, keep, monkeypatch):
    monkeypatch.chdir(saved)
    file = saved / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(keep * len(whole)) if isinstance(keep, float) else keep])
    have = file.stat().st_size
    need = f"{len(whole):,}" if have >= 8 + struct.unpack("<Q", whole[:8])[0] else ""
    message = fails(saved)
    assert message.startswith(f"'model.safetensors' is truncated ({have:,} of {need}")
    assert message.endswith(" bytes); copy or download it again")


@pytest.fixture
def changed(saved) -> Path:
    """A folder whose weights are about to be replaced: without checksums, which would say so first."""
    (saved / "SHA256SUMS").unlink()
    return saved


def test_another_format(changed, monkeypatch):
    saved = changed
    monkeypatch.chdir(saved)
    tensors, meta = load_tensors(saved / "model.safetensors")
    save_tensors(saved / "model.safetensors", tensors, meta | {"format": "2"})
    assert fails(saved) == "'model.safetensors' has format '2'; Zellige 0.2.0 reads format 1"


def test_keys(changed):
    saved = changed
    tensors, meta = load_tensors(saved / "model.safetensors")
    rest = {k: v for k, v in tensors.items() if ".mlp.0." not in k}
    save_tensors(saved / "model.safetensors", rest, meta)
    assert fails(saved) == (
        "checkpoint does not fit: 2 keys missing (network.blocks.0.mlp.0.weight, network.blocks.0.mlp.0.bias), "
        "0 unexpected; config says 1 layers"
    )
    save_tensors(saved / "model.safetensors", tensors | {"extra": torch.zeros(1)}, meta)
    assert "0 keys missing, 1 unexpected (extra)" in fails(saved)
    name = "network.embedding.weight"
    save_tensors(saved / "model.safetensors", tensors | {name: torch.zeros(2, 3)}, meta)
    assert f"checkpoint does not fit: {name} is 2 x 3, the model has 6 x 16" in fails(saved)


def test_wrong_files(changed, tmp_path):
    saved = changed
    (saved / "model.safetensors").write_bytes(struct.pack("<Q", 20) + b"not a header at all....")
    assert "is not a safetensors file" in fails(saved)
    (saved / "model.safetensors").unlink()
    assert fails(saved).startswith("no file at '")
    (saved / "config.json").write_text("{")
    assert "is not JSON" in fails(saved)
    (saved / "config.json").write_text('{"model_type": "bert"}')
    assert "is not the config of a Zellige model" in fails(saved)
    (saved / "config.json").unlink()
    assert "holds no config.json" in fails(saved)
    (tmp_path / "runs" / "first" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "frist-notes").mkdir()  # holds no model
    assert fails(tmp_path / "runs" / "frist") == (
        f"no run or model at '{tmp_path}/runs/frist'; nearest in that folder: 'first'"
    )


class Evil:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5, "zip", "legacy", "inside"])
def test_pickles_are_refused_and_not_run(protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nest = {"epoch": 3, "state_dict": {"w": torch.zeros(2)}, "callbacks": [Evil(tmp_path / "run")]}
    path = tmp_path / "last.ckpt"
    if isinstance(protocol, int):
        path.write_bytes(pickle.dumps(nest, protocol))
    elif protocol == "inside":  # a pickle under the name of a safetensors file
        model().save(tmp_path / "m")
        torch.save(nest, tmp_path / "m" / "model.safetensors")
        path = tmp_path / "m" / "model.safetensors"
        assert (
            fails(tmp_path / "m")
            == "'m/model.safetensors' asks to run 'posix.system' when loaded; refused, nothing was run"
        )
    else:
        torch.save(nest, path, _use_new_zipfile_serialization=protocol == "zip")
    name = str(path.relative_to(tmp_path))
    assert fails(path) == f"'{name}' asks to run 'posix.system' when loaded; refused, nothing was run"
    assert not (tmp_path / "run").exists()


def test_pickles_without_tensors_of_a_model(tmp_path):
    torch.save({"w": torch.zeros(2)}, tmp_path / "w.pt")
    assert "comes without a config.json; choose with `system`" in fails(tmp_path / "w.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps([1, 2]))
    assert "is damaged" in fails(tmp_path / "plain.pt")
    (tmp_path / "code.pkl").write_bytes(pickle.dumps(Evil(tmp_path / "run")))
    assert "asks to run 'posix.system' when loaded; refused" in fails(tmp_path / "code.pkl")


def test_hub_errors(monkeypatch):
    import huggingface_hub
    from huggingface_hub import errors

    def answer(problem):
        def download(*args, **kw):
            raise problem

        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)

    monkeypatch.chdir("/")
    answer(errors.LocalEntryNotFoundError("nothing in the cache."))
    assert fails("nobody/nothing") == (
        "no folder at 'nobody/nothing', and the Hugging Face hub cannot be reached (Name or service not known); "
        "check the connection, or give a folder"
    )
    answer(errors.HFValidationError("x"))
    assert fails("nobody/nothing") == (
        "no folder at 'nobody/nothing' and no such model on the Hugging Face hub; give a run, a saved folder or a hub id"
    )


def test_from_the_hub(saved, monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **kw: str(saved))
    assert load("somebody/model").about["step"] == 12


# ---------------------------------------------------------------------------------------------------- a run's folders
def checkpoints(folder: Path, *at: int, best: int | None = None) -> Path:
    """A run's checkpoints; the last one records the best."""
    points = folder / "checkpoints"
    points.mkdir(parents=True)
    for step in at:
        one = model()
        one.about["step"] = step
        one.save(points / f"step-{step:06d}")
        state(points / f"step-{step:06d}", best)
    return points


def state(folder: Path, best: int | None) -> None:
    """A checkpoint's training.json, in which the best validation is that of a step."""
    progress = {"step": 1, "settled": 1, "seconds": 1.0, "tokens": 1, "window": [], "validations": 1, "norms": []}
    progress["best"] = None if best is None else {"step": best, "value": 1.0, "result": {}}
    record = {"weights": {}, "optimizer_states": [], "run": progress, "global_step": 1, "epoch": 0}
    (folder / "training.json").write_text(json.dumps(record))
    write_checksums(folder)


def test_which_checkpoint_of_a_run(tmp_path):
    run = tmp_path / "run"
    points = checkpoints(run)
    assert "holds no checkpoint yet; continue it with `resume`" in fails(run)
    points.rmdir()
    checkpoints(run, 3, 6, 9)
    assert load(run).about["step"] == 9
    state(points / "step-000009", best=3)
    assert load(run).about["step"] == 3
    assert load(run, checkpoint="last").about["step"] == 9
    assert load(run, checkpoint="step-000006").about["step"] == 6
    assert load(points / "last").about["step"] == 9
    assert load(points / "best").about["step"] == 3
    assert "has no checkpoint 'frist', only best, last, step-000003" in fails(run, checkpoint="frist")
    assert "only best, last, step-000003" in fails(run, checkpoint="a" * 999)  # longer than any file's name
    assert "is not a run" in fails(points / "step-000006", checkpoint="last")
    link(points)
    assert {name: os.readlink(points / name) for name in ("last", "best")} == {
        "last": "step-000009",
        "best": "step-000003",
    }
    prune(points, 1)
    assert sorted(p.name for p in points.iterdir()) == ["best", "last", "step-000003", "step-000009"]


def test_what_a_copy_leaves_where_the_links_were(tmp_path):
    """Nothing, dangling links, small files, folders, empty ones: the last and the best are what they were."""
    points = checkpoints(tmp_path / "run", 3, 6, 9, best=6)

    def leave(kind: str) -> None:
        for name, wrong in (("last", "step-000003"), ("best", "step-000004")):
            place = points / name
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            place.unlink(missing_ok=True)
            if kind == "link":
                place.symlink_to(wrong)
            elif kind == "file":
                place.write_text(wrong)
            elif kind == "folder":
                shutil.copytree(points / "step-000003", place)
            elif kind == "empty folder":
                place.mkdir()

    for kind in ("nothing", "link", "file", "folder", "empty folder"):
        leave(kind)
        assert load(tmp_path / "run").about["step"] == 6, kind
        assert load(tmp_path / "run", checkpoint="last").about["step"] == 9, kind
        assert load(points / "last").about["step"] == 9, kind
        assert load(points / "best").about["step"] == 6, kind
        before = sorted(p.name for p in points.iterdir() if not p.is_symlink() and not p.is_file())
        link(points)
        assert sorted(p.name for p in points.iterdir() if not p.is_symlink()) == before, kind
    for step in (3, 6, 9):
        shutil.rmtree(points / f"step-{step:06d}")
    leave("nothing")
    model().save(points / "last")  # all that somebody has copied
    assert load(tmp_path / "run").about["step"] == 12


def test_only_folders_of_our_names_are_checkpoints(tmp_path):
    points = checkpoints(
        tmp_path / "run", 3, 60, 999_999, 1_234_567, best=60
    )  # by name the one before the last comes last
    others = ["step-000060-backup", "step-60", "step-", "step-00060", "Step-000090", "step-000070.old", "last.bak"]
    for name in others:
        (points / name).mkdir()
    (points / "step-000099").write_text("a file")
    (points / "step-000050").symlink_to("step-000003")
    of_names = ["step-000003", "step-000050", "step-000060", "step-999999", "step-1234567"]
    assert [p.name for p in steps(points)] == of_names
    assert newest(points) == points / "step-1234567"
    link(points)
    assert os.readlink(points / "last") == "step-1234567"
    (points / "last").unlink()
    (points / "best").unlink()
    for step in (1_000_000, 999_999, 60):
        samples_file(tmp_path, step).parent.mkdir(exist_ok=True)
        samples_file(tmp_path, step).touch()
    names = [file.name for file in sample_files(tmp_path)]
    assert names == ["step-000060.jsonl", "step-999999.jsonl", "step-1000000.jsonl"]
    prune(points, 1)
    there = {p.name for p in points.iterdir()}
    assert there == {*others, "step-000099", "step-000050", "step-000060", "step-1234567"}


@pytest.mark.parametrize("text", ["", "[", "[]", '{"run": 3}', '{"run": {"best": {"step": "x"}}}', "[" * 9999])
def test_a_record_that_cannot_be_read_leaves_the_link(text, tmp_path):
    """Without the link it is refused: another checkpoint than the best would give other numbers."""
    points = checkpoints(tmp_path / "run", 3, 6)
    (points / "step-000006" / "training.json").write_text(text)
    with pytest.raises(InputError, match=r"step-000006/training.json' has changed since it was written"):
        best(points)
    (points / "step-000006" / "SHA256SUMS").unlink()
    with pytest.raises(InputError, match=r"step-000006/training.json'"):
        best(points)
    (points / "best").symlink_to("step-000003")
    assert best(points) == points / "step-000003"


@pytest.mark.parametrize("at", ["own_config", "load_tokenizer", "load_weights"])
def test_pruned_while_it_is_read(at, tmp_path, monkeypatch):
    """A training beside us removes the checkpoint that is being read: the next one is read instead."""
    points = checkpoints(tmp_path / "run", 3)
    plain, read = getattr(checkpoint, at), []

    def slow(path, *more, **how):
        folder = path if path.is_dir() else path.parent
        read.append(folder.name)
        if len(read) == 1:
            checkpoints(tmp_path / "other", 6)
            (tmp_path / "other/checkpoints/step-000006").rename(points / "step-000006")
            prune(points, 1)
        if at == "load_weights" and not path.exists():  # as torch does
            raise RuntimeError(f"unable to open file <{path}>")
        return plain(path, *more, **how)

    monkeypatch.setattr(checkpoint, at, slow)
    assert load(tmp_path / "run").about["step"] == 6
    assert (read[0], read[-1]) == ("step-000003", "step-000006")


def test_systems_without_symbolic_links(tmp_path, monkeypatch):
    def refuse(*args, **kw):
        raise OSError(1, "a privilege is missing")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    points = checkpoints(tmp_path / "run", 3, 6, best=3)
    link(points)
    assert sorted(p.name for p in points.iterdir()) == ["step-000003", "step-000006"]
    assert load(points / "best").about["step"] == 3
    assert files.follow(points / "none") is None


# ---------------------------------------------------------------------------------------------------- writing
@pytest.mark.parametrize("stage", ["write", "sync", "rename", "end"])
def test_folder_is_whole_or_as_before(stage, tmp_path, monkeypatch):
    def write(text):
        def fill(folder: Path):
            (folder / "a").write_text(text)
            (folder / "b").write_text(text)
            if text == "new" and stage == "write":
                raise KeyboardInterrupt

        return fill

    target = tmp_path / "x"
    files.write_folder(target, write("old"))
    count = []

    def trouble(*args):
        count.append(1)
        if len(count) == {"sync": 2, "end": 4}.get(stage, 0):
            raise KeyboardInterrupt

    monkeypatch.setattr(files, "sync", trouble)
    if stage == "rename":
        rename = Path.rename

        def broken(self, to):
            if self.name.endswith(".part"):
                raise KeyboardInterrupt
            return rename(self, to)

        monkeypatch.setattr(Path, "rename", broken)
    with pytest.raises(KeyboardInterrupt):
        files.write_folder(target, write("new"))
    monkeypatch.undo()
    found = {p.read_text() for p in target.iterdir()}
    assert found == ({"new"} if stage == "end" else {"old"})
    files.sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_sweep_puts_back_what_was_moved_away(tmp_path):
    """Killed between the two renames of a replacement: the old folder has its name again."""
    (tmp_path / ".x.123.old").mkdir()
    (tmp_path / ".x.123.part").mkdir()
    files.sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_what_an_ended_process_left_goes_with_the_next_write(tmp_path):
    """`.lock.json.N.part` and `.o.json.N.part` stayed after a kill. What a process may still write stays."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    for process in (ended.pid, os.getppid()):
        (tmp_path / f".o.json.{process}.part").write_text("half")
        (tmp_path / f".model.{process}.part").mkdir()
    (tmp_path / f".other.{ended.pid}.part").write_text("of another file")
    files.write_file(tmp_path / "o.json", "{}")
    files.write_folder(tmp_path / "model", lambda folder: None)
    assert {p.name for p in tmp_path.iterdir()} == {
        "o.json", "model", f".o.json.{os.getppid()}.part", f".model.{os.getppid()}.part", f".other.{ended.pid}.part",
    }  # fmt: skip
    files.writable(tmp_path / "other")  # as a command does that begins
    assert not (tmp_path / f".other.{ended.pid}.part").exists()


@pytest.mark.parametrize("name", [".", ""])
def test_a_folder_is_written_under_a_name_only(name, tmp_path, monkeypatch):
    """Not in the place of the one that a shell is in."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^'\.' is not a name that a new folder can take; give one, e\.g\. 'model'$"):
        files.write_folder(name, lambda folder: None)


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_who_may_read_a_checkpoint_is_the_umasks_to_say(umask, tmp_path):
    """The tensors were for their owner alone, whatever it said."""
    before = os.umask(umask)
    try:
        folder = model().save(tmp_path / "model")
        there = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    finally:
        os.umask(before)
    assert "model.safetensors" in there
    assert set(there.values()) == {0o666 & ~umask}
    assert folder.stat().st_mode & 0o777 == 0o777 & ~umask


def test_full_disk(saved, tmp_path):
    before = {p.name: p.read_bytes() for p in saved.iterdir()}
    other = model()
    no_space = r"no space left while saving '.*' \(needs 0.0 MB, .* free\); free space and"
    for target in (saved, tmp_path / "new"):
        with small_disk(3000), pytest.raises(InputError, match=no_space):
            other.save(target)
    assert {p.name: p.read_bytes() for p in saved.iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_device_is_recognised():
    with pytest.raises(OSError, match="No space left") as caught:
        Path("/dev/full").write_text("x")
    assert files.is_full(caught.value)


def test_any_state_comes_back():
    """Integer keys, tuples, nests, empty things, and a dict that looks like our own words."""
    state = {
        "state": {0: {"step": torch.tensor(5.0), "m": torch.arange(6).reshape(2, 3).bfloat16()}, 1: {}},
        "groups": [{"betas": (0.9, 0.99), "lr": 1e-3, "none": None, "flag": True, "params": [0, 1]}],
        "tensor": {"tensor": "x"}, "tuple": {"tuple": 1}, "items": {"items": []}, "empty": (), "nan": math.inf,
    }  # fmt: skip
    tensors: dict[str, torch.Tensor] = {}
    plain = json.loads(json.dumps(pack(state, tensors)))
    back = unpack(plain, tensors)
    assert torch.equal(back["state"][0].pop("m"), state["state"][0].pop("m"))
    assert back == state
    assert isinstance(back["groups"][0]["betas"], tuple)
    with pytest.raises(TypeError, match=r"groups\.0 is a set"):
        pack({"groups": [{1}]}, {})


def test_tensors_that_share_memory(tmp_path):
    a = torch.arange(6.0).reshape(2, 3)
    save_tensors(tmp_path / "t", {"a": a, "same": a, "turned": a.T})
    back, _ = load_tensors(tmp_path / "t")
    assert torch.equal(back["same"], a)
    assert torch.equal(back["turned"], a.T)
