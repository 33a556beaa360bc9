"""Bounds and likelihoods by enumeration of all sequences and quadrature over time."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..base.errors import at_least, check_counts
from ..core import bound
from ..core.batch import Batch
from ..core.prediction import truth
from ..core.schedule import CLEAN, PRIOR
from ..methods.diffusion import Diffusion
from .chain import model_distribution
from .enumeration import index, is_clean, states
from .script import branches


@torch.no_grad()
def log_likelihood(method: Diffusion, times: Tensor) -> Tensor:
    """log p(x) of the model that steps through `times` with the reverse kernel, for every clean x: (V^L,) nats."""
    process, (L,) = method.process, method.shape
    X, clean = states(process.K, L), is_clean(process, L)
    if method.clean(Batch(X)) is None:
        return model_distribution(method, times, trust=False)[clean].log()
    # blocks: given those before, each is a chain of its own, and p(x) is their product: that of all of them beside x
    # itself
    at = zip(index(X[clean], process.K), X[clean])
    return torch.stack([model_distribution(method, times, context=x, trust=False)[i] for i, x in at]).log()


def expected(method: Diffusion, x_0: Tensor, t: Tensor | float, s: Tensor | float | None) -> Tensor:
    """E over x_t of the bound at t, for each x_0 (M, L): (M,) nats.

    Continuous if s is None, else of the step t -> s. Many times (n,) give (n, M).
    """
    process, (L,) = method.process, method.shape
    X, t = states(process.K, L), torch.as_tensor(t, dtype=torch.float64)
    time = t.reshape(-1, 1, 1).expand(-1, *X.shape).reshape(-1, L)  # (n N, L), every x_t at every time
    later = None if s is None else torch.as_tensor(s, dtype=torch.float64).reshape(-1, 1, 1).expand(t.numel(), *X.shape)
    x_t = X.repeat(t.numel(), 1)
    clean, noisy = x_0[:, None].expand(-1, len(x_t), -1), x_t.expand(len(x_0), -1, -1)
    q = process.likelihood(x_t, CLEAN, time)[:, torch.arange(L), x_0].prod(-1).T  # (M, n N)
    shape, later = noisy.shape, None if later is None else later.reshape(-1, L)
    if method.clean(Batch(x_0)) is None:
        pred = method.predict(x_t, time)
    else:  # blocks: what the network says of x_t depends on x_0
        clean, noisy = clean.reshape(-1, L), noisy.reshape(-1, L)
        time, later = time.repeat(len(x_0), 1), None if later is None else later.repeat(len(x_0), 1)
        pred = method.predict(noisy, time, context=clean)
    target = truth(process, clean, noisy, time.expand(noisy.shape))
    value = bound.continuous(target, pred) if later is None else bound.discrete(target, pred, later)
    terms = torch.where(q > 0, q * value.reshape(shape).sum(-1), 0.0)
    return terms.reshape(len(x_0), -1, len(X)).sum(-1).T.reshape(*t.shape, len(x_0))


def step_bound(method: Diffusion, x_0: Tensor, times: Tensor) -> Tensor:
    """The T-step bound on -log p(x_0) of the model that steps through `times`, expectations enumerated: (M,) nats."""
    total = bound.prior(method.process, x_0, times[0]).sum(-1)
    for t, s in zip(times[:-1].split(64), times[1:].split(64)):
        total = total + expected(method, x_0, t, s).sum(0)  # D3PM eq. 1
    return total


def expectation(
    draw: Callable[[Batch, Any], Tensor], x_0: Tensor, nodes: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """E of a draw (batch, generator) -> (B,), of any number of rows, for each x_0 (M, L), over everything that it
    draws: (M,).

    Times are integrated, at `nodes` if given (u in (0, 1) and weights, as what `random.stratified` gives); what is
    discrete is enumerated. Differentiable: the gradient is the expectation of the gradient of the draw, whatever the
    draws depend on.
    """
    u, weight = parts(x_0.shape[1]) if nodes is None else nodes
    x, u = x_0.repeat_interleave(len(u), 0), u.repeat(len(x_0))
    total = torch.zeros(len(x), dtype=torch.float64)
    for rows, value, p in branches(lambda rows, script: draw(Batch(x[rows]), script), len(x), u):
        total = total.index_add(0, rows, p * value)
    return (total.reshape(len(x_0), -1) * weight).sum(-1)


def quadrature(n: int = 60) -> tuple[Tensor, Tensor]:
    """Times in (0, 1) and weights, (2 n + 1,) each: tanh-sinh, which does not mind singular or steep ends."""
    at_least("n", n, 1)
    h = 4.0 / n  # beyond |x| = 4 the weights are below 1e-35
    x = torch.arange(-n, n + 1, dtype=torch.float64) * h
    g = math.pi / 2 * torch.sinh(x)
    t = 1 / (1 + torch.exp(-2 * g))
    weight = h * math.pi / 4 * torch.cosh(x) / torch.cosh(g) ** 2
    inside = (t > 0) & (t < 1) & (weight > 0)
    return t[inside], weight[inside]


def parts(n: int, each: int = 36) -> tuple[Tensor, Tensor]:
    """`quadrature` on each of n equal parts of (0, 1): for what jumps between them,
    such as a number of masks drawn there."""
    check_counts(n=n, each=each)
    t, weight = quadrature(each)
    t = t.clamp(1e-12, 1 - 1e-12)  # the strata of `random.stratified` round
    return ((torch.arange(n)[:, None] + t) / n).reshape(-1), (weight / n).repeat(n)


def continuous_terms(method: Diffusion, x_0: Tensor, n: int = 60, jumps: bool = False) -> dict[str, Tensor]:
    """The three terms of the continuous-time bound for each x_0 (M, L), enumerated and integrated: (M,) nats each.

    "start" is the part of the prior term that is the end PRIOR -> t = 1, which published bounds leave out. With `jumps`
    each end is one, as published schedules have it, also where the `span` goes on.
    """
    start_at, (low, high) = method.process.start_time, (0.0, 1.0) if jumps else method.span
    prior = bound.prior(method.process, x_0, start_at).sum(-1)
    start = expected(method, x_0, PRIOR, 1.0) if start_at == PRIOR else torch.zeros_like(prior)
    return {
        "diffusion": integral(method, x_0, 0.0, 1.0, n),
        "reconstruction": integral(method, x_0, low, 0.0, n) if low < 0 else expected(method, x_0, 0.0, CLEAN),
        "prior": prior + (start := integral(method, x_0, 1.0, high, n) if high > 1 else start),
        "start": start,
    }


def integral(method: Diffusion, x_0: Tensor, low: float, high: float, n: int = 60) -> Tensor:
    """The integral of the continuous bound over t from low to high, for each x_0 (M, L): (M,) nats."""
    u, weight = quadrature(n)
    t = low + (high - low) * u
    inside = (t > low + (1e-12 if low < 0 else 0.0)) & (t < high)  # nearer to it, and 1 - alpha rounds
    return (high - low) * weight[inside] @ expected(method, x_0, t[inside], None)


@torch.no_grad()
def any_order(method: Diffusion, x_0: Tensor) -> Tensor:
    """-log p of each x_0 (M, L), autoregressively, averaged over all L! orders, for a network that does not see the
    time.

    In a method of blocks: over all orders in each block, the blocks left to right.
    """
    L, total, context = x_0.shape[1], torch.zeros(len(x_0), dtype=torch.float64), method.clean(Batch(x_0))
    orders = list(itertools.permutations(range(L)))
    for order in orders:
        x = torch.full_like(x_0, method.process.mask_id)
        for i in order:
            distribution = method.predict(x, 0.5, context=context).mu[:, i]  # pyright: ignore[reportAttributeAccessIssue]
            total -= distribution.gather(-1, x_0[:, i : i + 1])[:, 0].log() / len(orders)
            x[:, i] = x_0[:, i]
    return total
