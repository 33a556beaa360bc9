"""Images, grey (H, W) or red, green and blue (H, W, 3): half blocks on a terminal, PNG in a file."""

import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..style import UNSEEN, Line, Mark
from .modality import Modality, halves

MASKED = (86, 108, 150)  # a colour that no grey has
SIDE = 112  # pixels of an image in a file, at least: small images are enlarged by a whole number
GAP = 1  # pixels of an image between two of them
NAME = 20  # height of a class's name in a file, in pixels


class Image(Modality):
    name, many = "image", "images"
    suffixes = (".png", ".txt")
    keeps = ("top", "bottom", "left", "right")
    colours = True

    def pixels(self, rows: ArrayLike) -> np.ndarray:
        """(N, H, W, 3) uint8; level i of n is 255 i / (n - 1). A channel still to come is half bright, a pixel all of
        whose channels are has a colour of its own."""
        height, width = self.shape[:2]
        levels = self.rows(rows).reshape(-1, height, width, *self.shape[2:] or (1,))
        absent = self.absent(levels)
        bright = np.where(absent, 128, np.rint(255.0 * levels / max(self.tokenizer.size - 1, 1)))
        if bright.shape[-1] != 3:  # grey, or channels that are no colours: their mean
            bright = np.rint(bright.mean(-1, keepdims=True))
        out = np.broadcast_to(bright, (*levels.shape[:3], 3)).astype(np.uint8)
        out[absent.all(-1)] = MASKED
        return out

    def block(self, row: Sequence[int], marks: Sequence[Mark] | None = None) -> list[Line]:
        """Two pixels a character; an image wider than the terminal at every second (third, ...) pixel."""
        stride = math.ceil(self.shape[1] / 76)
        pixels = self.bitmap(row, marks)[::stride, ::stride].tolist()
        below = [*pixels[1::2], *([[None] * len(pixels[0])] if len(pixels) % 2 else [])]
        return [
            [("▀", (tuple(a), b and tuple(b))) for a, b in zip(top, bottom)] for top, bottom in zip(pixels[::2], below)
        ]

    def bitmap(self, row: Sequence[int], marks: Sequence[Mark] | None = None) -> np.ndarray:
        values = np.array(row)
        if marks is not None:
            values = np.where([mark in UNSEEN for mark in marks], -1, values)
        return self.pixels(values)[0]

    def pieces(self, row: Sequence[int]) -> list[str]:
        """The brightness of each level, 0 to 255."""
        scale = 255 / max(self.tokenizer.size - 1, 1)
        return ["·" if is_absent else str(round(scale * i)) for i, is_absent in zip(row, self.absent(row))]

    def part(self, name: str, row: np.ndarray) -> np.ndarray:
        return halves(self.shape, name)

    def png(self, rows: ArrayLike, fixed: ArrayLike | None = None, captions: Sequence[str] = ()) -> bytes:
        """All images in one; as many in a row as there are captions, else as many as make it square."""
        pixels = self.pixels(rows)
        scale = max(1, math.ceil(SIDE / max(pixels.shape[1:3])))
        return png(tiled(pixels, len(captions) or math.ceil(math.sqrt(len(pixels)))).repeat(scale, 0).repeat(scale, 1))

    def sheet(self, rows: ArrayLike, labels: Sequence[str]) -> bytes:
        """All images in one picture: a line for each class, with its name on the left."""
        from PIL import Image as Pillow
        from PIL import ImageDraw, ImageFont

        pixels = self.pixels(rows)
        names = [*dict.fromkeys(labels)]
        columns, (height, width) = max(map(labels.count, names)), pixels.shape[1:3]
        scale = max(1, math.ceil(SIDE / max(height, width)))
        blank = np.full_like(pixels[:1], 255)
        lines = [pixels[[label == name for label in labels]] for name in names]
        cells = [np.concatenate([line, *[blank] * (columns - len(line))]) for line in lines]
        images = tiled(np.concatenate(cells), columns).repeat(scale, 0).repeat(scale, 1)
        font = ImageFont.load_default(NAME)
        margin = math.ceil(max(font.getlength(name) for name in names)) + NAME
        canvas = Pillow.new("RGB", (margin + images.shape[1], images.shape[0]), "white")
        canvas.paste(Pillow.fromarray(images), (margin, 0))
        for i, name in enumerate(names):
            middle = scale * (i * (height + GAP) + height / 2)
            ImageDraw.Draw(canvas).text((margin - NAME / 2, middle), name, "black", font, anchor="rm")
        return png(np.asarray(canvas))

    def figure(self, rows: ArrayLike, fixed: ArrayLike | None = None, captions: Sequence[str] = ()) -> Any:
        from matplotlib.figure import Figure

        pixels = self.pixels(rows)
        columns = len(captions) or math.ceil(math.sqrt(len(pixels)))
        lines = math.ceil(len(pixels) / columns)
        fig = Figure(figsize=(1.1 * columns, 1.1 * lines + 0.25 * bool(captions)), layout="constrained")
        for i, ax in enumerate(fig.subplots(lines, columns, squeeze=False).flat):
            ax.set_axis_off()
            if i < len(pixels):
                ax.imshow(pixels[i], interpolation="nearest")
            if i < len(captions):
                ax.set_title(captions[i], fontsize=9)
        return fig


def tiled(pixels: np.ndarray, columns: int) -> np.ndarray:
    """(N, H, W, 3) -> one image (H', W', 3): `columns` side by side, white between them."""
    N, H, W, _ = pixels.shape
    lines = math.ceil(N / columns)
    out = np.full((lines * (H + GAP) - GAP, columns * (W + GAP) - GAP, 3), 255, np.uint8)
    for i, image in enumerate(pixels):
        y, x = i // columns * (H + GAP), i % columns * (W + GAP)
        out[y : y + H, x : x + W] = image
    return out


def png(pixels: np.ndarray) -> bytes:
    """(H, W, 3) uint8 as a PNG file (ISO/IEC 15948: signature, IHDR, IDAT, IEND; 8-bit RGB, no filter)."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    height, width, _ = pixels.shape
    raw = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
