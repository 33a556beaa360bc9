"""Processor seconds of whole commands, from the start of their process to its end, beside `import torch` and `import lightning`.

    python benchmarks/start.py                        # one thread; --before OTHER/src adds another version, in turn

Every call is a process of its own, with bytecode at hand; the calls take turns. `train` takes one step on a megabyte of text.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
SIZES = "--net.length 64 --train.batch 4 --train.validate-rows 2 --train.samples 0 --train.steps 1"
WORDS = {
    "sample stories": "sample stories --seed 0",
    "infill stories-mdlm": "infill stories-mdlm Once_upon_a_time --steps 4 --seed 0",
    "evaluate stories-mdlm": "evaluate stories-mdlm --data.path a.txt --limit 2 --draws 1 --seed 0",
    "train mdlm": f"train mdlm --data.path a.txt --data.tokenizer characters {SIZES} --overwrite --run run",
}


def seconds(command: list[str], source: Path, folder: str) -> float:
    """Processor seconds of a process."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    used = [resource.getrusage(resource.RUSAGE_CHILDREN)]
    subprocess.run(command, check=True, capture_output=True, env=environment, cwd=folder)
    used.append(resource.getrusage(resource.RUSAGE_CHILDREN))
    before, after = (times.ru_utime + times.ru_stime for times in used)
    return after - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="src folder of another version")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    calls = {
        (f"import {name}", "now"): ([sys.executable, "-c", f"import {name}"], SOURCE) for name in ("torch", "lightning")
    }
    sources = ({"before": options.before.resolve()} if options.before else {}) | {"now": SOURCE}
    for name, words in WORDS.items():
        for version, source in sources.items():
            calls[name, version] = ([sys.executable, "-m", "zellige", *words.split()], source)
    found: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    with tempfile.TemporaryDirectory() as folder:
        line = "Once upon a time there was a king who had three sons, and the youngest was called Hans.\n"
        Path(folder, "a.txt").write_text(line * (1_000_000 // len(line)))
        for turn in range(-1, options.rounds):  # the first time compiles what has no bytecode
            for key, (command, source) in calls.items():
                taken = seconds(command, source, folder)
                if turn >= 0:
                    found[key].append(taken)
    for (name, version), taken in found.items():
        low, middle, high = statistics.quantiles(taken, n=4) if len(taken) > 1 else taken * 3
        print(f"{name:<20} {version:<7} {middle:6.2f} s ({low:.2f} to {high:.2f})", flush=True)


if __name__ == "__main__":
    main()
