"""How judged samples are printed: a column or a row for each point; at matched entropy; and what fools which measure."""

import textwrap
from typing import Any

from ..evaluation.interval import Number
from ..evaluation.metrics import METRICS, Metric, find, grouped
from ..evaluation.sweep import curves_of, measure_of
from ..show.numbers import columns, count, counted, parameters
from .common import of_model


def aligned(rows: list[list[str]], gap: int = 2) -> list[str]:
    """Rows as lines: names on the left, numbers aligned on the right."""
    return columns(rows, "<" + ">" * (len(rows[0]) - 1), indent=2, gap=gap)


def describe(document: dict[str, Any]) -> list[str]:
    """The lines that `zellige evaluate --generate` prints."""
    points, real, about = (document["result"][key] for key in ("points", "real", "about"))
    lines = []
    if about:
        lines.append(of_model(about))
    lines += headline(document)
    if len(points) == 1:
        lines.append(f"{counted(points[0]['samples'], 'sample')}{_drawn(points[0])}")
        if (expected := points[0].get("expected_calls")) is not None:
            lines.append(f"  of each {expected:.1f} network calls are expected")
        heads = ["", "samples", *([real["name"]] if real else [])]
        rows = [["images, n", *(count(p["samples"]) for p in (points[0], real))]] if _of_images(document) else []
        rows += [
            [find(name).label, *(shown(p, name) for p in (points[0], real) if p)] for name in points[0]["measures"]
        ]
        lines += ["", *aligned([heads, *rows], 3)]
    else:
        lines.append(f"{counted(points[0]['samples'], 'sample')} at each point")
        for title, rows in tables(document):
            lines += ["", *([f"  {title}"] if title else []), *aligned(rows)]
    lines += table_of_cheats(document)
    for head, text in _protocol(document):
        wrapped = textwrap.wrap(
            text, 80, initial_indent=f"  {head:<10}", subsequent_indent=" " * 12, break_on_hyphens=False
        )
        lines += [*([""] if head in ("judge", "features") else []), *wrapped]
    return lines


def tables(document: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """A table for each kind of curves, or one of all points where there are none: (title, rows), the header first."""
    points, real = document["result"]["points"], document["result"]["real"]
    images = _of_images(document)
    metrics = [m for m in METRICS.values() if m.column and any(m.name in p["measures"] for p in points)]
    titles = {"frontier": "over temperature and top-p", "calls": "against network calls"}
    curve_sets = {title: curves_of(points, by) for by, title in titles.items()}
    groups = {title: [p for each in curve.values() for p in each] for title, curve in curve_sets.items() if curve}
    heads = ["sampler", "steps", "calls", "temp.", "top-p", *(["n"] if images else [])]
    heads += [m.column for m in metrics]
    out = []
    for title, group in (groups or {"": points}).items():
        rows = [heads]
        for p in group:
            way = p["way"]
            steps, calls = ("-" if x is None else f"{x:.4g}" for x in (way["steps"], p["calls"]))
            how = [way["sampler"] or "samples", steps, calls, f"{way['temperature']:g}", f"{way['top_p']:g}"]
            rows.append([*how, *([count(p["samples"])] if images else []), *(shown(p, m.name) for m in metrics)])
        if real:
            number = [count(real["samples"])] if images else []
            rows.append([real["name"], "", "", "", "", *number, *(shown(real, m.name) for m in metrics)])
        out.append((title, rows))
    return out


def _of_images(document: dict[str, Any]) -> bool:
    return "features" in document["protocol"]


def _drawn(point: dict[str, Any]) -> str:
    way, calls = point["way"], point["calls"]
    if not way["sampler"]:
        return ""
    chosen = "".join(f", {name} {value}" for name, value in way["options"].items())
    asked = f" ({calls:.1f} network calls each)" if calls is not None else ""
    heat = f"temperature {way['temperature']:g}, top-p {way['top_p']:g}"
    return f": {way['sampler']}{chosen}, {counted(way['steps'], 'step')}{asked}, {heat}"


def _protocol(document: dict[str, Any]) -> list[tuple[str, str]]:
    if _of_images(document):
        return _protocol_of_images(document)
    judge, protocol = document["protocol"]["judge"], document["protocol"]
    cut, measured = sum(p["cut"] for p in document["result"]["points"]), _measured(document)
    which = (
        f"{judge['judge']}: {parameters(judge['parameters'])}, {judge['network']}, tokenizer {judge['tokenizer']} "
        f"({count(judge['vocabulary'])}); samples {protocol['judged']}; first token {judge['first']}; EOS counted: "
        f"{judge['eos']}; context {count(judge['context'])}, longer texts {judge['long']}"
    )
    drawn = "; ".join([protocol["draws"], *([protocol["class"]] if "class" in protocol else [])])
    counted_on = {m.family: "" for m in measured if m.of_tokens}
    how = f"{protocol['name']}: {drawn}; {', '.join(counted_on)} on {protocol['measured on']}"
    beside = []
    if (compared := protocol.get("compared")) is not None:
        sizes = f"{count(compared['texts'])} texts on either side, {compared['features']}"
        beside = [("distances", f"{sizes}; of real text from other real text")]
    return [
        ("judge", which + (f" ({count(cut)} of the samples)" if cut else "")),
        *beside,
        ("protocol", f"{how}; seed {document['seed']}"),
        ("± is", _interval(document, measured)),
    ]


def _protocol_of_images(document: dict[str, Any]) -> list[tuple[str, str]]:
    protocol, features = document["protocol"], document["protocol"]["features"]
    which = (
        f"{count(features['features'])} of {features['name']}, sha256 {features['sha256'][:8]}; {features['resizing']}"
    )
    measured = _measured(document)
    choices = grouped({m.family: protocol[m.family] for m in measured if m.family in protocol})
    drawn = "; ".join([protocol["draws"], *([protocol["class"]] if "class" in protocol else [])])
    against = f"against {protocol['reference']}, all as {protocol['images']}"
    return [
        ("features", which),
        (
            "protocol",
            f"{protocol['name']}: {against}; {protocol['library']}; {choices}; {drawn}; seed {document['seed']}",
        ),
        ("± is", _interval(document, measured)),
    ]


def _measured(document: dict[str, Any]) -> list[Metric]:
    """The rows of the metrics that a result has."""
    return [find(name) for name in document["result"]["points"][0]["measures"]]


def _interval(document: dict[str, Any], measured: list[Metric]) -> str:
    biased = dict.fromkeys(m.family for m in measured if m.biased)
    return f"95%, {document['interval']['method']}; biased in n, so compare at equal n: {', '.join(biased)}"


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
