"""The family of uniform noise (UDLM): a noisy token is any token; the closed forms serve SEDD and D3PM too.

The functions give the bound and a step from the network's logits, without a table of K x K; `Uniform` is the method
whose network parameterizes p(x_0 | the other positions). Another parameterization under uniform noise is a subclass
with a schedule that overrides `read` with its `cost`, `corrupt` or `loss`.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..core import maths
from ..core.prediction import LeaveOneOut
from ..core.process import Process, uniform
from ..core.schedule import Schedule
from .diffusion import Diffusion


class Uniform(Diffusion):
    """Uniform noise with one alpha for all tokens; the network parameterizes p(x_0 | the other positions).

    Such a distribution mu takes the place of x_0 in the posterior. Its scores are v_y = w(mu)_y / w(mu)_z, z = x_t,
    with w(x)_y / (1 - alpha) = 1 + x_y K / (e^sigma - 1).

    Args:
        schedule: one alpha for all tokens.
    The others are those of `Method`.
    """

    parameterization = "leave_one_out"

    def __init__(
        self,
        network: nn.Module | None,
        vocabulary: int,
        shape: tuple[int, ...],
        config: Any,
        schedule: Schedule,
        timed: bool,
        steps: int = 0,
    ):
        super().__init__(network, vocabulary, shape, config, uniform(vocabulary, schedule), timed, steps)

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary

    def read(self, logits, x_t, t):
        return LeaveOneOut(self.process, logits.softmax(-1), x_t, t)  # D3PM eq. 4

    def cost(self, logits, x_0, x_t, t, s=None):
        if s is not None:
            return super().cost(logits, x_0, x_t, t, s)
        odds = self.process.K * self.process.schedule.odds(t)
        log_w = (logits.softmax(-1) * odds.to(logits)).log1p()  # log w(mu), its scores' numerator
        return uniform_bound(self.process, log_w - log_w.gather(-1, x_t[:, None]), x_0, x_t, t)


def uniform_bound(process: Process, log_v: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
    """`continuous` under uniform noise, from log scores log_v (N, K) in any precision; x_0, x_t, t (N,): (N,) float64.

        beta/K sum_{y != x_t} u_y [ e^d_y - 1 - d_y ],   d = log v - log u,   r = 1 + K / (e^sigma - 1)
        u, the score given x_0, is 1/r at x_t = x_0; elsewhere 1, but r at y = x_0

    Nothing cancels: d is small where v is near u. Besides log_v, and for its gradient, one table of its size is held.
    """
    log_r = torch.log1p(process.K * process.schedule.odds(t)[:, 0])
    same = x_t == x_0  # (N,)
    log_u = torch.where(same, -log_r, 0.0)  # for all y but x_0
    d = (log_v - log_u[:, None].to(log_v)).scatter(-1, torch.stack((x_t, x_0), -1), 0.0)  # (N, K), 0 at x_t and x_0
    at_x_0 = log_v.gather(-1, x_0[:, None])[:, 0].double() - log_r
    jump = torch.where(same, 0.0, log_r.exp() * (at_x_0.expm1() - at_x_0))
    excess = (d.expm1() - d).sum(-1) if torch.compiler.is_compiling() else _Excess.apply(d)
    others = log_u.exp() * excess.double()  # (N,): sum over y != x_t, x_0
    return process.schedule.beta(t)[:, 0] / process.K * (others + jump)  # SEDD theorem 3.6


def uniform_step(process: Process, logits: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor, s: Tensor) -> Tensor:
    """`discrete` of the step from t to s under uniform noise, logits (N, K) of a LeaveOneOut mu, the rest (N,): (N,)
    float64.

    With Q_{0,s} = alpha_s I + w 1 1', Q_{s,t} = a I + u 1 1', n_0 = q(x_t | x_0), n = (mu Q_{0,t})[x_t]

        n_0 q(y | x_t, x_0) = u w + a w [y = x_t] + alpha_s u [y = x_0] + a alpha_s [y = x_t = x_0]
        KL = sum_y q(y | x_t, x_0) log( (alpha_s [y = x_0] + w) / (alpha_s mu_y + w) ) + log(n / n_0)

    so that of all states only sum_y log(1 + mu_y alpha_s / w) is asked.
    """
    K, same = process.K, x_t == x_0
    alpha_t, alpha_s = (process.schedule.alpha(u)[..., 0] for u in (t, s))
    a, w = alpha_t / alpha_s, (1 - alpha_s) / K
    u, odds = (1 - a) / K, torch.where(w > 0, alpha_s / torch.where(w > 0, w, 1.0), 0.0)
    log_mu = logits.log_softmax(-1)
    log_sum = (log_mu.exp() * odds[:, None].to(logits)).log1p().sum(-1).double()
    mu_t, mu_0 = log_mu.gather(-1, torch.stack([x_t, x_0], -1)).double().exp().unbind(-1)
    n, n_0 = alpha_t * mu_t + (1 - alpha_t) / K, alpha_t * same + (1 - alpha_t) / K
    at_x_t = maths.xlogy(a * w, (alpha_s * same + w) / (alpha_s * mu_t + w))
    at_x_0 = maths.xlogy(alpha_s * (u + a * same), (alpha_s + w) / (alpha_s * mu_0 + w))
    return (u * w * (odds.log1p() - log_sum) + at_x_t + at_x_0 + maths.xlogy(n_0, n / n_0)) / n_0  # D3PM eq. 1


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


def as_others(process: Process, logits: Tensor, x_t: Tensor, t: Tensor, at: Tensor) -> Tensor:
    """Convert logits (*, K) of p(x_0 | x_t) to those of p(x_0 | the other positions) under uniform noise, at `at` (*)
    bool.

    They are less log q(x_t | x_0), a constant but at x_0 = x_t.
    """
    log_q = torch.where(at, _log_kept(process, t), 0.0).to(logits)
    return logits.scatter_add(-1, x_t[..., None], -log_q[..., None])  # Bayes: less log q(x_t | x_0)


def as_mean(process: Process, logits: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
    """Convert logits (*, K) of p(x_0 | the other positions) to those of p(x_0 | x_t): the inverse of `as_others`."""
    log_q = _log_kept(process, t).to(logits)
    return logits.scatter_add(-1, x_t[..., None], log_q[..., None])  # Bayes: and log q(x_t | x_0)


def _log_kept(process: Process, t: Tensor) -> Tensor:
    """log q(x_t | x_0) at x_0 = x_t, less its value at any other x_0; 0 without noise."""
    alpha = process.schedule.alpha(t)[..., 0]
    return torch.where(alpha < 1, torch.log1p(process.K * alpha / (1 - alpha)), 0.0)
