"""The marks of tokens, and the looks that a terminal and a notebook give them."""

from collections.abc import Sequence
from typing import Literal

from .numbers import escape

Mark = Literal["masked", "new", "shown", "given", "changed", "again"]
Colour = tuple[int, int, int]  # red, green, blue, 0 to 255
Look = Mark | tuple[Colour, Colour | None]  # or the colours of a character and of what is behind it
Line = Sequence[tuple[str, Look]]

UNSEEN = ("masked", "again")  # marks of a token that is not there, or no more
MARKS = {  # (with colour, NO_COLOR)
    "masked": ("2", "2"),
    "new": ("1;36", "1;4"),
    "shown": ("", ""),
    "given": ("34", "4"),
    "changed": ("1;33", "1;4"),
    "again": ("33", "1"),
}
STYLES: dict[str, str] = {  # the same in CSS, for a notebook with a light or a dark page
    "masked": "opacity: 0.4",
    "new": "color: #0a8f8f; font-weight: bold",
    "shown": "",
    "given": "color: #4a7fd4",
    "changed": "color: #c58a00; font-weight: bold",
    "again": "color: #c58a00; opacity: 0.6",
}


def painted(lines: Sequence[Line], styled: bool, hues: int) -> list[str]:
    """Lines of (text, look) with ANSI styles. `hues`: how many colours there are, 0, 256 or 2^24.

    Where there are none, a line made of colours alone is left out.
    """
    out = []
    for line in lines:
        if not hues and line and all(not isinstance(look, str) for _, look in line):
            continue
        parts, before = [], ""
        for text, look in line:
            style = _sgr(look, styled, hues)
            if style != before:
                parts.append(("\x1b[0m" if before else "") + (f"\x1b[{style}m" if style else ""))
            parts.append(escape(text))
            before = style
        out.append("".join(parts) + ("\x1b[0m" if before else ""))
    return out


def _sgr(look: Look, styled: bool, hues: int) -> str:
    if isinstance(look, str):
        return MARKS[look][0 if hues else 1] if styled else ""
    return ";".join(_hue(colour, hues, place) for colour, place in zip(look, ("38", "48")) if hues and colour)


def _hue(colour: Colour, hues: int, place: str) -> str:
    """The colour itself where there are 2^24, else the nearest of the 24 greys or of the 6 x 6 x 6 cube."""
    red, green, blue = colour
    if hues > 256:
        return f"{place};2;{red};{green};{blue}"
    if red == green == blue:
        return f"{place};5;{16 if red < 4 else 231 if red > 246 else 232 + min(round((red - 8) / 10), 23)}"
    cube = [0 if c < 48 else 1 if c < 115 else (c - 35) // 40 for c in colour]
    return f"{place};5;{16 + 36 * cube[0] + 6 * cube[1] + cube[2]}"
