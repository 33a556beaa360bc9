"""Puzzles: grids of symbols with rules. `sudoku` reads them and has their rules and symmetries; `task` asks whether
held-out ones are solved."""

from zellige.data.catalogue import Source

SUDOKU = Source(
    "solved, 4 x 4 or 9 x 9",
    "any",
    "all 288 / same / same",
    "facts",
    "nothing",
    reads=("path", "size", "augment"),
    reader="zellige.plugins.kinds.puzzles.sudoku:read",
    symmetries="zellige.plugins.kinds.puzzles.sudoku:symmetries",
    task="zellige.plugins.kinds.puzzles.task:solved_shares",
)
