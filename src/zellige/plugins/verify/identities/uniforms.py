"""Distributions that `core.random` makes of uniform bits, on a lattice: no draw is random, and each distribution is a
count.

`exact.Script` takes the place of these draws elsewhere, so that nothing else here would see a wrong one.
"""

import torch
from torch import Tensor

from zellige.core import random
from zellige.core.counter_random import Counter, Independent, Middle, philox
from zellige.core.schedule import CLEAN
from zellige.samplers.tau_leaping import landing, leap_distribution

from .check import INSIDE, Largest, V, numbers, processes, shared

DRAWS = "draws: tokens, counts and times from uniform numbers"
SIXTEENTHS = torch.tensor([0, 3, 0, 5, 8, 0], dtype=torch.float64) / 16
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
    exact, rows = Largest(), SIXTEENTHS.expand(MANY, -1)
    exact.see(_shares(random.categorical(rows, Lattice(middles(MANY))), len(SIXTEENTHS)), SIXTEENTHS, "categorical")
    coins = random.bernoulli(torch.full((MANY,), 5 / 16, dtype=torch.float64), Lattice(middles(MANY)))
    exact.see(coins.double().mean(), 5 / 16, "bernoulli")
    tokens = random.replace(torch.ones(MANY, dtype=torch.long), 5 / 16, SIXTEENTHS, Lattice(middles(MANY)))
    mixture = 5 / 16 * SIXTEENTHS + 11 / 16 * torch.eye(len(SIXTEENTHS), dtype=torch.float64)[1]
    exact.see(_shares(tokens, len(SIXTEENTHS)), mixture, "replace")
    waits = random.exponential((MANY,), Lattice(middles(MANY)))
    exact.see(-torch.expm1(-waits), middles(MANY), "exponential")
    ends = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
    tokens = random.categorical(SIXTEENTHS.expand(2, -1), Lattice(ends))
    exact.see(tokens.double(), torch.tensor([1.0, 4.0]), "no token of chance 0")
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
    middle, edges = Largest(), torch.arange(9, dtype=torch.float64) / 8
    below = (Middle(0).place(middles(MANY))[:, None] < edges).double().mean(0)
    middle.see(below, 0.1 * edges + 1.5 * (edges - 0.2).clamp(0.0, 0.6), "P(time < x)")
    yield middle.row(DRAWS, "times in the middle: nine of ten between 0.2 and 0.8")


@shared("draws.noise")
def noise_has_its_distribution():
    """x_t of each process, from every pair of uniform numbers of a lattice, against q(x_t | x_0)."""
    worst, n = Largest(), 120
    u = middles(n)
    both = torch.cat((u.repeat_interleave(n), u.repeat(n)))  # of a process that draws twice
    for name, P in processes().items():
        for t in INSIDE:
            for token in torch.arange(P.K)[P.clean].tolist():
                x_t = P.sample(torch.full((1, n * n), token), t, Lattice(both))[0]
                away = (_shares(x_t, P.K) - P.matrix(CLEAN, t)[token]).abs()
                worst.see((away - 2 / n).clamp_min(0.0), 0.0, f"{name}, t = {t}, x_0 = {token}")
    yield worst.row(DRAWS, "noise of each process, beyond two lattice points")


@shared("draws.leaps")
def counts_land_as_their_distribution_says():
    """Tau-leaping of ordered tokens: where each number of jumps leads, with its probability (tauLDR, algorithm 1)."""
    worst, n = Largest(), torch.arange(15, dtype=torch.float64)
    counts = torch.cartesian_prod(*[n] * V)
    for x in range(V):
        mean = (0.3 + 0.2 * numbers(V)).scatter(-1, torch.tensor(x), 0.0)
        chance = (torch.xlogy(counts, mean) - mean - (counts + 1).lgamma()).exp().prod(-1)
        landed = torch.zeros(V, dtype=torch.float64)
        landed.index_add_(0, landing(torch.full((len(counts),), x), counts), chance)
        worst.see(leap_distribution(torch.tensor([x]), mean[None])[0], landed, f"from {x}")
    yield worst.row(DRAWS, "tau-leaping: where its counts land")


RANDOM123 = {  # of Philox4x32-10, as its authors publish them: counter, key, words
    ((0,) * 4, (0,) * 2): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)): (
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)
    ),
}


@shared("draws.philox")
def philox_gives_the_known_answers():
    """Of one counter at a time and of many at once, which are computed otherwise."""
    worst = Largest()
    for (counter, key), words in RANDOM123.items():
        for many in (1, 100):
            made = philox(*(tuple(torch.tensor(w).expand(many) for w in part) for part in (counter, key)))  # pyright: ignore
            worst.see(torch.stack(made, -1).double(), torch.tensor(words).double(), f"{many} of {counter}")
    yield worst.row(DRAWS, "Philox: its authors' known answers")


@shared("draws.parts")
def parts_draw_what_one_process_draws():
    """Numbers and strata of several ranks, and of the parts of a step; independent times are numbers of their own."""
    worst, parts, rows, groups = Largest(), 3, 4, torch.full((4, 2), 8)

    def ranks(rank: int, world: int) -> random.Shard:
        return random.Shard(torch.Generator().manual_seed(9), rank, world)

    def steps(part: int, number: int) -> Counter:
        return Counter(2**62 + 5, 3, part, number)

    def independent(part: int, number: int) -> Counter:
        return Independent(2**62 + 5, 3, part, number)

    def middle(part: int, number: int) -> Counter:
        return Middle(2**62 + 5, 3, part, number)

    draws = {
        "numbers": lambda source, n: random.uniform((n, 5), source),
        "strata": lambda source, n: random.stratified(n, source),
        "groups": lambda source, n: random.row_by_row(groups[:1].expand(n, -1), source),
        "spread": lambda source, n: random.spread(groups[:1].expand(n, -1), source),
    }
    for kind, make in (("ranks", ranks), ("parts", steps), ("middle", middle), ("independent", independent)):
        for name, draw in draws.items():
            if kind in ("parts", "middle") and name == "groups":  # numbers of a row's own beside its strata
                continue
            whole = draw(make(0, 1), parts * rows)
            for part in range(parts):
                share = slice(part * rows, (part + 1) * rows) if kind == "ranks" else slice(part, None, parts)
                worst.see(draw(make(part, parts), rows), whole[share], f"{kind}: {name} of part {part}")
                worst.see(random.shared(make(part, parts)), random.shared(make(0, 1)), f"{kind}: one number for all")
            if kind == "independent" and name != "numbers":
                worst.see(whole, random.uniform(whole.shape, steps(0, 1)), f"independent: {name}")
    yield worst.row(DRAWS, "ranks and parts = one process; independent times")
