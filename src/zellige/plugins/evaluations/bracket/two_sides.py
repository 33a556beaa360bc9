"""Upper and lower bounds on -log p of a text, and exact values.

Let w_1, w_2, ... be independent estimates of p(x) with E w = p(x). Each is the probability of the text in one random order,
or a weighted probability along one trajectory of the T-step chain (`samplers.replay`).

    upper bound     E -log 1/n sum w_i >= -log p(x), which falls as n grows (Burda et al. 2016, arXiv 1509.00519); n = 1 is the
                    usual bound
    lower bound     log p <= log psi + p / psi - 1 for any psi > 0, the tangent of the log at psi (TUBE, arXiv 2605.24292). With
                    psi from n draws and p from n others, the mean of the right side is at least log p, and equal if psi = p
    of samples      for a text that the model wrote, the w of its own order or trajectory is averaged with n - 1 others:
                    E -log of the mean <= -log p (bidirectional Monte Carlo, arXiv 1511.02543)

The bounds hold in expectation; a single draw may be on either side, hence the intervals. With a network of blocks, the
bounds of the blocks are added. If the sampler chooses positions without randomness (`confidence`), -log p of that sampler's
distribution is exact.

The w of a long text differ by many nats. A few draws miss the largest, which determine the mean of p / psi, and no
interval from these draws can show it. Then the lower bound is not given (`skewness`).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

LEAST = -1e4  # nats: psi where no draw gave the text any probability
REPLICATES = 16  # at most, of one estimate: their spread is what the draws bring


def log_mean(log_w: Tensor, n: int) -> Tensor:
    """log of the mean of each n consecutive weights of (..., D, G): (..., D / n, G)."""
    return log_w.unflatten(-2, (-1, n)).logsumexp(-2) - math.log(n)


def from_above(log_w: Tensor, n: int) -> Tensor:
    """Importance-weighted bounds on -log p, one for each n draws: (..., D, G) -> (..., D / n)."""
    return -log_mean(log_w, n).sum(-1)


def from_below(log_w: Tensor, n: int) -> Tensor:
    """Tangent bounds on -log p, psi of each first n draws and p of the n after them: (..., D, G) -> (..., D / 2n)."""
    log_psi, log_p = log_mean(log_w, n).unflatten(-2, (-1, 2)).unbind(-2)
    return -tangent(log_psi.clamp_min(LEAST), log_p).sum(-1)


def width(log_w: Tensor, n: int) -> Tensor:
    """The two bounds' difference on the same draws: (..., D, G) -> (..., D / 2n)."""
    return from_above(log_w, n).unflatten(-1, (-1, 2)).mean(-1) - from_below(log_w, n)


def effective(log_w: Tensor) -> Tensor:
    """Fraction of draws that count in the worst block, (sum w)^2 / (D sum w^2) (Kish): (..., D, G) -> (...)."""
    log_w = log_w.double()
    log_w = log_w - log_w.amax(-2, keepdim=True).clamp_min(LEAST)
    w = log_w.exp()
    return (w.sum(-2) ** 2 / (w * w).sum(-2).clamp_min(1e-300) / log_w.shape[-2]).amin(-1)


def tangent(log_psi: Tensor, log_p: Tensor) -> Tensor:
    """log psi + p / psi - 1 >= log p."""
    return log_psi + (log_p - log_psi).expm1()


def bidirectional(first: Tensor, log_w: Tensor, n: int) -> Tensor:
    """Lower bound on -log p: `first` (..., G) is log w of the z that wrote the text, log_w (..., D, G) of others.

    One for each n - 1 of them, at most D / n: (..., D // n).
    """
    groups = log_w.shape[-2] // n
    rest = log_w[..., : groups * (n - 1), :].unflatten(-2, (groups, n - 1))
    first_weight = first[..., None, None, :].expand(*rest.shape[:-2], 1, -1)
    return from_above(torch.cat((first_weight, rest), -2).flatten(-3, -2), n)


def replicates(estimate: Callable[[Tensor, int], Tensor], log_w: Tensor, n: int) -> Tensor:
    """At most REPLICATES values whose mean is that of estimate(log_w, n), and whose spread is what its draws bring.

    Means of independent estimates where there are many; else, of the n draws of each estimate, the jackknife that
    leaves out one of their groups at a time, its values moved to that mean. (texts, D, G) -> (texts, values).
    """
    whole = estimate(log_w, n)
    values, groups = (math.gcd(number, REPLICATES) for number in (whole.shape[1], n))
    if values >= groups:
        return whole.unflatten(1, (values, -1)).mean(-1)
    parts = log_w.unflatten(1, (-1, groups, n // groups))
    without = torch.stack(
        [
            estimate(parts[:, :, [i for i in range(groups) if i != left]].flatten(1, 3), n - n // groups).mean(1)
            for left in range(groups)
        ],
        1,
    )
    return whole.mean(1, keepdim=True) + (groups - 1) * (without.mean(1, keepdim=True) - without)
