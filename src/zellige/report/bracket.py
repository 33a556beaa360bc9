"""A bracket as a figure, every row on one scale and its width against network calls, and as a part of a run's page."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ..errors import InputError
from ..schema import read_json, shown
from ..show.numbers import pm
from . import page
from .palette import COLOURS, INK, SKY, styled

LOOKS = {  # of each side: colour, marker, what it is called
    "bound": ("blue", "v", "−log p is at most this"),
    "lower": ("vermilion", "^", "−log p is at least this"),
    "exact": ("green", "o", "exact, of that sampler"),
    "oracle": ("purple", "D", "oracle: no sampler's law"),
}


@styled
def bracket_figure(document: Mapping[str, Any]) -> Figure:
    """Above: the rows of the texts, values with their interval over the draws (else none). Below: the widths.

    Args:
        document: as `Bracket.to_dict` makes it, or its JSON.
    """
    rows = [r for r in document["result"]["rows"] if not r["own"] and r["value"] is not None]
    values = [r for r in rows if r["side"] in LOOKS]
    widths = [r for r in rows if r["side"] == "difference" and r["value"] > 0]
    fig = Figure(figsize=(6.4, 1.6 + 0.2 * len(values) + 2.0 * bool(widths)), layout="constrained")
    panels = fig.subplots(
        1 + bool(widths), 1, squeeze=False, height_ratios=[0.2 * len(values) + 0.6, 2][: 1 + bool(widths)]
    )
    top = panels[0][0]
    for side, (colour, marker, title) in LOOKS.items():
        at = [i for i, r in enumerate(values) if r["side"] == side]
        if at:
            x = [values[i]["value"] for i in at]
            top.errorbar(x, at, xerr=[_half(values[i]) for i in at], fmt=marker, ms=5, capsize=2, lw=1.2,
                         color=COLOURS[colour], label=title)  # fmt: skip
    top.set(yticks=range(len(values)), xlabel=f"{document['unit']} (95% over the draws)")
    top.set_yticklabels([r["name"] for r in values])
    top.invert_yaxis()
    if between := _between(values):
        top.axvspan(*between, color=SKY, alpha=0.2, lw=0)
    low, high = _scale(values)
    top.set_xlim(low, high)
    for i, row in enumerate(values):  # what would flatten all else stands at the edge, as a number
        if not low <= row["value"] <= high:
            left = row["value"] < low
            text = f"◂ {row['value']:.3g}" if left else f"{row['value']:.3g} ▸"
            top.annotate(text, (low if left else high, i), ha="left" if left else "right", va="center", fontsize=8,
                         color=COLOURS[LOOKS[row["side"]][0]])  # fmt: skip
    if widths:
        ax = panels[1][0]
        ax.errorbar([r["calls"] for r in widths], [r["value"] for r in widths], [_half(r) for r in widths], fmt="s-", ms=4,
                    capsize=2, lw=1.2, color=INK, label="from below to above")  # fmt: skip
        ax.set(
            xscale="log",
            yscale="log",
            xlabel="network calls for both sides of a text",
            ylabel=f"width, {document['unit']}",
        )
    fig.legend(*top.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return fig


def bracket_sections(folder: Path) -> str:
    """The brackets that were written into a run, for its page; "" where there are none."""
    sections = ""
    for path in sorted(folder.glob("bracket-*.json")):
        try:
            sections += _section(path, read_json(path))
        except (KeyError, TypeError, AttributeError) as missing:
            raise InputError(
                f"'{shown(path)}' is not what zellige evaluate --bracket wrote; make it again"
            ) from missing
    return sections


def _section(path: Path, document: Mapping[str, Any]) -> str:
    rows = [
        (r["name"], "-" if r["value"] is None else _cell(r), r["law"] or r["why"] or "")
        for r in document["result"]["rows"]
        if not r["own"]
    ]
    table = page.html_table(rows, ("", f"{document['unit']} (over the draws)", "whose law"), numbers=False)
    text = "Triangles down bound -log p from above, triangles up from below; between the tightest two lies the model's own."
    protocol = page.html_table(page.flat(document["protocol"]), ("protocol", ""), numbers=False)
    return (
        f"<h3>{page.esc(path.stem)}</h3>"
        + page.html_figure(bracket_figure(document), path.stem, "Between two bounds", text, table)
        + page.html_folded("how it was made", protocol)
    )


def _cell(row: Mapping[str, Any]) -> str:
    """`0.511 ± 0.001`, `0.029 ± unknown`; `0.029 undetermined` where the draws do not determine the mean."""
    if row["low"] is None:
        return pm(row["value"], 0.0).partition(" ±")[0] + " undetermined"
    known = row["side"] in ("exact", "oracle") or row["over_draws"]["low"] is not None
    return pm(row["value"], _half(row) if known else math.inf)


def _half(row: Mapping[str, Any]) -> float:
    """Half the interval over the draws; 0 where nothing is drawn or it is not known."""
    drawn = row["over_draws"]
    return 0.0 if drawn["low"] is None or row["side"] in ("exact", "oracle") else (drawn["high"] - drawn["low"]) / 2


def _scale(rows: list[Mapping[str, Any]]) -> tuple[float, float]:
    """Where the axis ends: three times as far from the tightest bounds as those of one draw and the oracle are, or 5%."""
    middle = sum(_between(rows)) / 2 or rows[0]["value"]
    near = [abs(r["value"] - middle) for r in rows if r["side"] in ("bound", "oracle")]
    reach = 3 * max([*near, 0.02 * abs(middle)])
    return middle - reach, middle + reach


def _between(rows: list[Mapping[str, Any]]) -> tuple[()] | tuple[float, float]:
    """The bounds of the most draws from both sides; () where there are none."""
    ends = []
    for side in ("lower", "bound"):
        drawn = [r for r in rows if r["side"] == side and r["name"] != "bound"]
        if not drawn:
            return ()
        ends.append(max(drawn, key=lambda r: r["n"])["value"])
    return ends[0], ends[1]
