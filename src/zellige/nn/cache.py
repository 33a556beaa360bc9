"""What a network of blocks remembers of the tokens that it has read: made by `DiT.extend`, read by `DiT.features`."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass
class Room:
    """Memory for the keys and values of one layer, more than are there yet: what comes next is written into it, not all copied.

    Attributes:
        keys, values: (B, H, C, W).
        used: how many of the C places belong to a cache; only the newest cache, which ends there, may write behind them.
    """

    keys: Tensor
    values: Tensor
    used: int

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, places: int) -> "Room":
        """Room for so many places, which begins with these."""
        B, H, P, W = keys.shape
        room = cls(keys.new_empty(B, H, places, W), values.new_empty(B, H, places, W), P)
        room.keys[:, :, :P], room.values[:, :, :P] = keys, values
        return room


class Past(NamedTuple):
    """What a layer remembers: keys and values (B, H, P, W), its tail, and room for more behind place `end` of it, if there is."""

    keys: Tensor
    values: Tensor
    tail: Tensor
    room: Room | None = None
    end: int = 0

    def followed(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values, those of the next positions (B, H, n, W) last."""
        if self.room is None:
            both = zip((self.keys, self.values), (keys, values))
            k, v = (torch.cat((old.to(new.dtype), new), 2) for old, new in both)
            return k, v
        first, end = self.end - self.keys.shape[2], self.end + keys.shape[2]
        self.room.keys[:, :, self.end : end], self.room.values[:, :, self.end : end] = keys, values
        return self.room.keys[:, :, first:end].to(keys.dtype), self.room.values[:, :, first:end].to(values.dtype)


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
        rooms: of each layer, where its places stand with room behind them; none where gradients are taken.
        end: where in the rooms the places end.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    tails: tuple[Tensor, ...]
    valid: Tensor
    place: Tensor
    rooms: tuple[Room, ...] = ()
    end: int = 0

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

    def free(self, n: int) -> bool:
        """Whether there is room for n more places, and this cache is the one that may write there."""
        if not self.rooms or torch.is_grad_enabled():
            return False
        return all(room.used == self.end for room in self.rooms) and self.end + n <= self.rooms[0].keys.shape[2]

    def layer(self, i: int, n: int) -> Past:
        """What one layer remembers, where n positions come next."""
        return Past(self.keys[i], self.values[i], self.tails[i], self.rooms[i] if self.free(n) else None, self.end)
