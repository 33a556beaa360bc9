"""Colours, dashes and the style that all figures share."""

import functools
from typing import Any

import matplotlib
from matplotlib.figure import Figure

# Okabe and Ito's colours and three greys; in the page each becomes a CSS variable, which each theme sets
COLOURS = {
    "ink": "#1b1f24",
    "soft": "#59616b",
    "rule": "#d5dae0",
    "blue": "#0072b2",
    "vermilion": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "orange": "#e69f00",
    "sky": "#56b4e9",
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
    "axes.edgecolor": COLOURS["soft"],
    "axes.labelcolor": COLOURS["ink"],
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "grid.color": COLOURS["rule"],
    "grid.linewidth": 0.6,
    "text.color": COLOURS["ink"],
    "xtick.color": COLOURS["soft"],
    "ytick.color": COLOURS["soft"],
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "svg.fonttype": "none",
}


def styled(make):
    @functools.wraps(make)
    def inner(*args, **kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return make(*args, **kwargs)

    return inner
