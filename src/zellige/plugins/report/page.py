"""The parts of the page as HTML: plain data in, text out. Every string that is not ours goes through `esc`."""

import base64
import hashlib
import io
import json
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from html import escape as esc
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from zellige import __version__

from .palette import COLOURS
from .trace import page_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def asset(name: str) -> str:
    return (files(__name__.rpartition(".")[0]) / "assets" / name).read_text(encoding="utf-8")


def fill_template(name: str, **parts: str) -> str:
    return string.Template(asset(name)).substitute(parts)


def page(title: str, facts: Sequence[str], sections: Mapping[str, str]) -> str:
    """The whole file. Only the script whose hash stands in the page may run, so nothing in a sample ever does."""
    script = asset("player.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return fill_template(
        "page.html",
        title=esc(title),
        facts=" ".join(f"<span>{fact}</span>" for fact in facts),
        css=asset("report.css"),
        script=script,
        script_hash=f"'sha256-{digest}'",
        version=__version__,
        **sections,
    )


def html_note(text: str) -> str:
    return f'<p class="note">{esc(text)}</p>'


def html_line(parts: Iterable[str]) -> str:
    return '<p class="line">' + "".join(f"<span>{esc(part)}</span>" for part in parts) + "</p>"


def html_code(command: str) -> str:
    return f"<pre>{esc(command)}</pre>"


def html_table(rows: Iterable[Sequence[str]], header: Sequence[str] = (), numbers: bool = True) -> str:
    """Rows of text; `numbers`: every column but the first is right-aligned."""
    kind = lambda i: ' class="num"' if numbers and i else ""  # noqa: E731
    head = "".join(f"<th{kind(i)}>{esc(c)}</th>" for i, c in enumerate(header))
    body = "\n".join(
        "<tr>" + "".join(f"<td{kind(i)}>{esc(c)}</td>" for i, c in enumerate(row)) + "</tr>" for row in rows
    )
    opening = '<table class="numbers">' if numbers else "<table>"
    return f"{opening}{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def html_folded(summary: str, inside: str) -> str:
    return f"<details><summary>{esc(summary)}</summary>{inside}</details>"


# ---------------------------------------------------------------------------------------------------- figures
def html_figure(fig: Figure, key: str, title: str, text: str, numbers: str = "") -> str:
    """A figure as inline SVG with title and description, and its numbers as a folded table. `key` makes ids unique.

    The table is made of the series that have a label, unless it is given as `numbers`.
    """
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": key}):
        file = io.StringIO()
        fig.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = re.sub(r"<metadata>.*?</metadata>", "", file.getvalue()[file.getvalue().index("<svg") :], flags=re.S)
    svg = re.sub(r'\bid="', f'id="{key}-', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{key}-", svg)
    for name, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    opening, rest = svg.split(">", 1)
    opening = re.sub(r' (width|height|version|xmlns(:xlink)?)="[^"]*"', "", opening)
    svg = (
        f'{opening} xmlns:xlink="http://www.w3.org/1999/xlink" role="img" aria-labelledby="{key}-title {key}-desc">'
        f'<title id="{key}-title">{esc(title)}</title><desc id="{key}-desc">{esc(text)}</desc>{rest}'
    )
    series = [numbers] if numbers else [table for ax in fig.axes if (table := _table_of(ax))]
    tables = "".join(f'<div class="scroll">{table}</div>' for table in series)
    caption = f"<figcaption><b>{esc(title)}.</b> {esc(text)}</figcaption>"
    return (
        f'<figure><div class="plot">{svg}</div>'
        + f"{caption}{html_folded('the numbers', tables) if tables else ''}</figure>"
    )


def _table_of(ax: "Axes", rows: int = 40) -> str:
    """The series of one pair of axes, merged on x and thinned; "" where nothing is labelled."""
    series: dict[str, dict[float, float]] = {}

    def add(label: str, x: ArrayLike, y: ArrayLike) -> None:
        x, y = np.asarray(x, float), np.asarray(y, float)
        keep = np.unique(np.linspace(0, len(x) - 1, min(rows, len(x))).astype(int)) if len(x) else []
        series[label] = {float(x[i]): float(y[i]) for i in keep}

    for bars in ax.containers:
        if isinstance(bars, ErrorbarContainer):
            label, (line, _, (whiskers, *_)) = str(bars.get_label()), bars.lines
            add(label, *line.get_data())
            ends = np.array([segment[:, 1] for segment in whiskers.get_segments()])
            add(f"{label}, low", line.get_xdata(), ends[:, 0])
            add(f"{label}, high", line.get_xdata(), ends[:, 1])
    for line in ax.get_lines():
        if not str(line.get_label()).startswith("_"):
            add(str(line.get_label()), *line.get_data())
    for image in ax.get_images():
        for i, row in enumerate(np.ma.filled(np.ma.asarray(image.get_array(), float), np.nan)):
            add(f"{ax.get_ylabel()} {i + 1}", np.arange(len(row)), row)
    if not series:
        return ""
    at = sorted({x for points in series.values() for x in points})
    cell = lambda v: "" if v is None else "-" if np.isnan(v) else f"{v:.5g}"  # noqa: E731
    body = [[f"{x:.6g}", *(cell(points.get(x)) for points in series.values())] for x in at]
    return html_table(body, [ax.get_xlabel() or "step", *series])


# ---------------------------------------------------------------------------------------------------- sections
def html_player(data: Mapping[str, Any], dropped: int = 0, stills: str = "") -> str:
    """The player, and for print and without scripts five frames of the first sample; `data` as `record` gives it.

    `stills` are these frames, where they are no text.
    """
    end = len(data["steps"]) - 1
    first = data["samples"][0]
    texts = [
        f"<p>step {data['steps'][k]} of {data['total']}, t {data['t'][k]:.2f}</p>"
        f'<div class="text">{esc(text_at(first, k))}</div>'
        for k in sorted({round(end * part) for part in (0, 0.25, 0.5, 0.75, 1)})
    ]
    note = (
        f" {dropped} more {'was' if dropped == 1 else 'were'} left out to keep the page under 2 MB." if dropped else ""
    )
    return fill_template(
        "player.html",
        options="".join(
            f'<option value="{i}">{i + 1}{esc(", class " + sample["class"]) if "class" in sample else ""}</option>'
            for i, sample in enumerate(data["samples"])
        ),
        last=str(end),
        stills=stills or "".join(texts),
        note=esc(f"Keys: Space, Left and Right (with Shift ten steps), Home, End. {data.get('note', '')}{note}"),
        data=json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"),
    )


def text_at(sample: Mapping[str, Any], frame: int) -> str:
    """The text of a sample in one frame, a dot for each character that is masked (the player's `shown`)."""
    if "changes" in sample:
        now = list(sample["start"])
        for changes in sample["changes"][1 : frame + 1]:
            for i, piece in changes:
                now[i] = piece
    else:
        now = [p if r is not None and r <= frame else None for p, r in zip(sample["pieces"], sample["reveal"])]
    return "".join("·" * len(final) if piece is None else piece for piece, final in zip(now, sample["pieces"]))


def html_samples(columns: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Samples of several validations side by side; what was given is marked."""

    def one(row: Mapping[str, Any]) -> str:
        text, prompt = page_text(str(row.get("text", ""))), page_text(str(row.get("prompt") or ""))
        start = f'<span class="given">{esc(prompt)}</span>' if prompt and text.startswith(prompt) else ""
        rest = esc(text.removeprefix(prompt) if start else text)
        label = f"{row['class']}, " if row.get("class") else ""
        how = esc(f"{label}seed {row.get('seed', '-')}, {row.get('calls', '-')} network evaluations")
        return (
            f'<p class="line"><span class="note">{how}</span><button class="copy">copy</button></p>'
            f'<div class="text">{start}{rest}</div>'
        )

    parts = [f"<div><h3>{esc(name)}</h3>{''.join(map(one, rows))}</div>" for name, rows in columns.items()]
    return f'<div class="pair">{"".join(parts)}</div>'


def html_picture(png: bytes, text: str, title: str = "") -> str:
    """A PNG in the page, with what it shows."""
    head = f"<b>{esc(title)}.</b> " if title else ""
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    caption = f"<figcaption>{head}{esc(text)}</figcaption>"
    return f'<figure class="picture"><img src="{source}" alt="{esc(title or text)}">{caption}</figure>'


def html_pictures(columns: Mapping[str, bytes]) -> str:
    """The samples of several validations side by side, as pictures."""
    return (
        f'<div class="pair">{"".join(f"<div>{html_picture(png, name)}</div>" for name, png in columns.items())}</div>'
    )


def flat(tree: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """A tree of settings as (dotted name, text) rows."""
    rows: list[tuple[str, str]] = []
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            rows += flat(value, f"{before}{key}.")
        else:
            rows.append(
                (
                    f"{before}{key}",
                    value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str),
                )
            )
    return rows
