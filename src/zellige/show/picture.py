"""Tokens appearing: frames of a sample, drawn in place."""

import contextlib
import itertools
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .numbers import cells, count, escape
from .progress import gauge
from .style import MARKS, UNSEEN, Line, Mark, painted
from .terminal import Terminal


@dataclass(frozen=True)
class Picture:
    """One frame of a sample: `pieces[i]` is the text of token i, `marks[i]` what happened to it."""

    head: str  # "sample 1 of 2   step 22/64   t = 0.66"
    pieces: Sequence[str]
    marks: Sequence[Mark]
    foot: str  # "22 network evaluations  11.8k tokens/s"
    block: Sequence[Line] | None = None  # instead of the pieces one after another: lines that stay as they are
    brackets: bool = False  # whether they stand round what is not given
    total: int | None = None  # tokens of a text that grows: these are its beginning, and what came last is to be seen
    pixels: np.ndarray | None = None  # (H, W, 3) uint8, in place of the block where the terminal shows pixels


class Watch:
    """Draws pictures in place, at most 12 a second and 20 lines high (a block: as high as the terminal); the last one
    stays unless `keep` is False.

    Where nothing can move, the pictures are printed one after another. An image is shown in pixels where the terminal
    can, over blank lines.
    """

    INDENT = "  "  # before the lines of text
    RATE = 12.0
    HIGH = 20  # lines
    numbers = itertools.count()

    def __init__(self, terminal: Terminal, *, hold: float = 0.0, keep: bool = True, clock=time.monotonic):
        self.terminal, self.keep, self.clock = terminal, keep, clock
        self.hold = hold  # seconds that a picture stays at least, so that a fast model can be followed
        self.picture: Picture | None = None
        self.drawn = -math.inf
        self._stack = contextlib.ExitStack()  # closes `_live`
        self._live: Any = None
        self._number = (os.getpid() << 8) + next(self.numbers)  # of the picture: other images on the screen stay

    def __enter__(self) -> "Watch":
        return self

    def draw(self, picture: Picture, *, last: bool = False) -> None:
        """Show a picture; between two of them at least 1/12 s pass, those in between are left out, never the last."""
        self.picture = picture
        if self.terminal.quiet:
            return
        if not self.terminal.motion:
            self.terminal.say("\n".join(self.lines(picture)), painted=True)
            return
        if self._live is None:
            draw = lambda: "\n".join(self.lines(self.picture))  # noqa: E731
            live = self.terminal.live(draw, over=self._pixels, keep=self.keep, every=0)
            self._live = self._stack.enter_context(live)
        now = self.clock()
        if last or now - self.drawn >= 1 / self.RATE:
            self._live.refresh()
            self.drawn = now
        if self.hold and not last:
            time.sleep(self.hold)

    def __exit__(self, *failure) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()
        self._live = None

    def lines(self, picture: Picture | None) -> list[str]:
        """The picture as lines, with ANSI styles where there are any."""
        if picture is None:
            return []
        width = min(self.terminal.width, 80)
        high = max(self.terminal.height - 1, 4) if self.terminal.motion else None
        if picture.pixels is not None and (graphics := self.terminal.graphics):
            text, limit = [""] * graphics.rows(picture.pixels, *self._room), self._room[1]
        elif picture.block is None:
            text, limit = self._wrap(picture, width - len(self.INDENT) - 1), min(self.HIGH, high or self.HIGH) - 2
        else:
            text = painted(picture.block, self.terminal.styled and self.terminal.unicode, self.terminal.hues)
            limit = len(text) if high is None else high - 2
        if len(text) > limit:
            left = f"… {len(text) - limit + 1} lines"
            grown = picture.total is not None
            text = [f"{left} before", *text[1 - limit :]] if grown else [*text[: limit - 1], f"{left} more"]
        new = sum(mark == "new" for mark in picture.marks)
        mask_count = sum(mark in UNSEEN for mark in picture.marks)
        shown_count, total = len(picture.marks) - mask_count, picture.total or max(len(picture.marks), 1)
        has_style = self.terminal.styled and self.terminal.unicode
        counts = (
            f"{count(shown_count)} of {count(total)} revealed{'' if has_style or not new else f', {count(new)} new'}"
        )
        foot = f"{counts}  {picture.foot}".rstrip()
        room = min(22, width - 2 - len(foot))
        if room >= 5:
            dim = (lambda s: self.terminal.paint(s, "dim")) if has_style else (lambda s: s)
            foot = f"{gauge(shown_count / total, room, not has_style, dim)} {foot}"
        return [picture.head, *(self.INDENT + line for line in text), foot]

    @property
    def _room(self) -> tuple[int, int]:
        """Columns and lines that there are for pixels, between head and foot."""
        lines = min(self.HIGH, max(self.terminal.height - 1, 4)) - 2
        return min(self.terminal.width, 80) - len(self.INDENT) - 1, lines

    def _pixels(self) -> str:
        """Escape sequences that draw the picture's pixels over its blank lines, and move back to the end of the foot;
        "" without pixels."""
        pixels = None if self.picture is None else self.picture.pixels
        if pixels is None or (graphics := self.terminal.graphics) is None:
            return ""
        rows, sequence = graphics.rows(pixels, *self._room), graphics.draw(pixels, *self._room, self._number)
        return f"\x1b7\x1b[{rows}A\r\x1b[{len(self.INDENT)}C{sequence}\x1b8"

    def _wrap(self, picture: Picture, width: int) -> list[str]:
        """Cut into lines by cells, not words: a token that appears must not move the others."""
        has_style = self.terminal.styled and self.terminal.unicode
        lines, used, open_style = [""], 0, ""
        for text, style in self._runs(picture, has_style):
            for char in text:
                wide = cells(char)
                if char == "\n" or used + wide > width:
                    lines[-1] += "\x1b[0m" if open_style else ""
                    lines, used, open_style = [*lines, ""], 0, ""
                    if char == "\n":
                        continue
                if style != open_style:
                    lines[-1] += ("\x1b[0m" if open_style else "") + (f"\x1b[{style}m" if style else "")
                    open_style = style
                lines[-1] += char
                used += wide
        lines[-1] += "\x1b[0m" if open_style else ""
        return lines

    def _runs(self, picture: Picture, styled: bool) -> Iterator[tuple[str, str]]:
        """Text of each token with its style, with brackets around what was sampled, if requested."""
        inside = False
        for piece, mark in zip(picture.pieces, picture.marks):
            if picture.brackets and inside is (mark == "given"):
                inside = not inside
                yield "[" if inside else "]", ""
            style = MARKS[mark][0 if self.terminal.colored else 1] if styled else ""
            yield "·" if mark in UNSEEN else escape(piece, keep="\n"), style
        if inside:
            yield "]", ""
