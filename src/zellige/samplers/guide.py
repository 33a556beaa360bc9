"""What changes a model's law while sampling: temperature and top-p, on the clean posterior p(x_0 | x_t).

They act on the posterior whatever the network predicts, so they mean the same for every method; of an autoregressive model on
the law of the next token, and there is top-k too. Greedy decoding is temperature 0.
"""

import torch
from torch import Tensor

from ..core.prediction import Mean, Prediction, posterior


def temperature(p: Tensor, value: float) -> Tensor:
    """p^(1/value), not normalised, (*, K) -> (*, K); value 0 keeps only the largest."""
    if value == 1.0:
        return p
    top = p.amax(-1, keepdim=True)
    if value == 0.0:
        return torch.zeros_like(p).scatter(-1, p.argmax(-1, keepdim=True), 1.0)
    return (p / top) ** (1 / value)


def top_p(p: Tensor, value: float) -> Tensor:
    """The smallest set of tokens whose mass reaches value, the others at zero; not normalised, (*, K) -> (*, K).

    The token that crosses the threshold is kept, and so are ties with it.
    """
    if value >= 1.0:
        return p
    ordered = p.sort(-1, descending=True).values
    before = ordered.cumsum(-1, dtype=torch.float64) - ordered
    kept = (before < value * p.sum(-1, keepdim=True)).sum(-1, keepdim=True).clamp_min(1)
    return torch.where(p >= ordered.gather(-1, kept - 1), p, 0.0)


def top_k(p: Tensor, value: int) -> Tensor:
    """The `value` likeliest tokens and ties with the last of them, the others at zero; not normalised, (*, K) -> (*, K)."""
    return torch.where(p >= p.topk(min(value, p.shape[-1])).values[..., -1:], p, 0.0)


def guided(pred: Prediction, heat: float = 1.0, nucleus: float = 1.0) -> Prediction:
    """The prediction with temperature `heat` and top-p `nucleus` applied to its clean posterior; itself where both are 1."""
    if heat == 1.0 and nucleus >= 1.0:
        return pred
    p = top_p(temperature(posterior(pred), heat), nucleus)
    supported = isinstance(pred, Mean) and pred.supported
    return Mean(pred.process, p / p.sum(-1, keepdim=True), pred.x_t, pred.t, supported)
