"""A bracket as a figure, every row on one scale and its width against network evaluations,
and as a part of a run's page."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from zellige.evaluation.result import Result
from zellige.plugins.evaluations.bracket.bracket import Bracket, BracketRow
from zellige.show.numbers import parts, pm

from . import page
from .palette import COLOURS, INK, SKY, styled

LOOKS = {  # of each side: colour, marker, what it is called
    "bound": ("blue", "v", "−log p is at most this"),
    "lower": ("vermilion", "^", "−log p is at least this"),
    "exact": ("green", "o", "exact, of that sampler"),
    "oracle": ("purple", "D", "oracle: no sampler's distribution"),
}


Valued = tuple[BracketRow, Result]  # a row with its value


def _valued(bracket: Bracket) -> list[Valued]:
    """The rows of the texts that have a value."""
    return [(row, row.result) for row in bracket.rows if not row.own and row.result is not None]


@styled
def bracket_figure(bracket: Bracket) -> Figure:
    """Above: the rows of the texts, values with their interval over the draws (else none). Below: the widths."""
    rows = _valued(bracket)
    values = [(row, result) for row, result in rows if row.side in LOOKS]
    widths = [(row, result) for row, result in rows if row.side == "difference" and result.value > 0]
    fig = Figure(figsize=(6.4, 1.6 + 0.2 * len(values) + 2.0 * bool(widths)), layout="constrained")
    panels = fig.subplots(
        1 + bool(widths), 1, squeeze=False, height_ratios=[0.2 * len(values) + 0.6, 2][: 1 + bool(widths)]
    )
    top = panels[0][0]
    for side, (colour, marker, title) in LOOKS.items():
        at = [i for i, (row, _) in enumerate(values) if row.side == side]
        if at:
            x = [values[i][1].value for i in at]
            top.errorbar(x, at, xerr=[_half(values[i]) for i in at], fmt=marker, ms=5, capsize=2, lw=1.2,
                         color=COLOURS[colour], label=title)  # fmt: skip
    top.set(yticks=range(len(values)), xlabel=f"{bracket.unit} (95% over the draws)")
    top.set_yticklabels([row.name for row, _ in values])
    top.invert_yaxis()
    if between := _between(values):
        top.axvspan(*between, color=SKY, alpha=0.2, lw=0)
    low, high = _scale(values)
    top.set_xlim(low, high)
    for i, (row, result) in enumerate(values):  # what would flatten all else stands at the edge, as a number
        if not low <= result.value <= high:
            left = result.value < low
            text = f"◂ {result.value:.3g}" if left else f"{result.value:.3g} ▸"
            top.annotate(
                text,
                (low if left else high, i),
                ha="left" if left else "right",
                va="center",
                fontsize=8,
                color=COLOURS[LOOKS[row.side][0]],
            )
    if widths:
        ax = panels[1][0]
        ax.errorbar([row.calls or 0.0 for row, _ in widths], [result.value for _, result in widths], [*map(_half, widths)],
                    fmt="s-", ms=4, capsize=2, lw=1.2, color=INK, label="from below to above")  # fmt: skip
        ax.set(
            xscale="log",
            yscale="log",
            xlabel="network evaluations for both sides of a text",
            ylabel=f"width, {bracket.unit}",
        )
    fig.legend(*top.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return fig


def bracket_sections(folder: Path) -> str:
    """The brackets that were written into a run, for its page; "" where there are none."""
    files = sorted(folder.glob("bracket-*.json"))
    return "".join(_section(file, Bracket.from_json(file)) for file in files)


def _section(path: Path, bracket: Bracket) -> str:
    rows = [
        (row.name, _cell(row), row.distribution.text if row.distribution else row.why or "")
        for row in bracket.rows
        if not row.own
    ]
    table = page.html_table(rows, ("", f"{bracket.unit} (over the draws)", "distribution"), numbers=False)
    text = "Triangles down bound -log p from above, triangles up from below; between the tightest two lies the model's own."
    protocol = page.html_table(page.flat(bracket.protocol), ("protocol", ""), numbers=False)
    return (
        f"<h3>{page.esc(path.stem)}</h3>"
        + page.html_figure(bracket_figure(bracket), path.stem, "Two-sided bounds", text, table)
        + page.html_folded("how it was made", protocol)
    )


def _cell(row: BracketRow) -> str:
    """`0.511 ± 0.001`, `0.029 ± unknown`; `0.029 undetermined` where the draws do not determine the mean; `-`:
    no value."""
    if row.result is None:
        return "-"
    value = row.result.value
    if not (row.determined and math.isfinite(row.result.low)):
        return f"{parts(value, 0.0)[0]} undetermined"
    exact = row.side in ("exact", "oracle")
    return pm(value, 0.0 if exact else row.result.draws_half)


def _half(valued: Valued) -> float:
    """Half the interval over the draws; 0 where nothing is drawn or it is not known."""
    row, result = valued
    half = result.draws_half
    return half if row.determined and math.isfinite(half) and row.side not in ("exact", "oracle") else 0.0


def _scale(rows: Sequence[Valued]) -> tuple[float, float]:
    """The ends of the axis: three times as far from the tightest bounds as those of one draw and the oracle are,
    or 5%."""
    middle = sum(_between(rows)) / 2 or rows[0][1].value
    near = [abs(result.value - middle) for row, result in rows if row.side in ("bound", "oracle")]
    reach = 3 * max([*near, 0.02 * abs(middle)])
    return middle - reach, middle + reach


def _between(rows: Sequence[Valued]) -> tuple[()] | tuple[float, float]:
    """The bounds of the most draws from both sides; () where there are none."""
    ends = list[float]()
    for side in ("lower", "bound"):
        sizes_and_values = [(row.n, result.value) for row, result in rows if row.side == side and row.name != "bound"]
        if not sizes_and_values:
            return ()
        ends.append(max(sizes_and_values, key=lambda pair: pair[0])[1])
    return ends[0], ends[1]
