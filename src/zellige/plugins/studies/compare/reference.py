"""Who judges samples: an n-gram model of the train split,
or the data's own distribution where that can be written down."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from zellige.base.requests import Progress
from zellige.core.random import mix
from zellige.data import Corpus, Rows
from zellige.evaluation.interval import LEVEL, mean
from zellige.evaluation.metrics import entropies
from zellige.evaluation.ngram import NGrams, order_within
from zellige.evaluation.requests import evaluate
from zellige.evaluation.result import Result, summarize
from zellige.models.model import Model
from zellige.show.units import unit_of

from .record import Reference, Score

ORDER = 5  # of the n-gram judge
TOKENS = 2**24  # of the train split, at most, that it reads; evenly spaced rows
REAL = 2000  # real rows to compare the samples with, at most, evenly spaced
MOST = 4096  # different rows of data that count as enumerable
DATA = "law"  # in files, the kind and the split of data that are enumerated
SETS = 8  # independent sets of draws over the whole distribution


class Grams:
    """Text: how likely the samples are under an n-gram model of the train split, and the entropy of their unigrams.

    The entropy is that within a sample, the mean over samples: what repeats itself is below real text.
    """

    kind: ClassVar[str] = "n-gram"
    count = 64  # samples, unless one says otherwise

    def __init__(self, corpus: Corpus, unit: str):
        size, train = corpus.tokenizer.size, corpus.train
        order = order_within(ORDER, size)
        rows = min(train.texts, max(1, TOKENS // train.length))
        self.grams = NGrams(train.array(rows), corpus.validation.array(REAL), size, order)
        note = f" ({rows:,} of {train.texts:,} rows)" if rows < train.texts else ""
        self.name = f"{order}-gram of the train split{note}"
        self.corpus, self.unit = corpus, unit

    def bound(self, model: Model, draws: int, seed: int, limit: int | None, progress: Progress | None) -> Result:
        """The bound on the test split, each text one observation."""
        return evaluate(model, self.corpus, "test", draws, seed=seed, limit=limit, progress=progress)

    def score(self, rows: np.ndarray) -> Score:
        """Of rows (n, L), -1 where there is padding: the judge's number with its interval, and the entropy in nats."""
        nats, sizes = torch.from_numpy(self.grams.nats(rows)), torch.from_numpy((rows >= 0).sum(1))
        result = summarize(nats, sizes, self.unit, "exact")
        entropy = mean(entropies([row[row >= 0] for row in rows]))
        return Score(value=result.value, low=result.low, high=result.high, entropy=entropy.value)

    def reference(self, count: int) -> Reference:
        """Score of real text; `band`: where the mean of `count` real texts lies in 95 of 100 cases."""
        rows = self.corpus.test.array(REAL)
        score = self.score(rows)
        half = score.half * math.sqrt(len(rows) / count)
        return Reference(
            value=score.value,
            low=score.low,
            high=score.high,
            entropy=score.entropy,
            rows=len(rows),
            band=(score.value - half, score.value + half),
        )


@dataclass(frozen=True)
class Enumerated:
    """Enumerable data: its rows (M, L), the probability of each, and the corpus that holds each once."""

    kind: ClassVar[str] = DATA
    count: ClassVar[int] = 2000
    support: np.ndarray
    p: np.ndarray
    corpus: Corpus
    unit: str

    @property
    def name(self) -> str:
        return f"the data's own distribution on {len(self.p):,} rows"

    def bound(self, model: Model, draws: int, seed: int, limit: int | None, progress: Progress) -> Result:
        """Bound in expectation over the distribution itself; only the draws are random, in independent sets."""
        M, weight = len(self.p), torch.from_numpy(self.p)
        L = self.support.shape[1]
        characters = M * L if self.unit == "bits/char" else None
        rows = Rows(self.support.reshape(-1), L, characters=characters, losses=self.corpus.train.losses)
        once = replace(self.corpus, rows={DATA: rows})

        def progress_of_set(number: int) -> Any:
            return lambda done, _: progress(number * M + done, SETS * M)

        sets = [evaluate(model, once, DATA, draws, seed=mix(seed, i), progress=progress_of_set(i)) for i in range(SETS)]
        nats, sizes = (torch.stack([weight @ getattr(s, of) for s in sets]) for of in ("nats", "sizes"))
        texts = f"all {M:,} rows of the data, each as likely as it is there, {SETS} independent sets of draws"
        return summarize(
            nats,
            sizes,
            sets[0].unit,
            sets[0].kind,
            draws=draws,
            seed=seed,
            about=sets[0].about,
            protocol=sets[0].protocol | {"texts": texts, "seed": seed},
        )

    def score(self, rows: np.ndarray) -> Score:
        """Score sequences (n, L): total variation between their frequencies and the distribution, the number in its
        support, and the fraction of the support (by probability) that they reach."""
        place = {row.tobytes(): i for i, row in enumerate(self.support)}
        places = [place.get(row.tobytes(), -1) for row in np.ascontiguousarray(rows, np.int64)]
        counts = np.bincount([i for i in places if i >= 0], minlength=len(self.p))
        n, inside = len(rows), counts.sum() / len(rows)
        value = (np.abs(counts / n - self.p).sum() + 1 - inside) / 2
        half = math.sqrt(math.log(2 / (1 - LEVEL)) / (2 * n))  # bounded differences: one sample moves it by 1/n
        return Score(
            value=float(value),
            low=max(float(value) - half, 0.0),
            high=float(value) + half,
            inside=float(inside),
            reached=float(self.p[counts > 0].sum()),
        )

    def reference(self, count: int) -> Reference:
        """The data's entropy, in the bound's unit, and the total variation of `count` samples of the distribution
        itself."""
        at, half = floor(self.p, count), math.sqrt(math.log(2 / (1 - LEVEL)) / (2 * count))
        length = self.support.shape[1]
        nats = -float(self.p @ np.log(self.p)) / length
        return Reference(
            value=at, band=(max(at - half, 0.0), at + half), bound=nats / unit_of(self.unit).scale, rows=len(self.p)
        )


def floor(p: np.ndarray, n: int) -> float:
    """The expected total variation between a distribution and the frequencies of n independent samples of it.

    A smaller total variation cannot be distinguished from that of the distribution itself. Half the sum of E|X - n p| /
    n, X binomial; each is 2 v C(n, v) p^v (1 - p)^(n - v + 1) with v = floor(n p) + 1 (De Moivre, 1730).
    """
    total = 0.0
    for share in p[(p > 0) & (p < 1)].tolist():
        v = min(math.floor(n * share) + 1, n)
        choose = math.lgamma(n + 1) - math.lgamma(v + 1) - math.lgamma(n - v + 1)
        total += 2 * v * math.exp(choose + v * math.log(share) + (n - v + 1) * math.log1p(-share))
    return total / (2 * n)


def judge_of(corpus: Corpus, unit: str) -> Grams | Enumerated:
    """The data's own distribution if it is enumerable, else n-grams.

    It is where all sequences of that length are few, or where the rows are few and none of the test split is new.
    """
    distribution = enumerated(corpus)
    return Grams(corpus, unit) if distribution is None else Enumerated(*distribution, corpus, unit)


def enumerated(corpus: Corpus) -> tuple[np.ndarray, np.ndarray] | None:
    """The different rows (M, L) of all splits and their frequencies (M,);
    None where they are no distribution to compare with."""
    splits = {id(rows): rows for rows in corpus.rows.values()}.values()
    few = corpus.tokenizer.size**corpus.train.length <= MOST
    if any(rows.documents is not None for rows in splits):
        return None
    if not few and len(np.unique(corpus.train.array(2 * MOST), axis=0)) > MOST:
        return None
    arrays = [rows.array() for rows in splits]
    support, counts = np.unique(np.concatenate(arrays), axis=0, return_counts=True)
    training_rows = {row.tobytes() for row in corpus.train.array()}
    if not few and (len(support) > MOST or any(row.tobytes() not in training_rows for row in corpus.test.array())):
        return None
    return support, counts / counts.sum()
