"""Grids of symbols, Sudoku above all: drawn with their boxes, judged by their rules."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...base.errors import InputError
from ...core.batch import whole_numbers
from ...data.levels import Levels
from ..numbers import counted
from ..style import UNSEEN, Line, Mark
from .modality import Modality, halves

WIDE = 72  # columns of a terminal that a row without lines of its own may take


class Grid(Modality):
    name, many = "grid", "grids"
    tokenizer: Levels
    suffixes = (".txt", ".png")
    keeps = ("top", "bottom", "left", "right")

    def __init__(self, tokenizer: Levels):
        super().__init__(tokenizer)
        self.labels = [str(label) for label in tokenizer.labels or range(tokenizer.size)]
        height, width = self.shape[0], math.prod(self.shape[1:])
        if len(self.shape) == 1:
            width = min(height, WIDE // (max(map(len, self.labels)) + 1))
            height = math.ceil(height / width)
        self.board = height, width
        self.keeps = self.keeps if len(self.shape) > 1 else ("left", "right")
        root = math.isqrt(self.board[0])
        rules = self.board == (root * root,) * 2 and root > 1 and tokenizer.size == root * root
        self.box = root if rules else None  # side of a Sudoku's box

    # drawn -----------------------------------------------------------------------------------------------------
    def text(self, row: Sequence[int]) -> str:
        return "\n".join("".join(text for text, _ in line) for line in self.block(row))

    def block(self, row: Sequence[int], marks: Sequence[Mark] | None = None) -> list[Line]:
        height, width = self.board
        step = self.box or width
        size = max(map(len, self.labels))
        names = self.pieces(row)
        looks: list[Any] = [*(marks or ["shown"] * len(names))]
        names += [""] * (height * width - len(names))
        looks += ["shown"] * (len(names) - len(looks))
        rule = "─" * (step * (size + 1) + 1)
        out: list[Line] = []
        for y in range(height):
            if y % (self.box or height) == 0:
                left, cross, right = "┌┬┐" if y == 0 else "├┼┤"
                out.append([(left + cross.join([rule] * (width // step)) + right, "shown")])
            line: list[Any] = []
            for x in range(width):
                i = y * width + x
                is_mask = looks[i] in UNSEEN
                line += [
                    ("│ " if x % step == 0 else "", "shown"),
                    (("·" if is_mask else names[i]).rjust(size), looks[i]),
                    (" ", "shown"),
                ]
            out.append([*line, ("│", "shown")])
        return [*out, [("└" + "┴".join([rule] * (width // step)) + "┘", "shown")]]

    def figure(self, rows: ArrayLike, fixed: ArrayLike | None = None, captions: Sequence[str] = ()) -> Any:
        """Figure with given cells in bold, sampled cells in blue, and violations of the rules shaded orange."""
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle

        rows = self.rows(rows)
        is_fixed = np.zeros(rows.shape, bool) if fixed is None else np.broadcast_to(fixed, rows.shape)
        columns = min(len(rows), 4) if not captions else len(captions)
        lines = math.ceil(len(rows) / columns)
        height, width = self.board
        fig = Figure(figsize=(0.27 * (width + 1) * columns, (0.27 * (height + 1) + 0.2) * lines), layout="constrained")
        axes = fig.subplots(lines, columns, squeeze=False).ravel()
        for ax in axes:
            ax.set_axis_off()
        for i, (ax, row, clue, bad) in enumerate(zip(axes, rows, is_fixed, self.clashes(rows))):
            ax.set(xlim=(-0.05, width + 0.05), ylim=(height + 0.05, -0.05), aspect="equal")
            names = self.pieces(row)
            for k, is_absent in enumerate(self.absent(row)):
                y, x = divmod(k, width)
                if bad[k]:
                    ax.add_patch(Rectangle((x, y), 1, 1, color="#f6d7b8", lw=0))
                if not is_absent:
                    colour, weight = ("#1b1f24", "bold") if clue[k] or fixed is None else ("#0072b2", "normal")
                    ax.text(
                        x + 0.5, y + 0.52, names[k], ha="center", va="center", fontsize=9, color=colour, weight=weight
                    )
            for line, count, length in ((ax.hlines, height, width), (ax.vlines, width, height)):
                for k in sorted(range(count + 1), key=lambda k, n=count: k % (self.box or n) == 0):  # thick ones on top
                    thick = k % (self.box or count) == 0
                    line(k, 0, length, color="#1b1f24" if thick else "#a5adb8", lw=1.4 if thick else 0.5)
            if i < len(captions):
                ax.set_title(captions[i], fontsize=9)
        return fig

    # given -----------------------------------------------------------------------------------------------------
    def part(self, name: str, row: np.ndarray) -> np.ndarray:
        return halves(self.shape, name)

    def read(self, text: str) -> np.ndarray:
        """A puzzle, cell after cell: "53..7...." is the first row of nine. A dot,
        an underscore or a zero is a blank."""
        return np.array(self.tokenizer.encode(text, "the puzzle"))

    def pieces(self, row: Sequence[int]) -> list[str]:
        return ["·" if is_absent else self.labels[i] for i, is_absent in zip(row, self.absent(row))]

    # arrays ----------------------------------------------------------------------------------------------------
    def values(self, rows: ArrayLike) -> np.ndarray:
        """(N, *shape), the symbols themselves: of a Sudoku the digits 1 to 9; -1 where none stands yet."""
        array = self.rows(rows)
        symbols = np.append(self.tokenizer.labels or np.arange(self.tokenizer.size), -1)
        return symbols[np.where(self.absent(array), -1, array)].reshape(-1, *self.shape)

    def tokens(self, values: ArrayLike) -> np.ndarray:
        """Tokens of symbols; of -1, and of a 0 that is no symbol, -1. InputError where one is not of this grid."""
        array = whole_numbers("fixed", values).numpy(force=True)
        symbols = [*(self.tokenizer.labels or range(self.tokenizer.size))]
        ids = {-1: -1, 0: -1} | {symbol: token for token, symbol in enumerate(symbols)}
        wrong = [value for value in np.unique(array).tolist() if value not in ids]
        if wrong:
            raise InputError(
                f"`fixed` holds {wrong[0]:,}; the cells are {symbols[0]} to {symbols[-1]}, -1 where one is free"
            )
        return np.vectorize(ids.__getitem__, otypes=[np.int64])(array)

    # judged ----------------------------------------------------------------------------------------------------
    def clashes(self, rows: ArrayLike) -> np.ndarray:
        """(N, L) bool, cells whose symbol stands twice in their row, column or box; all False without such rules."""
        rows = self.rows(rows)
        bad = np.zeros(rows.shape, bool)
        if self.box:
            for group in self._groups().values():
                same = (group[:, None] == group) & ~np.eye(len(group), dtype=bool)
                bad |= ((rows[:, :, None] == rows[:, None]) & same).any(-1)
        return bad & ~self.absent(rows)

    def check_given(self, row: Sequence[int]) -> None:
        """InputError where a given symbol stands twice in a row, a column or a box, which names the two cells."""
        cells = self.clashes([row])[0].nonzero()[0].tolist()
        for i in cells:
            for j in cells:
                shared = [name for name, group in self._groups().items() if group[i] == group[j]]
                if i < j and row[i] == row[j] and shared:
                    (y, x), (v, u) = divmod(i, self.board[1]), divmod(j, self.board[1])
                    both = f"row {y + 1}, column {x + 1} and at row {v + 1}, column {u + 1}"
                    raise InputError(
                        f"the given cells conflict: {self.labels[row[i]]} stands at {both}, in one {shared[0]}; "
                        "correct one of them"
                    )

    def _groups(self) -> dict[str, np.ndarray]:
        """The number of the row, the column and the box of each cell."""
        assert self.box is not None
        y, x = np.divmod(np.arange(math.prod(self.board)), self.board[1])
        return {"row": y, "column": x, "box": y // self.box * self.box + x // self.box}

    def valid(self, rows: ArrayLike) -> np.ndarray:
        """(N,) bool, whether nothing is missing and no rule is broken."""
        return np.logical_not((self.clashes(rows) | self.absent(self.rows(rows))).any(-1))

    def verdict(self, row: ArrayLike, truth: ArrayLike | None = None) -> str:
        equal = truth is not None and bool((np.asarray(row) == np.asarray(truth)).all())
        text = "" if truth is None else ", the solution" if equal else ", not the solution"
        if not self.box:
            return text.removeprefix(", ")
        if self.valid(row)[0]:
            return "valid" + (", another solution" if truth is not None and not equal else text)
        return f"not valid: {counted(int(self.clashes(row).sum()), 'cell')} in conflict"
