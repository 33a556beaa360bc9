"""Interface of every kind of data."""

from collections.abc import Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...base.errors import InputError, either
from ...data.tokenizer_base import Tokenizer
from ..numbers import cells
from ..style import UNSEEN, Line, Mark

FILMS = (".gif", ".mp4")  # endings of files of `show.film`, which every kind has


class Modality:
    """Display of the sequences of one kind of data.

    Rows are (N, L) or (L,) integers; one that is no token is still to come. `given` is (N, L) or (L,) bool: what was
    not drawn but given. `captions` has a word for each row.

    Attributes:
        name: as the tokenizer has it; many: what to call several.
        suffixes: endings of the files that `save` writes, the usual one first.
        keeps: what `given` can keep of a row, the usual one first.
        colours: nothing of it can be seen without colours.
        running: rows are running text: a prompt begins them, gaps are typed.
        whole: a text is all of a row, which is filled up with the token that ends it.
        measured: free samples have metrics of their own, which take what is `known` of them.
    """

    name: str = ""
    many: str = ""
    suffixes: tuple[str, ...] = (".txt",)
    keeps: tuple[str, ...] = ()
    colours: bool = False
    running: bool = False
    whole: bool = False
    measured: bool = False

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.shape: tuple[int, ...] = tokenizer.shape

    # as text ---------------------------------------------------------------------------------------------------
    def text(self, row: Sequence[int]) -> str:
        """A row as plain text."""
        return self.tokenizer.decode(row)

    def pieces(self, row: Sequence[int]) -> list[str]:
        """Text of each token alone."""
        raise NotImplementedError

    def check_given(self, row: Sequence[int]) -> None:
        """InputError where what is given of a row, -1 where nothing is, leaves nothing right to sample."""

    def block(self, row: Sequence[int], marks: Sequence[Mark] | None = None) -> list[Line] | None:
        """A row as lines for a terminal, `marks` says of each token what happened to it; None for running text."""
        return None

    def bitmap(self, row: Sequence[int], marks: Sequence[Mark] | None = None) -> np.ndarray | None:
        """A row as pixels for a terminal, (H, W, 3) uint8, `marks` as in `block`; None for what is no image."""
        return None

    def lines(
        self, rows: ArrayLike, captions: Sequence[str] = (), fixed: ArrayLike | None = None, width: int = 80
    ) -> list[Line]:
        """Rows beside one another as far as `width` goes, then below, each under its caption."""
        out: list[Line] = []
        blocks = []
        rows = self.rows(rows)
        is_fixed = np.broadcast_to(False if fixed is None else fixed, rows.shape)
        for row, fixed_row, caption in zip(rows, is_fixed, chain(captions, repeat(""))):
            blocks.append((caption, self.block(row.tolist(), self.marks(row, fixed_row)) or []))
        while blocks:
            line_parts = [blocks.pop(0)]
            while blocks and sum(_width(b) + 2 for b in (*line_parts, blocks[0])) - 2 <= width:
                line_parts.append(blocks.pop(0))
            out += [*([[]] if out else []), *_beside(line_parts)]
        return out

    def marks(self, row: np.ndarray, fixed: np.ndarray) -> list[Mark]:
        """State of each token of a finished sequence: masked, given, or sampled."""
        absent = self.absent(row)
        return [
            "masked" if is_absent else "given" if is_fixed else "shown" for is_absent, is_fixed in zip(absent, fixed)
        ]

    # as files --------------------------------------------------------------------------------------------------
    def save(
        self, path: Path, rows: ArrayLike, fixed: ArrayLike | None = None, captions: Sequence[str] = ()
    ) -> list[Path]:
        """Write rows in the format that the path's ending names; the files, of which music needs one for each row."""
        from ...base.files import write_file

        if path.suffix == ".png":
            write_file(path, self.png(rows, fixed, captions))
        else:
            write_file(path, "".join(self.text(row.tolist()) + "\n" for row in self.rows(rows)))
        return [path]

    def png(self, rows: ArrayLike, fixed: ArrayLike | None = None, captions: Sequence[str] = ()) -> bytes:
        """All rows as one picture."""
        import io

        file = io.BytesIO()
        self.figure(rows, fixed, captions).savefig(file, format="png", dpi=120, metadata={"Software": None})
        return file.getvalue()

    def html(self, rows: ArrayLike, marks: Sequence[Sequence[Mark]] | None = None) -> str:
        """All rows for a notebook; `marks` says of each token of each row what happened to it."""
        import base64

        rows, given = self.rows(rows), None
        if marks is not None:
            rows = np.where([[mark in UNSEEN for mark in row] for row in marks], -1, rows)
            given = np.array([[mark == "given" for mark in row] for row in marks])
        picture = base64.b64encode(self.png(rows, given)).decode()
        return f'<img alt="{self.many}" src="data:image/png;base64,{picture}">'

    def sheet(self, rows: ArrayLike, labels: Sequence[str]) -> bytes:
        """All rows as one picture; `labels` are their classes, which images show."""
        return self.png(rows)

    def figure(self, rows: ArrayLike, fixed: ArrayLike | None = None, captions: Sequence[str] = ()) -> Any:
        """All rows as a matplotlib Figure."""
        raise NotImplementedError

    def refuse(self, suffix: str, what: str = "") -> None:
        """InputError where `save` cannot write such a file; `what` names the request where a package is missing."""
        if suffix not in (*self.suffixes, ".jsonl"):
            takes = either([".jsonl", *self.suffixes, *FILMS])
            raise InputError(f"{self.many} cannot be written as {suffix}; use {takes}")

    # what is given ---------------------------------------------------------------------------------------------
    def given(self, row: ArrayLike, keep: str | None = None) -> np.ndarray:
        """(L,) the row's own tokens where they are kept, -1 where they are to be drawn again.

        Raises InputError: this kind has no such part.
        """
        parts = self.kept(keep or next(iter(self.keeps), ""))
        row = np.asarray(row).reshape(-1)
        selection = np.zeros(self.shape, bool)
        for piece in parts:
            selection |= self.part(piece, row)
        return np.where(selection.reshape(-1), row, -1)

    def kept(self, keep: str) -> list[str]:
        """The parts that are named. InputError: this kind has no such part."""
        parts = [piece.strip() for piece in keep.split(",")]
        for piece in parts:
            if piece not in self.keeps:
                takes = either(self.keeps or ["nothing"])
                raise InputError(f"unknown keep '{piece}'; of {self.many} one can keep {takes}")
        return parts

    def part(self, name: str, row: np.ndarray) -> np.ndarray:
        """(*shape) bool, where a part of a row (L,) lies that `keeps` names."""
        raise NotImplementedError

    def read(self, text: str) -> np.ndarray:
        """(L,) tokens of what was typed, -1 where something is missing. InputError where nothing can be typed."""
        raise InputError(
            f"'{text[:20]}{'…' if len(text) > 20 else ''}' is a text, and this model makes {self.many}; "
            f"use `example` 0 `keep` {next(iter(self.keeps), '')}"
        )

    def verdict(self, row: ArrayLike, truth: ArrayLike | None = None) -> str:
        """Verdict on an infilled sequence; "" if nothing can be wrong."""
        return ""

    def valid(self, rows: ArrayLike) -> np.ndarray:
        """(N,) bool, whether nothing is missing and no rule is broken;
        of data without rules whether nothing is missing."""
        return np.logical_not(self.absent(self.rows(rows)).any(-1))

    def known(self, rows: ArrayLike, labels_by: str, names: Sequence[str]) -> dict[str, Any]:
        """What the metrics of this kind take of free samples, by the names of `evaluation.metrics.KNOWN`.

        labels_by: the property that the classes of the data are made by (`data.labels_by`); names: of the classes.
        """
        raise NotImplementedError

    # arrays ----------------------------------------------------------------------------------------------------
    def rows(self, rows: ArrayLike) -> np.ndarray:
        """(N, L) integers of tensors, arrays or lists (N, L) or (L,)."""
        array = np.asarray(getattr(rows, "cpu", lambda: rows)())
        return array.reshape(-1, array.shape[-1]) if array.size else array.reshape(0, 0)

    def absent(self, rows: ArrayLike) -> np.ndarray:
        """Positions at which an integer is no token."""
        rows = np.asarray(rows)
        return (rows < 0) | (rows >= self.tokenizer.size)

    def values(self, rows: ArrayLike) -> Any:
        """Rows as Python has them: an array (N, *shape)."""
        return self.rows(rows).reshape(-1, *self.shape)

    def tokens(self, values: ArrayLike) -> Any:
        """The way back: tokens of such an array, or of rows of it, -1 where one is free."""
        return values


def halves(shape: tuple[int, ...], name: str) -> np.ndarray:
    """(*shape) bool, the top, bottom, left or right half of something with rows and columns; the odd one is kept."""
    selection = np.zeros(shape, bool)
    along = np.moveaxis(selection, 0 if name in ("top", "bottom") else min(1, selection.ndim - 1), 0)  # a view
    half = (len(along) + 1) // 2
    along[:half] = name in ("top", "left")
    along[len(along) - half :] |= name in ("bottom", "right")
    return selection


def _width(block: tuple[str, list[Line]]) -> int:
    return max((sum(cells(text) for text, _ in line) for line in block[1]), default=0)


def _beside(blocks: list[tuple[str, list[Line]]], gap: int = 2) -> list[Line]:
    """Blocks side by side, their captions above."""
    height = max(len(lines) for _, lines in blocks)
    heads: list[list[Line]] = [[[(caption[: _width((caption, lines))], "shown")]] for caption, lines in blocks]
    columns = [head + lines + [[]] * (height - len(lines)) for head, (_, lines) in zip(heads, blocks)]
    if not any(caption for caption, _ in blocks):
        columns = [column[1:] for column in columns]
    out: list[Line] = []
    for row in zip(*columns):
        line: Line = []
        for block, piece in zip(blocks, row):
            used = sum(cells(text) for text, _ in piece)
            line += [*piece, (" " * (_width(block) - used + gap), "shown")]
        out.append(line[:-1])
    return out
