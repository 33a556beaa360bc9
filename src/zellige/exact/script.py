"""Distribution of a sampler by enumeration of its random outcomes."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..base.errors import InputError, at_least
from ..core import maths
from ..methods.method import Method
from ..samplers import Sampler, State
from ..samplers.growing import Growth
from ..samplers.pairing import of_length
from ..samplers.sampler import start_distribution
from ..samplers.semi_autoregressive import Progress
from .enumeration import index, states

Result = TypeVar("Result")
PIECE = 1 << 14  # rows of a batch of outcomes: what fits a cache


class Script:
    """A source of randomness with predetermined outcomes, which records their probability for each sequence.

    A step of a sampler, or a draw of a loss, draws a few (B, L) or (B,) tables from `random.bernoulli` and
    `random.categorical`. A script says the outcome at each entry of a row, the same for all rows or for each its own;
    `probability` (B,) is then the product of the chances of the outcomes, and `ahead` (B, entries, n) the distributions
    of the first draw that has no outcome in the script, None if there is none. Running all scripts enumerates the step.
    Entries that were not drawn count only with outcome 0.

    Args:
        outcomes: of each draw, (entries,) or (B, entries) whole numbers; a draw beyond them gives 0.
        times: (B,) in (0, 1), what `random.stratified` gives each row.
        uniforms: (B,) in (0, 1), what each row draws as a single number; or (B, n), the first n such draws.
    """

    def __init__(
        self,
        outcomes: Sequence[Sequence[int] | Tensor],
        rows: int,
        times: Tensor | None = None,
        uniforms: Tensor | None = None,
    ):
        self.outcomes, self.sizes, self.times, self.uniforms = list(outcomes), [], times, uniforms
        self.probability, self.ahead, self.turn = torch.ones(rows, dtype=torch.float64), None, 0

    def uniform(self, shape, device):
        """Return an order of the positions for a table (B, L), one of L!, and the `times` for a single number, if there
        are any.

        Else a draw that the distribution does not depend on (the exact times of first hitting for a time-free network).
        """
        if len(shape) == 2:
            orders = torch.tensor(list(itertools.permutations(range(shape[1])))).double()
            return (orders[self.categorical(torch.ones(shape[0], 1, len(orders)))[:, 0]] + 0.5) / shape[1]
        if self.times is not None:
            return self.times - torch.arange(len(self.times), dtype=torch.float64) / len(self.times)  # less the strata
        if self.uniforms is not None:
            self.turn += 1
            return self.uniforms if self.uniforms.ndim == 1 else self.uniforms[:, self.turn - 1]
        return torch.full(tuple(shape), 0.5, dtype=torch.float64, device=device)

    def bernoulli(self, p, at=None):
        p = p.clamp(0, 1)  # as u < p is never or always of a p beyond them
        return self.categorical(torch.stack([1 - p, p], -1), at).bool()

    def categorical(self, p, at=None):
        at = torch.ones(p.shape[:-1], dtype=torch.bool) if at is None else at
        self.sizes.append((at[0].numel(), p.shape[-1]))
        outcome = torch.zeros_like(at, dtype=torch.long)
        if len(self.sizes) <= len(self.outcomes):
            outcome += torch.as_tensor(self.outcomes[len(self.sizes) - 1]).reshape(-1, *at.shape[1:])
        distributions = torch.zeros(*at.shape, p.shape[-1], dtype=torch.float64)
        distributions[..., 0] = 1  # of what is not drawn
        distributions[at] = maths.normalise(p.detach().double()).reshape(-1, p.shape[-1])
        if len(self.sizes) == len(self.outcomes) + 1:
            self.ahead = distributions.reshape(len(at), -1, p.shape[-1])
        chance = distributions.gather(-1, outcome[..., None])
        self.probability = self.probability * chance.reshape(len(at), -1).prod(-1)
        return outcome[at].reshape(p.shape[:-1])


class Forced:
    """A source of randomness for texts x (B, L): each token that is drawn is the text's, and `probability` (B,) is the
    product of their chances. For samplers that draw nothing but tokens: their order is a function of the text."""

    def __init__(self, x: Tensor):
        self.x, self.probability = x, torch.ones(len(x), dtype=torch.float64)

    def uniform(self, shape, device):
        """Refuse what is no token: it would be averaged over."""
        raise InputError("this sampler draws more than tokens; use fixed_order or confidence")

    def categorical(self, p: Tensor, at: Tensor) -> Tensor:
        """The tokens (N,) at the positions, of distributions (N, K)."""
        tokens = self.x[at]
        chance = torch.ones_like(at, dtype=torch.float64)
        chance[at] = maths.normalise(p.detach().double()).gather(-1, tokens[:, None])[:, 0]
        self.probability = self.probability * chance.prod(-1)
        return tokens


def scripts(
    draw: Callable[[Any], Result], rows: int, times: Tensor | None = None, uniforms: Tensor | None = None
) -> Iterator[tuple[Result, Tensor]]:
    """Yield the result of `draw` under every outcome of its random choices, with the probability of each for each
    sequence, (rows,).

    Which draws there are may depend on the outcomes of those before: the outcomes are a tree.
    """
    open_ended: list[list[Sequence[int]]] = [[]]
    while open_ended:
        outcomes = open_ended.pop()
        script = Script(outcomes, rows, times, uniforms)
        value = draw(script)
        if len(script.sizes) == len(outcomes):
            yield value, script.probability
        else:
            entries, n = script.sizes[len(outcomes)]
            open_ended += [[*outcomes, combination] for combination in itertools.product(range(n), repeat=entries)]


def branches(
    draw: Callable[[Tensor, Any], Result], rows: int, times: Tensor | None = None, uniforms: Tensor | None = None
) -> Iterator[tuple[Tensor, Result, Tensor]]:
    """As `scripts`, many outcomes in one batch: which of the `rows` (N,), what `draw` gives for them, the probabilities
    (N,).

    `draw` takes such rows and the script. A row is drawn once for each of its outcomes that is possible, whatever the
    others are: one run for each draw, where `scripts` needs one for each outcome of all of them.
    """
    open_ended: list[tuple[Tensor, list[Tensor]]] = [(torch.arange(rows), [])]
    while open_ended:
        at, outcomes = open_ended.pop()
        of_rows = (None if values is None else values[at] for values in (times, uniforms))
        script = Script(outcomes, len(at), *of_rows)
        value = draw(at, script)
        if script.ahead is None:
            yield at, value, script.probability
            continue
        combinations = states(script.ahead.shape[-1], entries := script.ahead.shape[1])
        # not `> 0`: what is no number stays, and is seen
        possible = script.ahead[:, torch.arange(entries), combinations].prod(-1) != 0
        for piece in possible.nonzero().split(PIECE):
            row, outcome = piece.unbind(-1)
            open_ended.append((at[row], [*(o[row] for o in outcomes), combinations[outcome]]))


def transition(sampler: Sampler, method: Method, state: State, t: Tensor, s: Tensor) -> Tensor:
    """Distribution of x after one step from each sequence of `state`: (B, K^L), by enumeration of the sampler's
    choices.

    t and s are (B, 1).
    """
    K, method = len(start_distribution(method)), sampler.truncated(method)
    return after(lambda script: sampler.step(method, state, t, s, script), state.x.shape, K)


def after(step: Callable[[Any], State], shape: Sequence[int], K: int) -> Tensor:
    """Distribution of x after a step from states of this shape (B, L): (B, K^L), by enumeration of its choices."""
    rows, L = shape
    distribution = torch.zeros(rows, K**L, dtype=torch.float64)
    for new, probability in scripts(step, rows):
        distribution.scatter_add_(1, index(new.x, K)[:, None], probability[:, None])
    return distribution


def transitions(sampler: Sampler, method: Method, times: Tensor, fixed: Tensor | None = None) -> Tensor:
    """The transition matrices (T, K^L, K^L) of the steps between times (T + 1,); `fixed` is as `run` takes it, (L,)."""
    (L,), T = method.shape, len(times) - 1
    X = states(len(start_distribution(method)), L)
    state = sampler.init(method, (T * len(X), L), fixed=fixed)
    t, s = (u.repeat_interleave(len(X))[:, None] for u in (times[:-1], times[1:]))
    return transition(sampler, method, replace(state, x=X.repeat(T, 1)), t, s).reshape(T, len(X), len(X))


def sample_distribution(sampler: Sampler, method: Method, steps: int | Tensor, fixed: Tensor | None = None) -> Tensor:
    """Distribution of the sampler's samples, (K^L,): the last of `sample_distributions`."""
    return sample_distributions(sampler, method, steps, fixed)[-1]


def sample_distributions(sampler: Sampler, method: Method, steps: int | Tensor, fixed: Tensor | None = None) -> Tensor:
    """Distribution of the sampler's state at each time, (T + 1, K^L): its initial distribution times its transition
    matrices.

    `fixed` is as `run` takes it, (L,). Steps may depend on the state and the time, not on `state.memory`.
    """
    (L,), start = method.shape, start_distribution(method)
    X = states(len(start), L)
    times = sampler.times(method, steps) if isinstance(steps, int) else steps
    probabilities = start[X]
    if fixed is not None:
        probabilities = torch.where(fixed >= 0, (fixed == X).double(), probabilities)
    distributions = [probabilities.prod(-1)]
    for matrix in transitions(sampler, method, times, fixed):
        distributions.append(distributions[-1] @ matrix)
    return torch.stack(distributions)


def run_distribution(
    sampler: Sampler, method: Method, length: int, steps: int | None = None, fixed: Tensor | None = None
) -> Tensor:
    """Distribution of the result of `run`, (V^length,), for samplers with a context and a memory.

    Every outcome of every draw is followed; states with equal tokens, those of a sampler inside too, and of what a
    cache was made of, are taken to be one.
    `fixed` is (length,), -1 where free.
    """
    finals, _ = _followed(sampler, method, length, steps, fixed)
    distribution = torch.zeros(method.vocabulary**length, dtype=torch.float64)
    for x, (_, p) in finals.items():
        distribution[index(torch.tensor(x[:length]), method.vocabulary)] += p
    return distribution


def run_calls(
    sampler: Sampler, method: Method, length: int, steps: int | None = None, fixed: Tensor | None = None
) -> float:
    """Expected number of network evaluations of `run`, as `run_distribution` follows it."""
    return _followed(sampler, method, length, steps, fixed)[1]


def _followed(
    sampler: Sampler, method: Method, length: int, steps: int | None, fixed: Tensor | None
) -> tuple[dict[tuple[int, ...], tuple[State, float]], float]:
    """Final states of `run` by their tokens, with their probabilities; and the expected number of evaluations."""

    def tokens(state: State) -> tuple[int, ...]:
        memory = state.memory
        inner = memory.inner if isinstance(memory, Growth | Progress) else None
        reading = memory.reading if isinstance(memory, Progress) else None
        read = () if inner is None or reading is None else (*reading.x[0].tolist(), int(inner.calls))
        return (*state.x[0].tolist(), *(() if inner is None else tokens(inner)), *read)

    at_least("length", length, 1)
    method = of_length(method, length)
    given = None if fixed is None else fixed[None]
    begin = lambda script: sampler.init(method, (1, length), fixed=given, generator=script)  # noqa: E731
    starts = [(state, float(p)) for state, p in scripts(begin, 1)]
    frontier: dict[Any, tuple[State, float]] = dict(enumerate(starts))
    calls = sum((p * float(state.calls) for state, p in starts), 0.0)
    times, method = sampler.times(method, steps), sampler.truncated(method)
    for t, s in itertools.pairwise(times):
        after: dict[tuple[int, ...], tuple[State, float]] = {}
        for state, before in frontier.values():
            step = functools.partial(sampler.step, method, state, t, s)
            for new, p in scripts(step, 1):
                x = tokens(new)
                if p > 0:
                    after[x] = (new, before * float(p) + (after[x][1] if x in after else 0.0))
                    calls += before * float(p) * int(new.calls - state.calls)
        frontier = after
    return frontier, calls
