"""`make mutants`: the share of random small errors in the sources that the tests and `zellige verify` catch.

    make mutants ARGS="--count 300 --seed 0"           draws 300 mutants; the same command goes on where it was stopped
    make mutants ARGS="--count 300 --seed 0 --show 7"  prints the seventh of them

Each is written into a copy of `src/`. The tests that run its line run first, then, in the mathematics, `zellige verify`. A
time limit counts from what the same tests take without the mutant; a mutant that exceeds it is caught, and counted apart.
The suite runs once before, under coverage, to know which tests run a line; its result is kept in `build/reached`.
"""

import argparse
import collections
import csv
import difflib
import functools
import importlib.util
import json
import math
import multiprocessing
import os
import random
import resource
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .reached import Reached, measure, read
from .rules import Mutant, mutants

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "zellige"
PACKAGES = (
    "core", "nn", "methods", "samplers", "evaluation", "data", "training", "models", "sampling", "plugins/evaluations",
    "plugins/kinds", "plugins/students",
)  # fmt: skip
VERIFIED = ("core", "nn", "methods", "samplers")
CHECKS = {  # the checks of a file that are not named after it
    "process": "process", "prediction": "prediction", "score": "score", "random": "draws", "counter_random": "draws",
    "smc": "smc", "guidance": "guidance", "guide": "guidance", "distillation": "few-steps", "confidence": "decoders",
    "klass": "decoders", "p2": "decoders", "speculative": "decoders", "insertion": "insertion", "growing": "insertion",
    "replay": "caches", "carried": "caches", "semi_autoregressive": "blocks", "blockwise": "blocks",
}  # fmt: skip
MEASURED = ROOT / "build" / "reached"


def drawn(count: int, seed: int, packages: tuple[str, ...] = PACKAGES) -> list[Mutant]:
    """Mutants at random: from each package in proportion to its sites, so that the share of all needs no weights."""
    sites = {}
    for package in packages:
        files = sorted((SOURCES / package).rglob("*.py"))
        sites[package] = [m for file in files for m in mutants(str(file.relative_to(SOURCES)), file.read_text())]
    total, taken, chosen = sum(map(len, sites.values())), 0, []
    passed = 0
    for package, found in sites.items():
        passed += len(found)
        number = round(count * passed / total) - taken
        taken += number
        order = random.Random(f"{seed} {package}").sample(found, len(found))
        valid = (m for m in order if m.valid((SOURCES / m.file).read_text()))
        chosen += [mutant for mutant, _ in zip(valid, range(number))]
    return random.Random(seed).sample(chosen, len(chosen))  # all packages from the beginning


@functools.cache
def names(package: str) -> list[str]:
    """Methods or samplers; asked in another process, since a mutant's process must import them itself."""
    asked = f"import zellige.{package} as package; print(*package.{package.upper()})"
    return subprocess.check_output([sys.executable, "-c", asked], text=True).split()


def verify(file: str) -> list[tuple[str, ...]]:
    """Arguments of `zellige` that verify what the file is part of: a method, a sampler, else checks of two methods."""
    package, stem = Path(file).parts[0], Path(file).stem
    method = stem.partition("_")[0] if package == "methods" else ""
    asked: list[tuple[str, ...]] = [("verify", method)] if method in names("methods") else []
    asked += [("verify", "--sampler", stem)] if package == "samplers" and stem in names("samplers") else []
    key = CHECKS.get(stem, "" if asked else "networks" if package == "nn" else "bound")
    return asked + ([("verify", "mdlm", "sedd", "--only", key)] if key else [])


def run(module: str, arguments: tuple[str, ...], sources: Path, limit: float | None) -> int | None:
    """Exit code of a Python module on these sources, in a copy of this process; None if it took longer than the limit:
    seconds of the processor, so that a busy machine changes nothing, or three times as many in all. What is imported already
    need not be imported again: that would take longer than most tests."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), resource.RLIM_INFINITY))
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(quiet, stream)
        os.environ |= {"PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1"}
        sys.path.insert(0, str(sources))
        sys.argv = [module, *arguments]
        code: object = 1
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = end.code or 0
        finally:
            os._exit(int(code) if isinstance(code, int) else 1)
    until = time.monotonic() + (math.inf if limit is None else 3 * limit)
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return None if code == -signal.SIGXCPU else code
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.05)


class Trial:
    """A copy of the sources, and what checks it.

    Args:
        folder: where the copy lies.
        reached: the tests of each line.
        seconds: what the tests of a mutant may take without it; with it, three times that and 30 seconds.
    """

    def __init__(self, folder: Path, reached: Reached, seconds: float) -> None:
        self.sources, self.reached, self.seconds = folder / "src", reached, seconds
        self.usual: dict[tuple[str, ...], float] = {}
        weights = SOURCES / "models" / "shipped"
        shutil.copytree(
            ROOT / "src", self.sources, ignore=lambda at, _: ["shipped"] if Path(at).name == "models" else []
        )
        (self.sources / "zellige" / "models" / "shipped").symlink_to(weights)

    def __call__(self, mutant: Mutant) -> str:
        """Who catches a mutant: tests, verify, time, or nobody ("")."""
        tests = self.reached.near(mutant.file, mutant.line, self.seconds)
        if tests:
            usual = sum(self.reached.tests[test] for test in tests)
            code = self.planted(mutant, "pytest", ("-x", "-q", "-p", "no:cacheprovider", "-m", "", *tests), usual)
            if code != 0:
                return "time" if code is None else "tests"
        for arguments in verify(mutant.file) if mutant.file.split("/")[0] in VERIFIED else ():
            code = self.planted(mutant, "zellige", arguments, self.without(arguments))
            if code != 0:
                return "time" if code is None else "verify"
        return ""

    def without(self, arguments: tuple[str, ...]) -> float:
        """Seconds that `zellige` takes on the sources as they are."""
        if arguments not in self.usual:
            began = time.monotonic()
            if run("zellige", arguments, self.sources, None) != 0:
                sys.exit(f"make mutants: fails without a mutant, and so can catch none: zellige {' '.join(arguments)}")
            self.usual[arguments] = time.monotonic() - began
        return self.usual[arguments]

    def planted(self, mutant: Mutant, module: str, arguments: tuple[str, ...], usual: float) -> int | None:
        file = self.sources / "zellige" / mutant.file
        whole = SOURCES / mutant.file
        try:
            file.write_text(mutant.apply(whole.read_text()))
            return run(module, arguments, self.sources, 3 * usual + 30)
        finally:
            shutil.copy2(whole, file)
            Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def tried(mutants: list[Mutant], folder: Path, seconds: float, jobs: int) -> Iterator[tuple[Mutant, str, float]]:
    """Each mutant, who caught it, and the seconds that took; several at a time."""
    if not mutants:
        return
    for name in ("torch", "pytest", "lightning.pytorch", "numpy", "tokenizers"):  # what `run` shares; nothing of ours
        importlib.import_module(name)
    assert "zellige" not in sys.modules
    reached = read(MEASURED)
    with multiprocessing.get_context("fork").Pool(jobs, _begin, (folder, reached, seconds)) as pool:
        yield from pool.imap_unordered(_try, mutants)


def _begin(folder: Path, reached: Reached, seconds: float) -> None:
    global _trial
    _trial = Trial(folder / str(os.getpid()), reached, seconds)


def _try(mutant: Mutant) -> tuple[Mutant, str, float]:
    began = time.monotonic()
    return mutant, _trial(mutant), time.monotonic() - began


def wilson(k: int, n: int) -> tuple[float, float]:
    """Wilson's 95% interval of the share k of n (1927, JASA 22)."""
    z = 1.959964
    centre, half = (k + z * z / 2) / (n + z * z), z / (n + z * z) * (k * (n - k) / n + z * z / 4) ** 0.5
    return max(0.0, centre - half), min(1.0, centre + half)


def package_of(file: str) -> str:
    """The package of PACKAGES that a file is in."""
    return next(name for name in PACKAGES if file.startswith(f"{name}/"))


def diff(mutant: Mutant) -> str:
    """Head line and changed lines of a mutant."""
    source = (SOURCES / mutant.file).read_text()
    lines = difflib.unified_diff(source.splitlines(), mutant.apply(source).splitlines(), lineterm="", n=0)
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    return "\n".join([f"{mutant.file}:{mutant.line}: {mutant.rule}", *changed])


def judged() -> dict[tuple[str, str, str], str]:
    """Verdicts by (file, old line, new line): equivalent, hole or accepted."""
    with Path(__file__).with_name("judged.csv").open(newline="") as file:
        return {(row["file"], row["old line"], row["new line"]): row["verdict"] for row in csv.DictReader(file)}


def summary(results: list[tuple[Mutant, str]], verdicts: dict[tuple[str, str, str], str]) -> str:
    """Survivors with their diffs, then shares caught with intervals, of each package and in all."""
    lines, counted, equivalent = [], [], 0
    for mutant, by in results:
        verdict = verdicts.get((mutant.file, *mutant.lines((SOURCES / mutant.file).read_text())), "")
        equivalent += verdict == "equivalent"
        if verdict != "equivalent":
            counted.append((package_of(mutant.file), by))
        if not by:
            lines += [diff(mutant) + (f"\n  judged: {verdict}" if verdict else ""), ""]
    for name in [*PACKAGES, "all"]:
        some = collections.Counter(by for package, by in counted if name in (package, "all"))
        n, caught = some.total(), some.total() - some[""]
        if n:
            low, high = wilson(caught, n)
            share = f"{100 * caught / n:5.1f}% [{100 * low:.1f}, {100 * high:.1f}]"
            lines.append(
                f"{name:20}{caught:4} of {n:3} caught, {share}, {some['time']} by time, {some['verify']} by verify"
            )
    return "\n".join([*lines, f"{equivalent} judged equivalent and left out"])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make mutants", description="plants errors drawn at random; counts those caught"
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--package", nargs="+", choices=PACKAGES, default=PACKAGES)
    parser.add_argument("--seconds", type=float, default=60, help="what the tests of a mutant may take without it")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--out", type=Path, help="JSON lines, one a mutant; default build/mutants-SEED.jsonl")
    parser.add_argument("--show", type=int, metavar="N", help="print the N-th mutant and stop")
    chosen = parser.parse_args()
    draw = drawn(chosen.count, chosen.seed, tuple(chosen.package))
    if chosen.show is not None:
        if not 1 <= chosen.show <= len(draw):
            parser.error(f"--show {chosen.show}: choose from 1 to {len(draw)}")
        print(diff(draw[chosen.show - 1]))
        return 0
    out = chosen.out or ROOT / "build" / f"mutants-{chosen.seed}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    known = {}
    for line in out.read_text().splitlines() if out.is_file() else []:
        row = json.loads(line)
        known[Mutant(*(row[field] for field in Mutant._fields))] = row["by"]
    new = [mutant for mutant in draw if mutant not in known]
    if new and not (MEASURED / "seconds.json").is_file():
        measure(MEASURED, chosen.jobs)
    with tempfile.TemporaryDirectory() as folder, out.open("a") as file:
        for mutant, by, seconds in tried(new, Path(folder), chosen.seconds, chosen.jobs):
            known[mutant] = by
            file.write(json.dumps({**mutant._asdict(), "by": by, "seconds": round(seconds, 1)}) + "\n")
            file.flush()
            how = {"": "survived", "time": "timed out"}.get(by, f"caught by {by}")
            print(f"{len(known):4} {how:17} {mutant.file}:{mutant.line} {mutant.rule}", flush=True)
    print("\n" + summary([(mutant, known[mutant]) for mutant in draw], judged()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
