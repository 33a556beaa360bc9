"""exp(R h) of a generator between the times at which it was made: log exp(R h), interpolated entry by entry in log h.

What `CTMC` makes by squaring costs some ten products of K x K for each time; here it is one polynomial for each entry. A
logarithm that is e off is a probability that is e off in proportion, however small it is: so ratios keep their digits.

In u = log h the logarithm of an entry is a line where m jumps lead there, then falls like A e^-u, A e^-u <= 700 (a float64
holds no less than e^-708), and then to that of the prior; its singularities lie about pi/2 off the real line or beyond. Six
nodes to an octave, twelve to a polynomial, leave less than `ERROR`.
"""

import math

import torch
from torch import Tensor

from .matrices import CTMC

OCTAVE = 6  # nodes at h, h 2^(1/6), h 2^(2/6), ...
NODES = 12  # of a polynomial
ERROR = 5e-8  # of an entry, in proportion
LEAST = 1e-290  # an entry below which a float64 loses digits


class LogTable:
    """The logarithms of exp(R h) at nodes h from below `low` to beyond `high`, float64.

    Of a reversible R prior_i exp(R h)_ij is symmetric, so one triangle of each is here, (J, K (K + 1)/2).

    Attributes:
        whole: False where there is no table: R is not reversible, or an entry is too small (birth and death on many states).
    """

    def __init__(self, process: CTMC, low: float, high: float):
        self.process, K, before = process, process.K, NODES // 2 - 1
        flow, root = process.prior[:, None] * process.R, process.prior.sqrt()
        i, j = torch.triu_indices(K, K, device=flow.device)
        self.place = torch.empty(K, K, dtype=torch.long, device=flow.device)  # of an entry in its triangle
        self.place[i, j] = self.place[j, i] = torch.arange(len(i), device=flow.device)
        self.tilt = root / root[:, None]  # from the symmetric form to exp(R h)
        self.first = 0.99 * low * 2 ** (-before / OCTAVE)
        count = math.ceil(OCTAVE * math.log2(high / low)) + NODES + 1
        self.last = self.first * 2 ** ((count - NODES + before) / OCTAVE)
        self.logs, octave = flow.new_empty(count, len(i)), []
        self.whole = torch.allclose(flow, flow.mT, rtol=1e-10, atol=LEAST)
        for n in range(count if self.whole else 0):
            if n < OCTAVE:
                Q = process.uniformised(flow.new_tensor([self.first * 2 ** (n / OCTAVE)]))[0]
            else:
                Q = octave.pop(0)
                Q = Q @ Q  # an octave on
            octave.append(Q / Q.sum(-1, keepdim=True))
            self.logs[n] = (octave[-1] / self.tilt)[i, j].log()
            if octave[-1].min() < LEAST:
                self.whole = False
                break

    def of(self, h: Tensor) -> Tensor:
        """exp(R h), (U,) -> (U, K, K)."""
        u = (h / self.first).log2() * OCTAVE
        i = u.floor() - (NODES // 2 - 1)
        beyond = (i < 0) | (h > self.last)
        i = i.clamp(0, len(self.logs) - NODES)
        weights = _lagrange(u - i)
        triangle = h.new_zeros(len(h), self.logs.shape[1])
        for n in range(NODES):  # of all times at once
            triangle.addcmul_(weights[n][:, None], self.logs[i.long() + n])
        Q = triangle.exp_()[:, self.place].mul_(self.tilt)
        Q.div_(Q.sum(-1, keepdim=True))
        if beyond.any():
            Q[beyond] = self.process.exponential(h[beyond])
        return Q


def _lagrange(u: Tensor) -> Tensor:
    """The weights of the values at 0, 1, .., NODES - 1 in their polynomial's value at u: (U,) -> (NODES, U)."""
    n = torch.arange(NODES, dtype=u.dtype, device=u.device)
    itself = torch.eye(NODES, dtype=torch.bool, device=u.device)
    factors = (u[:, None, None] - n) / (n[:, None] - n)  # (U, i, j)
    return torch.where(itself, 1.0, factors).prod(-1).mT
