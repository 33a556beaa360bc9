"""The fields of a frozen dataclass as options: what each takes, what it is without it, and whether a word will do for it."""

import dataclasses
import functools
import operator
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Union

from ..arguments import MOST, MOST_SEED
from ..errors import InputError, nearest
from ..requests import Option, option_of

IDLE = "idle"  # marks, in a field's annotation, an option that a command takes only because every command does


@dataclasses.dataclass(frozen=True)
class Flag:
    """One option: what it takes, what it is without it, and the field of the dataclass that it stands for."""

    name: str
    kind: Any
    default: Any
    owner: Any
    field: str

    @property
    def idle(self) -> bool:
        """Whether it is marked as one that changes nothing."""
        hint = typing.get_type_hints(self.owner, include_extras=True)[self.field]
        return IDLE in getattr(hint, "__metadata__", ())

    @property
    def switch(self) -> bool:
        return self.kind is bool

    @property
    def off(self) -> str:
        """A switch's other flag: --no-resume, --train.no-tensorboard."""
        section, dot, leaf = self.name.removeprefix("--").rpartition(".")
        return f"--{section}{dot}no-{leaf}"

    @property
    def many(self) -> int | None:
        """How many values it takes; None: any number."""
        if typing.get_origin(self.kind) in (tuple, list):
            inner = typing.get_args(self.kind)
            return None if len(inner) == 2 and inner[1] is Ellipsis else len(inner)
        return 1

    @property
    def words(self) -> list[str]:
        """Those that it allows, where it leaves a choice among some."""
        return _values(self.kind)[0]

    @property
    def option(self) -> Option | None:
        """What the field itself says of its values, where it was declared by `requests.option`."""
        return next((option_of(f) for f in dataclasses.fields(self.owner) if f.name == self.field), None)

    @property
    def judged(self) -> bool:
        """Whether its dataclass checks ranges itself."""
        return hasattr(self.owner, "__post_init__")

    @property
    def least(self) -> int:
        """0 where its dataclass takes 0; where that checks nothing: where 0 is the default."""
        if self.option is not None and self.option.minimum is not None:
            return int(self.option.minimum)
        if not self.judged:
            return 0 if self.default == 0 and self.default is not None else 1
        try:
            self.owner(**{self.field: 0})
        except InputError:
            return 1
        return 0

    def check(self, text: str) -> None:
        """One value; InputError says what it must be."""
        allowed, kinds = _values(self.kind)
        if text in allowed or (text.lower() == "none" and type(None) in kinds):
            return
        if allowed and not kinds - {type(None)}:
            near = nearest(text, allowed)
            meant = f"did you mean '{near}'? " if near else ""
            raise InputError(f"{self.name} is '{text}'; {meant}it must be {_or(allowed)}")
        if kinds and kinds <= {int, type(None)}:
            try:
                value = int(text.encode("ascii"))  # not the digits of other scripts, which Python reads
            except ValueError:
                raise InputError(
                    f"{self.name} is '{text}'; it must be a whole number of {self.least} or more"
                ) from None
            if value < self.least and (not self.judged or self.name == "--seed"):
                raise InputError(f"{self.name} is {value}; it must be {self.least} or more")
            most = MOST_SEED if self.name.endswith("seed") else MOST
            if value > most:
                raise InputError(f"{self.name} is {value:,}; it must be at most {most:,}")
        elif kinds and kinds <= {int, float, type(None)}:
            try:
                float(text.encode("ascii"))
            except ValueError:
                raise InputError(f"{self.name} is '{text}'; it must be a number") from None


def _values(kind: Any) -> tuple[list[str], set[Any]]:
    """The words that a type allows, and the plain types among which it leaves the choice."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return [str(v) for v in inner], set()
    if origin in (Union, types.UnionType, tuple, list):
        words, kinds = [], set()
        for part in inner:
            if part is not Ellipsis:
                more, others = _values(part)
                words, kinds = words + more, kinds | others
        return words, kinds
    return (["True", "False"], set()) if kind is bool else ([], {kind})


def _or(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def flags(cls: type, default: Any = None, prefix: str = "") -> dict[str, Flag]:
    """Every option of a dataclass, by its flag; positional fields are left out."""
    options: dict[str, Flag] = {}
    for field, name, hint in named_fields(cls):
        if name is None:
            continue
        value = getattr(default, field.name, field.default)
        if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        if dataclasses.is_dataclass(hint):
            inner = f"{prefix}{name}." if name else prefix
            options |= flags(hint, None if value is dataclasses.MISSING else value, inner)  # pyright: ignore[reportArgumentType]
        else:
            flag = "--" + prefix + name.replace("_", "-")
            options[flag] = Flag(flag, hint, value, cls, field.name)
    return options


def named_fields(cls: type) -> Iterator[tuple[Any, str | None, Any]]:
    """Each field of a dataclass that is on the command line, what its option is called (None: it is positional), and its type."""
    import tyro

    hints = typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        hint, name = hints[field.name], field.name
        option = option_of(field)
        if option is not None:
            if option.hidden:
                continue
            name = option.flag or name
            hint = hint if option.typed is None else option.typed
        if typing.get_origin(hint) is typing.Annotated:
            marks = typing.get_args(hint)[1:]
            positional = tyro.conf.Positional in marks
            name = None if positional else next((m.name for m in marks if getattr(m, "name", None) is not None), name)
            hint = typing.get_args(hint)[0]
        yield field, name, _typed(hint) if option is not None else hint


def _typed(hint: Any) -> Any:
    """What can be typed of the values that a declared field takes: words for any, no dataclass beside others."""
    if hint is Any:
        return str
    if typing.get_origin(hint) in (Union, types.UnionType):
        parts = [part for part in typing.get_args(hint) if not dataclasses.is_dataclass(part)]
        return functools.reduce(operator.or_, parts)
    return hint


def positionals(cls: type) -> list[str]:
    """The first word of each positional argument's name: RUN, TEXT."""
    hints = typing.get_type_hints(cls, include_extras=True)
    places = [typing.get_args(hints[field.name])[1:] for field, name, _ in named_fields(cls) if name is None]
    titles = [title for marks in places for mark in marks if (title := getattr(mark, "metavar", None))]
    return [title.strip("[]").split()[0] for title in titles]
