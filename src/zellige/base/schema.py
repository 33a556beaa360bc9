"""Reading of files: as text, as JSON, and as the types that it must have; one line for each way in which it can fail.

`read_json(path, kind)` checks the file against a dataclass, a TypedDict or any other annotation, strictly: nothing is
coerced and no entry is missing. A dataclass has no other entries; a TypedDict is what is needed of an object that may
hold more.
"""

import contextlib
import dataclasses
import errno
import hashlib
import json
import math
import os
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin, is_typeddict

import cattrs
from cattrs.cols import list_structure_factory
from cattrs.errors import AttributeValidationNote, IterableValidationNote
from cattrs.gen import AttributeOverride, make_dict_structure_fn, mapping_structure_factory, override, typeddicts

from .. import __version__
from .arguments import NAMES, Annotation, is_plain
from .errors import InputError, either, nearest
from .trust import may_have_changed

AGAIN = "copy it again from where it was written"
SEAL = "checksum"
_NAMES = NAMES | {bool: "true or false"}  # as JSON has them
_READ, _UNREAD = "read", "unread"  # of a field's metadata
_REASONS = {
    errno.ENOENT: "is not there",
    errno.EACCES: "may not be accessed (permission denied)",
    errno.EPERM: "may not be accessed (operation not permitted)",
    errno.EISDIR: "is a folder, not a file",
    errno.ENOTDIR: "lies below something that is no folder",
    errno.ELOOP: "is a link that leads in a circle",
    errno.ENAMETOOLONG: "is longer than a path may be",
    errno.EROFS: "is on a file system that is read-only",
    errno.EIO: "cannot be read (input/output error)",
    errno.ESTALE: "cannot be read (stale file handle)",
}


# ---------------------------------------------------------------------------------------------------- files
def shown(path: str | os.PathLike) -> str:
    """A path in an error: relative inside the working folder, else as given; of a very long one both ends."""
    text = str(path)
    with contextlib.suppress(ValueError, OSError, RuntimeError):  # RuntimeError: links in a circle
        text = str(Path(path).resolve().relative_to(Path.cwd()))
    return text if len(text) <= 300 else f"{text[:100]}...{text[-100:]}"


def explain(problem: OSError, instead: str = "give another path") -> InputError | None:
    """One line for an OSError that a path brings; None where the problem is none of its path."""
    reason = _REASONS.get(problem.errno or 0)
    name = problem.filename
    if reason is None or name is None or isinstance(name, int):
        return None
    return InputError(f"'{shown(os.fsdecode(name))}' {reason}; {instead}")


@contextlib.contextmanager
def accessible(instead: str = "give another path") -> Iterator[None]:
    """An OSError that a path brings is, within the block, an InputError."""
    try:
        yield
    except OSError as problem:
        wrong = explain(problem, instead)
        if wrong is None:
            raise
        raise wrong from problem


def read_text(path: str | Path, instead: str = AGAIN) -> str:
    """The text of a UTF-8 file.

    Raises:
        InputError: missing, a folder, not to be accessed, not UTF-8; `instead` says what would be right.
    """
    try:
        with accessible(instead):
            return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"'{shown(path)}' is not UTF-8 text; {instead}") from None


def parse(text: str, source: str, instead: str = AGAIN) -> Any:
    """The JSON in a text; `source` is what to call it in an error, quoted."""
    try:
        return json.loads(text)
    except RecursionError:
        raise InputError(f"{source} is nested too deep; {instead}") from None
    except ValueError:
        raise InputError(f"{source} is not JSON; {instead}") from None


def read_json(path: str | Path, kind: Annotation = dict, instead: str = AGAIN) -> Any:
    """The JSON of a file, as `kind`.

    Raises:
        InputError: as `read_text`; not JSON, nested too deep, or an entry of another type, which is named.
    """
    return parse_as(read_text(path, instead), kind, f"'{shown(path)}'", instead)


def read_lines(path: str | Path, kind: Annotation = dict, instead: str = AGAIN) -> list[tuple[int, Any]]:
    """(number, JSON as `kind`) of each line of a file but the blank ones; raises as `read_json`,
    with the number of the line."""
    lines = enumerate(read_text(path, instead).split("\n"), 1)
    return [(n, parse_as(text, kind, f"line {n:,} of '{shown(path)}'", instead)) for n, text in lines if text.strip()]


def parse_as(text: str, kind: Annotation, source: str, instead: str = AGAIN) -> Any:
    """The JSON in a text as `kind`; its checksum, where it has one, is compared and taken away."""
    return structure(_unsealed(parse(text, source, instead), source, instead), kind, source, instead=instead)


# ---------------------------------------------------------------------------------------------------- checksums
def sha256(path: Path, report: Callable[[int], None] = lambda count: None, kind: str = "sha256") -> str:
    """Of a file's bytes, read in blocks. report(bytes since the last call) is called. kind: another sum, "md5"."""
    digest = hashlib.new(kind)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            report(len(block))
    return digest.hexdigest()


def digest(value: object) -> str:
    """sha256 of JSON's plain data, whatever the order of its entries and its white space."""
    return "sha256:" + hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """An object with the checksum of what it holds as its last entry; `read_json` and `read_lines` compare the two."""
    content = {name: entry for name, entry in value.items() if name != SEAL}
    return content | {SEAL: digest(json.loads(json.dumps(content)))}


def _unsealed(value: object, source: str, instead: str) -> Any:
    """An object without its checksum, if it has one."""
    if not isinstance(value, dict) or SEAL not in value:
        return value
    content = {name: entry for name, entry in value.items() if name != SEAL}
    if not may_have_changed() and value[SEAL] != digest(content):
        accept = f"or take it as it is with `checksums=False`, or without its entry '{SEAL}'"
        raise InputError(f"{source} has changed since it was written ({SEAL}); {instead}, {accept}")
    return content


def check_format(number: object, known: int, source: str) -> None:
    """InputError where a file has another format than `known`, the one that is read."""
    if number != known:
        raise InputError(f"'{source}' has format {quoted(number)}; Zellige {__version__} reads format {known}")


# ---------------------------------------------------------------------------------------------------- types
class Wrong(TypeError):
    """`is 'twelve'; it must be a whole number`, said of an entry whose place is not known yet."""


class Missing(KeyError):
    """An entry of a dataclass is not there."""


class Unknown(KeyError):
    """An entry that a dataclass does not have: its name, then the names that it has."""


def quoted(value: object) -> str:
    """A value in an error: a text in quotes, and of anything long its beginning."""
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."


def structure(
    value: object, kind: Annotation, source: str, name: str = "", instead: str = AGAIN, strict: bool = True
) -> Any:
    """JSON's plain data as `kind`.

    Args:
        source: what to call the file in an error, quoted.
        name: the entry of the file that the value stands in, "" for the whole.
        strict: a dataclass has all its entries and no other. Else its defaults stand for what is absent, other entries
            are left out, and null stands for a number that is not finite, which is read as NaN: so records are read.

    Raises:
        InputError: the first entry that does not fit, by its place; or what a dataclass itself refuses.
    """
    try:
        return (CONVERTER if strict else _RECORDS).structure(value, kind)
    except RecursionError:
        raise InputError(f"{source} is nested too deep; {instead}") from None
    except (cattrs.BaseValidationError, TypeError, ValueError, KeyError, AttributeError, OverflowError) as problem:
        where, leaf = _leaf(problem, name)
        if isinstance(leaf, InputError):
            raise leaf from None
        if isinstance(leaf, Unknown):
            raise unknown_entry(leaf.args[0], leaf.args[1:], f"{source} has", f"{where}." if where else "") from None
        if isinstance(leaf, Missing):
            entry = f"{where}.{leaf.args[0]}".removeprefix(".")
            raise InputError(f"{source} has no entry '{entry}'; {instead}") from None
        fits_not = f"does not fit ({quoted(str(leaf))[1:-1]}); {instead}"
        reason = leaf if isinstance(leaf, Wrong) else fits_not
        raise InputError(f"{source}: {where or 'all of it'} {reason}") from None


def unknown_entry(name: str, names: Sequence[str], who: str, prefix: str = "") -> InputError:
    """What is wrong with an entry that is none of `names`, with the nearest one; `who`: "'config.json' has"."""
    near = nearest(name, names)
    hint = f"did you mean '{prefix}{near}'?" if near else f"it must be {either(names)}"
    return InputError(f"{who} an unknown entry '{prefix}{name}'; {hint}")


def entries_of(value: object) -> Any:
    """The plain data of a record: of dataclasses, lists and tuples in each other; `structure(strict=False)` reads it.

    A field of a dataclass is left out where it is None and so is its default; its name is that of `SPELT`, where that
    has one. A class that has `to_dict` writes itself.
    """
    if isinstance(value, Mapping):
        return {name: entries_of(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [entries_of(entry) for entry in value]
    if not dataclasses.is_dataclass(value):
        return value
    if (to_dict := getattr(value, "to_dict", None)) is not None:
        return to_dict()
    pairs = [(field, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return {_spelt(value, f): entries_of(entry) for f, entry in pairs if entry is not None or f.default is not None}


def read_by(read: Callable[[Any], Any]) -> dict[str, Any]:
    """Metadata of a field whose value is made of JSON's by a function; see also LOW, HIGH and UNREAD."""
    return {_READ: read}


def _number_or(unknown: float) -> Callable[[Any], float]:
    number = _strict(float)
    return lambda value: unknown if value is None else number(value, float)


def _spelt(kind: Any, field: dataclasses.Field[Any]) -> str:
    """The name of a field in JSON: that of the class's `SPELT`, for one that is no name in Python."""
    return getattr(kind, "SPELT", {}).get(field.name, field.name)


def entries_named(kind: Any) -> list[str]:
    """The names of a dataclass's fields in JSON."""
    return [_spelt(kind, field) for field in dataclasses.fields(kind)]


def _overrides(kind: Any) -> dict[str, AttributeOverride]:
    """How cattrs reads the fields of a dataclass."""
    changes = dict[str, AttributeOverride]()
    for field in dataclasses.fields(kind):
        read = field.metadata.get(_READ)
        hook = None if read is None else lambda value, _, read=read: read(value)
        changes[field.name] = override(
            omit=_UNREAD in field.metadata or None, rename=_spelt(kind, field), struct_hook=hook
        )
    return changes


def _leaf(problem: BaseException, where: str) -> tuple[str, BaseException]:
    """The first cause in cattrs' tree of errors, and the entry that it stands at."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
        for note in getattr(problem, "__notes__", []):
            if isinstance(note, AttributeValidationNote):
                where = f"{where}.{note.name}".removeprefix(".")
            elif isinstance(note, IterableValidationNote):
                where += f"[{note.index}]"
    return where, problem


def _strict(kind: type):
    def read(value: object, _: object) -> Any:
        if not is_plain(value, kind):
            raise Wrong(f"is {quoted(value)}; it must be {_NAMES[kind]}")
        return kind(value)

    return read


def _object(kind: Annotation, read: Callable[..., Any], strict: bool = True):
    """A reader that says so where the value is no JSON object, or where an entry is missing or unknown."""
    required, names = list(getattr(kind, "__required_keys__", ())), list[str]()
    if dataclasses.is_dataclass(kind):
        names = entries_named(kind) if strict else []
        required = [_spelt(kind, f) for f in dataclasses.fields(kind) if f.init and (strict or not _has_default(f))]

    def checked(value: object, _: object) -> Any:
        if not isinstance(value, Mapping):
            raise Wrong(f"is {quoted(value)}; it must be an object")
        for name in value if names else ():
            if name not in names:
                raise Unknown(name, *names)
        for name in required:
            if name not in value:
                raise Missing(name)
        return read(value, kind)

    return checked


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _is_union_of_dataclasses(kind: Annotation) -> bool:
    if get_origin(kind) not in (Union, types.UnionType):
        return False
    return sum(dataclasses.is_dataclass(a) for a in get_args(kind)) > 1


def _is_union_of_values(kind: Annotation) -> bool:
    """Of several plain types; one of them or None is what cattrs knows itself."""
    if get_origin(kind) not in (Union, types.UnionType):
        return False
    return {*get_args(kind)} <= {*_NAMES, type(None)} and len({*get_args(kind)} - {type(None)}) > 1


def _converter(strict: bool = True) -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=strict)
    for kind in _NAMES:
        converter.register_structure_hook(kind, _strict(kind))
    if not strict:
        number = _strict(float)
        converter.register_structure_hook(float, lambda x, kind: math.nan if x is None else number(x, kind))

    @converter.register_structure_hook_factory(lambda kind: kind is dict or get_origin(kind) in (dict, Mapping))
    def mapping(kind: Annotation) -> Any:
        return _object(kind, mapping_structure_factory(kind, converter))

    @converter.register_structure_hook_factory(lambda kind: list in (kind, get_origin(kind)))
    def several(kind: Annotation) -> Any:
        read = list_structure_factory(kind, converter)

        def checked(value: object, _: object) -> Any:
            if not isinstance(value, list):
                raise Wrong(f"is {quoted(value)}; it must be a list")
            return read(value, kind)

        return checked

    @converter.register_structure_hook_factory(dataclasses.is_dataclass)
    def dataclass(kind: Annotation) -> Any:
        fields = _overrides(kind)
        read = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=strict, **fields)  # pyright: ignore
        return _object(kind, read, strict)

    @converter.register_structure_hook_factory(is_typeddict)
    def entries(kind: Annotation) -> Any:
        return _object(kind, typeddicts.make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=False))

    @converter.register_structure_hook_factory(_is_union_of_values)
    def value_of(kind: Annotation) -> Any:
        plain_types = [plain_type for plain_type in get_args(kind) if plain_type in _NAMES]

        def read(value: object, _: object) -> Any:
            if value is None and type(None) in get_args(kind):
                return None
            for plain_type in plain_types:
                with contextlib.suppress(Wrong):
                    return converter.structure(value, plain_type)
            raise Wrong(f"is {quoted(value)}; it must be {either(_NAMES[plain_type] for plain_type in plain_types)}")

        return read

    @converter.register_structure_hook_factory(_is_union_of_dataclasses)
    def union(kind: Annotation) -> Any:
        classes: dict[str, Any] = {
            c.__name__: c for c in get_args(kind) if isinstance(c, type) and dataclasses.is_dataclass(c)
        }

        def read(value: object, _: object) -> Any:
            if not isinstance(value, Mapping):
                return value
            if value.get("kind") not in classes:
                raise Wrong(f"is of kind {quoted(value.get('kind'))}; it must be {either(classes)}")
            return converter.structure({k: v for k, v in value.items() if k != "kind"}, classes[value["kind"]])

        return read

    @converter.register_unstructure_hook_factory(_is_union_of_dataclasses)
    def unstructure(kind: Annotation) -> Any:
        def write(value: object) -> Any:
            fields = converter.unstructure(value, type(value))
            return {"kind": type(value).__name__, **fields} if dataclasses.is_dataclass(value) else fields

        return write

    return converter


UNREAD: dict[str, Any] = {_UNREAD: True}  # metadata of a field that no file has
# of the ends of an interval: JSON has null for infinite
LOW, HIGH = read_by(_number_or(-math.inf)), read_by(_number_or(math.inf))
CONVERTER = _converter()
_RECORDS = _converter(strict=False)
