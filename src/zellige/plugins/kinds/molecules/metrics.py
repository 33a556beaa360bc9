"""Fractions of sampled molecules that are valid, different and new, and their counted property.

Texts are compared, not structures: two spellings of one molecule are two. `smiles` checks validity: grammar, valences
and aromatic rings.
"""

from collections.abc import Collection, Sequence
from functools import partial

import numpy as np

from zellige.evaluation.interval import Proportion
from zellige.evaluation.metrics import WILSON, Metric

from .smiles import is_molecule


def valid(texts: Sequence[str]) -> Proportion:
    """Fraction of the samples that are the SMILES of one molecule, by grammar, valences and aromatic rings."""
    return Proportion(sum(map(is_molecule, texts)), len(texts))


def unique(texts: Sequence[str]) -> Proportion:
    """Fraction of the valid samples that are different texts; it falls as more are drawn."""
    molecules = [text for text in texts if is_molecule(text)]
    return Proportion(len({*molecules}), len(molecules))


def new(texts: Sequence[str], training_texts: Collection[str]) -> Proportion:
    """Fraction of the different valid samples that are not in the training split, as texts."""
    molecules = {text for text in texts if is_molecule(text)}
    return Proportion(sum(text not in training_texts for text in molecules), len(molecules))


def right_class(asked: np.ndarray, found: np.ndarray) -> Proportion:
    """Fraction of the samples with a counted property for which found (N,) is the requested class (N,)."""
    return Proportion(int(((asked == found) & (found >= 0)).sum()), int((found >= 0).sum()))


def property_mean(counted: np.ndarray) -> np.ndarray:
    """Counted property of each valid sample (N,), such as its number of rings; NaN for the others."""
    return counted


_fraction = partial(Metric, interval=WILSON, sides=True, page="molecules", subject="molecules")
VALID = _fraction(
    "valid", valid, ("texts",), True, column="valid",
    definition="fraction that is the SMILES of one molecule, by grammar, valences and aromatic rings",
)  # fmt: skip
UNIQUE = _fraction(
    "unique", unique, ("texts",), True, column="unique", biased=True, definition="different texts among the valid ones"
)
NEW = _fraction(
    "new", new, ("texts", "training_texts"), None, column="new",
    definition="of these, those that are not in the training split",
)  # fmt: skip
RIGHT_CLASS = _fraction(
    "right class", right_class, ("asked", "found"), True, column="right class", subject="",
    definition="valid ones whose property is in the class asked for; of real ones, by chance",
)  # fmt: skip
PROPERTY = Metric(
    "property", property_mean, ("counted",), None, title="property, mean", column="property", page="molecules",
    subject="molecules", definition="counted from the valid ones, mean",
)  # fmt: skip
