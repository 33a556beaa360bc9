"""A result as JSON: the same keys from every command."""

import json
import math
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tessella import __version__


def record(
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
    """A result as every command writes it with --json: the same keys, in the same order."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in ("torch", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # a build of one's own
            continue
    return {
        "tessella": __version__, "command": command, "arguments": arguments, "result": result, "interval": interval,
        "unit": unit, "kind": kind, "protocol": protocol, "seed": seed, "versions": versions, "seconds": seconds,
    }  # fmt: skip


def dumps(value: Any) -> str:
    """Strict JSON, unrounded; a number that is not finite becomes null."""

    def clean(v):
        if isinstance(v, dict):
            return {str(k): clean(x) for k, x in v.items()}
        if isinstance(v, (list, tuple)):
            return [clean(x) for x in v]
        if isinstance(v, float):
            return v if math.isfinite(v) else None
        return v if v is None or isinstance(v, (bool, int, str)) else str(v)

    return json.dumps(clean(value), indent=1, ensure_ascii=False, allow_nan=False)
