"""The mean over texts of each text's own perplexity, with its two intervals."""

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .interval import over_draws, over_texts
from .result_json import interval_ends


@dataclass(frozen=True)
class PerSequence:
    """The mean over the texts of each text's own perplexity, exp(nats / units).

    Attributes:
        value, low, high: it, and its 95% interval over the population of texts.
        draws_low, draws_high: its 95% interval over the draws, for these very texts.
        lift: how much of the value the noise of the draws makes, to second order; None where that is not known.
    """

    value: float
    low: float
    high: float
    draws_low: float
    draws_high: float
    lift: float | None

    @property
    def half(self) -> float:
        """Half the width of the interval over the population."""
        return (self.high - self.low) / 2


def per_sequence_from(entry: dict[str, Any]) -> PerSequence:
    ends = *interval_ends(entry), *interval_ends({"low": entry["draws_low"], "high": entry["draws_high"]})
    value = entry["value"]
    return PerSequence(math.inf if value is None else value, *ends, entry["lift"])


def per_sequence_perplexity(table: Tensor, sizes: Tensor, group: Tensor, kind: str) -> PerSequence:
    """The mean over texts of exp(nats / units); over the draws to first order, the lift to second."""
    some = sizes > 0
    table, sizes, group = table[some], sizes[some], group[some]
    N, sets = table.shape
    each = (table.mean(1) / sizes).exp()
    value = float(each.mean())
    if not math.isfinite(value):
        return PerSequence(math.inf, -math.inf, math.inf, -math.inf, math.inf, None)
    drawn, _ = over_draws(table * (each / sizes)[:, None], group, kind)
    half, drawn = over_texts(each, drawn) / N, drawn / N
    lift = 0.0 if kind == "exact" else None
    if kind != "exact" and sets > 1:
        lift = float((each * table.var(1) / sets / sizes**2).mean()) / 2
    return PerSequence(value, value - half, value + half, value - drawn, value + drawn, lift)
