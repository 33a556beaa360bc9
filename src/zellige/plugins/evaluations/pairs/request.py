"""What `zellige evaluate --pairs` is asked for."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zellige.base.errors import InputError
from zellige.base.requests import HandedOver, Progress, Request, aside, declared, option

if TYPE_CHECKING:
    from zellige.models.model import ModelSource

    from .choices import ChoiceScores, Question


@declared
class EvaluatePairs(Request["ChoiceScores"]):
    """-log p(continuation | context) of each pair, as an upper bound or exactly, and the accuracy of choices."""

    returns = "zellige.plugins.evaluations.pairs.choices:ChoiceScores"

    pairs: Any = option(
        "file of pairs, .jsonl; with the fields context and continuation, or context, choices and answer; and class, "
        "if the model has classes",
        default="",
    )
    draws: int = option("random noisy copies of each pair", default=32, minimum=1)
    seed: int = option("random seed; a pair's noise depends on the seed and its tokens", default=0)
    batch: int = option("sequences per network evaluation", default=64, minimum=1)
    prefix: bool = option("put the end-of-document token before each context", default=False, kw_only=True)
    classes: str | int | None = option(
        "class of all pairs (class-conditional models); by name or number; default: the field class of each pair, else "
        "none",
        default=None,
        flag="class",
        typed=str | None,
        kw_only=True,
    )
    unconditional: bool = option("evaluate a class-conditional model without its class", default=False, kw_only=True)
    progress: Progress | None = aside("called with (network evaluations done, in all)", default=None)

    def __post_init__(self) -> None:
        if self.unconditional and self.classes is not None:
            raise InputError("`unconditional` tells no class, and `classes` tells one; leave one of the two out")

    def questions(self) -> "Sequence[Question]":
        """The lines of the file of pairs."""
        from .choices import read_pairs

        if isinstance(self.pairs, dict) and "handed_over" in self.pairs:
            raise HandedOver(self.pairs["handed_over"]).error_for("pairs")
        return read_pairs(self.pairs) if isinstance(self.pairs, (str, Path)) else list(self.pairs)

    def run(self, model: "ModelSource") -> "ChoiceScores":
        """Evaluate every choice of every pair."""
        from zellige.evaluation import conditional
        from zellige.models.model import as_model

        from .choices import classes_of, scores

        questions, model = self.questions(), as_model(model)
        classes, class_words = classes_of(model, questions, self.classes, self.unconditional)
        bounds = conditional.bound(
            model,
            [(question.context, choice) for question in questions for choice in question.choices],
            self.draws,
            self.seed,
            self.batch,
            prefix=self.prefix,
            classes=classes,
            progress=self.progress,
        )
        protocol = {"prefix": self.prefix, "seed": self.seed} | ({"class": class_words} if class_words else {})
        source = str(self.pairs) if isinstance(self.pairs, (str, Path)) else "pairs"
        return replace(scores(model, questions, bounds, protocol, source), request=self.saved())
