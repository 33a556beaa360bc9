"""A result as JSON: the same keys from every command."""

import json
import math
from collections.abc import Mapping
from typing import Any

from .. import __version__
from ..schema import SEAL, digest
from .versions import versions


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
