"""`zellige evaluate RUN --tokens N`: how many different tokens the first N of the test split have."""

from dataclasses import dataclass
from typing import Any, ClassVar

from zellige.base.requests import Request, declared, inline, option
from zellige.cli.common import OfModel, load, write_result
from zellige.cli.evaluate_again import Mode
from zellige.show.record import Record


@dataclass(frozen=True)
class Different(Record):
    unit: ClassVar = "tokens"
    kind: ClassVar = "exact"
    different: int

    @property
    def about(self) -> dict[str, Any]:
        return {}


@declared
class EvaluateTokens(Request[Different]):
    """Different tokens of the test split."""

    returns = "zellige_plugged.evaluation:Different"

    tokens: int = option("tokens that are looked at", default=10, minimum=1)

    def run(self, model, /) -> Different:
        from zellige.evaluation.corpus import corpus_of

        rows = corpus_of(model, None, None, "test").test
        return Different(len({*rows[0]["tokens"][: self.tokens].tolist()})).made_by(self)


@declared
class TokensOptions(OfModel):
    request: EvaluateTokens = inline(default=EvaluateTokens())


def run(chosen, words, terminal):
    return chosen.request.run(load(terminal, chosen.run, "evaluate", chosen))


TOKENS = Mode(
    EvaluateTokens, TokensOptions, "evaluate --tokens", "Count different tokens.", run,
    lambda record: [f"{record.different} different tokens"],
    lambda record, folder, terminal: write_result(terminal, folder / "tokens.json", record.to_dict()),
)  # fmt: skip
