"""Files of pairs, `zellige evaluate MODEL --pairs FILE.jsonl`: how likely the continuations are, and which choice is
likeliest.

    {"context": "the sky is ", "continuation": "blue"}
    {"context": "the sky is ", "choices": ["blue", "soup"], "answer": 0}

A line with choices counts by its right one in the mean, and in two accuracies, those that lm-evaluation-harness calls
`acc` and `acc_norm`: the choice of the least nats, and of the least nats per character.
A class-conditional model is given the `class` of a line, where it has one, by name or number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from zellige.base.errors import InputError
from zellige.base.schema import HIGH, entries_of, parse, read_by, read_text, shown
from zellige.data.losses import losses_of
from zellige.evaluation.conditional import Conditional
from zellige.evaluation.interval import Proportion
from zellige.evaluation.likelihood import bounded_distribution
from zellige.evaluation.result import Result, numbers, summarize
from zellige.models.class_names import WITHOUT_CLASS, class_names, find_classes
from zellige.models.model import Model, fingerprint, identity, which_weights
from zellige.show.record import Figure, Record

PROTOCOL = "zellige-pairs-1"


@dataclass(frozen=True)
class Question:
    """A line of a file of pairs: a context, the texts that may follow, which of them is right, and its class."""

    context: str
    choices: tuple[str, ...]
    answer: int = 0
    label: str | int | None = None


def read_pairs(path: str | Path) -> list[Question]:
    """The lines of a .jsonl file: a `context` (empty if there is none) with a `continuation`, or with `choices` and an
    `answer`.

    The answer is the number of a choice, from 0, or its text.

    Raises:
        InputError: no such file; a line that is none of these, by its number.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no file at '{path}'; give a .jsonl with the fields context and continuation")
    lines = read_text(path, "give a .jsonl with the fields context and continuation").split("\n")
    records = [_record(line, f"line {i} of '{shown(path)}'") for i, line in enumerate(lines, 1) if line.strip()]
    if not records:
        raise InputError(f"'{shown(path)}' holds no pairs; give a .jsonl with the fields context and continuation")
    return records


def _record(line: str, where: str) -> Question:
    entry = parse(line, where, "write an object with context and continuation")
    if not isinstance(entry, dict) or ("continuation" in entry) == ("choices" in entry):
        raise InputError(
            f"{where} has not one of continuation and choices; write an object with context and one of them"
        )
    context, choices = entry.get("context", ""), entry.get("choices", [entry.get("continuation")])
    if not isinstance(context, str) or not isinstance(choices, list) or not all(isinstance(c, str) for c in choices):
        raise InputError(
            f"{where} has something that is no text; context and continuation are texts, choices a list of texts"
        )
    if not choices or not all(choices):
        raise InputError(f"{where} has nothing to judge; a continuation is a text of one character or more")
    if "choices" not in entry:
        return Question(context, tuple(choices), label=entry.get("class"))
    answer = entry.get("answer")
    answer = choices.index(answer) if answer in choices else answer
    if type(answer) is not int or not 0 <= answer < len(choices):
        raise InputError(f"{where} has no right answer; give answer, a number from 0 to {len(choices) - 1} or a choice")
    return Question(context, tuple(choices), answer, entry.get("class"))


@dataclass(frozen=True)
class ChoiceScores(Record):
    """-log p of the choices of a file of pairs.

    Attributes:
        result: the mean over the right continuations, per token; its interval is that of other pairs of the same kind.
        drawn: half the 95% interval of the mean over the draws, for these very pairs; infinite where it is not known.
        questions: the lines.
        nats, error, tokens: (choices,) of every choice, one line after another: -log p, its standard error over the
            draws, and how many tokens it has.
        accuracy, normalised: the share of lines with choices whose right one has the least nats, and the least nats per
            character; None where no line has choices.
        note: where the bound is of another distribution than the model's own conditional: which.
    """

    advice: ClassVar = "give one of pairs-*.json"
    result: Result
    drawn: float = field(metadata=HIGH)
    questions: tuple[Question, ...]
    nats: Tensor = field(metadata=read_by(numbers))
    error: Tensor = field(metadata=read_by(numbers))
    tokens: Tensor = field(metadata=read_by(torch.tensor))
    accuracy: Proportion | None
    normalised: Proportion | None
    note: str | None = None

    @property
    def about(self) -> dict[str, Any]:
        return self.result.about

    def figures(self) -> list[Figure]:
        shares = {"accuracy": self.accuracy, "accuracy_normalised": self.normalised}
        return self.result.figures() + [
            Figure(name, share.value, share.half, name, "estimate")
            for name, share in shares.items()
            if share is not None
        ]

    def common(self) -> dict[str, Any]:
        return self.result.common()

    def content(self) -> dict[str, Any]:
        """That of its result, and `pairs` with the nats of each."""
        nats, error, tokens = (values.tolist() for values in (self.nats, self.error, self.tokens))
        lines, at = [], 0
        for question in self.questions:
            span = slice(at, at + len(question.choices))
            line = {"context": question.context, "choices": [*question.choices], "answer": question.answer}
            lines.append(line | {"nats": nats[span], "error": error[span], "tokens": tokens[span]})
            at = span.stop
        return self.result.content() | {
            "over_draws": self.drawn,
            "note": self.note,
            "pairs": lines,
            "accuracy": entries_of(self.accuracy),
            "accuracy_normalised": entries_of(self.normalised),
        }

    @classmethod
    def values(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        result, pairs = document["result"], document["result"]["pairs"]
        drawn, value = result["over_draws"], result["value"]
        ends = {"low": None, "high": None} if None in (drawn, value) else {"low": value - drawn, "high": value + drawn}
        return {
            "result": Result.values({**document, "result": {**result, "over_draws": ends}}),
            "drawn": drawn,
            "questions": pairs,
            "accuracy": result["accuracy"],
            "normalised": result["accuracy_normalised"],
            "note": result["note"],
            **{name: [x for pair in pairs for x in pair[name]] for name in ("nats", "error", "tokens")},
        }


def scores(
    model: Model, questions: Sequence[Question], bounds: Conditional, protocol: dict[str, Any], source: str
) -> ChoiceScores:
    """The mean, the accuracies and the protocol of the bounds of every choice.

    Args:
        bounds: of every choice of every question, one after another.
        protocol: the entries of the protocol that only the request knows.
        source: what to call the questions.
    """
    starts = torch.tensor([0, *(len(question.choices) for question in questions)]).cumsum(0)
    right = starts[:-1] + torch.tensor([question.answer for question in questions])
    table, tokens = bounds.table[right], bounds.tokens[right]
    unit = "bits/char" if model.tokenizer.unit == "char" else "nats/token"
    method, sets = model.method, bounds.table.shape[1]
    strata = "none" if bounds.kind == "exact" else f"{sets} replicates of {bounds.draws // sets} stratified draws"
    protocol = {
        "name": PROTOCOL,
        "estimator": "bound of the conditional: the context is given, clean",
        **bounded_distribution(method).protocol,
        "draws": bounds.draws,
        "strata": strata,
        "tokens": "the whole text is tokenized; a token across the border counts as continuation",
        "window": f"{int(method.shape[0])} tokens; a longer context loses its beginning",
        "network": method.precision,
        "bound": "float64",
        "weights": which_weights(model),
    } | protocol
    texts = [question.context + choice for question in questions for choice in question.choices]
    protocol |= losses_of(model.tokenizer, texts).protocol
    about = identity(model) | {
        "data": source,
        "pairs": len(questions),
        "sha256": fingerprint([asdict(question) for question in questions]),
    }
    pairs = [(question.context, question.choices[question.answer]) for question in questions]
    number = {pair: i for i, pair in enumerate(pairs)}
    result = summarize(
        table, tokens, unit, bounds.kind, equal=torch.tensor([number[pair] for pair in pairs]), draws=bounds.draws,
        seed=protocol["seed"], protocol=protocol, about=about,
    )  # fmt: skip
    counts = [
        _counts(question, bounds.nats[a:b])
        for question, a, b in zip(questions, starts[:-1], starts[1:])
        if len(question.choices) > 1
    ]
    shares = [Proportion(sum(c[i] for c in counts), len(counts)) for i in (0, 1)] if counts else [None, None]
    choices = (bounds.nats, bounds.error, bounds.tokens)
    return ChoiceScores(result, result.draws_half, tuple(questions), *choices, *shares, note=bounds.note)


def classes_of(
    model: Model, questions: Sequence[Question], label: str | int | None, unconditional: bool
) -> tuple[torch.Tensor | None, str]:
    """The class (choices of all questions,) of each choice for the model, -1 for none, and how that is called."""
    labels = [None if unconditional else question.label if label is None else label for question in questions]
    if all(named is None for named in labels):
        return None, WITHOUT_CLASS if class_names(model) else ""
    numbers = [-1 if named is None else int(find_classes(model, named)) for named in labels]
    numbers_of_choices = torch.tensor([n for n, question in zip(numbers, questions) for _ in question.choices])
    if label is not None:
        return numbers_of_choices, f"given the class {class_names(model)[numbers[0]]}"
    return numbers_of_choices, "given the class, of lines that have one" if -1 in numbers else "given the class"


def _counts(question: Question, nats: torch.Tensor) -> tuple[bool, bool]:
    """Return whether the right choice has the least nats, and the least per character."""
    characters = torch.tensor([len(choice) for choice in question.choices])
    return int(nats.argmin()) == question.answer, int((nats / characters).argmin()) == question.answer
