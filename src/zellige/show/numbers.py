"""Numbers as they are printed, and text on a terminal: the only place that decides a number of decimals."""

import math
import os
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any


def count(n: float) -> str:
    """`50,258`"""
    return f"{round(n):,}"


def counted(n: int, noun: str, many: str | None = None) -> str:
    """`1 text`, `2 texts`"""
    return f"{count(n)} {noun if n == 1 else many or noun + 's'}"


def scaled(n: float) -> str:
    """Three figures at most, with k, M, B: `569`, `16.4k`, `612k`, `13.1B`."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= 0.9995 * size:
            return f"{n / size:.1f}{unit}" if n < 99.95 * size else f"{n / size:.0f}{unit}"
    return f"{n:.0f}" if n >= 9.95 else f"{n:.1f}"


def token_rate(per_second: float) -> str:
    """`16.4k tokens/s`"""
    return f"{scaled(per_second)} tokens/s"


def flop_rate(per_second: float) -> str:
    """`2.1 GFLOP/s`, `412 TFLOP/s`"""
    units = (("P", 1e15), ("T", 1e12), ("G", 1e9))
    unit, size = next((pair for pair in units if per_second >= 0.9995 * pair[1]), ("M", 1e6))
    rate = per_second / size
    return f"{rate:.0f} {unit}FLOP/s" if rate >= 99.95 else f"{rate:.1f} {unit}FLOP/s"


def parameters(n: int) -> str:
    """`0.80M parameters`, `92.1M parameters`"""
    text = f"{n / 1e6:.2f}M" if 1e4 <= n < 0.995e6 else scaled(n if n < 1e4 else max(n, 1e6))
    return f"{text} parameters"


def duration(seconds: float) -> str:
    """`0.3 s`, `21 s`, `2:58`, `3:51:07`"""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def byte_size(n: float) -> str:
    """Bytes, decimal: `12 kB`, `0.4 MB`, `21.4 GB`."""
    if n < 1000:
        return f"{n:.0f} bytes"
    if n < 1e5:
        return f"{n / 1e3:.0f} kB"
    return f"{n / 1e6:.1f} MB" if n < 999.95e6 else f"{n / 1e9:.1f} GB"


def error(x: float) -> str:
    """The size of an error: `1.8e-14`, and `0` only when it is exactly that."""
    return "0" if x == 0 else f"{x:.1e}"


def percent(share: float) -> str:
    """`71.0%`"""
    return f"{100 * share:.1f}%"


def decimals(perplexity: float) -> int:
    """Of a perplexity: two, or three below 10. Bits and nats have three."""
    return 2 if perplexity >= 10 else 3


def pm(value: float, half: float, places: int = 3) -> str:
    """`1.412 ± 0.006`, `1.412 ± <0.001` when the interval is narrower than the last decimal shows.

    A number of a million or more, such as the perplexity of a model that has learnt nothing, is `5.6e+18 ± 2.1e+18`.
    """
    return " ± ".join(parts(value, half, places))


def parts(value: float, half: float, places: int = 3) -> tuple[str, str]:
    """A value and half its interval, as `pm` has them."""
    finite = math.isfinite(half)
    if max(abs(value), half if finite else 0.0) >= 1e6:
        return f"{value:.1e}", f"{half:.1e}" if finite else "unknown"
    if not finite:
        return f"{value:.{places}f}", "unknown"
    least = 10.0**-places
    value = 0.0 if abs(value) < least / 2 else value  # no -0.000
    return f"{value:.{places}f}", f"<{least:.{places}f}" if half < least / 2 else f"{half:.{places}f}"


def half_width(half: float) -> str:
    """Half an interval alone: `0.006`."""
    return parts(0, half)[1]


SIGN = {"bound": "≤", "exact": "=", "estimate": "≈", "lower": "≥"}


def quantity(value: float, half: float, unit: str, kind: str) -> str:
    """A number as it always stands: sign, value, interval, unit: `≤ 1.412 ± 0.006 bits/char (95%)`.

    `kind` is "bound" (≤), "exact" (=), "estimate" (≈) or "lower" (≥).
    """
    return f"{SIGN[kind]} {pm(value, half)} {unit} (95%)"


def perplexity(value: float, half: float, per: str, kind: str) -> str:
    """`≤ 2.661 ± 0.011 per character`; `kind` as in `quantity`."""
    return f"{SIGN[kind]} {pm(value, half, decimals(value))} per {per}"


# ------------------------------------------------------------------------------------------------------------- text


def columns(rows: Iterable[Sequence[str]], align: str, indent: int = 0, gap: int = 2) -> list[str]:
    """Lines of a table without boxes; `align` has `<` (names) or `>` (numbers) for each column.

    Numbers of a column have the same decimals, so right-aligned they are aligned on the point.
    """
    table = [[str(cell) for cell in row] for row in rows]
    widths = [max((cells(row[i]) for row in table), default=0) for i in range(len(align))]
    lines = []
    for row in table:
        padded_cells = [
            " " * (w - cells(c)) + c if a == ">" else c + " " * (w - cells(c)) for c, w, a in zip(row, widths, align)
        ]
        lines.append((" " * indent + (" " * gap).join(padded_cells)).rstrip())
    return lines


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; the first row is its head."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:]))


def paragraph(head: str, text: str, width: int = 80, **how: Any) -> list[str]:
    """Lines of a text under a head on its left; `how` is of `textwrap.wrap`.

    >>> paragraph("note", "a text of some words", width=24)
    ['  note      a text of', '            some words']
    """
    return textwrap.wrap(text, width, initial_indent=f"  {head:<10}", subsequent_indent=" " * 12, **how)


NARROW = 12  # columns of a name or a quantity, which stays whole


def wrapped(rows: Iterable[Sequence[str]], gap: int = 2, width: int = 80) -> list[str]:
    """`columns` of names, in lines of at most `width`: cells go on in further lines, as few as possible. Words too long
    for that leave the table as it is.

    >>> wrapped([["name", "needs"], ["euler", "a rate: not d3pm"]], width=20)
    ['name   needs', 'euler  a rate: not', '       d3pm']
    """
    table = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(cells, column)) for column in zip(*table)]
    least = [
        w if w <= NARROW else max(cells(word) for cell in column for word in cell.split())
        for w, column in zip(widths, zip(*table))
    ]

    @cache
    def folded(i: int, w: int) -> list[list[str]]:
        return [textwrap.wrap(row[i], w, break_long_words=False, break_on_hyphens=False) or [""] for row in table]

    def height(trial: list[int]) -> int:
        return sum(max(map(len, row)) for row in zip(*(folded(i, w) for i, w in enumerate(trial))))

    gaps = gap * (len(widths) - 1)
    while sum(widths) + gaps > width >= sum(least) + gaps:
        trials = [[w - (i == j) for j, w in enumerate(widths)] for i in range(len(widths)) if widths[i] > least[i]]
        widths = min(trials, key=lambda trial: (height(trial), -max(trial)))
    lines = [zip_longest(*row, fillvalue="") for row in zip(*(folded(i, w) for i, w in enumerate(widths)))]
    return columns([line for row in lines for line in row], "<" * len(widths), gap=gap)


def beside(rows: Sequence[Sequence[str]], first: int, indent: int = 2, gap: int = 2, width: int = 80) -> list[str]:
    """A table of numbers in lines of at most `width`: parts below each other, each with the `first` columns and some
    others.

    >>> beside([["at", "valid", "unique"], ["1", "0.5", "0.9"]], first=1, width=14)
    ['  at  valid', '  1     0.5', '', '  at  unique', '  1      0.9']
    """
    widths = [max(map(cells, column)) for column in zip(*rows)]
    lines, at = list[str](), first
    while at < len(widths):
        end, room = at + 1, width - indent - sum(w + gap for w in widths[:first]) - widths[at]
        while end < len(widths) and room >= gap + widths[end]:
            room -= gap + widths[end]
            end += 1
        part = [[*row[:first], *row[at:end]] for row in rows]
        lines += [*([""] if lines else []), *columns(part, "<" + ">" * (len(part[0]) - 1), indent, gap)]
        at = end
    return lines


def cells(text: str) -> int:
    """Columns a text takes on a terminal (East Asian wide characters take two)."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def escape(text: str, keep: str = "") -> str:
    r"""Control characters as `\x1b`, `\n`, so that a sample can never move the cursor; those in `keep` stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text)


def excerpt(text: str, width: int = 42) -> str:
    """The beginning of a sample on one line, in its quotes."""
    out = ""
    for char in escape(text):
        if cells(out + char) > width:
            break
        out += char
    return f'"{out}"'


def path(p: str | os.PathLike) -> str:
    r"""A path as one would type it: relative inside the working folder, else as given; quoted if the shell needs it.

    With a character that a terminal cannot show it is bash's $'a\nb', so that it is one line, can be read and can be
    typed.
    """
    location = Path(p)
    try:
        text = str(location.resolve().relative_to(Path.cwd())) if location.is_absolute() else str(location)
    except ValueError:
        text = str(location)
    if not text.isprintable():
        characters = (
            "\\" + c if c in "\\'" else escape(c) if ord(c) < 128 or c.isprintable() else _code(c) for c in text
        )
        return f"$'{''.join(characters)}'"
    return shlex.quote(text)


def _code(char: str) -> str:
    r"""`\u009b`, which bash reads as the character; its \x is a byte."""
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
