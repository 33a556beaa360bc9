"""Several data sets judged by one protocol: the zero-shot table of the literature.

A set that cannot be had, for want of a network, of an extra or of a local copy, is named with the reason; the others are judged.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..data import zero_shot as sets
from ..data.remote import Unreachable
from ..errors import InputError, Registry, unknown
from ..models.model import as_model, fingerprint, identity, told_none, which_weights
from ..samplers.pairing import of_length
from ..show.record import json_record
from .evaluate import GROUP, evaluate_rows
from .likelihood import Likelihood
from .protocol import Protocol, protocol_named
from .result import Result

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
        """What must be known of the data."""
        about = {} if self.result is None else self.result.about
        cut = (
            f"{about['cut']:,} texts are cut to a row, {about['left_out']:,} tokens left out"
            if about.get("cut")
            else ""
        )
        return ", ".join(filter(None, (about.get("note"), cut)))


@dataclass(frozen=True)
class SuiteTable:
    """A suite judged: a row for each set, the protocol, and what was judged."""

    suite: str
    protocol: Protocol
    rows: tuple[SuiteRow, ...]
    about: dict[str, Any]
    seed: int
    seconds: float

    def to_dict(self, arguments: Any = None) -> dict[str, Any]:
        """As JSON has it: the whole protocol, and each set's own result with its own."""
        each = [
            {"set": row.name, "reason": row.reason}
            if row.result is None
            else {"set": row.name} | {k: v for k, v in row.result.to_dict(None).items() if k in _KEYS}
            for row in self.rows
        ]
        result = {"suite": self.suite, "sets": each, "about": self.about}
        first = next((row.result for row in self.rows if row.result is not None), None)
        kind = None if first is None else first.kind
        classes = {} if first is None else {key: first.protocol[key] for key in ("class",) if key in first.protocol}
        return json_record(
            "evaluate", arguments, result, unit="nats/token", kind=kind, protocol=self.protocol.to_dict() | classes,
            seed=self.seed, seconds=self.seconds,
        )  # fmt: skip


_KEYS = ("result", "interval", "unit", "kind", "protocol", "seconds")


def judge(
    model: Any,
    suite: str = "zero-shot",
    protocol: str | Protocol = "zellige",
    *,
    root: str | None = None,
    only: Sequence[str] = (),
    draws: int | None = None,
    seed: int = 0,
    limit: int | None = None,
    batch: int = GROUP,
    estimator: str = "bound",
    processes: int = 1,
    distributed: bool = False,
    keep: Path | None = None,
    cache: str | None = None,
    begin: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SuiteTable:
    """Judge a model on the data sets of a suite.

    Args:
        model: a `Model`, or a run folder, a saved folder or a hub id.
        protocol: a name of `protocol.PROTOCOLS`, or a `Protocol`, e.g. `replace(PROTOCOLS["mdlm"], t_min=0.0)`.
        root: a folder of local copies, with a subfolder for each set; else they are fetched.
        only: these sets of the suite alone.
        draws: of each row; the protocol's if not given.
        begin, progress: called with the name of each set, and with (rows done, rows in all).
        The others: see `evaluate.evaluate_rows`.

    Raises:
        InputError: a name is not known, the model has no bound or is not of text, or no set at all can be judged.
    """
    started = time.perf_counter()
    known = SUITES[suite]
    for name in only:
        if name not in known:
            raise unknown("set", name, known)
    protocol, model = protocol_named(protocol), as_model(model)
    if model.tokenizer.shape:
        raise InputError(
            f"the run was trained on {model.tokenizer.describe()}, and `suite` {suite} is text; leave it out"
        )
    Likelihood(model.method, estimator)  # what is wrong for every set is said once
    if root is not None and not Path(root).expanduser().is_dir():
        raise InputError(f"no folder at '{root}'; give one with a subfolder for each set, e.g. wikitext-2, lambada")
    rows, silent = [], []
    for name in only or known:
        if begin:
            begin(name)
        try:
            result = _judge(
                model, name, protocol, root, cache, draws=draws or protocol.draws, seed=seed, limit=limit, batch=batch,
                estimator=estimator, processes=processes, distributed=distributed, keep=keep, progress=progress,
            )  # fmt: skip
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
        same = {row.reason for row in rows}
        first = (
            rows[0].reason
            if len(same) == 1
            else "; ".join(f"{row.name}: {row.reason.partition(';')[0]}" for row in rows)
        )
        raise InputError(first if len(same) == 1 else f"none of the sets can be judged: {first}")
    about = identity(model) | {"length": protocol.length or model.method.shape[0]}
    return SuiteTable(suite, protocol, tuple(rows), about, seed, time.perf_counter() - started)


def _judge(model: Any, name: str, protocol: Protocol, root: str | None, cache: str | None, **how: Any) -> Result:
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
        texts.documents, model.tokenizer, length, pack=protocol.pack, eos=protocol.eos, begin=protocol.begin,
        end=protocol.end, name=name,
    )  # fmt: skip
    method = of_length(model.method, length)
    entries = {"protocol": protocol.to_dict(), "set": name, "split": texts.about["split"]}
    entries |= {"weights": which_weights(model)} | told_none(model)
    result = evaluate_rows(method, rows, t_min=protocol.t_min, ends=protocol.ends, protocol=entries, **how)
    names = ("name", "split", "documents", "sha256", "hub", "addresses", "note")
    about = {k: v for k, v in texts.about.items() if k in names}
    about |= {"tokens_sha256": fingerprint(torch.from_numpy(rows.array())), "length": length, "rows": len(rows)}
    return replace(result, about=about | {"cut": rows.cut, "left_out": rows.left_out})
