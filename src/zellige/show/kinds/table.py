"""Rows of a table of categories, as lines of .csv, or drawn cell by cell."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...base.errors import InputError
from ...data.table import Table as Columns
from .grid import Grid
from .modality import Modality


class Table(Grid):
    """A grid of one line whose symbols are those of each column."""

    name, many = "table", "rows"
    tokenizer: Any

    def __init__(self, tokenizer: Columns):
        Modality.__init__(self, tokenizer)
        self.labels = sorted({word for values in tokenizer.values for word in values})
        self.board, self.box, self.keeps = (1, self.shape[0]), None, ("left", "right")

    def text(self, row: Sequence[int]) -> str:
        return self.tokenizer.decode(row)

    def pieces(self, row: Sequence[int]) -> list[str]:
        return self.tokenizer.words(row)

    def values(self, rows: ArrayLike) -> np.ndarray:
        """(N, L) texts, the values themselves; `·` where none stands."""
        return np.array([self.pieces(row) for row in self.rows(rows).tolist()])

    def tokens(self, values: ArrayLike) -> np.ndarray:
        """Tokens of values, of `·` -1; integers are tokens already. InputError where one is of no column."""
        array = np.asarray(values)
        if np.issubdtype(array.dtype, np.integer):
            return array
        rows = array.reshape(-1, len(self.tokenizer.values)).tolist()
        ids = [{"·": -1} | {word: k for k, word in enumerate(column)} for column in self.tokenizer.values]
        for row in rows:
            if wrong := next((word for word, known in zip(row, ids) if word not in known), None):
                raise InputError(f"`fixed` holds '{wrong}', which is no value of its column; '·' leaves a cell free")
        return np.array([[known[w] for w, known in zip(row, ids)] for row in rows]).reshape(array.shape)
