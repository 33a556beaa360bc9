"""Two distributions for any network: that of the continuous-time model by definition, and that of a sampler with random
times.

The first integrates Kolmogorov's equation of the model's rates, the second enumerates the sampler's own code and
integrates over what it draws. Neither knows of the other.
"""

import functools
import itertools
import math

import torch
from torch import Tensor

from ..core.prediction import kernel, reverse_rate
from ..core.schedule import CLEAN, PRIOR
from ..methods.diffusion import Diffusion
from ..samplers import Sampler
from .enumeration import index, states
from .script import scripts

NEAR = 1e-12  # how near to the end of the span the rates are followed
STEPS = 300  # of each part of it
ROOT = math.sqrt(3) / 6  # of the Gauss points of a step, (1/2 -+ ROOT) h


# ---------------------------------------------------------------------------------- the model of continuous time
def generator(method: Diffusion, t: Tensor, context: Tensor | None = None) -> Tensor:
    """The model's rates backwards in time, from each of the K^L sequences to each: times (n,) -> (n, K^L, K^L).

    A network of blocks reads `context` (1, L) beside each.
    """
    K, (L,) = method.process.K, method.shape
    X = states(K, L)
    x = X.repeat(len(t), 1)
    context = None if context is None else context.expand(x.shape)
    pred = method.predict(x, t.repeat_interleave(len(X))[:, None], context=context)
    rates = reverse_rate(pred).reshape(len(t), len(X), L, K)
    G = torch.zeros(len(t), len(X), len(X), dtype=torch.float64)
    for i, y in itertools.product(range(L), range(K)):
        target = X.clone()
        target[:, i] = y
        to = index(target, K).expand(len(t), -1)[..., None]
        G.scatter_add_(2, to, rates[:, :, i, y, None])
    return G - torch.diag_embed(G.sum(-1))  # a rate to itself is zero


def magnus(early: Tensor, late: Tensor, h: Tensor | float) -> Tensor:
    """The transitions (n, N, N) of steps of size h from the rates at their two Gauss points, in the order of time;
    order 4."""
    return torch.linalg.matrix_exp(h / 2 * (early + late) + h * h * ROOT / 2 * (early @ late - late @ early))


@torch.no_grad()
def continuous_distribution(method: Diffusion) -> Tensor:
    """Final distribution of the continuous-time model: (K^L,).

    From the prior, where sampling starts, by the model's rates over its `span`, and what is left there by its kernel to
    CLEAN. `STEPS` for each part, even in log(t - the end of the span).
    """
    process, (L,), (low, high) = method.process, method.shape, method.span
    X = states(process.K, L)
    p = process.prior[X].prod(-1)
    if process.start_time == PRIOR and high == 1.0:
        p = p @ joint_kernel(method, X, PRIOR, 1.0)
    for begin, end in itertools.pairwise(sorted({high, 1.0, 0.0, low}, reverse=True)):
        a, b = (math.log(max(t - low, NEAR)) for t in (begin, end))
        h = (a - b) / STEPS
        s = a - h * torch.arange(STEPS, dtype=torch.float64)
        after_low = ((s - h * (0.5 + c)).exp() for c in (-ROOT, ROOT))  # the times, less the end of the span
        early, late = (t[:, None, None] * generator(method, low + t) for t in after_low)  # rates per unit of log
        for step in magnus(early, late, h):
            p = p @ step
    noisy = bool((process.matrix(CLEAN, 0.0).diagonal() < 1).any())  # at t = 0
    return p @ joint_kernel(method, X, low + (0.0 if low == 0.0 and noisy else NEAR), CLEAN)


def joint_kernel(method: Diffusion, X: Tensor, t: float, s: float) -> Tensor:
    """The kernel from t to s, all positions at once: (K^L, K^L)."""
    time = torch.full(X.shape, t, dtype=torch.float64)
    kernels = kernel(method.predict(X, time), torch.full_like(time, s))  # (N, L, K)
    return kernels[:, torch.arange(X.shape[1]), X].prod(-1)


# --------------------------------------------------------------------- one token at a time, at times that are drawn
def gauss(n: int) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes in (0, 1) and weights, (n,) each."""
    k = torch.arange(1, n, dtype=torch.float64)
    off_diagonal = torch.diag_embed(k / (4 * k * k - 1).sqrt(), 1)
    x, v = torch.linalg.eigh(off_diagonal + off_diagonal.mT)  # Golub and Welsch 1969
    return (1 + x) / 2, v[0] ** 2


def hits(method: Diffusion, length: int, n: int = 12) -> tuple[Tensor, Tensor]:
    """Nodes u (N, length) and weights (N,) for the uniforms of one event after another until no mask is left.

    1 - alpha falls by the factor u^(1/masks left) at each; `n` nodes between any two bends of the network's time input,
    which are placed by that factor.
    """
    process, (x, w) = method.process, gauss(n)
    bends = [0.0, *(1 - float(process.schedule.alpha(t)) for t in (0.0, 1.0)), 1.0]  # of the network's time input
    u, weight, noise = torch.zeros(1, 0).double(), torch.ones(1).double(), torch.ones(1).double()
    for left in range(length, 0, -1):
        ends = torch.stack([(b / noise).clamp_max(1.0) ** left for b in bends], -1)  # (B, 4)
        widths = ends.diff(dim=-1)[:, :, None]
        node, share = (ends[:, :-1, None] + widths * x).flatten(1), (widths * w).flatten(1)  # (B, 3 n)
        u = torch.cat((u.repeat_interleave(node.shape[1], 0), node.reshape(-1, 1)), 1)
        weight = (weight[:, None] * share).reshape(-1)
        noise = (noise[:, None] * node ** (1 / left)).reshape(-1)
    positive = weight > 0
    return u[positive], weight[positive]


@torch.no_grad()
def event_distribution(sampler: Sampler, method: Diffusion, n: int = 12) -> Tensor:
    """Distribution of a sampler that uses one uniform a step, the time of its event (`hits`): (K^L,).

    Its code is followed, every outcome of what is discrete; the uniforms are integrated.
    """
    process, (L,) = method.process, method.shape
    u, weight = hits(method, L, n)
    distribution, times = torch.zeros(process.K**L, dtype=torch.float64), sampler.times(method, None)
    follow = [(sampler.init(method, (len(u), L)), weight)]
    for turn, (t, s) in enumerate(itertools.pairwise(times)):
        after = []
        for state, p in follow:
            step = functools.partial(sampler.step, method, state, t, s)
            outcomes = scripts(step, len(u), uniforms=1 - u[:, turn])
            after += [(new, p * chance) for new, chance in outcomes if bool((chance > 0).any())]
        follow = after
    for state, p in follow:
        distribution.index_add_(0, index(state.x, process.K), p)
    return distribution
