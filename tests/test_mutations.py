"""The catalogue of planted errors: each can still be planted; all of them are, and caught, in the long tests."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mutations import __main__ as mutations
from mutations.catalogue import CATALOGUE
from zellige.methods import METHODS
from zellige.plugins.verify import identities

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("mutant", CATALOGUE, ids=lambda mutant: mutant.what)
def test_each_can_be_planted(mutant):
    """Its text stands once in its file, what comes of it is Python (or what the file is), and who catches it is there."""
    text = (ROOT / "src" / "zellige" / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    read = {".py": lambda text: ast.dump(ast.parse(text)), ".json": json.loads}.get(Path(mutant.file).suffix, str)
    assert read(text.replace(mutant.old, mutant.new)) != read(text)
    key, _, method = mutant.check.partition(" ")
    if mutant.check:
        assert any(
            known == key or known.startswith((f"{key}.", f"{key}-")) for known in [*identities.SHARED, *identities.OWN]
        )
        assert not method or method in METHODS
    else:
        assert mutant.why
        file, _, words = mutant.tests.partition(" -k ")
        test = (ROOT / file).read_text()
        assert all(word in test for word in words.split() if word not in ("or", "and"))


def test_each_is_named_once():
    assert len({mutant.what for mutant in CATALOGUE}) == len(CATALOGUE) >= 120


FAILURES = {
    "assert 1 == 2": "check",
    "with pytest.raises(ValueError): int('3')": "check",
    "{}['a']": "exception",
    "assert {}['a'] == 1": "exception",
    "pass": "",
}
RUN = """
import sys
from pathlib import Path
from tests.mutations import __main__ as mutations

for test in sys.argv[1:]:
    how, words = mutations.tested(test, Path("src"))
    print("how", test, how, sep="|")
"""


@pytest.mark.long
def test_what_is_raised_is_told_from_what_is_checked(tmp_path):
    """By tests that fail so."""
    tests = {str(tmp_path / f"test_{i}.py"): body for i, body in enumerate(FAILURES)}
    for test, body in tests.items():
        Path(test).write_text(f"import pytest\n\ndef test_it():\n    {body}\n")
    done = subprocess.run([sys.executable, "-c", RUN, *tests], cwd=ROOT, capture_output=True, text=True, check=True)
    seen = dict(line.split("|")[1:] for line in done.stdout.splitlines() if line.startswith("how|"))
    assert seen == {test: FAILURES[body] for test, body in tests.items()}


def test_the_page_counts_both_apart(monkeypatch):
    inside, outside = (next(m for m in CATALOGUE if (m.what in mutations.BESIDE) == beside) for beside in (False, True))
    monkeypatch.setattr(mutations, "CATALOGUE", [inside, outside])
    results = [{"what": inside.what, "by": "verify", "how": mutations.CHECK},
               {"what": outside.what, "by": "tests", "how": mutations.RAISED}]  # fmt: skip
    page = mutations.page(results)
    assert "| in the mathematics: `verify` alone | 1 of 1 | 100.0% | 1 | 0 |" in page
    assert "| outside: the tests | 1 of 1 | 100.0% | 0 | 1 |" in page
    assert "So far" not in page


@pytest.mark.long
def test_the_mutation_score():
    """verify alone catches 90% at least of what is in the mathematics, the tests 98% of all."""
    command = [sys.executable, "-m", "tests.mutations"]  # what is forked there has no zellige yet
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
