"""The bound against the number of steps: a result for each, and how far it lies above the last, on the same draws."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base.errors import InputError
from ..show.record import Figure, Record, json_record
from .result import Result, difference, interval_ends


@dataclass(frozen=True)
class StepsTable(Record):
    """A result for each number of steps.

    Attributes:
        steps: the numbers of steps, 0 for continuous time.
        results: the bound of each.
        apart: each minus the reference, paired, None at the reference itself: continuous time, or else the largest number of
            steps; computed where it is not given.
    """

    steps: tuple[int, ...]
    results: tuple[Result, ...]
    apart: tuple[Result | None, ...] = ()

    def __post_init__(self) -> None:
        if not self.apart:
            finest = self.results[self.steps.index(0 if 0 in self.steps else max(self.steps))]
            apart = (None if result is finest else difference(result, finest) for result in self.results)
            object.__setattr__(self, "apart", tuple(apart))

    @property
    def reference(self) -> Result:
        return self.results[self.apart.index(None)]

    @property
    def about(self) -> dict[str, Any]:
        return self.reference.about

    def figures(self) -> list[Figure]:
        named = zip(self.steps, self.results)
        return [figure for steps, result in named for figure in result.figures(f"{steps or 'continuous'}: ")]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: the result, interval and protocol of each number of steps."""
        last = self.reference
        rows = [_row(*columns) for columns in zip(self.steps, self.results, self.apart)]
        return json_record(
            "evaluate", self.arguments, {"steps": rows, "partial": last.judged if last.partial else None, "about": last.about},
            unit=last.unit, kind=last.kind, protocol=last.protocol, seed=last.seed,
            seconds=sum(columns.seconds or 0 for columns in self.results), request=self.request,
        )  # fmt: skip

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], source: str = "it") -> "StepsTable":
        try:
            rows, common = document["result"]["steps"], {name: document[name] for name in ("unit", "kind", "seed")}
            common["seconds"] = None
            results = tuple(Result.from_dict({**row, **common}, source) for row in rows)
            ends = [
                None if row["above"] is None else (row["above"]["value"], *interval_ends(row["above"])) for row in rows
            ]
        except (KeyError, TypeError) as wrong:
            raise InputError(
                f"'{source}' is not a result of zellige evaluate --steps; give one of steps-*.json"
            ) from wrong
        apart = tuple(None if end is None else Result(*end, document["unit"], "difference") for end in ends)
        return cls(tuple(row["steps"] or 0 for row in rows), results, apart)


def _row(steps: int, result: Result, apart: Result | None) -> dict[str, Any]:
    entries = result.to_dict(None)
    above = None if apart is None else {"value": apart.value, "low": apart.low, "high": apart.high}
    return {"steps": steps or None, "above": above} | {key: entries[key] for key in ("result", "interval", "protocol")}
