"""What `zellige evaluate --steps` is asked for."""

from dataclasses import replace
from typing import TYPE_CHECKING

from zellige.base.arguments import is_number
from zellige.base.errors import InputError
from zellige.base.requests import declared, option
from zellige.evaluation.requests import (
    Evaluate,
    SplitRequest,
    distributed_option,
    draws_option,
    grid_option,
    terms_option,
)

if TYPE_CHECKING:
    from zellige.models.model import ModelSource

    from .table import StepsTable

CONTINUOUS = "continuous"


@declared
class EvaluateSteps(SplitRequest["StepsTable"]):
    """The bound against the number of steps: T steps bound what `ancestral` samples in T steps.

    Of a model in continuous time any number, or of a model of T steps any number up to T: its coarse chains (D3PM,
    section 3.3). `progress` is called with (texts done, in all, T).
    """

    returns = "zellige.plugins.evaluations.steps.table:StepsTable"

    steps: tuple[str, ...] = option(
        'numbers of steps, and "continuous"; also 32,128,continuous', default=("32", "128", "512", CONTINUOUS)
    )
    draws: int = draws_option(default=4)
    grid: str = grid_option()
    terms: str = terms_option()
    distributed: bool = distributed_option()

    def __post_init__(self) -> None:
        if not self.numbers:
            raise InputError("`steps` needs a number of steps; e.g. 32 128 continuous")

    @property
    def numbers(self) -> list[int]:
        """The numbers of steps; 0 for continuous time."""
        return [_steps(word) for words in self.steps for word in words.split(",") if word]

    def run(self, model: "ModelSource") -> "StepsTable":
        """Evaluate a model in each number of steps, on the same draws."""
        from zellige.models.model import as_model

        from .table import StepsTable

        model = as_model(model)
        for T in self.numbers:
            if not T and (own := model.method.steps):
                raise InputError(
                    f"`steps` has {CONTINUOUS}, and {model.method.name} has discrete time; use {own} for it"
                )
            self.bound(T).admitted(model)
        corpus = self._corpus(model)
        results = [replace(self.bound(T), data=corpus).run(model) for T in self.numbers]
        return StepsTable(tuple(self.numbers), tuple(results), request=self.saved())

    def bound(self, T: int) -> Evaluate:
        """The request of one number of steps."""
        report = self.progress
        asked = self if report is None else replace(self, progress=lambda done, total: report(done, total, T))
        return Evaluate(
            **asked.arguments("data", "split", "draws", "distributed"),
            steps=T,
            terms=self.terms if T else "drawn",
            grid=self.grid if T else "uniform",
        )


def _steps(word: str) -> int:
    if word == CONTINUOUS:
        return 0
    if not is_number(word) or int(word) < 1:
        raise InputError(f"`steps` is '{word}'; it must be a whole number of 1 or more, or {CONTINUOUS}")
    return int(word)
