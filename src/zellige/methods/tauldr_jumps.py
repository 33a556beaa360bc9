"""One jump of the noise: x~, the sequence x after it, and how much likelier a sequence is once it has happened.

Of the positions that count one jumps, drawn by the rate z(x_i) at which the noise leaves its state, to where R leads from there.
With q_t the law of x given x_0 and psi_t that of x~, tauLDR (`methods.tauldr`) asks for w = q_t(x~)/psi_t(x~); since x~ came from
a sequence that differs at one position only, no sum over sequences is needed:

    1/w = psi_t(x~)/q_t(x~) = sum_i sum_y R(y, x~_i) u_i(x~)_y / (Z(x~) - z(x~_i) + z(y)),   and + 1 where Z(x~) = 0

u the score given x_0, Z(x) = sum_i z(x_i) the rate at which the noise leaves x: the denominator is that of the sequence that has
y in place of x~_i. Where nothing can leave x (all are masks) x~ is x itself: that is the 1.

Shapes: x_0, x (B, L), t (B,) one time for each row; `counted` (B, L) bool, the positions that are noised at all.
"""

import torch
from torch import Tensor

from ..core import maths, random
from ..core.matrices import CTMC
from ..core.prediction import score_given
from ..core.process import Process
from ..core.random import Randomness

PART = 1 << 17  # numbers in one table of `after`


def exits(process: Process) -> Tensor:
    """z, the rate at which each state is left at beta = 1: (K,). Of a mixture with one alpha, or a CTMC."""
    return -process.R.diagonal() if isinstance(process, CTMC) else 1 - process.prior


def jump(process: Process, x: Tensor, t: Tensor, counted: Tensor, generator: Randomness = None) -> Tensor:
    """x~ (B, L): x after the next jump of the noise at times t, at one position; x itself if none can jump."""
    leave = exits(process)[x] * counted
    stuck = leave.sum(-1, keepdim=True) == 0
    place = random.categorical(torch.where(stuck, 1.0, leave), generator)[:, None]
    law = process.rate_from(x.gather(-1, place), t[:, None])[:, 0]
    value = random.categorical(torch.where(stuck, 1.0, law), generator)[:, None]
    return torch.where(stuck, x, x.scatter(-1, place, value))


@torch.no_grad()
def after(process: Process, x_0: Tensor, x: Tensor, t: Tensor, counted: Tensor) -> Tensor:
    """1/w = psi_t(x)/q_t(x) given x_0, how much likelier x is after one more jump: (B,)."""
    z = exits(process)
    leave = z[x] * counted
    total, at = leave.sum(-1), counted & process.movable(x)  # elsewhere nothing leads into x
    row = at.nonzero()[:, 0]
    clean, here, time, others = x_0[at], x[at], t[row], total[row] - leave[at]
    share = []
    for i in torch.arange(len(row), device=x.device).split(max(1, PART // process.K)):
        into, u = process.rate_into(here[i], time[i]), score_given(process, clean[i], here[i], time[i])
        before = others[i, None] + z  # Z of the sequence that jumps from each state to here
        flow = torch.where(into > 0, into * u / before, 0.0).sum(-1)  # the sum over y of 1/w, above
        share.append(flow / process.schedule.beta(time[i])[:, 0])
    return (total == 0).double().index_add(0, row, torch.cat(share) if share else others)


def weight(process: Process, x_0: Tensor, x: Tensor, t: Tensor, counted: Tensor) -> Tensor:
    """w = q_t(x)/psi_t(x) given x_0, for x after a jump: (B,)."""
    psi = after(process, x_0, x, t, counted)
    return torch.where(psi > 0, 1 / psi, 1.0)  # 0 where x is no jump's end


def leaving(into: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """sum_y R (v - u), (*): how much faster the model leaves x_t than the truth does; into = R_t(., x_t), the scores u, v (*, K).

    The first term of tauLDR's proposition 2; it and the second may be drawn at different sequences.
    """
    return (into * (v - u)).sum(-1)  # tauLDR proposition 2, the first term


def signal(into: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """sum_y R u log(u / v), (*), as in `leaving`: the second term, summed over all jumps of the noise that lead to x_t."""
    flow = into * u
    return (maths.xlogy(flow, u) - maths.xlogy(flow, v)).sum(-1)  # tauLDR proposition 2, the second


def both(into: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Their sum, (*): `continuous` from its rates and scores."""
    return leaving(into, u, v) + signal(into, u, v)  # tauLDR proposition 2, its constant in it
