"""The bound against the number of steps: a result for each, and how far it lies above the last, on the same draws."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from zellige.evaluation.result import Result, difference
from zellige.show.record import Figure, Record


@dataclass(frozen=True)
class StepsTable(Record):
    """A result for each number of steps.

    Attributes:
        steps: the numbers of steps, 0 for continuous time.
        results: the bound of each.
        apart: each minus the reference, paired, None at the reference itself: continuous time, or else the largest
            number of steps; computed where it is not given.
    """

    advice: ClassVar = "give one of steps-*.json"
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

    def common(self) -> dict[str, Any]:
        seconds = sum(result.seconds or 0 for result in self.results)
        return {**self.reference.common(), "interval": None, "seconds": seconds}

    def content(self) -> dict[str, Any]:
        last = self.reference
        rows = [_row(*columns) for columns in zip(self.steps, self.results, self.apart)]
        return {"steps": rows, "partial": last.judged if last.partial else None, "about": last.about}

    @classmethod
    def values(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        common = {name: document[name] for name in ("unit", "kind", "seed")}
        rows = document["result"]["steps"]
        return {
            "steps": [row["steps"] or 0 for row in rows],
            "results": [Result.values({**row, **common}) for row in rows],
            "apart": [row["above"] and {**row["above"], "unit": common["unit"], "kind": "difference"} for row in rows],
        }


def _row(steps: int, result: Result, apart: Result | None) -> dict[str, Any]:
    """The result of a number of steps, with its interval and protocol."""
    above = None if apart is None else {"value": apart.value, "low": apart.low, "high": apart.high}
    return {
        "steps": steps or None,
        "above": above,
        "result": result.content(),
        "interval": result.interval,
        "protocol": result.protocol,
    }
