"""Metropolis-Hastings: a random walk over neighbouring texts whose invariant distribution has the network's concrete
score.

If only the ratios p(y)/p(x) of neighbours are known (CSM, Meng et al. 2022), a Markov chain replaces reverse diffusion:

    propose y uniformly among the d(x) texts that have x as a neighbour, or are one of x
    accept with min(1, p(y)/p(x) d(x)/d(y))         d(x)/d(y), the Hastings factor: x may have more such texts than y

p(y)/p(x) is v(x)_y if y is a neighbour of x and else 1/v(y)_x: one network evaluation per proposal, with the head at
one position. With exact scores the chain keeps p exactly, whatever the neighbourhood (without the factor it would keep
p d, normalised). It starts from tokens drawn uniformly. Its distribution tends to p with many proposals, if likely
texts are connected by likely texts. Given positions are not proposed: the chain then keeps the exact conditional
distribution.

`State.memory`, a `Walk`, shows convergence: how many proposals were accepted, and the integrated autocorrelation time,
the number of proposals after which a text counts as a new sample. It is measured on the mean token id of a text;
another quantity may converge more slowly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from ..base.requests import declared, option
from ..core import random
from ..core.prediction import DataScore
from ..methods.csm_neighbourhood import Neighbourhood, on
from ..methods.method import Method
from .pairing import CHAIN, count_of_steps
from .sampler import Exactness, Memory, Sampler, State, Summary

STEPS = 1000  # by default


TEXTS, ARROWS = 100_000, 20_000_000  # at most so many texts, and ways from one to another, are enumerated


@dataclass(frozen=True)
class Chains(Summary):
    """Markov chains of which the samples are the ends: a `Walk` for each batch."""

    walks: list["Walk"]

    @classmethod
    def joined(cls, parts: Sequence["Chains"], places: Sequence[int]) -> "Chains":
        return cls([walk for part in parts for walk in part.walks])

    def describe(self, pm: Any, one_target: bool) -> str:
        return report(self.walks)


@dataclass(frozen=True)
class Walk(Memory):
    """History of B chains; each step refers to the one before.

    Attributes:
        accepted: (B,) proposals accepted so far.
        value: (B,) the mean token number of each text now.
        proposed: how many proposals there were.
    """

    accepted: Tensor
    value: Tensor
    proposed: int = 0
    before: "Walk | None" = None

    def path(self) -> Tensor:
        """Values from the start until now, (B, proposed + 1)."""
        values, walk = [], self
        while walk is not None:
            values.append(walk.value)
            walk = walk.before
        return torch.stack(values[::-1], 1)

    def summary(self, state: State) -> Chains:
        return Chains([self])


def enumerable(method: Method) -> str | None:
    """Reason why the chain of a method cannot be enumerated; None if it can."""
    V, L = method.vocabulary, method.shape[0]
    few = V**L <= TEXTS and V**L * L * V <= ARROWS
    return None if few else f"{V}^{L} texts are too many to enumerate"


class OverNeighbours(Protocol):
    """Interface of a method for the chain: its neighbourhood, and the ratios of probabilities."""

    neighbourhood: Neighbourhood

    def predict(
        self, x_t: Tensor, t: Tensor | float, *, at: Tensor | None = None, condition: Tensor | None = None
    ) -> DataScore: ...


@declared
class Metropolis(Sampler):
    """A chain of single proposals. It takes no top-p and no top-k, because it has no clean posterior to truncate."""

    temperature: float = option(
        "sample from p^(1/temperature); at 0 only texts that are at least as likely are accepted",
        default=1.0,
        minimum=0,
    )
    top_p: float = field(default=1.0, init=False)
    top_k: int | None = field(default=None, init=False)
    drop_crossing: bool = field(default=False, init=False)

    name: ClassVar[str] = "metropolis"
    label: ClassVar[str] = "Change one, keep it if it fits"
    sentence: ClassVar[str] = "Each proposal changes one token; it is kept with the right probability."
    exactness: ClassVar[Exactness] = "limit"
    samples_from: ClassVar[str] = "its chain"
    claim: ClassVar[str] = "exact in the limit of many proposals"
    needs: ClassVar[str] = "a score: csm"
    calls: ClassVar[str] = "one per proposal"
    report: ClassVar[type[Summary] | None] = Chains

    @classmethod
    def reason_against(cls, method):
        of_data = method.process is None and method.parameterization == "score"
        return None if of_data else "needs the ratios p(y)/p(x) of the data themselves"

    def truncated(self, method):
        return method  # the temperature is one of the chain: there is no clean posterior to change

    def distribution(self, method, steps):
        number = None if enumerable(method) else {"estimator": "divergence"}
        return replace(CHAIN, number=number)

    def times(self, method: Method, steps: int | None) -> Tensor:
        """A counter of the proposals left."""
        return torch.arange(count_of_steps(steps, STEPS), -1, -1, dtype=torch.float64)

    def init(self, method, shape, *, fixed=None, generator=None):
        state = super().init(method, shape, fixed=fixed, generator=generator)
        return replace(state, memory=Walk(torch.zeros_like(state.calls), _mean(state.x)))

    def step(self, method: OverNeighbours, state, t, s, generator=None):
        x, arrows = state.x, method.neighbourhood
        degree = on(arrows.degree, x.device)
        degrees = degree[x].masked_fill(state.fixed, 0.0)  # (B, L): neighbours by the position in which they differ
        d_x = degrees.sum(-1)  # (B,)
        position = random.categorical(torch.where(d_x[:, None] > 0, degrees, 1.0), generator)[:, None]  # (B, 1)
        old = x.gather(-1, position)  # (B, 1)
        new = random.categorical(arrows.walk(old[:, 0]).double(), generator)[:, None]  # (B, 1)
        y = x.scatter(-1, position, new)  # (B, L), the proposal
        along = arrows.of(old[:, 0]).gather(-1, new)  # (B, 1): the arrow leads from x to y, not back
        at = torch.zeros_like(state.fixed).scatter(-1, position, True)
        pred = method.predict(torch.where(along, x, y), 0.0, at=at, condition=state.condition)
        v = pred.v.gather(-1, torch.where(along, new, old)).double().clamp_min(0.0)
        ratio = torch.where(along, v, 1 / v)[:, 0]  # (B,): p(y) / p(x)
        d_y = d_x + (degree[new] - degree[old])[:, 0]
        chance = torch.where(d_x > 0, self._heated(ratio) * self.hastings(d_x, d_y), 0.0).clamp_max(1.0)
        accept = random.bernoulli(chance, generator)
        x = torch.where(accept[:, None], y, x)
        walk = Walk(state.memory.accepted + accept, _mean(x), state.memory.proposed + 1, state.memory)
        return replace(state, x=x, calls=state.calls + 1, memory=walk)

    def hastings(self, d_x: Tensor, d_y: Tensor) -> Tensor:
        """P(y proposes x) / P(x proposes y), from their numbers of neighbours: (B,)."""
        return d_x / d_y  # Hastings 1970

    def _heated(self, ratio: Tensor) -> Tensor:
        return (ratio >= 1).double() if self.temperature == 0 else ratio ** (1 / self.temperature)


def _mean(x: Tensor) -> Tensor:
    return x.double().mean(-1)


def autocorrelation_time(path: Tensor) -> float:
    """Integrated autocorrelation time 1 + 2 sum of rho_k of chains (B, n), in steps; nan if nothing moves.

    rho_k is the mean over the chains, about one mean for all; summed up to the first window of five times the sum
    (Sokal 1997).
    """
    n = path.shape[1]
    away = path.double() - path.double().mean()
    spectrum = torch.fft.rfft(away, 2 * n).abs().square()
    covariance = torch.fft.irfft(spectrum, 2 * n)[:, :n].mean(0)
    if not covariance[0] > 0:
        return math.nan
    time = 2 * (covariance / covariance[0]).cumsum(0) - 1
    enough = (torch.arange(n, device=time.device) >= 5 * time).nonzero()
    return float(time[int(enough[0]) if len(enough) else n - 1])


def report(walks: Sequence[Walk]) -> str:
    """`38.2% of 1,000 proposals accepted, autocorrelation time 21 proposals`: of all chains,
    the time of their second half."""
    acceptances, proposals = torch.cat([walk.accepted for walk in walks]).double(), walks[0].proposed
    path = torch.cat([walk.path() for walk in walks])[:, proposals // 2 :]
    time = autocorrelation_time(path)
    autocorrelation = "nothing moved" if math.isnan(time) else f"autocorrelation time {time:,.0f} proposals"
    return f"{100 * float(acceptances.mean()) / max(proposals, 1):.1f}% of {proposals:,} proposals accepted, {autocorrelation}"
