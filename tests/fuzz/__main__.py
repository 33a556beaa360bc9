"""`make fuzz`: attacks by thousands, from a seed: wrong command lines, damaged files, wrong calls, odd config files, hostile
templates, requests to `serve`, full disks, and signals to trainings.

    make fuzz ARGS="--trials 5000 --seed 0"          every family, for 10 minutes at most
    make fuzz ARGS="--family calls --seed 0 --only 17"     one trial again

A trial fails where a traceback is written, where anything but one line says what was wrong and what would be right, where a wrong
input changes a file, where a damaged file gives another text or number without a word, where a temporary file or a process is
left, and where nothing happens for 30 s.
"""

import argparse
import collections
import importlib
import random
import sys
import tempfile
import traceback
from pathlib import Path

from . import world as place
from .world import World, Wrong, little_memory, now

FAMILIES = {  # name -> its share of the trials, by their price: 0.01 s (calls, requests) to 30 s (signals)
    "commands": 40, "files": 25, "calls": 30, "configs": 30, "templates": 10, "requests": 50, "disks": 14, "signals": 1,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description="attacks drawn from a seed")
    parser.add_argument("--trials", type=int, default=5000, help="over all families")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10.0, help="at most")
    parser.add_argument("--family", choices=FAMILIES, help="this family alone")
    parser.add_argument("--only", type=int, help="the trial of this number alone")
    parser.add_argument("--show", action="store_true", help="print every trial")
    parser.add_argument("--patience", type=float, default=1.0, help="factor of all limits of time, on a busy machine")
    how = parser.parse_args()
    place.patience = how.patience
    families = [how.family] if how.family else [*FAMILIES]
    shares = [FAMILIES[name] for name in families]
    modules = {name: importlib.import_module(f"{__package__}.{name}") for name in families}
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder).resolve() / "box")
        little_memory()
        began, done, failures = now(), collections.Counter(), []
        for number in range(how.trials) if how.only is None else [how.only]:
            if now() - began > 60 * how.minutes:
                break
            (family,) = random.Random(f"{how.seed} {number}").choices(families, shares)
            start = now()
            try:
                name = modules[family].trial(world, random.Random(f"{how.seed} {family} {number}"))
                problem = None
            except Wrong as wrong:
                name, problem = "", str(wrong)
            except Exception:
                name, problem = "", f"the trial itself failed\n{traceback.format_exc()}"
            done[family] += 1
            if how.show and problem is None:
                print(f"{family} {number} ({now() - start:.1f} s)  {name}", flush=True)
            if problem is not None:
                failures.append(family)
                print(f"FAIL {family} {number} ({now() - start:.1f} s)  {problem}")
                print(f'    again: make fuzz ARGS="--family {family} --seed {how.seed} --only {number}"', flush=True)
    each = ", ".join(f"{name} {done[name]:,}" for name in families)
    print(
        f"seed {how.seed}: {sum(done.values()):,} trials ({each}) in {(now() - began) / 60:.1f} min, {len(failures)} failed"
    )
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
