"""Intervals by Student's t."""

import math
from statistics import NormalDist

LEVEL = 0.95  # confidence level of all intervals


def student(freedom: int, level: float = LEVEL) -> float:
    """Half-width of an interval in standard errors: the t with P(|T| <= t) = level; infinite if `freedom` is below 1.

    T has Student's distribution with `freedom` degrees of freedom. Up to 400, t is found by bisection of its closed
    form (Abramowitz and Stegun 26.7.3 and 26.7.4), above by the expansion 26.7.5, whose error is below 1e-9.
    """
    if freedom < 1:
        return math.inf
    if freedom > 400:
        z = NormalDist().inv_cdf((1 + level) / 2)
        g1, g2 = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
        g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
        return z + g1 / freedom + g2 / freedom**2 + g3 / freedom**3

    def within(t: float) -> float:
        angle = math.atan(t / math.sqrt(freedom))
        sine, square = math.sin(angle), math.cos(angle) ** 2
        odd = freedom % 2
        term = math.cos(angle) if odd else 1.0
        total = term if freedom > 1 else 0.0
        for k in range(2 + odd, freedom - 1, 2):
            term *= (k - 1) / k * square
            total += term
        return 2 / math.pi * (angle + sine * total) if odd else sine * total

    low, high = 0.0, 1e3
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < level else (low, middle)
    return high


def half(error: float, n: int) -> float:
    """Half-width of the interval of a mean of n values with this standard error; infinite if n is 1 or less."""
    return student(n - 1) * error if n > 1 else math.inf
