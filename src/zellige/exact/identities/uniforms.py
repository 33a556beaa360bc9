"""Distributions that `core.random` makes of uniform bits, on a lattice: no draw is random, and each distribution is a count.

`exact.Script` takes the place of these draws elsewhere, so that nothing else here would see a wrong one.
"""

import torch
from torch import Tensor

from ...core import random
from .check import Largest, shared

DRAWS = "draws: tokens, counts and times from uniform numbers"
LAW = torch.tensor([0, 3, 0, 5, 8, 0], dtype=torch.float64) / 16
MANY = 16 * 240  # each distribution's edges lie on the lattice


class Lattice:
    """A source of randomness that gives numbers in their order, and begins again after the last."""

    def __init__(self, numbers: Tensor):
        self.numbers, self.used = numbers, 0

    def uniform(self, shape, device):
        n = torch.Size(shape).numel()
        at = (self.used + torch.arange(n)) % len(self.numbers)
        self.used += n
        return self.numbers[at].reshape(tuple(shape))


def middles(n: int) -> Tensor:
    """The middles of n equal parts of [0, 1]."""
    return (torch.arange(n, dtype=torch.float64) + 0.5) / n


def _shares(tokens: Tensor, n: int) -> Tensor:
    """Frequencies of n tokens, as a distribution."""
    return tokens.bincount(minlength=n).double() / len(tokens)


@shared("draws.distributions")
def draws_have_their_distributions():
    exact, rows = Largest(), LAW.expand(MANY, -1)
    exact.see(_shares(random.categorical(rows, Lattice(middles(MANY))), len(LAW)), LAW, "categorical")
    coins = random.bernoulli(torch.full((MANY,), 5 / 16, dtype=torch.float64), Lattice(middles(MANY)))
    exact.see(coins.double().mean(), 5 / 16, "bernoulli")
    tokens = random.replace(torch.ones(MANY, dtype=torch.long), 5 / 16, LAW, Lattice(middles(MANY)))
    mixture = 5 / 16 * LAW + 11 / 16 * torch.eye(len(LAW), dtype=torch.float64)[1]
    exact.see(_shares(tokens, len(LAW)), mixture, "replace")
    waits = random.exponential((MANY,), Lattice(middles(MANY)))
    exact.see(-torch.expm1(-waits), middles(MANY), "exponential")
    ends = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
    exact.see(
        random.categorical(LAW.expand(2, -1), Lattice(ends)).double(), torch.tensor([1.0, 4.0]), "no token of chance 0"
    )
    tail = torch.tensor([1.0, 2.0**-40], dtype=torch.float64).expand(1, -1)
    exact.see(random.categorical(tail, Lattice(ends[1:])).double(), 1.0, "a token of chance 1e-12")
    yield exact.row(DRAWS, "tokens, coins, waits: the right frequencies")
    worst = Largest()
    for mean in (0.3, 2.0, 30.0):
        counts = random.poisson(torch.full((MANY, 1), mean, dtype=torch.float64), Lattice(middles(MANY)))[:, 0]
        n = torch.arange(100, dtype=torch.float64)
        distribution = (n * torch.tensor(mean).double().log() - mean - (n + 1).lgamma()).exp()
        away = (_shares(counts.long(), 100).cumsum(0) - distribution.cumsum(0)).abs()
        worst.see((away - 1 / MANY).clamp_min(0.0), 0.0, f"mean {mean:g}")
    yield worst.row(DRAWS, "Poisson counts, beyond one lattice point")


@shared("draws.strata")
def strata_are_uniform_and_even():
    """Each time by itself is uniform, and those of one draw are equally far apart."""
    single, even, u = Largest(), Largest(), middles(240)
    times = torch.stack([random.stratified(4, Lattice(value[None])) for value in u])
    single.see(times.sort(0).values, u[:, None].expand(-1, 4), "rows")
    even.see(times.sort(1).values.diff(dim=1), 1 / 4, "rows")
    of_groups = torch.tensor([[2, 2, 0], [1, 1, 1]])
    spread = torch.stack([random.spread(of_groups, Lattice(value[None])) for value in u])
    for b, groups in enumerate((2, 3)):
        group_times = spread[:, b, :groups]
        single.see(group_times.sort(0).values, u[:, None].expand(-1, groups), f"{groups} groups of a row")
        even.see(group_times.sort(1).values.diff(dim=1), 1 / groups, f"{groups} groups of a row")
    yield single.row(DRAWS, "strata: each time is uniform by itself")
    yield even.row(DRAWS, "... and those of one draw are evenly apart")
