"""Distances between samples and real text as laws, not text by text; each with that of real text to real text, its floor.

With texts x of a model, y of real text, embeddings of unit scale (`text_features`) and a kernel k,
D(k) = E k(x, x') + E k(y, y') - 2 E k(x, y):

    energy distance   D(-|x - y|)                          Székely and Rizzo (2013, J. Stat. Plan. Inference 143)
    MMD               D(exp(-|x - y|^2 / 2)), squared      Gretton et al. (2012, JMLR 13)
    TV-n              sum_v |f_v - g_v| / 2, f and g the frequencies of n-grams of tokens in samples and in real text
    typicality        E|l(x) - E l(y)|, l a text's nats per token by the judge: how far from the typical set (Cover and
                      Thomas, Elements of Information Theory). Too near is a fault too: it is to be that of real text, not 0

The first two are U-statistics (pairs of different texts alone), so unbiased: at equality as often below zero as above. TV of
finite texts is biased upward: what it estimates, and what its interval covers, is its mean for so many texts, and its floor is
taken at the same sizes, as many real texts, of another half, against the same.

Intervals, 95%, over both the samples and the real texts, the embedding fixed. `docs/evaluation-generation.md` says how often
they cover.

D           its variance is V1 + V2: single texts bring V1, pairs V2 (Hoeffding). Equal laws make D degenerate, V1 = 0, and no
            bootstrap nor jackknife is right there: the first repeats texts, the second counts a pair twice, for each of its
            texts (Efron and Stein 1981, Ann. Stat. 9), V1 + 2 V2. So V2 comes from the centred kernel and V1 is the rest
            (both unbiased, as in Sutherland and Deka 2019, arXiv 1906.02104). The estimates of D and V1 err together: a small D
            by chance has a small V1, and D -+ t sqrt(V1 + V2) misses the larger truth. So a test is inverted, as Wilson's
            interval of a proportion does (1927, JASA 22): of each D' that the interval may hold, V1 is what is left once its
            regression on D is taken off, V1 + (D' - D) Cov(D, V1) / Var(D), which does not err with D; it lies between 0 and
            what D' may have in the direction where texts vary most. The interval has two sides of unequal length.
TV          random quarters of both sides, without repetition, are independent: the variance of their TV is unbiased; and so are
            halves. c, the variance by what both sides have in common, 1 - TV, and by 1 / n, hardly depends on n where equal
            n-grams are frequent and where those that match are rare (Poisson); it grows with n where laws differ, since then the
            sign of f_v - g_v is the noise's among few texts and the laws' among many. So c is that of halves, by as much again
            as it grew from quarters to halves if it did. Then Wilson's inversion, of 1 - TV without noise.
typicality  the jackknife.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..core.random import mix
from ..errors import InputError
from .interval import student
from .judge import Judged
from .sample_quality import ORDERS, Number, grams
from .text_features import Embed, in_units_of

SPLITS = 100  # of either side into quarters
LEAST = 4  # texts of a set: the variance of pairs needs so many
LITTLE = 1e-300
INTERVAL = (
    f"distances: over samples and real texts, singly and in pairs; TV, of its mean at this n: {SPLITS} splits of both"
)
MEASURES = {
    "energy distance": "2 E|x - y| - E|x - x'| - E|y - y'| of embeddings, unbiased",
    "MMD": "squared, kernel exp(-|x - y|^2 / 2) on the same embeddings, unbiased",
    "TV": "half of the summed differences of n-gram frequencies; biased upward, to be read beside its floor",
    "typicality": "mean |nats per token of a text - their mean over real texts|",
    "memorisation": "tokens of the longest run of a text that stands in a row of the training set, mean over texts",
}


def from_jackknife(value: float, samples: Any, real: Any) -> Number:
    """A number with its interval from what it becomes without each of the samples (N,), and without each real text (M,)."""
    n, m = len(samples), len(real)
    half = student(min(n, m) - 1) * math.sqrt((n - 1) * float(np.var(samples)) + (m - 1) * float(np.var(real)))
    return Number(value, value - half, value + half)


# ---------------------------------------------------------------------------------------------------- of embeddings
def discrepancy(xx: np.ndarray, yy: np.ndarray, xy: np.ndarray) -> Number:
    """E k(x, x') + E k(y, y') - 2 E k(x, y) from the kernel's matrices (N, N), (M, M), (N, M), without the diagonals."""
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
    cubed = float(((hx @ hx + 3 * across @ across.T) * hx).sum() + ((hy @ hy + 3 * across.T @ across) * hy).sum())
    x, y = (x - x.mean()) / n, (y - y.mean()) / m
    along = float(
        x @ hx @ x + y @ hy @ y + 2 * x @ across @ y
    )  # of the estimate of d: in expectation it has tr C^3 in it
    return 8 * max(cubed, 0.0) + 16 * max(along - cubed, 0.0)


def accepted(value: float, single: float, slope: float, pairs: float, t: float) -> tuple[float, float]:
    """The ends of {v: |value - v| <= t sqrt(pairs + single + slope (v - value))}, what is under the root not below `pairs`.

    Nor above pairs + v sqrt(8 pairs): V2 is 2 tr C C, so that no direction's V1 / D, 4 <d, C d> / <d, d>, is above sqrt(8 V2).
    """
    low, high = inverted(value, math.sqrt(8 * pairs), math.sqrt(pairs), t)
    reach = [(0.0, t * math.sqrt(pairs))]
    if (square := pairs + single + (t * slope / 2) ** 2) >= 0:
        reach.append((t * t * slope / 2, t * math.sqrt(square)))
    return max(low, value + min(a - b for a, b in reach)), min(high, value + max(a + b for a, b in reach))


def witness(xx: np.ndarray, yy: np.ndarray, xy: np.ndarray, less: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """(N,), (M,) how the laws differ at each text, E k(x, .) - E k(y, .): D is its mean over x less that over y.

    With `less` = 2 up to a constant what is left of it if that text is left out: what the jackknife has the variance of.
    """
    n, m = xy.shape
    x, y = ((k.sum(1) - np.diag(k)) / (len(k) - less) for k in (xx, yy))
    return x - xy.sum(1) / m, xy.sum(0) / n - y


def variances(xx: np.ndarray, yy: np.ndarray, xy: np.ndarray) -> tuple[float, float]:
    """V1 and V2, what single texts and what pairs bring to the variance of D; V1 may be below zero, being unbiased."""
    n, m = xy.shape
    each = [2 * float((centred(k) ** 2).sum()) / (N - 3) / (N - 1) / N**2 for k, N in ((xx, n), (yy, m))]
    across = 4 * float((crossed(xy) ** 2).sum()) / ((n - 1) * (m - 1)) / (n * m)
    x, y = witness(xx, yy, xy, 2)
    twice = (
        across + each[0] * (n - 1) / (n - 2) + each[1] * (m - 1) / (m - 2)
    )  # pairs, as each of their texts counts them
    return 4 * float(x.var(ddof=1) / n + y.var(ddof=1) / m) - 2 * twice, across + sum(each)


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
    """h(x, x') = k(x, x') - E k(x, .) - E k(., x') + E k of a kernel's matrix (N, N), zero on the diagonal, which is not read.

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


def of_embeddings(samples: np.ndarray, real: np.ndarray) -> dict[str, Number]:
    """Energy distance and squared MMD of embeddings (N, D) and (M, D), float64."""
    distances = [euclidean(samples, samples), euclidean(real, real), euclidean(samples, real)]
    return {
        "energy distance": discrepancy(*(-d for d in distances)),
        "MMD": discrepancy(*(np.exp(-(d**2) / 2) for d in distances)),
    }


# ---------------------------------------------------------------------------------------------------- of n-grams
def total_variation(samples: Sequence[Sequence[int]], real: Sequence[Sequence[int]], n: int, seed: int = 0) -> Number:
    """TV of the frequencies of n-grams, with its interval for the mean TV of texts so many. NaN where one side has none.

    >>> total_variation([[1, 2], [1, 3]], [[1, 2], [1, 2]], 1).value
    0.25
    """
    code, row = grams([*samples, *real], n)
    kinds, sizes = int(code.max(initial=-1)) + 1, (len(samples), len(real))
    ours = row < sizes[0]
    if ours.all() or not ours.any():
        return Number(math.nan, math.nan, math.nan)
    sides = ((code[ours], row[ours]), (code[~ours], row[~ours] - sizes[0]))
    value = float(_between(*(np.bincount(of, minlength=kinds)[None] for of, _ in sides))[0])
    size, least = min(sizes), min(len(of) for of, _ in sides)
    if size < LEAST:
        return Number(value, -math.inf, math.inf)
    generator = torch.Generator().manual_seed(mix(seed, "quarters", n))
    spread, shared = np.zeros(2), np.zeros(2)  # of quarters, of halves
    for _ in range(SPLITS):
        parts = []
        for (of, text), many in zip(sides, sizes):
            place = torch.randperm(many, generator=generator).numpy() // (
                many // 4
            )  # what is left over is in no quarter
            parts.append(np.bincount(place[text] * kinds + of, minlength=8 * kinds)[: 4 * kinds].reshape(4, kinds))
        common = [1 - _between(*parts), 1 - _between(*(q[[0, 2, 0, 1, 0, 1]] + q[[1, 3, 2, 3, 3, 2]] for q in parts))]
        spread += [float(each.reshape(-1, k).var(1, ddof=1).mean()) / SPLITS for each, k in zip(common, (4, 2))]
        shared += [float(each.mean()) / SPLITS for each in common]
    quarters, halves = spread / np.maximum(shared, LITTLE) * np.array([1, 2]) * (size // 4) / size
    slope = halves * max(halves / quarters, 1.0) if quarters > 0 else halves or 1 / least
    low, high = inverted(1 - value, slope, 0.0, student(size - 1))
    return Number(value, 1 - high, 1 - low)


def _between(f: np.ndarray, g: np.ndarray) -> np.ndarray:
    """TV of counts (B, kinds) and (B, kinds), row by row."""
    f, g = (x / np.maximum(x.sum(1, keepdims=True), 1) for x in (f, g))
    return 0.5 * np.abs(f - g).sum(1)


# ---------------------------------------------------------------------------------------------------- of the judge
def typicality(samples: np.ndarray, real: np.ndarray) -> Number:
    """E|l(x) - E l(y)| of nats per token of samples (N,) and of real texts (M,); NaN is left out."""
    x, y = samples[~np.isnan(samples)], real[~np.isnan(real)]
    if min(len(x), len(y)) < 2:
        return Number(math.nan, math.nan, math.nan)
    off = np.abs(x - y.mean())
    without_x = (off.sum() - off) / (len(x) - 1)
    without_y = np.abs(x - ((y.sum() - y) / (len(y) - 1))[:, None]).mean(1)
    return from_jackknife(float(off.mean()), without_x, without_y)


def measures(
    rows: Sequence[Sequence[int]], rates: np.ndarray, features: np.ndarray,
    real_rows: Sequence[Sequence[int]], real_rates: np.ndarray, real_features: np.ndarray,
) -> dict[str, Number]:  # fmt: skip
    """Every distance by its name: of tokens, of nats per token (N,), of embeddings (N, D)."""
    out = of_embeddings(features, real_features)
    out |= {f"TV-{n}": total_variation(rows, real_rows, n) for n in ORDERS}
    return out | {"typicality": typicality(rates, real_rates)}


@dataclass(frozen=True)
class View:
    """What distances are taken of: each text's tokens, its nats per token (N,), and its embedding (N, D)."""

    rows: Sequence[Sequence[int]]
    rates: np.ndarray
    features: np.ndarray

    def first(self, n: int) -> "View":
        return View(self.rows[:n], self.rates[:n], self.features[:n])


class RealText:
    """Held-out texts that samples are compared with, `size` of either at most.

    Args:
        texts, reading: of real text, two for each sample where there are so many; those at odd places are compared with.
        embed: texts as vectors.
        count: how many samples there are.

    Raises:
        InputError: too few texts.
    """

    def __init__(self, texts: Sequence[str], reading: Judged, embed: Embed, count: int):
        self.size = min(count, len(texts) // 2)
        if self.size < LEAST:
            raise InputError(f"{len(texts)} real texts are too few for distances; give {2 * LEAST} or more")
        vectors, of = embed(texts), slice(0, 2 * self.size)
        halves = [View(reading.rows[of][i::2], reading.rates[of][i::2], vectors[of][i::2]) for i in (0, 1)]
        self.embed, self.units = embed, in_units_of(halves[0].features)
        floor, self.reference = (View(v.rows, v.rates, self.units(v.features)) for v in halves)
        self.floor = self.distances(floor)

    def view(self, texts: Sequence[str], reading: Judged) -> View:
        """Samples, as many of them as are compared."""
        n = self.size
        return View(reading.rows[:n], reading.rates[:n], self.units(self.embed(texts[:n])))

    def distances(self, samples: View) -> dict[str, Number]:
        """Every distance of these from the reference, by name; where they are fewer, from as many."""
        if len(samples.rows) < LEAST:
            raise InputError(f"{len(samples.rows)} samples are too few for distances; give {LEAST} or more")
        real = self.reference.first(len(samples.rows))
        return measures(samples.rows, samples.rates, samples.features, real.rows, real.rates, real.features)
