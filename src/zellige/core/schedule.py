"""Noise schedules: alpha_t, the probability that a token is still untouched at time t.

Time t runs from 0 (the clean end) to 1 (the noisy end). Clean data and the prior are *not* t = 0 and t = 1: they have
alpha = 1 and alpha = 0 by definition and their own names, CLEAN and PRIOR. A published schedule lives strictly between them,
and may start below 1 (MD4's eps, SEDD's sigma_min) and end above 0 (the eps of loglinear).

The two names are -inf and +inf, so they may stand inside a tensor of times (one position clean, its neighbour noisy) and
s <= t keeps its meaning.

**The ends.** What lies between alpha(0) and 1, and between alpha(1) and 0, is either a jump, from t = 0 to CLEAN and from PRIOR
to t = 1, or it is passed continuously: at t in (-(1 - alpha(0)), 0) and (1, 1 + alpha(1)), the `span`, each end at an even pace,

    1 - alpha_t = (1 - alpha_0) (1 + t / (1 - alpha_0)),     alpha_t = alpha_1 (1 - (t - 1) / alpha_1)

for all states alike where each has its own alpha. So among the tokens that are lost in an end any is as likely the next, whatever
it is: p(x_0 | x_t) under absorbing noise does not change there, and what a network says of t = 0 and t = 1 holds throughout.

Every schedule maps times of shape (*) to (*, 1), or to (*, K) where each state has its own. Units: sigma, log_snr in nats.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..errors import InputError

CLEAN = -math.inf
PRIOR = math.inf


class Schedule(nn.Module):
    """alpha_t; a subclass gives `_shape` and its slope and inverse, or `_alpha`, `_slope` and `_inverse`, for t in [0, 1].

    Args:
        alpha_1: alpha at t = 1, the noisy end.
        alpha_0: alpha at t = 0, the clean end.
    """

    alpha_0: float
    alpha_1: float

    def __init__(self, alpha_1: float = 1e-3, alpha_0: float = 1.0):
        super().__init__()
        if not 0.0 <= alpha_1 < alpha_0 <= 1.0:
            raise ValueError(f"alpha runs from {alpha_0} to {alpha_1}; it must decrease within [0, 1]")
        self.alpha_0, self.alpha_1 = alpha_0, alpha_1

    @property
    def clean_end(self) -> float:
        """alpha at t = 0; the smallest, where each state has its own."""
        return self.alpha_0

    # -- what a subclass says, t in [0, 1], shape (*) -> (*, 1) or (*, K)
    def _shape(self, t: Tensor) -> Tensor:
        """The curve itself, decreasing from 1 at t = 0 to 0 at t = 1."""
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
        """The time in [0, 1], the nearer end beyond its range."""
        return self._shape_inverse(((alpha - self.alpha_1) / (self.alpha_0 - self.alpha_1)).clamp(0.0, 1.0))

    # -- what everyone asks
    @property
    def whole(self) -> tuple[bool, bool]:
        """Whether alpha is exactly 1 at t = 0, and exactly 0 at t = 1."""
        return self.alpha_0 == 1.0, self.alpha_1 == 0.0

    @property
    def span(self) -> tuple[float, float]:
        """The times at which alpha is 1 and 0, where the ends are passed continuously."""
        return self.clean_end - 1, 1 + self.alpha_1

    def alpha(self, t: Tensor | float) -> Tensor:
        """P(untouched at t | clean): 1 at CLEAN, 0 at PRIOR."""
        return _joined(_time(t), self._alpha, lambda t: self._end(t)[0])

    def alpha_of(self, x: Tensor, t: Tensor | float) -> Tensor:
        """alpha of the states x (*) at times t (broadcast to (*)): (*)."""
        alpha = self.alpha(t)
        if alpha.shape[-1] == 1:
            return alpha[..., 0].expand(x.shape)
        return alpha.expand(*x.shape, -1).gather(-1, x[..., None])[..., 0]

    def beta(self, t: Tensor | float) -> Tensor:
        """The rate -alpha'/alpha at which a token is noised; zero at CLEAN and PRIOR, and where an end is one jump."""
        return _joined(_time(t), self._beta, lambda t: self._end(t, rate=True)[0])

    def weight(self, t: Tensor | float) -> Tensor:
        """-alpha'/(1 - alpha): the rate at which a noised token is restored, MDLM's and MD4's weight of the cross-entropy."""
        return _joined(_time(t), self._weight, lambda t: self._end(t, rate=True)[1])

    def sigma(self, t: Tensor | float) -> Tensor:
        """The total noise -log alpha in nats; infinite at PRIOR."""
        return -self.alpha(t).log()

    def _end(self, t: Tensor, x: Tensor | None = None, rate: bool = False) -> tuple[Tensor, Tensor]:
        """alpha and 1 - alpha at times t (*) beyond [0, 1], or -alpha' over each of them.

        (*, 1) or (*, K); with `x` (*) of these states, (*).
        """
        clean, noisy = self._alpha(t.new_tensor([0.0, 1.0]))
        lost, left = 1 - clean, noisy
        longest = lost.amax().detach(), left.amax().detach()
        t, lost, left = (t[..., None], lost, left) if x is None else (t, lost[x], left[x])
        early = t < 0
        length = torch.where(early, *longest)
        length = torch.where(length > 0, length, 1.0)
        share = (1 - torch.where(early, -t, t - 1) / length).clamp(0.0, 1.0)  # of the end, until alpha is 1 or 0
        whole = torch.where(early, lost, left)
        part = torch.where(share > 0, whole * share, 0.0)
        alpha, gone = torch.where(early, 1 - part, part), torch.where(early, part, 1 - part)
        if not rate:
            return alpha, gone
        pace = torch.where(share > 0, whole / length, 0.0)
        return pace / torch.where(alpha > 0, alpha, 1.0), pace / torch.where(gone > 0, gone, 1.0)

    def log_snr(self, t: Tensor | float) -> Tensor:
        """log(alpha / (1 - alpha)) (MD4, section 3); +-inf at CLEAN and PRIOR."""
        alpha = self.alpha(t)
        return alpha.log() - (-alpha).log1p()  # MD4 section 3

    def inverse(self, alpha: Tensor | float) -> Tensor:
        """The time t in the `span` at which the schedule takes the value alpha, (*) -> (*).

        Only for schedules with one alpha for all states.
        """
        alpha = _time(alpha)
        clean, noisy = self._alpha(alpha.new_tensor([0.0, 1.0]))[:, 0]
        return self._inverse(alpha) + (noisy - alpha).clamp_min(0.0) - (alpha - clean).clamp_min(0.0)

    def extra_repr(self) -> str:
        return f"alpha_1={self.alpha_1:g}, alpha_0={self.alpha_0:g}"


def _time(t: Tensor | float) -> Tensor:
    return t if isinstance(t, Tensor) and t.is_floating_point() else torch.as_tensor(t, dtype=torch.float64)


def _joined(t: Tensor, f: Callable[[Tensor], Tensor], end: Callable[[Tensor], Tensor]) -> Tensor:
    """f at the times t (*) within [0, 1], `end` at others. Neither is asked elsewhere, so that no gradient is nan."""
    inside = (t >= 0) & (t <= 1)
    free = t.device.type == "cpu" and not torch.compiler.is_compiling()  # to ask: nobody waits for the answer
    if free and bool(inside.all()):
        return f(t)
    value = f(torch.where(inside, t, 0.5))
    return torch.where(inside[..., None], value, end(torch.where(inside, CLEAN, t)).to(value))


class Linear(Schedule):
    """alpha = 1 - (1 - eps) t with eps = alpha_1: `loglinear` of SEDD, RADD and MDLM; with both eps MD4's `linear`."""

    def _shape(self, t):
        return (1 - t)[..., None]  # MD4 table 4; SEDD section 5.1

    def _shape_slope(self, t):
        return -torch.ones_like(t)[..., None]

    def _shape_inverse(self, y):
        return 1 - y

    def _weight(self, t):
        # with alpha_0 = 1, 1 - alpha cancels at small t; 1/t does not
        return super()._weight(t) if self.alpha_0 < 1.0 else 1 / t[..., None]


class Cosine(Schedule):
    """alpha = 1 - cos(pi/2 (1 - t)) (MD4, table 4): alpha'(0) = 0 is not where masking starts, t = 1 is."""

    def _shape(self, t):
        return 1 - torch.cos(math.pi / 2 * (1 - t))[..., None]  # MD4 table 4

    def _shape_slope(self, t):
        return -(math.pi / 2) * torch.sin(math.pi / 2 * (1 - t))[..., None]

    def _shape_inverse(self, y):
        return 1 - torch.acos(1 - y) * (2 / math.pi)


class CosinePower(Schedule):
    """alpha = cos(pi/2 t)^power: `cosine` (power 1) and `cosinesqr` (power 2) of MDLM's code."""

    def __init__(self, power: float = 2.0, alpha_1: float = 1e-3, alpha_0: float = 1.0):
        super().__init__(alpha_1, alpha_0)
        self.power = power

    def _shape(self, t):
        return torch.cos(math.pi / 2 * t).clamp_min(0.0)[..., None] ** self.power  # MDLM appendix E.1

    def _shape_slope(self, t):
        c, s = torch.cos(math.pi / 2 * t).clamp_min(0.0)[..., None], torch.sin(math.pi / 2 * t)[..., None]
        return -(math.pi / 2) * self.power * s * c ** (self.power - 1)

    def _shape_inverse(self, y):
        return torch.acos(y ** (1 / self.power)) * (2 / math.pi)


class Polynomial(Schedule):
    """alpha = 1 - (1 - eps) tau^w, tau = begin + (1 - begin) t (MD4, table 4; GenMD4 with one exponent for each token).

    A token with a larger w keeps longer: near the clean end t^w is small. Seen from the noisy end, where generation starts,
    it appears earlier.

    Args:
        w: the exponent, a positive number, or a tensor (K,) with one for each state.
        learnable: make w a parameter (through softplus, so it stays positive).
        alpha_0: alpha where the curve begins, at t = 0 unless `begin` says otherwise.
        begin: where on the curve t = 0 lies (GenMD4's t_1): alpha(0) = 1 - (1 - eps) begin^w, so a few tokens are lost there.
    """

    def __init__(
        self,
        w: float | Tensor = 2.0,
        alpha_1: float = 1e-3,
        alpha_0: float = 1.0,
        learnable: bool = False,
        begin: float = 0.0,
    ):
        super().__init__(alpha_1, alpha_0)
        w = _time(w)  # float64, or the precision of the tensor
        if not (w > 0).all():
            raise ValueError("exponents of a polynomial schedule must be above 0")
        if not 0.0 <= begin < 1.0:
            raise ValueError(f"a polynomial schedule begins at {begin}; it must be in [0, 1)")
        w = w.reshape(-1)
        if learnable:
            self.raw = nn.Parameter(w + torch.log(-torch.expm1(-w)))  # softplus^{-1}
        else:
            self.register_buffer("fixed", w)
        self.learnable, self.begin = learnable, begin

    @property
    def w(self) -> Tensor:
        """The exponents, (1,) or (K,)."""
        return nn.functional.softplus(self.raw) if self.learnable else self.fixed  # pyright: ignore

    @property
    def clean_end(self) -> float:
        return float(self._alpha(torch.zeros((), dtype=torch.float64, device=self.w.device)).detach().min())

    @property
    def whole(self):
        return self.alpha_0 == 1.0 and self.begin == 0.0, self.alpha_1 == 0.0

    def tau(self, t: Tensor) -> Tensor:
        """Where on the curve t in [0, 1] lies."""
        return self.begin + (1 - self.begin) * t

    def time(self, tau: Tensor) -> Tensor:
        """The t in [0, 1] of a place tau <= 1 on the curve; 0 for what lies before its begin."""
        return ((tau - self.begin) / (1 - self.begin)).clamp_min(0.0)

    def _shape(self, t):
        return 1 - self.tau(t)[..., None] ** self.w  # MD4 table 4

    def _shape_slope(self, t):
        return -(1 - self.begin) * self.w * self.tau(t)[..., None] ** (self.w - 1)

    def _shape_inverse(self, y):
        if len(self.w) > 1:
            raise ValueError("a schedule with one exponent per token has no single inverse")
        return self.time((1 - y) ** (1 / self.w[0].to(y)))

    def alpha_of(self, x, t):
        if len(self.w) == 1:
            return super().alpha_of(x, t)
        t = _time(t).expand(x.shape)
        inside = (t >= 0) & (t <= 1)  # only the exponents of x, so that nothing is (*, K)
        lost = self.tau(torch.where(inside, t, 0.5)) ** self.w[x]
        end, _ = self._end(torch.where(inside, CLEAN, t), x)
        return torch.where(inside, self.alpha_0 - (self.alpha_0 - self.alpha_1) * lost, end.to(lost))

    def _weight(self, t):
        # with alpha_0 = 1, tau^w may underflow; w / tau does not
        return super()._weight(t) if self.alpha_0 < 1.0 else (1 - self.begin) * self.w / self.tau(t)[..., None]


class _OfSigma(Schedule):
    """A schedule given by its total noise sigma, alpha = exp(-sigma)."""

    def __init__(self, sigma_min: float, sigma_max: float):
        if not 0.0 <= sigma_min < sigma_max < math.inf:
            raise ValueError(f"sigma runs from {sigma_min} to {sigma_max}; it must increase and be finite")
        super().__init__(math.exp(-sigma_max), math.exp(-sigma_min))
        self.sigma_min, self.sigma_max = sigma_min, sigma_max

    def _sigma(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def _rate(self, t: Tensor) -> Tensor:
        """d sigma / dt = beta."""
        raise NotImplementedError

    def _alpha(self, t):
        return torch.exp(-self._sigma(t))

    def _slope(self, t):
        return -self._rate(t) * self._alpha(t)

    def _beta(self, t):
        return self._rate(t)

    def sigma(self, t):
        return _joined(_time(t), self._sigma, lambda t: -self._end(t)[0].log())

    def _weight(self, t):
        return self._rate(t) / torch.expm1(self._sigma(t))  # alpha / (1 - alpha), exact where sigma is small

    def extra_repr(self) -> str:
        return f"sigma_min={self.sigma_min:g}, sigma_max={self.sigma_max:g}"


class Geometric(_OfSigma):
    """sigma = sigma_min^(1 - t) sigma_max^t (SEDD, section 5.1). It starts below alpha = 1."""

    def __init__(self, sigma_min: float = 1e-4, sigma_max: float = 20.0):
        if not sigma_min > 0.0:
            raise ValueError(f"sigma of a geometric schedule starts at {sigma_min:g}; it must be above 0")
        super().__init__(sigma_min, sigma_max)

    def _sigma(self, t):
        return (self.sigma_min ** (1 - t) * self.sigma_max**t)[..., None]  # SEDD section 5.1

    def _rate(self, t):
        return self._sigma(t) * math.log(self.sigma_max / self.sigma_min)

    def _inverse(self, alpha):
        sigma = (-alpha.log()).clamp(self.sigma_min, self.sigma_max)
        return (sigma / self.sigma_min).log() / math.log(self.sigma_max / self.sigma_min)


class LinearSigma(_OfSigma):
    """sigma = sigma_min + (sigma_max - sigma_min) t: `linear` of MDLM's code, whose configuration has 1e-3 and 7."""

    def __init__(self, sigma_min: float = 0.0, sigma_max: float = 10.0):
        super().__init__(sigma_min, sigma_max)

    def _sigma(self, t):
        return (self.sigma_min + (self.sigma_max - self.sigma_min) * t)[..., None]  # MDLM eq. 93

    def _rate(self, t):
        return torch.full_like(t, self.sigma_max - self.sigma_min)[..., None]

    def _inverse(self, alpha):
        sigma = (-alpha.log()).clamp(self.sigma_min, self.sigma_max)
        return (sigma - self.sigma_min) / (self.sigma_max - self.sigma_min)


class Exponential(_OfSigma):
    """sigma = base (growth^t - 1), so beta = base log(growth) growth^t: tauLDR's schedule (arXiv 2205.14987, section 4.1).

    `begin` is where on the curve t = 0 lies, as in `Polynomial`: t stands for begin + (1 - begin) t.
    """

    def __init__(self, base: float = 3.0, growth: float = 100.0, begin: float = 0.0):
        if not (base > 0 and growth > 1 and 0 <= begin < 1):
            raise ValueError(f"base {base} must be above 0, growth {growth} above 1, and begin {begin} in [0, 1)")
        super().__init__(base * (growth**begin - 1), base * (growth - 1))
        self.growth = growth ** (1 - begin)

    def _sigma(self, t):
        return (self.sigma_min + self._base * (self.growth**t - 1))[..., None]  # tauLDR section 4.1

    def _rate(self, t):
        return (self._base * math.log(self.growth) * self.growth**t)[..., None]

    @property
    def _base(self) -> float:
        return (self.sigma_max - self.sigma_min) / (self.growth - 1)

    def _inverse(self, alpha):
        sigma = (-alpha.log()).clamp(self.sigma_min, self.sigma_max)
        return ((sigma - self.sigma_min) / self._base).log1p() / math.log(self.growth)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, growth={self.growth:g}"


def on_grid(t: Tensor, T: int) -> Tensor:
    """i of times i/T, (*) -> (*) long. Raises ValueError for any other time."""
    i = (t * T).round()
    if not torch.compiler.is_compiling() and ((t * T - i).abs() > 1e-6 * T).any():
        raise ValueError(f"a time is not on the grid of T = {T} steps; it must be i/{T}")
    return i.long()


class Tabulated(Schedule):
    """alpha at the times i/T, i = 0..T, for discrete time (D3PM): there is no rate, and no other time between CLEAN and PRIOR.

    Args:
        alpha: (T + 1,) decreasing from alpha[0] = 1, e.g. the cumulative products of 1 - beta_i.

    Raises:
        ValueError: alpha is not such a table; a time is not on the grid; a rate is asked for.
    """

    table: Tensor

    def __init__(self, alpha: Tensor):
        alpha = alpha.double()
        if alpha.ndim != 1 or len(alpha) < 2 or alpha[0] != 1.0 or not (alpha.diff() < 0).all() or alpha[-1] < 0:
            raise ValueError("a table of alpha must decrease from 1 at i = 0 and stay at 0 or more")
        super().__init__(float(alpha[-1]))
        self.T = len(alpha) - 1
        self.register_buffer("table", alpha, persistent=False)

    def _alpha(self, t):
        return self.table.take(on_grid(t, self.T))[..., None]  # also of one time (), without asking what it is

    def alpha(self, t):
        t = _time(t)
        inside = ~t.isinf()
        value = self._alpha(torch.where(inside, t, 0.0))
        return torch.where(inside[..., None], value, (t < 0).to(value)[..., None])

    def _slope(self, t):
        raise ValueError("a tabulated schedule has discrete time: it has no rate; use the bound of steps")

    def inverse(self, alpha):
        raise ValueError("a tabulated schedule has discrete time: not every alpha is one of its values")

    def extra_repr(self) -> str:
        return f"T={self.T}"


SCHEDULES: dict[str, type[Schedule]] = {
    "linear": Linear,
    "loglinear": Linear,
    "cosine": Cosine,
    "cosine-power": CosinePower,
    "polynomial": Polynomial,
    "geometric": Geometric,
    "linear-sigma": LinearSigma,
}


def named(
    name: str, sigma_min: float | None = None, sigma_max: float | None = None, alpha_1: float | None = None
) -> Schedule:
    """The schedule of SCHEDULES by its name, with the ends that are given: of sigma if it is one of sigma, else alpha at t = 1.

    Raises:
        InputError: ends of another kind of schedule, ends between which sigma does not increase, alpha_1 not in [0, 1).
    """
    kind = SCHEDULES[name]
    ends = {"sigma_min": sigma_min, "sigma_max": sigma_max}
    ends = {end: float(value) for end, value in ends.items() if value is not None}
    if ends and not issubclass(kind, _OfSigma):
        raise InputError(f"`{next(iter(ends))}` needs `schedule` geometric or linear-sigma; drop it")
    if alpha_1 is not None:
        if issubclass(kind, _OfSigma):
            raise InputError(f"`schedule` {name} has no `alpha_1`; use `sigma_max`")
        if not 0 <= alpha_1 < 1:
            raise InputError(f"`alpha_1` is {alpha_1:g}; it must be 0 or more, and below 1")
        ends["alpha_1"] = float(alpha_1)
    try:
        return kind(**ends)
    except ValueError as problem:
        raise InputError(f"`sigma_min` and `sigma_max` do not fit: {problem}") from None
