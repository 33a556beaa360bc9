"""Plants the errors of the catalogue one after another, and asks `verify`, then the tests, whether they see them.

    python -m tests.mutations [--only WORDS] [--processes 2] [--write docs/mutations.md]

Each is planted in a copy of the sources, in a process of its own, which has torch and pytest from the one that it was forked
from. Of `verify` the check runs that the catalogue names; where that holds, and for what verify cannot see, the tests that it
names. So verify's share is what these checks catch, and no more is claimed for the rest of it.

Caught is caught, but a number that is found wrong says more than a program that breaks off: how many were caught by a check
that failed, and how many by an exception that was raised, is counted apart.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any

import pytest

from .catalogue import CATALOGUE
from .mutant import Mutant

ROOT = Path(__file__).parents[2]
MATHEMATICS = ("core/", "methods/", "nn/", "samplers/")  # folders; all else is outside of it, and what says why it is
BESIDE = {mutant.what for mutant in CATALOGUE if mutant.outside or not mutant.file.startswith(MATHEMATICS)}
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


CHECK, RAISED = "check", "exception"  # how an error shows


def verified(check: str) -> tuple[str, str]:
    """How a check of this process's zellige fails, and what verify says of it, in one line; "" twice where everything holds."""
    from zellige import verify

    key, _, method = check.partition(" ")
    try:
        report = verify(*filter(None, [method]), only=key)
    except Exception as error:
        return RAISED, f"{type(error).__name__}: {error}".partition("\n")[0]
    if not report.rows:
        raise ValueError(f"'{check}' checks nothing")
    words = "; ".join(f"{row.identity}: {row.error:.3g}" for row in report.failures)
    return CHECK if words else "", words


class _Failure:
    """A plugin of pytest that notes how the last test failed; what cannot be collected is no test that failed."""

    def __init__(self) -> None:
        self.how = self.words = ""

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        if not isinstance(node, pytest.Item):
            return
        checks = (AssertionError, pytest.fail.Exception)
        self.how = CHECK if call.excinfo.errisinstance(checks) else RAISED
        self.words = f"{node.nodeid}: {call.excinfo.exconly()}".partition("\n")[0]


def tested(tests: str, sources: Path) -> tuple[str, str]:
    """How these tests fail on the sources, and which of them does; "" twice where none does. For a process of its own."""
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(sources)  # of what the tests start
    failure = _Failure()
    pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests.split(" ", 2)], plugins=[failure])
    return failure.how, failure.words


def tried(mutant: Mutant, answer: Any) -> None:
    """In a process of its own: plant the error, ask verify, then the tests, and send who caught it and how."""
    import torch

    torch.set_num_threads(1)
    sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    began, by, how, words = time.perf_counter(), "", "", ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            sources = planted(mutant, Path(folder))
            sys.path.insert(0, str(sources))
            how, words = verified(mutant.check) if mutant.check else ("", "")
            by = "verify" if how else ""
            if not by and mutant.tests:
                how, words = tested(mutant.tests, sources)
                by = "tests" if how else ""
        except Exception as error:
            by, how, words = "error", "", f"{type(error).__name__}: {error}"
    answer.send({"what": mutant.what, "by": by, "how": how, "words": words, "seconds": time.perf_counter() - began})


def run(mutants: list[Mutant], processes: int) -> Iterator[dict[str, Any]]:
    """Who caught each, as they end."""
    import lightning  # noqa: F401  (once, for all that are forked)

    context, todo, running, done = get_context("fork"), list(mutants), {}, 0
    while todo or running:
        while todo and len(running) < processes:
            mutant, (mine, theirs) = todo.pop(0), context.Pipe(duplex=False)
            process = context.Process(target=tried, args=(mutant, theirs))
            process.start()
            theirs.close()
            running[mine] = (mutant, process, time.monotonic())
        ready = connection.wait(list(running), timeout=1.0)
        for pipe, (mutant, process, began) in list(running.items()):
            result = {"what": mutant.what, "by": "", "how": "", "words": "took too long", "seconds": LIMIT}
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
            done += 1
            who = f"{result['by'] or '-':7}{result['how']:10}"
            print(f"{done:4} {who}{result['seconds']:6.1f} s  {mutant.what}", flush=True)
            if result["by"] not in ("verify", "tests"):
                print(f"       {result['words']}", flush=True)
            yield result


def page(results: list[dict[str, Any]]) -> str:
    """docs/mutations.md."""
    by = {result["what"]: result["by"] for result in results}
    how = {result["what"]: result["how"] for result in results}
    n = len(by)
    lines = [
        "# Injected errors",
        "",
        "How good are the checks? A catalogue lists small errors in the sources. Each is injected in turn, and then",
        "`zellige verify` and, if it finds nothing, the tests are run (`python -m tests.mutations`, a part of `make test-long`).",
        "The errors *in the mathematics* are in methods, bounds, schedules, samplers and networks. Those *outside* are in",
        "training, data, metrics, serving, commands and weights, or refuse wrong input; only tests can catch them. Most were",
        "listed before it was known which checks catch them.",
        "",
        *(
            [
                f"{n} of the {len(CATALOGUE)} errors have been tried so far; the percentages are of these.",
                "",
            ]
            if n < len(CATALOGUE)
            else []
        ),
        "An error is caught if a check fails, which says what is wrong, or if an exception is raised. Both are counted.",
        "",
        "| caught by | errors | percentage | a check failed | an exception was raised |",
        "|---|---:|---:|---:|---:|",
    ]
    for part, names in (
        ("in the mathematics: `verify` alone", by.keys() - BESIDE),
        ("in the mathematics: `verify` and the tests", by.keys() - BESIDE),
        ("outside: the tests", by.keys() & BESIDE),
    ):
        caught = [what for what in names if by[what] == "verify" or (by[what] == "tests" and "tests" in part)]
        checks = sum(how[what] == CHECK for what in caught)
        share = f"{100 * len(caught) / len(names):.1f}%" if names else "-"
        lines.append(f"| {part} | {len(caught)} of {len(names)} | {share} | {checks} | {len(caught) - checks} |")
    lines += [
        "",
        "For each error one check of `verify` is run, which `tests/mutations/catalogue.py` names. `verify` cannot catch these:",
        "",
        "| error | where | why `verify` cannot catch it | caught by |",
        "|---|---|---|---|",
    ]
    for mutant in CATALOGUE:
        if by.get(mutant.what, "verify") != "verify":
            tests = f"`{mutant.tests.partition(' ')[0]}`" if by[mutant.what] == "tests" else "nothing"
            lines.append(f"| {mutant.what} | `{mutant.file}` | {mutant.why or 'its check holds'} | {tests} |")
    lines += ["", "`verify` catches these, each by one check:", "", "| error | where | check |", "|---|---|---|"]
    by_verify = (mutant for mutant in CATALOGUE if by.get(mutant.what) == "verify")
    lines += [f"| {mutant.what} | `{mutant.file}` | `{mutant.check}` |" for mutant in by_verify]
    return "\n".join(lines) + "\n"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="the errors whose description, file or check has these words")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, help="a file for who caught each; what it holds already is not run again")
    parser.add_argument("--write", type=Path, help="the page, of all that the JSON holds")
    chosen = parser.parse_args(words)
    known = json.loads(chosen.json.read_text()) if chosen.json and chosen.json.is_file() else []
    every = {result["what"]: result for result in known if result["by"] in ("verify", "tests") and "how" in result}
    mutants = [m for m in CATALOGUE if chosen.only in " ".join((m.what, m.file, m.check)) and m.what not in every]
    began, results = time.monotonic(), [every[m.what] for m in CATALOGUE if m.what in every]
    for result in run(mutants, chosen.processes):
        every[result["what"]] = result
        results = [every[m.what] for m in CATALOGUE if m.what in every]
        if chosen.json:
            chosen.json.write_text(json.dumps(results, indent=1))
    if chosen.write:
        chosen.write.write_text(page(results))
    inside = [result["by"] for result in results if result["what"] not in BESIDE]
    verify, caught = inside.count("verify"), sum(result["by"] in ("verify", "tests") for result in results)
    raised = sum(result["how"] == RAISED for result in results)
    print(f"{len(results)} planted: verify {verify} of {len(inside)} in the mathematics, with the tests {caught} of all, "
          f"{raised} of them by an exception; {(time.monotonic() - began) / 60:.1f} minutes")  # fmt: skip
    return 0 if verify >= 0.9 * len(inside) and caught >= 0.98 * len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
