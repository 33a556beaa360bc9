"""Fractions of sampled molecules that are valid, different and new, and what property they have.

Texts, not structures: two spellings of one molecule are two. Validity is that of `data.smiles`: grammar, valences and
aromatic rings.
"""

from collections.abc import Collection, Sequence

import numpy as np

from ..data.properties import Property
from ..data.smiles import is_molecule
from .interval import Proportion


def valid(molecules: Sequence[str]) -> Proportion:
    """Fraction of the texts that are the SMILES of one molecule."""
    return Proportion(sum(map(is_molecule, molecules)), len(molecules))


def unique(molecules: Sequence[str]) -> Proportion:
    """Fraction of the valid texts that are different ones."""
    texts = [text for text in molecules if is_molecule(text)]
    return Proportion(len({*texts}), len(texts))


def new(molecules: Sequence[str], training_molecules: Collection[str]) -> Proportion:
    """Fraction of the different valid texts that are not in the training split."""
    texts = {text for text in molecules if is_molecule(text)}
    return Proportion(sum(text not in training_molecules for text in texts), len(texts))


def right_class(asked: np.ndarray, found: np.ndarray) -> Proportion:
    """Fraction of the valid molecules whose class, found (N,), is the one that was asked for (N,);
    found is -1 of others."""
    return Proportion(int(((asked == found) & (found >= 0)).sum()), int((found >= 0).sum()))


def counts(of: Property, molecules: Sequence[str]) -> np.ndarray:
    """The property of each text, (N,) float64, NaN where it is no valid molecule."""
    numbers = [of.counted(text) if is_molecule(text) else None for text in molecules]
    return np.array([np.nan if number is None else number for number in numbers], float)
