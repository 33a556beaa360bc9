"""Discrepancies of two sets of vectors by a kernel, D = E k(x, x') + E k(y, y') - 2 E k(x, y), with their intervals.

`metrics.energy_distance` and `metrics.mmd` are two of them. D is a U-statistic: only pairs of different texts count. So
it is unbiased; for equal distributions its expectation is zero.

The 95% interval is over the samples x and the real texts y, with the embedding fixed:

- The variance of D is V1 + V2: V1 is that of single texts, V2 that of pairs (Hoeffding). For equal distributions V1 = 0
  (D is degenerate). Then the bootstrap is wrong, which repeats texts, and so is the jackknife, which counts a pair once
  for each of its texts, V1 + 2 V2 (Efron and Stein 1981, Ann. Stat. 9).
- So V2 is estimated from the centred kernel, and V1 is what remains. Both are unbiased, as in Sutherland and Deka (2019,
  arXiv 1906.02104).
- The errors of D and V1 are correlated: if D is too small by chance, V1 is too small, and D -+ t sqrt(V1 + V2) misses the
  truth. So a test is inverted, as in Wilson's interval of a proportion (1927, JASA 22). For each D' in question, V1 is
  replaced by V1 + (D' - D) Cov(D, V1) / Var(D), whose error is not correlated with that of D. It is kept between 0 and
  the most that D' allows, in the direction in which texts vary most.

The two sides of the interval have different lengths. `studies/coverage` reports how often the intervals cover.
"""

import math

import numpy as np

from .interval import Number, student

LEAST = 4  # texts of a set: the variance of pairs needs so many
LITTLE = 1e-300


def discrepancy(xx: np.ndarray, yy: np.ndarray, xy: np.ndarray) -> Number:
    """E k(x, x') + E k(y, y') - 2 E k(x, y) from the kernel's matrices (N, N), (M, M), (N, M),
    without the diagonals."""
    n, m = xy.shape
    x, y = witness(xx, yy, xy)
    value = float(x.mean() - y.mean())
    single, pairs = variances(xx, yy, xy)
    slope = leaning(xx, yy, xy) / max(pairs + max(single, 0.0), LITTLE)
    return Number(value, *accepted(value, single, slope, pairs, student(min(n, m) - 1)))


def leaning(xx: np.ndarray, yy: np.ndarray, xy: np.ndarray) -> float:
    """Cov(D, V1) of their estimates, 8 tr C^3 + 16 <d, C C d>: C the covariance of both means, d their difference.

    Neither part is below 0, so that near equality, where the second is noise, it is rather too large than too small.
    """
    n, m = xy.shape
    x, y = witness(xx, yy, xy)
    hx, hy, across = centred(xx) / n**2, centred(yy) / m**2, crossed(xy) / (n * m)
    third_moment = float(
        ((hx @ hx + 3 * across @ across.T) * hx).sum() + ((hy @ hy + 3 * across.T @ across) * hy).sum()
    )
    x, y = (x - x.mean()) / n, (y - y.mean()) / m
    # of the estimate of d: in expectation it has tr C^3 in it
    along = float(x @ hx @ x + y @ hy @ y + 2 * x @ across @ y)
    return 8 * max(third_moment, 0.0) + 16 * max(along - third_moment, 0.0)


def accepted(value: float, single: float, slope: float, pairs: float, t: float) -> tuple[float, float]:
    """The ends of {v: |value - v| <= t sqrt(pairs + single + slope (v - value))}, what is under the root not below
    `pairs`.

    Nor above pairs + v sqrt(8 pairs): V2 is 2 tr C C, so that no direction's V1 / D, 4 <d, C d> / <d, d>, is above
    sqrt(8 V2).
    """
    low, high = inverted(value, math.sqrt(8 * pairs), math.sqrt(pairs), t)
    reach = [(0.0, t * math.sqrt(pairs))]
    if (square := pairs + single + (t * slope / 2) ** 2) >= 0:
        reach.append((t * t * slope / 2, t * math.sqrt(square)))
    return max(low, value + min(a - b for a, b in reach)), min(high, value + max(a + b for a, b in reach))


def witness(xx: np.ndarray, yy: np.ndarray, xy: np.ndarray, less: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """(N,), (M,) how the distributions differ at each text, E k(x, .) - E k(y, .): D is its mean over x less that over
    y.

    With `less` = 2 up to a constant what is left of it if that text is left out: what the jackknife has the variance
    of.
    """
    n, m = xy.shape
    x, y = ((k.sum(1) - np.diag(k)) / (len(k) - less) for k in (xx, yy))
    return x - xy.sum(1) / m, xy.sum(0) / n - y


def variances(xx: np.ndarray, yy: np.ndarray, xy: np.ndarray) -> tuple[float, float]:
    """V1 and V2, what single texts and what pairs bring to the variance of D; V1 may be below zero, being unbiased."""
    n, m = xy.shape
    variances_of_sides = [2 * float((centred(k) ** 2).sum()) / (N - 3) / (N - 1) / N**2 for k, N in ((xx, n), (yy, m))]
    across = 4 * float((crossed(xy) ** 2).sum()) / ((n - 1) * (m - 1)) / (n * m)
    x, y = witness(xx, yy, xy, 2)
    # pairs, as each of their texts counts them
    twice = across + variances_of_sides[0] * (n - 1) / (n - 2) + variances_of_sides[1] * (m - 1) / (m - 2)
    return 4 * float(x.var(ddof=1) / n + y.var(ddof=1) / m) - 2 * twice, across + sum(variances_of_sides)


def inverted(value: float, slope: float, noise: float, t: float) -> tuple[float, float]:
    """The ends of {v: |value - v| <= t sqrt(noise^2 + slope v)}, where a v below zero has no more than the noise.

    Of a value below -t noise, farther from zero than the noise reaches, only those below zero.

    >>> inverted(2.0, 0.0, 0.5, 2.0), inverted(0.0, 1.0, 0.0, 2.0)
    ((1.0, 3.0), (0.0, 4.0))
    """
    middle, near = value + t * t * slope / 2, t * noise
    reach = t * math.sqrt(max(noise**2 + slope * value + (t * slope / 2) ** 2, 0.0))
    return value - near if value <= near else middle - reach, value + near if value < -near else middle + reach


def centred(kernel: np.ndarray) -> np.ndarray:
    """h(x, x') = k(x, x') - E k(x, .) - E k(., x') + E k of a kernel's matrix (N, N), zero on the diagonal, which is
    not read.

    E h^2 is the sum of its squares over N (N - 3).
    """
    n, off = len(kernel), 1 - np.eye(len(kernel))
    row = (kernel * off).sum(1) / (n - 2)
    return (kernel - row[:, None] - row + row.sum() / (n - 1)) * off  # Székely and Rizzo's U-centring


def crossed(kernel: np.ndarray) -> np.ndarray:
    """The same of k(x, y) (N, M)."""
    return kernel - kernel.mean(1)[:, None] - kernel.mean(0) + kernel.mean()


def euclidean(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(N, M) the distances between x (N, D) and y (M, D)."""
    squares = (x * x).sum(1)[:, None] + (y * y).sum(1) - 2 * x @ y.T
    return np.sqrt(np.maximum(squares, 0.0))
