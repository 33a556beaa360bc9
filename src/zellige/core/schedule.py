"""Noise schedules: alpha_t, the probability that a token is not yet noised at time t.

Time t runs from 0 (the clean end) to 1 (the noisy end). Clean data and the prior are *not* t = 0 and t = 1: they have
alpha = 1 and alpha = 0 by definition, and their own times, CLEAN and PRIOR. A published schedule lies between them: it
may start below 1 (MD4's eps, SEDD's sigma_min) and end above 0 (the eps of loglinear).

CLEAN and PRIOR are -inf and +inf. So a tensor of times may contain them (one position clean, its neighbour noisy), and
the order s <= t is right.

**The ends** are the parts with alpha below alpha(1) or above alpha(0). A model passes them in one of two ways. Either
a jump leads from PRIOR to t = 1, and another one from t = 0 to CLEAN. Or time goes on beyond [0, 1], with alpha linear
in t, at t in (-(1 - alpha(0)), 0) and in (1, 1 + alpha(1)); `span` has these limits:

    1 - alpha_t = (1 - alpha_0) (1 + t / (1 - alpha_0)),     alpha_t = alpha_1 (1 - (t - 1) / alpha_1)

If each state has its own alpha, an end has one length, the largest over the states. So all tokens that are noised in an
end are equally likely to be the next one. Under absorbing noise p(x_0 | x_t) does not change in an end, so the output
of the network at t = 0 or t = 1 is used throughout.

A schedule maps times (*) to (*, 1), or to (*, K) if each state has its own alpha. Units: sigma and log_snr in nats.
"""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..base.errors import InputError
from ..base.waiting import at_hand

CLEAN = -math.inf
PRIOR = math.inf
BISECTIONS = 60  # of [0, 1], enough for float64


class Schedule(nn.Module):
    """Noise schedule alpha_t.

    A subclass defines `_shape`, `_shape_slope` and `_shape_inverse`, or `_alpha`, `_slope` and `_inverse`, for t in
    [0, 1].

    Args:
        alpha_1: alpha at t = 1, the noisy end.
        alpha_0: alpha at t = 0, the clean end.

    Raises:
        InputError: not 0 <= alpha_1 < alpha_0 <= 1.
    """

    alpha_0: float
    alpha_1: float

    def __init__(self, alpha_1: float = 1e-3, alpha_0: float = 1.0):
        super().__init__()
        if not 0.0 <= alpha_1 < alpha_0 <= 1.0:
            raise InputError(f"alpha runs from {alpha_0} to {alpha_1}; it must decrease within [0, 1]")
        self.alpha_0, self.alpha_1 = alpha_0, alpha_1

    @property
    def clean_end(self) -> float:
        """Return alpha at t = 0; the smallest one if each state has its own."""
        return self.alpha_0

    # -- defined by a subclass for t in [0, 1], (*) -> (*, 1) or (*, K)
    def _shape(self, t: Tensor) -> Tensor:
        """Curve that decreases from 1 at t = 0 to 0 at t = 1."""
        raise NotImplementedError

    def _shape_slope(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def _shape_inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def _alpha(self, t: Tensor) -> Tensor:
        return self.alpha_1 + (self.alpha_0 - self.alpha_1) * self._shape(t)

    def _slope(self, t: Tensor) -> Tensor:
        return (self.alpha_0 - self.alpha_1) * self._shape_slope(t)

    def _beta(self, t: Tensor) -> Tensor:
        return -self._slope(t) / self._alpha(t)

    def _weight(self, t: Tensor) -> Tensor:
        return -self._slope(t) / (1 - self._alpha(t))  # MDLM eq. 11; MD4 eq. 5

    def _inverse(self, alpha: Tensor) -> Tensor:
        """Time in [0, 1] at which the schedule is alpha; 0 or 1 if alpha is out of range."""
        return self._shape_inverse(((alpha - self.alpha_1) / (self.alpha_0 - self.alpha_1)).clamp(0.0, 1.0))

    def _halved(self, alpha: Tensor) -> Tensor:
        """`_inverse` by bisection of [0, 1], for a curve without a closed form."""
        low, high = torch.zeros_like(alpha), torch.ones_like(alpha)
        for _ in range(BISECTIONS):  # alpha falls with t
            middle = (low + high) / 2
            above = self._alpha(middle)[..., 0] > alpha
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        return (low + high) / 2

    # -- the public interface
    @property
    def whole(self) -> tuple[bool, bool]:
        """Return whether alpha is exactly 1 at t = 0, and whether it is exactly 0 at t = 1."""
        return self.alpha_0 == 1.0, self.alpha_1 == 0.0

    @property
    def span(self) -> tuple[float, float]:
        """Times at which alpha is 1 and 0, if time goes on beyond [0, 1] (see the module)."""
        return self.clean_end - 1, 1 + self.alpha_1

    def as_time(self, t: Tensor | float) -> Tensor:
        """Convert a time to a tensor, on the device of the schedule's parameters or buffers if it has any."""
        buffer = next(itertools.chain(self.parameters(), self.buffers()), None)
        return as_time(t) if buffer is None else as_time(t, buffer.device).to(buffer.device)

    def alpha(self, t: Tensor | float) -> Tensor:
        """Probability that a token is not yet noised at t: 1 at CLEAN, 0 at PRIOR; (*) -> (*, 1) or (*, K)."""
        return joined(self.as_time(t), self._alpha, lambda t: self._end(t)[0])

    def alpha_of(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return alpha of the states x (*) at times t, which broadcast to (*): (*)."""
        alpha = self.alpha(t)
        if alpha.shape[-1] == 1:
            return alpha[..., 0].expand(x.shape)
        return alpha.expand(*x.shape, -1).gather(-1, x[..., None])[..., 0]

    def beta(self, t: Tensor | float) -> Tensor:
        """Rate -alpha'/alpha at which a token is noised; 0 at CLEAN, at PRIOR, and beyond `span`."""
        return joined(self.as_time(t), self._beta, lambda t: self._end(t, rate=True)[0])

    def weight(self, t: Tensor | float) -> Tensor:
        """Rate -alpha'/(1 - alpha) at which a noised token is restored: the cross-entropy weight of MDLM and MD4."""
        return joined(self.as_time(t), self._weight, lambda t: self._end(t, rate=True)[1])

    def reveal_probability(self, t: Tensor | float, s: Tensor | float) -> Tensor:
        """Probability (alpha_s - alpha_t)/(1 - alpha_t) that a mask at t is a token at s: (*, 1) or (*, K)."""
        alpha_t, alpha_s = self.alpha(t), self.alpha(s)
        return (alpha_s - alpha_t) / (1 - alpha_t)  # MDLM eq. 8

    def sigma(self, t: Tensor | float) -> Tensor:
        """Total noise -log alpha in nats; infinite at PRIOR."""
        return -self.alpha(t).log()

    def odds(self, t: Tensor | float) -> Tensor:
        """Odds alpha / (1 - alpha), precise near t = 0, where 1 - alpha cancels; infinite at CLEAN, 0 at PRIOR."""
        alpha, rate = self.alpha(t), self.beta(t)
        ratio = self.weight(t) / torch.where(rate > 0, rate, 1.0)
        return torch.where(rate > 0, ratio, alpha / (1 - alpha))

    def _end(self, t: Tensor, x: Tensor | None = None, rate: bool = False) -> tuple[Tensor, Tensor]:
        """Return alpha and 1 - alpha at times t (*) beyond [0, 1]; with `rate`, -alpha' divided by each.

        Shapes: (*, 1) or (*, K); (*) with `x` (*), for these states only.
        """
        clean, noisy = self._alpha(_ends(t))
        before, after = 1 - clean, noisy
        longest = before.amax().detach(), after.amax().detach()
        t, before, after = (t[..., None], before, after) if x is None else (t, before[x], after[x])
        early = t < 0
        length = torch.where(early, *longest)
        length = torch.where(length > 0, length, 1.0)
        share = (1 - torch.where(early, -t, t - 1) / length).clamp(0.0, 1.0)  # the fraction that remains
        whole = torch.where(early, before, after)
        remainder = torch.where(share > 0, whole * share, 0.0)
        alpha, noise = torch.where(early, 1 - remainder, remainder), torch.where(early, remainder, 1 - remainder)
        if not rate:
            return alpha, noise
        pace = torch.where(share > 0, whole / length, 0.0)
        return pace / torch.where(alpha > 0, alpha, 1.0), pace / torch.where(noise > 0, noise, 1.0)

    def log_snr(self, t: Tensor | float) -> Tensor:
        """Log signal-to-noise ratio log(alpha / (1 - alpha)); +inf at CLEAN, -inf at PRIOR (MD4, section 3)."""
        alpha = self.alpha(t)
        return alpha.log() - (-alpha).log1p()  # MD4 section 3

    def inverse(self, alpha: Tensor | float) -> Tensor:
        """Time t within `span` at which the schedule is alpha, (*) -> (*); only with one alpha for all states."""
        alpha = as_time(alpha)
        clean, noisy = self._alpha(_ends(alpha))[:, 0]
        return self._inverse(alpha) + (noisy - alpha).clamp_min(0.0) - (alpha - clean).clamp_min(0.0)

    def extra_repr(self) -> str:
        return f"alpha_1={self.alpha_1:g}, alpha_0={self.alpha_0:g}"


def as_time(t: Tensor | float, device: torch.device | None = None) -> Tensor:
    """Convert a time to a floating-point tensor, float64 if it is not one already.

    A number becomes a tensor on `device` without a copy, which would synchronise.
    """
    if isinstance(t, Tensor):
        return t if t.is_floating_point() else t.double()
    return torch.full((), float(t), dtype=torch.float64, device=device)


def _ends(t: Tensor) -> Tensor:
    """Return the times 0 and 1, (2,), with the device and dtype of t."""
    return torch.arange(2, dtype=t.dtype, device=t.device)


def joined(t: Tensor, f: Callable[[Tensor], Tensor], end: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply f to the times t (*) within [0, 1], and `end` to the others.

    Each gets a harmless time in place of the other's, so that no gradient is nan.
    """
    inside = (t >= 0) & (t <= 1)
    if at_hand(t) and bool(inside.all()):
        return f(t)
    value = f(torch.where(inside, t, 0.5))
    return torch.where(inside[..., None], value, end(torch.where(inside, CLEAN, t)).to(value))


def on_grid(t: Tensor, T: int) -> Tensor:
    """Index i of times i/T, (*) -> (*) long.

    Raises:
        InputError: a time is not i/T. It is not checked on a GPU or in a compiled step.
    """
    i = (t * T).round()
    if at_hand(t) and ((t * T - i).abs() > 1e-6 * T).any():
        raise InputError(f"a time is not on the grid of T = {T} steps; it must be i/{T}")
    return i.long()


def coarse(t: Tensor, T: int) -> Tensor:
    """Round n + 1 times t, which fall from 1 to 0, to distinct times i/T, n <= T: the indices i, (n + 1,) long."""
    n = torch.arange(len(t), device=t.device)
    i = (t * T + 0.5).floor().long()
    i = (i + n).cummin(0).values - n  # each below the one before
    return torch.maximum(i, n.flip(0))  # and large enough for those that follow


class Tabulated(Schedule):
    """Schedule of discrete time (D3PM): alpha at CLEAN, at the times i/T, i = 0..T, and at PRIOR only; no rate.

    Args:
        alpha: (T + 1,) decreasing from alpha[0] = 1, e.g. the cumulative products of 1 - beta_i.

    Raises:
        InputError: alpha is not such a table, a time is not i/T, or a rate or an inverse is requested.
    """

    table: Tensor

    def __init__(self, alpha: Tensor):
        alpha = alpha.double()
        if alpha.ndim != 1 or len(alpha) < 2 or alpha[0] != 1.0 or not (alpha.diff() < 0).all() or alpha[-1] < 0:
            raise InputError("a table of alpha must decrease from 1 at i = 0 and stay at 0 or more")
        super().__init__(float(alpha[-1]))
        self.T = len(alpha) - 1
        self.register_buffer("table", alpha, persistent=False)

    def _alpha(self, t):
        return self.table.take(on_grid(t, self.T))[..., None]  # `take` also works for a single time ()

    def alpha(self, t):
        t = self.as_time(t)
        inside = ~t.isinf()
        value = self._alpha(torch.where(inside, t, 0.0))
        return torch.where(inside[..., None], value, (t < 0).to(value)[..., None])

    def _slope(self, t):
        raise InputError("a tabulated schedule has discrete time: it has no rate; use the bound of steps")

    def inverse(self, alpha):
        raise InputError("a tabulated schedule has discrete time: not every alpha is one of its values")

    def extra_repr(self) -> str:
        return f"T={self.T}"
