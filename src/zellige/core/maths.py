"""Functions of probabilities: logarithms that are safe at zero, divergences, binomial tails, normalisation."""

from collections.abc import Sequence

import torch
from torch import Tensor


# ---------------------------------------------------------------------------------------------- logarithms at zero
def xlogy(x: Tensor, y: Tensor) -> Tensor:
    """x log y, 0 where x = 0, with finite gradients there (those of `torch.special.xlogy(p, p)` are nan)."""
    positive = x > 0
    return torch.where(positive, x * torch.where(positive, y, 1.0).log(), 0.0)


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) over the last axis, (*, K), (*, K) -> (*) nats; infinite where q = 0 < p."""
    return (xlogy(p, p) - xlogy(p, q)).sum(-1)


def log(p: Tensor) -> Tensor:
    """log p, with p clamped to the smallest normal float32; the gradient is 0 where it is clamped."""
    return p.clamp_min(torch.finfo(torch.float32).tiny).log()


# between a teacher's and a student's distribution, (*, K), (*, K) -> (*); finite where a probability rounds to 0
DIVERGENCES = {
    "kl": lambda teacher, student: (xlogy(teacher, teacher) - teacher * log(student)).sum(-1),
    "reverse-kl": lambda teacher, student: (xlogy(student, student) - student * log(teacher)).sum(-1),
    "tvd": lambda teacher, student: (teacher - student).abs().sum(-1) / 2,
    "mse": lambda teacher, student: (log(teacher) - log(student)).square().mean(-1),
}


def log1mexp(x: Tensor) -> Tensor:
    """log(1 - e^-x) for x > 0 without cancellation, e.g. log(1 - alpha) from x = sigma = -log alpha."""
    small = x < 0.6931471805599453
    return torch.where(
        small,
        torch.log(-torch.expm1(-torch.where(small, x, 1.0))),
        torch.log1p(-torch.exp(-torch.where(small, 1.0, x))),
    )


def score_entropy(u: Tensor, v: Tensor) -> Tensor:
    """v - u + u log(u / v), elementwise, in nats: the Bregman divergence of x log x; v where u = 0.

    u are the true ratios, v the model's. With r = v/u it is computed as u (r - 1 - log1p(r - 1)), which is precise
    where v is close to u. Where r < 1/2, log r replaces log1p(r - 1), which is not precise there.
    """
    positive = u > 0
    ratio = torch.where(positive, v / torch.where(positive, u, 1.0), 1.0)
    excess = torch.where(positive, (v - u) / torch.where(positive, u, 1.0), 0.0)
    small = ratio < 0.5
    log = torch.where(small, torch.where(small, ratio, 1.0).log(), torch.where(small, 0.0, excess).log1p())
    return torch.where(positive, u * (excess - log), v)


def binomial_tail(n: Tensor, k: Tensor, p: float, most: int | None = None) -> Tensor:
    """P(Binomial(n, p) >= k), elementwise for integer tensors n and k, n at most `most`: (*) -> (*) float64."""
    j = torch.arange((int(n.max()) if most is None else most) + 1, device=n.device)
    log_pmf, beyond = _binomial_log_pmf(n[..., None], j, p), j < k[..., None]
    return log_pmf.exp().masked_fill(beyond | (j > n[..., None]), 0.0).sum(-1)


def binomial_pmf(n: Tensor, k: Tensor, p: Tensor | float) -> Tensor:
    """P(Binomial(n, p) = k), elementwise for integer tensors n >= k: (*) -> (*) float64."""
    return _binomial_log_pmf(n, k, p).exp()


def _binomial_log_pmf(n: Tensor, k: Tensor, p: Tensor | float) -> Tensor:
    n, k = n.double(), k.double()
    choose = (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).clamp_min(1.0).lgamma()
    return choose + torch.xlogy(k, p) + torch.xlogy((n - k).clamp_min(0.0), 1 - p)


def product(factors: Sequence[Tensor], powers: Sequence[float]) -> Tensor:
    """prod_k factors_k^{powers_k}, elementwise in float64 through logarithms; 0 where a factor is not positive."""
    possible = torch.stack([factor > 0 for factor in factors]).all(0)
    terms = [power * torch.where(possible, factor.double(), 1.0).log() for factor, power in zip(factors, powers)]
    return torch.where(possible, torch.stack(terms).sum(0).exp(), 0.0)


def normalise(weights: Tensor) -> Tensor:
    """Divide non-negative weights (*, K) by their sum over the last axis; where all are 0, they stay 0."""
    total = weights.sum(-1, keepdim=True)
    positive = total > 0
    return torch.where(positive, weights / torch.where(positive, total, 1.0), 0.0)
