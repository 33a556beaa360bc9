"""Metrics of samples: each is one function and one row of METRICS, the table that everything else reads.

To add a metric, write its function here and its row below. `zellige evaluate RUN --generate` then computes, prints and
saves it, shows by which degenerate samplers it is fooled, and `python docs/_tools/pages.py` makes its page.

The row of a function names its arguments in `takes`, each a key of KNOWN; it is called if all of them are known. It
returns a `Number`, a `Proportion`, or an array with one value per sample (N,). The result of an array is its mean without
NaN, with Student's interval over the samples. A kind of data may have its own metrics (`plugins/kinds/`).

Every metric alone is fooled by some degenerate sampler (`degenerate.fooled_metrics`): text that repeats one word has the
best perplexity of all.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..base.errors import InputError, not_installed
from ..base.plugins import Fits, Registry
from ..core.random import mix
from .distances import LEAST, LITTLE, discrepancy, euclidean, inverted
from .image_quality import (
    BLOCK,
    MANIFOLD,
    NEIGHBOUR,
    PARTS,
    Views,
    check_enough,
    frechet,
    inception,
    jackknife,
    kernel_distance,
    radii,
    within,
)
from .interval import Number, Proportion, from_jackknife, mean, student
from .result import summarize

ORDERS = (1, 2, 3, 4)  # n of distinct-n and of TV-n
REPEAT = 4  # n of seq-rep-n
CLUSTERINGS = 5  # of MAUVE, as in its paper
SPLITS = 100  # of either side into quarters, for the interval of total variation


# ---------------------------------------------------------------------------------------------------- of the tokens alone
def entropies(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Unigram entropy of each sample, -sum_v f_v log f_v: (N,) nats.

    f_v is the frequency of token v in the sample. The entropy is at most the log of the sample's length, and NaN for a
    sample without tokens.

    >>> entropies([[3, 1, 2, 0], [0, 0, 1, 1]]) / math.log(2)
    array([2., 1.])
    """
    values = np.full(len(rows), np.nan)
    for i, row in enumerate(rows):
        if len(row):
            frequencies = np.unique(np.asarray(row), return_counts=True)[1] / len(row)
            values[i] = max(0.0, -float(frequencies @ np.log(frequencies)))
    return values


def grams(rows: Sequence[Sequence[int]], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return all n-grams within the rows: (M,) an integer for each different one, (M,) the row of each."""
    tokens = np.concatenate([np.asarray(row, np.int64) for row in rows]) if len(rows) else np.zeros(0, np.int64)
    row = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
    single = np.unique(tokens, return_inverse=True)[1]
    code, base = single, int(single.max(initial=0)) + 1
    for k in range(1, n):
        code = np.unique(code[:-1] * base + single[k:], return_inverse=True)[1]
    ends = row[n - 1 :]
    inside = row[: len(ends)] == ends
    return code[: len(ends)][inside], ends[inside]


def distinct(rows: Sequence[Sequence[int]], n: int) -> Number:
    """Number of different n-grams, divided by the number of all n-grams, in all samples together.

    It falls as more text is sampled (Heaps' law), so compare it at equal numbers of tokens only. NaN if there is no
    n-gram. The interval is the jackknife over samples; its variance is not too small in expectation (Efron and Stein 1981).

    >>> distinct([[7, 7, 7, 7, 7]], 2).value
    0.25
    """
    code, row = grams(rows, n)
    if not len(code):
        return Number(math.nan, math.nan, math.nan)
    N = len(rows)
    pairs = np.unique(np.stack([code, row]), axis=1)  # which kinds each row has
    kinds, first, rows_with = np.unique(pairs[0], return_index=True, return_counts=True)
    alone = np.bincount(pairs[1][first[rows_with == 1]], minlength=N)  # kinds that only this row has
    without = len(code) - np.bincount(row, minlength=N)
    value = len(kinds) / len(code)
    if N < 2 or not without.all():
        return Number(value, -math.inf, math.inf)
    left_out = (len(kinds) - alone) / without
    half = student(N - 1) * math.sqrt((N - 1) * float(left_out.var()))
    return Number(value, value - half, value + half)


def repetitions(rows: Sequence[Sequence[int]], n: int = REPEAT) -> np.ndarray:
    """Fraction of the n-grams of each sample that occurred in it before: (N,); NaN below n tokens."""
    code, row = grams(rows, n)
    many = np.bincount(row, minlength=len(rows))
    kinds = np.bincount(np.unique(np.stack([code, row]), axis=1)[1], minlength=len(rows))
    return np.where(many > 0, 1 - kinds / np.maximum(many, 1), np.nan)


# ---------------------------------------------------------------------------------------------------- of their lengths
def median_length(lengths: np.ndarray) -> Number:
    """Median of the lengths (N,) of documents; one that did not end (NaN) counts as longer than all that did.

    NaN if half of them did not end. The interval lies between the k-th shortest and the k-th longest document. The number
    of values below the median is binomial for any distribution; k is the largest with which the interval covers 95%.

    >>> median_length(np.array([3, 9, 1, 5, math.nan])).value
    5.0
    """
    n = len(lengths)
    x = np.sort(np.where(np.isnan(lengths), np.inf, lengths))
    value = (x[(n - 1) // 2] + x[n // 2]) / 2
    if not math.isfinite(value):
        return Number(math.nan, math.nan, math.nan)
    k, below = 0, 0.5**n  # P(at most k of n values are below the median)
    while below <= 0.025:
        k += 1
        ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        below += math.exp(ways - n * math.log(2))
    low, high = (x[k - 1], x[n - k]) if k else (-math.inf, math.inf)
    return Number(float(value), float(low), float(high))


def longest_length(lengths: np.ndarray) -> Number:
    """Longest of the lengths (N,) of documents that ended; NaN if none did. It grows with N and has no interval."""
    ended = lengths[~np.isnan(lengths)]
    return Number(float(ended.max()), -math.inf, math.inf) if len(ended) else Number(math.nan, math.nan, math.nan)


def endless(lengths: np.ndarray) -> Number:
    """Fraction of the documents that did not end within the requested length: those whose length (N,) is NaN."""
    return Proportion(int(np.isnan(lengths).sum()), len(lengths)).number


# ---------------------------------------------------------------------------------------------------- by the judge
def judged_only(nats: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return both (N,) in float64, without the samples that have no judged token. InputError: none is left."""
    has_tokens = tokens > 0
    if not has_tokens.any():
        raise InputError("the judge found no token to judge; give texts of two tokens or more, or `first` judged")
    return nats[has_tokens].double(), tokens[has_tokens].double()


def perplexity(nats: Tensor, tokens: Tensor) -> Number:
    """Corpus-level perplexity, exp(sum of all nats / number of all tokens), as MDLM, BD3-LM, Duo and ReMDM report it.

    Samples without a judged token are left out. The interval is Student's t over samples, of the residuals of the ratio.
    """
    ratio = summarize(*judged_only(nats, tokens), "nats/token", "exact")
    return Number(ratio.perplexity, ratio.perplexity_low, ratio.perplexity_high)


def perplexities(nats: Tensor, tokens: Tensor) -> np.ndarray:
    """Perplexity of each sample, exp(nats / tokens): (N,). SEDD and RADD report the mean.

    For samples of equal length the mean is larger than the corpus-level perplexity (Jensen). It depends most on the
    worst samples. Samples without a judged token are left out.
    """
    nats, tokens = judged_only(nats, tokens)
    return (nats / tokens).exp().numpy()


def mauve_package() -> Any:
    """Import the package of MAUVE's authors. InputError: it is not installed."""
    try:
        import mauve as package  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise not_installed("`mauve`", "mauve", "mauve") from None
    return package


def mauve(features: Tensor, real_features: Tensor, seed: int = 0) -> Number:
    """Area under the divergence frontier of features of samples (N, D) and real text (M, D).

    Computed by its authors' package. The value is the mean over 5 seeds of the clustering; the interval covers only
    these seeds. MAUVE needs thousands of texts, and depends on their number, their length and the network of the features.

    Raises:
        InputError: the package is not installed.
    """
    package = mauve_package()
    p, q = (x.float().cpu().numpy() for x in (features, real_features))
    with torch.random.fork_rng(devices=[]):
        scores = [
            package.compute_mauve(p_features=p, q_features=q, seed=seed + i, verbose=False).mauve
            for i in range(CLUSTERINGS)
        ]
    return mean([float(x) for x in scores])


# ---------------------------------------------------------------------------------------------------- against real text
def energy_distance(vectors: np.ndarray, real_vectors: np.ndarray) -> Number:
    """Energy distance 2 E|x - y| - E|x - x'| - E|y - y'| of embeddings x of samples (N, D) and y of real text (M, D).

    x' and y' are other samples and other real texts, and |.| is the Euclidean distance. The embeddings are scaled so that
    two real texts are at a root mean square distance of 1. Expectations are means over all pairs of different texts, so
    the estimate is unbiased. If both distributions are equal its expectation is zero, so it may be negative. The 95%
    interval is over samples and real texts, with the embedding fixed (`distances.discrepancy`).
    """
    return discrepancy(*(-d for d in euclideans(vectors, real_vectors)))


def mmd(vectors: np.ndarray, real_vectors: np.ndarray) -> Number:
    """Squared MMD, E k(x, x') + E k(y, y') - 2 E k(x, y), of embeddings x of samples (N, D) and y of real text (M, D).

    MMD is the maximum mean discrepancy; x' and y' are other samples and other real texts. The kernel is Gaussian,
    k(x, y) = exp(-|x - y|^2 / 2). Its width 1 is the root mean square distance of two real texts in this embedding. As for
    the energy distance, the estimate is unbiased and may be negative, and the 95% interval is over samples and real texts.
    """
    return discrepancy(*(np.exp(-(d**2) / 2) for d in euclideans(vectors, real_vectors)))


def euclideans(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distances within x (N, N), within y (M, M) and between both (N, M)."""
    return euclidean(x, x), euclidean(y, y), euclidean(x, y)


def total_variation(
    compared_rows: Sequence[Sequence[int]], real_rows: Sequence[Sequence[int]], n: int, seed: int = 0
) -> Number:
    """Total variation sum_v |f_v - g_v| / 2 of the frequencies of n-grams in samples (f) and in real text (g).

    For finitely many texts it is biased upward, so compare it with that of real text against as much other real text. NaN
    if one side has no n-gram.

    The interval is for the mean at this number of texts. Its variance is extrapolated from random quarters and halves of
    both sides: c = variance * size / (1 - TV) depends little on the size, so c is that of halves, times its growth from
    quarters to halves if it grew. Then a test of 1 - TV is inverted (`distances.inverted`).

    >>> total_variation([[1, 2], [1, 3]], [[1, 2], [1, 2]], 1).value
    0.25
    """
    code, row = grams([*compared_rows, *real_rows], n)
    kinds, sizes = int(code.max(initial=-1)) + 1, (len(compared_rows), len(real_rows))
    is_sample = row < sizes[0]
    if is_sample.all() or not is_sample.any():
        return Number(math.nan, math.nan, math.nan)
    sides = ((code[is_sample], row[is_sample]), (code[~is_sample], row[~is_sample] - sizes[0]))
    value = float(_between(*(np.bincount(of, minlength=kinds)[None] for of, _ in sides))[0])
    size, least = min(sizes), min(len(of) for of, _ in sides)
    if size < LEAST:
        return Number(value, -math.inf, math.inf)
    generator = torch.Generator().manual_seed(mix(seed, "quarters", n))
    spread, overlap = np.zeros(2), np.zeros(2)  # of quarters, of halves
    for _ in range(SPLITS):
        parts = []
        for (of, text), many in zip(sides, sizes):  # what is left over is in no quarter
            place = torch.randperm(many, generator=generator).numpy() // (many // 4)
            parts.append(np.bincount(place[text] * kinds + of, minlength=8 * kinds)[: 4 * kinds].reshape(4, kinds))
        common = [1 - _between(*parts), 1 - _between(*(q[[0, 2, 0, 1, 0, 1]] + q[[1, 3, 2, 3, 3, 2]] for q in parts))]
        spread += [float(values.reshape(-1, k).var(1, ddof=1).mean()) / SPLITS for values, k in zip(common, (4, 2))]
        overlap += [float(values.mean()) / SPLITS for values in common]
    quarters, halves = spread / np.maximum(overlap, LITTLE) * np.array([1, 2]) * (size // 4) / size
    slope = halves * max(halves / quarters, 1.0) if quarters > 0 else halves or 1 / least
    low, high = inverted(1 - value, slope, 0.0, student(size - 1))
    return Number(value, 1 - high, 1 - low)


def _between(f: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Total variation of counts (B, kinds) and (B, kinds): (B,)."""
    f, g = (x / np.maximum(x.sum(1, keepdims=True), 1) for x in (f, g))
    return 0.5 * np.abs(f - g).sum(1)


def typicality(rates: np.ndarray, real_rates: np.ndarray) -> Number:
    """Mean distance E|l(x) - E l(y)| of samples x (N,) from the mean of real texts y (M,); l is nats per token.

    The goal is the value of real texts, not 0: samples that all have the same l are not like real text. NaN is left
    out. The interval is the jackknife over samples and real texts.
    """
    x, y = rates[~np.isnan(rates)], real_rates[~np.isnan(real_rates)]
    if min(len(x), len(y)) < 2:
        return Number(math.nan, math.nan, math.nan)
    off = np.abs(x - y.mean())
    without_x = (off.sum() - off) / (len(x) - 1)
    without_y = np.abs(x - ((y.sum() - y) / (len(y) - 1))[:, None]).mean(1)
    return from_jackknife(float(off.mean()), without_x, without_y)


# ---------------------------------------------------------------------------------------------------- against the true rest
def hellinger(written_rows: Sequence[Sequence[int]], true_rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Hellinger distance sqrt(sum_v (sqrt(f_v) - sqrt(g_v))^2 / 2) of the frequencies of tokens: (N,).

    f are the frequencies in the written part of a sample, g those at the same positions of the true text. It is 0 if
    all frequencies are equal, 1 if no token is in both, and NaN if one side has no token.

    >>> hellinger([[1, 1, 2, 2], [3]], [[2, 1, 2, 1], [4]])
    array([0., 1.])
    """
    values = np.full(len(written_rows), np.nan)
    for i, sides in enumerate(zip(written_rows, true_rows, strict=True)):
        if all(map(len, sides)):
            code, row = grams(sides, 1)
            f, g = (np.bincount(code[row == side], minlength=int(code.max()) + 1) for side in (0, 1))
            values[i] = math.sqrt(0.5 * float(((np.sqrt(f / f.sum()) - np.sqrt(g / g.sum())) ** 2).sum()))
    return values


def outliers(written_rows: Sequence[Sequence[int]], true_rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Fraction of the tokens in the written part of each sample that do not occur in that part of the true text.

    (N,), NaN if nothing was written.

    >>> outliers([[1, 1, 2, 5]], [[2, 1, 3]])
    array([0.25])
    """
    return np.array(
        [
            float(np.isin(written, true, invert=True).mean()) if len(written) else math.nan
            for written, true in zip(written_rows, true_rows, strict=True)
        ]
    )


def memorised(runs: np.ndarray) -> np.ndarray:
    """Length in tokens of the longest run of each sample that is in a sequence of the training set: (N,).

    `memorisation.longest` finds the runs by hashes; two different runs have equal hashes with probability 2^-64. The
    interval is over samples, with the training set fixed.
    """
    return runs


# ---------------------------------------------------------------------------------------------------- of images
def fid(images: Tensor, real_images: Tensor) -> Number:
    """Fréchet distance |m - m'|^2 + tr(C + C' - 2 (C C')^(1/2)) of the features of samples (N, D) and real images (M, D).

    m and m' are the means of the features, C and C' their covariances. Computed by torchmetrics. FID is biased: it falls
    as the number of samples grows, so compare it at equal numbers only. The 95% interval is the jackknife over 10 groups
    of samples, with the real images fixed. (A bootstrap would repeat samples, which makes FID larger.)
    """
    return jackknife(lambda x: frechet(x, real_images), images)


def kid(images: Tensor, real_images: Tensor) -> Number:
    """Squared MMD of features (N, D) and (M, D) with the kernel (x.y / D + 1)^3: the mean over disjoint blocks of both.

    Computed by torchmetrics; unbiased. A block has at most 1,000 samples. The interval is the jackknife over 10 groups
    of samples.
    """
    blocks = math.ceil(len(images) / BLOCK)
    return jackknife(lambda x: kernel_distance(x, real_images, blocks), images)


def inception_score(logits: Tensor) -> Number:
    """exp of the mean KL(p(y | x) || p(y)) by a classifier with logits (N, classes), averaged over 10 splits.

    Computed by torchmetrics, without real images. The interval is Student's t over the splits. A split has a tenth of
    the samples, rounded up, so there can be fewer than 10.
    """
    value, deviation = inception(logits)
    splits = math.ceil(len(logits) / math.ceil(len(logits) / PARTS))
    half = student(splits - 1) * deviation / math.sqrt(splits)
    return Number(value, value - half, value + half)


def precision(images: Tensor, real_images: Tensor) -> Number:
    """Fraction of the samples (N, D) that lie in the manifold of the real images (M, D).

    The manifold of a set is the union of balls around its images, each with the third nearest neighbour on its surface.
    """
    manifold = real_images[:MANIFOLD]
    return Proportion(int(within(images, manifold, radii(manifold)).sum()), len(images)).number


def recall(images: Tensor, real_images: Tensor) -> Number:
    """Fraction of the real images (M, D) that lie in the manifold of the samples (N, D).

    It is biased in the number of samples. The interval is the jackknife over 10 groups of samples.
    """
    manifold = real_images[:MANIFOLD]
    return jackknife(lambda x: float(within(manifold, x, radii(x)).mean()), images)


def recognised(logits: Tensor, asked: Tensor) -> Number:
    """Fraction of the samples that a classifier, with logits (N, classes), puts into the requested class (N,)."""
    return Proportion(int((logits.argmax(1) == asked).sum()), len(asked)).number


# ---------------------------------------------------------------------------------------------------- the table
KNOWN = {  # what a metric may take
    "rows": "token ids of each of N samples, of any length",
    "lengths": "(N,) tokens of each sample up to its end-of-text token, if the sampler ends there; NaN without one",
    "nats": "(N,) -log p of each sample by the judge, in nats",
    "tokens": "(N,) number of tokens of each sample that the judge scored",
    "features": "(N, D) last hidden states of the judge, of samples",
    "real_features": "(M, D) last hidden states of the judge, of real texts",
    "seed": "random seed of the evaluation",
    "compared_rows": "token ids of as many samples as there are real texts",
    "real_rows": "token ids of held-out real texts",
    "rates": "(N,) nats per token of the compared samples by the judge; NaN where no token was judged",
    "real_rates": "(M,) the same for the real texts",
    "vectors": "(N, D) embeddings of the compared samples, float64, scaled by the spread of real texts (`text_features`)",
    "real_vectors": "(M, D) the same for the real texts",
    "written_rows": "token ids of each of N samples, without the given part",
    "true_rows": "token ids at the same positions of the true text",
    "runs": "(N,) length in tokens of the longest run of each sample that is in the training set (`memorisation.longest`)",
    "images": "(N, D) features of samples, float64, in random order",
    "real_images": "(M, D) features of real images, float64, in random order",
    "texts": "texts of the samples, for data that has its own metrics",
    "training_texts": "the different texts of the training split",
    "asked": "(N,) class that was requested for each sample",
    "found": "(N,) class of each sample by its counted property; -1 if it cannot be counted",
    "counted": "(N,) the counted property; NaN if it cannot be counted",
    "right_parts": "(N, 5) whether each part of a picture is right; NaN for a hidden part",
    "seen": "(N,) 1 for a picture of the training split, 2 for a held-out one, 0 for another valid one; -1 if it is not valid",
    "logits": "(N, classes) of samples, by the classifier whose features are compared",
}
STUDENT = "Student's t over samples"
IN_PAIRS = "over the choice of samples and of real texts"
GROUPS = f"jackknife over {PARTS} groups of samples, real images fixed"


@dataclass(frozen=True)
class Metric:
    """A row of the table.

    Attributes:
        name: key in the JSON.
        function, takes: the function that computes it, and the names of its arguments (keys of KNOWN).
        higher: whether higher is better; None if the value of real text is best. Degenerate samplers are judged by it.
        interval: method of the 95% interval.
        title, unit: name and unit in printed output; `unit` is "" for a pure number.
        definition: sentence in the protocol of a result; "" for none.
        paper: source.
        biased: whether its expectation depends on the number of samples.
        decimals, from_value: number of printed decimals; from the value `from_value[0]` on, `from_value[1]` of them.
        sides: whether the two ends of the interval are printed separately.
        column: heading in the table of several sets; "" if it is not in this table.
        axis, log: label of its axis in a figure, and whether this axis is logarithmic.
        family: common name of metrics that differ in a number n; default: the name.
        page: page in docs/metrics; default: the name in lower case.
        subject: the kind of data, if it is for one kind only.
    """

    name: str
    function: Callable[..., Any]
    takes: tuple[str, ...]
    higher: bool | None
    interval: str = STUDENT
    title: str = ""
    unit: str = ""
    definition: str = ""
    paper: str = ""
    biased: bool = False
    decimals: int = 3
    from_value: tuple[float, int] = (math.inf, 3)
    sides: bool = False
    column: str = ""
    axis: str = ""
    log: bool = False
    family: str = ""
    page: str = ""
    subject: str = ""

    def __post_init__(self) -> None:
        if unknown := set(self.takes) - KNOWN.keys():
            raise ValueError(f"the metric '{self.name}' takes '{min(unknown)}', which nothing gives it")
        for field, default in (("title", self.name), ("family", self.name), ("page", self.name.lower())):
            object.__setattr__(self, field, getattr(self, field) or default)
        object.__setattr__(self, "axis", self.axis or self.label)

    @property
    def label(self) -> str:
        """Title and unit: `unigram entropy, nats`."""
        return f"{self.title}, {self.unit}" if self.unit else self.title

    @property
    def of_tokens(self) -> bool:
        return bool({"rows", "compared_rows", "written_rows"} & {*self.takes})

    @property
    def of_images(self) -> bool:
        return "images" in self.takes or "logits" in self.takes

    def places(self, value: float) -> int:
        """Number of decimals with which a value is printed."""
        large, places = self.from_value
        return places if abs(value) >= large else self.decimals

    def text(self, number: Number) -> str:
        """Text such as `40.21 ± 1.30`, or `0.0128 -0.0141 +0.0213` if the two sides of the interval differ."""
        return (number.sides if self.sides else number.text)(self.places(number.value))


_PERPLEXITY = {"higher": False, "from_value": (10, 2), "page": "perplexity"}
_DISTINCT: dict[str, Any] = {
    "higher": True,
    "interval": "jackknife over samples",
    "definition": "different n-grams / n-grams, over all samples",
    "paper": "Li et al. 2016, arXiv 1510.03055",
    "biased": True,
    "family": "distinct-n",
    "page": "distinct",
}
_TV: dict[str, Any] = {
    "higher": False,
    "interval": f"of the mean at this number of texts, {SPLITS} splits of samples and of real texts",
    "definition": "half of the summed differences of n-gram frequencies; biased upward, to be read beside its floor",
    "biased": True,
    "sides": True,
    "family": "TV-n",
    "page": "tv",
}
WILSON = "Wilson's, of a proportion"
_NEIGHBOURS = f"{NEIGHBOUR} neighbours, at most {MANIFOLD:,} real images"

METRICS: Registry[Metric] = Registry(
    "metric",
    group="zellige.metrics",
    fits=Fits(lambda value: isinstance(value, Metric), "a zellige.evaluation.metrics.Metric"),
)
METRICS |= {metric.name: metric for metric in (
    Metric("perplexity", perplexity, ("nats", "tokens"), title="perplexity, corpus",
           definition="corpus: exp(all nats / all tokens)", paper="MDLM, BD3-LM, Duo, ReMDM",
           column="perplexity", axis="generative perplexity", log=True, **_PERPLEXITY),
    Metric("perplexity per sequence", perplexities, ("nats", "tokens"), title="perplexity, per sequence",
           definition="mean over samples of exp(nats / tokens)", paper="SEDD, RADD", column="per sequence", **_PERPLEXITY),
    Metric("entropy", entropies, ("rows",), True, title="unigram entropy", unit="nats", column="entropy",
           definition="of the frequencies of the tokens within a sample, nats; mean over samples"),
    *(Metric(f"distinct-{n}", partial(distinct, n=n), ("rows",), **_DISTINCT) for n in ORDERS),
    Metric(f"seq-rep-{REPEAT}", repetitions, ("rows",), False, definition=f"1 - distinct-{REPEAT} within a sample, mean",
           paper="Welleck et al. 2020, arXiv 1908.04319", column=f"seq-rep-{REPEAT}", page="seq-rep"),
    Metric("document length", median_length, ("lengths",), None, "between two order statistics (binomial)", unit="tokens",
           title="document length, median", definition="median; one that did not end is longer than all that did",
           paper="Arriola et al. 2025, arXiv 2503.09573", decimals=0, sides=True, page="length"),
    Metric("longest document", longest_length, ("lengths",), None, "none: of these samples", unit="tokens",
           definition="of those that ended", paper="Arriola et al. 2025, arXiv 2503.09573", biased=True, decimals=0,
           page="length"),
    Metric("endless documents", endless, ("lengths",), None, WILSON, title="did not end", page="length",
           sides=True,
           definition="fraction of the samples without an end-of-text token"),
    Metric("mauve", mauve, ("features", "real_features", "seed"), True, title="MAUVE", column="mauve", biased=True,
           interval=f"Student's t over {CLUSTERINGS} seeds of its clusters", paper="Pillutla et al. 2021, arXiv 2102.01454"),
    Metric("energy distance", energy_distance, ("vectors", "real_vectors"), False, IN_PAIRS,
           definition="2 E|x - y| - E|x - x'| - E|y - y'| of embeddings, unbiased", decimals=4, sides=True,
           paper="Székely and Rizzo 2013, J. Stat. Plan. Inference 143", column="energy distance", page="energy"),
    Metric("MMD", mmd, ("vectors", "real_vectors"), False, IN_PAIRS, title="MMD, squared", decimals=4, sides=True,
           definition="squared, kernel exp(-|x - y|^2 / 2) on the same embeddings, unbiased",
           paper="Gretton et al. 2012, JMLR 13"),
    *(Metric(f"TV-{n}", partial(total_variation, n=n), ("compared_rows", "real_rows"),
             title=f"total variation, {n}-grams", **_TV) for n in ORDERS),
    Metric("typicality", typicality, ("rates", "real_rates"), None, "jackknife over samples and real texts", unit="nats/token",
           definition="mean |nats per token of a text - their mean over real texts|",
           paper="Cover and Thomas, Elements of Information Theory"),
    Metric("memorisation", memorised, ("runs",), False, title="memorised run", unit="tokens", decimals=1, page="memorised",
           definition="tokens of the longest run of a text that stands in a row of the training set, mean over texts"),
    Metric("Hellinger", hellinger, ("written_rows", "true_rows"), False, title="Hellinger distance", column="Hellinger",
           definition="of the tokens' frequencies in what was written and in the true rest; of real text in the rest of another",
           paper="Campbell et al. 2022, arXiv 2205.14987"),
    Metric("outliers", outliers, ("written_rows", "true_rows"), False, title="outliers", column="outliers", page="hellinger",
           definition="fraction of what was written that is nowhere in the true rest",
           paper="Campbell et al. 2022, arXiv 2205.14987"),
    Metric("recognised", recognised, ("logits", "asked"), True, WILSON, sides=True, column="recognised",
           definition="fraction that the classifier of the features puts into the class asked for; of real ones, into their own"),
    Metric("FID", fid, ("images", "real_images"), False, GROUPS, paper="Heusel et al. 2017, arXiv 1706.08500", biased=True,
           from_value=(10, 2), column="FID", axis="FID, lower is better", log=True),
    Metric("KID", kid, ("images", "real_images"), False, GROUPS, paper="Bińkowski et al. 2018, arXiv 1801.01401", decimals=5,
           definition=f"polynomial kernel of degree 3, mean over disjoint blocks of at most {BLOCK:,}",
           from_value=(1, 3), column="KID", axis="KID, lower is better"),
    Metric("Inception score", inception_score, ("logits",), True, f"Student's t over {PARTS} splits", biased=True,
           definition=f"{PARTS} splits", paper="Salimans et al. 2016, arXiv 1606.03498", column="Inception score",
           page="inception"),
    Metric("precision", precision, ("images", "real_images"), True, f"{WILSON}, real images fixed", definition=_NEIGHBOURS,
           sides=True,
           paper="Kynkäänniemi et al. 2019, arXiv 1904.06991", column="precision", axis="precision (higher: more real)"),
    Metric("recall", recall, ("images", "real_images"), True, GROUPS, definition=_NEIGHBOURS, biased=True,
           paper="Kynkäänniemi et al. 2019, arXiv 1904.06991", column="recall", axis="recall (higher: more varied)",
           page="precision"),
)}  # fmt: skip


# ---------------------------------------------------------------------------------------------------- what reads it
def find(name: str) -> Metric:
    """Return the row of a metric. ValueError: it has none."""
    if name not in METRICS:
        raise ValueError(f"the metric '{name}' has no row; add it to METRICS in evaluation/metrics.py")
    return METRICS[name]


def measure(**known: Any) -> dict[str, Number]:
    """Compute every metric whose arguments are all given, by name; the arguments are keys of KNOWN."""
    if unknown := known.keys() - KNOWN.keys():
        raise ValueError(f"no metric takes '{min(unknown)}'")
    numbers = {}
    for metric in (*METRICS.all().values(), *(one.value for one in METRICS.plugged() if not one.problem)):
        if known.keys() >= set(metric.takes):
            value = metric.function(*(known[name] for name in metric.takes))
            value = value.number if isinstance(value, Proportion) else value
            numbers[metric.name] = value if isinstance(value, Number) else mean(value)
    return numbers


def measure_images(samples: Views, real: Views, seed: int = 0) -> dict[str, Number]:
    """Compute every metric of images, by name; `seed` sets their order. InputError: too few images for the features."""
    check_enough(len(samples.features), len(real.features), samples.features.shape[1])
    samples, real = samples.shuffled(seed), real.shuffled(seed)
    known = {} if samples.asked is None else {"asked": samples.asked}
    return measure(images=samples.features, real_images=real.features, logits=samples.logits, **known)


def definitions(names: Iterable[str]) -> dict[str, str]:
    """Definitions of these metrics for the protocol of a result: {family: definition}."""
    rows = [find(name) for name in names]
    return {row.family: row.definition for row in rows if row.definition}


def intervals(names: Iterable[str]) -> str:
    """Methods of the intervals of these metrics, in one line: `entropy, seq-rep-4: Student's t over samples; ...`."""
    return grouped({(row := find(name)).family: row.interval for name in names})


def grouped(texts: Mapping[str, str]) -> str:
    """`a, b: text; c: other`: names with one text together."""
    groups: dict[str, list[str]] = {}
    for name, text in texts.items():
        groups.setdefault(text, []).append(name)
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in groups.items())
