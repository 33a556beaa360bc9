"""Data that is not text: rows of levels 0..size-1 of one fixed shape. Images, puzzles, arrays.

A level is a grey value, a digit; `ordered` says whether neighbouring numbers are neighbours. A row is
flattened with its last axis running fastest: an image line by line (a pixel's colours together).
Nothing is encoded or decoded but for people: `decode` writes a row as plain text, and `encode` reads such a text again.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..base.errors import InputError
from .tokenizer_base import BaseTokenizer, token_ids

FREE = ".·_?"


class Levels(BaseTokenizer):
    """Rows of levels of one shape.

    >>> puzzle = Levels(4, (4, 4), "grid", "cell", labels=(1, 2, 3, 4))
    >>> puzzle.encode("32.. 1... .... ....")[:5], puzzle.decode([2, 1, 3, 0] * 4).split()
    ([2, 1, -1, -1, 0], ['3241', '3241', '3241', '3241'])

    Attributes:
        shape: of one row: (height, width), (height, width, colours), (L,).
        kind: "image" or "grid": how a row is shown.
        unit: name of one position: "dim", "cell".
        labels: what each level stands for, such as the digit; empty where it is the level itself.
    """

    name = "levels"
    sign = staticmethod(str)  # of a label

    def __init__(
        self,
        size: int,
        shape: Sequence[int],
        kind: str = "grid",
        unit: str = "cell",
        ordered: bool = False,
        labels: Sequence[int] = (),
    ):
        self.size, self.shape, self.kind, self.unit, self.ordered = size, tuple(shape), kind, unit, ordered
        self.labels = tuple(labels)
        if self.labels and len(self.labels) != size:
            raise InputError(f"{len(self.labels)} labels for {size} levels")
        values = self.labels or range(size)
        self._signs = [self.sign(value) for value in values]
        self._joint = "" if all(len(sign) == 1 for sign in self._signs) else " "

    def describe(self) -> str:
        """`14 x 14 images of 8 levels`"""
        shape = " x ".join(map(str, self.shape))
        return f"{shape} {self.kind}s of {self.size:,} {'levels' if self.ordered else 'symbols'}"

    def decode(self, tokens: Iterable[int], mask: str = "·") -> str:
        """A row as text, line by line; what is not a level is drawn as `mask`."""
        return "".join(self._between(i) + sign for i, sign in enumerate(self.signs(token_ids(tokens), mask)))

    def signs(self, tokens: Sequence[int], mask: str) -> list[str]:
        """What each level is written as."""
        return [self._signs[t] if 0 <= t < self.size else mask for t in tokens]

    def _between(self, i: int) -> str:
        """Separator before position i: lines end with the first axis, and the colours of a pixel belong together."""
        if i == 0:
            return ""
        if len(self.shape) > 1 and i % math.prod(self.shape[1:]) == 0:
            return "\n"
        return "," if len(self.shape) > 2 and i % self.shape[-1] else self._joint

    def encode(self, text: str, of: str = "the prompt") -> list[int]:
        """The levels that `text` gives, -1 where it leaves one free (`.`, `_`, `?`, and `0` where no label is 0).

        Cells of one character may stand together or apart; other levels are numbers with spaces or commas between them.
        """
        words = text.replace(",", " ").split()
        words = words if self._joint else "".join(words)
        level = {sign: i for i, sign in enumerate(self._signs)}
        level = dict.fromkeys([*FREE, "0"], -1) | level
        wrong = next((word for word in words if word not in level), None)
        if wrong is not None:
            signs = f"{self._signs[0]} to {self._signs[-1]}"
            raise InputError(
                f"'{wrong}' in {of} is not in the model's vocabulary ({signs}; . leaves a {self.unit} free)"
            )
        if len(words) != math.prod(self.shape):
            takes = f"{' x '.join(map(str, self.shape))} = {math.prod(self.shape):,}"
            raise InputError(
                f"{of} has {len(words):,} {self.unit}s, the model takes {takes}; mark each free one with '.'"
            )
        return [level[word] for word in words]

    def encode_pieces(self, pieces: Sequence[str], of: str = "the corpus") -> list[np.ndarray]:
        raise InputError(f"{of} is text, and the rows of this model are {self.describe()}; give data of that form")

    def to_dict(self) -> dict[str, Any]:
        names = ("size", "shape", "kind", "unit", "ordered", "labels")
        entries = {name: getattr(self, name) for name in names}
        return {"zellige": "levels"} | entries | {"shape": [*self.shape], "labels": [*self.labels]}
