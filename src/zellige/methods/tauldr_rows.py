"""tauLDR's objective: one jump of the noise, the terms at a position, and both from tables where a chain has many
states.

The jump: x~, the sequence x after it, and how much likelier a sequence is once it has happened. Of the positions that
count one jumps, drawn by the rate z(x_i) at which the noise leaves its state, to where R leads from there. With q_t the
distribution of x given x_0 and psi_t that of x~, tauLDR (`methods.tauldr`) asks for w = q_t(x~)/psi_t(x~); since x~
came from a sequence that differs at one position only, no sum over sequences is needed:

    1/w = psi_t(x~)/q_t(x~) = sum_i sum_y R(y, x~_i) u_i(x~)_y / (Z(x~) - z(x~_i) + z(y)),   and + 1 where Z(x~) = 0

u the score given x_0, Z(x) = sum_i z(x_i) the rate at which the noise leaves x: the denominator is that of the sequence
that has y in place of x~_i. Where nothing can leave x (all are masks) x~ is x itself: that is the 1.

The tables (`RowTables`) hold the same sums for a batch with one time for each row, and so one matrix Q_{0,t}, from
`core/matrices.py`. What a position needs are rows of K x K tables and two products with Q, one forward and one back. Of
a mean:

    w = mu / q(x | .)    v = w Q    rho = u / v    value = sum_y R(y, x) v_y (1 - rho_y + rho_y log rho_y)
    d value / d v = R(., x) (1 - rho)       d value / d mu = (d value / d v) Q' / q(x | .)

Leave-one-out has v = mu Q / (mu Q)[x]. `leaving` is R v (1 - rho), `signal` the rest.

mu is a softmax in float32, the logits being so; leave-one-out, which divides by what is left of it at x, takes it in
the precision of the rest. Near t = 0 that is float64: w and Q reach from 1e-170 to 1e170. From where no entry of Q is
below `FLAT`, it is float32 too: sums of K terms without signs, of which each is right to 1e-7, and what is far less
than another (a rate below 1e-38) is lost. Nothing is gathered, masked or computed twice.

Shapes: x_0, x (B, L), t (B,) one time for each row; `counted` (B, L) bool, the positions that are noised at all.
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

FLAT = 1e-12  # an entry of Q from which float32 has room: no number but of the smallest rates leaves 1e-24 to 1e24
MANY = 64  # states, from which the tables pay
PART = 1 << 17  # numbers in one table of `after`


def exits(process: Process) -> Tensor:
    """z, the rate at which each state is left at beta = 1: (K,). Of a mixture with one alpha, or a CTMC."""
    return -process.R.diagonal() if isinstance(process, CTMC) else 1 - process.prior


def jump(process: Process, x: Tensor, t: Tensor, counted: Tensor, generator: Randomness = None) -> Tensor:
    """x~ (B, L): x after the next jump of the noise at times t, at one position; x itself if none can jump."""
    leave = exits(process)[x] * counted
    stuck = leave.sum(-1, keepdim=True) == 0
    position = random.categorical(torch.where(stuck, 1.0, leave), generator)[:, None]
    distribution = process.rate_from(x.gather(-1, position), t[:, None])[:, 0]
    value = random.categorical(torch.where(stuck, 1.0, distribution), generator)[:, None]
    return torch.where(stuck, x, x.scatter(-1, position, value))


@torch.no_grad()
def after(process: Process, x_0: Tensor, x: Tensor, t: Tensor, counted: Tensor) -> Tensor:
    """1/w = psi_t(x)/q_t(x) given x_0, how much likelier x is after one more jump: (B,)."""
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
    """w = q_t(x~)/psi_t(x~), (B,), from what `after` gives; 1 where that is 0, and x~ is no jump's end."""
    return torch.where(after > 0, 1 / after, 1.0)


def leaving(into: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """sum_y R (v - u), (*): how much faster the model leaves x_t than the truth does; into = R_t(., x_t), the scores u,
    v (*, K).

    The first term of tauLDR's proposition 2; it and the second may be drawn at different sequences.
    """
    return (into * (v - u)).sum(-1)  # tauLDR proposition 2, the first term


def signal(into: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """sum_y R u log(u / v), (*), as in `leaving`: the second term,
    summed over all jumps of the noise that lead to x_t."""
    flow = into * u
    return (maths.xlogy(flow, u) - maths.xlogy(flow, v)).sum(-1)  # tauLDR proposition 2, the second


def both(into: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Their sum, (*): `continuous` from its rates and scores."""
    return leaving(into, u, v) + signal(into, u, v)  # tauLDR proposition 2, its constant in it


class RowTables:
    """A batch of rows with a time each, (B,), on a CTMC.

    Attributes:
        Q: Q_{0,t}, (B, K, K).
        others: whether the prediction is leave-one-out, and no mean.
        into: R(y, x) as (x, y), 0 on the diagonal.
        beta: (B,)
    """

    def __init__(self, process: CTMC, table: LogTable, t: Tensor, others: bool):
        self.Q, self.beta = table.of(process.schedule.sigma(t)[:, 0]), process.schedule.beta(t)[:, 0]
        self.into = process.R.mT.clone().fill_diagonal_(0.0)
        self.exits, self.others = -process.R.diagonal(), others
        self.flat = (self.Q.amin((-2, -1)) > FLAT).tolist()

    def sample(self, x_0: Tensor, counted: Tensor, generator: Randomness = None) -> Tensor:
        """x_t ~ q(. | x_0), (B, L); what does not count stays clean."""
        rows = torch.arange(len(x_0), device=x_0.device)[:, None]
        x_t = random.from_tables(lambda states: self.Q[rows, states], self.Q.shape[-1], x_0, generator)
        return torch.where(counted, x_t, x_0)

    def after(self, x_0: Tensor, x: Tensor, counted: Tensor) -> Tensor:
        """As the function `after`: (B,)."""
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
        """f (`both`, `leaving`, `signal`) at N positions, their rows in order, from logits (N, K): (N,) float64."""
        return _Sum.apply(logits, self, f, x_0, x, row)

    def tables(self, rows: list[int], narrow: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Q of m rows, 1/Q as (x, x_0) and R_t(y, x) as (x, y), each (m, K, K); float32 if `narrow`."""
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
    """The value (m, n) of f at n positions of each of m rows, its gradient (m, n, K) by the logits;
    mu is their softmax."""
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
    """The tables of rows at times t (B,), or None: of a network in float64, of few states, where an entry of Q is 0."""
    table = table_of(process, network)
    return RowTables(process, table, t, others) if isinstance(process, CTMC) and table is not None else None


def table_of(process: Process, network: nn.Module) -> LogTable | None:
    """The logarithms of which `RowTables` are made, kept with the process; None where `rows_of` is."""
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
        kinds = [f is both and flat for flat in rows.flat]  # of the parts the flows cancel in their sum alone
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
