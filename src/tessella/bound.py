"""The two bounds of a step of time, per position and in nats, and the first term of -ELBO.

An upper bound on -log p(x_0) has three terms (DDPM's L_T, L_t, L_0; here each end of time is a jump of its own):

    prior            KL( q(x | x_0) || prior ) where sampling starts, and the jump PRIOR -> t = 1 for an absorbing process
    diffusion        the integral over t in (0, 1) of `continuous`, or a sum of `discrete` over a grid
    reconstruction   the jump t = 0 -> CLEAN, which is -log p(x_0 | x_{t=0})

Jumps are `discrete` too, with s or t at CLEAN or PRIOR. The methods assemble the terms; `exact.py` integrates them.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import maths
from .prediction import Prediction, kernel, score
from .process import Process


def discrete(target: Prediction, pred: Prediction, s: Tensor | float) -> Tensor:
    """KL( q(x_s | x_t, x_0) || p(x_s | x_t) ), (*): D3PM eq. 1 and MD4 eq. 3; s = CLEAN gives -log p(x_0 | x_t)."""
    return maths.kl(kernel(target, s), kernel(pred, s))


def continuous(target: Prediction, pred: Prediction) -> Tensor:
    """sum_y R_t(y, x_t) [v - u + u log(u / v)] with u, v the scores of target and prediction, (*), per unit of time.

    The one continuous-time bound: SEDD's score entropy (eq. 5), MDLM's eq. 10 and MD4's eq. 4, RADD's t-DSE, and
    tauLDR's ELBO up to a constant. t in the open interval (0, 1).
    """
    into = pred.process.rate_into(pred.x_t, pred.t)
    return (into * maths.score_entropy(score(target), score(pred))).sum(-1)


def uniform(process: Process, log_v: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
    """`continuous` under uniform noise, from log scores log_v (N, K) in any precision; x_0, x_t, t (N,): (N,) float64.

        beta/K sum_{y != x_t} u_y [ e^d_y - 1 - d_y ],   d = log v - log u,   r = 1 + K / (e^sigma - 1)
        u, the score given x_0, is 1/r at x_t = x_0; elsewhere 1, but r at y = x_0

    Nothing cancels: d is small where v is near u. Besides log_v, and for its gradient, one table of its size is held.
    """
    log_r = torch.log1p(process.K / process.schedule.sigma(t)[:, 0].expm1())
    kept = x_t == x_0
    log_u = torch.where(kept, -log_r, 0.0)  # for all y but x_0
    d = (log_v - log_u[:, None].to(log_v)).scatter_(-1, torch.stack((x_t, x_0), -1), 0.0)
    at_x_0 = log_v.gather(-1, x_0[:, None])[:, 0].double() - log_r
    jump = torch.where(kept, 0.0, log_r.exp() * (at_x_0.expm1() - at_x_0))
    rest = log_u.exp() * _Excess.apply(d).double()
    return process.schedule.beta(t)[:, 0] / process.K * (rest + jump)


class _Excess(torch.autograd.Function):
    """sum of e^d - 1 - d over the last axis. e^d - 1 is its gradient, so that is all it keeps."""

    @staticmethod
    def forward(ctx, d):
        gradient = d.expm1()
        ctx.save_for_backward(gradient)
        return (gradient - d).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (gradient,) = ctx.saved_tensors
        return gradient * grad[..., None]


def prior(process: Process, x_0: Tensor, t: Tensor | float) -> Tensor:
    """KL( q(x_t | x_0) || prior ), (*)."""
    return process.divergence(x_0, t)
