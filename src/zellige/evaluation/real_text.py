"""Real text beside samples, in halves of equal size: distances are measured from one, the other shows their floor."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from . import distances
from .judged import Judged
from .sample_quality import Number
from .text_features import Embed, in_units_of


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
        if self.size < distances.LEAST:
            raise InputError(f"{len(texts)} real texts are too few for distances; give {2 * distances.LEAST} or more")
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
        if len(samples.rows) < distances.LEAST:
            raise InputError(f"{len(samples.rows)} samples are too few for distances; give {distances.LEAST} or more")
        real = self.reference.first(len(samples.rows))
        return distances.measures(samples.rows, samples.rates, samples.features, real.rows, real.rates, real.features)
