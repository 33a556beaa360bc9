"""The terms of L_vb as D3PM's published image code computes them, with eps inside every logarithm.

    L_t    KL(q || p), each in proportion to (q(x_t | x_s) + eps) (law of x_s + eps), of x_0 and of p~; eq. 4
    L_0    -log p~(x_0 | x_1), the softmax as it is: with an eps there is no x_0 that x_1 cannot come from
    L_T    sum of q(x_T | x_0) [ log(q(x_T | x_0) + eps) - log(prior + eps) ]

The code has eps = 1e-6. As eps falls to 0 the first becomes the KL of the two posteriors and the last that of L_T, while L_0
stays what it is: -log p~ restricted to where x_1 can come from, and -log of the mass that p~ has there. Numbers to compare with
published ones, and no bounds.
"""

import torch
from torch import Tensor

from ..core import maths
from ..core.process import Process
from ..core.schedule import CLEAN


def step(process: Process, logits: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor, s: Tensor, eps: float) -> Tensor:
    """L_t of the step from t to s, at s = CLEAN L_0, from logits (N, K) of p~; the others are (N,): (N,) nats."""
    log_mu = logits.log_softmax(-1).to(process.prior)
    likely = process.likelihood(x_t, s, t) + eps
    q, p = (
        maths.normalise(likely * (process.push(law, CLEAN, s) + eps)) for law in (process.one_hot(x_0), log_mu.exp())
    )
    return torch.where(
        s == CLEAN, -log_mu.gather(-1, x_0[:, None])[:, 0], maths.kl(q, p)
    )  # D3PM eq. 1, a term of the sum


def prior(process: Process, x_0: Tensor, eps: float) -> Tensor:
    """L_T at each position, x_0 (*): (*) nats."""
    q = process.law(x_0, 1.0)
    return (maths.xlogy(q, q + eps) - maths.xlogy(q, process.prior + eps)).sum(-1)  # D3PM eq. 1, its first term
