"""The JSON of a result as it stands in a file: which types its entries have, and reading it."""

import math
from pathlib import Path
from typing import Any, TypedDict

from ..errors import InputError
from ..schema import read_json


def interval_ends(interval: dict[str, Any]) -> tuple[float, float]:
    low, high = interval["low"], interval["high"]  # JSON has no infinity
    return -math.inf if low is None else low, math.inf if high is None else high


def read_result(path: str | Path) -> dict[str, Any]:
    """The JSON of a result that was written before."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no file at '{path}'; give one that zellige evaluate wrote")
    return read_json(path, dict, "give a file that zellige evaluate wrote")


class _Numbers(TypedDict, total=False):
    value: float | None
    terms: dict[str, float | None]
    sequences: int
    draws: int
    units: float
    about: dict[str, Any]
    perplexity: dict[str, Any]
    over_draws: dict[str, Any] | None
    document: dict[str, Any] | None


class _Ends(TypedDict, total=False):
    low: float | None
    high: float | None
    why: str


class WrittenResult(TypedDict, total=False):
    """The types of what stands in the JSON of a result; what has to be there is known where it is read."""

    result: _Numbers
    interval: _Ends
    unit: str
    kind: str
    seed: int | None
    protocol: dict[str, Any]
    seconds: float | None
