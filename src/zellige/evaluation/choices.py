"""Files of pairs, `zellige evaluate MODEL --pairs FILE.jsonl`: how likely the continuations are, and which choice is likeliest.

    {"context": "the sky is ", "continuation": "blue"}
    {"context": "the sky is ", "choices": ["blue", "soup"], "answer": 0}

A line with choices counts by its right one in the mean, and in two accuracies, those that lm-evaluation-harness calls `acc` and
`acc_norm`: the choice of the least nats, and of the least nats per character.
A model with classes is told the `class` of a line, where it has one, by name or number.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError
from ..models.model import as_model, class_names, find_classes, fingerprint, identity, which_weights
from ..schema import parse, read_text, shown
from . import conditional
from .conditional import BATCH, DRAWS, Conditional
from .interval import Proportion
from .likelihood import whose_law
from .result import Result, summarize

PROTOCOL = "zellige-pairs-1"


@dataclass(frozen=True)
class Record:
    """A line of a file of pairs: a context, the texts that may follow, which of them is right, and its class."""

    context: str
    choices: tuple[str, ...]
    answer: int = 0
    label: str | int | None = None


def read_pairs(path: str | Path) -> list[Record]:
    """The lines of a .jsonl file: a `context` (empty if there is none) with a `continuation`, or with `choices` and an `answer`.

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


def _record(line: str, where: str) -> Record:
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
        return Record(context, tuple(choices), label=entry.get("class"))
    answer = entry.get("answer")
    answer = choices.index(answer) if answer in choices else answer
    if type(answer) is not int or not 0 <= answer < len(choices):
        raise InputError(f"{where} has no right answer; give answer, a number from 0 to {len(choices) - 1} or a choice")
    return Record(context, tuple(choices), answer, entry.get("class"))


@dataclass(frozen=True)
class ChoiceScores:
    """What a model says of a file of pairs.

    Attributes:
        result: the mean over the right continuations, per token; its interval is that of other pairs of the same kind.
        drawn: half the 95% interval of the mean over the draws, for these very pairs; infinite where it is not known.
        records: the lines.
        bounds: the nats of every choice, one line after another.
        accuracy, normalised: the share of lines with choices whose right one has the least nats, and the least nats per
            character; None where no line has choices.
    """

    result: Result
    drawn: float
    records: list[Record]
    bounds: Conditional
    accuracy: Proportion | None
    normalised: Proportion | None

    @property
    def note(self) -> str | None:
        return self.bounds.note

    def to_dict(self, arguments: Any = None) -> dict[str, Any]:
        """As JSON has it: the keys of every command's, and `pairs` with the nats of each."""
        out = self.result.to_dict("evaluate", arguments)
        nats, error, tokens = (x.tolist() for x in (self.bounds.nats, self.bounds.error, self.bounds.tokens))
        lines, at = [], 0
        for record in self.records:
            here = slice(at, at + len(record.choices))
            line = {"context": record.context, "choices": [*record.choices], "answer": record.answer}
            lines.append(line | {"nats": nats[here], "error": error[here], "tokens": tokens[here]})
            at = here.stop
        more: dict[str, Any] = {"over_draws": self.drawn, "note": self.note, "pairs": lines}
        for name, share in (("accuracy", self.accuracy), ("accuracy_normalised", self.normalised)):
            more[name] = None if share is None else share.to_dict()
        return out | {"result": out["result"] | more}


def score_choices(
    model: Any,
    records: Sequence[Record],
    draws: int = DRAWS,
    seed: int = 0,
    batch: int = BATCH,
    *,
    prefix: bool = False,
    label: Any = None,
    unconditional: bool = False,
    source: str = "pairs",
    progress: Callable[[int, int], None] | None = None,
) -> ChoiceScores:
    """Bound the nats of every choice of every record; arguments as in `conditional.bound`.

    label: the class, a name or a number, that a model with classes is told of every record; that of each record if not given.
    unconditional: tell it none.
    source: what to call the records in the protocol.
    """
    model, records = as_model(model), list(records)
    classes, given_class = _classes(model, records, label, unconditional)
    bounds = conditional.bound(
        model, [(r.context, choice) for r in records for choice in r.choices], draws, seed, batch,
        prefix=prefix, classes=classes, progress=progress,
    )  # fmt: skip
    starts = torch.tensor([0, *(len(r.choices) for r in records)]).cumsum(0)
    right = starts[:-1] + torch.tensor([r.answer for r in records])
    table, tokens = bounds.table[right], bounds.tokens[right]
    unit = "bits/char" if model.tokenizer.unit == "char" else "nats/token"
    method, sets = model.method, bounds.table.shape[1]
    protocol = {
        "name": PROTOCOL,
        "estimator": "bound of the conditional: the context is given, clean",
        "law": whose_law(method),
        "draws": bounds.draws,
        "strata": "none" if bounds.kind == "exact" else f"{sets} replicates of {bounds.draws // sets} stratified draws",
        "tokens": "the whole text is tokenized; a token across the border counts as continuation",
        "prefix": prefix,
        "window": f"{int(method.shape[0])} tokens; a longer context loses its beginning",
        "network": method.precision,
        "bound": "float64",
        "weights": which_weights(model),
        "seed": seed,
    } | ({"class": given_class} if given_class else {})
    about = identity(model) | {
        "data": source,
        "pairs": len(records),
        "sha256": fingerprint([asdict(record) for record in records]),
    }
    result = summarize(table, tokens, unit, bounds.kind, draws=bounds.draws, seed=seed, protocol=protocol, about=about)
    counts = [_counts(r, bounds.nats[a:b]) for r, a, b in zip(records, starts[:-1], starts[1:]) if len(r.choices) > 1]
    shares = [Proportion(sum(c[i] for c in counts), len(counts)) for i in (0, 1)] if counts else [None, None]
    return ChoiceScores(result, result.draws_half, records, bounds, *shares)


def _classes(model: Any, records: Sequence[Record], label: Any, unconditional: bool) -> tuple[torch.Tensor | None, str]:
    """The class (choices of all records,) that the model is told with each choice, -1 for none, and how that is called."""
    labels = [None if unconditional else record.label if label is None else label for record in records]
    if all(one is None for one in labels):
        return None, "without the class" if class_names(model) else ""
    numbers = [-1 if one is None else int(find_classes(model, one)) for one in labels]
    each = torch.tensor([n for n, record in zip(numbers, records) for _ in record.choices])
    if label is not None:
        return each, f"given the class {class_names(model)[numbers[0]]}"
    return each, "given the class, of lines that have one" if -1 in numbers else "given the class"


def _counts(record: Record, nats: torch.Tensor) -> tuple[bool, bool]:
    """Whether the right choice has the least nats, and the least per character."""
    characters = torch.tensor([len(choice) for choice in record.choices])
    return int(nats.argmin()) == record.answer, int((nats / characters).argmin()) == record.answer
