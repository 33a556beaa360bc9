"""The head for levels: the mean and scale of a logistic law instead of K logits (D3PM, arXiv 2107.03006, appendix A.8).

Of D3PM, and of tauLDR, which takes it from there.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

FLOOR = 1e-6  # of D3PM's law is uniform, so that it excludes no level; the published code adds it inside its logs


def logistic(mean: Tensor, log_scale: Tensor, K: int) -> Tensor:
    """Logits of a logistic law cut into K bins round the levels -1..1 and renormalised: (*), (*) -> (*, K).

    sigma(b) - sigma(a) = sigma(b) sigma(-a) (1 - e^{a - b}) for the bin from a to b; all are as wide, so the last factor goes.
    """
    inverse = torch.exp(2 - log_scale.clamp_min(-7))[..., None]
    centre = torch.linspace(-1, 1, K, dtype=mean.dtype, device=mean.device) - mean[..., None]
    half = 1 / (K - 1)
    return F.logsigmoid(inverse * (centre + half)) + F.logsigmoid(inverse * (half - centre))


def near(outputs: Tensor, x: Tensor, K: int, floor: float = FLOOR) -> Tensor:
    """Logits (*, K) from the two outputs (*, 2) of a head at levels x (*): how far the mean is from x, and the scale's log.

    `floor` of the law is uniform.
    """
    shift, log_scale = outputs.unbind(-1)
    logits = logistic(torch.tanh(2 * x.to(shift) / (K - 1) - 1 + shift), log_scale, K).log_softmax(-1)
    return torch.logaddexp(logits, torch.full_like(logits, math.log(floor / K)))
