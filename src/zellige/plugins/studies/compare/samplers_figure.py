"""The figure of a comparison of samplers: quality against network evaluations and against samples per second.

A filled marker is a point that no other beats. Below it what a sample looks like by itself, and the exact -log p of
held-out data where a sampler has one.
"""

import math
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from zellige.evaluation.interval import Number
from zellige.plugins.report.palette import COLOURS, LINES, RULE, SOFT, STYLE

from .record import COSTS, SamplerFindings, SamplerPoint

_MARKERS = "osD^vPX<>hp*"
_LOOKS = [("blue", "-"), *LINES, ("ink", "-")]
PERCENT = ("solved", "cells right", "valid and different", "inside")


def samplers_figure(found: SamplerFindings) -> Figure:
    """Two columns, one for each cost; a row for quality, one for what stands beside it,
    and one for the exact -log p."""
    names = {found.quality: lambda p: p.measures[found.quality], found.beside: lambda p: p.measures[found.beside]}
    if any(point.exact is not None for point in found.points):
        names["held-out -log p, nats/token"] = lambda p: p.exact
    with matplotlib.rc_context(STYLE):
        fig = Figure(figsize=(8.6, 2.6 + 1.9 * len(names)), layout="constrained", facecolor="white")
        axes: Any = fig.subplots(
            len(names), 2, sharex="col", sharey="row", height_ratios=[1.6, *[1] * (len(names) - 1)]
        )
        for row, (name, number) in zip(axes, names.items()):
            for ax, kind in zip(row, COSTS):
                _curves(ax, found, kind, number, fronts=name == found.quality)
                if (real := found.real.get(name)) is not None:
                    ax.axhspan(real.low, real.high, color=RULE, alpha=0.6, lw=0, zorder=0)
                    ax.axhline(real.value, color=SOFT, lw=1, ls=(0, (4, 3)), zorder=1, label="held-out data, 95%")
            better = f", {'higher' if found.higher else 'lower'} is better" if name == found.quality else ""
            row[0].set_ylabel(f"{name}{better}")
            if name in PERCENT:
                row[0].yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:g}%"))
        for ax, label in zip(axes[-1], ("network evaluations for each sample, mean", "samples per second")):
            ax.set_xscale("log", base=2)
            ax.set_xlabel(label)
            ax.xaxis.set_major_locator(LogLocator(2, numticks=12))
            ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
            ax.xaxis.set_minor_locator(NullLocator())
        for ax, title in zip(axes[0], ("against evaluations", "against speed")):
            ax.set_title(f"{title}; filled: no other point beats it")
        fig.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, handlelength=3)
    return fig


def _curves(
    ax: Axes, found: SamplerFindings, kind: str, number: Callable[[SamplerPoint], Number | None], fronts: bool
) -> None:
    """A curve for each sampler; of the first row the points that no other beats are filled."""
    names = dict.fromkeys(point.name for point in found.points)
    for i, name in enumerate(names):
        colour, dashes = _LOOKS[i % len(_LOOKS)]
        points = [point for point in found.points if point.name == name]
        shown = [(p, n) for p in points if (n := number(p)) is not None and not math.isnan(n.value)]
        if not shown:
            ax.plot([], [], color=COLOURS[colour], ls=dashes, marker=_MARKERS[i % 12], mfc="white", label=name)
            continue
        x = [_across(point, kind) for point, _ in shown]
        y = [value.value for _, value in shown]
        ends = np.array([[v.value - v.low for _, v in shown], [v.high - v.value for _, v in shown]])
        look = {"color": COLOURS[colour], "marker": _MARKERS[i % 12], "ms": 5, "mew": 1.3}
        ax.errorbar(x, y, np.nan_to_num(ends.clip(0), posinf=0.0), ls=dashes, mfc="white", capsize=2, elinewidth=0.8,
                    label=name, **look)  # fmt: skip
        first = [j for j, (point, _) in enumerate(shown) if fronts and kind in point.unbeaten]
        ax.plot([x[j] for j in first], [y[j] for j in first], ls="", zorder=5, **look)


def _across(point: SamplerPoint, kind: str) -> float:
    return point.calls if kind == COSTS[0] else point.per_second
