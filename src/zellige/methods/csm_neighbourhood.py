"""Neighbourhoods of texts for concrete score matching, and for the random walk of `samplers.metropolis`.

N(x) are the neighbours of a text x: one position of it moved along an arrow from its token to another. Arrows may be
directed. A walk goes along them and against them: then it needs the Hastings factor, and a step against one reads 1/v
at its other end.
"""

from collections.abc import Callable
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from ..base.errors import InputError
from ..core import random
from ..core.random import Randomness


class Neighbourhood:
    """The arrows from a token to others, the same at every position.

    Args:
        size: V, the number of tokens.
    """

    def __init__(self, size: int):
        self.size = size

    def of(self, x: Tensor) -> Tensor:
        """The tokens that x has an arrow to, (*) -> (*, V) bool."""
        raise NotImplementedError

    def reversed(self, y: Tensor) -> Tensor:
        """The tokens that have an arrow to y, (*) -> (*, V) bool; the same unless arrows are directed."""
        return self.of(y)

    def walk(self, x: Tensor) -> Tensor:
        """The tokens that a random walk may go to from x: along an arrow or against one, (*) -> (*, V) bool."""
        return self.of(x) | self.reversed(x)

    @cached_property
    def degree(self) -> Tensor:
        """(V,) float64, how many tokens a walk may go to from each."""
        return self.walk(torch.arange(self.size)).sum(-1).double()

    @cached_property
    def arrows_out(self) -> Tensor:
        """(V,) float64, to how many tokens there is an arrow from each."""
        return self.of(torch.arange(self.size)).sum(-1).double()

    @cached_property
    def arrows_in(self) -> Tensor:
        """(V,) float64, how many tokens have an arrow to each."""
        return self.reversed(torch.arange(self.size)).sum(-1).double()

    def reversed_texts(
        self, y: Tensor, counted: Tensor, k: int, generator: Randomness = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Texts x that have a row of y (B, L) as a neighbour, at a position of `counted` (B, L): J-sampling.

        All of them with weight 1, for k = 0; or k uniform draws a row, each with weight (their number) / k: the row
        that it leads to (M,), x (M, L), the position that moves (M,) and the weight (M,).
        """
        row, position, token, weight = _drawn(self.reversed, self.arrows_in, y, counted, k, generator)
        return row, y[row].scatter(-1, position[:, None], token[:, None]), position, weight

    def neighbours(
        self, x: Tensor, counted: Tensor, k: int, generator: Randomness = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """k uniform draws of a neighbour of each row of x (B, L), moved at a position of `counted` (B, L).

        The row (M,), the position that moves (M,), the token that it moves to (M,) and the weight (their number) / k
        (M,).
        """
        return _drawn(self.of, self.arrows_out, x, counted, k, generator)

    def replaced(
        self, y: Tensor, counted: Tensor, k: int, generator: Randomness = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rows of y (B, L) with a token anew, any of the V, its own too, at a position of `counted`: as
        `reversed_texts`.

        The weights are those of a sum over positions and a mean over tokens.
        """
        every = torch.full((self.size,), float(self.size), dtype=torch.float64)
        row, position, token, weight = _drawn(lambda x: self._all(x) >= 0, every, y, counted, k, generator)
        return row, y[row].scatter(-1, position[:, None], token[:, None]), position, weight / self.size

    def path(self, x: int, y: int) -> list[int]:
        """The tokens of a shortest walk from x to y, both among them; InputError where the arrows do not join them."""
        before, last = {x: x}, [x]
        while last and y not in before:
            steps = [(int(new), old) for old in last for new in self.walk(torch.tensor(old)).nonzero()[:, 0]]
            last = [new for new, old in steps if before.setdefault(new, old) == old and new != x]
            last = list(dict.fromkeys(last))
        if y not in before:
            raise InputError(f"no arrows lead from token {x:,} to {y:,}; use another `neighbourhood`")
        tokens = [y]
        while tokens[-1] != x:
            tokens.append(before[tokens[-1]])
        return tokens[::-1]

    def _all(self, x: Tensor) -> Tensor:
        return torch.arange(self.size, device=x.device).expand(*x.shape, self.size)


class Hamming(Neighbourhood):
    """Any other token."""

    def of(self, x):
        return self._all(x) != x[..., None]

    @cached_property
    def degree(self):
        return torch.full((self.size,), self.size - 1.0, dtype=torch.float64)  # without V x V

    @cached_property
    def arrows_in(self):
        return self.degree

    @cached_property
    def arrows_out(self):
        return self.degree

    def path(self, x, y):
        return [x] if x == y else [x, y]


class Cycle(Neighbourhood):
    """The next lower and the next higher token; the last is next to the first."""

    def of(self, x):
        y, x = self._all(x), x[..., None]
        return (y != x) & ((y == (x + 1) % self.size) | (y == (x - 1) % self.size))


class Grid(Neighbourhood):
    """The next lower and the next higher token: a path at each position, the grid of L dimensions on L of them."""

    def of(self, x):
        return (self._all(x) - x[..., None]).abs() == 1


class Star(Neighbourhood):
    """Arrows from every token (a leaf) to the first (the centre), none back."""

    def of(self, x):
        return (self._all(x) == 0) & (x[..., None] != 0)

    def reversed(self, y):
        return (self._all(y) != 0) & (y[..., None] == 0)


@lru_cache(maxsize=16)
def on(counts: Tensor, device: torch.device) -> Tensor:
    """Counts (V,) of a neighbourhood on a device, copied there once: a device waits for a copy."""
    return counts.to(device)


def _drawn(
    arrows: Callable[[Tensor], Tensor],
    degree: Tensor,
    x: Tensor,
    counted: Tensor,
    k: int,
    generator: Randomness,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ways out of each row of x (B, L) by `arrows` (*) -> (*, V), of which a token has `degree` (V,).

    All of them (k = 0) or k uniform draws: rows, positions, tokens and weights, (M,) each.
    """
    if k == 0:
        row, position, token = (arrows(x) & counted[..., None]).nonzero().unbind(-1)
        return row, position, token, torch.ones(len(row), dtype=torch.float64, device=x.device)
    degrees = on(degree, x.device)[x] * counted
    total, moved_positions, tokens = degrees.sum(-1), [], []
    weights = torch.where(total[:, None] > 0, degrees, 1.0)  # where there is none, any: its weight is 0
    for _ in range(k):
        moved_positions.append(random.categorical(weights, generator))
        targets = arrows(x.gather(-1, moved_positions[-1][:, None])[:, 0])
        tokens.append(random.categorical((targets | ~targets.any(-1, True)).double(), generator))
    row = torch.arange(len(x), device=x.device).repeat(k)
    return row, torch.cat(moved_positions), torch.cat(tokens), total.repeat(k) / k  # J-sampling: (5) and (7) of `csm`


NEIGHBOURHOODS: dict[str, type[Neighbourhood]] = {"hamming": Hamming, "cycle": Cycle, "grid": Grid, "star": Star}
