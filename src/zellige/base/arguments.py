"""The arguments of public calls, checked by their annotations: what is wrong is an InputError that names the argument.

    @checked
    def sample(count: int = 1, prompt: str | None = None): ...

    sample(count="two")     # InputError: `count` is 'two'; it must be a whole number
    sample(n=2)             # TypeError: sample() has no argument 'n'; did you mean 'count'?

`checked_methods` does the same for the public methods of a class, `check_functions` for the public functions of a
package.

What an annotation says is checked here and nowhere else: values of Python by `checked`, those that are typed or stand
in a file of options by `from_text`. Ranges are declared with `requests.option`; what depends on other arguments a
function checks itself. It costs some microseconds a call. Numbers of NumPy become Python's. What an annotation does not
say (`Any`, a name that is imported for type checkers alone) is not checked.
"""

import builtins
import collections.abc
import dataclasses
import functools
import inspect
import math
import numbers
import operator
import os
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, Union

from .errors import SYNONYMS, InputError, either, meant, nearest, quoted

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
Annotation: TypeAlias = Any  # a type as an annotation says it: a class, `int | None`, `Literal["a", "b"]`
MOST = 10**9  # of whole numbers that count something
MOST_SEED = 2**63 - 1
_Check = Callable[[Any], Any]  # the value as it is to be used; _Not where it is of another kind
_Ranges = Callable[[], dict[str, Callable[[Any], None]]]


class _Not(Exception):
    """The value is not of this kind."""


def checked(
    function: F, prefix: str = "", kinds: bool = True, like: Callable[..., Any] | None = None, ranges: _Ranges = dict
) -> F:
    """A function, or a class by its constructor, that checks its arguments.

    Args:
        prefix: what stands before their names in errors.
        kinds: whether values are checked; False: the names alone.
        like: another function, whose annotations say what the arguments must be.
        ranges: makes, at the first call, the checks of arguments that come after those of their kinds, by name; a value
            that is None is in every range.
    """
    if isinstance(function, type):
        function.__init__ = _checked(function.__init__, function.__name__, prefix, kinds, None, ranges)
        return typing.cast(F, function)
    return _checked(function, function.__name__, prefix, kinds, like, ranges)


def _checked(
    function: Callable[..., Any], title: str, prefix: str, kinds: bool, like: Callable[..., Any] | None, ranges: _Ranges
) -> Any:
    number = len(_CHECKED)
    _CHECKED.append(_Arguments(function, title, prefix, like or function if kinds else None, ranges))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _compiling():  # a graph of tensors asks no questions
            return function(*args, **kwargs)
        bound = _CHECKED[number].bound(args, kwargs)
        return function(*bound.args, **bound.kwargs)

    vars(call).update(__signature__=_spelled_out(_CHECKED[number].signature), is_checked=True)
    return call


def checked_methods(cls: C) -> C:
    """A class whose own public methods check their arguments;
    those of its bases and its constructor are left as they are."""
    for name, member in [*vars(cls).items()]:
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if name.startswith("_") or not _may_check(function):
            continue
        setattr(cls, name, checked(function) if function is member else type(member)(checked(function)))
    return cls


def check_functions(package: str) -> None:
    """Let the public functions of a package (`__all__`) check their arguments; its own modules call them unchecked."""
    names = vars(sys.modules[package])
    names |= {name: checked(names[name]) for name in names["__all__"] if _may_check(names[name])}


def _may_check(value: object) -> bool:
    """Return whether a value is a function with annotated arguments that does not check them already."""
    return (
        inspect.isfunction(value)
        and bool(value.__annotations__.keys() - {"return"})
        and not hasattr(value, "is_checked")
    )


class _Arguments:
    """Checks of the arguments of one function.

    `call` finds it by its number, since torch.compile looks at all that a closure holds, and does not know a signature.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        title: str,
        prefix: str,
        like: Callable[..., Any] | None,
        make_ranges: _Ranges,
    ):
        self.signature, self.title, self.prefix, self.like = inspect.signature(function), title, prefix, like
        self.make_ranges, self.ranges = make_ranges, dict[str, Callable[[Any], None]]()
        self.checks: dict[str, tuple[_Check, str]] | None = None

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        """The arguments of a call, each as it is to be used."""
        if self.checks is None:  # at the first call, when everything is imported
            self.checks = {} if self.like is None else _checks(self.like, inspect.signature(self.like))
            self.ranges = self.make_ranges()
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError:
            raise misnamed(self.title, self.signature, args, kwargs) from None
        for name, value in bound.arguments.items():
            if name in self.checks:
                check, description = self.checks[name]
                try:
                    bound.arguments[name] = check(value)
                except _Not:
                    raise InputError(f"`{self.prefix}{name}` is {of_kind(value)}; it must be {description}") from None
                except InputError as error:
                    raise InputError(f"`{self.prefix}{name}` {error}") from None
            if name in self.ranges and bound.arguments[name] is not None:
                self.ranges[name](bound.arguments[name])
        return bound


_CHECKED: list[_Arguments] = []
_OWNER = frozenset(("self", "cls"))  # what a method is given of itself


def _compiling() -> bool:
    """Return whether torch is compiling the caller. It does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


class _Own:
    """The default of an argument that somebody further down has."""

    def __repr__(self) -> str:
        return "..."


OWN = _Own()


def _spelled_out(signature: inspect.Signature) -> inspect.Signature:
    """The signature with the keys of a TypedDict in the place of `**options: Unpack[it]`:
    what editors and help show."""
    parameters = [*signature.parameters.values()]
    if not parameters or typing.get_origin(parameters[-1].annotation) is not typing.Unpack:
        return signature
    hints = typing.get_type_hints(typing.get_args(parameters.pop().annotation)[0])
    names = [name for name in hints if name not in signature.parameters]
    more = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=OWN, annotation=hints[n]) for n in names]
    return signature.replace(parameters=[*parameters, *more])


def argument_names(signature: inspect.Signature) -> list[str]:
    """The arguments that have a name of their own: neither `self` nor those that `*` and `**` collect."""
    parameters = signature.parameters.values()
    return [p.name for p in parameters if p.name not in _OWNER and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def misnamed(title: str, signature: inspect.Signature, args: Collection[Any], kwargs: Iterable[str]) -> TypeError:
    """The error for arguments that a function has not, or lacks, with the nearest that it has."""
    names = argument_names(signature)
    title = f"{title}()"
    for name in kwargs:
        if name not in names:
            near = _inside(name, signature) or meant(name, names)
            return TypeError(
                f"{title} has no argument '{name}'; "
                + (f"did you mean '{near}'?" if near else f"it has {', '.join(names)}")
            )
    positional = [n for n in names if signature.parameters[n].kind is not inspect.Parameter.KEYWORD_ONLY]
    count = len(args) - (not _OWNER.isdisjoint(signature.parameters))
    if count > len(positional):
        takes = (
            f"give {', '.join(names[count - 1 :][:3])} by name"
            if len(names) > len(positional)
            else "leave the others out"
        )
        return TypeError(f"{title} takes {len(positional)} arguments by position, not {count}; {takes}")
    twice = [n for n in positional[:count] if n in kwargs]
    if twice:
        return TypeError(f"{title} got the argument '{twice[0]}' twice; name each one once")
    required = [
        n for n in names[count:] if n not in kwargs and signature.parameters[n].default is inspect.Parameter.empty
    ]
    return TypeError(f"{title} lacks the argument '{required[0] if required else names[0]}'; give it")


def _inside(name: str, signature: inspect.Signature) -> str | None:
    """`train=Train(lr=...)`, where a name is a field of the dataclass that another argument takes."""
    for argument, parameter in signature.parameters.items():
        for kind in typing.get_args(parameter.annotation):
            fields = {f.name for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
            if near := {name, SYNONYMS.get(name)} & fields:
                return f"{argument}={getattr(kind, '__name__', kind)}({near.pop()}=...)"
    return None


# ------------------------------------------------------------------------------------------------ kinds of values
def of_kind(value: object) -> str:
    """Describe a wrong value: numbers and texts by themselves, others by their kind: `a Tensor`, `an AR`,
    `the class AR`."""
    if value is None or isinstance(value, (bool, int, float)):
        text = str(value)
        return text if len(text) < 40 else f"{text[:20]}..."
    if isinstance(value, str):
        return quoted(value)
    return f"the class {value.__name__}" if isinstance(value, type) else _a(type(value).__name__)


def _a(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


class _Names(dict[str, Any]):
    """Names that annotations use; one that is imported for type checkers alone may be anything."""

    def __missing__(self, name: str) -> Any:
        return Any


def _checks(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, tuple[_Check, str]]:
    """For each argument whose annotation says something: its check, and in words what it must be."""
    checks = {}
    names = _Names(vars(builtins) | vars(sys.modules[function.__module__]) | getattr(function, "__globals__", {}))
    for name, parameter in signature.parameters.items():
        hint = parameter.annotation
        if hint is inspect.Parameter.empty or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if isinstance(hint, str):
            hint = eval(hint, {}, names)  # the package's own annotation, as typing.get_type_hints does
        rule = _rule(hint, name)
        if rule is not None:
            checks[name] = rule
    return checks


def _rule(hint: Annotation, name: str) -> tuple[_Check, str] | None:
    """The check of an annotation, and what it asks for; None where it asks for nothing."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return None
    if origin in (Union, types.UnionType):
        rules = [_rule(part, name) for part in inner]
        if None in rules:
            return None
        return _either([rule for rule in rules if rule is not None])
    if origin is Literal:
        return _among(inner)
    if hint in _PLAIN:
        check, description = _PLAIN[hint]
        return (_seed if hint is int and name == "seed" else check), description
    if origin is type or hint is type:
        return _is(type), "a class"
    if origin in _GROUPS or hint in _GROUPS:
        return _group(origin or hint, inner, name)
    if origin is collections.abc.Iterable:
        others = (bytes, collections.abc.Mapping, *(() if str in inner else (str,)))
        return _where(lambda value: isinstance(value, origin) and not isinstance(value, others)), "a list"
    if origin is collections.abc.Callable:
        return (_where(callable), "a function")
    if isinstance(hint, type) and getattr(hint, "_is_protocol", False):
        parts = [part for part in vars(hint) if not part.startswith("_")]
        return _where(lambda value: _has_all(value, parts)), _a(hint.__name__)
    kind = origin or hint
    if isinstance(kind, type) and kind is not object:
        return _is(kind), _a(kind.__name__)
    return None


def _has_all(value: object, names: Iterable[str]) -> bool:
    """Return whether a value, which is no class, has these attributes; properties may be costly, and are not read."""
    return not isinstance(value, type) and all(hasattr(type(value), n) or hasattr(value, n) for n in names)


def _where(holds: Callable[[Any], bool]) -> _Check:
    def check(value: object) -> Any:
        if not holds(value):
            raise _Not
        return value

    return check


def _is(kind: type) -> _Check:
    """An instance, or what `stands_for` its class: a guided method is used as a Method."""
    return _where(lambda value: isinstance(value, kind) or issubclass(kind, getattr(type(value), "stands_for", ())))


def is_plain(value: object, kind: type) -> bool:
    """Return whether a value is of a kind in NAMES: a whole number is a number, a truth value is none."""
    return isinstance(value, bool) == (kind is bool) and isinstance(value, _CLASSES[kind])


def _whole(value: Any, most: int = MOST) -> int:
    if not is_plain(value, int):
        raise _Not
    value = operator.index(value)
    if abs(value) > most:
        raise InputError(f"is {value:,}; it must be {'at most ' if value > 0 else 'above -'}{most:,}")
    return value


def _seed(value: object) -> int:
    return _whole(value, MOST_SEED)


def _real(value: Any) -> Any:
    if not is_plain(value, float) or math.isnan(value):
        raise _Not
    if isinstance(value, int):
        try:
            float(value)
        except OverflowError:
            raise _Not from None
        return value
    return float(value)


def _path(value: object) -> Any:
    if not isinstance(value, os.PathLike) or not isinstance(os.fspath(value), str):
        raise _Not
    _usable(os.fspath(value))
    return value


def is_number(text: str) -> bool:
    """Return whether a text is a whole number of at most 18 digits, 0 to 9: Python's own functions take those of every
    script, `isdigit` a superscript too, which `int` refuses, as it does thousands of digits."""
    return text.isascii() and text.isdigit() and len(text) <= 18


def refuse_path(name: str, path: str | os.PathLike) -> None:
    """InputError where no file can have this name; of an argument whose annotation does not say that it is a path."""
    try:
        _usable(os.fspath(path))
    except InputError as error:
        raise InputError(f"`{name}` {error}") from None


def _usable(path: str) -> None:
    """InputError where no file can have this name."""
    if "\0" in path:
        raise InputError(f"is {quoted(path)}; it must be a path, without a NUL character")
    if any("\ud800" <= sign <= "\udfff" for sign in path):
        raise InputError(f"is {quoted(path)}; it must be a path in UTF-8")
    if len(path) > 4000 or max(len(os.fsencode(part)) for part in path.split("/")) > 255:
        raise InputError(f"is {quoted(path)}, {len(path):,} characters long; it must be a shorter path")


def _among(choices: tuple[Any, ...]) -> tuple[_Check, str]:
    words = [str(choice) or "''" for choice in choices]
    return _where(lambda value: isinstance(value, str) and value in choices), either(words)


def _either(rules: list[tuple[_Check, str]]) -> tuple[_Check, str]:
    paths = any(what == _PATH for _, what in rules)

    def check(value: object) -> Any:
        for check_one, _ in rules:
            try:
                value = check_one(value)
            except _Not:
                continue
            if paths and isinstance(value, str):
                _usable(value)
            return value
        raise _Not

    return check, either([what for _, what in rules])


def _group(kind: Annotation, inner: tuple[Any, ...], name: str) -> tuple[_Check, str] | None:
    """Tuples, sequences and mappings, with what they hold."""
    if kind is tuple and inner and inner[-1] is not Ellipsis:
        rules = [_rule(part, name) for part in inner]
        description = f"{_COUNTS.get(len(rules), len(rules))} {'numbers' if {*inner} <= {int, float} else 'values'}"

        def several(value: object) -> Any:
            if (
                isinstance(value, (str, bytes))
                or not isinstance(value, collections.abc.Sequence)
                or len(value) != len(rules)
            ):
                raise _Not
            return tuple(item if rule is None else rule[0](item) for rule, item in zip(rules, value))

        return several, description
    rule = _rule(inner[0], name) if inner and kind not in (dict, collections.abc.Mapping) else None
    plural = {"a whole number": "whole numbers", "a number": "numbers", "a text": "texts"}
    of = f" of {plural.get(rule[1], 'such')}" if rule and rule[1] in plural else ""

    def all_of(value: Any) -> Any:
        if isinstance(value, (str, bytes)) or not isinstance(value, _GROUPS[kind]):
            raise _Not
        if rule is None:
            return value
        items = [rule[0](item) for item in value]
        return tuple(items) if kind is tuple else items

    return all_of, f"{_NAMES.get(kind, 'a list')}{of}"


NAMES: dict[type, str] = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}
_CLASSES: dict[type, type] = {int: numbers.Integral, float: numbers.Real, bool: bool, str: str}
_COUNTS = {2: "two", 3: "three"}
_PATH = "a path"
_PLAIN: dict[Any, tuple[_Check, str]] = {
    int: (_whole, NAMES[int]),
    float: (_real, NAMES[float]),
    str: (_is(str), NAMES[str]),
    bool: (_is(bool), NAMES[bool]),
    type(None): (_where(lambda v: v is None), "None"),
    os.PathLike: (_path, _PATH),
    Path: (_path, _PATH),
}
_GROUPS: dict[Any, Any] = {
    tuple: (tuple, list),
    list: (tuple, list),
    collections.abc.Sequence: collections.abc.Sequence,
    collections.abc.Collection: collections.abc.Collection,
    dict: collections.abc.Mapping,
    collections.abc.Mapping: collections.abc.Mapping,
}
_NAMES = {tuple: "a tuple", dict: "a dict", collections.abc.Mapping: "a dict"}


# ------------------------------------------------------------------------------------------------------ values as texts
def choices_of_kind(hint: Annotation) -> tuple[list[str], set[Any]]:
    """The words that an annotation allows, and the plain types; of a tuple or a list those of its items."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return [str(choice) for choice in inner], set()
    if origin not in (Union, types.UnionType, tuple, list):
        return [], {hint}
    words, kinds = list[str](), set[Any]()
    for part in inner:
        if part is not Ellipsis:
            words_of_part, kinds_of_part = choices_of_kind(part)
            words, kinds = words + words_of_part, kinds | kinds_of_part
    return words, kinds


def from_text(text: str, hint: Annotation, name: str, least: float | None = None, where: str = "") -> Any:
    """The value of an annotation that a text stands for, as it is typed or stands in a file of options.

    Args:
        name: of the option or the argument, as the error spells it.
        least: the smallest of its whole numbers, for the error.
        where: what the text stands in, for the error.

    Raises:
        InputError: the text is no such value.

    >>> from_text("none", int | None, "`top_k`"), from_text("2", float, "`temperature`")
    (None, 2.0)
    """
    words, kinds = choices_of_kind(hint)
    if text in words:
        return text
    if type(None) in kinds and (text == "None" or (text.lower() == "none" and str not in kinds)):
        return None
    if bool in kinds and text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        if kind in kinds:
            try:
                value = kind(text.encode("ascii"))  # not the digits of other scripts, which Python reads
            except ValueError:
                continue
            check = _seed if kind is int and name.strip("`").endswith("seed") else _PLAIN[kind][0]
            try:
                return check(value)
            except InputError as wrong:
                raise InputError(f"{name} {wrong}") from None
            except _Not:
                continue
    if kinds - {int, float, bool, type(None)}:
        return text
    whole = NAMES[int] if least is None else f"{NAMES[int]} of {least:g} or more"
    names = [NAMES[bool]] * (bool in kinds) + [NAMES[float] if float in kinds else whole] * bool({int, float} & kinds)
    near = nearest(text, words)
    hint = f"did you mean '{near}'? " if near else ""
    raise InputError(f"{name} is {quoted(text)}{where}; {hint}it must be {either(words + names)}")
