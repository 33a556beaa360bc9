"""Which tests run each line of the sources, and how long each takes: the suite once, under coverage.

As a pytest plugin (`-p tests.mutants.reached`) it writes the seconds of each test.
"""

import collections
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS, COVERAGE = "ZELLIGE_SECONDS", "COVERAGE_FILE"  # where the plugin and pytest-cov write
Line = tuple[str, int]  # file below src/zellige, line


class Reached:
    """Tests of a line, the nearest first.

    Args:
        tests: seconds of each test, by its pytest id.
        lines: the tests that run a line. What runs while a module is imported, no test has run.
    """

    def __init__(self, tests: dict[str, float], lines: dict[Line, list[str]]) -> None:
        self.tests, self.lines, self.files = tests, lines, collections.defaultdict(set)
        for (file, _), some in lines.items():
            self.files[file].update(some)

    def near(self, file: str, line: int, seconds: float) -> list[str]:
        """Tests that run a line, else those that run any line of its file; together no longer than `seconds`, but one.

        Of each test function its fastest case comes first, then the second of each, and so on; among them those within a
        second, then those of the file's own test file, then of its package, then the fastest.
        """
        package, stem = Path(file).parts[0], Path(file).stem
        cases: dict[str, list[str]] = collections.defaultdict(list)
        for test in sorted(self.lines.get((file, line)) or self.files[file], key=lambda test: self.tests[test]):
            cases[test.partition("[")[0]].append(test)

        def order(place: tuple[int, str]) -> tuple[int, bool, bool, bool, float]:
            nth, test = place
            at, takes = Path(test.partition("::")[0]), self.tests[test]
            return nth, takes > 1, not at.stem.startswith(f"test_{stem}"), package not in at.parts, takes

        chosen: list[str] = []
        for _, test in sorted((place for some in cases.values() for place in enumerate(some)), key=order):
            seconds -= self.tests[test]
            if chosen and seconds < 0:
                break
            chosen.append(test)
        return chosen


def measure(folder: Path, jobs: int) -> None:
    """Run the suite; leave `reached.coverage` and `seconds.json` in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, SECONDS: str(folder / "seconds.json"), COVERAGE: str(folder / "reached.coverage")}
    command = ["pytest", "-n", str(jobs), "--dist", "worksteal", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants.reached",
               "--cov=src/zellige", "--cov-context=test", "--cov-report="]  # fmt: skip
    if subprocess.run([sys.executable, "-m", *command, "tests"], cwd=ROOT, env=environment).returncode:
        sys.exit("make mutants: the tests fail without a mutant; an error in the sources could not be told from that")


def read(folder: Path) -> Reached:
    """What `measure` left."""
    from coverage import CoverageData

    tests = json.loads((folder / "seconds.json").read_text())
    data, lines = CoverageData(str(folder / "reached.coverage")), {}
    data.read()
    for path in data.measured_files():
        file = path.rpartition("/src/zellige/")[2]
        for line, contexts in data.contexts_by_lineno(path).items():
            ran = {context.rpartition("|")[0] for context in contexts}  # id|setup, id|run, id|teardown
            lines[file, line] = sorted(test for test in ran if test in tests)
    return Reached(tests, lines)


_seconds: dict[str, float] = collections.defaultdict(float)


def pytest_runtest_logreport(report: Any) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_sessionfinish(session: Any) -> None:
    if not hasattr(session.config, "workerinput"):  # in the process that collects the reports of all workers
        Path(os.environ[SECONDS]).write_text(json.dumps(_seconds))
