"""Measures of samples: how much they vary, how much they repeat themselves, how surprised a judge is, how near real text.

A sample is a row of tokens; the rows may differ in length. By the names of the papers:

    entropy                 -sum_v f_v log f_v, f the frequencies of the tokens within one sample, nats; the mean over samples
    distinct-n              different n-grams / n-grams, over all samples (Li et al. 2016, arXiv 1510.03055)
    seq-rep-4               1 - different 4-grams / 4-grams within one sample; the mean (Welleck et al. 2020, arXiv 1908.04319)
    perplexity, corpus      exp(sum of all nats / number of all tokens)              MDLM, BD3-LM, Duo, ReMDM
    perplexity, sequence    the mean over samples of exp(nats / tokens)              SEDD, RADD
    MAUVE                   area under the divergence frontier of features of samples and of real text (arXiv 2102.01454)

The two perplexities are two numbers: the second is the larger wherever the samples are of equal length (Jensen) and hangs on its
worst sample. Perplexity says nothing without entropy: text that says one word for ever has the best perplexity of all.

Every number has a 95% interval over samples: Student's t for means, the same of the residuals for the corpus-level ratio, and
the jackknife for distinct-n, whose variance it does not understate in expectation (Efron and Stein 1981). distinct-n
falls as more text is drawn (Heaps' law), so it is compared at equal numbers of tokens only.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError, not_installed
from ..show.numbers import pm
from .interval import student
from .result import summarize

ORDERS = (1, 2, 3, 4)  # n of distinct-n
REPEAT = 4  # n of seq-rep-n
CLUSTERINGS = 5  # of MAUVE, as in its paper
INTERVAL = "Student's t over samples; distinct-n: jackknife over samples"
INTERVAL_MAUVE = f"MAUVE: Student's t over {CLUSTERINGS} seeds of its clusters"


HIGHER, LOWER, AS_REAL = "higher", "lower", "as real text"
BETTER = {  # what is taken for better of each measure of samples; `distinct` is that of distinct-1, distinct-2, ...
    "perplexity": LOWER,
    "perplexity per sequence": LOWER,
    "entropy": HIGHER,
    "distinct": HIGHER,
    "seq-rep": LOWER,
    "mauve": HIGHER,
    "energy distance": LOWER,
    "MMD": LOWER,
    "TV": LOWER,
    "typicality": AS_REAL,
    "memorisation": LOWER,
    "Inception score": HIGHER,
    "FID": LOWER,
    "KID": LOWER,
    "precision": HIGHER,
    "recall": HIGHER,
}


def better(name: str) -> str:
    """What is better of a measure: HIGHER, LOWER or AS_REAL. ValueError for one that does not say so in BETTER."""
    stem, _, order = name.rpartition("-")
    key = stem if order.isdigit() else name
    if key not in BETTER:
        raise ValueError(f"the measure '{name}' does not say what is better of it; add it to sample_quality.BETTER")
    return BETTER[key]


@dataclass(frozen=True)
class Number:
    """A number and the ends of its 95% interval."""

    value: float
    low: float
    high: float

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2

    def text(self, places: int = 3) -> str:
        """`1.412 ± 0.006`"""
        return pm(self.value, self.half, places)

    def sides(self, places: int = 3) -> str:
        """`0.013 -0.014 +0.021`, how far either end of the interval is; as `text` where both are as far."""
        down, up = (f"{abs(end - self.value):.{places}f}" for end in (self.low, self.high))
        return (
            self.text(places)
            if down == up or not math.isfinite(self.half)
            else f"{self.value:.{places}f} -{down} +{up}"
        )

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def mean(values: Any) -> Number:
    """The mean of one number a sample, with Student's interval; NaN is left out."""
    values = np.asarray(values, float)
    values = values[~np.isnan(values)]
    n = len(values)
    if not n:
        return Number(math.nan, math.nan, math.nan)
    middle = float(values.mean())
    half = student(n - 1) * float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    return Number(middle, middle - half, middle + half)


# ---------------------------------------------------------------------------------------------------- of the tokens alone
def unigram_entropies(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """(N,) the unigram entropy of each row in nats; at most log of its length. NaN for a row without tokens."""
    entropies = np.full(len(rows), np.nan)
    for i, row in enumerate(rows):
        if len(row):
            share = np.unique(np.asarray(row), return_counts=True)[1] / len(row)
            entropies[i] = max(0.0, -float(share @ np.log(share)))
    return entropies


def entropy(rows: Sequence[Sequence[int]]) -> Number:
    """The mean over rows of their unigram entropies, nats.

    >>> round(entropy([[3, 1, 2, 0], [0, 0, 1, 1]]).value / math.log(2), 12)
    1.5
    """
    return mean(unigram_entropies(rows))


def grams(rows: Sequence[Sequence[int]], n: int) -> tuple[np.ndarray, np.ndarray]:
    """The n-grams of rows, none of which reaches from one row into the next: (M,) a number for each kind, (M,) their rows."""
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
    """Different n-grams / n-grams over all rows, with the jackknife's interval over rows. NaN where there is no n-gram.

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
    """(N,) seq-rep-n: the share of a row's n-grams that stood in it before. NaN for a row shorter than n."""
    code, row = grams(rows, n)
    many = np.bincount(row, minlength=len(rows))
    kinds = np.bincount(np.unique(np.stack([code, row]), axis=1)[1], minlength=len(rows))
    return np.where(many > 0, 1 - kinds / np.maximum(many, 1), np.nan)


# ---------------------------------------------------------------------------------------------------- what a judge says
def perplexities(nats: Tensor, tokens: Tensor) -> tuple[Number, Number]:
    """Of the nats (N,) of N samples and how many tokens (N,) of each were judged: corpus-level, and the mean over sequences.

    A sample of which no token was judged counts in neither.
    """
    judged = tokens > 0
    nats, tokens = nats[judged].double(), tokens[judged].double()
    if not len(nats):
        raise InputError("the judge found no token to judge; give texts of two tokens or more, or `first` judged")
    ratio = summarize(nats, tokens, "nats/token", "exact")
    corpus = Number(ratio.perplexity, ratio.perplexity_low, ratio.perplexity_high)
    return corpus, mean((nats / tokens).exp().numpy())


def measure(
    rows: Sequence[Sequence[int]], nats: Tensor | None = None, tokens: Tensor | None = None
) -> dict[str, Number]:
    """Every measure of these rows, by name; of a judge's nats (N,) and tokens (N,) the two perplexities first."""
    measures: dict[str, Number] = {}
    if nats is not None and tokens is not None:
        measures["perplexity"], measures["perplexity per sequence"] = perplexities(nats, tokens)
    measures["entropy"] = entropy(rows)
    measures |= {f"distinct-{n}": distinct(rows, n) for n in ORDERS}
    return measures | {f"seq-rep-{REPEAT}": mean(repetitions(rows))}


def mauve_package() -> Any:
    """The package of MAUVE's authors; InputError where it is not installed."""
    try:
        import mauve as package  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise not_installed("`mauve`", "mauve", "mauve") from None
    return package


def mauve(samples: Tensor, real: Tensor, seed: int = 0) -> Number:
    """MAUVE of features (N, D) of samples and (M, D) of real text: the mean over 5 seeds of its clusters, and what they vary.

    The interval is that of the clusters alone. MAUVE needs thousands of texts and hangs on their number and length, and on
    whose features they are.

    Raises:
        InputError: the package is not there.
    """
    package = mauve_package()
    p, q = (x.float().cpu().numpy() for x in (samples, real))
    with torch.random.fork_rng(devices=[]):
        scores = [
            package.compute_mauve(p_features=p, q_features=q, seed=seed + i, verbose=False).mauve
            for i in range(CLUSTERINGS)
        ]
    return mean([float(x) for x in scores])
