"""Enumeration of K^L: exact laws, exact denoisers, transition matrices, exact -log p_theta and bounds. No Monte Carlo.

For small spaces everything that the library estimates can be computed: the law of x_t, p(x_0 | x_t), the whole transition
matrix of a sampler's step (of its actual code: `Script` forces every outcome of its random draws and multiplies their
probabilities), the law of its samples, the T-step bound and the three terms of the continuous one.

A law on the space is a vector (K^L,) over `states(K, L)`, the last position running fastest.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from . import bound, maths
from .method import Batch, Method
from .prediction import LeaveOneOut, Mean, Score, kernel, truth
from .process import Process
from .samplers import Sampler, State, of_length
from .samplers.growing import Growth
from .samplers.sampler import start_law
from .schedule import CLEAN, PRIOR

Result = TypeVar("Result")


# ---------------------------------------------------------------------------------- the space
def states(K: int, L: int) -> Tensor:
    """All K^L sequences, (K^L, L) long."""
    return torch.tensor(list(itertools.product(range(K), repeat=L)), dtype=torch.long).reshape(K**L, L)


def index(x: Tensor, K: int) -> Tensor:
    """The row of `states` that x is, (*, L) -> (*)."""
    L = x.shape[-1]
    return (x * K ** torch.arange(L - 1, -1, -1)).sum(-1)


def embed(process: Process, law: Tensor, L: int) -> Tensor:
    """A law on the clean sequences (V^L,) as a law on all (K^L,)."""
    X = states(process.K, L)
    clean = process.clean[X].all(-1)
    if int(clean.sum()) != len(law):
        raise ValueError(f"the law has {len(law)} entries; {int(clean.sum())} sequences are clean")
    return torch.zeros(len(X), dtype=law.dtype).masked_scatter(clean, law)


def marginal(process: Process, law: Tensor, L: int, t: float, s: float = CLEAN) -> Tensor:
    """The law of x_t when x_s has `law`: (K^L,) -> (K^L,)."""
    Q = process.matrix(s, t)
    p = law.reshape([process.K] * L)
    for axis in range(L):
        p = torch.tensordot(p, Q, dims=([axis], [0])).movedim(-1, axis)  # pyright: ignore
    return p.reshape(-1)


def entropy(law: Tensor) -> Tensor:
    """In nats."""
    return -maths.xlogy(law, law).sum()


# ---------------------------------------------------------------------------------- the exact denoiser
class Denoiser(Method):
    """The method whose network is the truth for a known data law.

    Args:
        law: (V^L,) over the clean sequences.
        predicts: what it gives: "mean", "leave_one_out" or "score".
    """

    name = "exact"

    def __init__(self, process: Process, law: Tensor, length: int, predicts: str = "mean"):
        super().__init__()
        self.process, self.shape, self.vocabulary = process, (length,), int(process.clean.sum())
        self.predicts = predicts  # pyright: ignore[reportAttributeAccessIssue]
        X = states(process.K, length)
        self.x_0, self.law = X[process.clean[X].all(-1)], law

    def predict(self, x_t, t, *, at=None, condition=None, context=None, segments=None):
        t = torch.as_tensor(t, dtype=torch.float64).expand(x_t.shape)
        each = self.process.likelihood(x_t, CLEAN, t)  # (B, L, K)
        each = each[:, torch.arange(x_t.shape[1]), self.x_0].movedim(-1, 1)  # (B, L, M): q(x_t^i | x_0^i) for each x_0
        L = range(x_t.shape[1])
        others = torch.stack([each[:, [j for j in L if j != i]].prod(1) for i in L], 1)
        joint = self.law * (others * each if self.predicts == "mean" else others)
        ratio = torch.zeros(*x_t.shape, self.process.K, dtype=joint.dtype)
        for i in range(x_t.shape[1]):  # sum over x_0 by its token at i
            ratio[:, i] = ratio[:, i].index_add(-1, self.x_0[:, i], joint[:, i])
        if at is not None:
            ratio, x_t, t = ratio[at], x_t[at], t[at]
        if self.predicts == "score":
            v = self.process.push(ratio, CLEAN, t.clamp(max=1.0))  # at PRIOR a Score is that of t = 1
            return Score(self.process, v / v.gather(-1, x_t[..., None]), x_t, t)
        kind = Mean if self.predicts == "mean" else LeaveOneOut
        return kind(self.process, maths.normalise(ratio), x_t, t)


# ---------------------------------------------------------------------------------- the law of a sampler's code
class Script:
    """Random draws with every outcome decided beforehand, and the probability of each row's outcomes.

    A step of a sampler, or a draw of a loss, draws a few (B, L) or (B,) tables from `maths.bernoulli` and `maths.categorical`.
    A script says the outcome at each entry of one row, the same for all rows; `probability` (B,) is then the product of the
    chances of the outcomes. Running all scripts enumerates the step. Entries that were not drawn count only with outcome 0.

    Args:
        times: (B,) in (0, 1), what `maths.stratified` gives each row.
    """

    def __init__(self, outcomes: Sequence[Sequence[int]], rows: int, times: Tensor | None = None):
        self.outcomes, self.sizes, self.times = list(outcomes), [], times
        self.probability = torch.ones(rows, dtype=torch.float64)

    def uniform(self, shape, device):
        """A table (B, L) is an order of the positions, one of L!; one number is the `times`, if there are any.

        Else a draw that the law does not depend on (the exact times of first hitting for a time-free network).
        """
        if len(shape) == 2:
            orders = torch.tensor(list(itertools.permutations(range(shape[1])))).double()
            return (orders[self.categorical(torch.ones(shape[0], 1, len(orders)))[:, 0]] + 0.5) / shape[1]
        if self.times is not None:
            return self.times - torch.arange(len(self.times), dtype=torch.float64) / len(self.times)  # less the strata
        return torch.full(tuple(shape), 0.5, dtype=torch.float64, device=device)

    def bernoulli(self, p, at=None):
        return self.categorical(torch.stack([1 - p, p], -1), at).bool()

    def categorical(self, p, at=None):
        at = torch.ones(p.shape[:-1], dtype=torch.bool) if at is None else at
        self.sizes.append((at[0].numel(), p.shape[-1]))
        outcome = torch.zeros_like(at, dtype=torch.long)
        if len(self.sizes) <= len(self.outcomes):
            outcome += torch.tensor(self.outcomes[len(self.sizes) - 1]).reshape(at.shape[1:])
        laws = maths.normalise(p.detach().double()).reshape(-1, p.shape[-1])
        chance = (outcome == 0).double()  # of what is not drawn
        chance[at] = laws.gather(-1, outcome[at][:, None])[:, 0]
        self.probability = self.probability * chance.reshape(len(at), -1).prod(-1)
        return outcome[at].reshape(p.shape[:-1])


def scripts(draw: Callable[[Any], Result], rows: int, times: Tensor | None = None) -> Iterator[tuple[Result, Tensor]]:
    """What `draw` gives under every outcome of its random draws, and the probability of each for each row, (rows,).

    Which draws there are may depend on the outcomes of those before: the outcomes are a tree.
    """
    open_ended: list[list[Sequence[int]]] = [[]]
    while open_ended:
        outcomes = open_ended.pop()
        script = Script(outcomes, rows, times)
        value = draw(script)
        if len(script.sizes) == len(outcomes):
            yield value, script.probability
        else:
            entries, n = script.sizes[len(outcomes)]
            open_ended += [[*outcomes, here] for here in itertools.product(range(n), repeat=entries)]


def transition(sampler: Sampler, method: Method, state: State, t: Tensor, s: Tensor) -> Tensor:
    """The law of x after one step from each row of `state`: (B, K^L), by enumeration of the sampler's own draws.

    t and s are (B, 1).
    """
    rows, K, L = len(state.x), len(start_law(method)), state.x.shape[1]
    law = torch.zeros(rows, K**L, dtype=torch.float64)
    for new, probability in scripts(lambda script: sampler.step(method, state, t, s, script), rows):
        law.scatter_add_(1, index(new.x, K)[:, None], probability[:, None])
    return law


def sample_law(sampler: Sampler, method: Method, steps: int | Tensor, fixed: Tensor | None = None) -> Tensor:
    """The law of the sampler's samples, (K^L,): the last of `sample_laws`."""
    return sample_laws(sampler, method, steps, fixed)[-1]


def sample_laws(sampler: Sampler, method: Method, steps: int | Tensor, fixed: Tensor | None = None) -> Tensor:
    """The law of the sampler's state at each time, (T + 1, K^L): its initial law times the transition matrices of its steps.

    `fixed` is as `run` takes it, (L,). Steps may depend on the state and the time, not on `state.memory`.
    """
    (L,), start = method.shape, start_law(method)
    X = states(len(start), L)
    times = sampler.times(method, steps) if isinstance(steps, int) else steps
    T, N = len(times) - 1, len(X)
    state = sampler.init(method, (T * N, L), fixed=fixed)
    state = State(X.repeat(T, 1), state.fixed, state.calls, state.context, state.memory)
    t, s = (u.repeat_interleave(N)[:, None] for u in (times[:-1], times[1:]))
    matrices = transition(sampler, method, state, t, s).reshape(T, N, N)
    each = start[X]
    if fixed is not None:
        each = torch.where(fixed >= 0, (fixed == X).double(), each)
    laws = [each.prod(-1)]
    for matrix in matrices:
        laws.append(laws[-1] @ matrix)
    return torch.stack(laws)


def run_law(
    sampler: Sampler, method: Method, length: int, steps: int | None = None, fixed: Tensor | None = None
) -> Tensor:
    """The law of what `run` ends with, (V^length,), for samplers that carry a context and a memory from step to step.

    Every outcome of every draw is followed; states with equal tokens, those of a sampler inside too, are taken to be one.
    `fixed` is (length,), -1 where free.
    """
    reached, _ = _followed(sampler, method, length, steps, fixed)
    law = torch.zeros(method.vocabulary**length, dtype=torch.float64)
    for x, (_, p) in reached.items():
        law[index(torch.tensor(x[:length]), method.vocabulary)] += p
    return law


def run_calls(
    sampler: Sampler, method: Method, length: int, steps: int | None = None, fixed: Tensor | None = None
) -> float:
    """The expected number of network calls of `run`, as `run_law` follows it."""
    return _followed(sampler, method, length, steps, fixed)[1]


def _followed(
    sampler: Sampler, method: Method, length: int, steps: int | None, fixed: Tensor | None
) -> tuple[dict[tuple[int, ...], tuple[State, float]], float]:
    """The states that `run` ends with, by their tokens, with their probabilities; and the expected calls on the way."""

    def tokens(state: State) -> tuple[int, ...]:
        inner = state.memory.inner if isinstance(state.memory, Growth) else None
        return (*state.x[0].tolist(), *(() if inner is None else tokens(inner)))

    method = of_length(method, length)
    state = sampler.init(method, (1, length), fixed=None if fixed is None else fixed[None])
    reached, calls = {(): (state, 1.0)}, float(state.calls)
    for t, s in itertools.pairwise(sampler.times(method, steps)):
        after: dict[tuple[int, ...], tuple[State, float]] = {}
        for state, before in reached.values():
            step = functools.partial(sampler.step, method, state, t, s)
            for new, p in scripts(step, 1):
                x = tokens(new)
                if p > 0:
                    after[x] = (new, before * float(p) + (after[x][1] if x in after else 0.0))
                    calls += before * float(p) * int(new.calls - state.calls)
        reached = after
    return reached, calls


# ---------------------------------------------------------------------------------- the T-step model
@torch.no_grad()
def log_likelihood(method: Method, times: Tensor) -> Tensor:
    """log p(x) of the model that steps through `times` with the reverse kernel, for every clean x: (V^L,) nats."""
    process, (L,) = method.process, method.shape
    X = states(process.K, L)
    clean, prior = process.clean[X].all(-1), process.prior[X].prod(-1)

    def ends(context: Tensor | None) -> Tensor:
        """The law of the last state, (N,), where the network reads `context` beside each state."""
        p = prior
        for t, s in itertools.pairwise(times):
            time = t.expand(X.shape)
            each = kernel(method.predict(X, time, context=context), s.expand(X.shape))  # (N, L, K)
            p = p @ each[:, torch.arange(L), X].prod(-1)
        return p

    if method.clean(Batch(X)) is None:
        return ends(None)[clean].log()
    # blocks: given those before, each is a chain of its own, and p(x) is their product: that of all of them beside x itself
    return torch.stack([ends(x.expand(X.shape))[i] for i, x in zip(index(X[clean], process.K), X[clean])]).log()


def expected(method: Method, x_0: Tensor, t: Tensor | float, s: Tensor | float | None) -> Tensor:
    """E over x_t of the bound at t, for each x_0 (M, L): (M,) nats.

    Continuous if s is None, else of the step t -> s. Many times (n,) give (n, M).
    """
    process, (L,) = method.process, method.shape
    X, t = states(process.K, L), torch.as_tensor(t, dtype=torch.float64)
    time = t.reshape(-1, 1, 1).expand(-1, *X.shape).reshape(-1, L)  # (n N, L), every x_t at every time
    later = None if s is None else torch.as_tensor(s, dtype=torch.float64).reshape(-1, 1, 1).expand(t.numel(), *X.shape)
    x_t = X.repeat(t.numel(), 1)
    known, noisy = x_0[:, None].expand(-1, len(x_t), -1), x_t.expand(len(x_0), -1, -1)
    q = process.likelihood(x_t, CLEAN, time)[:, torch.arange(L), x_0].prod(-1).T  # (M, n N)
    shape, later = noisy.shape, None if later is None else later.reshape(-1, L)
    if method.clean(Batch(x_0)) is None:
        pred = method.predict(x_t, time)
    else:  # blocks: what the network says of x_t depends on x_0
        known, noisy = known.reshape(-1, L), noisy.reshape(-1, L)
        time, later = time.repeat(len(x_0), 1), None if later is None else later.repeat(len(x_0), 1)
        pred = method.predict(noisy, time, context=known)
    target = truth(process, known, noisy, time.expand(noisy.shape))
    value = bound.continuous(target, pred) if later is None else bound.discrete(target, pred, later)
    each = torch.where(q > 0, q * value.reshape(shape).sum(-1), 0.0)
    return each.reshape(len(x_0), -1, len(X)).sum(-1).T.reshape(*t.shape, len(x_0))


def step_bound(method: Method, x_0: Tensor, times: Tensor) -> Tensor:
    """The T-step bound on -log p(x_0) of the model that steps through `times`, expectations enumerated: (M,) nats."""
    total = bound.prior(method.process, x_0, times[0]).sum(-1)
    for t, s in zip(times[:-1].split(64), times[1:].split(64)):
        total = total + expected(method, x_0, t, s).sum(0)
    return total


def expectation(
    draw: Callable[[Batch, Any], Tensor], x_0: Tensor, nodes: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """E of a draw (batch, generator) -> (B,) for each x_0 (M, L), over everything that it draws: (M,).

    Times are integrated, at `nodes` if given (u in (0, 1) and weights, as what `maths.stratified` gives); what is discrete is
    enumerated. Differentiable: the gradient is the expectation of the gradient of the draw, whatever the draws depend on.
    """
    u, weight = parts(x_0.shape[1]) if nodes is None else nodes
    x, u = x_0.repeat_interleave(len(u), 0), u.repeat(len(x_0))
    total = sum(p * value for value, p in scripts(lambda script: draw(Batch(x), script), len(x), u))
    return (torch.as_tensor(total).reshape(len(x_0), -1) * weight).sum(-1)


# ---------------------------------------------------------------------------------- continuous time
def quadrature(n: int = 60) -> tuple[Tensor, Tensor]:
    """Times in (0, 1) and weights, (2 n + 1,) each: tanh-sinh, which does not mind singular or steep ends."""
    h = 4.0 / n  # beyond |x| = 4 the weights are below 1e-35
    x = torch.arange(-n, n + 1, dtype=torch.float64) * h
    g = math.pi / 2 * torch.sinh(x)
    t = 1 / (1 + torch.exp(-2 * g))
    weight = h * math.pi / 4 * torch.cosh(x) / torch.cosh(g) ** 2
    inside = (t > 0) & (t < 1) & (weight > 0)
    return t[inside], weight[inside]


def parts(n: int, each: int = 36) -> tuple[Tensor, Tensor]:
    """`quadrature` on each of n equal parts of (0, 1): for what jumps between them, such as a number of masks drawn there."""
    t, weight = quadrature(each)
    t = t.clamp(1e-9, 1 - 1e-9)  # the strata of `maths.stratified` round
    return ((torch.arange(n)[:, None] + t) / n).reshape(-1), (weight / n).repeat(n)


def continuous_terms(method: Method, x_0: Tensor, n: int = 60) -> dict[str, Tensor]:
    """The three terms of the continuous-time bound for each x_0 (M, L), enumerated and integrated: (M,) nats each.

    "jump" is the part of the prior term that is the jump PRIOR -> t = 1, which published bounds leave out.
    """
    start_at = method.process.start
    prior = bound.prior(method.process, x_0, start_at).sum(-1)
    jump = expected(method, x_0, PRIOR, 1.0) if start_at == PRIOR else torch.zeros_like(prior)
    t, weight = quadrature(n)
    return {
        "diffusion": weight @ expected(method, x_0, t, None),
        "reconstruction": expected(method, x_0, 0.0, CLEAN),
        "prior": prior + jump,
        "jump": jump,
    }


@torch.no_grad()
def any_order(method: Method, x_0: Tensor) -> Tensor:
    """-log p of each x_0 (M, L), autoregressively, averaged over all L! orders, for a network that does not see the time.

    In a method of blocks: over all orders in each block, the blocks left to right.
    """
    L, total, context = x_0.shape[1], torch.zeros(len(x_0), dtype=torch.float64), method.clean(Batch(x_0))
    orders = list(itertools.permutations(range(L)))
    for order in orders:
        x = torch.full_like(x_0, method.process.mask)  # pyright: ignore[reportArgumentType]
        for i in order:
            law = method.predict(x, 0.5, context=context).law()[:, i]  # pyright: ignore[reportAttributeAccessIssue]
            total -= law.gather(-1, x_0[:, i : i + 1])[:, 0].log() / len(orders)
            x[:, i] = x_0[:, i]
    return total
