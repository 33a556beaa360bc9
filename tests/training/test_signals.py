"""A signal in any phase of `zellige train`: the exit code is the signal's, and the last line says what is on the disk.

Each case is a process of its own, forked from a server that has imported the trainer, in which a function of that phase sends the
signal to its own process before it begins: no clock decides.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zellige.models.checkpoint.layout import newest, step_name

COMMAND = (
    "train mdlm --data.path text.txt --data.name text --data.tokenizer characters --net.layers 1 --net.hidden 16 --net.heads 2 "
    "--net.length 8 --train.batch 2 --train.steps 3 --train.validate-every 2 --train.validate-rows 2 --train.samples 0 "
    "--train.no-tensorboard --train.device cpu --run run"
)
PHASES = {  # where the signal comes, at which call, and the step that is saved then
    "reading": ("zellige.training.setup", "read_corpus", 1, None),
    "building": ("zellige.training.session", "build", 1, None),
    "announcing": ("zellige.training.session", "Session._announce", 1, None),
    "before Lightning": ("zellige.training.fit", "fit", 1, None),
    "Lightning's start": ("zellige.training.fit", "Loop.train_dataloader", 1, None),
    "the start of training": ("zellige.training.fit", "EMA.__init__", 1, None),
    "after the start": ("zellige.training.fit", "Signals.begin", 1, None),
    "the first step": ("zellige.training.fit", "Loop.training_step", 1, 1),
    "between steps": ("zellige.training.fit", "EMA.update", 2, 2),
    "validation": ("zellige.training.validation", "Validation._bound", 1, 2),
    "the last save": ("zellige.models.checkpoint.write", "Writer.save_checkpoint", 2, 3),
    "the end": ("zellige.training.fit", "Loop.close", 1, 3),
}


def _command(folder: Path, words: list[str], phase: tuple, number: int, ignored: int) -> None:
    """One process: the command in `folder`, hit by a signal in a phase; its words go to a file."""
    from zellige.cli import main

    os.chdir(folder)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # as a shell that ignores them would leave them else
        signal.signal(
            each,
            signal.SIG_IGN
            if each == ignored
            else signal.default_int_handler
            if each == signal.SIGINT
            else signal.SIG_DFL,
        )
    module, name, at, _ = phase
    owner = importlib.import_module(module)
    *path, name = name.split(".")
    for step in path:
        owner = getattr(owner, step)
    plain, calls = getattr(owner, name), []

    def struck(*args, **how):
        calls.append(1)
        if len(calls) == at and multiprocessing.current_process().pid == os.getpid():
            os.kill(os.getpid(), number)
        return plain(*args, **how)

    setattr(owner, name, struck)
    with (
        open("said", "w", encoding="utf-8", buffering=1) as said,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        code = main(words)
    sys.exit(code)


@pytest.fixture(scope="module")
def server():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            "lightning",
            "zellige.training.fit",
            "zellige.training.session",
            "zellige.cli.train",
            __name__,
        ]
    )
    return context


def command(
    server, folder: Path, phase: str, number: int, words: str = COMMAND, ignored: int = 0
) -> tuple[int, list[str]]:
    """The exit code of the command, and what it said."""
    (folder / "text.txt").write_text("the sun rose over the hill and the bird sang. " * 40)
    process = server.Process(target=_command, args=(folder, words.split(), PHASES[phase], number, ignored))
    process.start()
    process.join(60)
    assert not process.is_alive()
    return process.exitcode, (folder / "said").read_text(encoding="utf-8").splitlines()


OTHERS = {"reading": [], "validation": [], "Lightning's start": [pytest.mark.long]}
NEIGHBOURS = ("building", "announcing", "before Lightning", "after the start", "between steps", "the end")
CASES = [
    pytest.param(phase, signal.SIGTERM, marks=pytest.mark.long if phase in NEIGHBOURS else []) for phase in PHASES
] + [pytest.param(phase, n, marks=marks) for phase, marks in OTHERS.items() for n in (signal.SIGINT, signal.SIGUSR1)]


@pytest.mark.parametrize(("gone", "said"), [(True, ""), (False, "EOFError: nobody there")])
def test_a_reader_of_data_whose_trainer_was_killed_prints_no_traceback(gone, said, tmp_path):
    """A thread of a reader hands over tensors: where the trainer goes amid that, it was a traceback after the last line."""
    reader = tmp_path / "reader.py"
    reader.write_text(
        "import os, sys\n"
        "from zellige.training import signals\n"
        "begun, begins = os.pipe()\n"
        "if child := os.fork():\n"  # of the trainer
        "    os.read(begun, 1)\n"
        "    sys.argv[1] or os.waitpid(child, 0)\n"
        "    os._exit(0)\n"
        "signals.worker()\n"
        "os.write(begins, b'.')\n"
        "try:\n"
        "    raise EOFError('nobody there')\n"
        "except EOFError:\n"
        "    sys.excepthook(*sys.exc_info())\n"
    )
    ended = subprocess.run(
        [sys.executable, reader, "gone" if gone else ""], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stderr.strip().endswith(said)
    assert bool(ended.stderr) == bool(said)


@pytest.mark.parametrize(("phase", "number"), CASES)
def test_every_phase_ends_with_the_signal_and_says_what_is_saved(phase, number, server, tmp_path):
    code, said = command(server, tmp_path, phase, number)
    assert code == 128 + number, said
    last, step = newest(tmp_path / "run" / "checkpoints"), PHASES[phase][3]
    assert (last and last.name) == (step and step_name(step))
    if step is None:
        assert "stopped before a step was taken; nothing is on disk yet" in said[-2:]
    else:
        assert said[-2:] == [f"stopped and saved at step {step}", "  go on: zellige train mdlm --run run --resume"]


@pytest.mark.parametrize(
    "phase", ["announcing", pytest.param("Lightning's start", marks=pytest.mark.long), "the first step"]
)
def test_what_was_stopped_goes_on(phase, server, tmp_path):
    """The command that the last line names; hit there once more it loses nothing, and then it ends."""
    command(server, tmp_path, phase, signal.SIGTERM)
    step, words = PHASES[phase][3], "train mdlm --run run --resume"
    code, said = command(server, tmp_path, "Lightning's start", signal.SIGTERM, words)
    safe = f"step {step} is safe on disk" if step else "nothing is on disk yet"
    assert code == 143
    assert said[-2:] == [f"stopped before a step was taken; {safe}", f"  go on: zellige {words}"]
    code, said = command(server, tmp_path, "the end", 0, words)
    assert code == 0, said
    assert newest(tmp_path / "run" / "checkpoints").name == "step-000003"


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(n, marks=pytest.mark.long) for n in (signal.SIGTERM, signal.SIGUSR1))]
)
@pytest.mark.parametrize("phase", ["Lightning's start"])
def test_a_signal_that_is_ignored_at_the_start_stays_ignored(phase, number, server, tmp_path):
    """As nohup and the background jobs of a shell have it: Ctrl-C is for who is in the foreground."""
    code, said = command(server, tmp_path, phase, number, ignored=number)
    assert code == 0, said
    assert newest(tmp_path / "run" / "checkpoints").name == "step-000003"
