"""`make mutants`: the share of random small errors in the sources that the tests and `zellige verify` catch.

    make mutants ARGS="--count 300 --seed 0"           draws 300 mutants; the same command goes on where it was stopped
    make mutants ARGS="--count 300 --seed 0 --show 7"  prints the seventh of them

Each is written into a copy of `src/`. The nearest tests run first, then, in the mathematics, `zellige verify`. A time
limit counts from the time that the same tests take without the mutant; a mutant that exceeds it is caught, and counted apart.
"""

import argparse
import collections
import csv
import difflib
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .rules import Mutant, mutants

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "zellige"
PACKAGES = ("core", "nn", "methods", "samplers", "evaluation", "data", "training", "models")
VERIFIED = ("core", "nn", "methods", "samplers")
MOST = 6  # test files of a mutant


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


def nearest(file: str) -> tuple[str, ...]:
    """Test files of a source file: named after it, importing from it, named after a file beside it that does; else all of
    its package's. At most MOST, its package's first."""
    package, stem = file.split("/")[0], Path(file).stem
    module = ".".join(["zellige", *Path(file).with_suffix("").parts]).removesuffix(".__init__")
    asks = importing(module)
    tests = [
        path for path in sorted((ROOT / "tests").rglob("test_*.py")) if path.parent.name not in ("fuzz", "mutants")
    ]
    tests.sort(key=lambda path: package not in path.parts)  # its package's first
    named = [path for path in tests if path.stem.startswith(f"test_{stem}")]
    asking = [path for path in tests if asks.search(path.read_text(encoding="utf-8"))]
    siblings = [path for path in (SOURCES / package).rglob("*.py") if importing(module, stem).search(path.read_text())]
    using = [path for path in tests for by in siblings if package in path.parts and path.stem == f"test_{by.stem}"]
    near = dict.fromkeys([*named, *(path for path in asking if package in path.parts), *using, *asking])
    found = [str(path.relative_to(ROOT)) for path in [*near][:MOST]]
    return tuple(found or [f"tests/{package}"])


def importing(module: str, beside: str = "") -> re.Pattern[str]:
    """What finds an import of a module of ours in a file; of a file of its package where its name there is given."""
    above, _, name = module.rpartition(".")
    relative = rf"|from \.{beside} import|from \. import [^\n]*\b{beside}\b" if beside else ""
    return re.compile(rf"\b{re.escape(module)}\b|from {re.escape(above)} import [^\n]*\b{name}\b{relative}")


def verify(file: str) -> tuple[str, ...]:
    """`zellige verify` with what the file is part of: a method, a sampler, or the checks of two methods."""
    package, stem = Path(file).parts[0], Path(file).stem
    from zellige.methods import METHODS
    from zellige.samplers import SAMPLERS

    if package == "samplers" and stem in SAMPLERS:
        return ("zellige", "verify", "--sampler", stem)
    method = stem.partition("_")[0]
    if method in METHODS:
        return ("zellige", "verify", method)
    key = {"process": "process", "prediction": "prediction", "score": "score"}.get(stem, "bound")
    return ("zellige", "verify", "mdlm", "sedd", "--only", "networks" if package == "nn" else key)


def run(module: tuple[str, ...], sources: Path, limit: float | None) -> int | None:
    """Exit code of a Python module on these sources; None if it took longer than the limit (seconds)."""
    environment = {**os.environ, "PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-m", *module], cwd=ROOT, env=environment, start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Trial:
    """A copy of the sources, and what its tests take without a mutant."""

    def __init__(self, folder: Path, seconds: float, tests: list[str]) -> None:
        self.sources, self.seconds, self.tests, self.usual = folder / "src", seconds, tests, {}
        weights = SOURCES / "models" / "shipped"
        shutil.copytree(
            ROOT / "src", self.sources, ignore=lambda at, _: ["shipped"] if Path(at).name == "models" else []
        )
        (self.sources / "zellige" / "models" / "shipped").symlink_to(weights)

    def __call__(self, mutant: Mutant) -> str:
        """Who catches a mutant: tests, verify, time, or nobody ("")."""
        tests = tuple(self.tests) or nearest(mutant.file)
        modules = [("pytest", "-x", "-q", "-p", "no:cacheprovider", *tests)]
        modules += [verify(mutant.file)] if mutant.file.split("/")[0] in VERIFIED else []
        for module in modules:
            limit = 2 * self.without(module) + self.seconds
            code = self.planted(mutant, module, limit)
            if code != 0:
                return "time" if code is None else "tests" if module[0] == "pytest" else "verify"
        return ""

    def without(self, module: tuple[str, ...]) -> float:
        """Seconds that tests take on the sources as they are."""
        if module not in self.usual:
            began = time.monotonic()
            if run(module, self.sources, None) != 0:
                sys.exit(f"make mutants: fails without a mutant, and so can catch none: python -m {' '.join(module)}")
            self.usual[module] = time.monotonic() - began
        return self.usual[module]

    def planted(self, mutant: Mutant, module: tuple[str, ...], limit: float) -> int | None:
        file = self.sources / "zellige" / mutant.file
        whole = SOURCES / mutant.file
        try:
            file.write_text(mutant.apply(whole.read_text()))
            return run(module, self.sources, limit)
        finally:
            shutil.copy2(whole, file)
            Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def wilson(k: int, n: int) -> tuple[float, float]:
    """Wilson's 95% interval of the share k of n (1927, JASA 22)."""
    z = 1.959964
    centre, half = (k + z * z / 2) / (n + z * z), z / (n + z * z) * (k * (n - k) / n + z * z / 4) ** 0.5
    return max(0.0, centre - half), min(1.0, centre + half)


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
            counted.append((mutant.file.split("/")[0], by))
        if not by:
            lines += [diff(mutant) + (f"\n  judged: {verdict}" if verdict else ""), ""]
    for name in [*PACKAGES, "all"]:
        some = collections.Counter(by for package, by in counted if name in (package, "all"))
        n, caught = some.total(), some.total() - some[""]
        if n:
            low, high = wilson(caught, n)
            share = f"{100 * caught / n:5.1f}% [{100 * low:.1f}, {100 * high:.1f}]"
            lines.append(
                f"{name:11}{caught:4} of {n:3} caught, {share}, {some['time']} by time, {some['verify']} by verify"
            )
    return "\n".join([*lines, f"{equivalent} judged equivalent and left out"])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make mutants", description="plants errors drawn at random; counts those caught"
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--package", nargs="+", choices=PACKAGES, default=PACKAGES)
    parser.add_argument(
        "--seconds", type=float, default=60, help="time limit, beyond twice what the tests take without mutant"
    )
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="run these tests instead of the nearest")
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
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), chosen.seconds, chosen.tests)
        for i, mutant in enumerate(draw, 1):
            if mutant not in known:
                began = time.monotonic()
                known[mutant] = trial(mutant)
                seconds = round(time.monotonic() - began, 1)
                with out.open("a") as file:
                    file.write(json.dumps({**mutant._asdict(), "by": known[mutant], "seconds": seconds}) + "\n")
            how = {"": "survived", "time": "timed out"}.get(known[mutant], f"caught by {known[mutant]}")
            print(f"{i:4} {how:17} {mutant.file}:{mutant.line} {mutant.rule}", flush=True)
    print("\n" + summary([(mutant, known[mutant]) for mutant in draw], judged()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
