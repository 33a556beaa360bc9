"""Enumeration of K^L: exact laws, exact denoisers, transition matrices, exact -log p_theta and bounds. No Monte Carlo.

For small spaces everything that the library estimates can be computed: the law of x_t, p(x_0 | x_t), the whole transition
matrix of a sampler's step (of its actual code: `Script` forces every outcome of its random draws and multiplies their
probabilities), the law of its samples, the T-step bound and the three terms of the continuous one.

A law on the space is a vector (K^L,) over `states(K, L)`, the last position running fastest.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import bound, maths
from .method import Method
from .prediction import LeaveOneOut, Mean, Score, kernel, truth
from .process import Process
from .samplers import Sampler, State
from .schedule import CLEAN, PRIOR


# ---------------------------------------------------------------------------------- the space
def states(K: int, L: int) -> Tensor:
    """All K^L sequences, (K^L, L) long."""
    return torch.tensor(list(itertools.product(range(K), repeat=L))).reshape(-1, L)


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

    A step of a sampler draws a few (B, L) or (B,) tables from `maths.bernoulli` and `maths.categorical`. A script says the
    outcome at each entry of one row, the same for all rows; `probability` (B,) is then the product of the chances of the
    outcomes. Running all scripts enumerates the step. Entries that were not drawn count only with outcome 0.
    """

    def __init__(self, outcomes: Sequence[Sequence[int]], rows: int):
        self.outcomes, self.sizes = list(outcomes), []
        self.probability = torch.ones(rows, dtype=torch.float64)

    def uniform(self, shape, device):
        """Only for draws that the law does not depend on (the exact times of first hitting for a time-free network)."""
        return torch.full(tuple(shape), 0.5, dtype=torch.float64, device=device)

    def bernoulli(self, p, at=None):
        return self.categorical(torch.stack([1 - p, p], -1), at).bool()

    def categorical(self, p, at=None):
        at = torch.ones(p.shape[:-1], dtype=torch.bool) if at is None else at
        self.sizes.append((at[0].numel(), p.shape[-1]))
        outcome = torch.zeros_like(at, dtype=torch.long)
        if len(self.sizes) <= len(self.outcomes):
            outcome += torch.tensor(self.outcomes[len(self.sizes) - 1]).reshape(at.shape[1:])
        laws = maths.normalise(p.double()).reshape(-1, p.shape[-1])
        chance = (outcome == 0).double()  # of what is not drawn
        chance[at] = laws.gather(-1, outcome[at][:, None])[:, 0]
        self.probability = self.probability * chance.reshape(len(at), -1).prod(-1)
        return outcome[at].reshape(p.shape[:-1])


def transition(sampler: Sampler, method: Method, state: State, t: Tensor, s: Tensor) -> Tensor:
    """The law of x after one step from each row of `state`: (B, K^L), by enumeration of the sampler's own draws.

    t and s are (B, 1).
    """
    rows, K, L = len(state.x), method.process.K, state.x.shape[1]
    sizes: list[tuple[int, int]] = []
    while (
        True
    ):  # a first run finds which draws a step makes: outcome 1 wherever there is one, so that nothing is skipped
        probe = Script([[1 % n] * entries for entries, n in sizes], rows)
        sampler.step(method, state, t, s, probe)  # pyright: ignore[reportArgumentType]
        if probe.sizes == sizes:
            break
        sizes = probe.sizes
    law = torch.zeros(rows, K**L, dtype=torch.float64)
    for outcomes in itertools.product(*(list(itertools.product(range(n), repeat=entries)) for entries, n in sizes)):
        script = Script(outcomes, rows)
        new = sampler.step(method, state, t, s, script)  # pyright: ignore[reportArgumentType]
        if not any(map(any, outcomes[len(script.sizes) :])):  # a draw that was not made counts once
            law.scatter_add_(1, index(new.x, K)[:, None], script.probability[:, None])
    return law


def sample_law(sampler: Sampler, method: Method, steps: int | Tensor, fixed: Tensor | None = None) -> Tensor:
    """The law of the sampler's samples, (K^L,): its initial law times the transition matrices of all its steps.

    `fixed` is (L,), -1 where free. Steps may depend on the state and the time, not on `state.memory`.
    """
    (L,), process = method.shape, method.process
    X = states(process.K, L)
    times = sampler.times(method, steps) if isinstance(steps, int) else steps
    T, N = len(times) - 1, len(X)
    state = sampler.init(method, (T * N, L), fixed=fixed)
    given = state.fixed[:N]
    state = State(X.repeat(T, 1), state.fixed, state.calls, state.context, state.memory)
    t, s = (u.repeat_interleave(N)[:, None] for u in (times[:-1], times[1:]))
    matrices = transition(sampler, method, state, t, s).reshape(T, N, N)
    each = process.prior[X]
    if fixed is not None:
        each = torch.where(given, (fixed == X).double(), each)
    p = each.prod(-1)
    for matrix in matrices:
        p = p @ matrix
    return p


# ---------------------------------------------------------------------------------- the T-step model
def _at(method: Method, t: float | Tensor) -> tuple[Tensor, Tensor, Any]:
    """Every x_t, the times (N, L), and what the method predicts there."""
    X = states(method.process.K, method.shape[0])
    time = torch.as_tensor(t, dtype=torch.float64).expand(X.shape)
    return X, time, method.predict(X, time)


@torch.no_grad()
def log_likelihood(method: Method, times: Tensor) -> Tensor:
    """log p(x) of the model that steps through `times` with the reverse kernel, for every clean x: (V^L,) nats."""
    process = method.process
    X = states(process.K, method.shape[0])
    p = process.prior[X].prod(-1)
    for t, s in itertools.pairwise(times):
        X, time, pred = _at(method, t)
        each = kernel(pred, s.expand(time.shape))  # (N, L, K)
        p = p @ each[:, torch.arange(X.shape[1]), X].prod(-1)
    return p[process.clean[X].all(-1)].log()


def _expected(method: Method, x_0: Tensor, t: float | Tensor, s: float | Tensor | None) -> Tensor:
    """E over x_t of the bound at t (continuous if s is None, else of the step t -> s), for each x_0 (M, L): (M,)."""
    process = method.process
    X, time, pred = _at(method, t)
    known, noisy = x_0[:, None].expand(-1, len(X), -1), X.expand(len(x_0), -1, -1)
    q = process.likelihood(X, CLEAN, time)[:, torch.arange(X.shape[1]), x_0].prod(-1).T  # (M, N)
    target = truth(process, known, noisy, time.expand(noisy.shape))
    if s is None:
        value = bound.continuous(target, pred)
    else:
        value = bound.discrete(target, pred, torch.as_tensor(s, dtype=torch.float64).expand(time.shape))
    return torch.where(q > 0, q * value.sum(-1), 0.0).sum(-1)


def step_bound(method: Method, x_0: Tensor, times: Tensor) -> Tensor:
    """The T-step bound on -log p(x_0) of the model that steps through `times`, expectations enumerated: (M,) nats."""
    total = bound.prior(method.process, x_0, times[0]).sum(-1)
    for t, s in itertools.pairwise(times):
        total = total + _expected(method, x_0, t, s)
    return total


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


def continuous_terms(method: Method, x_0: Tensor, n: int = 60) -> dict[str, Tensor]:
    """The three terms of the continuous-time bound for each x_0 (M, L), enumerated and integrated: (M,) nats each.

    "jump" is the part of the prior term that is the jump PRIOR -> t = 1, which published bounds leave out.
    """
    start_at = method.process.start
    prior = bound.prior(method.process, x_0, start_at).sum(-1)
    jump = _expected(method, x_0, PRIOR, 1.0) if start_at == PRIOR else torch.zeros_like(prior)
    diffusion = sum(w * _expected(method, x_0, t, None) for t, w in zip(*quadrature(n)))
    return {
        "diffusion": torch.as_tensor(diffusion),
        "reconstruction": _expected(method, x_0, 0.0, CLEAN),
        "prior": prior + jump,
        "jump": jump,
    }


@torch.no_grad()
def any_order(method: Method, x_0: Tensor) -> Tensor:
    """-log p of each x_0 (M, L), autoregressively, averaged over all L! orders, for a network that does not see the time."""
    L, total = x_0.shape[1], torch.zeros(len(x_0), dtype=torch.float64)
    orders = list(itertools.permutations(range(L)))
    for order in orders:
        x = torch.full_like(x_0, method.process.mask)  # pyright: ignore[reportArgumentType]
        for i in order:
            law = method.predict(x, 0.5).law()[:, i]  # pyright: ignore[reportAttributeAccessIssue]
            total -= law.gather(-1, x_0[:, i : i + 1])[:, 0].log() / len(orders)
            x[:, i] = x_0[:, i]
    return total
