"""Insertion: tau-leaping of the chain of FlexMDM, from the empty text on (Kim et al. 2025, arXiv 2509.01025; derived
here).

A step from time t to s evaluates the network once, and holds its rates constant:

    unmasking   each mask becomes a token, drawn from the network's distribution, with probability 1 - (s/t)^q
    insertion   N masks are inserted, N ~ Poisson((t - s) sum_i lambda_i), each into a gap drawn in proportion to its rate
                lambda_i; no more than the window has room for

The last step goes to s = 0, where no mask is left: the masks that it inserts are filled from one more evaluation, all
at once. The distribution of the samples, lengths included, tends to that of the model with order 1 in 1/steps.

Given tokens stay, nothing is inserted between two of them, and a given number of masks stays that number. So a prompt,
or a text with a span of any length (GAP in `fixed`), starts from its given tokens at t = 1. If the network sees which
gaps are closed (`net.given`) and is exact, the samples tend to the exact conditional distribution. A network that does
not see this also expects missing tokens in closed gaps, so its samples do not.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..base.errors import InputError
from ..base.requests import declared
from ..core import random
from ..core.random import Randomness
from ..methods.flexmdm import FlexMDM
from ..methods.method import Method
from .pairing import Distribution, count_of_steps, usual_steps
from .sampler import GAP, HIDDEN, Exactness, Memory, Sampler, State, check


@dataclass(frozen=True)
class Inserted(Memory):
    """The memory of `Insertion`.

    Attributes:
        ends: (B,) the length of each text.
        closed: (B, L) bool, the gaps, left of each position, in which nothing is inserted.
    """

    ends: Tensor
    closed: Tensor

    def take(self, rows: Tensor) -> "Inserted":
        return Inserted(self.ends[rows], self.closed[rows])

    def lengths(self, found: Tensor) -> Tensor:
        return found.minimum(self.ends)


@declared
class Insertion(Sampler):
    """Inserts masks and unmasks them, on an even grid of times. `state.memory` is an `Inserted`."""

    name: ClassVar[str] = "insertion"
    label: ClassVar[str] = "Grow from nothing"
    sentence: ClassVar[str] = "Masks are inserted anywhere, and become tokens: the text finds its own length."
    exactness: ClassVar[Exactness] = "limit"
    samples_from: ClassVar[str] = "near the model"
    claim: ClassVar[str] = "exact in the limit of many steps"
    convergence: ClassVar[int | None] = 1
    needs: ClassVar[str] = "insertion: flexmdm"
    calls: ClassVar[str] = "steps + 1"

    @classmethod
    def reason_against(cls, method):
        return None if method.parameterization == "insertion" else "needs a network that inserts tokens"

    def distribution(self, method, steps):
        return Distribution("near insertion", "near the model, to order 1 in 1/steps")

    def admit(self, method, fixed):
        if method.shape[0] != method.window:
            raise InputError(
                f"{method.name} draws the length of each text, up to {method.window:,}; leave `length` out"
            )

    def times(self, method: Method, steps: int | None) -> Tensor:
        steps = count_of_steps(steps, usual_steps(method))
        return torch.linspace(1.0, 0.0, steps + 1, dtype=torch.float64)

    def most_calls(self, method, times):
        return len(times)

    def init(self, method: FlexMDM, shape, *, fixed=None, generator=None):
        check(self, method)
        self.admit(method, fixed)
        device = next(method.parameters(), torch.empty(0)).device
        given = torch.full(shape, -1, device=device) if fixed is None else fixed.to(device).expand(shape)
        rows = [_beginning(row) for row in given.tolist()]
        x, closed, known = (torch.tensor(column, device=device) for column in zip(*rows))
        ends = (x != HIDDEN).sum(-1)
        x = torch.where(x == HIDDEN, method.padding, torch.where(x < 0, method.mask, x))
        return State(x, known, torch.zeros_like(ends), memory=Inserted(ends, closed))

    def step(self, method: FlexMDM, state, t, s, generator=None):
        t, s = (time.expand(len(state.x), 1) for time in (t, s))
        state = self._leap(method, state, t, s, generator)
        last = (s == 0) & (state.x == method.mask)
        return self._reveal(method, state, last, s[:, 0], generator) if bool(last.any()) else state

    def _leap(self, method: FlexMDM, state: State, t: Tensor, s: Tensor, generator: Randomness) -> State:
        """One evaluation: unmask at the masks that are there, and insert others."""
        x, memory, (B, L) = state.x, state.memory, state.x.shape
        place, size = torch.arange(L, device=x.device), memory.ends[:, None]
        gaps = (place <= size) & ~memory.closed & (size < L)  # (B, L): where masks may be inserted
        shown = torch.where(x == method.mask, 1 - (s / t) ** method.config.unmasking, 0.0)
        shown = random.bernoulli(shown, generator)  # (B, L): masks that become tokens
        at = gaps | shown
        h = method.read(x, t[:, 0], memory.closed, at, state.condition)  # (N, D)
        rates = t.new_zeros(B, L, dtype=torch.float64).masked_scatter(gaps, method.rates(h[gaps[at]]))
        state = self._put(method, state, shown, h[shown[at]], generator)
        number = random.categorical(poisson((t - s) * rates.sum(-1, keepdim=True), L - size), generator)
        new = place < number[:, None]  # (B, L), one entry for each inserted mask
        into = random.categorical(rates[new.nonzero()[:, 0]], generator, new)
        counts = torch.zeros_like(x).index_put((new.nonzero()[:, 0], into), torch.ones_like(into), accumulate=True)
        return insert(method, replace(state, calls=state.calls + 1), counts)

    def _reveal(self, method: FlexMDM, state: State, at: Tensor, t: Tensor, generator: Randomness) -> State:
        """The masks `at` become tokens, all from one evaluation."""
        h = method.read(state.x, t, state.memory.closed, at, state.condition)
        return self._put(method, replace(state, calls=state.calls + at.any(-1)), at, h, generator)

    def _put(self, method: FlexMDM, state: State, at: Tensor, h: Tensor, generator: Randomness) -> State:
        return replace(state, x=state.x.masked_scatter(at, random.categorical(method.next(h), generator, at)))


def poisson(mean: Tensor, most: Tensor) -> Tensor:
    """Probabilities of Poisson numbers of a mean (B, 1), cut off at `most` (B, 1), which has what is beyond: (B, n)."""
    n = torch.arange(int(most.max()) + 1, dtype=torch.float64, device=mean.device)
    below = torch.where(n > 0, torch.special.gammaincc(n.clamp_min(1), mean), 0.0)  # P(N < n)
    return pad(torch.where(n > most, 1.0, below), (0, 1), value=1.0).diff().clamp_min(0.0)


def insert(method: FlexMDM, state: State, counts: Tensor) -> State:
    """Insert `counts` (B, L) masks left of each position; the new gaps are open."""
    x, memory, L = state.x, state.memory, state.x.shape[1]
    place, size = torch.arange(L, device=x.device), memory.ends[:, None]
    to = torch.where(place <= size, place + counts.cumsum(-1), L).clamp_max(L)  # the last one is dropped
    moved = lambda values, fill: pad(torch.full_like(values, fill), (0, 1)).scatter(1, to, values)[:, :L]  # noqa: E731
    ends = memory.ends + counts.sum(-1)
    old = moved(torch.ones_like(x), 0).bool() & (moved((place < size).long(), 0) > 0)
    x = torch.where(old, moved(x, method.padding), torch.where(place < ends[:, None], method.mask, method.padding))
    return replace(state, x=x, fixed=moved(state.fixed, False), memory=Inserted(ends, moved(memory.closed, False)))


def _beginning(row: list[int]) -> tuple[list[int], list[bool], list[bool]]:
    """The text (L,), its closed gaps and its given tokens, from `fixed`: HIDDEN is padding, -1 a mask, GAP any number
    of tokens.

    Free positions up to the end of the window are a gap, too: a prompt, or nothing given.
    """
    L, free = len(row), len(row)
    while free and row[free - 1] == -1:
        free -= 1
    row = [*row[:free], *([GAP] if free < L else [])]
    x, gaps = [], set()
    for token in row:
        if token == GAP:
            gaps.add(len(x))
        elif token != HIDDEN:
            x.append(token)
    closed = [i not in gaps and i <= len(x) for i in range(L)]
    hidden = [HIDDEN] * (L - len(x))
    return [*x, *hidden], closed, [*(token >= 0 for token in x), *(False for _ in hidden)]
