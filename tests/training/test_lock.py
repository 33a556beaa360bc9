"""One process at a time trains in a folder, or compares in it; whatever ended the one before."""

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from zellige import Data, InputError, Net, Train, compare, load
from zellige.show.progress import Progress
from zellige.training import lock
from zellige.training.train import train

HOLD = """
import os, sys, time
from pathlib import Path
from zellige.training import lock
with lock.hold(Path(sys.argv[1]), "trained"):
    child = os.fork()  # as a process that reads data is
    if child:
        print(os.getpid(), child, flush=True)
    time.sleep(60)
"""


@dataclass
class Holder:
    """A process that holds a folder, and has a forked child."""

    folder: Path

    def __enter__(self) -> "Holder":
        command = [sys.executable, "-c", HOLD, str(self.folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.pid, self.child = map(int, self.process.stdout.readline().split())
        return self

    def kill(self) -> None:
        """As kill -9 does; the child lives on."""
        self.process.kill()
        self.process.wait()

    def __exit__(self, *_) -> None:
        self.kill()
        os.kill(self.child, signal.SIGKILL)


def go(folder: Path, progress=None, **how):
    settings = Train(steps=2, batch=4, validate_rows=4, samples=0, tensorboard=False, device="cpu")
    tokens = torch.randint(0, 7, (60, 8), generator=torch.Generator().manual_seed(5))
    net = Net(layers=1, hidden=16, heads=2, length=8, condition=8)
    return train(
        "mdlm", data=Data.of(tokens, vocabulary=7), net=net, train=settings, run=folder, progress=progress, **how
    )


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return go(Path("runs/a")).folder


def contents(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_second_training_is_refused(run):
    with Holder(run) as holder:
        before = contents(run)
        for how in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(InputError) as refused:
                go(run, **how)
            since = json.loads((run / lock.HOLDER).read_text())["since"]
            assert str(refused.value) == (
                f"'runs/a' is being trained by process {holder.pid} on {socket.gethostname()} since {since}; "
                "wait for it, or stop it first"
            )
        assert contents(run) == before
        assert load(run).about["step"] == 2  # who reads is not kept out
        holder.kill()
        assert (run / lock.HOLDER).exists()  # what it said stays, and holds nobody; nor does its child
        assert go(run, resume=True).steps == 2
    assert not [p for p in run.iterdir() if p.name.startswith(".")]


def test_a_copied_lock_holds_nothing(run, tmp_path):
    with Holder(run):
        subprocess.run(["cp", "-r", str(run), str(tmp_path / "copy")], check=True)
        assert (tmp_path / "copy" / lock.LOCK).exists()
        assert go(tmp_path / "copy", resume=True).steps == 2


class Second(Progress):
    """Tries the same folder while the first one trains."""

    def __init__(self, folder: Path):
        self.folder, self.refused = folder, ""

    def step(self, *_):
        with pytest.raises(InputError) as refused:
            go(self.folder, overwrite=True)
        self.refused = str(refused.value)


def test_a_new_run_is_held_from_the_beginning(tmp_path):
    progress = Second(tmp_path / "a")
    assert go(tmp_path / "a", progress=progress).steps == 2
    assert f"is being trained by process {os.getpid()} on " in progress.refused
    assert not list(tmp_path.rglob(".lock*"))


REFUSED = {  # early and late: by the options, the folder, the data, the network, a checkpoint
    "batch": {"train": Train(batch=5, accumulate=2, device="cpu")},
    "nodes": {"train": Train(nodes=2, device="cpu")},
    "start": {"train": Train(start="missing", device="cpu")},
    "resume": {"resume": True},
    "both": {"resume": True, "overwrite": True},
    "data": {"data": Data("text", path="missing.txt")},
    "long": {"data": Data.of(torch.zeros(60, 8, dtype=torch.long), vocabulary=7), "net": Net(length=9)},
    "network": {"net": torch.nn.Linear(2, 2)},
}


@pytest.mark.parametrize("how", REFUSED.values(), ids=REFUSED)
def test_nothing_stays_of_what_was_refused(how, tmp_path):
    with pytest.raises(InputError):
        train("mdlm", **{"data": "sudoku", "run": tmp_path / "runs" / "deep" / "a"} | how)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt, MemoryError])
def test_nothing_stays_of_what_was_stopped_before_its_first_step(stop, tmp_path, monkeypatch):
    def stopped(*_):
        raise stop

    monkeypatch.setattr("zellige.training.setup.read_corpus", stopped)
    with pytest.raises(stop):
        go(tmp_path / "runs" / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_holds_its_folder(tmp_path):
    with Holder(tmp_path / "c") as holder:
        with pytest.raises(InputError, match=f"is being compared by process {holder.pid} on "):
            compare(["mdlm", "md4"], data="sudoku", run=tmp_path / "c", train=Train(steps=1, device="cpu"))
        assert sorted(p.name for p in (tmp_path / "c").iterdir()) == [lock.LOCK, lock.HOLDER]


def test_where_nothing_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"cannot write '.*file/a' \(Not a directory\); choose another place"):
        go(tmp_path / "file" / "a")
    (tmp_path / "taken" / lock.LOCK).mkdir(parents=True)
    with pytest.raises(InputError, match=r"cannot write '.*taken' \(Is a directory\); choose another place"):
        go(tmp_path / "taken")


def test_file_systems_without_locks(tmp_path, monkeypatch):
    import errno
    import fcntl

    def none(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with lock.hold(tmp_path / "a", "trained"), pytest.raises(InputError, match="is being trained by process"):  # noqa: SIM117
        with lock.hold(tmp_path / "a", "trained"):
            pass
    assert list(tmp_path.iterdir()) == []
