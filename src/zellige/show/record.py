"""A result as JSON: the same keys from every command, and what it ran on (versions, platform, commit)."""

import importlib
import json
import math
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .. import __version__
from ..schema import SEAL, digest

_PACKAGES = ("torch", "lightning", "numpy", "safetensors")


def versions() -> dict[str, str]:
    """Of zellige, python, what computes; "platform"; "commit" where the package is a git checkout."""
    numbers = {"zellige": __version__, "python": platform.python_version(), "platform": _platform()}
    commit = checkout()
    numbers |= {"commit": commit} if commit else {}
    return numbers | {package: number for package in _PACKAGES if (number := version_of(package))}


def version_of(package: str) -> str | None:
    """The version of a package; None where there is none, or none that says so."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def why_broken(package: str) -> str:
    """How importing a package ends that is installed, in a line: what was made for another build; "" where it ends well, or there
    is none."""
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
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


@cache
def _platform() -> str:
    return f"{platform.system()} {platform.machine()}"


def json_record(
    command: str | None,
    arguments: Any,
    result: Any,
    *,
    interval: dict | None = None,
    unit: str | None = None,
    kind: str | None = None,
    protocol: dict | None = None,
    seed: int | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """A result as every command writes it as JSON: the same keys, in the same order."""
    return {
        "zellige": __version__, "command": command, "arguments": arguments, "result": result, "interval": interval,
        "unit": unit, "kind": kind, "protocol": protocol, "seed": seed, "versions": versions(), "seconds": seconds,
    }  # fmt: skip


def dumps(value: Any) -> str:
    """Strict JSON, unrounded, an entry a line but lists of numbers on one; a number that is not finite becomes null.

    What is not printable is escaped, also beyond ASCII, so that a text in it cannot move a terminal's cursor.
    """
    return _write(value, "\n")


def as_file(value: Mapping[str, Any]) -> str:
    """An object as the text of a JSON file; its last entry is the checksum that `schema.read_json` compares."""
    return dumps({**value, SEAL: digest(json.loads(dumps(dict(value))))}) + "\n"


def _write(value: Any, line: str) -> str:
    inner = line + " "
    if isinstance(value, dict) and value:
        entries = (f"{_leaf(str(k))}: {_write(v, inner)}" for k, v in value.items())
        return "{" + ",".join(inner + entry for entry in entries) + line + "}"
    if isinstance(value, (list, tuple)):
        parts = [_write(v, inner) for v in value]
        if any(isinstance(v, (dict, list, tuple)) for v in value):
            return "[" + ",".join(inner + part for part in parts) + line + "]"
        return "[" + ", ".join(parts) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    known = value is None or isinstance(value, (bool, int, float, str, dict))
    return _leaf(value if known else str(value))


def _leaf(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
