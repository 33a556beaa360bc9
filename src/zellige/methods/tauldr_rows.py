"""Objective of tauLDR (`methods.tauldr`): one jump of the noise, the two terms of the bound at a position, and tables
that compute both for chains of many states.

Shapes: x_0, x (B, L); t (B,), one time per sequence; `counted` (B, L) bool, the positions that are noised.

**The jump.** x~ is the sequence x after one jump of the noise. Among the counted positions, the one that jumps is
sampled in proportion to z(x_i), the rate at which the noise leaves its state, and its new state by the rates from x_i.
With q_t the distribution of x given x_0, and psi_t that of x~, tauLDR needs w = q_t(x~)/psi_t(x~). Since x~ and x
differ at one position only, this takes no sum over sequences:

    1/w = psi_t(x~)/q_t(x~) = sum_i sum_y R(y, x~_i) u_i(x~)_y / (Z(x~) - z(x~_i) + z(y)),   and + 1 where Z(x~) = 0

u is the score given x_0, and Z(x) = sum_i z(x_i) the rate at which the noise leaves x. The denominator is Z of the
sequence that has y in place of x~_i. The 1 is for a sequence that nothing can leave (all masks), where x~ is x itself.

**The tables.** `RowTables` computes the same sums for a batch with one time per sequence, so with one matrix Q =
Q_{0,t} each (`core.matrices`). A position needs rows of K x K tables and two products with Q, one forward and one
backward. For a mean:

    w = mu / q(x | .)    v = w Q    rho = u / v    value = sum_y R(y, x) v_y (1 - rho_y + rho_y log rho_y)
    d value / d v = R(., x) (1 - rho)       d value / d mu = (d value / d v) Q^T / q(x | .)

Leave-one-out has v = mu Q / (mu Q)[x]. `leaving` is R v (1 - rho), `signal` the other term.

**Precision.** Near t = 0 the tables are float64: w and Q have entries from 1e-170 to 1e170. Where no entry of Q is
below `FLAT`, they are float32 for the sum of both terms: it adds K terms without signs, each right to 1e-7, and loses
what is far smaller than the others (a rate below 1e-38). mu is a softmax in float32, like the logits. It takes the
precision of the tables for leave-one-out, which divides by (mu Q)[x], and for `leaving` or `signal` alone.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..core import maths, random
from ..core.by_row import by_row, part
from ..core.matrices import CTMC, LogTable
from ..core.positions import positions
from ..core.prediction import score_given
from ..core.process import Process
from ..core.random import Randomness

FLAT = 1e-12  # smallest entry of Q for float32: all numbers but the smallest rates then lie in 1e-24 to 1e24
MANY = 64  # number of states from which the tables are faster
PART = 1 << 17  # numbers in one table of `after`


def exits(process: Process) -> Tensor:
    """Exit rate z of each state at beta = 1, (K,), for a mixture with one alpha or a CTMC."""
    return -process.R.diagonal() if isinstance(process, CTMC) else 1 - process.prior


def jump(process: Process, x: Tensor, t: Tensor, counted: Tensor, generator: Randomness = None) -> Tensor:
    """Sample x~ (B, L): x after one jump of the noise at times t, at one position; x itself if none can jump."""
    leave = exits(process)[x] * counted
    stuck = leave.sum(-1, keepdim=True) == 0
    position = random.categorical(torch.where(stuck, 1.0, leave), generator)[:, None]
    distribution = process.rate_from(x.gather(-1, position), t[:, None])[:, 0]
    value = random.categorical(torch.where(stuck, 1.0, distribution), generator)[:, None]
    return torch.where(stuck, x, x.scatter(-1, position, value))


@torch.no_grad()
def after(process: Process, x_0: Tensor, x: Tensor, t: Tensor, counted: Tensor) -> Tensor:
    """Ratio 1/w = psi_t(x)/q_t(x) given x_0: (B,)."""
    z = exits(process)
    leave = z[x] * counted
    total, at = leave.sum(-1), counted & process.movable(x)  # elsewhere nothing leads into x
    where = positions(at)
    clean, state, time, other_rate = (where.of(y) for y in (x_0, x, t, total[:, None] - leave))
    share = []
    for i in torch.arange(len(state), device=x.device).split(max(1, PART // process.K)):
        into, u = process.rate_into(state[i], time[i]), score_given(process, clean[i], state[i], time[i])
        before = other_rate[i, None] + z  # Z of the sequence that jumps from each state to here
        flow = torch.where(into > 0, into * u / before, 0.0).sum(-1)  # the sum over y of 1/w, above
        share.append(flow / process.schedule.beta(time[i])[:, 0])
    return (total == 0).double().index_add(0, where.row, torch.cat(share) if share else other_rate)


def weight(after: Tensor) -> Tensor:
    """Weight w = q_t(x~)/psi_t(x~), (B,), from the result of `after`; 1 where that is 0: no jump leads to x~."""
    return torch.where(after > 0, 1 / after, 1.0)


def leaving(into: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """First term of the bound, sum_y R (v - u), (*): the rate at which the model leaves x_t, less the true rate.

    It and `signal` may be computed at different sequences (tauLDR proposition 2).

    Args:
        into: R_t(., x_t), (*, K).
        u: the score given x_0, (*, K).
        v: the score of the model, (*, K).
    """
    return (into * (v - u)).sum(-1)  # tauLDR proposition 2, the first term


def signal(into: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Second term of the bound, sum_y R u log(u / v), (*), over the jumps that lead to x_t; see `leaving`."""
    flow = into * u
    return (maths.xlogy(flow, u) - maths.xlogy(flow, v)).sum(-1)  # tauLDR proposition 2, the second


def both(into: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Sum of `leaving` and `signal`, (*): `core.bound.continuous` from its rates and scores."""
    return leaving(into, u, v) + signal(into, u, v)  # tauLDR proposition 2, its constant in it


class RowTables:
    """Tables of a CTMC for a batch with one time per sequence, (B,).

    Attributes:
        Q: Q_{0,t}, (B, K, K).
        others: whether the prediction is leave-one-out; else it is a mean.
        into: (K, K), R(y, x) at index (x, y), 0 on the diagonal.
        beta: beta_t, (B,).
    """

    def __init__(self, process: CTMC, table: LogTable, t: Tensor, others: bool):
        self.Q, self.beta = table.of(process.schedule.sigma(t)[:, 0]), process.schedule.beta(t)[:, 0]
        self.into = process.R.mT.clone().fill_diagonal_(0.0)
        self.exits, self.others = -process.R.diagonal(), others
        self.flat = (self.Q.amin((-2, -1)) > FLAT).tolist()

    def sample(self, x_0: Tensor, counted: Tensor, generator: Randomness = None) -> Tensor:
        """Sample x_t ~ q(. | x_0), (B, L); positions that are not counted stay clean."""
        rows = torch.arange(len(x_0), device=x_0.device)[:, None]
        x_t = random.from_tables(lambda states: self.Q[rows, states], self.Q.shape[-1], x_0, generator)
        return torch.where(counted, x_t, x_0)

    def after(self, x_0: Tensor, x: Tensor, counted: Tensor) -> Tensor:
        """Same as the function `after`: (B,)."""
        total, K = (self.exits[x] * counted).sum(-1), len(self.exits)
        size, flows = max(1, part(x.device) // K), []
        rows = torch.arange(len(x), device=x.device)[:, None].expand_as(x).flatten()
        for b, clean, state in zip(*(columns.split(size) for columns in (rows, x_0.flatten(), x.flatten()))):
            before = (total[b] - self.exits[state])[:, None] + self.exits  # Z of the sequence that had y in place of x
            Q = self.Q[b, clean]
            flow = (Q * (self.into[state] / before)).sum(-1)  # the sum over y of 1/w
            flows.append(flow / Q.gather(-1, state[:, None])[:, 0])
        return torch.where(counted, torch.cat(flows).view_as(total[:, None].expand_as(x)), 0.0).sum(-1) + (total == 0)

    def sum(self, f: Callable[..., Tensor], logits: Tensor, x_0: Tensor, x: Tensor, row: Tensor) -> Tensor:
        """f (`both`, `leaving` or `signal`) at N positions, ordered by sequence, from logits (N, K): (N,) float64."""
        return _Sum.apply(logits, self, f, x_0, x, row)

    def tables(self, rows: list[int], narrow: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Q of m sequences, 1/Q at index (x, x_0) and R_t(y, x) at (x, y): (m, K, K) each; float32 if `narrow`."""
        at, dtype = torch.tensor(rows, device=self.Q.device), torch.float32 if narrow else self.Q.dtype
        Q = self.Q[at].to(dtype)
        return Q, Q.mT.contiguous().reciprocal_(), (self.beta[at, None, None] * self.into).to(dtype)


def moments(
    f: Callable[..., Tensor],
    Q: Tensor,
    inverse: Tensor,
    into: Tensor,
    mu: Tensor,
    x_0: Tensor,
    x: Tensor,
    others: bool = False,
) -> tuple[Tensor, Tensor]:
    """Value (m, n) of f at n positions of each of m sequences, and its gradient (m, n, K) by the logits.

    mu (m, n, K) is the softmax of the logits.
    """
    row, at = torch.arange(len(x), device=x.device)[:, None], x[..., None]
    q, slope = inverse[row, x], into[row, x]
    v = (mu if others else q * mu) @ Q  # tauLDR proposition 1
    v_x_t = v.gather(-1, at) if others else None
    v = v if v_x_t is None else v / v_x_t
    excess = Q[row, x_0].mul_(q.gather(-1, x_0[..., None])).sub_(v).div_(v)  # rho - 1
    excess.clamp_min_(-1 + torch.finfo(v.dtype).eps)  # of u = 0, where the value is R v
    if f is leaving:
        values, by_v = -excess, -slope
    else:
        values, by_v = excess.log1p().mul_(excess + 1), slope * (excess if f is both else excess + 1)
    if f is both:
        values.sub_(excess)  # keeps its digits where rho is near 1
    value = values.mul_(v).mul_(slope).sum(-1)  # tauLDR proposition 2
    if v_x_t is not None:
        by_v.scatter_add_(-1, at, -(by_v * v).sum(-1, keepdim=True))
        return value, -mu * ((by_v / v_x_t) @ Q.mT)  # the sum of mu times its slope is 0
    gradient = (by_v @ Q.mT).mul_(q)
    return value, mu * ((gradient * mu).sum(-1, keepdim=True) - gradient)


def rows_of(process: Process, network: nn.Module, t: Tensor, others: bool = False) -> RowTables | None:
    """Tables of a batch at times t (B,); None where `table_of` is None."""
    table = table_of(process, network)
    return RowTables(process, table, t, others) if isinstance(process, CTMC) and table is not None else None


def table_of(process: Process, network: nn.Module) -> LogTable | None:
    """Logarithms from which `RowTables` is made, cached with the process.

    None if the process is not a CTMC in float64 with `MANY` states, the network is in float64 or has no parameters,
    sigma is not in (0, inf) at both ends, or an entry of Q is too small (`LogTable.whole`).
    """
    if not isinstance(process, CTMC) or process.K < MANY or process.R.dtype != torch.float64:
        return None
    dtypes = {p.dtype for p in network.parameters()}
    if not dtypes or torch.float64 in dtypes:
        return None
    if process.cache.logs is None or process.cache.logs.logs.device != process.R.device:
        low, high = (float(process.schedule.sigma(end)[0]) for end in (0.0, 1.0))
        process.cache.logs = LogTable(process, low, high) if 0 < low < high < math.inf else None
    table = process.cache.logs
    return table if table is not None and table.whole else None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, rows, f, x_0, x, row):
        N, K = logits.shape
        gradient, values = logits.new_empty(N + 1, K), logits.new_empty(N + 1, dtype=torch.float64)
        kinds = [f is both and flat for flat in rows.flat]  # large terms cancel in the sum; a single term is float64
        for row_list, index in by_row(row, K, kinds):
            Q, inverse, into = rows.tables(row_list, kinds[row_list[0]])
            at, dtype = index.clamp_max(N - 1), Q.dtype if rows.others or f is not both else logits.dtype
            value, slope = moments(f, Q, inverse, into, logits[at].to(dtype).softmax(-1), x_0[at], x[at], rows.others)
            gradient[index], values[index] = slope.to(gradient), value.double()
        ctx.save_for_backward(gradient[:N])
        return values[:N]

    @staticmethod
    @once_differentiable
    def backward(ctx, by_value):
        return ctx.saved_tensors[0] * by_value[:, None].to(ctx.saved_tensors[0]), None, None, None, None, None
