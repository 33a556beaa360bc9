"""The family that reads its network as the concrete score p_t(y) / p_t(x_t) = exp(network): SEDD, and BD3-LM with a score inside.

See `methods.sedd` for the equations.
"""

import math

import torch
from torch import Tensor

from ..core.prediction import Score
from .method import Method


def read_score(method: Method, logits: Tensor, x_t: Tensor, t: Tensor, scaled: bool) -> Score:
    """exp of logits (*, K); `scaled`: divided by (e^sigma - 1) V, so that under absorbing noise a network near 0 is near it."""
    if scaled:
        odds = torch.expm1(method.process.schedule.sigma(t.clamp(0.0, 1.0)))
        odds = torch.where(odds > 0, odds, 1.0)  # a given token: no noise, so no score
        logits = logits - (odds.log() + math.log(method.vocabulary)).to(logits)
    return Score(method.process, logits.double().exp().scatter(-1, x_t[..., None], 1.0), x_t, t)


def score_cost(method: Method, logits: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor, scaled: bool) -> Tensor:
    """The continuous bound of that score under absorbing noise at N positions, (N, K) -> (N,) nats per unit of time."""
    schedule, logits = method.process.schedule, logits[:, : method.vocabulary]
    total = logits.logsumexp(-1).double()
    scale = -math.log(method.vocabulary) if scaled else schedule.sigma(t)[:, 0].expm1().log()
    log_m, cross_entropy = total + scale, total - logits.gather(-1, x_0[:, None])[:, 0].double()
    value = schedule.weight(t)[:, 0] * (cross_entropy + log_m.expm1() - log_m)
    return torch.where(x_t == method.process.mask, value, 0.0)
