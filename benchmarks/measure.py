"""Paired timing: the variants take turns in one process, so that a busy machine slows all of them alike."""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def alternate(
    variants: dict[str, Callable[[], object]], rounds: int, warm: int = 1, clock: str = "wall"
) -> dict[str, list[float]]:
    """Seconds of each call, in rounds that go through all variants in turn."""
    now = CLOCKS[clock]
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for i in range(warm + rounds):
        for name, call in variants.items():
            start = now()
            call()
            if i >= warm:
                seconds[name].append(now() - start)
    return seconds


def compare(seconds: dict[str, list[float]], slow: str, fast: str) -> dict[str, float]:
    """How many times faster `fast` is: the median over rounds of the ratio within a round, and its quartiles."""
    ratios = [a / b for a, b in zip(seconds[slow], seconds[fast])]
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {"times": statistics.median(ratios), "low": low, "high": high}


def peak(script: str, variant: str, threads: int, *more: str) -> dict[str, float]:
    """What the script prints about the memory of one variant, measured in a process of its own; `more` options of it."""
    command = [sys.executable, script, "--peak", variant, "--threads", str(threads), *more]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


class Memory:
    """MiB of resident memory: now, and the largest since `mark` (Linux).

    Not getrusage's ru_maxrss, which also remembers the process that started this one.
    """

    def now(self) -> float:
        return self._read("VmRSS")

    def mark(self) -> float:
        """Forget the largest so far; returns what is resident now."""
        Path("/proc/self/clear_refs").write_text("5")
        return self.now()

    def largest(self) -> float:
        return self._read("VmHWM")

    def _read(self, name: str) -> float:
        return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0]) / 1024


def machine() -> dict[str, object]:
    """What the numbers were measured on."""
    model = platform.processor()
    if Path("/proc/cpuinfo").exists():
        names = [
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ]
        model = names[0] if names else model
    return {
        "processor": model,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def options(description: str, rounds: int) -> argparse.ArgumentParser:
    """The flags that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds, help="how often each variant is timed")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: processor time, for a busy machine (with --threads 1)"
    )
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    return parser


def show(rows: list[tuple], head: tuple) -> None:
    """A table with right-aligned numbers."""
    table = [head, *rows]
    widths = [max(len(str(row[i])) for row in table) for i in range(len(head))]
    for row in table:
        cells = [str(c).ljust(w) if i == 0 else str(c).rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        print("  ".join(cells))


WAYS = ("published", "zellige")


def peak_of_steps(memory: Memory, first: Callable[[], object], step: Callable[[], object]) -> None:
    """Print what two steps take beside what is there after a small `first` one, which makes the gradients of the weights."""
    first()
    before = memory.mark()
    for _ in range(2):
        step()
    print(json.dumps({"step": memory.largest() - before}))


def beside(size: str, step: Callable[[str], float], peak: Callable[[str], float], options: Any) -> tuple[tuple, dict]:
    """Both ways of a step (which gives its loss) at one size, in turn: a row under `BESIDE`, and what the JSON file says."""
    losses = {way: step(way) for way in WAYS}
    seconds = alternate({way: partial(step, way) for way in WAYS}, options.rounds, 1, options.clock)
    memory, faster = {way: peak(way) for way in WAYS}, compare(seconds, *WAYS)
    row = (
        size,
        *(f"{statistics.median(seconds[way]):.3f} s" for way in WAYS),
        f"{faster['times']:.2f}x",
        f"{faster['low']:.2f}-{faster['high']:.2f}",
        *(f"{memory[way]:,.0f} MiB" for way in WAYS),
        f"{memory['zellige'] / memory['published']:.2f}",
        *(f"{losses[way]:.4f}" for way in WAYS),
    )
    return row, {"loss": losses, "seconds": seconds, "faster": faster, "MiB": memory}


BESIDE = ("loss and backward", *WAYS, "faster", "quartiles", *WAYS, "memory", *WAYS)
