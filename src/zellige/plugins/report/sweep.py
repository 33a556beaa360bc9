"""Two figures of judged samples, of text and of images: quality against diversity (the frontier),
and both against calls."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from zellige.evaluation.metrics import Metric, find
from zellige.plugins.evaluations.generate.sample_sets import ScoredSet, curves_of

from .palette import COLOURS, INK, LINES, RULE, SOFT, STYLE, axis_of_calls

_LOOKS = [("blue", "-", "o"), *((c, d, m) for (c, d), m in zip(LINES, "s^DvPX"))]
SHOWN = {  # (across, up) of a frontier, (above, below) against calls
    "text": {"frontier": ("entropy", "perplexity"), "calls": ("perplexity", "entropy")},
    "images": {"frontier": ("recall", "precision"), "calls": ("FID", "KID")},
    "rows": {"frontier": ("outliers", "Hellinger"), "calls": ("Hellinger", "outliers")},
}


def sweep_figure(points: Sequence[ScoredSet], real: ScoredSet | None, by: str, about: str = "") -> Figure | None:
    """The figure of one kind of curves, "frontier" or "calls"; None where these points have none, or one metric.

    Args:
        points, real: sets of samples, and real text or images.
        about: the judge, or whose features images are compared in.
    """
    curves = curves_of(points, by)
    if not curves:
        return None
    measured = [*points[0].measures]
    kind, pair = next(((kind, axes[by]) for kind, axes in SHOWN.items() if {*axes[by]} <= {*measured}), ("data", ()))
    if not pair:  # a kind of data with metrics of its own: its first two
        pair = tuple(measured[:2] if by == "calls" else measured[1::-1])
    if len(pair) < 2:
        return None
    metrics_shown = [find(name) for name in pair]
    with matplotlib.rc_context(STYLE):
        fig = (_frontier if by == "frontier" else _calls)(curves, real, f"real {kind}", *metrics_shown)
    top = fig.axes[0]
    if about and kind == "text":
        top.set_ylabel(f"{top.get_ylabel()}, judge {about}")
    elif about and kind == "images":
        top.set_title(f"features: {about}", fontsize=8, loc="left")
    return fig


def _frontier(
    curves: dict[str, list[ScoredSet]], real: ScoredSet | None, called: str, across: Metric, up: Metric
) -> Figure:
    fig = Figure(figsize=(6.4, 4.6), layout="constrained", facecolor="white")
    ax = fig.subplots()
    for (name, points), (colour, dashes, marker) in zip(curves.items(), _LOOKS):
        key = {"temperature": "temperature", "top-p": "top_p"}[name]
        x, y = (np.array([p.measures[m].value for p in points]) for m in (across.name, up.name))
        ax.errorbar(x, y, _whiskers(points, up.name), _whiskers(points, across.name), color=COLOURS[colour], ls=dashes,
                    marker=marker, mfc="white", ms=5, mew=1.3, capsize=2, elinewidth=0.8, label=name)  # fmt: skip
        side = 1 if name == "temperature" else -1  # the two curves meet where nothing is changed: labels on either side
        for p, u, v in zip(points, x, y):
            if getattr(p.way, key) == 1.0 and side < 0:
                continue
            ax.annotate(
                f"{getattr(p.way, key):g}",
                (u, v),
                xytext=(7 * side, -3 * side),
                textcoords="offset points",
                ha="left" if side > 0 else "right",
                va="top" if side > 0 else "bottom",
                fontsize=8,
                color=COLOURS[colour] if colour == "blue" else INK,
            )
    if real is not None:
        x, y = real.measures[across.name], real.measures[up.name]
        ax.errorbar([x.value], [y.value], [[y.value - y.low], [y.high - y.value]], [[x.value - x.low], [x.high - x.value]],
                    fmt="*", ms=11, color=INK, capsize=2, elinewidth=0.8, label=called)  # fmt: skip
    if up.log:
        _log(ax)
    ax.margins(x=0.1)
    ax.set(xlabel=across.axis, ylabel=up.axis)
    fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=4, handlelength=3)
    return fig


def _calls(
    curves: dict[str, list[ScoredSet]], real: ScoredSet | None, called: str, above: Metric, below: Metric
) -> Figure:
    fig = Figure(figsize=(6.4, 6.0), layout="constrained", facecolor="white")
    top, low = fig.subplots(2, 1, sharex=True, height_ratios=[1.5, 1])
    for ax, metric in ((top, above), (low, below)):
        for (name, points), (colour, dashes, marker) in zip(curves.items(), _LOOKS):
            x, y = [p.calls for p in points], [p.measures[metric.name].value for p in points]
            ax.errorbar(x, y, _whiskers(points, metric.name), color=COLOURS[colour], ls=dashes, marker=marker, mfc="white", ms=5,
                        mew=1.3, capsize=2, elinewidth=0.8, label=name)  # fmt: skip
        if real is not None:
            n = real.measures[metric.name]
            ax.axhspan(n.low, n.high, color=RULE, alpha=0.6, lw=0, zorder=0)
            ax.axhline(n.value, color=SOFT, lw=1, ls=(0, (4, 3)), zorder=1, label=f"{called}, 95%")
        if metric.log:
            _log(ax)
        ax.set(ylabel=metric.axis)
    axis_of_calls(low, [p.calls or 0.0 for points in curves.values() for p in points], 1.2)
    fig.legend(*top.get_legend_handles_labels(), loc="outside lower center", ncols=3, handlelength=3)
    return fig


def _whiskers(points: Sequence[ScoredSet], measure: str) -> np.ndarray:
    """(2, n) how far the interval reaches below and above."""
    numbers = [p.measures[measure] for p in points]
    return np.nan_to_num(
        np.array([[n.value - n.low for n in numbers], [n.high - n.value for n in numbers]]), posinf=0.0
    )


def _log(ax: Axes) -> None:
    """A logarithmic y axis whose ticks are read as numbers, 1, 2 and 5 of each decade (all where it spans less)."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    subs = (1.0, 2.0, 5.0) if high / low > 8 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    ax.yaxis.set_major_locator(LogLocator(10, subs, numticks=20))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_minor_locator(NullLocator())
