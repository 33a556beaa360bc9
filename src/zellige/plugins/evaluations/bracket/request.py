"""What `zellige evaluate --bracket` is asked for."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from zellige.base.errors import InputError, check_counts
from zellige.base.requests import declared, option
from zellige.evaluation.requests import TWO, SplitRequest

if TYPE_CHECKING:
    from zellige.models.model import ModelSource

    from .bracket import Bracket


@declared
class EvaluateBracket(SplitRequest["Bracket"]):
    """Upper and lower bounds on -log p of a data set, and exact values of samplers that have one, in one unit.

    The upper bound is importance-weighted, the lower one is TUBE. Sampling in a fixed order has exact values, and so has
    sampling the most confident tokens first. The method must have a bound, and a row of the data must hold one text.
    """

    returns = "zellige.plugins.evaluations.bracket.bracket:Bracket"

    numbers: tuple[int, ...] = option(
        "draws per estimate; each number must divide the largest; each text takes four times the largest",
        default=(1, 8, 64, 512),
    )
    limit: int | None = option(
        "evaluate only this many texts, evenly spaced", default=16, minimum=2, why=TWO, kw_only=True
    )
    orders: tuple[str, ...] = option(
        "orders to evaluate exactly; forward, backward, or positions such as 2,0,1",
        default=("forward", "backward"),
        kw_only=True,
    )
    per_step: tuple[int, ...] = option("tokens per step, for samplers with exact values", default=(1, 4), kw_only=True)
    steps: int = option("sampling steps, for methods without exact values", default=64, minimum=1, kw_only=True)
    own: int | None = option("also bound -log p of this many samples of the model", default=16, minimum=0, kw_only=True)

    def __post_init__(self) -> None:
        check_counts(numbers=min(self.numbers, default=1))
        largest = max(self.numbers, default=1)
        for n in self.numbers:
            if largest % n:
                raise InputError(
                    f"`numbers` has {n}, which does not divide {largest}; each number must divide the largest"
                )

    def run(self, model: "ModelSource") -> "Bracket":
        """Evaluate both sides of a model."""
        from zellige.evaluation.evaluate import rows_of
        from zellige.models.model import as_model

        from .bracket import bracket_rows

        began = time.perf_counter()
        model = as_model(model)
        if not model.method.bounded:
            raise InputError(
                f"{model.method.name} defines no likelihood bound, so there is nothing to bracket; use another model"
            )
        bracket = bracket_rows(
            model.method,
            rows_of(model, self._corpus(model), self.split),
            sorted(set(self.numbers)) or EvaluateBracket().numbers,
            own=self.own or 0,
            **self.arguments("orders", "per_step", "steps"),
        )
        return replace(bracket, seconds=time.perf_counter() - began, request=self.saved())
