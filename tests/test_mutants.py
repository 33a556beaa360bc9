"""Mutants by rule: each rule on a small source; every mutant of a real file compiles and differs; a seed gives one draw."""

import ast
import subprocess
import sys

import pytest

from mutants import __main__ as program
from mutants.reached import Reached
from mutants.rules import mutants
from zellige.plugins.verify import identities

SMALL = {
    "x = a + b": {("arithmetic", "x = a - b"), ("dropped term", "x = a")},
    "x = (a) * (b)": {("arithmetic", "x = (a) / (b)"), ("dropped term", "x = (a)")},
    "x = -a ** b": {("arithmetic", "x = -(a * b)")},
    "x += y": {("arithmetic", "x -= y")},
    "x = 'é' < y": {("comparison", "x = 'é' <= y")},
    "x = a is  not b": {("comparison", "x = a is b")},
    "x = a == b != c": {("comparison", "x = a != b != c"), ("comparison", "x = a == b == c")},
    "x = 0, 1.5, True": {
        ("constant", "x = 1, 1.5, True"), ("constant", "x = 0, 3.0, True"), ("constant", "x = 0, 1.5, False"),
    },
    "x = a and b and c": {("dropped term", "x = a and b")},
    "f(a, b)": {("swapped argument", "f(b, a)")},
    "max(a, b); f(a, a); f(*a, b); f(a, k=b)": set(),
    "x[a:b]": {("off by one", "x[a + 1:b]"), ("off by one", "x[a:b + 1]")},
    "range(n)": {("off by one", "range(n + 1)")},
    "if a: f()": {("negated condition", "if not (a): f()")},
    "x = a if not b else c": {("negated condition", "x = a if (b) else c")},
    "if a == b: f()": {("comparison", "if a != b: f()")},
    "x = (a  # + b\n + c)": {("arithmetic", "x = (a  # + b\n - c)"), ("dropped term", "x = (a)")},
    '"""1 + 1"""\nx: f(1, 2)\n__all__ = ["a" + b]': set(),
    "def f(x: Literal[1]) -> g[2]:\n    raise E(1 + 2, f'{a + b}')": set(),
    "if TYPE_CHECKING:\n    x = 1": set(),
    "x = f'{a + b}' + c": set(),
}  # fmt: skip


@pytest.mark.parametrize("source", SMALL)
def test_each_rule(source):
    assert {(m.rule, m.apply(source).rstrip("\n")) for m in mutants("file.py", source)} == SMALL[source]


@pytest.mark.parametrize("file", ["core/maths.py", "core/positions.py"])
def test_mutants_of_a_real_file(file):
    source = (program.SOURCES / file).read_text()
    found = mutants(file, source)
    assert len(found) == len(set(found)) > 10
    assert all(m.valid(source) for m in found)
    texts = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Raise)]
    assert not any(node.lineno <= m.line <= (node.end_lineno or 0) for node in texts for m in found)
    doc = ast.get_docstring(ast.parse(source), clean=False)
    assert all(ast.get_docstring(ast.parse(m.apply(source)), clean=False) == doc for m in found)


def test_a_seed_gives_one_draw():
    draws = [program.drawn(8, seed, ("core", "nn")) for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert [len(draw) for draw in draws] == [8, 8, 8]
    assert {m.file.partition("/")[0] for m in draws[0]} == {"core", "nn"}


def test_the_nearest_tests():
    """Of each function the fastest case first: what takes a second at most, then the file's own tests, then its package's."""
    tests = {
        "tests/nn/test_b.py::slow": 9.0,
        "tests/core/test_a.py::case[1]": 3.0,
        "tests/core/test_a.py::case[2]": 2.0,
        "tests/core/test_c.py::beside": 1.5,
        "tests/cli/test_a.py::named": 2.5,
        "tests/nn/test_b.py::quick": 0.5,
    }
    everything = [*tests]
    reached = Reached(tests, {("core/a.py", 3): everything, ("core/a.py", 4): everything[:1], ("core/a.py", 5): []})
    assert reached.near("core/a.py", 3, 10.5) == [everything[i] for i in (5, 2, 4, 3)]
    assert reached.near("core/a.py", 3, 100) == [everything[i] for i in (5, 2, 4, 3, 0, 1)]
    assert reached.near("core/a.py", 4, 1) == everything[:1]  # one at least
    assert reached.near("core/a.py", 5, 1) == everything[5:]  # while the module is imported: tests of its other lines
    assert reached.near("core/b.py", 3, 60) == []


CATCHES = """
import sys
from pathlib import Path
from tests.mutants.__main__ import SOURCES, Reached, Trial, mutants, run

test = "tests/core/test_student.py::test_it_holds_its_share_of_the_density"
source = (SOURCES / "core" / "student.py").read_text()
first = next(m for m in mutants("core/student.py", source) if m.rule == "arithmetic")
trial = Trial(Path(sys.argv[1]), Reached({test: 1.0}, {(first.file, first.line): [test]}), 60)
print(trial(first), run("pytest", ("-q", test), trial.sources, 60), run("no_such_module", (), trial.sources, 60),
      run("timeit", ("-n", "1", "while True: pass"), trial.sources, 0.5),
      run("http.server", ("0",), trial.sources, 0.2), (trial.sources / "zellige" / first.file).read_text() == source)
"""


def test_what_verify_is_asked():
    assert program.verify("methods/d3pm_rows.py") == [("verify", "d3pm")]
    assert program.verify("samplers/euler.py") == [("verify", "--sampler", "euler")]
    assert program.verify("samplers/smc.py")[1] == ("verify", "mdlm", "sedd", "--only", "smc")
    assert program.verify("core/batch.py") == [("verify", "mdlm", "sedd", "--only", "bound")]
    assert program.verify("nn/unet.py") == [("verify", "mdlm", "sedd", "--only", "networks")]
    there = {key.partition(".")[0] for key in (*identities.SHARED, *identities.OWN)}
    assert {*program.CHECKS.values()} <= there
    assert {*program.CHECKS} <= {path.stem for path in program.SOURCES.rglob("*.py")}


def test_who_catches(tmp_path):
    """A test catches a mutant of a line that it runs, and passes on the copy afterwards; a limit stops what runs on."""
    command = [sys.executable, "-c", CATCHES, str(tmp_path)]
    assert subprocess.check_output(command, cwd=program.ROOT, text=True).split() == [
        "tests",
        "0",
        "1",
        "None",
        "None",
        "True",
    ]


def test_what_is_judged_equivalent_is_left_out():
    found = program.drawn(4, 0, ("core",))
    results = [(m, by) for m, by in zip(found, ["tests", "time", "verify", ""])]
    page = program.summary(results, {})
    assert "3 of   4 caught,  75.0% [30.1, 95.4], 1 by time, 1 by verify" in page
    assert program.diff(found[3]) in page
    source = (program.SOURCES / found[3].file).read_text()
    page = program.summary(results, {(found[3].file, *found[3].lines(source)): "equivalent"})
    assert "3 of   3 caught" in page
    assert "1 judged equivalent" in page
    assert set(program.judged().values()) <= {"equivalent", "hole", "accepted"}
