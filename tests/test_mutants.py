"""Mutants by rule: each rule on a small source; every mutant of a real file compiles and differs; a seed gives one draw."""

import ast

import pytest

from mutants import __main__ as program
from mutants.rules import mutants

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
    """Named after the source file, importing from it, named after a file that imports from it; else all of its package."""
    assert program.nearest("core/maths.py")[0] == "tests/core/test_maths.py"
    assert program.nearest("methods/csm.py") == ("tests/methods/test_csm.py", "tests/golden/test_csm.py")
    assert len(program.nearest("core/batch.py")) == program.MOST
    assert "tests/samplers/test_ancestral.py" in program.nearest("samplers/grid.py")
    assert program.nearest("samplers/psi.py") == ("tests/samplers",)


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
