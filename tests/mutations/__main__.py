"""Plants the errors of the catalogue one after another, and asks `verify`, then the tests, whether they see them.

    python -m tests.mutations [--only WORDS] [--processes 2] [--write docs/mutations.md]

Each is planted in a copy of the sources, in a process of its own, which has torch from the one that it was forked from. Of
`verify` the check runs that the catalogue names; where that holds, and for what verify cannot see, the tests that it names. So
verify's share is what these checks catch, and no more is claimed for the rest of it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any

from .catalogue import CATALOGUE, Mutant

ROOT = Path(__file__).parents[2]
LIMIT = 300.0  # seconds that one error has; who takes longer is not caught


def planted(mutant: Mutant, folder: Path) -> Path:
    """A copy of the sources with the error in it."""
    shutil.copytree(ROOT / "src", folder / "src")
    file = folder / "src" / "zellige" / mutant.file
    text = file.read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(f"'{mutant.old}' stands {text.count(mutant.old)} times in {mutant.file}; once is right")
    file.write_text(text.replace(mutant.old, mutant.new))
    return folder / "src"


def verified(check: str) -> str:
    """What verify says of a check of this process's zellige, in one line; "" where everything holds."""
    from zellige import verify

    key, _, method = check.partition(" ")
    try:
        report = verify(*filter(None, [method]), only=key)
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    if not report.rows:
        raise ValueError(f"'{check}' checks nothing")
    return "; ".join(f"{row.identity}: {row.error:.3g}" for row in report.failures)


def tried(mutant: Mutant, answer: Any) -> None:
    """In a process of its own: plant the error, ask verify, then the tests, and send who caught it and how."""
    import torch

    torch.set_num_threads(1)
    sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    began, by, words = time.perf_counter(), "", ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            sources = planted(mutant, Path(folder))
            sys.path.insert(0, str(sources))
            words = verified(mutant.check) if mutant.check else ""
            by = "verify" if words else ""
            if not by and mutant.tests:
                where = {**os.environ, "PYTHONPATH": str(sources)}
                command = [sys.executable, "-m", "pytest", "-x", "-q", *mutant.tests.split(" ", 2)]
                done = subprocess.run(command, cwd=ROOT, env=where, capture_output=True, text=True, check=False)
                failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
                by, words = ("tests", failed[0]) if done.returncode == 1 and failed else ("", done.stdout[-300:])
        except Exception as error:
            by, words = "error", f"{type(error).__name__}: {error}"
    answer.send({"what": mutant.what, "by": by, "words": words, "seconds": time.perf_counter() - began})


def run(mutants: list[Mutant], processes: int) -> list[dict[str, Any]]:
    """Who caught each, in the order of the catalogue."""
    import torch  # noqa: F401  (once, for all that are forked)

    context, todo, running, results = get_context("fork"), list(mutants), {}, {}
    while todo or running:
        while todo and len(running) < processes:
            mutant, (mine, theirs) = todo.pop(0), context.Pipe(duplex=False)
            process = context.Process(target=tried, args=(mutant, theirs))
            process.start()
            theirs.close()
            running[mine] = (mutant, process, time.monotonic())
        ready = connection.wait(list(running), timeout=1.0)
        for pipe, (mutant, process, began) in list(running.items()):
            result = {"what": mutant.what, "by": "", "words": "took too long", "seconds": LIMIT}
            if pipe in ready:
                try:
                    result = pipe.recv()
                except EOFError:
                    result["words"] = "the process died"
            elif time.monotonic() - began < LIMIT:
                continue
            process.kill()
            process.join()
            del running[pipe]
            results[mutant.what] = result
            print(f"{len(results):4} {result['by'] or '-':7}{result['seconds']:6.1f} s  {mutant.what}", flush=True)
            if result["by"] not in ("verify", "tests"):
                print(f"       {result['words']}", flush=True)
    return [results[mutant.what] for mutant in mutants]


def page(results: list[dict[str, Any]]) -> str:
    """docs/mutations.md."""
    by = {result["what"]: result["by"] for result in results}
    verify = sum(who == "verify" for who in by.values())
    both = verify + sum(who == "tests" for who in by.values())
    n = len(by)
    lines = [
        "# Planted errors",
        "",
        "Does `zellige verify` find what is wrong? A catalogue of errors, each a small change of a method, a bound, a schedule,",
        "a sampler or a network, is planted in the sources, one after another (`python -m tests.mutations`, a part of",
        "`make test-long`).",
        "",
        *(
            [
                f"So far an answer stands for {n} of the {len(CATALOGUE)}; the shares are of these alone.",
                "",
            ]
            if n < len(CATALOGUE)
            else []
        ),
        "| caught by | errors | share |",
        "|---|---:|---:|",
        f"| `verify` alone | {verify} of {n} | {100 * verify / n:.1f}% |",
        f"| `verify` and the tests together | {both} of {n} | {100 * both / n:.1f}% |",
        "",
        "Of `verify` one check is asked for each error, which `tests/mutations/catalogue.py` names. "
        "Errors that `verify` does not catch:",
        "",
        "| planted | where | why `verify` cannot | caught by |",
        "|---|---|---|---|",
    ]
    for mutant in CATALOGUE:
        if by.get(mutant.what, "verify") != "verify":
            tests = f"`{mutant.tests.partition(' ')[0]}`" if by[mutant.what] == "tests" else "nothing"
            lines.append(f"| {mutant.what} | `{mutant.file}` | {mutant.why or 'its check holds'} | {tests} |")
    lines += ["", "All of them, and the check that catches each:", "", "| planted | where | check |", "|---|---|---|"]
    caught = (mutant for mutant in CATALOGUE if by.get(mutant.what) == "verify")
    lines += [f"| {mutant.what} | `{mutant.file}` | `{mutant.check}` |" for mutant in caught]
    return "\n".join(lines) + "\n"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="the errors whose description, file or check has these words")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, help="a file for who caught each; what it holds already is not run again")
    parser.add_argument("--write", type=Path, help="the page, of all that the JSON holds")
    chosen = parser.parse_args(words)
    known = json.loads(chosen.json.read_text()) if chosen.json and chosen.json.is_file() else []
    done = {result["what"] for result in known if result["by"] in ("verify", "tests")}
    mutants = [m for m in CATALOGUE if chosen.only in " ".join((m.what, m.file, m.check)) and m.what not in done]
    began = time.monotonic()
    new = {result["what"]: result for result in run(mutants, chosen.processes)}
    every = {result["what"]: result for result in known} | new
    results = [every[m.what] for m in CATALOGUE if m.what in every]
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1))
    if chosen.write:
        chosen.write.write_text(page(results))
    verify, tests = (sum(result["by"] == by for result in results) for by in ("verify", "tests"))
    n = max(len(results), 1)
    print(f"{len(results)} planted: verify {100 * verify / n:.1f}%, with the tests {100 * (verify + tests) / n:.1f}%; "
          f"{(time.monotonic() - began) / 60:.1f} minutes")  # fmt: skip
    return 0 if verify >= 0.9 * n and verify + tests >= 0.98 * n else 1


if __name__ == "__main__":
    sys.exit(main())
