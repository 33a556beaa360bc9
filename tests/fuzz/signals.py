"""Trainings that a signal ends at any moment: no traceback, no process and no half file left, and the same command goes on."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import world
from .world import NET, ON

SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGKILL", "SIGHUP")
TRAIN = f"{ON} {NET} --train.steps 60 --train.batch 2 --train.samples 1 --train.sample-steps 2 --train.validate-rows 2"
SAVING = f"{TRAIN} --train.save-every 5 --train.validate-every 10 --train.device cpu"


def started(words: str) -> subprocess.Popen[str]:
    """A command in a process group of its own."""
    command = [sys.executable, "-m", "zellige", *words.split()]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ}
    )


def trial(here: world.World, rng: random.Random) -> str:
    """One training, one signal, and the training again. Raises Wrong."""
    method, name, after = (
        rng.choice(("mdlm", "ar", "d3pm --diffusion-steps 4")),
        rng.choice(SIGNALS),
        rng.uniform(0.5, 12),
    )
    workers = rng.choice((0, 0, 1))
    words = f"train {method} --run runs/new {SAVING} --train.workers {workers}"
    said = f"{name} after {after:.1f} s: zellige {words}"
    try:
        with here.trial(seconds=180):
            process = started(words)
            time.sleep(after)
            if process.poll() is None:
                os.killpg(process.pid, getattr(signal, name))
            _, err = process.communicate(timeout=60)
            again = started(f"{words} --resume" if Path("runs/new/config.json").exists() else words)
            _, err_again = again.communicate(timeout=110)
            for done, text in ((process, err), (again, err_again)):
                if "Traceback" in text:
                    raise world.Wrong(f"a traceback (exit {done.returncode}): {world.short(text)}")
                try:
                    os.killpg(done.pid, 0)
                except ProcessLookupError:
                    continue
                raise world.Wrong("a process is left")
            if again.returncode:
                raise world.Wrong(f"exit {again.returncode} when it goes on: {world.short(err_again)}")
            if left := [str(path) for path in Path("runs/new").rglob("*.part")]:
                raise world.Wrong(f"left: {left}")
    except (world.Wrong, world.Hang, subprocess.TimeoutExpired) as problem:
        raise world.Wrong(f"{said}\n    {problem}") from None
    return said
