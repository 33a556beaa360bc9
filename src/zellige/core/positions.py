"""Positions of a batch at which the head of the network is evaluated.

They are those where a mask (B, L) is True or, where shapes are fixed (`base.waiting`), a fixed number of them.

A compiled training step has shapes that do not depend on the noise. `most` is the largest number of positions that the
noise makes likely. If fewer are True, padding of weight 0 fills up. If more are True, n of them (probability 1e-9, see
`Absorbing._max_positions`), `most` are chosen, all equally likely, with weight n/most: the sum stays unbiased. The
random number for this choice is `Batch.spare`. It changes no other random number, so dropout is the same as in a step
that is not compiled. A sampling step of fixed shape has all positions, or as many as `at_most` allows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..base.waiting import fixed, most_positions


@dataclass(frozen=True)
class Positions:
    """N positions of (B, L), in order.

    Attributes:
        index: (N,) indices in the flattened (B * L,).
        row: (N,) the sequence of each position.
        rows: B.
        share: (N,) the weight of each position in a sum; None: 1.
        asked: (N,) bool, False for padding, which repeats another position; None: no padding.
        whole: True if shapes are fixed and these are all positions.
    """

    index: Tensor
    row: Tensor
    rows: int
    share: Tensor | None = None
    asked: Tensor | None = None
    whole: bool = False

    def of(self, values: Tensor) -> Tensor:
        """Select values at these positions, from (B, L, *), or from (B,) or (B, 1, *) per sequence: (N, *)."""
        if values.ndim == 1:
            return values[self.row]
        flat = values.flatten(0, 1)
        if values.shape[1] == 1:
            return flat[self.row]
        return flat if len(self.index) == len(flat) else flat[self.index]  # all positions, in order

    def among(self, at: Tensor, values: Tensor) -> Tensor:
        """Select from values (N, *) those at `positions(at)`; `at` (B, L) is True only at some of these positions."""
        return values if self.whole else values[at.flatten()[self.index]]

    def put(self, x: Tensor, values: Tensor) -> Tensor:
        """Return x (B, L) with values (N,) at these positions. A position that occurs twice needs equal values."""
        if self.asked is not None:
            values = torch.where(self.asked, values, x.flatten()[self.index])
        return x.flatten().scatter(0, self.index, values).view_as(x)

    def weights(self, weight: Tensor | None) -> Tensor | None:
        """Return `share` times `weight` (B,) or (B, L) at these positions: (N,); None if all are 1."""
        if weight is None or self.share is None:
            return self.share if weight is None else self.of(weight)
        return self.share * self.of(weight)

    def sum(self, values: Tensor, weighted: bool = False) -> Tensor:
        """Sum values (N,) over each sequence: (B,). With `weighted` they already include `weights`."""
        if self.share is not None and not weighted:
            values = torch.where(self.share > 0, self.share * values, 0.0)
        if self.whole:  # PyTorch 2.13 compiles no index_add of these for two threads of a CPU
            return values.view(self.rows, len(values) // max(self.rows, 1)).sum(-1)
        return values.new_zeros(self.rows).index_add(0, self.row, values)


def positions(at: Tensor, most: int | None = None, spare: Tensor | None = None) -> Positions:
    """Return the positions where `at` (B, L) is True; where shapes are fixed, `most` of them, or all B * L if None.

    spare: () a uniform random number that chooses them if more than `most` are True.
    """
    B, L = at.shape
    if not fixed():
        index = at.flatten().nonzero()[:, 0]
        return Positions(index, index // L, B)
    limit = most_positions()
    most = min(number for number in (B * L, most, limit) if number is not None)
    if most == B * L:  # a position that is False is padding
        index = torch.arange(B * L, device=at.device)
        return Positions(index, index // L, B, at.flatten().double(), at.flatten(), whole=True)
    flat, within = at.flatten(), at.cumsum(1)
    ends = within[:, -1:].cumsum(0)  # (B, 1). Not flat.cumsum(0): PyTorch 2.11 compiles no long scan for a GPU here
    n, rank = ends[-1, 0], (ends - within[:, -1:] + within).flatten() - 1  # rank among the True ones
    share = (torch.arange(most, device=at.device) < n).double()
    if limit is None:
        assert spare is not None, "a compiled step draws from a counter (`Batch.spare`)"
        offset = (spare * n).long().clamp_max((n - 1).clamp_min(0))  # used only if there are too many
        rank = (rank + torch.where(n > most, offset, 0)) % n.clamp_min(1)
        share = torch.where(n > most, n / most, 1.0) * share
    position = torch.where(flat & (rank < most), rank, most)
    index = flat.long().argmax().expand(most + 1).scatter(0, position, torch.arange(B * L, device=at.device))[:most]
    return Positions(index, index // L, B, share.double(), flat[index])
