"""95% intervals: Student's t, over the draws of stratified groups, and over texts and draws together."""

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..base.schema import HIGH, LOW
from ..core.student import LEVEL, student
from ..show.numbers import percent, pm

# degrees of freedom that the replicates must have for an interval: it is then known to a quarter, 1/sqrt(2 * 8)
FREEDOM = 8
SKEWED = 0.25  # of the mean of a text's weights; well below what Student's interval begins to miss (studies/coverage)
OVER_TEXTS = "Student's t over texts; never narrower than over the draws"
OVER_DRAWS = "Student's t over independent replicates of each group's stratified draws, for these very texts"


class Interval:
    """What has the ends `low` and `high` of its 95% interval."""

    low: float
    high: float

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Number(Interval):
    """A number and the ends of its 95% interval."""

    value: float
    low: float = field(metadata=LOW)
    high: float = field(metadata=HIGH)

    def text(self, places: int = 3) -> str:
        """Text such as `1.412 ± 0.006`."""
        return pm(self.value, self.half, places)

    def sides(self, places: int = 3) -> str:
        """Text such as `0.013 -0.014 +0.021`, with the distance of each end; like `text` if both are equal."""
        down, up = (f"{abs(end - self.value):.{places}f}" for end in (self.low, self.high))
        return (
            self.text(places)
            if down == up or not math.isfinite(self.half)
            else f"{self.value:.{places}f} -{down} +{up}"
        )


def mean(values: ArrayLike) -> Number:
    """Mean of one number per sample, with Student's interval; NaN is left out."""
    values = np.asarray(values, float)
    values = values[~np.isnan(values)]
    n = len(values)
    if not n:
        return Number(math.nan, math.nan, math.nan)
    middle = float(values.mean())
    half = student(n - 1) * float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    return Number(middle, middle - half, middle + half)


def from_jackknife(value: float, samples: np.ndarray, real: np.ndarray) -> Number:
    """Number with the jackknife interval, from its values without each sample (N,) and each real text (M,)."""
    n, m = len(samples), len(real)
    half = student(min(n, m) - 1) * math.sqrt((n - 1) * float(np.var(samples)) + (m - 1) * float(np.var(real)))
    return Number(value, value - half, value + half)


def over_draws(table: Tensor, group: Tensor, kind: str = "bound") -> tuple[float, float]:
    """Half the 95% interval over the draws alone, of the sum over texts of the mean over replicates; and its freedom.

    Args:
        table: (N, R), R independent replicates; the texts of a group share the strata of their draws.
        group: (N,) long.
        kind: "exact": nothing is drawn.

    Returns:
        (half, freedom): `freedom` is Welch's degrees of freedom, at most those of the replicates: R - 1 for each group with
        noise. It is infinite if nothing is drawn. If the replicates have fewer than FREEDOM, `freedom` is theirs and `half`
        infinite. Welch's estimate does not decide this: too low a variance of the noisiest group makes it large, and
        intervals chosen by it are too narrow.
    """
    if kind == "exact":
        return 0.0, math.inf
    sets = table.shape[1]
    if sets == 1:
        return math.inf, 0.0
    sums = torch.zeros(int(group.max()) + 1, sets, dtype=torch.float64).index_add(0, group, table)
    variances = sums.var(1) / sets  # the variance of each group's mean over its replicates
    variance = float(variances.sum())
    if variance == 0:
        return 0.0, math.inf
    if not variance < math.inf:
        return math.inf, 0.0
    most = int((variances > 0).sum()) * (sets - 1)
    if most < FREEDOM:
        return math.inf, most
    freedom = int((sets + 1) / float(((variances / variance) ** 2).sum()) - 2)  # Welch's: the squares are of estimates
    freedom = min(max(freedom, 1), most)
    return student(freedom) * math.sqrt(variance), freedom


def over_texts(residuals: Tensor, drawn: float, equal: Tensor | None = None) -> float:
    """Half the 95% interval of the sum over texts, over other texts and other draws: Student's t, one text per observation.

    The variance of the texts' means includes that of their draws, as if these were independent between texts. The errors of
    stratified draws partly cancel, so it is slightly too large. The interval is never narrower than that over the draws,
    whose half-width is `drawn`, if it is known.

    Args:
        residuals: (N,) mean over the draws of each text, minus its expected value; they sum to zero up to rounding.
        equal: (N,) long, the same number for equal texts, which have the same draws and are one observation.
    """
    if equal is not None:
        kinds, number = equal.unique(return_inverse=True)
        residuals = torch.zeros(len(kinds), dtype=residuals.dtype).index_add(0, number, residuals)
    N = len(residuals)
    half = student(N - 1) * math.sqrt(N * float(residuals.var())) if N > 1 else math.inf
    return max(half, drawn) if drawn < math.inf else half


@dataclass(frozen=True)
class Proportion:
    """k of n, with Wilson's 95% interval.

    >>> print(Proportion(63, 100))
    63.0% [53.2%, 71.8%]
    """

    right: int
    total: int

    @property
    def value(self) -> float:
        return self.right / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval: the proportions that the count does not refute (1927, JASA 22)."""
        z, n, p = NormalDist().inv_cdf((1 + LEVEL) / 2), self.total, self.value
        middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        low, high = self.interval
        return (high - low) / 2

    @property
    def number(self) -> Number:
        """The same as a `Number`; NaN if `total` is 0."""
        return Number(self.value, *self.interval) if self.total else Number(math.nan, math.nan, math.nan)

    def to_dict(self) -> dict[str, Any]:
        low, high = self.interval
        return {
            "value": self.value,
            "low": low,
            "high": high,
            "right": self.right,
            "total": self.total,
            "level": LEVEL,
            "method": "Wilson",
        }

    def __str__(self) -> str:
        low, high = self.interval
        return f"{percent(self.value)} [{percent(low)}, {percent(high)}]"


def skewness(share: float, draws: int) -> float:
    """Skewness of the mean of `draws` / 2 weights if they are lognormal, as a product of many factors is.

    With the squared coefficient of variation c^2 = 1 / share - 1, that of one weight is (3 + c^2) c.

    Args:
        share: effective fraction of the draws (Kish): (sum w)^2 / sum w^2, divided by their number.
    """
    square = 1 / max(share, 1e-300) - 1
    return (3 + square) * math.sqrt(max(square, 0.0) / (draws / 2))
