"""What a sampler is, and the only loop: `run`. Samples, plots and --watch all read it."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from ..maths import Randomness
from ..method import Method
from ..schedule import CLEAN


@dataclass(frozen=True)
class State:
    """Everything a sampler carries from step to step.

    Attributes:
        x: (B, L) tokens, masks among them.
        fixed: (B, L) bool, positions that must not change.
        context: what the network remembers (a key/value cache).
        memory: what the sampler remembers (times of the rows, confidences).
        calls: (B,) network calls so far.
    """

    x: Tensor
    fixed: Tensor
    calls: Tensor
    context: Any = None
    memory: Any = None


class Sampler(Protocol):
    """State in, state out; nothing hidden between calls."""

    error: ClassVar[str]  # how far its law is from the model's with many calls
    order: ClassVar[str]  # the order of that error in 1/steps
    needs: ClassVar[str]
    calls: ClassVar[str]

    def times(self, method: Method, steps: int | None) -> Tensor:
        """Its grid of times, decreasing, from where sampling starts to CLEAN; or a mere counter."""
        ...

    def init(
        self, method: Method, shape: tuple[int, int], *, fixed: Tensor | None = None, generator: Randomness = None
    ) -> State:
        """A draw from the prior, with `fixed` (B, L) tokens put in where they are not negative."""
        ...

    def step(self, method: Method, state: State, t: Tensor, s: Tensor, generator: Randomness = None) -> State:
        """From time t to s <= t; scalars or (B, 1)."""
        ...


def start(method: Method, shape: tuple[int, int], fixed: Tensor | None = None, generator: Randomness = None) -> State:
    """The state that every sampler of a process starts from."""
    x = method.process.sample_prior(shape, generator)
    given = torch.zeros_like(x, dtype=torch.bool) if fixed is None else fixed.to(x.device).expand(shape) >= 0
    if fixed is not None:
        x = torch.where(given, fixed.to(x.device), x)
    return State(x, given, torch.zeros(shape[0], dtype=torch.long, device=x.device))


@torch.no_grad()
def run(
    sampler: Sampler,
    method: Method,
    shape: tuple[int, int],
    steps: int | Tensor | Sequence[float] | None = None,
    *,
    fixed: Tensor | None = None,
    generator: Randomness = None,
) -> Iterator[State]:
    """Sample, one state a step; the first is the initial state, the last the sample.

    Args:
        shape: (B, L).
        steps: how many, or the times themselves, decreasing.
        fixed: (B, L) long, the token where it is given, -1 where it is free. Exact for absorbing processes.
        generator: one, or a list with one for each row: then a row's draw does not depend on its batch.
    """
    times = sampler.times(method, steps) if steps is None or isinstance(steps, int) else torch.as_tensor(steps)
    times = times.to(method.process.prior)
    state = sampler.init(method, shape, fixed=fixed, generator=generator)
    yield state
    for t, s in itertools.pairwise(times):
        state = sampler.step(method, state, t, s, generator)
        yield state


def clean_where_fixed(state: State, t: Tensor) -> Tensor:
    """Times (B, L): t, and CLEAN at the positions that are given, since they carry no noise."""
    return torch.where(state.fixed, CLEAN, t.to(torch.float64))


def fill(state: State, at: Tensor, tokens: Tensor, asked: Tensor) -> State:
    """The state with tokens (N,) put in at `at` (B, L), after one network call for each row of `asked` (B,) bool."""
    return replace(state, x=state.x.masked_scatter(at, tokens), calls=state.calls + asked)
