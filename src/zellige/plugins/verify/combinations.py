"""Combinations of the options of a method, so that any two values that it admits together are together in one of them.

Two options can be wrong together where each is right alone. A few dozen combinations hold all pairs, where there are
thousands of combinations in all.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from zellige.base.errors import InputError
from zellige.methods.method import Method

Row = dict[str, Any]  # a value for each option
STEPS = 3  # of a model with steps of its own
VALUES: Mapping[
    str, tuple[Any, ...]
] = {  # beside the default, of what is neither a name nor a switch; for texts of two tokens of three
    "alpha_1": (0.2,),
    "auxiliary": (0.0, 0.3),
    "base": (2.0,),
    "begin": (1,),
    "block": (1,),
    "blocks": ((1, 2),),
    "clip": ((0.3, 0.8),),
    "eps": (0.05,),
    "exponent": (1.5,),
    "forward_neighbours": (1,),
    "gamma": (2.0,),
    "genmd4.begin": (0.2,),
    "growth": (5.0,),
    "mask": (1,),
    "mask_proportion": (0.4,),
    "mask_rate": (1.0,),
    "min_time": (0.1,),
    "neighbours": (1, 2),
    "noise": (0.4,),
    "p_uniform": (0.0, 0.3),
    "positive": (False, True),
    "rate_sigma": (0.7,),
    "scale_by_sigma": (False, True),
    "sigma_max": (3.0,),
    "sigma_min": (0.1,),
    "spans": (0.0,),
    "target_sigma": (1.5,),
    "token_share": (0.5,),
    "unmasking": (3.0,),
    "width": (1,),
}
LEFT_OUT = {
    "log_eps": "its numbers are those of published code, and no bound",
    "row_by_row": "only how the times of a batch are spread over its rows",
}


def values_of(cls: type[Method], files: Mapping[str, str]) -> dict[str, tuple[Any, ...]]:
    """Values of each option of a method, the default first; its default alone for an option that is not known here.

    Args:
        files: path for each option that takes one.
    """
    values: dict[str, tuple[Any, ...]] = {}
    for field in dataclasses.fields(cls.Config):
        name, default = field.name, field.default
        if name in cls.choices:
            others = tuple(cls.choices[name])
        elif name in files:
            others = (files[name],)
        elif isinstance(default, bool):
            others = (not default,)
        elif name == "diffusion_steps":
            others = (STEPS,)
        else:
            others = VALUES.get(f"{cls.name}.{name}", VALUES.get(name, ()))
        first = () if name == "diffusion_steps" and default else (default,)  # in place of a long chain
        values[name] = first if name in LEFT_OUT else (*first, *(value for value in others if value != default))
    return values


@dataclass
class Combinations:
    """Rows that hold every pair of values that a method admits.

    Attributes:
        values: of each option.
        admits: raises InputError for a row that the method refuses.
        rows: the combinations.
        pairs: how many pairs they hold; refused: the pairs that are in no combination.
    """

    values: dict[str, tuple[Any, ...]]
    admits: Any
    rows: list[Row] = dataclasses.field(default_factory=list)
    refused: list[Row] = dataclasses.field(default_factory=list)
    pairs: int = 0

    def __post_init__(self) -> None:
        self._known: dict[tuple[Any, ...], bool] = {}
        plain = {name: values[0] for name, values in self.values.items()}
        pairs = [
            {a: x, b: y}
            for a, b in itertools.combinations(self.values, 2)
            for x in self.values[a]
            for y in self.values[b]
        ] or [{}]
        # what never makes a difference to whether a pair is refused needs no change to admit another
        at_odds = {name for pair in pairs if not self._admitted(plain | pair) for name in pair}
        self._missing = {_key(pair) for pair in pairs}
        for pair in pairs:
            if _key(pair) not in self._missing:
                continue
            row = next((row for row in self._around(plain | pair, [n for n in at_odds if n not in pair])), None)
            if row is None:
                self.refused.append(pair)
                self._missing.discard(_key(pair))
                continue
            row = self._fuller(row, pair)
            self.rows.append(row)
            self._missing -= {_key({a: row[a], b: row[b]}) for a, b in itertools.combinations(row, 2)} or {_key({})}
        self.pairs = len(pairs) - len(self.refused)

    def _admitted(self, row: Row) -> bool:
        key = tuple(row.values())
        if key not in self._known:
            try:
                self.admits(row)
                self._known[key] = True
            except InputError:
                self._known[key] = False
        return self._known[key]

    def _around(self, row: Row, names: list[str]) -> Iterator[Row]:
        """Admitted rows that differ from `row` in up to two of these options."""
        for n in range(3):
            for changed in itertools.combinations(names, n):
                for values in itertools.product(*(self.values[name] for name in changed)):
                    other = row | dict(zip(changed, values))
                    if self._admitted(other):
                        yield other

    def _fuller(self, row: Row, pair: Row) -> Row:
        """The row with the values, of all options but the pair's, that hold most of the pairs that no row has."""
        for name in (name for name in row if name not in pair):
            gain = {
                v: sum(_key({name: v, b: y}) in self._missing for b, y in row.items() if b != name)
                for v in self.values[name]
            }
            for value in sorted(self.values[name], key=lambda v: -gain[v]):
                if gain[value] <= gain[row[name]]:
                    break
                if self._admitted(row | {name: value}):
                    row = row | {name: value}
                    break
        return row


def _key(pair: Row) -> frozenset[tuple[str, Any]]:
    return frozenset(pair.items())


def combinations(cls: type[Method], vocabulary: int, length: int, files: Mapping[str, str]) -> Combinations:
    """Those of a method on texts of this length."""

    def admits(row: Row) -> None:
        config = cls.Config(**row)
        cls.resolve(config)(None, vocabulary, (length,), config)  # pyright: ignore[reportCallIssue]

    return Combinations(values_of(cls, files), admits)
