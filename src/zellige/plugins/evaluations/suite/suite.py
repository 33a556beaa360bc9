"""Several data sets judged by one protocol: the zero-shot table of the literature.

A set that cannot be had, for want of a network, of an extra or of a local copy, is named with the reason; the others
are judged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from zellige.base.errors import InputError, unknown
from zellige.base.plugins import Registry
from zellige.data.remote import Unreachable
from zellige.evaluation.evaluate import evaluate_rows
from zellige.evaluation.likelihood import Likelihood
from zellige.evaluation.result import Result
from zellige.models.class_names import told_none
from zellige.models.model import Model, fingerprint, which_weights
from zellige.samplers.pairing import of_length
from zellige.show.record import Figure, Record

from . import sets
from .protocol import Protocol

SUITES: Registry[tuple[str, ...]] = Registry("suite")
SUITES |= {"zero-shot": sets.ZERO_SHOT}


@dataclass(frozen=True)
class SuiteRow:
    """One data set of a suite: its result, or why there is none."""

    name: str
    result: Result | None = None
    reason: str = ""

    @property
    def note(self) -> str:
        """Remarks on the data, and on what the tokenizer loses of it."""
        about, protocol = ({}, {}) if self.result is None else (self.result.about, self.result.protocol)
        cut = (
            f"{about['cut']:,} texts are cut to a row, {about['left_out']:,} tokens left out"
            if about.get("cut")
            else ""
        )
        return ", ".join(filter(None, (about.get("note"), cut, protocol.get("tokenizer"))))


@dataclass(frozen=True)
class SuiteTable(Record):
    """A suite judged: a row for each set, the protocol, and what was judged."""

    advice: ClassVar = "give one of suite-*.json"
    unit: ClassVar = "nats/token"
    suite: str
    protocol: Protocol
    rows: tuple[SuiteRow, ...]
    about: dict[str, Any]
    seed: int
    seconds: float

    def figures(self) -> list[Figure]:
        results = {row.name: row.result for row in self.rows if row.result is not None}
        return [figure for name, result in results.items() for figure in result.figures(f"{name}: ")]

    @property
    def kind(self) -> str | None:
        return next((row.result.kind for row in self.rows if row.result is not None), None)

    @property
    def measured(self) -> dict[str, Any]:
        """The protocol of the first set that was measured; {} if none was."""
        return next((row.result.protocol for row in self.rows if row.result is not None), {})

    def common(self) -> dict[str, Any]:
        common, first = super().common(), self.measured
        return common | {"protocol": common["protocol"] | {key: first[key] for key in ("class",) if key in first}}

    def content(self) -> dict[str, Any]:
        """Each set's own result with its protocol, or why there is none."""
        sets = [
            {"set": row.name, "reason": row.reason}
            if row.result is None
            else {"set": row.name, "result": row.result.content()} | {key: row.result.common()[key] for key in _KEYS}
            for row in self.rows
        ]
        return {"suite": self.suite, "sets": sets, "about": self.about}

    @classmethod
    def values(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        result, seed = document["result"], document["seed"]
        rows = [
            {
                "name": row["set"],
                "reason": row.get("reason", ""),
                "result": Result.values({**row, "seed": seed}) if "result" in row else None,
            }
            for row in result["sets"]
        ]
        return {**document, **result, "rows": rows, "protocol": Protocol.values(document["protocol"])}


_KEYS = ("interval", "unit", "kind", "protocol", "seconds")


def refuse(suite: str, only: Sequence[str], model: Model, estimator: str, root: str | None) -> None:
    """InputError for what is wrong for every set of a suite, said once."""
    for name in only:
        if name not in SUITES[suite]:
            raise unknown("set", name, SUITES[suite])
    if model.tokenizer.shape:
        raise InputError(
            f"the run was trained on {model.tokenizer.describe()}, and `suite` {suite} is text; leave it out"
        )
    Likelihood(model.method, estimator)
    if root is not None:
        sets.folder_of_sets(root)


def evaluate_sets(
    model: Model,
    names: Sequence[str],
    protocol: Protocol,
    root: str | None,
    cache: str | None,
    begin: Callable[[str], None] | None = None,
    **how: Any,
) -> tuple[SuiteRow, ...]:
    """A row for each data set: its result, or why there is none.

    Args:
        root: a folder of local copies, with a subfolder for each set; else they are fetched, into `cache`.
        begin: called with the name of each set.
        how: the other arguments of `evaluate_rows`.

    Raises:
        InputError: no set at all can be evaluated.
    """
    rows, silent = [], []
    for name in names:
        if begin:
            begin(name)
        try:
            result = _evaluate_set(model, name, protocol, root, cache, **how)
        except InputError as reason:
            rows.append(SuiteRow(name, reason=str(reason)))
            silent += [reason.reason] if isinstance(reason, Unreachable) else []
        else:
            rows.append(SuiteRow(name, result))
    if len(rows) == len(silent) > 1:
        raise InputError(
            f"none of the sets is on this machine or within reach ({silent[0]}); give a folder of them by `data.path`"
        )
    if all(row.result is None for row in rows):
        if len({row.reason for row in rows}) == 1:
            raise InputError(rows[0].reason)
        reasons = "; ".join(f"{row.name}: {row.reason.partition(';')[0]}" for row in rows)
        raise InputError(f"none of the sets can be judged: {reasons}")
    return tuple(rows)


def _evaluate_set(
    model: Model, name: str, protocol: Protocol, root: str | None, cache: str | None, **how: Any
) -> Result:
    path = None if root is None else sets.folder_of(root, name)
    length = protocol.length or int(model.method.shape[0])
    if length > model.method.window:
        raise InputError(
            f"the protocol's rows have {length:,} tokens, the model takes {model.method.window:,}; use fewer"
        )
    texts = sets.read_texts(
        name, protocol.split, detokenize=protocol.detokenize, lines=protocol.lines, path=path, cache=cache
    )
    rows = sets.cut_rows(
        texts.documents,
        model.tokenizer,
        length,
        pack=protocol.pack,
        eos=protocol.eos,
        begin=protocol.begin,
        end=protocol.end,
        name=name,
    )
    method = of_length(model.method, length)
    entries = {"protocol": protocol.to_dict(), "set": name, "split": texts.about["split"]}
    entries |= {"weights": which_weights(model)} | told_none(model)
    result = evaluate_rows(method, rows, t_min=protocol.t_min, ends=protocol.ends, protocol=entries, **how)
    names = ("name", "split", "documents", "sha256", "hub", "addresses", "note")
    about = {k: v for k, v in texts.about.items() if k in names}
    about |= {"tokens_sha256": fingerprint(torch.from_numpy(rows.array())), "length": length, "rows": len(rows)}
    return replace(result, about=about | {"cut": rows.cut, "left_out": rows.left_out})
