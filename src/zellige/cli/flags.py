"""A frozen dataclass as options of the command line.

The flag of a field is its name, behind the name of the field of the dataclass that it stands in: `Net.layers` in a
field `net` is --net.layers. What a field says of itself, by `requests.option`, is its help; one that says
`argument="RUN"` stands on the command line without a flag.
"""

import dataclasses
import functools
import operator
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, Union

from ..base.arguments import Annotation, choices_of_kind, from_text
from ..base.requests import Option, check_fields, option_of, refuse_unchecked

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Flag:
    """One option: its name (or what an argument without a flag is called), its type, its default and its declaration.

    Attributes:
        path: the names of the fields that lead to it: ("train", "lr").
        owner: the dataclass that the last of them stands in.
        of_run: whether the model's run has the value where none is typed.
    """

    name: str
    kind: Any
    default: Any
    path: tuple[str, ...]
    owner: type
    option: Option
    of_run: bool = False

    @property
    def field(self) -> str:
        return self.path[-1]

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
        """Number of values of the option; None: any number."""
        if typing.get_origin(self.kind) is not tuple:
            return 1
        inner = typing.get_args(self.kind)
        return None if inner[1:] == (...,) else len(inner)

    @property
    def words(self) -> list[str]:
        """Those that it allows, where it leaves a choice among some."""
        words, kinds = choices_of_kind(self.kind)
        return words + ["True", "False"] * (bool in kinds)

    def value(self, typed: Any) -> Any:
        """The value that a text stands for, or several do, or the True or False of a switch.

        Raises:
            InputError: a text that is no value of the option; its range is checked with all other fields, by its
                dataclass.
        """
        if isinstance(typed, bool):
            return typed
        return self.of_text(typed) if isinstance(typed, str) else tuple(self.of_text(text) for text in typed)

    def of_text(self, text: str) -> Any:
        """The value that a single text stands for, of an option that takes several one of them."""
        return from_text(text, self.kind, self.name, self.option.minimum)


def options_class(
    name: str, fields: Iterable[tuple[str, Any, Any]], bases: tuple[type, ...] = (), **attributes: str
) -> Any:
    """A frozen dataclass of options of its fields, (name, type, option) each; attributes: its `usage` and `shown`."""
    return check_fields(dataclasses.make_dataclass(name, fields, bases=bases, frozen=True, namespace=attributes))


def flags(cls: type, default: Any = None) -> dict[str, Flag]:
    """The options of a dataclass, by flag."""
    return {flag.name: flag for flag in every_field(cls, default) if not flag.option.argument}


def arguments(cls: type) -> list[Flag]:
    """The arguments of a dataclass that have no flag, in their order."""
    return [flag for flag in every_field(cls) if flag.option.argument]


def every_field(
    cls: type, default: Any = None, prefix: str = "--", path: tuple[str, ...] = (), of_run: bool = False
) -> Iterator[Flag]:
    """The fields of a dataclass, and of those in it, that are on the command line."""
    for field, option, kind in _typed_fields(cls):
        value, name = getattr(default, field.name, default_of(field)), (option.flag or field.name).replace("_", "-")
        if dataclasses.is_dataclass(kind):
            inner = prefix if option.inline else f"{prefix}{name}."
            yield from every_field(typing.cast(type, kind), value, inner, (*path, field.name), of_run or option.of_run)
        else:
            yield Flag(option.argument or prefix + name, kind, value, (*path, field.name), cls, option, of_run)


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The default of a field; None where it has none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def sections(cls: type) -> dict[str, str]:
    """What is said of the dataclasses in a dataclass, by the names that stand before their options."""
    inner = [(f, option, kind) for f, option, kind in _typed_fields(cls) if dataclasses.is_dataclass(kind)]
    titles = {option.flag or field.name: option.help for field, option, _ in inner if not option.inline}
    return titles | {
        name: text for *_, o, kind in inner if o.inline for name, text in sections(typing.cast(type, kind)).items()
    }


@functools.cache
def _typed_fields(cls: type) -> tuple[tuple[dataclasses.Field[Any], Option, Any], ...]:
    """Each field of a dataclass that is on the command line, its declaration, and the type of its values there."""
    refuse_unchecked(cls)
    hints = typing.get_type_hints(cls)
    fields = sorted(dataclasses.fields(cls), key=lambda field: field.kw_only is True)  # as in the constructor
    declared = [(field, option_of(field) or Option()) for field in fields if field.init]
    return tuple((f, o, _typed(o.typed or hints[f.name])) for f, o in declared if not o.hidden)


def _typed(hint: Annotation) -> Any:
    """Type on the command line of a field's values: words for any value, no dataclass beside others,
    a list or None as a list."""
    if hint is Any:
        return str
    if typing.get_origin(hint) in (Union, types.UnionType):
        parts = [part for part in typing.get_args(hint) if not dataclasses.is_dataclass(part)]
        several = [part for part in parts if typing.get_origin(part) is tuple]
        return several[0] if several else functools.reduce(operator.or_, parts)
    return hint


def with_values(options: T, values: Mapping[tuple[str, ...], Any]) -> T:
    """A dataclass with other values of some fields, in the dataclasses within it too; each is named by its path."""
    inner: dict[str, dict[tuple[str, ...], Any]] = {}
    for (name, *path), value in values.items():
        inner.setdefault(name, {})[tuple(path)] = value
    changed = {n: v[()] if () in v else with_values(getattr(options, n), v) for n, v in inner.items()}
    return dataclasses.replace(typing.cast(Any, options), **changed) if changed else options
