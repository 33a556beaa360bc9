"""Real text that samples are compared with, and both as vectors: what a network knows of them, or counts of their
characters.

    judge     the mean over a text's tokens of the judge's last hidden states: nothing more to download
    ngrams    hashed counts, no network: of the UTF-8 bytes of a text the runs of 2, 3 and 4, each added, with a sign, to one of
              512 numbers
    MODEL     the mean of the hidden states of a run or saved folder of Zellige (`models.embed`), or of a causal model of
              transformers

All are put into the units of real text: each number in standard deviations over the texts that make the floor, the
whole such that two of these texts are at a root mean square distance of 1. A text without tokens is a vector of zeros
before that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zellige.base.errors import InputError
from zellige.evaluation.distances import LEAST
from zellige.evaluation.interval import Number
from zellige.evaluation.metrics import measure
from zellige.models.model import fingerprint

from .image_features import CONFIG
from .judge import Judge, JudgeReading, of_transformers

WIDTH = 512
LENGTHS = (2, 3, 4)  # of runs of bytes

Embed = Callable[[Sequence[str]], np.ndarray]


def embedder(name: str, judge: Judge) -> tuple[Embed, dict[str, str]]:
    """Texts to vectors (N, D), and what they are as the protocol has it; `name` is judge, ngrams, or a folder or hub
    id.

    Raises:
        InputError: nothing of that name.
    """
    if name == "judge":
        about = {"features": f"mean hidden states of the judge {judge.inner.name}"}
        return lambda texts: judge.means(texts).double().numpy(), about
    if name == "ngrams":
        return hashed_ngrams, {"features": f"hashed runs of {LENGTHS[0]} to {LENGTHS[-1]} bytes, {WIDTH} numbers"}
    if (Path(name) / CONFIG).is_file():
        raise InputError(f"'{name}' holds features of images; give `features` judge, ngrams, or a model of texts")
    if Path(name).is_dir() and not of_transformers(Path(name)):
        from zellige.models.embed import embed
        from zellige.models.model import load

        model = load(name, device=judge.inner.device)
        about = {"features": f"mean hidden states of {name}", "weights_sha256": fingerprint(model.method)}
        return lambda texts: _of_some(texts, lambda some: embed(model, some)), about
    judge_of_features = Judge(name, device=judge.inner.device)
    about = {"features": f"mean hidden states of {name}", "weights_sha256": judge_of_features.inner.weights_sha256}
    return lambda texts: judge_of_features.means(texts).double().numpy(), about


def hashed_ngrams(texts: Sequence[str]) -> np.ndarray:
    """(N, 512) float64: of each text the frequencies of its runs of 2, 3 and 4 bytes, hashed, with signs."""
    out = np.zeros((len(texts), WIDTH))
    for vector, text in zip(out, texts):
        data = np.frombuffer(text.encode(), np.uint8).astype(np.uint64) + np.uint64(1)
        for n in LENGTHS:
            code = np.zeros(max(len(data) - n + 1, 0), np.uint64)
            for k in range(n):
                code = code * np.uint64(257) + data[k : k + len(code)]
            code = (code ^ (code >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            code ^= code >> np.uint64(32)
            signs = 1.0 - 2.0 * ((code >> np.uint64(20)) & np.uint64(1)).astype(float)
            np.add.at(vector, (code % np.uint64(WIDTH)).astype(int), signs / max(len(code), 1))
    return out


def in_units_of(real: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Scale of vectors (N, D) in the units of real texts (M, D);
    a number that is the same in all of these is left out."""
    mean, deviation = real.mean(0), real.std(0)
    varies = deviation > 1e-12 * np.maximum(np.abs(mean), 1.0)
    scale = deviation[varies] * np.sqrt(2 * max(varies.sum(), 1))
    return lambda x: (x[:, varies] - mean[varies]) / scale


def _of_some(texts: Sequence[str], embed: Callable[[list[str]], torch.Tensor]) -> np.ndarray:
    """The vectors of the texts that are not empty, zeros for the others."""
    indices = [i for i, text in enumerate(texts) if text]
    vectors: Any = embed([texts[i] for i in indices]).double().numpy()
    out = np.zeros((len(texts), vectors.shape[1]))
    out[indices] = vectors
    return out


@dataclass(frozen=True)
class View:
    """Inputs of distances: each text's tokens, its nats per token (N,), and its embedding (N, D)."""

    rows: Sequence[Sequence[int]]
    rates: np.ndarray
    features: np.ndarray

    def first(self, n: int) -> "View":
        return View(self.rows[:n], self.rates[:n], self.features[:n])


class RealText:
    """Held-out texts that samples are compared with, `size` of either at most.

    Args:
        texts, reading: of real text, two for each sample where there are so many; those at odd places are compared
            with.
        embed: texts as vectors.
        count: how many samples there are.

    Raises:
        InputError: too few texts.
    """

    def __init__(self, texts: Sequence[str], reading: JudgeReading, embed: Embed, count: int):
        self.size = min(count, len(texts) // 2)
        if self.size < LEAST:
            raise InputError(f"{len(texts)} real texts are too few for distances; give {2 * LEAST} or more")
        vectors, of = embed(texts), slice(0, 2 * self.size)
        halves = [View(reading.rows[of][i::2], reading.rates[of][i::2], vectors[of][i::2]) for i in (0, 1)]
        self.embed, self.units = embed, in_units_of(halves[0].features)
        floor, self.reference = (View(v.rows, v.rates, self.units(v.features)) for v in halves)
        self.floor = self.distances(floor)

    def view(self, texts: Sequence[str], reading: JudgeReading) -> View:
        """Samples, as many of them as are compared."""
        n = self.size
        return View(reading.rows[:n], reading.rates[:n], self.units(self.embed(texts[:n])))

    def distances(self, samples: View) -> dict[str, Number]:
        """Every metric of these beside the reference, by name; where they are fewer, beside as many."""
        if len(samples.rows) < LEAST:
            raise InputError(f"{len(samples.rows)} samples are too few for distances; give {LEAST} or more")
        real = self.reference.first(len(samples.rows))
        return measure(
            compared_rows=samples.rows,
            real_rows=real.rows,
            rates=samples.rates,
            real_rates=real.rates,
            vectors=samples.features,
            real_vectors=real.features,
        )
