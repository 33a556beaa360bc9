"""What a network of blocks remembers of the tokens that it has read: made by `DiT.extend`, read by `DiT.features`."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Cache:
    """The keys and values of P places for each of B rows; a value like any other, never changed.

    Rows of different length end together: the shorter ones begin with places that are not `valid`.

    Attributes:
        keys: (B, H, P, W) for each layer, rotated to where they stand.
        values: (B, H, P, W) for each layer.
        tails: (B, kernel // 2, D) for each layer, the end of the residual stream, which the short convolution of the next
            positions reads (nothing where there is none: the kernel is 0).
        valid: (B, P) bool.
        place: (B,) long, the position that comes next.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    tails: tuple[Tensor, ...]
    valid: Tensor
    place: Tensor

    def __len__(self) -> int:
        return self.valid.shape[1]

    @property
    def rows(self) -> int:
        """B."""
        return len(self.place)

    @property
    def empty(self) -> bool:
        """Whether no row remembers anything."""
        return not bool(self.valid.any())

    def take(self, rows: Tensor) -> "Cache":
        """These rows (N,) of it, in this order; all of them cost nothing."""
        if torch.equal(rows, torch.arange(self.rows, device=rows.device)):
            return self
        layers = ([y[rows] for y in of] for of in (self.keys, self.values, self.tails))
        return Cache(*map(tuple, layers), self.valid[rows], self.place[rows])  # pyright: ignore

    def last(self, places: int) -> "Cache":
        """Only the last places: the window of a text that passes the trained length. Positions go on counting."""
        first = max(len(self) - places, 0)
        keys, values = (tuple(y[:, :, first:] for y in of) for of in (self.keys, self.values))
        return replace(self, keys=keys, values=values, valid=self.valid[:, first:])

    def layer(self, i: int) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values and tail of one layer."""
        return self.keys[i], self.values[i], self.tails[i]
