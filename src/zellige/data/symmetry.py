"""Symmetries of data: what may be done to an example without making it more or less likely.

A symmetry g moves positions and renames tokens: position i of g x holds the token `rename[x[move[i]]]`.

    sudoku    digits change their names; rows, columns, bands and stacks change places; the grid is transposed
    dna       the other strand, read backwards, where training read it too (`data.reverse_complement`)
    images    the mirror image, where training saw it too (`data.flip`)
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..base.errors import InputError
from . import puzzles
from .dna import complement

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
    length = int(np.prod(tokenizer.shape or (0,)))
    places, tokens = np.arange(length), np.arange(tokenizer.size)
    if data.name == "sudoku":
        drawn = [puzzles.symmetries(1, tokenizer.shape[0], np.random.default_rng(k)) for k in range(1, count)]
        return Symmetries(*(np.concatenate(parts) for parts in zip((places[None], tokens[None]), *drawn)))
    if data.flip and tokenizer.shape:
        other, name = (np.flip(places.reshape(tokenizer.shape), 1).reshape(-1), tokens), "mirrored"
    elif data.reverse_complement:
        other, name = (places[::-1], np.array(complement(tokenizer))), "the other strand"
    else:
        raise InputError(
            "`symmetries` is for sudokus, DNA with `data.reverse_complement` and images with `data.flip`; leave it out"
        )
    if count > 2:
        raise InputError(f"`symmetries` is {count}, and these data have 2: as it is, and {name}; give 2")
    return Symmetries(np.stack((places, other[0])), np.stack((tokens, other[1])))
