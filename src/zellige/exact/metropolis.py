"""Exact quantities without a process: the true concrete score, and the invariant distribution of Metropolis-Hastings.

On a space of V^L texts that can be enumerated the chain of `samplers.metropolis` is a matrix P, one row a text. With
the network's scores it keeps some distribution pi = pi P, which is what it draws in the long run. How far the data are
from it, KL(data || pi), is the one exact statement about how good a concrete score is. (Scores that no distribution
has, since their products round a loop are not 1, have a pi all the same.) Scores also give p(x) up to a constant, along
a path of neighbours.
"""

import functools
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ..base.errors import InputError
from ..core import maths
from ..core.prediction import DataScore
from ..methods.method import Method
from ..samplers.metropolis import TEXTS, OverNeighbours, enumerable
from .enumeration import index, states

DENSE = 4096  # texts up to which pi is solved for
CHANGE, PROPOSALS = 1e-13, 100_000  # beyond it is iterated until so little changes in a step, or so often


class Scores(Method):
    """A method with the exact concrete score of a known distribution: v_y = p(y)/p(x) for the neighbours y of x.

    Args:
        neighbourhood: a `Neighbourhood` over V tokens.
        distribution: (V^L,), positive wherever a score is asked.
    """

    name, parameterization = "exact", "score"
    bounded = False

    def __init__(self, neighbourhood: Any, distribution: Tensor, length: int):
        super().__init__()
        self.neighbourhood, self.distribution = neighbourhood, distribution
        self.shape, self.vocabulary = (length,), neighbourhood.size

    def predict(self, x_t, t, *, at=None, condition=None, context=None, segments=None):
        v = (
            self.distribution[moved(x_t, self.vocabulary)]
            / self.distribution[index(x_t, self.vocabulary)][:, None, None]
        )
        v = torch.where(self.neighbourhood.of(x_t), v, 0.0).scatter(-1, x_t[..., None], 1.0)
        return DataScore(v, x_t) if at is None else DataScore(v[at], x_t[at])


def moved(x: Tensor, V: int) -> Tensor:
    """The index of x with each token at each position, (B, L) -> (B, L, V)."""
    position = V ** torch.arange(x.shape[1] - 1, -1, -1)
    return index(x, V)[:, None, None] + (torch.arange(V) - x[..., None]) * position[:, None]


@torch.no_grad()
def transitions(method: Method) -> tuple[Tensor, Tensor, Tensor]:
    """The moves of the chain: from x (E,), to y (E,), with probability (E,) > 0; else it stays. x, y index `states`."""
    if why := enumerable(method):
        raise InputError(f"{why}; at most {TEXTS:,} are")
    V, chain = method.vocabulary, cast(OverNeighbours, method)
    arrows = chain.neighbourhood
    X = states(V, method.shape[0])
    device = next(method.parameters(), torch.empty(0)).device
    v = torch.cat([chain.predict(batch.to(device), 0.0).v.double().cpu() for batch in X.split(4096)]).clamp_min(0.0)
    x, i, new = arrows.walk(X).nonzero().unbind(-1)
    y, old = moved(X, V)[x, i, new], X[x, i]
    ratio = torch.where(arrows.of(X)[x, i, new], v[x, i, new], 1 / v[y, i, old])
    d = arrows.degree[X].sum(-1)
    chance = (ratio * d[x] / d[y]).clamp_max(1.0) / d[x]
    possible = chance > 0
    return x[possible], y[possible], chance[possible]


def invariant(method: Method) -> Tensor:
    """Invariant distribution of Metropolis-Hastings with the method's scores, (V^L,) float64.

    Where it keeps several, the one it comes to from texts drawn uniformly. Up to `DENSE` texts by inverse iteration, pi
    <- e pi (I - (1 - e) P)^-1 from the uniform distribution, e = 1e-8, which keeps the probability of each closed
    class; else by pi <- pi P.
    """
    x, y, chance = transitions(method)
    n = method.vocabulary ** method.shape[0]
    pi = torch.full((n,), 1 / n, dtype=torch.float64)
    leaves = torch.zeros_like(pi).index_add(0, x, chance)
    if n <= DENSE:
        e = 1e-8
        A = torch.zeros(n, n, dtype=torch.float64).index_put((y, x), -(1 - e) * chance, accumulate=True)
        A.diagonal().add_(leaves + e * (1 - leaves))  # I - (1 - e) P^T: an M-matrix, so nothing below cancels
        factors = torch.linalg.lu_factor(A)
        for _ in range(4):
            pi = maths.normalise(torch.linalg.lu_solve(*factors, pi[:, None])[:, 0].clamp_min(0.0))
        return pi
    for _ in range(PROPOSALS):
        new = (pi * (1 - leaves)).index_add(0, y, pi[x] * chance)
        change, pi = float((new - pi).abs().sum()), new
        if change < CHANGE:
            break
    return pi / pi.sum()


def divergence(data: Tensor, method: Method) -> Tensor:
    """KL(data || invariant distribution) of a distribution (V^L,), in nats;
    infinite if the chain never reaches the data."""
    return maths.kl(data, invariant(method))


# ---------------------------------------------------------------------------------- along a path
@torch.no_grad()
def log_ratio(method: Method, x: Tensor, reference: Tensor, order: Sequence[int] | None = None) -> Tensor:
    """log p(x) / p(reference) along a path of neighbours, (B, L), (B, L) -> (B,) nats.

    The positions change one after the other in `order`, left to right unless said, each by a shortest walk of arrows:
    one along an arrow adds log v(now)_next, one against it takes away log v(next)_now. So CSM's scores give p up to a
    constant (completeness): with those of a distribution it is the same along every path. Other scores are of no
    distribution, and how far two paths are apart says how far they are from one. A v below 0 counts as 0.
    """
    chain = cast(OverNeighbours, method)
    arrows = chain.neighbourhood
    path = functools.cache(arrows.path)
    now, total = reference.clone(), torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for i in range(x.shape[1]) if order is None else order:
        paths = [path(a, b) for a, b in zip(now[:, i].tolist(), x[:, i].tolist())]
        for n in range(1, max(map(len, paths), default=0)):
            rows = torch.tensor([r for r, tokens in enumerate(paths) if n < len(tokens)], device=x.device)
            old, new = (torch.tensor([t[k] for t in paths if n < len(t)], device=x.device)[:, None] for k in (n - 1, n))
            position = torch.full_like(old, i)
            before, after = now[rows], now[rows].scatter(-1, position, new)
            along = arrows.of(old[:, 0]).gather(-1, new)
            at = torch.zeros_like(before, dtype=torch.bool).scatter(-1, position, True)
            pred = chain.predict(torch.where(along, before, after), 0.0, at=at)
            log_v = pred.v.double().clamp_min(0.0).gather(-1, torch.where(along, new, old)).log()[:, 0]
            total[rows] += torch.where(along[:, 0], log_v, -log_v)
            now[rows] = after
    return total


def path_distribution(method: Method, order: Sequence[int] | None = None) -> Tensor:
    """p of all texts along paths from the text of the first token alone, normalised: (V^L,) float64."""
    if why := enumerable(method):
        raise InputError(f"{why}; at most {TEXTS:,} are")
    device = next(method.parameters(), torch.empty(0)).device
    parts = states(method.vocabulary, method.shape[0]).split(4096)
    ratios = [log_ratio(method, batch.to(device), torch.zeros_like(batch).to(device), order).cpu() for batch in parts]
    return torch.cat(ratios).softmax(0)
