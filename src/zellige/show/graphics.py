"""Pictures on a terminal as pixels: by the kitty graphics protocol, or as sixels.

kitty: https://sw.kovidgoyal.net/kitty/graphics-protocol. Sixels: DEC, VT330/VT340 Programmer Reference Manual, vol. 2,
ch. 14.
"""

import base64
import itertools
import os
import re
import select
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .kinds.image import png

CELL = 10, 20  # pixels of a character, across and down, where a terminal does not say (those of a VT340)
PATIENCE = 0.5  # seconds that an answer is waited for
KITTY_TERMS, KITTY_PROGRAMS = ("xterm-kitty", "xterm-ghostty"), ("ghostty", "WezTerm")


@dataclass(frozen=True)
class Graphics:
    """A terminal's protocol for pixels, and the size of its characters in pixels, (across, down)."""

    protocol: Literal["kitty", "sixel"]
    cell: tuple[int, int] = CELL

    def rows(self, pixels: np.ndarray, columns: int, most: int) -> int:
        """Lines that `draw` takes of a picture (H, W, 3), in so many columns, `most` at most."""
        stride, scale = self._fit(pixels, columns, most)
        return -(-len(pixels[::stride]) * scale // self.cell[1])

    def draw(self, pixels: np.ndarray, columns: int, most: int, number: int) -> str:
        """The sequence that shows a picture where the cursor stands, as large as whole pixels of it go.

        number: of the picture; drawn again it takes the place of what it was.
        """
        stride, scale = self._fit(pixels, columns, most)
        sample = pixels[::stride, ::stride]
        if self.protocol == "sixel":
            return sixel(sample, scale)
        return kitty(sample.repeat(scale, 0).repeat(scale, 1), self.rows(pixels, columns, most), number)

    def _fit(self, pixels: np.ndarray, columns: int, most: int) -> tuple[int, int]:
        """(every, scale): each so manieth pixel is shown, so much enlarged; one of the two is 1."""
        (across, down), (height, width) = self.cell, pixels.shape[:2]
        stride = max(1, -(-height // (most * down)), -(-width // (columns * across)))
        return stride, max(1, min(most * down // height, columns * across // width))


def graphics_of(environ: Mapping[str, str], descriptor: int | None) -> Graphics | None:
    """Protocol for pixels of the terminal behind a file descriptor, from its environment or its answer;
    None without one."""
    in_tmux = "TMUX" in environ or environ.get("TERM", "").startswith(("screen", "tmux"))  # passes no kitty graphics on
    kitty_here = environ.get("TERM") in KITTY_TERMS or environ.get("TERM_PROGRAM") in KITTY_PROGRAMS
    if not in_tmux and (kitty_here or "KITTY_WINDOW_ID" in environ):
        return Graphics("kitty")
    answer = "" if descriptor is None else query(descriptor)
    attributes = re.search(r"\x1b\[\?([\d;]+)c", answer)
    if attributes is None or "4" not in attributes[1].split(";")[1:]:
        return None
    size = re.search(r"\x1b\[6;(\d+);(\d+)t", answer)
    down, across = (int(size[1]), int(size[2])) if size else CELL[::-1]
    return Graphics("sixel", (across or CELL[0], down or CELL[1]))


def query(descriptor: int, patience: float = PATIENCE) -> str:
    """Query of a terminal: the size of a character, and its attributes (DA1, with 4 for sixels).

    "" where nobody answers in time, or where asking would stop a process in the background.
    """
    try:
        import termios  # not on Windows
        import tty

        terminal = os.open(os.ttyname(descriptor), os.O_RDWR | os.O_NOCTTY)
    except (ImportError, OSError):
        return ""
    answer, before = b"", None
    try:
        if os.tcgetpgrp(terminal) != os.getpgrp():
            return ""
        before = termios.tcgetattr(terminal)
        tty.setcbreak(terminal, termios.TCSANOW)
        os.write(terminal, b"\x1b[16t\x1b[c")
        end = time.monotonic() + patience
        while not answer.endswith(b"c") and select.select([terminal], [], [], max(0.0, end - time.monotonic()))[0]:
            answer += os.read(terminal, 256)
    except (OSError, termios.error):
        return ""
    finally:
        if before is not None:  # an answer that comes late is not to be taken for typing
            termios.tcsetattr(terminal, termios.TCSANOW if answer.endswith(b"c") else termios.TCSAFLUSH, before)
        os.close(terminal)
    return answer.decode("ascii", "replace")


def kitty(pixels: np.ndarray, rows: int, number: int) -> str:
    """A picture (H, W, 3) over so many lines, as PNG in pieces; the cursor stays, and no answer comes."""
    whole = base64.b64encode(png(pixels)).decode()
    pieces = [whole[i : i + 4096] for i in range(0, len(whole), 4096)]
    head = f"a=T,f=100,i={number},p=1,q=2,C=1,r={rows},"
    return "".join(
        f"\x1b_G{'' if i else head}m={int(i < len(pieces) - 1)};{piece}\x1b\\" for i, piece in enumerate(pieces)
    )


def sixel(pixels: np.ndarray, scale: int = 1) -> str:
    """A picture (H, W, 3), each pixel of it `scale` across and down, in 256 colours at most.

    Bands of six lines; in a band, for each colour: which of the six have it, a character a column, `!n` before one that
    stands n times. `$` goes back to the left end, `-` to the next band.
    """
    from PIL import Image

    image = Image.fromarray(pixels).quantize(256, dither=Image.Dither.NONE)
    palette = np.rint(np.array(image.getpalette()).reshape(-1, 3) / 2.55).astype(int).tolist()  # in percent
    index = np.asarray(image).repeat(scale, 0)
    height, width = len(index), index.shape[1] * scale
    out = [f'\x1bP0;1q"1;1;{width};{height}', *(f"#{i};2;{r};{g};{b}" for i, (r, g, b) in enumerate(palette))]
    for top in range(0, height, 6):
        band = index[top : top + 6]
        for colour in np.unique(band).tolist():
            bits = ((band == colour) << np.arange(len(band))[:, None]).sum(0).tolist()
            runs = ((63 + value, scale * len(list(same))) for value, same in itertools.groupby(bits))
            out.append(f"#{colour}" + "".join(f"!{times}{chr(sign)}" for sign, times in runs) + "$")
        out.append("-")
    return "".join(out) + "\x1b\\"
