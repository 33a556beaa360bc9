"""Records of a sweep: its trials, each with the best bound of its validations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from zellige.base.schema import read_by
from zellige.evaluation.result import Result
from zellige.show.numbers import count, duration, path
from zellige.show.record import Record

from .search import Point


@dataclass(frozen=True)
class Trial:
    """One training of a sweep.

    Attributes:
        point: the value of each axis, as a text.
        validation: the best bound, at `best_step`; None where it has none, or failed.
        seconds: of the training; None where it failed.
        error: that ended it; "" where none did.
    """

    point: Point
    folder: Path = field(metadata=read_by(Path))
    validation: Result | None = None
    best_step: int | None = None
    seconds: float | None = None
    error: str = ""

    def row(self) -> list[str]:
        """Its line in the table, after its values."""
        if self.error:
            return ["failed", "", "", path(self.folder)]
        bound = str(self.validation or "without a bound")
        return [bound, count(self.best_step or 0), duration(self.seconds or 0), path(self.folder)]

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """The least is best: a failed one comes last, one without a bound before it."""
        bound = self.validation
        return bool(self.error), bound is None, 0.0 if bound is None else bound.value

    def entry(self, names: Sequence[str]) -> dict[str, Any]:
        """The trial as JSON has it."""
        v = self.validation
        bound = dict.fromkeys(("interval", "unit", "kind")) if v is None else v.common()
        return {
            "point": dict(zip(names, self.point)),
            "run": str(self.folder),
            "validation": None if v is None else v.value,
            **{name: bound[name] for name in ("interval", "unit", "kind")},
            "best_step": self.best_step,
            "seconds": self.seconds,
            "error": self.error or None,
        }

    @classmethod
    def values(cls, entry: Mapping[str, Any]) -> dict[str, Any]:
        """The values of its fields in what `entry` gave."""
        value = entry["validation"]
        bound = {"value": value, **(entry["interval"] or {}), "unit": entry["unit"], "kind": entry["kind"]}
        return {
            **entry,
            "point": [*map(str, entry["point"].values())],
            "folder": entry["run"],
            "validation": None if value is None else bound,
            "error": entry["error"] or "",
        }


@dataclass(frozen=True)
class SweepRecord(Record):
    """The trials of a sweep, the best first.

    Attributes:
        names: of the axes, in the order of each trial's point.
        seconds: what was there already left out.
    """

    command: ClassVar = "sweep"
    advice: ClassVar = "give its sweep.json"
    names: tuple[str, ...]
    trials: tuple[Trial, ...]
    seconds: float | None = None

    @property
    def best(self) -> Trial:
        return self.trials[0]

    def table(self) -> list[list[str]]:
        """Its header and a row for each trial."""
        rows = [[*trial.point, *trial.row()] for trial in self.trials]
        return [[*self.names, "validation", "at step", "trained", "run"], *rows]

    def content(self) -> dict[str, Any]:
        return {"trials": [trial.entry(self.names) for trial in self.trials]}

    @classmethod
    def values(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        trials = document["result"]["trials"]
        return {**document, "names": [*trials[0]["point"]], "trials": [*map(Trial.values, trials)]}
