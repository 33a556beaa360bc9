"""How judged samples are printed: what was drawn, the numbers, one column or a row for each point, and the protocol."""

import textwrap
from typing import Any

from ..frontier import number
from ..terminal import columns, count, counted, parameters


def describe(plain: dict[str, Any]) -> list[str]:
    """The lines that are printed: what was drawn, one column or one table of numbers, the protocol."""
    points, real, about = (plain["result"][key] for key in ("points", "real", "about"))
    judge, protocol = plain["protocol"]["judge"], plain["protocol"]
    lines = []
    if about:
        step = f", step {count(about['step'])}" if about.get("step") is not None else ""
        lines.append(f"{about['method']}, {parameters(about['parameters'])}{step} (EMA)")
    names = [*points[0]["measures"]]
    if len(points) == 1:
        way = points[0]["way"]
        lines += [f"{counted(points[0]['samples'], 'sample')}{_said(way, points[0]['calls'])}", ""]
        heads = ["", "samples", *([real["name"]] if real else [])]
        rows = [heads]
        for name in names:
            shown = [number(p, name).shown(_places(number(p, name), name)) for p in points]
            if real:
                shown.append(
                    number(real, name).shown(_places(number(real, name), name)) if name in real["measures"] else ""
                )
            rows.append([_called(name), *shown])
        lines += columns(rows, "<" + ">" * (len(heads) - 1), indent=2, gap=3)
    else:
        lines += [
            f"{count(points[0]['samples'])} samples at each point",
            "",
            *columns(table(plain), "<>>>>>>>>", indent=2),
        ]
    cut = sum(p["cut"] for p in points)
    text = (
        f"{judge['judge']}: {parameters(judge['parameters'])}, tokenizer {judge['tokenizer']} ({count(judge['vocabulary'])}), "
        f"float32; samples {protocol['judged']}; first token {judge['first']}, EOS counted: {judge['eos']}, "
        f"context {count(judge['context'])}, longer texts {judge['long']}" + (f" ({count(cut)} were)" if cut else "")
    )
    said = (
        f"{protocol['name']}: {protocol['draws']}; entropy, distinct-n and seq-rep on {protocol['measured on']}; "
        f"seed {plain['seed']}"
    )
    intervals = f"95%, {plain['interval']['method']}"
    for head, what in (("judge", text), ("protocol", said), ("± is", intervals)):
        lines += [*([""] if head == "judge" else []), *textwrap.wrap(
            what, 80, initial_indent=f"  {head:<10}", subsequent_indent=" " * 12, break_on_hyphens=False,
        )]  # fmt: skip
    return lines


def table(plain: dict[str, Any]) -> list[list[str]]:
    """A row for each point, and one for real text; the header first."""
    points, real = plain["result"]["points"], plain["result"]["real"]
    rows = [["sampler", "steps", "calls", "temp.", "top-p", "perplexity", "per sequence", "entropy", "seq-rep-4"]]
    for p in [*points, *([real] if real else [])]:
        way = p["way"]
        how = [
            f"{way['sampler'] or 'samples'}",
            _or(way["steps"]),
            _or(p["calls"], ".1f"),
            f"{way['temperature']:g}",
            f"{way['top_p']:g}",
        ]
        if p is real:
            how = [p["name"], "", "", "", ""]
        numbers = [number(p, n) for n in ("perplexity", "perplexity per sequence", "entropy", "seq-rep-4")]
        rows.append(
            [
                *how,
                *(n.shown(_places(n, name)) for n, name in zip(numbers, ("perplexity", "perplexity", "entropy", ""))),
            ]
        )
    return rows


def _or(value: Any, form: str = "") -> str:
    return "-" if value is None else format(value, form)


def _places(n: Any, name: str) -> int:
    """Perplexities have two decimals, three below 10; the rest three."""
    return 2 if name.startswith("perplexity") and n.value >= 10 else 3


def _called(name: str) -> str:
    return {
        "perplexity": "perplexity, corpus", "perplexity per sequence": "perplexity, per sequence",
        "entropy": "unigram entropy, nats", "mauve": "MAUVE",
    }.get(name, name)  # fmt: skip


def _said(way: dict[str, Any], calls: float | None) -> str:
    if not way["sampler"]:
        return ""
    more = "".join(f", {name} {value}" for name, value in way["options"].items())
    asked = f" ({calls:.1f} network calls each)" if calls is not None else ""
    heat = f"temperature {way['temperature']:g}, top-p {way['top_p']:g}"
    return f": {way['sampler']}{more}, {counted(way['steps'], 'step')}{asked}, {heat}"
