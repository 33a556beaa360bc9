"""The catalogue of planted errors: each can still be planted; all of them are, and caught, in the long tests."""

import ast
from pathlib import Path

import pytest

from mutations import __main__ as mutations
from mutations.catalogue import CATALOGUE
from zellige.exact import identities
from zellige.methods import METHODS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("mutant", CATALOGUE, ids=lambda mutant: mutant.what)
def test_each_can_be_planted(mutant):
    """Its text stands once in its file, what comes of it is Python, and who catches it is there."""
    text = (ROOT / "src" / "zellige" / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    assert ast.dump(ast.parse(text.replace(mutant.old, mutant.new))) != ast.dump(ast.parse(text))
    key, _, method = mutant.check.partition(" ")
    if mutant.check:
        assert any(
            known == key or known.startswith((f"{key}.", f"{key}-")) for known in [*identities.SHARED, *identities.OWN]
        )
        assert not method or method in METHODS
    else:
        assert mutant.why
        assert (ROOT / mutant.tests.partition(" ")[0]).is_file()


def test_each_is_named_once():
    assert len({mutant.what for mutant in CATALOGUE}) == len(CATALOGUE) >= 120


@pytest.mark.long
def test_the_mutation_score():
    """verify alone catches 90% at least, with the tests 98%; on two cores within half an hour."""
    assert mutations.main([]) == 0
