"""How likely one text is: its nats, bounded or exact, with the interval of the draws."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..models.infill import approximate
from ..show.numbers import pm, quantity
from .conditional import Conditional
from .interval import student


@dataclass(frozen=True)
class TextScore:
    """-log p of one text, bounded or exact, as the model has it.

    Attributes:
        nats: of the whole text.
        half: half the width of its 95% interval over the draws, Student's; 0 where nothing is drawn.
        kind: "bound" (up to the interval, the text is at least as likely as this says) or "exact".
        tokens: how many there are.
        units: how many characters or tokens share it in `value`, whose `unit` is "bits/char", "bits/dim" ..., or "nats/token".
        note: where it is a bound of another law than the model's own: which; else None.
    """

    nats: float
    half: float
    kind: str
    tokens: int
    units: int
    unit: str
    note: str | None = None

    @property
    def bits(self) -> float:
        """Of the whole text."""
        return self.nats / math.log(2)

    @property
    def scale(self) -> float:
        """From nats of the whole text to `unit`."""
        return 1 / self.units / (math.log(2) if self.unit.startswith("bits") else 1)

    @property
    def value(self) -> float:
        """In `unit`, as `zellige.evaluate` has it."""
        return self.nats * self.scale

    def __str__(self) -> str:
        """`≤ 2.269 ± 0.034 bits/char (95%), in all 28.3 ± 0.4 nats`."""
        in_all = f"{pm(self.nats, self.half)} nats"
        return f"{quantity(self.value, self.half * self.scale, self.unit, self.kind)}, in all {in_all}"


def text_scores(model: Any, bounds: Conditional, tokens: Iterable[int], units: Iterable[int]) -> list[TextScore]:
    """The scores of texts of so many tokens, and units, that `conditional` has bounded."""
    drawn = bounds.kind == "bound"
    halves = (student(bounds.table.shape[1] - 1) * bounds.error).tolist() if drawn else [0.0] * len(bounds.table)
    values = zip(bounds.nats.tolist(), halves, tokens, units)
    note = approximate(model)
    return [TextScore(nats, half, bounds.kind, size, n, model.unit, note) for nats, half, size, n in values]
