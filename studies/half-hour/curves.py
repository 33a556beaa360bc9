"""The pictures of the trainings in curves.csv and levers.csv, and tables of what each reached.

    python studies/half-hour/curves.py          writes curves.svg and levers.svg beside it, prints the tables; the half hours
                                                go to docs/pictures/half-hour.svg, too

A panel for each text, method and time: the bound against the processor time of a training's steps; of the levers how far
it is from that of the first training of the panel at the same time. The last column of the table is the part of its time
after which a training reaches what the first one of its panel reaches at the end.
"""

import csv
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from zellige.plugins.report.palette import COLOURS, LINES, STYLE

HERE = Path(__file__).parent
BASE = "train.optimizer=muon train.precision=bfloat16 train.lr=6e-3 train.decay=wsd"
NAMES = {
    "": "AdamW, float32",
    "train.precision=bfloat16": "AdamW",
    "train.optimizer=muon train.precision=bfloat16": "Muon at 3e-3",
    "train.optimizer=muon train.precision=bfloat16 train.lr=6e-3": "Muon",
    BASE: "Muon, wsd",
    f"{BASE} train.times=middle": "Muon, wsd, middle",
}
LENGTHS = {"": 130, ", longer": 300, ", longest": 1000, ", half an hour": 4000}  # seconds at most
LOOKS = {
    "AdamW, float32": ("ink", (0, (1, 1.5))),
    "AdamW": LINES[0],
    "Muon at 3e-3": LINES[1],
    "Muon": ("blue", "-"),
    "Muon, wsd": LINES[2],
    "Muon, wsd, middle": ("vermilion", "-"),
}
Curve = list[tuple[float, float]]
Panel = tuple[str, str, str]  # text, method, how long the trainings are


def read(table: str) -> dict[Panel, dict[tuple[str, int], Curve]]:
    """By panel and variant: the steps of the training, and its seconds and bounds."""
    curves = defaultdict[tuple[str, ...], Curve](list)
    with (HERE / table).open(newline="") as file:
        for row in csv.DictReader(file):
            key = tuple(row[name] for name in ("text", "method", "variant", "seed", "steps"))
            curves[key].append((float(row["seconds"]), float(row["bound"])))
    panels = defaultdict[Panel, dict[tuple[str, int], Curve]](dict)
    for (text, method, variant, _, steps), curve in curves.items():
        length = next(name for name, most in LENGTHS.items() if curve[-1][0] <= most)
        panels[text, method, length][variant, int(steps)] = curve
    return panels


def name(variant: str) -> str:
    """A variant as the page calls it; bfloat16 is not said."""
    words = [word.removeprefix("train.").removeprefix("net.") for word in variant.split() if "precision" not in word]
    return NAMES.get(variant, ", ".join(word.replace("=", " ") for word in words))


def draw(panels: dict[Panel, dict[tuple[str, int], Curve]], one_legend: bool = False) -> Figure:
    rows = -(-len(panels) // 3)
    figure = Figure(figsize=(7.2, 2.3 * rows), layout="constrained")
    axes = figure.subplots(rows, 3, squeeze=False).flatten()
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    for ax, ((text, method, length), variants) in zip(axes, panels.items()):
        others = iter(LINES[2:])
        for (variant, _), curve in variants.items():
            colour, dashes = LOOKS.get(name(variant)) or next(others)
            look: dict[str, Any] = {"color": COLOURS[colour], "ls": dashes}
            ax.plot(*zip(*curve), label=name(variant), marker="o", ms=2.5, **look)
        top = max(curve[min(2, len(curve) - 1)][1] for curve in variants.values())
        ax.set(title=f"{text}, {method}{'' if one_legend else length}", xlim=(0, None), ylim=(None, top))
        if not one_legend:
            ax.legend(fontsize=7, frameon=False)
    if one_legend:
        lines = {line.get_label(): line for ax in axes for line in ax.get_lines()}
        figure.legend(lines.values(), lines.keys(), loc="outside upper center", ncols=len(lines), frameon=False)
    figure.supxlabel("processor seconds of the steps", fontsize=9)
    figure.supylabel("bound, nats/token", fontsize=9)
    return figure


def draw_levers(panels: dict[Panel, dict[tuple[str, int], Curve]]) -> Figure:
    """Of each training how far its bound is from that of the first one of its panel at the same time."""
    rows = -(-(len(panels) - 1) // 3)
    figure = Figure(figsize=(7.2, 3.4 + 2 * rows), layout="constrained")
    grid = figure.add_gridspec(1 + rows, 3, height_ratios=(1.7, *rows * (1,)))
    axes = [
        figure.add_subplot(grid[0, :]),
        *(figure.add_subplot(grid[1 + i // 3, i % 3]) for i in range(len(panels) - 1)),
    ]
    looks = [(colour, dashes) for dashes in ("-", *(dashes for _, dashes in LINES)) for colour, _ in LINES]
    for ax, ((text, method, _), variants) in zip(axes, panels.items()):
        first, *_ = variants.values()
        others = sorted([*variants.items()][1:], key=lambda one: -one[1][-1][1])
        ax.axhline(0, color=COLOURS["ink"], lw=1)
        for (colour, dashes), ((variant, _), curve) in zip(looks, others):
            apart = [(time, bound - at(first, time)) for time, bound in curve if time >= first[2][0]]
            ax.plot(*zip(*apart), label=lever(variant), color=COLOURS[colour], ls=dashes)
        ax.set(title=f"{text}, {method}")
        beside = {"loc": "center left", "bbox_to_anchor": (1, 0.5)} if ax is axes[0] else {}
        ax.legend(fontsize=7, frameon=False, **beside)
    figure.supxlabel("processor seconds of the steps", fontsize=9)
    figure.supylabel("difference, nats/token; below 0 is better", fontsize=9)
    return figure


def lever(variant: str) -> str:
    """What a variant has beside the settings of all, as the page calls it."""
    words = variant.removeprefix(BASE).split()
    return ", ".join(
        word.partition(".")[2].replace("=", " ") if "." in word.partition("=")[0] else word for word in words
    )


def at(curve: Curve, time: float) -> float:
    """The bound at a time, between two validations on a line."""
    for (before, above), (after, below) in pairwise(curve):
        if time <= after:
            return above + (below - above) * (time - before) / (after - before)
    return curve[-1][1]


def reached(curve: Curve, bound: float) -> float | None:
    """Seconds after which a training reaches a bound, between two validations on a line; None where it does not."""
    for (before, above), (after, below) in pairwise(curve):
        if below <= bound:
            return before + (after - before) * (above - bound) / (above - below)
    return None


def main() -> None:
    panels, levers = read("curves.csv"), read("levers.csv")
    for (text, method, _), variants in [*panels.items(), *levers.items()]:
        first, *_ = variants.values()
        for (variant, steps), curve in variants.items():
            (seconds, bound), time = curve[-1], reached(curve, first[-1][1])
            part = "" if time is None else f"{time / first[-1][0]:.2f}"
            print(f"| {text} | {method} | {name(variant)} | {steps:,} | {seconds:.0f} s | {bound:.3f} | {part} |")
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": "zellige"}):
        halves = {panel: variants for panel, variants in panels.items() if panel[2] == ", half an hour"}
        for figure, file in (
            (draw(panels), HERE / "curves.svg"),
            (draw(halves, one_legend=True), HERE.parents[1] / "docs/pictures/half-hour.svg"),
            (draw_levers(levers), HERE / "levers.svg"),
        ):
            figure.savefig(file, metadata={"Date": None}, transparent=True)


if __name__ == "__main__":
    main()
