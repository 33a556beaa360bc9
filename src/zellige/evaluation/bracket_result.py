"""A bracket as rows of numbers with their intervals, and its JSON."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..samplers.replay import Oracle, Path
from ..show.record import json_record
from .bracket_work import SETS
from .evaluate import Asked
from .interval import FREEDOM, LEVEL, OVER_TEXTS
from .result import Result, summarize
from .two_sides import SKEWED, skewness

OVER_DRAWS = (
    "Student's t over independent values of each text, or over the jackknife of its draws; none of an undetermined mean"
)


@dataclass(frozen=True)
class BracketRow:
    """One line: a value of the texts, or why there is none.

    Attributes:
        side: "bound" (from above, in expectation), "lower" (from below), "difference" of the two on the same texts, "exact",
            "oracle" (exact, and no sampler's law), or "none".
        n: draws of one estimate; 0 where nothing is drawn.
        calls: of the network for one estimate of a text, a mean; None where nobody counts.
        own: about the model's own samples, and not the texts.
        effective: of the tangent bound and the width: so many of n draws count, of the text where they are fewest.
        skewness: of the mean of all that is drawn of that text, as `two_sides` expects it. Above SKEWED these draws do not
            determine the mean: there is a value then, and no interval.
    """

    name: str
    law: str
    side: str
    result: Result | None = None
    n: int = 0
    calls: float | None = None
    own: bool = False
    why: str | None = None
    effective: float | None = None
    skewness: float | None = None

    @property
    def determined(self) -> bool:
        return self.skewness is None or self.skewness <= SKEWED

    def to_dict(self) -> dict[str, Any]:
        r = self.result
        names = ("name", "law", "side", "n", "calls", "own", "why", "effective", "skewness")
        entries = {k: getattr(self, k) for k in names}
        if r is None:
            return entries | {"value": None}
        ends = {"low": r.low, "high": r.high} if self.determined else {"low": None, "high": None}
        drawn = {"low": r.draws_low, "high": r.draws_high} if self.determined else ends
        each = None if r.nats is None else r.nats.tolist()
        return entries | {"value": r.value, **ends, "over_draws": drawn | {"freedom": r.freedom}, "nats": each}


@dataclass(frozen=True)
class Bracket:
    """The rows of one model and one set of texts, and how they were made.

    Attributes:
        rows: in the order in which they are shown.
    """

    rows: list[BracketRow]
    unit: str
    about: dict[str, Any]
    protocol: dict[str, Any]
    seed: int
    seconds: float = 0.0
    arguments: dict[str, Any] = field(default_factory=dict)

    def named(self, name: str, own: bool = False) -> BracketRow:
        return next(row for row in self.rows if row.name == name and row.own == own)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; nats of each text with every row, so that each has its own bracket."""
        result = {"rows": [row.to_dict() for row in self.rows], "about": self.about}
        interval = {"level": LEVEL, "over_texts": OVER_TEXTS, "over_draws": OVER_DRAWS}
        return json_record(
            "evaluate", self.arguments, result, interval=interval, unit=self.unit, kind="bracket", protocol=self.protocol,
            seed=self.seed, seconds=self.seconds,
        )  # fmt: skip


class BracketTable:
    """What the groups gave, as results in the unit of the bound."""

    def __init__(self, parts: list[dict[str, Any]], bound: Result, asked: Asked, most: int = 1):
        self.parts, self.unit, self.draws = parts, bound.unit, SETS * most
        self.tokens = torch.tensor([n for part in parts for n in part["tokens"]], dtype=torch.float64)
        self.per_token = bound.units / float(self.tokens.sum())
        self.length = asked.about.get("length", 0) or float(self.tokens.max())

    def values(self, name: str, key: Any = None) -> Tensor:
        """(texts, ...) of every group; JSON turns a number that is a key into text."""
        parts = [part[name] for part in self.parts if name in part]
        each = parts if key is None else [part.get(key, part.get(str(key))) for part in parts]
        return torch.cat([torch.tensor(e, dtype=torch.float64) for e in each])

    def result(self, table: Tensor, kind: str, draws: int, own: bool = False) -> Result | None:
        """None where a number is infinite."""
        if not table.isfinite().all():
            return None
        sizes = torch.full((len(table),), float(self.length), dtype=torch.float64) if own else self.tokens
        each = torch.arange(len(table))
        made = summarize(table, sizes * self.per_token, self.unit, kind, group=each, draws=draws)
        few = (
            kind != "exact" and table.shape[1] <= FREEDOM
        )  # so few that one text's spread can rule, and be small by chance
        if own:  # rare samples carry much of their mean, and few samples do not know of them (docs/bracket.md)
            made = replace(made, low=-math.inf, high=math.inf)
        return replace(made, draws_low=-math.inf, draws_high=math.inf) if few else made

    def calls(self, name: str) -> float:
        return float(self.values("calls", name).mean())

    def row(self, name: str, law: str, side: str, table: Tensor, n: int, calls: float, own: bool = False) -> BracketRow:
        result = self.result(table, "exact" if side == "oracle" else side, n, own)
        why = None if result else "infinite: no draw comes near the text; more draws of one estimate"
        row = BracketRow(name, law, side, result, n, calls, own, why)
        if side not in ("lower", "difference") or own:
            return row
        share = float(self.values("effective").min())
        row = replace(row, effective=n * share, skewness=skewness(share, self.draws))
        why = (
            f"not determined: of {self.draws:,} draws {self.draws * share:.3g} count, of the text where they are fewest"
        )
        return row if row.determined else replace(row, why=row.why or why)

    def sides(self, path: Path, numbers: Sequence[int]) -> list[BracketRow]:
        one = self.calls("draw")
        above = [
            self.row(f"importance-weighted, n = {n}", path.law, "bound", self.values("above", n), n, n * one)
            for n in numbers
        ]
        below = [
            self.row(f"TUBE, n = {n}", path.law, "lower", self.values("below", n), n, 2 * n * one) for n in numbers
        ]
        return above + below[::-1]

    def widths(self, path: Path, numbers: Sequence[int]) -> list[BracketRow]:
        one = self.calls("draw")
        return [
            self.row(f"width, n = {n}", path.law, "difference", self.values("apart", n), n, 2 * n * one)
            for n in numbers
        ]

    def exact(self, others: dict[str, Path]) -> list[BracketRow]:
        side = lambda path: "oracle" if isinstance(path, Oracle) else "exact"  # noqa: E731
        return [
            self.row(name, path.law, side(path), self.values("exact", name)[:, None], 0, self.calls(name))
            for name, path in others.items()
        ]

    def own(self, path: Path, numbers: Sequence[int]) -> list[BracketRow]:
        if not any("own above" in part for part in self.parts):
            return []
        of = (
            ("importance-weighted", "above", "bound"),
            ("bidirectional", "below", "lower"),
            ("width", "apart", "difference"),
        )
        one = self.calls("draw")
        return [
            self.row(f"{title}, n = {n}", path.law, side, self.values(f"own {name}", n), n, n * one, own=True)
            for title, name, side in of
            for n in numbers
        ]
