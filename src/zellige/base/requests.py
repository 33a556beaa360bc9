"""Options as fields, and requests: a frozen dataclass whose fields each say what they are for and which values they
take.

    @declared
    class Remasking(Sampler):
        eta: float = option("how much is masked again", default=0.02, minimum=0, maximum=1)

The constructor checks every value. The command line, the web page and the docs read the same fields (`options_of`).

A `Request` is such a dataclass that does something: `run` returns a record (`show.record.Record`). It is data:
`to_dict` and `from_dict` make JSON of it and back, `verb` makes the function whose arguments are its fields.

    @declared
    class Evaluate(Request["Result"]):
        draws: int = option("Monte Carlo samples per sequence", default=4, minimum=1)
        def run(self, model: Any) -> "Result": ...

    evaluate = verb(Evaluate, "evaluate")       # evaluate(model, draws=16) is Evaluate(draws=16).run(model)
"""

import dataclasses
import functools
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, Union, Unpack, dataclass_transform

from .arguments import Annotation, checked, checked_methods, misnamed
from .errors import InputError, nearest, unknown
from .plugins import named

Progress = Callable[[int, int], None]  # called with (done, total)
C = TypeVar("C", bound=type)
P = ParamSpec("P")
R = TypeVar("R", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])
_KEY = "option"  # of a field's metadata
# kinds of values, as pages and tables name them
KINDS: dict[str, Any] = {"whole": int, "number": float, "switch": bool, "text": str}


@dataclass(frozen=True)
class Option:
    """Declaration of a field and of its values.

    Attributes:
        help: what it is for; its first clause stands in the short help.
        minimum, maximum, above, below: the ends of its range, the last two without the end itself.
        unit: of its values, for the error.
        why: the reason for its range, for the error.
        check: raises InputError for a value that may not be.
        flag, typed: its name and its type on the command line, where these are not the field's.
        argument: what it is called on the command line where it stands there without a flag: RUN.
        inline: whether the options of a dataclass stand among those beside it, not behind the field's name.
        of_run: whether the options of a dataclass have the values of the model's run where none are given.
        idle: whether a command takes it only because every command does, and does nothing with it.
        hidden: for Python alone; neither the command line nor the page has it.
        saved: part of what is requested. False: an aside such as a progress callback, hidden and never written.
        read: makes a value of JSON's plain data, where the constructor does not take that itself.
        name, kind, default: of the field, as `options_of` gives them; kind is int, float, bool or str.
        prefix: stands before its name in errors: `net.`.
        plain: whether its values are of that kind alone, or None.
    """

    help: str = ""
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    unit: str = ""
    why: str = ""
    check: Callable[[Any], object] | None = None
    flag: str = ""
    typed: Any = None
    argument: str = ""
    inline: bool = False
    of_run: bool = False
    idle: bool = False
    hidden: bool = False
    saved: bool = True
    read: Callable[[Any], Any] | None = None
    name: str = ""
    prefix: str = ""
    kind: type = str
    default: Any = None
    plain: bool = True

    @property
    def word(self) -> str:
        """The name of its kind in KINDS."""
        return next(word for word, kind in KINDS.items() if kind is self.kind)

    @property
    def has_range(self) -> bool:
        """Whether some values are refused."""
        ends = (self.minimum, self.maximum, self.above, self.below, self.check)
        return any(end is not None for end in ends)

    def refuse(self, value: object) -> None:
        """InputError where the field may not have this value."""
        if self.check is not None:
            self.check(value)
        if self.kind not in (int, float) or not isinstance(value, int | float):
            return
        over = (self.maximum is not None and value > self.maximum) or (self.below is not None and value >= self.below)
        under = (self.minimum is not None and value < self.minimum) or (self.above is not None and value <= self.above)
        if over or under or math.isinf(value):
            text = f"{value:g}" if self.kind is float else f"{value:,}"
            raise InputError(
                f"`{self.prefix}{self.name}` is {text}; it must be {self._range(value, over)}"
                f"{self.unit and ', ' + self.unit}{self.why and ': ' + self.why}"
            )

    def _range(self, value: float, over: bool) -> str:
        """The values that are allowed, in words; of a whole number the end that this one lies beyond."""
        least = f"above {self.above:g}" if self.above is not None else f"{self.minimum or 0:,} or more"
        most = f"below {self.below:g}" if self.below is not None else f"{self.maximum or 0:,} or less"
        low, high = (self.minimum, self.above) != (None, None), (self.maximum, self.below) != (None, None)
        if low and high and self.kind is float:
            if self.minimum is not None and self.maximum is not None:
                return f"between {self.minimum:g} and {self.maximum:g}"
            least = least if self.minimum is None else f"at least {self.minimum:g}"
            return f"{least} and {most if self.maximum is None else f'at most {self.maximum:g}'}"
        return most if over else "a finite number" if value == math.inf else least


def option(help: str = "", *, default: Any, kw_only: Any = dataclasses.MISSING, **more: Any) -> Any:
    """A field of a `declared` dataclass: what it is for, its default, and what else `Option` says of it."""
    return dataclasses.field(default=default, kw_only=kw_only, metadata={_KEY: Option(help, **more)})


def inline(*, default: Any) -> Any:
    """A field whose value is a dataclass of options: on the command line they stand among those beside it."""
    return option(default=default, inline=True)


def may_follow(cls: type, name: str, *, default: None) -> Any:
    """A field that is an option of another dataclass, or None for the value there; its help names the default there."""
    field = next(field for field in dataclasses.fields(cls) if field.name == name)
    about = field.metadata[_KEY]
    about = dataclasses.replace(about, help=f"{about.help} (default: {field.default:g})")
    return dataclasses.field(default=default, metadata={_KEY: about})


def aside(help: str, *, default: Any, kw_only: typing.Literal[True] = True) -> Any:
    """A field of a request that is no part of what is requested: a callback, a folder for unfinished work.
    It is never saved."""
    about = Option(help, hidden=True, saved=False)
    return dataclasses.field(default=default, kw_only=kw_only, compare=False, repr=False, metadata={_KEY: about})


@dataclass_transform(frozen_default=True, field_specifiers=(option, inline, may_follow, aside, dataclasses.field))
def declared(cls: C) -> C:
    """A frozen dataclass whose constructor checks the type and the range of every field."""
    return check_fields(dataclass(frozen=True)(cls))


def check_fields(cls: C, prefix: str = "", kinds: bool = True) -> C:
    """Let the constructor of a dataclass check the type and the range of every field, before its `__post_init__`.

    Args:
        prefix: what stands before their names in errors.
        kinds: whether their types are checked; False: the ranges alone.
    """

    def ranges() -> dict[str, Callable[[Any], None]]:
        return {option.name: dataclasses.replace(option, prefix=prefix).refuse for option in _options(cls)}

    return checked(cls, prefix, kinds, ranges=ranges)


def takes(request: type, options: type) -> Callable[[F], F]:
    """Decorate a function whose `**choices` are the fields of a request: its signature names them, with their defaults.

    Args:
        options: a TypedDict of more names, of which each may be given too.
    """

    def decorate(function: F) -> F:
        parameters = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
        names = {"options", *(p.name for p in parameters)}
        fields = [
            p.replace(kind=p.KEYWORD_ONLY)
            for p in inspect.signature(request).parameters.values()
            if p.name not in names
        ]
        more = inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD, annotation=Unpack[options])
        vars(function)["__signature__"] = inspect.Signature([*parameters, *fields, more])
        return function

    return decorate


def options_of(cls: type) -> dict[str, Option]:
    """The options of a declared dataclass by name, those that are for Python alone left out."""
    return {option.name: option for option in _options(cls) if not option.hidden}


def option_of(field: dataclasses.Field[Any]) -> Option | None:
    """Declaration of a field of a dataclass by `option`; None where another function made it."""
    return field.metadata.get(_KEY)


def refuse_unchecked(cls: type) -> None:
    """TypeError where fields of a dataclass have ranges that its constructor does not check."""
    fields = [option_of(field) or Option() for field in dataclasses.fields(cls)]
    owner = next(base for base in cls.__mro__ if "__dataclass_fields__" in vars(base))
    if any(option.has_range for option in fields) and not hasattr(owner.__init__, "is_checked"):
        raise TypeError(f"nothing checks the ranges of {cls.__qualname__}'s options; decorate it with `declared`")


@functools.cache
def _options(cls: type) -> tuple[Option, ...]:
    refuse_unchecked(cls)
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


def _kinds(hint: Annotation) -> list[type]:
    """The types that a value may have, None left out: int, float and bool, and str for any other."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        return [kind for part in typing.get_args(hint) if part is not type(None) for kind in _kinds(part)]
    return [hint if hint in (int, float, bool) else str]


# ---------------------------------------------------------------------------------------------------- requests
@checked_methods
@dataclass(frozen=True)
class Request(Generic[R]):
    """Request as data: its fields are its options; equal requests ask for the same.

    A subclass is `declared`, public in `zellige` under its own name (a record's file names it so), and imports what
    computes only within `run`, so that the command line reads its options without torch. `returns` is the
    `module:Class` of its record.
    """

    returns: ClassVar[str] = ""

    def __init_subclass__(cls, **more: Any) -> None:
        """Add the checks of arguments to the methods of a subclass."""
        super().__init_subclass__(**more)
        checked_methods(cls)

    def __post_init__(self) -> None:
        """Check what depends on several fields; each one is checked already."""

    def run(self, *args: Any, **kwargs: Any) -> R:
        """Do it, with a model where it is about one, and return the record."""
        raise NotImplementedError

    @classmethod
    def record(cls) -> type[Any]:
        """The class of what `run` returns, imported now; it reads a record from a file."""
        return named(cls.returns)

    def saved(self) -> Self:
        """The request without its asides."""
        asides = {option.name: option.default for option in _options(type(self)) if not option.saved}
        return dataclasses.replace(self, **asides) if asides else self

    def differs(self, name: str) -> bool:
        """Return whether a field has another value than its default."""
        if name not in (fields := self.fields()):
            raise unknown("field", name, fields)
        return getattr(self, name) != fields[name].default

    def changed(self, *names: str) -> dict[str, Any]:
        """Those of these fields that have another value than their default."""
        return {name: getattr(self, name) for name in names if self.differs(name)}

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: each field that is saved, by its name."""
        return {name: _plain(getattr(self, name)) for name in self.fields()}

    @classmethod
    def fields(cls) -> dict[str, Option]:
        """Its fields that are saved, by name."""
        return {option.name: option for option in _options(cls) if option.saved}

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any], source: str = "it") -> Self:
        """The request of what `to_dict` gave; a field that is absent has its default.

        Raises:
            InputError: a field that there is not, or whose value may not be, which is named.
        """
        fields = cls.fields()
        values = dict[str, Any]()
        for name, value in entries.items():
            if name not in fields:
                near = nearest(name, fields)
                hint = f"did you mean '{near}'?" if near else f"it has {', '.join(fields)}"
                raise InputError(f"'{source}': {cls.__name__} has no field '{name}'; {hint}")
            read = fields[name].read
            values[name] = value if read is None else read(value)
        try:
            return cls(**values)
        except InputError as wrong:
            raise InputError(f"'{source}': {wrong}") from None


@dataclass(frozen=True)
class HandedOver:
    """In the place of a value that was handed over in Python, in a request that comes from a file: no file holds it."""

    kind: str

    def error_for(self, name: str) -> InputError:
        """The error where the value is needed."""
        return InputError(f"`{name}` was handed over in Python (a {self.kind}), and no file holds it; give it again")


def _plain(value: Any) -> Any:
    """A field's value as JSON's plain data."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Request):
        return value.to_dict()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, HandedOver) or not _is_plain(value):
        return {"handed_over": value.kind if isinstance(value, HandedOver) else type(value).__name__}
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return [_plain(part) for part in value]


def _is_plain(value: object) -> bool:
    """Return whether a value is a dataclass that its fields make again, or a tuple of values."""
    if dataclasses.is_dataclass(value):
        return "__dataclass_params__" in vars(type(value))
    return isinstance(value, tuple)


def data_of_json(kind: type, value: object) -> Any:
    """A dataclass of its JSON, where a field takes it beside other values; for `option(read=...)`."""
    if not isinstance(value, Mapping):
        return value
    return HandedOver(str(value["handed_over"])) if "handed_over" in value else kind(**value)


def verb(request: Callable[P, Request[R]], name: str) -> Callable[Concatenate[Any, P], R]:
    """The function `name(model, ...)` whose other arguments are the fields of a request;
    editors know them from the class."""
    return _function(
        request, name, (inspect.Parameter("model", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Any),)
    )


def alone(request: Callable[P, Request[R]], name: str) -> Callable[P, R]:
    """The function `name(...)` whose arguments are the fields of a request that is about no model."""
    return _function(request, name, ())


def _function(cls: Any, name: str, subjects: tuple[inspect.Parameter, ...]) -> Any:
    """The function that makes a request of its arguments and runs it on `subjects`,
    the arguments that are no fields."""
    fields = inspect.signature(cls)
    signature = fields.replace(parameters=[*subjects, *fields.parameters.values()], return_annotation="Record")

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            values = signature.bind(*args, **kwargs).arguments
        except TypeError:
            raise misnamed(name, signature, args, kwargs) from None
        about = [values.pop(subject.name) for subject in subjects]
        return cls(**values).run(*about)

    function.__name__ = function.__qualname__ = name
    function.__module__, function.__doc__ = cls.__module__, _described(cls)
    vars(function)["__signature__"] = signature
    return function


def _described(cls: type) -> str:
    """The docstring of a request, with what its fields say of themselves."""
    lines = [f"        {option.name}: {option.help}." for option in _options(cls)]
    return "\n".join([inspect.cleandoc(cls.__doc__ or ""), "", "    Args:", *lines])


# ---------------------------------------------------------------------------------- choices in one word
def choices_of(name: str, text: str, example: str) -> Iterator[tuple[str, str]]:
    """The choices of `name` in "process=uniform,steps=64", each with its value as text. Raises InputError,
    with an example."""
    for word in filter(None, text.split(",")):
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"'{name}:{text}' has a choice without a value; e.g. {example}")
        yield key.strip().replace("-", "_"), value.strip()


# ---------------------------------------------------------------------------------- options that several have
# declared as top_k: int | None = option(default=None, **TOP_K)
TOKENS = 1_000_000  # at most, of an option that counts tokens or names one

PER_STEP: dict[str, Any] = {"help": "tokens a step", "minimum": 1, "maximum": TOKENS}
TEMPERATURE: dict[str, Any] = {"help": "below 1 favours likely tokens, 0 takes the likeliest", "minimum": 0}
TOP_P: dict[str, Any] = {"help": "keep the likeliest tokens up to this total probability", "above": 0, "maximum": 1}
TOP_K: dict[str, Any] = {
    "help": "keep this many of the likeliest tokens; applied before top-p",
    "minimum": 1,
    "maximum": TOKENS,
}

GRIDS = ("auto", "uniform", "cosine", "log-snr", "published")
CHAINS = ("uniform", "cosine", "log-snr")  # those whose steps are a model with a bound
GRID = (
    "uniform, cosine, log-snr, published or a step size; published: its authors'; auto: MD4's cosine with its linear "
    "schedule, else uniform"
)
_SMALLEST_STEP = 1e-6


def known_grid(grid: str) -> str:
    """Return the name of a grid, or the size of its steps; InputError for anything else."""
    size = step_size(grid)
    if size is None and grid not in GRIDS:
        raise InputError(
            f"unknown grid '{grid}'; auto, uniform, cosine, log-snr, published, or the size of a step, such as 0.05"
        )
    if size is not None and not _SMALLEST_STEP <= size <= 1:
        raise InputError(f"a step of the grid is {grid}; it must be between {_SMALLEST_STEP:g} and 1")
    return grid


def bounded_grid(grid: str) -> str:
    """Return the name of a grid whose steps have a bound; InputError for another."""
    if known_grid(grid) not in (*CHAINS, "auto"):
        raise InputError(f"the bound of T steps has the grid uniform, cosine, log-snr or auto, not {grid}")
    return grid


def size_steps(grid: str) -> int | None:
    """Number of steps of a grid given by its step size; None for another grid."""
    size = step_size(grid)
    return None if size is None else math.ceil(1 / size - 1e-9)


def step_size(grid: str) -> float | None:
    """Step size that names a grid; None if it is named otherwise."""
    try:
        return float(grid)
    except ValueError:
        return None
