"""Differences between a result and its repetition, for the note beside the new number (`Record.holds`)."""

from collections.abc import Iterator, Mapping
from typing import Any


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Lines about the differences: versions, platform, commit; weights, tokenizer, data; the protocol.

    before, now: the results as JSON, with all that they record.
    """
    out = _apart("", before.get("versions"), now.get("versions"))
    for old, new, where in _parts(before, now):
        about, again = (
            {key.removesuffix("_sha256"): v for key, v in (part or {}).items() if key.endswith("sha256")}
            for part in (old.get("about"), new.get("about"))
        )
        out += _apart(where, {_OF.get(k, k): v for k, v in about.items()}, {_OF.get(k, k): v for k, v in again.items()})
    protocol, again = ({k: v for k, v in (d.get("protocol") or {}).items() if k != "seed"} for d in (before, now))
    return out + _apart("protocol: ", protocol, again)


_OF = {"sha256": "data", "trained": "data of the training"}


def _parts(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[Any, Any, str]]:
    """Yield the whole result, each set of a suite, each set of samples."""
    old, new = before["result"], now["result"]
    yield old, new, ""
    for point, again in zip(old.get("points", ()), new.get("points", ())):
        yield {"about": point}, {"about": again}, ""
    yield {"about": old.get("real")}, {"about": new.get("real")}, "real: "
    again = {row["set"]: row for row in new.get("sets", ()) if "result" in row}
    for row in old.get("sets", ()):
        if "result" in row and row["set"] in again:
            yield row["result"], again[row["set"]]["result"], f"{row['set']}: "


def _apart(where: str, before: Mapping[Any, Any] | None, now: Mapping[Any, Any] | None) -> list[str]:
    before, now = before or {}, now or {}
    inner = [key for key in before if isinstance(before[key], Mapping) and isinstance(now.get(key), Mapping)]
    return [line for key in inner for line in _apart(f"{where}{key}: ", before[key], now[key])] + [
        f"{where}{key} was {_short(before[key])}, is {_short(now[key])}"
        for key in before
        if key in now and key not in inner and before[key] != now[key]
    ]


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 50 and not (len(text) == 64 and text.isalnum()) else f"{text[:8]}..."
