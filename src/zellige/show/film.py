"""The steps of a draw as a film, a picture a step: GIF, or MP4 through PyAV."""

import importlib
import io
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..base.errors import not_installed
from .kinds import Modality
from .numbers import escape

FRAMES = 40  # of a film, about evenly spaced
STEP, LAST = 120, 2000  # milliseconds that a picture stays, and the last one


def require_film(suffix: str, what: str) -> None:
    """InputError unless such a film can be made here; `what` asks for it: "`out` x.mp4"."""
    if suffix == ".mp4":
        try:
            importlib.import_module("av")
        except ImportError:
            raise not_installed(what, "av", "video", ", or take .gif") from None


def film(kind: Modality, steps: Iterable[tuple[str, np.ndarray]], suffix: str, held: np.ndarray | None = None) -> bytes:
    """The file.

    Args:
        steps: of each picture a heading, and the rows (N, L) in it, -1 where nothing is yet.
        suffix: .gif, or .mp4, which `require_film` has let pass.
        held: (L,) or (N, L) bool, what was given and not drawn.
    """
    from PIL import Image

    pictures = [_picture(kind, rows, head, held) for head, rows in steps]
    size = max(p.width for p in pictures), max(p.height for p in pictures)
    size = size[0] + size[0] % 2, size[1] + size[1] % 2  # the codec has no odd ones
    frames_ = [Image.new("RGB", size, "white") for _ in pictures]
    for frame, picture in zip(frames_, pictures):
        frame.paste(picture, (0, 0))
    return _mp4(frames_) if suffix == ".mp4" else _gif(frames_)


def _gif(pictures: Sequence[Any]) -> bytes:
    file = io.BytesIO()
    durations = [STEP] * (len(pictures) - 1) + [LAST]
    pictures[0].save(file, format="GIF", save_all=True, append_images=pictures[1:], duration=durations, loop=0)
    return file.getvalue()


def _mp4(pictures: Sequence[Any]) -> bytes:
    """An MP4 (AVC), as every browser plays it; pictures stay as long as in a GIF."""
    av, file, rate = importlib.import_module("av"), io.BytesIO(), 25
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("h264", rate=rate, options={"crf": "18"})
        stream.width, stream.height, stream.pix_fmt = *pictures[0].size, "yuv420p"
        for i, picture in enumerate(pictures):
            frame = av.VideoFrame.from_image(picture)
            for _ in range((STEP if i < len(pictures) - 1 else LAST) * rate // 1000):
                container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()


def _picture(kind: Modality, rows: np.ndarray, head: str, held: np.ndarray | None) -> Any:
    """A step: rows as their kind draws them, texts one below another in the typeface that matplotlib brings."""
    from matplotlib import font_manager
    from PIL import Image, ImageDraw, ImageFont

    if not kind.running:
        return Image.open(io.BytesIO(kind.png(rows, held))).convert("RGB")
    wide, limit = 64, 60
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans Mono"), 15)
    texts = [escape(kind.tokenizer.decode(row.tolist()), keep="\n\t").split("\n") for row in rows]
    lines = [
        piece
        for i, paragraphs in enumerate(texts)
        for line in ([""] if i else []) + paragraphs
        for piece in textwrap.wrap(line, wide, drop_whitespace=False) or [""]
    ][:limit]
    picture = Image.new("RGB", (wide * 9 + 30, 22 * (len(lines) + 1) + 20), "white")
    ink = ImageDraw.Draw(picture)
    ink.text((15, 8), head, fill="#59616b", font=font)
    for i, line in enumerate(lines, 1):
        ink.text((15, 10 + 22 * i), line, fill="#1b1f24", font=font)
    return picture
