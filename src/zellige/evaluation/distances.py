"""Distances between samples and real text as laws, not text by text; each with that of real text to real text, its floor.

With texts x of a model, y of real text, embeddings of unit scale (`text_features`) and a kernel k,
D(k) = E k(x, x') + E k(y, y') - 2 E k(x, y):

    energy distance   D(-|x - y|)                          Székely and Rizzo (2013, J. Stat. Plan. Inference 143)
    MMD               D(exp(-|x - y|^2 / 2)), squared      Gretton et al. (2012, JMLR 13)
    TV-n              sum_v |f_v - g_v| / 2, f and g the frequencies of n-grams of tokens in samples and in real text
    typicality        E|l(x) - E l(y)|, l a text's nats per token by the judge: how far from the typical set (Cover and
                      Thomas, Elements of Information Theory). Too near is a fault too: it is to be that of real text, not 0

The first two are U-statistics (pairs of different texts alone), so unbiased and, at equality, as often below zero as above.
TV of finite texts is biased upward, so the floor is taken at the same sizes: as many real texts, of another half, against
the same.

Intervals, 95%, over both the samples and the real texts, the embedding fixed:

D           the jackknife that leaves out one text of either side at a time. No bootstrap: it repeats texts, and a text is at
            distance zero from itself. Equal laws make the U-statistic degenerate: single texts bring it no variance, pairs do
            (V2), and the jackknife counts a pair twice, once for each of its texts (Efron and Stein 1981, Ann. Stat. 9):
            V1 + 2 V2. So V2 is computed from the centred kernel. Then a test is inverted, since D >= 0: zero is in the
            interval unless D > t sqrt(V2), all that equality allows; other values are where they lie within t sqrt(V1 + V2).
TV          random halves of both sides, drawn without repetition, vary as all of them do over other texts (the mean of a half
            of n has the variance s^2 / n about that of the whole). It covers the mean TV at these sizes, with its bias; at
            equality, where |f - g| has a kink, it is too wide.
typicality  the jackknife.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..core.random import mix
from .interval import student
from .sample_quality import ORDERS, Number, grams

HALVES = 100  # half-samples of either side
LEAST = 4  # texts of a set: the variance of pairs needs so many
INTERVAL = f"distances: jackknife over samples and real texts, pairs counted once; TV: {HALVES} halves of both"
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
    xx, yy = xx * (1 - np.eye(n)), yy * (1 - np.eye(m))
    in_x, in_y, across_x, across_y = xx.sum(1), yy.sum(1), xy.sum(1), xy.sum(0)
    X, Y, A = in_x.sum(), in_y.sum(), xy.sum()
    value = X / (n * (n - 1)) + Y / (m * (m - 1)) - 2 * A / (n * m)
    without_x = (X - 2 * in_x) / ((n - 1) * (n - 2)) + Y / (m * (m - 1)) - 2 * (A - across_x) / ((n - 1) * m)
    without_y = (Y - 2 * in_y) / ((m - 1) * (m - 2)) + X / (n * (n - 1)) - 2 * (A - across_y) / ((m - 1) * n)
    jackknife = (n - 1) * without_x.var() + (m - 1) * without_y.var()  # V1 + 2 V2
    crossed = xy - across_x[:, None] / m - across_y / n + A / (n * m)
    pairs = 2 * centred(xx) / (n * (n - 1)) + 2 * centred(yy) / (m * (m - 1))
    pairs += 4 * float((crossed**2).sum()) / ((n - 1) * (m - 1)) / (n * m)  # V2
    t = student(min(n, m) - 1)
    half = t * math.sqrt(max(jackknife - 2 * pairs, 0.0) + pairs)
    different = value > t * math.sqrt(pairs)
    low = max(value - half, 0.0) if different else min(value - half, 0.0)
    return Number(float(value), float(low), float(value + half))


def centred(kernel: np.ndarray) -> float:
    """E h(x, x')^2, h = k(x, x') - E k(x, .) - E k(., x') + E k, of a kernel's matrix (N, N) whose diagonal is zero."""
    n = len(kernel)
    row = kernel.sum(1) / (n - 2)
    h = kernel - row[:, None] - row + kernel.sum() / ((n - 1) * (n - 2))  # Székely and Rizzo's U-centring
    return float((h * h * (1 - np.eye(n))).sum()) / (n * (n - 3))


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
    kinds, N, M = int(code.max(initial=-1)) + 1, len(samples), len(real)
    ours = row < N
    if ours.all() or not ours.any():
        return Number(math.nan, math.nan, math.nan)

    def between(f: np.ndarray, g: np.ndarray) -> float:
        f, g = np.bincount(f, minlength=kinds), np.bincount(g, minlength=kinds)
        return 0.5 * float(np.abs(f / max(f.sum(), 1) - g / max(g.sum(), 1)).sum())

    generator = torch.Generator().manual_seed(mix(seed, "halves", n))
    halves = []
    for _ in range(HALVES):
        some = [torch.randperm(size, generator=generator)[: size // 2].numpy() for size in (N, M)]
        chosen = np.zeros(N + M, bool)
        chosen[np.concatenate([some[0], N + some[1]])] = True
        inside = chosen[row]
        halves.append(between(code[inside & ours], code[inside & ~ours]))
    value, half = between(code[ours], code[~ours]), student(min(N, M) - 1) * float(np.std(halves, ddof=1))
    return Number(value, value - half, value + half)


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
