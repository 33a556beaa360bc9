"""Noise schedules of the papers, each a curve of alpha or of the total noise sigma, and SCHEDULES, their names.

A class defines the curve on [0, 1], its slope and its inverse. `schedule` has everything else, such as what happens
beyond both ends. In the formulas eps is `alpha_1`, alpha at t = 1.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..base.errors import InputError
from ..base.plugins import Registry, subclass
from ..base.requests import declared, option
from .schedule import CLEAN, Schedule, as_time, joined


class Linear(Schedule):
    """alpha = 1 - (1 - eps) t: `loglinear` of SEDD, RADD and MDLM; with alpha_0 = 1 - eps, too, MD4's `linear`."""

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
    """alpha = 1 - cos(pi/2 (1 - t)) (MD4, table 4) for eps = 0. It is flat at t = 1, and steepest at t = 0."""

    def _shape(self, t):
        return 1 - torch.cos(math.pi / 2 * (1 - t))[..., None]  # MD4 table 4

    def _shape_slope(self, t):
        return -(math.pi / 2) * torch.sin(math.pi / 2 * (1 - t))[..., None]

    def _shape_inverse(self, y):
        return 1 - torch.acos(1 - y) * (2 / math.pi)

    def _weight(self, t):
        # with alpha_0 = 1, 1 - alpha cancels at small t; sin(pi/2 t) does not
        if self.alpha_0 < 1.0:
            return super()._weight(t)
        return -self._shape_slope(t) / torch.sin(math.pi / 2 * t)[..., None]


class CosinePower(Schedule):
    """alpha = cos(pi/2 t)^power for eps = 0: `cosine` (power 1) and `cosinesqr` (power 2) of MDLM's code."""

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

    def _weight(self, t):
        # with alpha_0 = 1, 1 - cos^power cancels at small t
        if self.alpha_0 < 1.0:
            return super()._weight(t)
        lost = -torch.expm1(self.power / 2 * torch.log1p(-torch.sin(math.pi / 2 * t).square()))[..., None]
        return -self._shape_slope(t) / lost


class Logarithmic(Schedule):
    """alpha = 1 - (1 - eps) log(1 + t)/log 2: `log` of BD3-LM's code (its table 8)."""

    def _shape(self, t):
        return 1 - torch.log1p(t)[..., None] / math.log(2)  # BD3-LM table 8

    def _shape_slope(self, t):
        return -1 / (math.log(2) * (1 + t))[..., None]

    def _shape_inverse(self, y):
        return torch.expm1((1 - y) * math.log(2))

    def _weight(self, t):
        # with alpha_0 = 1, 1 - alpha cancels at small t; log(1 + t) does not
        return super()._weight(t) if self.alpha_0 < 1.0 else 1 / ((1 + t) * torch.log1p(t))[..., None]


class Polynomial(Schedule):
    """alpha = 1 - (1 - eps) tau^w, tau = begin + (1 - begin) t (MD4, table 4; GenMD4 with one exponent for each token).

    A token with a larger w is noised later, since tau^w is smaller. In generation, from t = 1 to 0, it appears earlier.

    Args:
        w: the exponent, a positive number; or a tensor (K,), one for each state.
        alpha_0: alpha at tau = 0, which is t = 0 if `begin` is 0.
        learnable: make w a parameter (through softplus, so it stays positive).
        begin: tau at t = 0 (GenMD4's t_1): alpha(0) = 1 - (1 - eps) begin^w, so a few tokens are noised at t = 0.
    """

    fixed: Tensor

    def __init__(
        self,
        w: float | Tensor = 2.0,
        alpha_1: float = 1e-3,
        alpha_0: float = 1.0,
        learnable: bool = False,
        begin: float = 0.0,
    ):
        super().__init__(alpha_1, alpha_0)
        w = as_time(w)  # float64, or the precision of the tensor
        if not (w > 0).all():
            raise InputError("exponents of a polynomial schedule must be above 0")
        if not 0.0 <= begin < 1.0:
            raise InputError(f"a polynomial schedule begins at {begin}; it must be in [0, 1)")
        w = w.reshape(-1)
        if learnable:
            self.raw = nn.Parameter(w + torch.log(-torch.expm1(-w)))  # softplus^{-1}
        else:
            self.register_buffer("fixed", w)
        self.learnable, self.begin = learnable, begin

    @property
    def w(self) -> Tensor:
        """The exponents, (1,) or (K,)."""
        return nn.functional.softplus(self.raw) if self.learnable else self.fixed

    @property
    def clean_end(self) -> float:
        return float(self._alpha(torch.zeros((), dtype=torch.float64, device=self.w.device)).detach().min())

    @property
    def whole(self):
        return self.alpha_0 == 1.0 and self.begin == 0.0, self.alpha_1 == 0.0

    def tau(self, t: Tensor) -> Tensor:
        """Position tau on the curve, of t in [0, 1]."""
        return self.begin + (1 - self.begin) * t

    def time(self, tau: Tensor) -> Tensor:
        """Time t in [0, 1] of a position tau <= 1; 0 if tau is below `begin`."""
        return ((tau - self.begin) / (1 - self.begin)).clamp_min(0.0)

    def _shape(self, t):
        return 1 - self.tau(t)[..., None] ** self.w  # MD4 table 4

    def _shape_slope(self, t):
        return -(1 - self.begin) * self.w * self.tau(t)[..., None] ** (self.w - 1)

    def _shape_inverse(self, y):
        if len(self.w) > 1:
            raise InputError("a schedule with one exponent per token has no single inverse")
        return self.time((1 - y) ** (1 / self.w[0].to(y)))

    def alpha_of(self, x, t):
        if len(self.w) == 1:
            return super().alpha_of(x, t)
        t = as_time(t).expand(x.shape)
        inside = (t >= 0) & (t <= 1)  # only the exponents of x: no tensor is (*, K)
        loss = self.tau(torch.where(inside, t, 0.5)) ** self.w[x]
        end, _ = self._end(torch.where(inside, CLEAN, t), x)
        return torch.where(inside, self.alpha_0 - (self.alpha_0 - self.alpha_1) * loss, end.to(loss))

    def _weight(self, t):
        # with alpha_0 = 1, tau^w may underflow; w / tau does not
        return super()._weight(t) if self.alpha_0 < 1.0 else (1 - self.begin) * self.w / self.tau(t)[..., None]


class Square(Polynomial):
    """alpha = 1 - (1 - eps) t^2: `square` of BD3-LM's code (its table 8)."""

    def __init__(self, alpha_1: float = 1e-3, alpha_0: float = 1.0):
        super().__init__(2.0, alpha_1, alpha_0)


class SquareRoot(Polynomial):
    """alpha = 1 - (1 - eps) sqrt(t): `square_root` of BD3-LM's code (its table 8): most tokens are noised early."""

    def __init__(self, alpha_1: float = 1e-3, alpha_0: float = 1.0):
        super().__init__(0.5, alpha_1, alpha_0)


class _OfSigma(Schedule):
    """Schedule given by its total noise sigma, with alpha = exp(-sigma)."""

    def __init__(self, sigma_min: float, sigma_max: float):
        if not 0.0 <= sigma_min < sigma_max < math.inf:
            raise InputError(f"sigma runs from {sigma_min} to {sigma_max}; it must increase and be finite")
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
        return joined(as_time(t), self._sigma, lambda t: -self._end(t)[0].log())

    def _weight(self, t):
        return self._rate(t) / torch.expm1(self._sigma(t))  # alpha / (1 - alpha), exact where sigma is small

    def extra_repr(self) -> str:
        return f"sigma_min={self.sigma_min:g}, sigma_max={self.sigma_max:g}"


class Geometric(_OfSigma):
    """sigma = sigma_min^(1 - t) sigma_max^t (SEDD, section 5.1); alpha(0) is below 1."""

    def __init__(self, sigma_min: float = 1e-4, sigma_max: float = 20.0):
        if not sigma_min > 0.0:
            raise InputError(f"sigma of a geometric schedule starts at {sigma_min:g}; it must be above 0")
        super().__init__(sigma_min, sigma_max)

    def _sigma(self, t):
        return (self.sigma_min ** (1 - t) * self.sigma_max**t)[..., None]  # SEDD section 5.1

    def _rate(self, t):
        return self._sigma(t) * math.log(self.sigma_max / self.sigma_min)

    def _inverse(self, alpha):
        sigma = (-alpha.log()).clamp(self.sigma_min, self.sigma_max)
        return (sigma / self.sigma_min).log() / math.log(self.sigma_max / self.sigma_min)


class LinearSigma(_OfSigma):
    """sigma = sigma_min + (sigma_max - sigma_min) t: `linear` of MDLM's code, which is configured with 1e-3 and 7."""

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
    """sigma = base (growth^tau - 1), beta = base log(growth) growth^t for begin = 0: tauLDR's schedule.

    As in `Polynomial`, tau = begin + (1 - begin) t. Source: arXiv 2205.14987, section 4.1.
    """

    def __init__(self, base: float = 3.0, growth: float = 100.0, begin: float = 0.0):
        if not (base > 0 and growth > 1 and 0 <= begin < 1):
            raise InputError(f"base {base} must be above 0, growth {growth} above 1, and begin {begin} in [0, 1)")
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


SCHEDULES: Registry[type[Schedule]] = Registry(
    "schedule", group="zellige.schedules", fits=subclass(Schedule, "a class of zellige.core.schedule.Schedule")
)
SCHEDULES |= {
    "linear": Linear,
    "loglinear": Linear,
    "cosine": Cosine,
    "cosine-power": CosinePower,
    "logarithmic": Logarithmic,
    "polynomial": Polynomial,
    "square": Square,
    "square-root": SquareRoot,
    "geometric": Geometric,
    "linear-sigma": LinearSigma,
}


EXPONENTS = {"polynomial": "w", "cosine-power": "power"}  # the argument that `exponent` sets


def named(
    name: str,
    sigma_min: float | None = None,
    sigma_max: float | None = None,
    alpha_1: float | None = None,
    exponent: float | None = None,
) -> Schedule:
    """Return a schedule by its name in SCHEDULES.

    Args:
        sigma_min, sigma_max: sigma at t = 0 and t = 1, for geometric and linear-sigma only.
        alpha_1: alpha at t = 1, for all other schedules, in [0, 1).
        exponent: w of polynomial, or the power of cosine-power, above 0.

    Raises:
        InputError: the schedule has no such argument, a value is out of range, or sigma does not increase.
    """
    kind, power = SCHEDULES[name], EXPONENTS.get(name, "")
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
    if exponent is not None:
        if not power:
            raise InputError(f"`schedule` {name} has no `exponent`; drop it, or take {' or '.join(EXPONENTS)}")
        if not 0 < exponent < math.inf:
            raise InputError(f"`exponent` is {exponent:g}; it must be above 0, and finite")
        ends[power] = float(exponent)
    try:
        return kind(**ends)
    except ValueError as problem:
        raise InputError(f"`sigma_min` and `sigma_max` do not fit: {problem}") from None


# ---------------------------------------------------------------------------------- as options of a method
@declared
class ScheduleChoice:
    """Fields of a method's Config that choose its schedule."""

    schedule: str = option(
        "noise schedule alpha_t; loglinear, cosine, cosine-power, logarithmic, polynomial, square, square-root, "
        "geometric or linear-sigma",
        default="loglinear",
    )
    sigma_min: float | None = option(
        "sigma at t = 0 of geometric and linear-sigma; default 1e-4 and 0 (published: 1e-4 and 1e-3)",
        default=None,
        kw_only=True,
    )
    sigma_max: float | None = option(
        "sigma at t = 1 of geometric and linear-sigma; default 20 and 10 (published: 20 and 7)",
        default=None,
        kw_only=True,
    )
    alpha_1: float | None = option(
        "alpha at t = 1 of the other schedules, 1e-3 by default (the eps of loglinear); 0 only without sigma as input",
        default=None,
        kw_only=True,
    )
    exponent: float | None = option(
        "for polynomial: w of alpha = 1 - t^w; for cosine-power: the power of the cosine; 2 by default",
        default=None,
        kw_only=True,
    )


def schedule_of(config: Any) -> Schedule:
    """Return the schedule that a Config chooses: a `ScheduleChoice`, or a class with the same fields."""
    exponent = getattr(config, "exponent", None)  # the schedules of sedd have none
    return named(config.schedule, config.sigma_min, config.sigma_max, config.alpha_1, exponent)
