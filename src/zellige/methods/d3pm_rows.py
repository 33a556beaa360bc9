"""KL of D3PM's step on a chain of many states, from tables that the positions of a sequence share.

It is the KL of `core.bound.discrete`. A sequence has one time, so one matrix Q_{0,s} and one Q_{s,t}. A position needs
rows of these and two products with Q_{0,s}, one forward and one backward. At state y of x_s, with a = q(x_t | x_s = y),
and ~ for "in proportion to":

    q* ~ a Q_{0,s}[x_0]        w = p~ Q_{0,s},  p ~ a w                                                 (D3PM eq. 4)
    KL = sum_y q* log(q*/p) + p - q*          d KL / d w = (p - q*)/w,  d KL / d p~ = (d KL / d w) Q_{0,s}^T

p~ is the softmax of the logits; for a mean it is divided by q(x_t | x_0). p and q* are normalised by sums over y,
without Q_{0,t}. Each term of the KL is 0 or more, and log(q*/p) is log1p((q* - p)/p), so T times a KL of 1e-5 keeps its
digits.

**Precision.** p~ is float32, like the logits. The tables are float64 while Q_{0,s} has entries below `FLAT` (the first
tenth of the paper's 1,000 steps on 256 pixel values), then float32, for sums of K terms without signs. A term of the KL
is the square of the relative difference of p and q*, and this is right to 1e-7 of p; so the nearer p is to q*, the
fewer digits are right. With 256 values, Gaussian noise, T = 1,000 and random logits, the KL of one position is right to
2e-7 at t = 0.05, to 1e-4 at 0.3 and to 5e-3 at 0.9, where the sum of 64 of them is right to 2e-6. For a network near
the truth, whose KL there is 1e-10, it is right to 2e-4.
"""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..core import random
from ..core.by_row import by_row
from ..core.matrices import Chain
from ..core.process import Process
from ..core.random import Randomness
from ..core.schedule import CLEAN

FLAT = 1e-12  # smallest entry of Q_{0,s} for float32: ratios then lie in 1e-12 to 1e12
MANY = 64  # number of states from which the tables are faster


class RowTables:
    """Tables of a chain for a batch with one step per sequence, from t to s, (B,) each.

    `mean` (B,) bool tells for each sequence whether p~ is p(x_0 | x_t).

    Attributes:
        before: Q_{0,s} of each sequence, (B, K, K).
        jump: Q_{s,t}, (B, K, K).
        kinds: for each sequence `mean`, and whether all entries of Q_{0,s} are above `FLAT`.
    """

    def __init__(self, process: Chain, t: Tensor, s: Tensor, mean: Tensor):
        self.before, self.jump = process.matrix(CLEAN, s), process.matrix(s, t)
        self.kinds = list(zip(mean.tolist(), (self.before.amin((-2, -1)) > FLAT).tolist()))

    def sample(self, x_0: Tensor, counted: Tensor, generator: Randomness = None) -> Tensor:
        """Sample x_t ~ q(. | x_0), (B, L); positions that are not counted stay clean."""
        rows = torch.arange(len(x_0), device=x_0.device)[:, None]
        K = self.jump.shape[-1]
        x_t = random.from_tables(lambda states: self.before[rows, states] @ self.jump, K, x_0, generator)
        return torch.where(counted, x_t, x_0)

    def loss(self, logits: Tensor, x_0: Tensor, x_t: Tensor, row: Tensor, scale: float, auxiliary: float) -> Tensor:
        """Sum of `scale` times the KL and `auxiliary` times the cross-entropy, at N positions: (N,) float64.

        The positions are ordered by sequence, `row` (N,). The logits of p~ are (N, K).
        """
        return _Step.apply(logits, self, x_0, x_t, row, scale, auxiliary)

    def tables(self, rows: list[int]) -> tuple[Tensor, Tensor, Tensor | None]:
        """Tables of m sequences of one kind, (m, K, K) each: Q_{0,s}, Q_{s,t} at index (x_t, x_s), and 1/Q_{0,t}.

        1/Q_{0,t}, at index (x_t, x_0), is 0 where Q_{0,t} is 0. It is None for leave-one-out.
        """
        (mean, flat), at = self.kinds[rows[0]], torch.tensor(rows, device=self.jump.device)
        dtype = torch.float32 if flat else torch.float64
        before, jump = self.before[at], self.jump[at]
        Q, into = before.to(dtype), jump.to(dtype).mT.contiguous()
        if not mean:
            return Q, into, None
        likely = (before @ jump).mT
        return Q, into, torch.where(likely > 0, 1 / likely, 0.0).to(dtype)


def moments(
    Q: Tensor, into: Tensor, inverse: Tensor | None, mu: Tensor, x_0: Tensor, x_t: Tensor
) -> tuple[Tensor, Tensor]:
    """KL (m, n) at n positions of each of m sequences, and its gradient (m, n, K) by the logits.

    mu (m, n, K) is the softmax of the logits.
    """
    row, tiny = torch.arange(len(x_t), device=x_t.device)[:, None], torch.finfo(Q.dtype).tiny
    likely, mu = into[row, x_t], mu.to(Q.dtype)
    weight = mu if inverse is None else inverse[row, x_t].mul_(mu)
    target = _normalised(Q[row, x_0].mul_(likely))
    w = weight @ Q
    p = _normalised(likely.mul_(w))  # D3PM eq. 4
    less = target - p
    excess = (less / p.clamp_min_(tiny)).clamp_min_(-1 + torch.finfo(Q.dtype).eps)  # of target = 0, where the term is p
    value = excess.log1p_().mul_(target).sub_(less).sum(-1)
    return value, (less.div_(w.clamp_min_(tiny)).neg_() @ Q.mT).mul_(weight)  # the sum of mu times the slope is 0


def _normalised(weights: Tensor) -> Tensor:
    return weights.div_(weights.sum(-1, keepdim=True))


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, rows, x_0, x_t, row, scale, auxiliary):
        log_mu, (N, K) = logits.log_softmax(-1), logits.shape
        mu, gradient, values = log_mu.exp(), logits.new_empty(N + 1, K), logits.new_empty(N + 1, dtype=torch.float64)
        for row_list, index in by_row(row, K, rows.kinds):
            at = index.clamp_max(N - 1)
            Q, into, inverse = rows.tables(row_list)
            value, slope = moments(Q, into, inverse, mu[at], x_0[at], x_t[at])
            gradient[index], values[index] = slope.mul_(scale).to(gradient), scale * value.double()
        gradient, values, log_p = gradient[:N], values[:N], log_mu.gather(-1, x_0[:, None])
        gradient.add_(mu, alpha=auxiliary).scatter_add_(-1, x_0[:, None], torch.full_like(log_p, -auxiliary))
        ctx.save_for_backward(gradient)
        return values - auxiliary * log_p[:, 0]  # D3PM eq. 5

    @staticmethod
    @once_differentiable
    def backward(ctx, by_value):
        return ctx.saved_tensors[0] * by_value[:, None].to(ctx.saved_tensors[0]), None, None, None, None, None, None


def rows_of(process: Process, network: nn.Module, t: Tensor, s: Tensor, mean: Tensor) -> RowTables | None:
    """Tables of a batch for steps from t to s (B,).

    None in a compiled step, for a network in float64 or without parameters, and if the process is not a `Chain` in
    float64 with `MANY` states.
    """
    if torch.compiler.is_compiling():  # the choice of float64 reads values
        return None
    if not isinstance(process, Chain) or process.K < MANY or process.prior.dtype != torch.float64:
        return None
    dtypes = {p.dtype for p in network.parameters()}
    return None if not dtypes or torch.float64 in dtypes else RowTables(process, t, s, mean)
