"""Student's t: the half-width of an interval in standard errors."""

import math
from statistics import NormalDist

LEVEL = 0.95  # of all intervals


def student(freedom: int, level: float = LEVEL) -> float:
    """The half-width of Student's t in standard errors: P(|T| <= it) = level.

    By bisection of the closed form of the distribution function for whole degrees of freedom (Abramowitz and Stegun
    26.7.3 and 26.7.4); above 400 by the expansion 26.7.5, whose error is then below 1e-9.
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
    """Half the interval of a mean of n values whose standard error is this; infinite of one value."""
    return student(n - 1) * error if n > 1 else math.inf
