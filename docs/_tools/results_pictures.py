"""Pictures of the results: of studies, drawn from the tables of their pages, and the curves of the included models.

python docs/_tools/results_pictures.py
"""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from zellige import load
from zellige.models import shipped
from zellige.plugins.report.palette import BLUE, INK, SOFT, STYLE, VERMILION

DOCS, STUDIES = Path(__file__).parents[1], Path(__file__).parents[2] / "studies"
PAGE = DOCS / "evidence" / "results.md"
INCLUDED, STORIES_START = "included-models", 5252  # steps at a constant rate, with which both models began
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[+-]\d+)?")


def table(text: str, heading: str, corner: str) -> list[list[str]]:
    """The rows of the table below a heading whose first cell is `corner`, its header first."""
    part = text.partition(f"# {heading}\n")[2].partition("\n## ")[0]
    rows = part[part.index(f"| {corner} |") :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if not set(row) <= set("|- ")]


def number(cell: str, which: int = 0) -> float:
    return float(NUMBER.findall(cell)[which].replace(",", ""))


def learning(text: str) -> Figure:
    """How far each method is from the exact denoiser, and its samples from the distribution, on 81 sequences."""
    _, *rows = table(text, "A random distribution on 81 sequences", "method")
    rows = sorted(rows, key=lambda row: -number(row[3]))
    names = [row[0].partition(" (")[0] for row in rows]
    figure = Figure(figsize=(6.6, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.plot([number(row[3]) for row in rows], names, "o", color=BLUE, ms=4)
    left.set(title="bound minus exact, nats", xlim=(0, None), xticks=[0, 0.005, 0.01, 0.015])
    right.plot([number(row[4]) for row in rows], names, "o", color=BLUE, ms=4)
    right.axvline(0.0202, color=INK, lw=0.8, ls=(0, (4, 2)))
    right.set(title="total variation (line: exact)", xlim=(0, None))
    return figure


def few_steps(text: str) -> Figure:
    """Distance from the data against the network evaluations of a sample, for teachers and students."""
    figure = Figure(figsize=(5.2, 6.6), layout="constrained")
    axes = figure.subplots(2, 1)
    for ax, corner in zip(axes, ("total variation", "KL from the data, nats")):
        header, *rows = table(text, "Few steps", corner)
        counts = [number(cell) for cell in header[1:]]
        dashes = iter([(0, (2, 1.5)), (0, (6, 2)), (0, (6, 2, 1.5, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2))])
        for name, *cells in rows:
            colour = BLUE if name.startswith("masks") else VERMILION
            style = "-" if "exact" in name else next(dashes)
            ax.plot(counts, [*map(number, cells)], marker="o", ms=3, color=colour, ls=style, label=name)
        ax.set(title=corner, xscale="log", yscale="log", xlabel="network evaluations", xticks=counts)
        ax.set_xticklabels([f"{count:g}" for count in counts])
        ax.minorticks_off()
        ax.set_yticks([0.02, 0.05, 0.1, 0.2, 0.3], ["0.02", "0.05", "0.1", "0.2", "0.3"])
    axes[1].axhline(0.3185, color=INK, lw=0.8)
    axes[1].text(8, 0.33, "total correlation", fontsize=8, color=SOFT, ha="right", va="bottom")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def text8(text: str) -> Figure:
    """Upper bounds of nine methods with one budget, with their intervals."""
    _, *rows = table(text, "Text8, one network and one budget", "run")
    rows = sorted(rows, key=lambda row: -number(row[1]))
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    ax = figure.subplots()
    values, halves = ([number(row[1], i) for row in rows] for i in (0, 1))
    ax.errorbar(values, [row[0] for row in rows], xerr=halves, fmt="o", ms=4, color=BLUE, capsize=3)
    ax.set(title="upper bound, bits/char (95% interval)")
    return figure


def curves(text: str) -> Figure:
    """The validation bound of each included model over its training, with the 95% interval over validation texts."""
    models = {name: load(name) for name in shipped.names()}
    rows = -(-len(models) // 3)
    figure = Figure(figsize=(6.6, 1.9 * rows), layout="constrained")
    axes = figure.subplots(rows, 3, squeeze=False).flatten()
    for ax in axes:
        ax.set_visible(False)
    for ax, (name, model) in zip(axes, models.items()):
        steps, bounds, halves = (list(column) for column in zip(*model.about["curve"]))
        ax.set_visible(True)
        ax.fill_between(
            steps,
            [b - h for b, h in zip(bounds, halves)],
            [b + h for b, h in zip(bounds, halves)],
            color=BLUE,
            alpha=0.15,
            lw=0,
        )
        ax.plot(steps, bounds, "o-", ms=3, color=BLUE)
        ax.set_title(f"{name}: ≤ {bounds[-1]:.3f}", loc="left")
        ax.set(ylabel=model.unit, xlim=(0, None))
        ax.xaxis.set_major_locator(MaxNLocator(3, integer=True))
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    figure.supxlabel("training steps", fontsize=9)
    return figure


def stories(text: str) -> Figure:
    """Validation of three methods against the tokens read: `stories-mdlm` begins where `stories` stopped a constant rate."""
    logs = {
        "stories": shipped.FOLDER / "stories" / "log.csv",
        "stories-mdlm": shipped.FOLDER / "stories-mdlm" / "log.csv",
        "ar": STUDIES / INCLUDED / "ar.csv",
    }
    rows = {name: [*csv.DictReader(log.open())] for name, log in logs.items()}
    before = max(int(row["tokens"]) for row in rows["stories"] if int(row["step"]) <= STORIES_START)
    figure = Figure(figsize=(6.6, 2.8), layout="constrained")
    ax = figure.subplots()
    for (name, log), (colour, dash) in zip(rows.items(), ((BLUE, "-"), (VERMILION, (0, (6, 2))), (INK, (0, (2, 1.5))))):
        seen = [row for row in log if row["validation"]]
        x = [(int(row["tokens"]) + before * (name == "stories-mdlm")) / 1e6 for row in seen]
        low, high, y = (
            [float(row[key]) for row in seen] for key in ("validation_low", "validation_high", "validation")
        )
        ax.fill_between(x, low, high, color=colour, alpha=0.12, lw=0)
        ax.plot(
            x, y, marker="o", ms=3, color=colour, ls=dash, label=f"{name}: {'=' if name == 'ar' else '≤'} {y[-1]:.3f}"
        )
    ax.set(ylabel="nats/token, validation", xlabel="million tokens read", xlim=(0, None))
    ax.legend(frameon=False, fontsize=8)
    return figure


PICTURES: dict[Path, tuple[Path, Callable[[str], Figure]]] = {
    STUDIES / "learning" / "learning.svg": (STUDIES / "learning" / "README.md", learning),
    STUDIES / "few-steps" / "few-steps.svg": (STUDIES / "few-steps" / "README.md", few_steps),
    STUDIES / "text8" / "text8.svg": (STUDIES / "text8" / "README.md", text8),
    DOCS / "pictures" / "results-curves.svg": (PAGE, curves),
    STUDIES / INCLUDED / "stories.svg": (STUDIES / INCLUDED / "README.md", stories),
}  # a picture: the page that it is drawn from, and by what


def main() -> None:
    style: dict[Any, Any] = {**STYLE, "svg.hashsalt": "zellige"}
    with matplotlib.rc_context(style):
        for picture, (page, draw) in PICTURES.items():
            draw(page.read_text(encoding="utf-8")).savefig(picture, metadata={"Date": None}, transparent=True)


if __name__ == "__main__":
    main()
