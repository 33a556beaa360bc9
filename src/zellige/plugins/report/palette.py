"""Colours, dashes and the style that all figures share."""

import functools
import io
import math
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

# Okabe and Ito's colours and three greys; in the page each becomes a CSS variable, which each theme sets
INK = "#1b1f24"
SOFT = "#59616b"
RULE = "#d5dae0"
BLUE = "#0072b2"
VERMILION = "#d55e00"
GREEN = "#009e73"
PURPLE = "#cc79a7"
ORANGE = "#e69f00"
SKY = "#56b4e9"
COLOURS = {
    "ink": INK,
    "soft": SOFT,
    "rule": RULE,
    "blue": BLUE,
    "vermilion": VERMILION,
    "green": GREEN,
    "purple": PURPLE,
    "orange": ORANGE,
    "sky": SKY,
}
LINES = [  # never colour alone: each series has its own dashes too
    ("vermilion", (0, (6, 2))),
    ("green", (0, (2, 1.5))),
    ("purple", (0, (6, 2, 1.5, 2))),
    ("orange", (0, (1, 1))),
    ("sky", (0, (9, 3))),
    ("soft", (0, (4, 1, 1, 1, 1, 1))),
]
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "svg.fonttype": "none",
}


def axis_of_calls(ax: Axes, calls: Sequence[float], margin: float) -> None:
    """A logarithmic x axis for the network evaluations of a sample, with a tick at each power of 2."""
    low, high = min(calls), max(calls)
    ticks = [2.0**k for k in range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)]
    ax.set_xscale("log", base=2)
    ax.set(xlim=(low / margin, high * margin), xlabel="network evaluations for each sample, mean")
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_locator(NullLocator())


def as_svg(figure: Figure) -> str:
    """A figure as SVG, the same text whenever it is drawn again."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "zellige", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def styled(make):
    @functools.wraps(make)
    def inner(*args, **kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return make(*args, **kwargs)

    return inner
