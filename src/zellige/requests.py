"""Options as fields: a frozen dataclass whose fields each say what they are for and which values they take.

    @declared
    class Remasking(Sampler):
        eta: float = option("how much is masked again", default=0.02, minimum=0, maximum=1)

The constructor checks every value. The command line, the web page and the docs read the same fields (`options_of`).
"""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, Union, dataclass_transform

from .arguments import checked
from .errors import InputError

C = TypeVar("C", bound=type)
_KEY = "option"  # of a field's metadata
KINDS: dict[str, Any] = {
    "whole": int,
    "number": float,
    "switch": bool,
    "text": str,
}  # of values, as pages and tables name them


@dataclass(frozen=True)
class Option:
    """What a field says of its values.

    Attributes:
        help: what it is for, in one clause.
        minimum, maximum, above, below: the ends of its range, the last two without the end itself.
        unit: of its values, for the error.
        check: raises InputError for a value that may not be.
        hidden: for Python alone; neither the command line nor the page has it.
        name, kind, default: of the field, as `options_of` gives them; kind is int, float, bool or str.
        plain: whether its values are of that kind alone, or None.
    """

    help: str
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    unit: str = ""
    check: Callable[[Any], object] | None = None
    hidden: bool = False
    name: str = ""
    kind: type = str
    default: Any = None
    plain: bool = True

    @property
    def word(self) -> str:
        """The name of its kind in KINDS."""
        return next(word for word, kind in KINDS.items() if kind is self.kind)

    def refuse(self, value: Any) -> None:
        """InputError where the field may not have this value."""
        if self.check is not None:
            self.check(value)
        if self.kind not in (int, float):
            return
        over = (self.maximum is not None and value > self.maximum) or (self.below is not None and value >= self.below)
        under = (self.minimum is not None and value < self.minimum) or (self.above is not None and value <= self.above)
        if over or under or math.isinf(value):
            shown = f"{value:g}" if self.kind is float else f"{value:,}"
            raise InputError(
                f"`{self.name}` is {shown}; it must be {self._range(value, over)}{self.unit and ', ' + self.unit}"
            )

    def _range(self, value: float, over: bool) -> str:
        """The values that are allowed, in words; of a whole number the end that this one lies beyond."""
        least = f"above {self.above:g}" if self.above is not None else f"{self.minimum or 0:,} or more"
        most = f"below {self.below:g}" if self.below is not None else f"{self.maximum or 0:,} or less"
        low, high = (self.minimum, self.above) != (None, None), (self.maximum, self.below) != (None, None)
        if low and high and self.kind is float:
            if self.minimum is not None and self.maximum is not None:
                return f"between {self.minimum:g} and {self.maximum:g}"
            return f"{least} and {most if self.maximum is None else f'at most {self.maximum:g}'}"
        return most if over else "a finite number" if value == math.inf else least


def option(help: str, *, default: Any, kw_only: bool = False, **more: Any) -> Any:
    """A field of a `declared` dataclass: what it is for, its default, and what else `Option` says of it."""
    return dataclasses.field(default=default, kw_only=kw_only, metadata={_KEY: Option(help, **more)})


@dataclass_transform(frozen_default=True, field_specifiers=(option, dataclasses.field))
def declared(cls: C) -> C:
    """A frozen dataclass whose constructor checks the type and the range of every field."""
    return checked(dataclass(frozen=True)(cls))


def check_ranges(made: Any) -> None:
    """InputError where a field of a declared dataclass is out of its range; for its `__post_init__`."""
    for option in _options(type(made)):
        if (value := getattr(made, option.name)) is not None:
            option.refuse(value)


def options_of(cls: type) -> dict[str, Option]:
    """The options of a declared dataclass by name, those that are for Python alone left out."""
    return {option.name: option for option in _options(cls) if not option.hidden}


@functools.cache
def _options(cls: type) -> tuple[Option, ...]:
    hints = typing.get_type_hints(cls)
    fields = [field for field in dataclasses.fields(cls) if field.init and _KEY in field.metadata]
    return tuple(
        dataclasses.replace(
            field.metadata[_KEY],
            name=field.name,
            kind=_kinds(hints[field.name])[0],
            default=field.default,
            plain=len(_kinds(hints[field.name])) == 1,
        )
        for field in fields
    )


def _kinds(hint: Any) -> list[type]:
    """The types that a value may have, None left out: int, float and bool, and str for any other."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        return [kind for part in typing.get_args(hint) if part is not type(None) for kind in _kinds(part)]
    return [hint if hint in (int, float, bool) else str]
