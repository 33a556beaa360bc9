"""Trainings that a signal ends at any moment: no traceback, no process and no half file left, and the same command goes on."""

import os
import random
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

from . import world
from .world import NET, ON

SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGKILL", "SIGHUP")
TRAIN = f"{ON} {NET} --train.steps 60 --train.batch 2 --train.samples 1 --train.sample-steps 2 --train.validate-rows 2"
SAVING = f"--run runs/new {TRAIN} --train.save-every 5 --train.validate-every 10 --train.device cpu"
SECONDS, ENDING = 180, 10  # of a whole trial; of a worker, whose training has ended


def started(words: str) -> subprocess.Popen[str]:
    """A command in a process group of its own."""
    command = [sys.executable, "-m", "zellige", *words.split()]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def kill(process: subprocess.Popen[str], number: int) -> bool:
    """Send a signal to a process group; False where none of it is left."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    return True


@cache
def undisturbed(here: world.World) -> float:
    """Seconds of a whole training."""
    with here.trial(seconds=SECONDS):
        began = world.now()
        started(f"train mdlm {SAVING}").communicate()
        return world.now() - began


def trial(here: world.World, rng: random.Random) -> str:
    """One training, one signal, and the training again. Raises Wrong."""
    method, name, moment = (
        rng.choice(("mdlm", "ar", "d3pm --diffusion-steps 4")),
        rng.choice(SIGNALS),
        rng.random(),
    )
    words = f"train {method} {SAVING} --train.workers {rng.choice((0, 0, 1))}"
    after = moment * undisturbed(here)
    said = f"{name} after {after:.1f} s: zellige {words}"
    processes: list[subprocess.Popen[str]] = []
    try:
        with here.trial(seconds=SECONDS):
            processes.append(started(words))
            time.sleep(after)
            if processes[0].poll() is None:
                kill(processes[0], getattr(signal, name))
            check(processes[0])
            processes.append(started(f"{words} --resume" if Path("runs/new/config.json").exists() else words))
            said_again = check(processes[1])
            if processes[1].returncode:
                raise world.Wrong(f"exit {processes[1].returncode} when it goes on: {said_again}")
            if left := [str(path) for path in Path("runs/new").rglob("*.part")]:
                raise world.Wrong(f"left: {left}")
            if name == "SIGKILL":  # nobody could clear away
                here.clear()
    except (world.Wrong, world.Hang) as problem:
        raise world.Wrong(f"{said}\n    {problem}") from None
    finally:
        for process in processes:
            kill(process, signal.SIGKILL)
    return said


def check(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a process and of its group; what it wrote to stderr."""
    _, text = process.communicate()
    if "Traceback" in text and "init_import_site" not in text:  # which Python writes before it runs a line of ours
        raise world.Wrong(f"a traceback (exit {process.returncode}): {world.short(text)}")
    ended = world.now()
    while kill(process, 0):  # a worker that a signal ends is there for a moment
        if world.now() - ended > ENDING * world.patience:
            raise world.Wrong("a process is left")
        time.sleep(0.1)
    return world.short(text)
