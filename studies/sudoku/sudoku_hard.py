"""Which 9 x 9 Sudokus does a model solve? By how hard they are for a person, by the number of givens, and in several tries.

    python studies/sudoku/sudoku_hard.py sudoku --data.path sudoku9_pairs.csv.xz [--lists top95.txt sudoku10k.txt.xz] [--tries 12]

How hard: whether a puzzle yields to *singles* (a cell that admits one digit, a digit that one cell of a unit admits), to
*subsets* too (a digit of two units that is confined to their common cells; two or three cells of a unit with two or three
digits), or needs *more* (chains, or guessing). With more givens, the further ones are cells of the solution, drawn at random.
A puzzle is solved if the grid is valid and keeps its givens. Whoever poses a puzzle can see that, and try again: the first try
is at temperature 0, and further ones, at 0.7 and with other seeds, are for the puzzles that are left. Wilson intervals, 95%.
"""

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

import zellige
from zellige import Data
from zellige.data import unpack
from zellige.data.prepare import prepare
from zellige.evaluation.interval import Proportion
from zellige.plugins.kinds.puzzles.sudoku import solved as valid
from zellige.plugins.report.palette import BLUE, VERMILION, styled
from zellige.sampling.sample import watch
from zellige.sampling.samples import collect

ROW, COLUMN = np.divmod(np.arange(81), 9)
BOX = ROW // 3 * 3 + COLUMN // 3
UNITS = [np.flatnonzero(of == i) for of in (ROW, COLUMN, BOX) for i in range(9)]
PEERS = (ROW[:, None] == ROW) | (COLUMN[:, None] == COLUMN) | (BOX[:, None] == BOX)
FIRST = {"sampler": "confidence", "confidence": "entropy", "steps": 81}
WAYS = {
    "most confident cell first": FIRST | {"temperature": 0.0, "symmetries": 1},
    "the same, 8 symmetric copies": FIRST | {"temperature": 0.0, "symmetries": 8},
}
AGAIN = FIRST | {"temperature": 0.7, "symmetries": 8}  # a further try


def hardness(puzzle: np.ndarray) -> str:
    """singles, subsets or more, of a puzzle (81,), -1 where a cell is free."""
    candidates, free = np.ones((81, 9), bool), np.ones(81, bool)

    def put(cell: int, digit: int) -> None:
        free[cell] = candidates[cell] = False
        candidates[PEERS[cell], digit] = False

    for cell in np.flatnonzero(puzzle >= 0):
        put(int(cell), int(puzzle[cell]))
    harder = False
    while free.any():
        single = next(_singles(candidates), None)
        if single is not None:
            put(*single)
        elif _subsets(candidates, free):
            harder = True
        else:
            return "more"
    return "subsets" if harder else "singles"


def _singles(candidates: np.ndarray) -> Iterator[tuple[int, int]]:
    """The (cell, digit) that are determined: the cell's only digit, or a unit's only cell for the digit."""
    for cell in np.flatnonzero(candidates.sum(1) == 1):
        yield int(cell), int(candidates[cell].argmax())
    for unit in UNITS:
        for digit in np.flatnonzero(candidates[unit].sum(0) == 1):
            yield int(unit[candidates[unit, digit].argmax()]), int(digit)


def _subsets(candidates: np.ndarray, free: np.ndarray) -> bool:
    """Strike candidates out by locked digits and by pairs and triples of cells; returns whether any were."""
    before = candidates.sum()
    for unit, other in itertools.permutations(UNITS, 2):
        common = np.intersect1d(unit, other)
        if len(common) == 3:
            locked = candidates[common].any(0) & ~candidates[np.setdiff1d(unit, common)].any(0)
            candidates[np.ix_(np.setdiff1d(other, common), locked)] = False
    for unit in UNITS:
        cells = unit[free[unit]]
        for size in (2, 3):
            for chosen in itertools.combinations(cells, size):
                digits = candidates[list(chosen)].any(0)
                if digits.sum() == size:
                    candidates[np.ix_(np.setdiff1d(cells, chosen), digits)] = False
    return bool(candidates.sum() < before)


def solved(model: zellige.Model, puzzles: np.ndarray, seed: int, **how) -> np.ndarray:
    """Whether the model fills each puzzle (N, 81) to a valid grid that keeps its givens: (N,) bool."""
    given = torch.as_tensor(puzzles.astype(np.int64))
    drawn = collect(watch(model, fixed=given, count=len(puzzles), batch=64, seed=seed, **how))
    return valid(np.array(drawn.tokens).reshape(-1, 9, 9))


def more_givens(puzzles: np.ndarray, solutions: np.ndarray, givens: int, seed: int) -> np.ndarray:
    """The puzzles with cells of their solutions added at random, until they have so many givens."""
    order = np.random.default_rng(seed).random(puzzles.shape) + (puzzles >= 0)  # those that are given come first
    first = np.argsort(-order, 1)[:, :givens]
    mask = np.zeros(puzzles.shape, bool)
    np.put_along_axis(mask, first, True, 1)
    return np.where(mask | (puzzles >= 0), solutions, -1)


def show(name: str, done: np.ndarray) -> Proportion:
    share = Proportion(int(done.sum()), len(done))
    print(f"  {name:42} {share}  of {len(done)}", flush=True)
    return share


@styled
def draw(found: dict[str, dict[float, Proportion]]) -> Figure:
    """Puzzles solved against the number of givens, a curve for each way to sample."""
    figure = Figure(figsize=(5.6, 3), layout="constrained")
    axes = figure.subplots()
    for (way, shares), colour, dash in zip(found.items(), (BLUE, VERMILION), ("-", (0, (6, 2)))):
        value, (low, high) = [of.value for of in shares.values()], zip(*(of.interval for of in shares.values()))
        error = [[v - at for v, at in zip(value, low)], [max(0.0, at - v) for v, at in zip(value, high)]]
        axes.errorbar(list(shares), value, error, color=colour, ls=dash, marker="o", ms=4, label=way)
    axes.yaxis.set_major_formatter(PercentFormatter(1, 0))
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("cells given, of 81")
    axes.set_title("held-out puzzles solved")
    axes.legend(loc="lower right")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--data.path", dest="path")
    parser.add_argument(
        "--lists", nargs="*", type=Path, default=[], help="files of puzzles, one a line, 0 or . for a free cell"
    )
    parser.add_argument("--count", type=int, default=307, help="puzzles of each set at most")
    parser.add_argument("--tries", type=int, default=12)
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    model = zellige.load(args.run)
    test = prepare(Data("sudoku", size=9, path=args.path), tokenizer=model.tokenizer).test
    puzzles, solutions = np.asarray(test.clues)[: args.count].astype(np.int64), test.array()[: args.count]
    kinds = np.array([hardness(puzzle) for puzzle in puzzles])
    found: dict[str, dict[float, Proportion]] = {way: {} for way in WAYS}
    first = np.zeros(len(puzzles), bool)  # the own puzzles that are solved, by the last of the ways
    for way, how in WAYS.items():
        print(f"{args.run}, {way}")
        done, own = solved(model, puzzles, 0, **how), float(np.mean((puzzles >= 0).sum(1)))
        found[way][own], first = show(f"held-out puzzles, {own:.1f} givens", done), done
        for kind in ("singles", "subsets", "more"):
            show(f"... for which a person needs {kind}", done[kinds == kind])
        for givens in (28, 31, 34, 38):
            more = more_givens(puzzles, solutions, givens, 0)
            found[way][givens] = show(f"with {givens} givens", solved(model, more, 0, **how))
        for path in args.lists:
            lines = unpack.read_bytes(path).decode().split()
            grids = [[int(c) - 1 if c.isdigit() else -1 for c in line] for line in lines if len(line) == 81]
            listed = np.array(grids)[np.linspace(0, len(grids) - 1, min(args.count, len(grids))).round().astype(int)]
            mean = np.mean((listed >= 0).sum(1))
            show(f"{path.name}, {mean:.1f} givens", solved(model, listed, 0, **how))
    if args.figure:
        draw(found).savefig(args.figure)
    print(f"{args.run}, 8 symmetric copies, solved by one of so many tries")
    done = first
    for seed in range(1, args.tries):
        rest = np.flatnonzero(~done)
        done[rest] = solved(model, puzzles[rest], seed, **AGAIN)
        if seed + 1 in (2, 4, 8, args.tries):
            show(f"{seed + 1}", done)


if __name__ == "__main__":
    main()
