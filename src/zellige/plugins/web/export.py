"""A run as a file: one HTML page with the player in it, a film of its steps, the last step as PNG or MIDI."""

import base64
import hashlib
import io
from collections.abc import Iterator
from html import escape
from typing import Any, Literal

import numpy as np
from pydantic import Field

from zellige import __version__
from zellige.base.errors import InputError
from zellige.models.model import Model
from zellige.plugins.report.page import asset, html_player
from zellige.plugins.report.trace import page_text, piece_layout
from zellige.show.film import FRAMES, film, require_film
from zellige.show.kinds import of
from zellige.show.kinds.modality import Modality

from .body import Body
from .drawn import Texts
from .worker import pause

MEDIA = {"html": "text/html", "gif": "image/gif", "mp4": "video/mp4", "png": "image/png", "mid": "audio/midi"}


class Recorded(Body):
    """A run as the page knows it, in tokens: every text is made of them here again,
    so no text of the page is trusted."""

    model: int = Field(0, ge=0)
    format: Literal["html", "gif", "mp4", "png", "mid"]
    title: str = Field("", max_length=200)
    facts: list[str] = Field([], max_length=20)
    steps: list[int] = Field(min_length=1, max_length=5_000)
    t: list[float]
    calls: list[int]
    held: list[int]
    start: list[int]
    changes: list[list[list[int]]]
    entropy: list[float | None]

    def rows(self, size: int) -> np.ndarray:
        """(frames, L) tokens, -1 where nothing is yet. InputError where the parts do not fit."""
        L, frames = len(self.start), len(self.steps)
        lengths = {len(self.held), len(self.entropy), L}, {len(self.t), len(self.calls), len(self.changes), frames}
        if any(len(length) > 1 for length in lengths) or L * frames > 20_000_000:
            raise InputError("the parts of the run do not fit; draw it again")
        flat = [pair if len(pair) == 2 else (-1, -1) for changes in self.changes for pair in changes]
        if any(not (0 <= i < L and -1 <= token < size) for i, token in flat) or any(
            not -1 <= t < size for t in self.start
        ):
            raise InputError(f"the run holds a token that the model does not have; it has 0 to {size - 1:,}")
        out = np.empty((frames, L), np.int32)
        row = np.array(self.start, np.int32)
        for k, changes in enumerate(self.changes):
            pause()
            for i, token in changes:
                row[i] = token
            out[k] = row
        return out


def require(kind: Modality, format: str) -> None:
    """InputError unless a run of this kind of data can be saved in a format of `MEDIA`,
    here and with what is installed."""
    if format in ("gif", "mp4"):
        require_film(f".{format}", f"a film as .{format}")
    elif format != "html":
        kind.refuse(f".{format}", f"a run as .{format}")


def formats(kind: Modality) -> list[dict[str, Any]]:
    """The formats of this kind of data, {name, missing}; missing: the sentence that says what to install first,
    or None."""

    def missing(format: str) -> str | None:
        try:
            return require(kind, format)
        except InputError as error:
            return str(error)

    names = [name for name in MEDIA if name in ("html", "gif", "mp4") or f".{name}" in kind.suffixes]
    return [{"name": name, "missing": missing(name)} for name in names]


def exported(run: Recorded, model: Model) -> tuple[bytes, str]:
    """The file, and its media type. InputError where this kind of data has no such file."""
    kind = of(model.tokenizer)
    require(kind, run.format)
    rows = run.rows(model.tokenizer.size)
    if run.format == "html":
        content = _page(run, model, rows).encode()
    elif run.format in ("gif", "mp4"):
        at = np.linspace(0, len(rows) - 1, min(FRAMES, len(rows))).round().astype(int)
        content = film(kind, _pictures(run, rows, at), f".{run.format}", np.array(run.held, bool))
    elif run.format == "mid":
        file = io.BytesIO()
        kind.midi(rows[-1]).save(file=file)  # pyright: ignore[reportAttributeAccessIssue]
        content = file.getvalue()
    else:
        content = kind.png(rows[-1:])
    return content, MEDIA[run.format]


def _pictures(run: Recorded, rows: np.ndarray, at: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    for k in at:
        pause()
        yield f"step {run.steps[k]} of {run.steps[-1]}", rows[k][None]


def _page(run: Recorded, model: Model, rows: np.ndarray) -> str:
    """One file that loads nothing: the report's player and style,
    and only the script whose hash stands in it may run."""

    texts, changes = Texts(model), []
    kind = texts.kind
    start = before = texts.row(run.start)
    for row, moved in zip(rows, run.changes):
        pause()
        now = texts.row(row.tolist()) if kind.running else before
        positions = {i for i, _ in moved} | {i for i, pair in enumerate(zip(now, before)) if pair[0] != pair[1]}
        changes.append([[i, now[i] if kind.running else texts.of(row[i])] for i in sorted(positions)])
        before = now
    final = texts.row(rows[-1].tolist())
    sample = {
        "pieces": ["·" if text is None else text for text in final],
        "given": run.held,
        "calls": run.calls,
        "entropy": run.entropy,
        "start": start,
        "changes": changes,
    }
    most = max((bits for bits in run.entropy if bits is not None), default=0.0)
    data = {
        "steps": run.steps,
        "t": run.t,
        "total": run.steps[-1],
        "entropy": most,
        "kind": piece_layout(kind),
        "samples": [sample],
    }
    script = asset("player.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    title = escape(page_text(run.title)) or "Zellige"
    facts = " ".join(f"<span>{escape(page_text(fact))}</span>" for fact in run.facts)
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title><style>{asset("report.css")}</style></head>
<body><header><h1>{title}</h1><p class="facts">{facts}</p></header>
<main><section class="wide">{html_player(data)}</section></main>
<footer>Zellige {__version__}. One file: nothing is loaded from anywhere, nothing is sent.</footer>
<script>{script}</script></body></html>
"""
