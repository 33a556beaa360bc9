"""The place in which the trials happen: tiny runs in a folder of their own, restored whenever a trial has changed it."""

import contextlib
import io
import os
import re
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

SECONDS, COMPILING = 30, 300  # after which a trial hangs; with a C++ compiler at work
patience = 1.0  # times as many, on a machine with other work
TEXT = "the value of the object is returned by the function and it is the name of a class "
NET = "--net.layers 1 --net.hidden 16 --net.heads 2"
TINY = f"{NET} --train.steps 2 --train.batch 2 --train.samples 0 --train.validate-rows 2 --quiet"
ON = "--net.conv 0 --data.name text --data.path notes.txt --net.length 16"
RUNS = {"a": "mdlm", "next": "ar", "discrete": "d3pm --diffusion-steps 4", "scores": "csm"}


class Hang(BaseException):
    """A trial took longer than it may."""


class Wrong(AssertionError):
    """A trial has shown something that must not be."""


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str


@contextlib.contextmanager
def limited(seconds: float = SECONDS) -> Iterator[None]:
    """Raise Hang inside the block after so many seconds."""

    def stop(*_: object) -> None:
        raise Hang(f"still busy after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    seconds *= patience
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def tree(folder: Path) -> dict[str, tuple]:
    """Every name below a folder with what tells whether it was touched."""
    names = {}
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = os.path.join(place, name)
            stat = os.lstat(path)
            at = (stat.st_mtime_ns, stat.st_size) if name in files else ()  # a lock comes and goes in a folder
            names[os.path.relpath(path, folder)] = (stat.st_mode, *at)
    return names


def processes() -> list[str]:
    """Command lines of this process's children, but for those that Python and PyTorch's compiler start once (on Linux)."""
    found = []
    for thread in os.listdir("/proc/self/task") if sys.platform == "linux" else ():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            for number in Path(f"/proc/self/task/{thread}/children").read_text().split():
                found.append(Path(f"/proc/{number}/cmdline").read_text().replace("\0", " "))
    return [words for words in found if words and "resource_tracker" not in words and "compile_worker" not in words]


class World:
    """A folder `work` like the folder `template`, an empty cache, and nothing else that a trial may write to."""

    def __init__(self, box: Path):
        self.box = box
        self.template, self.work = box / "template", box / "inner" / "work"
        self.temporary, self.cache = box / "temporary", box / "cache"
        for folder in (self.template, self.temporary, self.cache, self.work.parent):
            folder.mkdir(parents=True)
        with self.here(self.template):
            self._fill()
        self.restore()

    def _fill(self) -> None:
        from zellige import cli, load

        text = (TEXT * 200)[:8000] + "abcdefghijklmnopqrstuvwxyz"
        Path("notes.txt").write_text(text)
        Path("empty.txt").write_text("")
        Path("lines.jsonl").write_text('{"id": 1, "text": "the value"}\n' * 20)
        Path("pairs.jsonl").write_text('{"context": "the value of ", "continuation": "the object"}\n' * 2)
        Path("own.py").write_text("from zellige.methods.mdlm import MDLM\n\n\nclass Own(MDLM):\n    name = 'own'\n")
        os.symlink("loop", "loop")
        os.symlink("missing", "dangling")
        os.symlink("/dev/full", "full")
        for name, method in RUNS.items():
            words = f"train {method} --run runs/{name} {ON} {TINY}".split()
            if cli.main(words):
                raise SystemExit(f"{' '.join(words)} failed")
        if cli.main(["evaluate", "runs/a", "--quiet"]):
            raise SystemExit("evaluate runs/a failed")
        model = load("runs/a")
        model.save("model")
        model.export("theirs", "mdlm")

    @contextlib.contextmanager
    def here(self, folder: Path, environ: dict[str, str] | None = None) -> Iterator[None]:
        """In this folder, without a network, with a cache and temporary files of its own; streams are dropped."""

        def refuse(*_: object) -> None:
            raise OSError(101, "Network is unreachable")

        before = os.getcwd()
        os.chdir(folder)
        own = {
            "ZELLIGE_CACHE": str(self.cache), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HOME": str(self.box),
            "HF_HOME": str(self.box / "hub"), "TMPDIR": str(self.temporary),
        }  # fmt: skip
        try:
            with (
                mock.patch.dict(os.environ, own | (environ or {})),
                mock.patch.object(socket.socket, "connect", refuse),
                mock.patch.object(socket, "getaddrinfo", refuse),
                mock.patch.object(tempfile, "tempdir", str(self.temporary)),
                contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)),
                contextlib.redirect_stderr(io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)),
            ):
                yield
        finally:
            os.chdir(before)

    def restore(self) -> None:
        """Make `work` a fresh copy of the template."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.template, self.work, symlinks=True)
        self.clear()
        self.before = tree(self.work)

    def clear(self) -> None:
        """Remove the temporary files of a trial."""
        for left in self.left_over():
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    @contextlib.contextmanager
    def trial(self, environ: dict[str, str] | None = None, seconds: float = SECONDS) -> Iterator[None]:
        """One trial happens in the block, in `work`; afterwards everything is as before."""
        outside = set(os.listdir(self.box)), set(os.listdir(self.work.parent))
        try:
            with self.here(self.work, environ), limited(seconds):
                yield
            if (set(os.listdir(self.box)) - {"hub"}, set(os.listdir(self.work.parent))) != (
                outside[0] - {"hub"},
                outside[1],
            ):
                raise Wrong("something was written outside of the folder")
            if left := [*(path.name for path in self.left_over()), *processes()]:
                raise Wrong(f"left: {left}")
        finally:
            if tree(self.work) != self.before or self.left_over():
                self.restore()

    def left_over(self) -> list[Path]:
        """Temporary files of a trial, but for the headers that PyTorch's compiler makes once for the whole process, and
        the empty folders of Python's multiprocessing, which stay where a reader is killed."""
        return [path for path in self.temporary.iterdir() if not path.name.startswith(("torchinductor", "pymp-"))]

    @property
    def touched(self) -> list[str]:
        """What differs from before the trial."""
        now = tree(self.work)
        return sorted(name for name in self.before.keys() | now.keys() if self.before.get(name) != now.get(name))


def run(argv: Sequence[str]) -> Outcome:
    """A command line in this process."""
    from zellige import cli

    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        code = cli.main(list(argv))
    out, err = (stream.buffer.getvalue().decode("utf-8", "backslashreplace") for stream in streams)
    return Outcome(code, out, err)


def short(text: str) -> str:
    """Its beginning and its end."""
    return text if len(text) < 900 else f"{text[:300]} ... {text[-600:]}"


LINE = re.compile(r"(?:\x1b\[31m)?error:(?:\x1b\[0m)? [^\n]{1,600}\n")
NO_ROOM = re.compile(r"no space left|cannot write")
FAILED = re.compile(r"error: (out of memory|loss is (NaN|inf))")  # exit code 1 with one line


def judge(world: World, done: Outcome) -> None:
    """What is so of every command: exit code 0, or one line of error; a wrong input changes nothing."""
    said = f"exit {done.code}; stderr: {short(done.err)!r}; stdout: {short(done.out)!r}"
    if "traceback" in (done.out + done.err).lower() or any(world.temporary.glob("zellige-error-*")):
        raise Wrong(f"a traceback: {said}")
    if done.code == 2:
        late = NO_ROOM.search(done.err)  # found out when it is written, and the result has been shown
        if not LINE.fullmatch(done.err[done.err.rfind("error:") :] if late else done.err):
            raise Wrong(f"not one line: {said}")
        if "; " not in done.err and "(" not in done.err:
            raise Wrong(f"does not say what would be right: {said}")
        if done.out and not late:
            raise Wrong(f"an error with a result: {said}")
        if world.touched and not late:
            raise Wrong(f"changed {world.touched[:5]}: {said}")
    elif done.code == 1:
        if not FAILED.search(done.err):
            raise Wrong(f"unforeseen: {said}")
    elif done.code:
        raise Wrong(said)


def little_memory(gigabytes: float = 6) -> None:
    """Let this process have so much more memory: what asks for more fails instead of burdening the machine."""
    if sys.platform.startswith("linux"):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + int(gigabytes * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def now() -> float:
    return time.monotonic()
