"""The figure of a comparison: bounds with their intervals, and the samples against network evaluations."""

import math
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zellige.plugins.report.palette import COLOURS, INK, RULE, SOFT, STYLE, axis_of_calls

from .record import Findings

_SIX = ("blue", "vermilion", "green", "purple", "orange", "sky", "ink", "soft")
_DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)), (0, (9, 3)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


def comparison_figure(found: Findings) -> Figure:
    """Two panels: the bound of each method, best at the top;
    what the judge says of its samples at each number of calls."""
    rows = found.methods
    with matplotlib.rc_context(STYLE):
        high = max(3.4, 1.4 + 0.34 * len(rows))
        fig = Figure(figsize=(10.4, high), layout="constrained", facecolor="white")
        left, right = fig.subplots(1, 2, width_ratios=[1, 1.25])
        looks = [
            {"color": COLOURS[_SIX[i % 8]], "marker": _MARKERS[i % 9], "ls": _DASHES[i % 5], "ms": 5, "mew": 1.3}
            for i in range(len(rows))
        ]
        _bounds(left, found, looks)
        _samples(right, found, looks, (high - 1) * 72)
    return fig


def _bounds(ax: Axes, found: Findings, looks: list[dict[str, Any]]) -> None:
    rows, enumerated = found.methods, not found.judge.grams
    for y, (row, look) in enumerate(zip(rows, looks)):
        bound = row.bound
        if bound is None or not math.isfinite(bound.value):
            ax.annotate(
                "no bound" if bound is None else "infinite",
                (0.02, y),
                xycoords=("axes fraction", "data"),
                va="center",
                color=SOFT,
                fontsize=8,
                bbox={"fc": "white", "ec": "none", "pad": 1},
            )
            continue
        fill = look["color"] if bound.kind == "exact" else "white"
        low, high = (end if math.isfinite(end) else bound.value for end in (bound.low, bound.high))  # else no whisker
        ax.errorbar([bound.value], [y], xerr=[[bound.value - low], [high - bound.value]], fmt=look["marker"], capsize=3,
                    color=look["color"], mfc=fill, ms=6, mew=1.4, lw=1.4)  # fmt: skip
        ax.plot(row.seeds, [y] * len(row.seeds), ".", color=look["color"], ms=4, alpha=0.6)
        ax.annotate(row.letters, (1, y), xycoords=("axes fraction", "data"), xytext=(4, 0), textcoords="offset points",
                    va="center", fontsize=8, color=SOFT)  # fmt: skip
    if (at := found.reference.bound) is not None:
        ax.axvline(at, color=SOFT, ls=(0, (4, 3)), lw=1)
        ax.annotate("entropy of the data", (at, 1), xycoords=("data", "axes fraction"), xytext=(3, 2), va="bottom",
                    textcoords="offset points", fontsize=8, color=SOFT)  # fmt: skip
    ax.set(yticks=range(len(rows)), ylim=(len(rows) - 0.5, -0.5), xlabel=f"{found.unit}, lower is better")
    ax.set_yticklabels([row.label for row in rows], color=INK)
    where = "in expectation over the data's distribution" if enumerated else "on the test split"
    ax.set_title(f"bound {where}: ≤ hollow, = filled; 95%", pad=16)
    ax.annotate("same", (1, 1), xycoords="axes fraction", xytext=(4, 2), textcoords="offset points", va="bottom",
                fontsize=8, color=SOFT)  # fmt: skip
    ax.margins(x=0.12)
    ax.grid(visible=False, axis="y")


def _samples(ax: Axes, found: Findings, looks: list[dict[str, Any]], points: float) -> None:
    rows, real, enumerated = found.methods, found.reference, not found.judge.grams
    ends = []
    for row, look in zip(rows, looks):
        qualities = [quality for quality in row.quality if quality.calls > 0]
        x, y = [quality.calls for quality in qualities], [quality.value for quality in qualities]
        ax.plot(x, y, mfc="white", **look)
        ends.append((x[-1], y[-1], row.label, look["color"]))
        for k, by in enumerate(row.by_sampler):
            if by.sampler == row.sampler:  # the line above
                continue
            x, y = [quality.calls for quality in by.quality], [quality.value for quality in by.quality]
            ax.plot(x, y, mfc="white", **look | {"ls": _DASHES[(k + 1) % 5], "marker": _MARKERS[(k + 3) % 9]})
            ends.append((x[-1], y[-1], f"{row.label}, {by.sampler}", look["color"]))
    low, high = real.band
    ax.axhspan(low, high, color=RULE, alpha=0.6, lw=0, zorder=0)
    ax.axhline(real.value, color=SOFT, lw=1, ls=(0, (4, 3)), zorder=1)
    caption = f"{found.samples:,} exact samples" if enumerated else f"real {found.rows}, {found.samples:,} rows"
    ax.annotate(caption, (0, real.value), xycoords=("axes fraction", "data"), xytext=(4, 3), textcoords="offset points",
                va="bottom", fontsize=8, color=SOFT)  # fmt: skip
    qualities = [q for row in rows for q in (*row.quality, *(q for by in row.by_sampler for q in by.quality))]
    axis_of_calls(ax, [quality.calls for quality in qualities if quality.calls > 0], 1.15)
    if enumerated:
        ax.set_ylim(bottom=0)
        ax.set(ylabel="total variation, lower is better")
        ax.set_title("samples against the data's distribution", pad=16)
    else:
        ax.set(ylabel=f"{found.judge.unit}, nearer to real {found.rows} is better")
        ax.set_title(f"samples, judged by the {found.judge.name.partition(' ')[0]}", pad=16)
    _name(ax, ends, points)


def _name(ax: Axes, ends: list[tuple[float, float, str, str]], points: float) -> None:
    """Each line's name at its end, to the right of the panel; moved apart where lines end close together. A line that
    ends nowhere, since the judge has no number there, has no name.

    Args:
        ends: x, y, name and colour of each.
        points: the height of the panel.
    """
    ends = [end for end in ends if math.isfinite(end[1])]
    low, high = ax.get_ylim()
    ax.set_ylim(low, high)
    least = 10.5 / points * (high - low)
    order = sorted(range(len(ends)), key=lambda i: ends[i][1])
    at = np.array([ends[i][1] for i in order])
    groups: list[list[int]] = []  # labels that touch are one block around the mean of their places
    for i in range(len(at)):
        groups.append([i])
        while len(groups) > 1 and _spread(at, groups[-2], least)[-1] + least > _spread(at, groups[-1], least)[0]:
            last = groups.pop()
            groups[-1] += last
    for group in groups:
        for i, place in zip(group, _spread(at, group, least)):
            x, y, label, colour = ends[order[i]]
            leader = {
                "arrowstyle": "-",
                "color": colour,
                "lw": 0.8,
                "ls": ":",
                "shrinkA": 1,
                "shrinkB": 4,
                "relpos": (0, 0.5),
            }
            ax.annotate(label, (x, y), xytext=(1.03, (place - low) / (high - low)), textcoords="axes fraction", va="center",
                        fontsize=8, color=INK, annotation_clip=False, arrowprops=leader)  # fmt: skip


def _spread(at: np.ndarray, group: list[int], least: float) -> np.ndarray:
    return at[group].mean() + (np.arange(len(group)) - (len(group) - 1) / 2) * least
