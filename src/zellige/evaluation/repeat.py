"""Whether a number holds: the numbers of a result of any kind, and what becomes of them when it is made again.

A number that is computed again, of the same model, data and seed, is the same to the bit on the same machine. Elsewhere rounding
differs, and with other seeds the draws; what they may bring is the interval over the draws (where that is not known, the wider
one over the texts). Anything beyond is another number.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InputError

ROUNDING = 1e-6  # relative: float32 sums in another order
_FORGED = "is not a result of zellige evaluate; give a JSON file that it wrote"


@dataclass(frozen=True)
class Figure:
    """A number of a result: name and unit, half its interval over the draws, its kind (bound, exact), and which distribution."""

    name: str
    value: float
    half: float
    unit: str
    kind: str
    law: str | None = None  # None: of no distribution, or of a result that does not say it

    def holds(self, again: "Figure") -> str:
        """In what sense the number that was computed again is this one; "" if it is not, or of another distribution."""
        if self.law is not None and self.law.replace("chain's law", "chain") != again.law:  # as 0.2.0 has it
            return ""
        apart = abs(again.value - self.value)
        if again.value == self.value or (math.isnan(again.value) and math.isnan(self.value)):
            return "bit for bit"
        if apart <= ROUNDING * abs(self.value):
            return "up to rounding"
        return "within its interval" if apart <= self.half else ""


def figures(document: Mapping[str, Any], source: str = "it") -> list[Figure]:
    """Every number of a result of `zellige evaluate`, of whatever kind. InputError where it is none."""
    try:
        return list(_figures(document))
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as wrong:
        raise InputError(f"'{source}' {_FORGED}") from wrong


def _figures(document: Mapping[str, Any]) -> Iterator[Figure]:
    result, unit, kind = document["result"], document["unit"], document["kind"]
    if "points" in result:  # samples
        for point in result["points"]:
            way = point["way"]
            where = f"{way['sampler'] or 'samples'}, {way['steps']} steps, {way['temperature']:g}, {way['top_p']:g}: "
            for name, number in point["measures"].items():
                called = where * (len(result["points"]) > 1) + name
                yield Figure(called, _real(number["value"]), _half(number), name, kind)
    elif "sets" in result:  # a suite
        for one in result["sets"]:
            if "result" in one:
                yield from _likelihood(one, f"{one['set']}: ")
    elif "steps" in result:
        for one in result["steps"]:
            yield from _likelihood({"unit": unit, "kind": kind} | one, f"{one['steps'] or 'continuous'}: ")
    elif "rows" in result:  # a probe, or a bracket
        for row in result["rows"]:
            number = row.get("accuracy", row)
            if number["value"] is not None:
                of = "accuracy" if "accuracy" in row else unit
                name = f"{row['name']}{' of its own samples' * bool(row.get('own'))}: {of}"
                yield Figure(name, number["value"], _half(number), of, row.get("side", "estimate"), row.get("law"))
    else:
        yield from _likelihood(document, "")
        for name in ("accuracy", "accuracy_normalised"):
            if result.get(name) is not None:
                yield Figure(name, result[name]["value"], _half(result[name]), name, "estimate")


def _likelihood(document: Mapping[str, Any], where: str) -> Iterator[Figure]:
    result, unit, kind = document["result"], document["unit"], document["kind"]
    value, drawn = result["value"], result.get("over_draws")
    half = _half(document["interval"])
    if kind == "exact":
        half = 0.0  # for these very texts
    elif isinstance(drawn, Mapping):
        half = min(half, _half(drawn))
    elif drawn is not None:
        half = min(half, drawn)
    law = (document.get("protocol") or {}).get("law")
    yield Figure(where + unit, value, half, unit, kind, law)
    if kind != "loss":
        perplexity, scale = result["perplexity"]["value"], math.log(2) if unit.startswith("bits") else 1.0
        if perplexity is not None:
            yield Figure(f"{where}perplexity", perplexity, perplexity * half * scale, "perplexity", kind, law)


def _real(value: float | None) -> float:
    return math.nan if value is None else value


def _half(number: Mapping[str, Any]) -> float:
    """Half the width of an interval; infinite where it is not known."""
    low, high = number.get("low"), number.get("high")
    return math.inf if low is None or high is None else (high - low) / 2


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is not as it was when a result was made: versions, platform, commit; weights, tokenizer, data; the protocol."""
    out = _apart("", before.get("versions"), now.get("versions"))
    for one, other, where in _parts(before, now):
        about, again = (
            {key.removesuffix("_sha256"): v for key, v in (part or {}).items() if key.endswith("sha256")}
            for part in (one.get("about"), other.get("about"))
        )
        out += _apart(where, {_OF.get(k, k): v for k, v in about.items()}, {_OF.get(k, k): v for k, v in again.items()})
    ignored = {"seed"}
    protocol, again = ({k: v for k, v in (d.get("protocol") or {}).items() if k not in ignored} for d in (before, now))
    return out + _apart("protocol: ", protocol, again)


_OF = {"sha256": "data", "trained": "data of the training"}


def _parts(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[Any, Any, str]]:
    """The whole result, each set of a suite, each set of samples."""
    one, other = before["result"], now["result"]
    yield one, other, ""
    for point, again in zip(one.get("points", ()), other.get("points", ())):
        yield {"about": point}, {"about": again}, ""
    yield {"about": one.get("real")}, {"about": other.get("real")}, "real: "
    again = {row["set"]: row for row in other.get("sets", ()) if "result" in row}
    for row in one.get("sets", ()):
        if "result" in row and row["set"] in again:
            yield row["result"], again[row["set"]]["result"], f"{row['set']}: "


def _apart(where: str, before: Any, now: Any) -> list[str]:
    before, now = before or {}, now or {}
    inner = [key for key in before if isinstance(before[key], Mapping) and isinstance(now.get(key), Mapping)]
    return [line for key in inner for line in _apart(f"{where}{key}: ", before[key], now[key])] + [
        f"{where}{key} was {_short(before[key])}, is {_short(now[key])}"
        for key in before
        if key in now and key not in inner and before[key] != now[key]
    ]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 50 and not (len(text) == 64 and text.isalnum()) else f"{text[:8]}..."
