"""Quality at matched entropy: the perplexity that samples have where they vary as much as real text does.

Along the temperatures both perplexity and entropy move, so neither is a number of the model; the perplexity at the entropy
of real text is. Between the two temperatures whose entropies lie about that of real text, log perplexity is taken as linear in
entropy. Outside of all of them nothing is said.

The interval is the jackknife's over samples and real texts. Sample i of every temperature has the same stream of random
numbers, so it is left out of all of them at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .distances import from_jackknife
from .judged import Judged
from .sample_quality import Number

INTERVAL = "at matched entropy: jackknife over samples, the same of every temperature, and real texts"


@dataclass(frozen=True)
class Matched:
    """What samples are at the entropy of real text.

    Attributes:
        entropy: of real text, nats.
        temperature: where the samples have it, by interpolation.
        perplexity, real: corpus-level, of samples there and of real text.
        gap: log of one over the other, nats per token: 0 is as likely as real text, below 0 likelier.
    """

    entropy: float
    temperature: float
    perplexity: Number
    real: float
    gap: Number

    def to_dict(self) -> dict[str, Any]:
        return self.__dict__ | {"perplexity": self.perplexity.to_dict(), "gap": self.gap.to_dict()}


def matched(temperatures: Sequence[float], sets: Sequence[Judged], real: Judged) -> Matched | None:
    """Of sets of as many samples at these temperatures; None where the entropy of real text is not between theirs."""
    alike = len({len(one.rows) for one in sets}) == 1
    if len(sets) < 2 or not alike or len(sets[0].rows) < 2 or len(real.rows) < 2:
        return None
    curve = np.array([_means(one) for one in sets])  # (T, 2): entropy, log perplexity
    target, level = _means(real)
    order = np.argsort(curve[:, 0], kind="stable")
    above = int(np.searchsorted(curve[order, 0], target))
    if above == 0 or above == len(order):
        return None
    ends = order[above - 1 : above + 1]
    pair = [_without(sets[i]) for i in ends]
    value, share = _between(curve[ends[0]], curve[ends[1]], target)
    without_sample = _between(pair[0], pair[1], target)[0]
    without_real = _without(real)
    moved = _between(curve[ends[0]], curve[ends[1]], without_real[:, 0])[0]
    log = from_jackknife(value, without_sample, moved)
    low, high = (temperatures[i] for i in ends)
    return Matched(
        float(target), float(low + share * (high - low)), Number(*map(_exp, (log.value, log.low, log.high))),
        math.exp(level), from_jackknife(value - level, without_sample, moved - without_real[:, 1]),
    )  # fmt: skip


def _sums(one: Judged) -> np.ndarray:
    """(N, 4) of each text: its entropy, whether it has one, its nats, its tokens."""
    entropies = one.entropies
    return np.stack(
        [np.nan_to_num(entropies), ~np.isnan(entropies), one.nats.double().numpy(), one.tokens.double().numpy()], 1
    )


def _ratios(sums: np.ndarray) -> np.ndarray:
    return np.stack([sums[..., 0] / sums[..., 1], sums[..., 2] / sums[..., 3]], -1)


def _means(one: Judged) -> np.ndarray:
    """(2,) the mean entropy, and log of the corpus-level perplexity."""
    return _ratios(_sums(one).sum(0))


def _without(one: Judged) -> np.ndarray:
    """(N, 2) the same without each text."""
    sums = _sums(one)
    return _ratios(sums.sum(0) - sums)


def _between(low: np.ndarray, high: np.ndarray, entropy: Any) -> tuple[Any, Any]:
    """log perplexity at an entropy on the line through two points (.., 2), and how far along it is."""
    share = (entropy - low[..., 0]) / (high[..., 0] - low[..., 0])
    return low[..., 1] + share * (high[..., 1] - low[..., 1]), share


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf
