"""Molecules, a line of SMILES each."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zellige.base.errors import InputError
from zellige.show.kinds import Text

from .properties import COUNTED, Property


class Molecules(Text):
    """Molecules, a line of SMILES each; what a row is filled up with is left off."""

    name, many = "smiles", "molecules"
    whole = True
    measured = True

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of SELFIES, of which each alone is no SMILES; () of a model of the letters of SMILES."""
        return getattr(self.tokenizer, "symbols", ())

    def check_given(self, row: Sequence[int]) -> None:
        given = sum(token >= 0 for token in row)
        if not self.symbols or given in (0, len(row)):
            return
        symbols = range(1, len(self.symbols))  # the first one ends a molecule
        molecules = (self.text([symbol if token < 0 else token for token in row]) for symbol in symbols)
        whole = next(molecules)
        if all(molecule == whole for molecule in molecules):
            raise InputError(
                f"'{whole}' is whole: no atom has a bond left where more would be drawn, so every sample is it; "
                "go on at an atom before, as in CC(=O), or give less"
            )

    def text(self, row: Sequence[int]) -> str:
        return super().text(row).strip()

    def pieces(self, row: Sequence[int]) -> list[str]:
        symbols = self.symbols
        pieces = [symbols[t] if 0 <= t < len(symbols) else "·" for t in row] if symbols else super().pieces(row)
        return [piece.replace("\n", " ") for piece in pieces]

    def known(self, rows: ArrayLike, labels_by: str, names: Sequence[str]) -> dict[str, Any]:
        """The texts; and of a property that can be counted from them, its values and their classes."""
        texts = self.values(rows)
        counted = Property.of(labels_by) if labels_by else None
        if counted is None or counted.name not in COUNTED:
            return {"texts": texts}
        values = counted.counts(texts)
        found = [-1 if np.isnan(value) else counted.class_of(value, names) for value in values]
        return {"texts": texts, "counted": values, "found": np.array(found)}
