"""How samples beside real text are printed: first the frontier at the entropy of real text, then what fools which measure."""

from typing import Any

from ...evaluation.interval import Number
from ...evaluation.metrics import find
from ...evaluation.sweep import measure_of
from ...show.numbers import columns

BESIDE = 3  # columns of a printed table beside real text


def shown(point: dict[str, Any], name: str) -> str:
    """A metric of a set as its row of METRICS prints it; "-" where the set has none. ValueError: there is no such row."""
    metric = find(name)
    return metric.text(measure_of(point, name)) if name in point["measures"] else "-"


def headline(document: dict[str, Any]) -> list[str]:
    """Quality at matched entropy, above all else; what it takes where it is not known. Nothing where there is no real text."""
    result = document["result"]
    if result["real"] is None or "curve" not in result:
        return []
    if (at := result["matched"]) is None:
        if result["curve"]:
            return ["", "at the entropy of real text: unknown, no two temperatures lie about it", ""]
        return ["", "at the entropy of real text: unknown; --frontier draws what it takes", ""]
    perplexity, gap, metric = Number(**at["perplexity"]), Number(**at["gap"]), find("perplexity")
    return [
        "", f"at the entropy of real text, {at['entropy']:.3f} nats (temperature {at['temperature']:.2f}):",
        f"  perplexity {metric.text(perplexity)}, that of real text {at['real']:.{metric.places(perplexity.value)}f}",
        f"  {gap.text()} nats/token above real text", "",
    ]  # fmt: skip


def of_cheats(document: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """The table of cheats as (title, rows), or none: a row for each measure, real text first; * is no worse than real text."""
    result = document["result"]
    if not result.get("cheats"):
        return []
    sets = [{"name": "samples"} | result["points"][0], *result["cheats"]]
    real = result["real"]
    rows = [["", *([real["name"]] if real else []), *(one["name"] for one in sets)]]
    for name in sets[0]["measures"]:
        marks = ["*" if name in one.get("fools", ()) else " " for one in sets]
        cells = [shown(one, name) + mark for one, mark in zip(sets, marks)]
        rows.append([find(name).label, *([shown(real, name)] if real else []), *cells])
    return [("what fools what: * is no worse than real text", rows)]


def table_of_cheats(document: dict[str, Any]) -> list[str]:
    """The same table as lines, a few columns at a time, real text in each."""
    lines = []
    for title, rows in of_cheats(document):
        lines += ["", title]
        first = 2 if document["result"]["real"] else 1
        for at in range(first, len(rows[0]), BESIDE):
            part = [[*row[:first], *row[at : at + BESIDE]] for row in rows]
            lines += ["", *columns(part, "<" + ">" * (len(part[0]) - 1), indent=2)]
    return lines
