"""Sudokus: all of 4 x 4, and of 9 x 9 those of a file, with their puzzles; their rules and their symmetries."""

import csv
import io
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zellige.base.arguments import is_number
from zellige.base.errors import InputError
from zellige.data import unpack
from zellige.data.array_source import Context, Raw, cut_splits, locate_files
from zellige.data.catalogue import DATASETS
from zellige.data.pixels import whole_size
from zellige.data.symmetry import Symmetries

if TYPE_CHECKING:
    from zellige.data.corpus import Data
    from zellige.data.tokenizer_base import Tokenizer


def read(data: "Data", context: Context) -> Raw:
    """Solved Sudokus. 4 x 4: all 288, enumerated, the same in every split. 9 x 9: of a file of puzzles and solutions.

    The puzzles stay beside the rows as `clues`. No training grid is a twin of a held-out one: where the invariants of
    two grids agree under all symmetries of Sudoku, the one in the training split is left out. `data.augment` adds so
    many random symmetric copies of each training grid.
    """
    side = whole_size(data) or (9 if data.path else 4)
    if side not in (4, 9):
        raise InputError(f"`data.size` is {data.size}; a sudoku is 4 x 4 or 9 x 9, give 4 or 9")
    if side == 4:
        if data.path or data.augment:
            option = "`data.path`" if data.path else "`data.augment`"
            raise InputError(f"{option} is for sudokus of 9 x 9, and the 4 x 4 ones are all there; use `data.size` 9")
        all_grids = grids4()
        return Raw(
            dict.fromkeys(("train", "validation", "test"), all_grids),
            4,
            "grid",
            "cell",
            False,
            labels=(1, 2, 3, 4),
            about={"protocol": "all 288 grids, the same in every split"},
        )
    files, about = locate_files(data, context)
    puzzles, solutions = puzzles_and_solutions(next(iter(files.values())))
    splits = cut_splits({"all": np.arange(len(solutions))}, data, DATASETS[data.name])
    invariant_set = {key for name in splits if name != "train" for key in invariants(solutions[splits[name]])}
    twins = np.array([key in invariant_set for key in invariants(solutions[splits["train"]])])
    splits["train"] = splits["train"][~twins]
    pairs = {name: np.stack((puzzles[numbers], solutions[numbers]), 1) for name, numbers in splits.items()}
    protocol = f"{int(twins.sum())} symmetric twins of held-out grids left out of training"
    if twins.any():
        about["left_out"] = [f"{int(twins.sum()):,} training grids, symmetric twins of held-out ones"]
    if data.augment:
        generator = np.random.default_rng(0)
        copies = [symmetric(pairs["train"], generator) for _ in range(data.augment)]
        pairs["train"] = np.concatenate([pairs["train"], *copies])
        protocol += f", {data.augment} random symmetric copies of each training grid added"
    clues = {name: pair[:, 0].reshape(-1, 81).astype(np.int8) - 1 for name, pair in pairs.items()}
    return Raw(
        {name: pair[:, 1] - 1 for name, pair in pairs.items()},
        9,
        "grid",
        "cell",
        False,
        labels=range(1, 10),
        clues=clues,
        about=about | {"protocol": protocol},
        cut=True,
    )


def grids4() -> np.ndarray:
    """(288, 4, 4) all solved 4 x 4 Sudokus, digits as 0..3, in lexicographic order."""
    rows = list(itertools.permutations(range(4)))
    grids = np.array(list(itertools.product(rows, repeat=4)), np.uint8)
    return grids[solved(grids)]


def solved(grids: np.ndarray) -> np.ndarray:
    """(N,) whether each of (N, n, n) grids holds n different values in every row, column and box."""
    n = grids.shape[-1]
    k = round(n**0.5)
    boxes = grids.reshape(-1, k, k, k, k).swapaxes(2, 3).reshape(-1, n, n)

    def distinct(lines: np.ndarray) -> np.ndarray:
        ordering = np.sort(lines, -1)
        return (ordering[..., 1:] != ordering[..., :-1]).all((-1, -2))

    return distinct(grids) & distinct(grids.swapaxes(1, 2)) & distinct(boxes)


HEADER = ("puzzle", "quizzes"), ("solution", "solutions")  # of the columns, either name; the second is Kaggle's


def puzzles_and_solutions(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(N, 9, 9) puzzles (0 is blank) and their solutions, of a .csv with these columns (`HEADER`)."""
    table = csv.DictReader(io.StringIO(unpack.read_bytes(path).decode("utf-8", "replace")))
    with unpack.of_rows(path):
        rows = [tuple(row.get(name) or row.get(other) or "" for name, other in HEADER) for row in table]
    wrong = next((i for i, row in enumerate(rows, 2) if any(len(x) != 81 or not x.isascii() for x in row)), None)
    if wrong is not None or not rows:
        raise InputError(f"line {wrong or 1:,} of '{path}' is not a puzzle and its solution; give 81 digits for each")
    pair = np.array([[[*map(_digit, x)] for x in row] for row in rows], np.uint8).reshape(-1, 2, 9, 9)
    puzzles, solutions = pair[:, 0], pair[:, 1]
    whole = solved(solutions) & (solutions.min((1, 2)) > 0) & ((puzzles == 0) | (puzzles == solutions)).all((1, 2))
    if not whole.all():
        raise InputError(f"line {int(np.argmin(whole)) + 2:,} of '{path}' is not a sudoku and its solution; mend it")
    return puzzles, solutions


def _digit(sign: str) -> int:
    return int(sign) if is_number(sign) else 0


def invariants(grids: np.ndarray) -> list[bytes]:
    """For each of (N, 9, 9) grids a key that is the same for all its symmetric images.

    Two rows define a permutation of the digits; relabelling digits and permuting columns only conjugates it, so its
    cycle lengths stay. The key is the sorted collection of these over pairs of rows in one band and in two, for rows
    and columns.
    """
    keys = []
    for lines in (grids, grids.swapaxes(1, 2)):
        place = np.argsort(lines, -1)  # (N, line, digit) where a digit stands
        kinds = [[], []]
        for a, b in itertools.combinations(range(9), 2):
            step = np.take_along_axis(lines[:, b].astype(np.int64) - 1, place[:, a], -1)  # digit of a -> digit of b
            kinds[a // 3 == b // 3].append(_cycles(step))
        keys.append(np.concatenate([np.sort(np.stack(k, -1), -1) for k in kinds], -1))
    return [b"".join(sorted((a.tobytes(), b.tobytes()))) for a, b in zip(*keys)]


def _cycles(step: np.ndarray) -> np.ndarray:
    """(N,) a number for the cycle lengths of (N, 9) permutations: their fixed points after 1, ...,
    8 steps determine them."""
    at, code = step, np.zeros(len(step), np.int64)
    for _ in range(8):
        code = 10 * code + (at == np.arange(9)).sum(-1)
        at = np.take_along_axis(step, at, -1)
    return code


def symmetries(data: "Data", tokenizer: "Tokenizer", count: int) -> Symmetries:
    """A grid as it is, and random symmetries of it, always the same ones."""
    side = tokenizer.shape[0]
    same = np.arange(side * side)[None], np.arange(tokenizer.size)[None]
    others = [random_symmetries(1, side, np.random.default_rng(k)) for k in range(1, count)]
    return Symmetries(*(np.concatenate(parts) for parts in zip(same, *others)))


def random_symmetries(count: int, side: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Random symmetries of Sudokus: moves (count, side^2) of cells and renames (count, side) of digits."""
    order = lambda *axes: generator.permuted(np.broadcast_to(np.arange(axes[-1]), (count, *axes)), axis=-1)  # noqa: E731
    k = round(side**0.5)
    digits = order(side)

    def lines() -> np.ndarray:
        bands, within = order(k)[:, :, None], order(k, k)
        return (k * bands + np.take_along_axis(within, bands, 1)).reshape(count, side)

    rows, columns = lines(), lines()
    cells = side * rows[:, :, None] + columns[:, None]
    transposed = generator.random(count) < 0.5
    return np.where(transposed[:, None, None], cells.swapaxes(1, 2), cells).reshape(count, -1), digits


def symmetric(grids: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A random symmetric image of each of (N, 9, 9) grids of the digits 1 to 9.

    Of (N, P, 9, 9) the P grids of an entry, a puzzle and its solution, have one image. 0, a blank cell, stays 0.
    """
    N = len(grids)
    moves, renames = random_symmetries(N, grids.shape[-1], generator)
    digits = np.concatenate((np.zeros((N, 1), np.int64), renames + 1), 1)  # what becomes of 0, 1, ... 9
    cells = np.take_along_axis(grids.reshape(N, -1, moves.shape[-1]), moves[:, None], -1)
    return np.take_along_axis(digits, cells.reshape(N, -1).astype(np.int64), -1).astype(np.uint8).reshape(grids.shape)
