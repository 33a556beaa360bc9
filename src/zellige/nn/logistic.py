"""The head for levels: the mean and scale of a logistic distribution instead of K logits (D3PM, arXiv 2107.03006,
appendix A.8).

Of D3PM, and of tauLDR, which takes it from there.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# of D3PM's distribution is uniform, so that it excludes no level; the published code adds it inside its logs
FLOOR = 1e-6


def logistic(mean: Tensor, log_scale: Tensor, K: int) -> Tensor:
    """Logits of a logistic distribution cut into K bins round the levels -1..1 and renormalised: (*), (*) -> (*, K).

    sigma(b) - sigma(a) = sigma(b) sigma(-a) (1 - e^{a - b}) for the bin from a to b; all are as wide, so the last
    factor goes.
    """
    inverse = _inverse(log_scale)[..., None]
    centre, half = _centre(mean, K), 1 / (K - 1)
    return F.logsigmoid(inverse * (centre + half)) + F.logsigmoid(inverse * (half - centre))


def near(outputs: Tensor, x: Tensor, K: int, floor: float = FLOOR) -> Tensor:
    """Logits (*, K) from the two outputs (*, 2) of a head at levels x (*): how far the mean is from x, and the scale's
    log.

    `floor` of the distribution is uniform.
    """
    shift, log_scale = outputs.unbind(-1)
    mean = torch.tanh(2 * x.to(shift) / (K - 1) - 1 + shift)
    if floor >= FLOOR:
        return _Floored.apply(mean, _inverse(log_scale), K, floor)
    logits = logistic(mean, log_scale, K).log_softmax(-1)
    return torch.logaddexp(logits, torch.full_like(logits, math.log(floor / K)))


def within(outputs: Tensor, x: Tensor, K: int) -> Tensor:
    """As `near`, with tauLDR's bins, which cut -1..1 into K of equal width,
    and the 1e-6 of its code inside the logarithm."""
    shift, log_scale = outputs.unbind(-1)
    mean, half = torch.tanh(2 * x.to(shift) / (K - 1) - 1 + shift)[..., None], 1 / K
    centre = torch.linspace(half - 1, 1 - half, K, dtype=mean.dtype, device=mean.device) - mean
    inverse = torch.exp(2 - log_scale)[..., None]
    left, right = F.logsigmoid(inverse * (centre - half)), F.logsigmoid(inverse * (centre + half))
    return right + torch.log1p(FLOOR - torch.exp(left - right))


def _inverse(log_scale: Tensor) -> Tensor:
    return torch.exp(2 - log_scale.clamp_min(-7))


def _centre(mean: Tensor, K: int) -> Tensor:
    """Distance of each pixel value from the mean: (*) -> (*, K)."""
    return torch.linspace(-1, 1, K, dtype=mean.dtype, device=mean.device) - mean[..., None]


class _Floored(torch.autograd.Function):
    """log(distribution + floor/K) of the mean and 1/scale; the distribution without logarithms, as what is far below
    the floor does not count.

    With a, b the two sigmoids of a bin, log a b has the slope b - a by the centre and 2 - a - b by the half width, in
    scales.
    """

    @staticmethod
    def forward(ctx, mean, inverse, K, floor):
        centre, inverse = _centre(mean, K), inverse[..., None]
        a, b = (torch.sigmoid(inverse * (side * centre + 1 / (K - 1))) for side in (1, -1))
        distribution = a * b
        distribution.div_(distribution.sum(-1, keepdim=True))
        ctx.save_for_backward(centre, inverse, a, b, distribution)
        ctx.least = floor / K
        return (distribution + ctx.least).log_()

    @staticmethod
    @once_differentiable
    def backward(ctx, by_logits):
        centre, inverse, a, b, distribution = ctx.saved_tensors
        slope = (by_logits / (distribution + ctx.least)).mul_(distribution)
        slope.sub_(distribution * slope.sum(-1, keepdim=True))  # by the log of a b; its sum is 0
        by_centre = slope * (b - a)
        by_inverse = (by_centre * centre).sum(-1) - (slope * (a + b)).sum(-1) / (distribution.shape[-1] - 1)
        return -by_centre.sum(-1) * inverse[..., 0], by_inverse, None, None
