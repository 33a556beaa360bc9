"""Generators of the noise of continuous-time chains (tauLDR, arXiv 2205.14987, section 4.1 and appendix E).

Each function returns R (K, K) float64, the rates from row to column, whose rows sum to zero, and its stationary
distribution pi (K,). All but `absorbing` are reversible: pi_i R_ij = pi_j R_ji. `Noise` makes a process of them, which
multiplies R by beta_t (`matrices.CTMC`).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..base.errors import InputError
from ..core import process
from ..core.curves import Exponential, LinearSigma
from ..core.matrices import CTMC, afford

ORDERED = ("gaussian", "birth-death")  # only for ordered states
ONLY = {"growth": ORDERED, "rate_sigma": ("gaussian",), "target_sigma": ("gaussian",)}
SLOWEST = 7.0  # e^-7 of the slowest mode is left at t = 1, unless `base` says otherwise


def uniform(K: int) -> tuple[Tensor, Tensor]:
    """Rate 1 between any two states; the stationary distribution is uniform."""
    rate = torch.ones(K, K, dtype=torch.float64)  # tauLDR appendix E
    return _generator(rate), torch.full((K,), 1 / K, dtype=torch.float64)


def birth_death(K: int) -> tuple[Tensor, Tensor]:
    """Rate 1 to each neighbour on the line 0..K-1; the stationary distribution is uniform."""
    return _generator(_distance(K) == 1), torch.full((K,), 1 / K, dtype=torch.float64)  # tauLDR appendix E


def gaussian(K: int, rate_sigma: float, target_sigma: float) -> tuple[Tensor, Tensor]:
    """Rates whose stationary distribution is a discretised Gaussian.

    Of two states at distance d, the one nearer to an end jumps to the other with the rate

        exp(-(d - 1)^2 / rate_sigma^2)

    (at equal distance from the ends, the lower one). The reverse rate follows from detailed balance.

    Args:
        rate_sigma: width of a jump, in states.
        target_sigma: width, in states, of the stationary distribution, proportional to
            exp(-(k - K/2 + 1)^2 / (2 target_sigma^2)); far above K, this is nearly uniform.
    """
    for name, sigma in (("rate_sigma", rate_sigma), ("target_sigma", target_sigma)):
        if not sigma > 0:
            raise InputError(f"`{name}` is {sigma:g}; it must be above 0")
    k, d = torch.arange(K, dtype=torch.float64), _distance(K)
    log_distribution = -((k - K / 2 + 1) ** 2) / (2 * target_sigma**2)
    out = (k - (K - 1) / 2).abs()  # distance from the middle
    inward = (out[:, None] > out) | ((out[:, None] == out) & (k[:, None] < k))
    back = torch.where(inward, 0.0, log_distribution - log_distribution[:, None])
    rate = torch.exp(back - (d - 1) ** 2 / rate_sigma**2)  # tauLDR appendix E
    return _generator(rate), log_distribution.softmax(0)


def absorbing(K: int, mask: int | None = None) -> tuple[Tensor, Tensor]:
    """Rate 1 from every state into the mask, the last state by default."""
    distribution = F.one_hot(torch.tensor(K - 1 if mask is None else mask), K).double()
    return _generator(distribution.expand(K, K)), distribution


def gap(R: Tensor, distribution: Tensor) -> float:
    """Decay rate of the slowest mode of a reversible R: the smallest non-zero eigenvalue of -R.

    >>> round(gap(*uniform(5)), 9)
    5.0
    """
    root = distribution.sqrt()
    S = root[:, None] * R / root
    return float(-torch.linalg.eigvalsh((S + S.mT) / 2)[-2])


def _distance(K: int) -> Tensor:
    k = torch.arange(K, dtype=torch.float64)
    return (k[:, None] - k).abs()


def _generator(rate: Tensor) -> Tensor:
    """Generator with these rates off the diagonal."""
    rate = rate.double().clone().fill_diagonal_(0.0)
    return rate - torch.diag(rate.sum(-1))


# ---------------------------------------------------------------------------------- processes
@dataclass(frozen=True)
class Noise:
    """Options of tauLDR's noise; `on` makes the process. `TauLDR.Config` describes the options.

    Uniform and absorbing noise are a `Mixture`, without a K x K matrix, and sigma(t) is linear. Noise on ordered states
    is a `CTMC`, with sigma(t) = base (growth^t - 1). Its R is divided by the decay rate of its slowest mode, so alpha
    is the fraction of that mode that is left.

    Raises:
        InputError: an option is out of range, or this noise has no such option.
    """

    kind: str
    base: float | None
    growth: float | None
    rate_sigma: float | None
    target_sigma: float | None
    min_time: float

    def __post_init__(self) -> None:
        for field, where in ONLY.items():
            if getattr(self, field) is not None and self.kind not in where:
                raise InputError(f"`{field}` needs `process` {' or '.join(where)}; drop it")
        if self.base is not None and not self.base > 0:
            raise InputError(f"`base` is {self.base:g}; it must be above 0")
        if self.growth is not None and not self.growth > 1:
            raise InputError(f"`growth` is {self.growth:g}; it must be above 1")
        if not 0 <= self.min_time < 1:
            raise InputError(f"`min_time` is {self.min_time:g}; it must be 0 or more, and below 1")

    def on(self, K: int) -> process.Process:
        """Make the process on K states; with absorbing noise the last one is the mask."""
        if self.kind in ORDERED:
            afford(K)
            if K < 2:
                raise InputError(
                    f"`process` {self.kind} needs two tokens or more, to move between; use `process` absorbing"
                )
            R, distribution = birth_death(K) if self.kind == "birth-death" else gaussian(K, *self._sigmas(K))
            slow, growth = gap(R, distribution), self.growth or 100.0
            base = SLOWEST / (growth - 1) if self.base is None else self.base * slow
            return CTMC(R / slow, distribution, Exponential(base, growth, self.min_time))  # tauLDR section 4.1
        make, unit = (process.uniform, K) if self.kind == "uniform" else (process.absorbing, 1)
        total = SLOWEST if self.base is None else self.base * unit
        return make(K, LinearSigma(total * self.min_time, total))

    def _sigmas(self, K: int) -> tuple[float, float]:
        """The two widths; by default the paper's for 256 states, in proportion to K."""
        rate = max(1.0, 6 * K / 256) if self.rate_sigma is None else self.rate_sigma
        return rate, 2.0 * K if self.target_sigma is None else self.target_sigma
