"""A share, k of n, with its 95% interval: an accuracy."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from ..show.numbers import percent
from .interval import LEVEL


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
        """Wilson's: the shares that the count does not refute (1927, JASA 22)."""
        z, n, p = NormalDist().inv_cdf((1 + LEVEL) / 2), self.total, self.value
        middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)

    def to_dict(self) -> dict[str, Any]:
        low, high = self.interval
        return {
            "value": self.value, "low": low, "high": high, "right": self.right, "total": self.total, "level": LEVEL,
            "method": "Wilson",
        }  # fmt: skip

    def __str__(self) -> str:
        low, high = self.interval
        return f"{percent(self.value)} [{percent(low)}, {percent(high)}]"
