"""Nouns, drawn in the colours of their palette."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from zellige.show.kinds import Image
from zellige.show.kinds.image import MASKED

from .metrics import judged
from .parts import PARTS, Palette, parts


class Picture(Image):
    """Pictures of the colours of a palette."""

    many = "pictures"
    keeps = ("head", *(part for part in PARTS if part != "head"), *Image.keeps)
    measured = True

    def __init__(self, tokenizer: Palette):
        super().__init__(tokenizer)
        self.signs = tokenizer.signs
        self.palette = np.array([*((np.array(tokenizer.labels)[:, None] >> (16, 8, 0)) & 255), MASKED], np.uint8)

    def pixels(self, rows: ArrayLike) -> np.ndarray:
        """(N, H, W, 3) uint8; what is still to come has a colour of its own."""
        rows = self.rows(rows).reshape(-1, *self.shape)
        return self.palette[np.where(self.absent(rows), self.tokenizer.size, rows)]

    def pieces(self, row: Sequence[int]) -> list[str]:
        """The colour of each token, `#rrggbb`."""
        return self.signs(row, "·")

    def part(self, name: str, row: np.ndarray) -> np.ndarray:
        """Where that part of the nearest combination is seen, or the half of the picture."""
        if name not in PARTS:
            return super().part(name, row)
        seen = parts().seen(parts().nearest(row[None]))[1]
        return (seen == PARTS.index(name)).reshape(self.shape)

    def known(self, rows: ArrayLike, labels_by: str, names: Sequence[str]) -> dict[str, Any]:
        return judged(self.rows(rows), labels_by)
