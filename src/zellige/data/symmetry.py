"""Symmetries of data: what may be done to an example without making it more or less likely.

A symmetry g moves positions and renames tokens: position i of g x holds the token `rename[x[move[i]]]`.

Images have the mirror image, where training saw it too (`data.flip`); other data sets may bring their own
(`Source.symmetries`).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..base.errors import InputError
from ..base.plugins import named
from .catalogue import DATASETS

if TYPE_CHECKING:
    from .corpus import Data
    from .tokenizer_base import Tokenizer


@dataclass(frozen=True)
class Symmetries:
    """n symmetries of sequences of L tokens of V kinds; the first one changes nothing.

    Attributes:
        moves: (n, L), renames: (n, V), of each symmetry its `move` and its `rename`.
    """

    moves: np.ndarray
    renames: np.ndarray

    def __len__(self) -> int:
        return len(self.moves)


def symmetries(data: "Data", tokenizer: "Tokenizer", count: int) -> Symmetries:
    """The first `count` symmetries of a data set, always the same ones; of Sudokus they are random.

    Raises:
        InputError: the data have no known symmetries, or fewer.
    """
    source = DATASETS.get(data.name)
    if source is not None and source.symmetries:
        return named(source.symmetries)(data, tokenizer, count)
    if not data.flip or not tokenizer.shape:
        raise no_symmetries()
    positions = np.arange(int(np.prod(tokenizer.shape)))
    mirrored = np.flip(positions.reshape(tokenizer.shape), 1).reshape(-1)
    return two(mirrored, np.arange(tokenizer.size), "mirrored", count)


def two(move: np.ndarray, rename: np.ndarray, name: str, count: int) -> Symmetries:
    """No change, and one other symmetry: move (L,), rename (V,) and its name. InputError: more are asked for."""
    if count > 2:
        raise InputError(f"`symmetries` is {count}, and these data have 2: as it is, and {name}; give 2")
    return Symmetries(np.stack((np.arange(len(move)), move)), np.stack((np.arange(len(rename)), rename)))


def no_symmetries() -> InputError:
    """The error of data without symmetries."""
    return InputError(
        "`symmetries` is for sudokus, DNA with `data.reverse_complement` and images with `data.flip`; leave it out"
    )
