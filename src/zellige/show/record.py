"""Records: what a request returned, with the request itself, and as JSON.

    record = zellige.Evaluate(draws=16).run(model)
    record.save("r.json")
    zellige.Record.load("r.json").request.run(model)      # the same numbers

The JSON has the same keys from every command, and what it ran on (versions, platform, commit). `FORMAT` is its version.
"""

import importlib
import json
import math
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar, Self

from .. import __version__
from ..base.arguments import checked_methods
from ..base.errors import InputError
from ..base.files import write_file
from ..base.plugins import others
from ..base.requests import Request
from ..base.schema import SEAL, UNREAD, check_format, digest, entries_of, read_json, structure
from ..base.trust import reading, refuse_plugin

FORMAT = 1  # of the JSON of a record
# entries that the JSON of every record has at its top
COMMON = ("interval", "unit", "kind", "protocol", "seed", "seconds")
# entries of `arguments` that say how the model was loaded
LOADING = ("run", "method", "device", "precision", "compile", "head", "base", "block")
SENSES = ("within its interval", "up to rounding", "bit for bit")  # in which a number holds, the weakest first
ROUNDING = 1e-6  # relative: float32 sums in another order
_PACKAGES = ("torch", "lightning", "numpy", "safetensors")


@dataclass(frozen=True)
class Figure:
    """A number of a record, as a repetition of it is compared.

    Attributes:
        half: half its 95% interval over the draws; where that is not known, over the texts; infinite where neither is.
        kind: "bound", "exact", "estimate", ...
        distribution: key of the one that it is about; None where it is about none, or the record does not say it.
        size: of the numbers that it is a difference of, to which rounding is relative; 0: it is none.
    """

    name: str
    value: float
    half: float
    unit: str
    kind: str
    distribution: str | None = None
    size: float = 0.0

    def holds(self, again: "Figure") -> str:
        """In what sense the number that was computed again is this one; "" if it is not, or of another distribution.

        Of the same model, data and seed it is the same to the bit on the same machine. Elsewhere rounding differs, and
        with other seeds the draws, whose part the interval is.
        """
        if self.distribution not in (None, again.distribution):
            return ""
        apart = abs(again.value - self.value)
        if again.value == self.value or (math.isnan(again.value) and math.isnan(self.value)):
            return SENSES[-1]
        if apart <= ROUNDING * max(abs(self.value), self.size):
            return SENSES[-2]
        return SENSES[-3] if apart <= self.half else ""


@checked_methods
@dataclass(frozen=True, kw_only=True)
class Record:
    """Result of a request.

    Its JSON has the attributes of COMMON at the top, null where it has none, and its other fields under "result". A
    subclass whose JSON is arranged otherwise says so in `common` and `content`, and in `values` for the way back, where
    cattrs checks and makes each value.

    Attributes:
        command: that writes it; advice: what to give instead of a file that is none.
        request: what was asked for; None in a file that does not say it.
        loading: how the command line loaded the model: run, method, device, precision, compile; empty from Python.
    """

    command: ClassVar[str] = "evaluate"
    advice: ClassVar[str] = "give a file that zellige wrote"
    request: Request[Any] | None = field(default=None, metadata=UNREAD)
    loading: Mapping[str, Any] | None = field(default=None, metadata=UNREAD)

    def __init_subclass__(cls, **more: Any) -> None:
        """Add the checks of arguments to the methods of a subclass."""
        super().__init_subclass__(**more)
        checked_methods(cls)

    def made_by(self, request: Request[Any], loading: Mapping[str, Any] | None = None) -> Self:
        """The record with the request that made it, and how the model was loaded."""
        return replace(self, request=request.saved(), loading=loading or self.loading)

    @property
    def arguments(self) -> dict[str, Any] | None:
        """Arguments in the JSON: the fields of the request, and how the model was loaded."""
        return None if self.request is None else {**(self.loading or {}), **self.request.to_dict()}

    def figures(self) -> list[Figure]:
        """Its numbers that hold, or do not, when the request is run again."""
        return []

    def claimable(self) -> list[Figure]:
        """The numbers that a claim may be about: those of `figures`, and the same in other units."""
        return [*self.figures()]

    def holds(self, again: "Record") -> dict[str, str]:
        """In what sense each number, by its name, is that of a record that was made again: of SENSES,
        or "" if it is not."""
        now = {figure.name: figure for figure in again.figures()}
        return {one.name: one.holds(now[one.name]) if one.name in now else "" for one in self.figures()}

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: the same keys, in the same order, for every command."""
        return json_record(self.command, self.arguments, self.content(), request=self.request, **self.common())

    def common(self) -> dict[str, Any]:
        """The entries of COMMON in its JSON."""
        return {name: entries_of(getattr(self, name, None)) for name in COMMON}

    def content(self) -> dict[str, Any]:
        """The entries of "result" in its JSON."""
        names = [field.name for field in fields(self) if field.metadata != UNREAD and field.name not in COMMON]
        return {name: entries_of(getattr(self, name)) for name in names}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], source: str = "it") -> Self:
        """The record of what `to_dict` gave, without its request.

        Raises:
            InputError: the document of something else, or an entry that does not fit, which is named.
        """
        try:
            values = cls.values(document)
        except (LookupError, TypeError, AttributeError) as wrong:
            raise InputError(f"'{source}' is not a result of zellige {cls.command}; {cls.advice}") from wrong
        return structure(values, cls, f"'{source}'", instead=cls.advice, strict=False)

    @classmethod
    def values(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """The values of its fields in a JSON document, as JSON has them."""
        return {**document, **(document.get("result") or {})}

    @classmethod
    def from_json(cls, path: str | Path) -> Self:
        """The record in a file of this class, without its request."""
        return cls.from_dict(read_document(path), str(path))

    def save(self, path: str | Path) -> None:
        """Write it as JSON, with a checksum."""
        write_file(path, as_file(self.to_dict()))

    @staticmethod
    def load(path: str | Path) -> Any:
        """The record in a file, of the class that its request returns.

        Raises:
            InputError: no file, not JSON, or an entry that does not fit, which is named.
        """
        return record_of(read_document(path), str(path))


@dataclass(frozen=True)
class Trained(Record):
    """Something small that was trained into a folder: all that is said of it stands in its config,
    which is its JSON."""

    config: Any
    seconds: float | None = None

    @property
    def seed(self) -> int:
        return self.config.seed

    def content(self) -> dict[str, Any]:
        return asdict(self.config)

    @classmethod
    def values(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        return {"config": document["result"], "seconds": document.get("seconds")}


def read_document(path: str | Path, by: str = "zellige") -> dict[str, Any]:
    """The JSON of a record in a file; `by` is the command that should have written it."""
    if not Path(path).is_file():
        raise InputError(f"no file at '{path}'; give one that {by} wrote")
    return read_json(Path(path), dict, f"give a file that {by} wrote")


def record_of(document: Mapping[str, Any], source: str = "it") -> Any:
    """The record of a JSON document, with its request."""
    kind = request_class(document, source)
    record = kind.record().from_dict(document, source)
    arguments = document.get("arguments")
    if not isinstance(arguments, Mapping):
        return record
    loading = {key: arguments[key] for key in LOADING if key in arguments and key not in kind.fields()}
    request = kind.from_dict({key: value for key, value in arguments.items() if key not in loading}, source)
    return record.made_by(request, loading)


def request_class(document: Mapping[str, Any], source: str = "it") -> type[Request[Any]]:
    """The class of the request that made a document; one of another package runs its code, as `trust` allows it."""
    name = document.get("request")
    module, _, attribute = name.rpartition(":") if isinstance(name, str) else ("", "", "")
    brought = {point.value.partition(".")[0] for points in others("zellige.evaluations").values() for point in points}
    if module and module not in sys.modules and module.partition(".")[0] in brought:
        with reading(source):
            refuse_plugin(f"evaluation '{attribute}' of the package {module.partition('.')[0]}")
        importlib.import_module(module)
    ours = sys.modules[__name__.partition(".")[0]]
    places = (sys.modules.get(module),) if module else (ours, ours.evaluations, ours.studies)
    kind = next((getattr(place, attribute) for place in places if hasattr(place, attribute)), None)
    if not (isinstance(kind, type) and issubclass(kind, Request)):
        raise InputError(f"'{source}' is not a record of Zellige; give a JSON file that it wrote")
    check_format(document.get("format"), FORMAT, source)
    return kind


def request_name(kind: type[Request[Any]]) -> str:
    """How a document names the class of its request: `module:Class`, of ours the class alone."""
    is_ours = kind.__module__.partition(".")[0] == __name__.partition(".")[0]
    return kind.__name__ if is_ours else f"{kind.__module__}:{kind.__name__}"


def versions() -> dict[str, str]:
    """Of zellige, python, what computes; "platform"; "commit" where the package is a git checkout."""
    system = f"{platform.system()} {platform.machine()}"
    numbers = {"zellige": __version__, "python": platform.python_version(), "platform": system}
    numbers |= {"commit": commit} if (commit := checkout()) else {}
    return numbers | {package: number for package in _PACKAGES if (number := version_of(package))}


def version_of(package: str) -> str | None:
    """The version of a package; None where there is none, or none that says so."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def why_broken(package: str) -> str:
    """Reason why an installed package cannot be imported, in a line, such as another build; "" if it can, or if it is
    not installed."""
    if version_of(package) is None:
        return ""
    try:
        importlib.import_module(package)
    except Exception as problem:
        return (str(problem).strip().splitlines() or [type(problem).__name__])[0]
    return ""


@cache
def checkout() -> str | None:
    """The git commit of the package, `-dirty` where its files are others; None where it is no checkout."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        commit, changes = (_git(root, *words) for words in (("rev-parse", "HEAD"), ("status", "-s", "-uno")))
    except (OSError, subprocess.SubprocessError):  # no git here, or one that does not trust the folder
        return None
    return commit + ("-dirty" if changes else "")


def _git(root: Path, *words: str) -> str:
    result = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=True)
    return result.stdout.strip()


def json_record(
    command: str | None,
    arguments: object,
    result: object,
    *,
    interval: dict | None = None,
    unit: str | None = None,
    kind: str | None = None,
    protocol: dict | None = None,
    seed: int | None = None,
    seconds: float | None = None,
    request: Request[Any] | None = None,
) -> dict[str, Any]:
    """A result as every command writes it as JSON: the same keys, in the same order."""
    return {
        "zellige": __version__,
        "format": FORMAT,
        "command": command,
        "request": None if request is None else request_name(type(request)),
        "arguments": arguments,
        "result": result,
        "interval": interval,
        "unit": unit,
        "kind": kind,
        "protocol": protocol,
        "seed": seed,
        "versions": versions(),
        "seconds": seconds,
    }


def dumps(value: object) -> str:
    """Strict JSON, unrounded, an entry a line but lists of numbers on one; a number that is not finite becomes null.

    What is not printable is escaped, also beyond ASCII, so that a text in it cannot move a terminal's cursor.
    """
    return _write(value, "\n")


def as_file(value: Mapping[str, Any]) -> str:
    """An object as the text of a JSON file; its last entry is the checksum that `schema.read_json` compares."""
    return dumps({**value, SEAL: digest(json.loads(dumps(dict(value))))}) + "\n"


def _write(value: object, line: str) -> str:
    inner = line + " "
    if isinstance(value, dict) and value:
        entries = (f"{_leaf(str(k))}: {_write(v, inner)}" for k, v in value.items())
        return "{" + ",".join(inner + entry for entry in entries) + line + "}"
    if isinstance(value, (list, tuple)):
        parts = [_write(v, inner) for v in value]
        if any(isinstance(v, (dict, list, tuple)) for v in value):
            return "[" + ",".join(inner + item for item in parts) + line + "]"
        return "[" + ", ".join(parts) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    is_plain = value is None or isinstance(value, (bool, int, float, str, dict))
    return _leaf(value if is_plain else str(value))


def _leaf(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
