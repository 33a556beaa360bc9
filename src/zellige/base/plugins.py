"""What plugs into Zellige: methods, samplers, commands and more by name, ours and those of other packages.

A package names what it brings by entry points; the group says what it is (`GROUPS`):

    [project.entry-points."zellige.methods"]
    mymethod = "zellige_mymethod:MyMethod"

After `pip install` the name stands wherever a name of ours may stand. What Zellige itself plugs in stands in one table
of the same form, `zellige.plugins.TABLE`. Nothing is imported before it is asked for by its name. Other packages are
asked only for a name that is not ours, and by `zellige list plugins`.
"""

import functools
import importlib
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from .errors import InputError, unknown
from .trust import refuse_plugin

T = TypeVar("T")
GROUPS: dict[str, str] = {  # group of entry points -> the table that they are found by
    "zellige.commands": "zellige.cli.commands:COMMANDS",
    "zellige.methods": "zellige.methods:METHODS",
    "zellige.samplers": "zellige.samplers:SAMPLERS",
    "zellige.schedules": "zellige.core.curves:SCHEDULES",
    "zellige.datasets": "zellige.data:DATASETS",
    "zellige.tokenizers": "zellige.data.tokenizer:TOKENIZERS",
    "zellige.layouts": "zellige.plugins.published:LAYOUTS",
    "zellige.metrics": "zellige.evaluation.metrics:METRICS",
    "zellige.evaluations": "zellige.cli.evaluate:EVALUATIONS",
}


def ours(group: str) -> Mapping[str, str]:
    """What Zellige plugs into a group: name -> `module:attribute`."""
    return importlib.import_module("zellige.plugins").TABLE.get(group, {})


@functools.cache
def others(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """What other packages plug into a group; of a name that several bring, all."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in importlib.metadata.entry_points(group=group):
        if point not in found.get(point.name, ()):
            found[point.name] = (*found.get(point.name, ()), point)
    return found


def plugged() -> "Iterator[Plugged]":
    """Everything that other packages bring; the tables of groups to which they bring nothing are not imported."""
    for group, address in GROUPS.items():
        if others(group):
            yield from named(address).plugged()


def named(address: str) -> Any:
    """The object of `module:attribute`, imported now."""
    module, _, attribute = address.partition(":")
    return getattr(importlib.import_module(module), attribute)


def part(name: str) -> ModuleType:
    """A plug-in of ours as a whole, by its folder, imported now: `part("published").read(folder)`."""
    return importlib.import_module(f"zellige.plugins.{name}")


class Registry(dict[str, T]):
    """Things by name: the dictionary holds ours; any other name is looked for among the plug-ins of `group`.

    Iterating gives what the dictionary holds, `all` also what our plug-ins bring. `in`, `get` and `[]` know the names
    of other packages too; a name that nobody has raises the error of `unknown`. A file may name what another package
    brings only once you have named it, or allowed code (`trust.reading`).

    Args:
        kind: what one is called in errors.
        see: the command that lists all.
        group: of entry points, one of GROUPS; "" for a table that nothing plugs into.
        fits: what says whether an object is one, and in words what it must be.

    >>> sizes = Registry("size")
    >>> sizes |= {"tiny": 1, "small": 2}
    >>> sizes["tyny"]
    Traceback (most recent call last):
    zellige.base.errors.InputError: unknown size 'tyny'; did you mean 'tiny'? (all: tiny, small)
    """

    def __init__(self, kind: str, see: str = "", group: str = "", fits: "Fits | None" = None):
        super().__init__()
        self.kind, self.see, self.group, self.fits = kind, see, group, fits
        self._plugged: dict[str, T] = {}

    def __missing__(self, name: str) -> T:
        if name not in self._plugged:
            if name not in self:
                raise unknown(self.kind, str(name), self.names(), self.see)
            self._plugged[name] = self._load(name)
        return self._plugged[name]

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name) or not self.group or not isinstance(name, str):
            return super().__contains__(name)
        return name in ours(self.group) or name in others(self.group)

    def get(self, name: str, default: Any = None, /) -> Any:
        return self[name] if name in self else default  # noqa: SIM401

    def names(self) -> list[str]:
        """All names of ours, those of plug-ins among them."""
        return [*self, *(ours(self.group) if self.group else ())]

    def all(self) -> dict[str, T]:
        """All of ours, those of plug-ins among them."""
        return {name: self[name] for name in self.names()}

    def plugged(self) -> Iterator["Plugged"]:
        """What other packages bring, each with the object or with what is wrong with it."""
        for name, points in others(self.group).items() if self.group else ():
            for point in points:
                value, problem = None, ""
                if super().__contains__(name) or name in ours(self.group):
                    problem = f"the name is taken by a {self.kind} of Zellige's; rename it"
                else:
                    try:
                        value = self[name]
                    except InputError as error:
                        problem = str(error)
                yield Plugged(self.kind, name, package_of(point), value, problem)

    def _load(self, name: str) -> T:
        if (address := ours(self.group).get(name)) is not None:
            return named(address)
        point, *more = points = others(self.group)[name]
        what = f"{self.kind} '{name}' of the package {package_of(point)}"
        refuse_plugin(what)
        if more:
            packages = " and ".join(package_of(point) for point in points)
            raise InputError(f"{self.kind} '{name}' is in the packages {packages}; uninstall all but one")
        try:
            value = point.load()
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}".splitlines()[0]
            raise InputError(f"{what} does not import ({wrong}); mend or uninstall the package") from error
        if self.fits is not None and not self.fits.test(value):
            raise InputError(f"{what} is '{point.value}'; it must be {self.fits.words}")
        if getattr(value, "name", name) != name:
            raise InputError(f"{what} calls itself '{value.name}'; give both one name")
        return value


class Fits(NamedTuple):
    """Whether an object may stand in a table, and in words what it must be."""

    test: Callable[[Any], bool]
    words: str


def subclass(of: type, words: str) -> Fits:
    """For a table of classes: a class of this one."""
    return Fits(lambda value: isinstance(value, type) and issubclass(value, of), words)


class Plugged(NamedTuple):
    """Something that another package brings; `problem` is "" where it can be used."""

    kind: str
    name: str
    package: str
    value: Any
    problem: str


def package_of(point: EntryPoint) -> str:
    """The package that brings an entry."""
    return point.dist.name if point.dist is not None else point.value.partition(":")[0]
