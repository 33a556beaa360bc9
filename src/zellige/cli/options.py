"""Options: frozen dataclasses on the command line. Names and values are checked here, in one line each; tyro does the rest.

The flag of a field is its name, with the name of the dataclass it stands in before it: `Net.layers` in a field `net` is
`--net.layers`. A field whose annotation says `arg(name="")` puts its own fields at the top: a method's `schedule` is
`--schedule`. What is said below the command line names fields, in backquotes; `spelt` makes options of them.
"""

import contextlib
import dataclasses
import io
import re
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar, Union

from ..arguments import MOST, MOST_SEED
from ..errors import InputError, nearest
from .meanings import meaning

T = TypeVar("T")
_EVERYWHERE = {"checksums=False": "--no-checksums"}
_present = dict(_EVERYWHERE)  # a field as Python spells it -> the option, of the command that runs


@dataclasses.dataclass(frozen=True)
class Flag:
    """One option: what it takes, what it is without it, and the field of the dataclass that it stands for."""

    name: str
    kind: Any
    default: Any
    owner: Any
    field: str

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
    def judged(self) -> bool:
        """Whether its dataclass checks ranges itself."""
        return hasattr(self.owner, "__post_init__")

    @property
    def least(self) -> int:
        """0 where its dataclass takes 0; where that checks nothing: where 0 is the default."""
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
                value = int(text)
            except ValueError:
                raise InputError(
                    f"{self.name} is '{text}'; it must be a whole number of {self.least} or more"
                ) from None
            if value < self.least and not self.judged:
                raise InputError(f"{self.name} is {value}; it must be {self.least} or more")
            most = MOST_SEED if self.name.endswith("seed") else MOST
            if value > most:
                raise InputError(f"{self.name} is {value:,}; it must be at most {most:,}")
        elif kinds and kinds <= {int, float, type(None)}:
            try:
                float(text)
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
    """Each field of a dataclass, what its option is called (None: it is positional), and its type."""
    import tyro

    hints = typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        hint, name = hints[field.name], field.name
        if typing.get_origin(hint) is typing.Annotated:
            marks = typing.get_args(hint)[1:]
            positional = tyro.conf.Positional in marks
            name = None if positional else next((m.name for m in marks if getattr(m, "name", None) is not None), name)
            hint = typing.get_args(hint)[0]
        yield field, name, hint


def spelt(text: str) -> str:
    """What is said in the library, as the command that runs says it: a field in backquotes is its option there, if it is one.

    `net.length` is --net.length, `checksums=False` is --no-checksums; where there is no such option it stays as it is.
    """
    return re.sub(r"`([\w.=]+)`", lambda field: _present.get(field[1], field[0]), text)


def _spellings(known: dict[str, Flag]) -> dict[str, str]:
    names = {flag.name.removeprefix("--").replace("-", "_"): flag for flag in known.values()}
    off = {f"{name}=False": flag.off for name, flag in names.items() if flag.switch}
    return _EVERYWHERE | {name: flag.name for name, flag in names.items()} | off


def given(argv: Sequence[str]) -> set[str]:
    """The flags that stand in a command line, as they are written there."""
    return {word.partition("=")[0] for word in argv if word.startswith("--")}


def _nearest(name: str, known: dict[str, Flag], where: str) -> str:
    """The flag that is spelt most like `name`, by all of it or by what stands after its section."""
    ends = [flag.rpartition(".")[2] for flag in known]
    near = nearest(name, known) or nearest(name.rpartition(".")[2].strip("-"), ends)
    near = near if near in known else next((flag for flag in known if near and flag.endswith(f".{near}")), None)
    return f"did you mean '{near}'?" if near else f"see zellige {where} --help"


def canonical(known: dict[str, Flag], argv: Sequence[str]) -> list[str]:
    """The command line with each switch that is turned off as tyro spells it: --no-train.x becomes --train.no-x."""
    others = {f"--no-{flag.name.removeprefix('--')}": flag.off for flag in known.values() if flag.switch}
    return [others.get(word.replace("_", "-"), word) if word.startswith("--no-") else word for word in argv]


def check(known: dict[str, Flag], argv: Sequence[str], where: str) -> list[str]:
    """Check names and values, and remember how they are spelt; returns what is not an option.

    Raises InputError: an unknown option with the nearest one, a missing or an impossible value.
    """
    _present.clear()
    _present.update(_spellings(known))
    rest, words = [], canonical(known, argv)
    off = {flag.off: flag for flag in known.values() if flag.switch}
    seen: set[str] = set()
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            if len(word) == 2 and word[0] == "-" and word[1].isalpha() and word != "-h":
                meant = meaning(word, known)
                hint = (
                    f"flags are whole words, {meant}"
                    if meant
                    else f"flags are whole words (all: zellige {where} --help)"
                )
                raise InputError(f"unknown option '{word}' for {where}; {hint}")
            rest.append(word)
            continue
        name, has_value, value = word.partition("=")
        name = name.replace("_", "-")
        if name == "--help":
            rest.append(name)
            continue
        flag = known.get(name) or off.get(name)
        if flag is None:
            raise InputError(
                f"unknown option '{name}' for {where}; {meaning(name, known) or _nearest(name, known, where)}"
            )
        if flag.name in seen:
            raise InputError(f"{flag.name} is given twice; give it once")
        seen.add(flag.name)
        if flag.switch:
            if has_value or (words and words[0].lower() in ("true", "false")):
                raise InputError(f"{name} takes no value; write {flag.name} or {flag.off}")
            continue
        values = [value] if has_value else []
        while (
            not has_value and words and (flag.many is None or len(values) < flag.many) and not words[0].startswith("--")
        ):
            values.append(words.pop(0))
        if not values or (flag.many is not None and len(values) < flag.many):
            want = "a value" if flag.many == 1 else f"{flag.many} values"
            raise InputError(f"{name} needs {want}; see zellige {where} --help")
        for one in values:
            flag.check(one)
    return rest


def parse(
    cls: type[T], argv: Sequence[str], where: str, *, default: T | None = None, about: str = "", most: int = 0
) -> T:
    """The dataclass `cls` from a command line; `where` is the command as it was typed, `most` its positional arguments.

    `--help` prints tyro's page and ends with SystemExit(0).
    """
    import tyro

    known = flags(cls, default)
    rest, argv = check(known, argv, where), canonical(known, argv)
    extra = [] if {"--help", "-h"} & set(rest) else rest[most:]
    if extra:
        raise InputError(f"'{extra[0]}' is one argument too many for {where}; see zellige {where} --help")
    kwargs: dict[str, Any] = {"prog": f"zellige {where}", "args": argv, "description": about}
    if default is not None:
        kwargs["default"] = default
    if {"--help", "-h"} & set(rest):
        tyro.cli(cls, **kwargs)
    held = io.StringIO()
    try:
        with contextlib.redirect_stderr(held), contextlib.redirect_stdout(held):
            return tyro.cli(cls, **kwargs)
    except SystemExit as end:
        own = getattr(end.__context__, "message", None)  # what a dataclass said about its fields, one within another
        own = str(end.__context__) if isinstance(end.__context__, InputError) else own
        if isinstance(own, str) and "; " in own and "\n" not in own:
            raise InputError(own) from None
        message = " ".join(line.strip(" │") for line in held.getvalue().splitlines() if line.startswith("│"))
        short = message.partition(" ─")[0].strip().rstrip(".") or "the options cannot be read"
        raise InputError(f"{short[:1].lower()}{short[1:]}; see zellige {where} --help") from None
