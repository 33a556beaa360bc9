"""A run as a file: one HTML page with the player in it, a GIF of its steps, the last step as PNG or MIDI."""

import base64
import hashlib
import io
import textwrap
from html import escape
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from .. import __version__
from ..errors import InputError
from ..report.page import asset, html_player
from ..report.trace import page_text, piece_layout
from ..show.kinds import of

FRAMES = 40  # of a GIF, evenly spaced
MEDIA = {"html": "text/html", "gif": "image/gif", "png": "image/png", "mid": "audio/midi"}


class Recorded(BaseModel):
    """What the page knows of a run, as tokens: what it shows is made here again, so nothing of it is taken for text of ours."""

    model_config = ConfigDict(extra="forbid", strict=True)
    model: int = Field(0, ge=0)
    format: Literal["html", "gif", "png", "mid"]
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
        if any(len(each) > 1 for each in lengths) or L * frames > 20_000_000:
            raise InputError("the parts of the run do not fit; draw it again")
        flat = [pair if len(pair) == 2 else (-1, -1) for changes in self.changes for pair in changes]
        if any(not (0 <= i < L and -1 <= token < size) for i, token in flat) or any(
            not -1 <= t < size for t in self.start
        ):
            raise InputError(f"the run holds a token that the model does not have; it has 0 to {size - 1:,}")
        out = np.tile(np.array(self.start), (frames, 1))
        for k, changes in enumerate(self.changes):
            for i, token in changes:
                out[k:, i] = token
        return out


def exported(run: Recorded, model: Any) -> tuple[bytes, str]:
    """The file, and its media type. InputError where this kind of data has no such file."""
    kind = of(model.tokenizer)
    rows = run.rows(model.tokenizer.size)
    if run.format == "html":
        content = _page(run, kind, rows).encode()
    elif run.format == "gif":
        content = _gif(kind, rows, run)
    elif run.format == "mid":
        kind.refuse(".mid")
        file = io.BytesIO()
        kind.midi(rows[-1]).save(file=file)  # pyright: ignore[reportAttributeAccessIssue]
        content = file.getvalue()
    else:
        kind.refuse(".png")
        content = kind.png(rows[-1:])
    return content, MEDIA[run.format]


def _page(run: Recorded, kind: Any, rows: np.ndarray) -> str:
    """One file that loads nothing: the report's player and style, and only the script whose hash stands in it may run."""

    def piece(token: int) -> str | None:
        return None if token < 0 else page_text(kind.pieces([token])[0])

    sample = {
        "pieces": [piece(t) or "·" for t in rows[-1].tolist()], "given": run.held, "calls": run.calls, "entropy": run.entropy,
        "start": [piece(t) for t in run.start],
        "changes": [[[i, piece(t)] for i, t in changes] for changes in run.changes],
    }  # fmt: skip
    most = max((bits for bits in run.entropy if bits is not None), default=0.0)
    data = {
        "steps": run.steps, "t": run.t, "total": run.steps[-1], "entropy": most, "kind": piece_layout(kind), "samples": [sample],
    }  # fmt: skip
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


def _gif(kind: Any, rows: np.ndarray, run: Recorded) -> bytes:
    """At most FRAMES steps; the last one stays for two seconds."""
    from PIL import Image

    at = (
        sorted({round(k * (len(rows) - 1) / (FRAMES - 1)) for k in range(FRAMES)})
        if len(rows) > FRAMES
        else range(len(rows))
    )
    if kind.running:
        pictures = [_text_picture(kind, rows[k].tolist(), f"step {run.steps[k]} of {run.steps[-1]}") for k in at]
    else:
        held = np.array(run.held, bool)
        pictures = [Image.open(io.BytesIO(kind.png(rows[k][None], held))).convert("RGB") for k in at]
    size = max(p.width for p in pictures), max(p.height for p in pictures)
    framed = [Image.new("RGB", size, "white") for _ in pictures]
    for frame, picture in zip(framed, pictures):
        frame.paste(picture, (0, 0))
    file = io.BytesIO()
    durations = [120] * (len(framed) - 1) + [2000]
    framed[0].save(file, format="GIF", save_all=True, append_images=framed[1:], duration=durations, loop=0)
    return file.getvalue()


def _text_picture(kind: Any, tokens: list[int], head: str, wide: int = 64) -> Any:
    """A text as a picture, in the typeface that matplotlib brings."""
    from matplotlib import font_manager
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans Mono"), 15)
    text = page_text(kind.tokenizer.decode(tokens))
    lines = [part for line in text.split("\n") for part in (textwrap.wrap(line, wide, drop_whitespace=False) or [""])][
        :60
    ]
    picture = Image.new("RGB", (wide * 9 + 30, 22 * (len(lines) + 1) + 20), "white")
    ink = ImageDraw.Draw(picture)
    ink.text((15, 8), head, fill="#59616b", font=font)
    for i, line in enumerate(lines, 1):
        ink.text((15, 10 + 22 * i), line, fill="#1b1f24", font=font)
    return picture
