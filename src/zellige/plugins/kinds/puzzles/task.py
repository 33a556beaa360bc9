"""Whether held-out puzzles are solved: filled in one cell at a time, and right if the filling is the solution.

Nothing searches, nothing is taken back. The most confident cell first with its likeliest symbol, as people solve one;
and, drawn from the model's own distribution, cells in random order.
"""

import numpy as np

from zellige.data import Corpus
from zellige.data.rows import evenly_spaced
from zellige.evaluation.interval import Proportion
from zellige.evaluation.tasks import Shown, draw_tokens
from zellige.models.model import Model
from zellige.samplers import SAMPLERS

PUZZLES = 200  # at most


def solved_shares(
    model: Model, corpus: Corpus, split: str, limit: int | None, seed: int, progress: Shown | None
) -> dict[str, Proportion]:
    """Fractions of the puzzles that are solved, by the way of filling them in; {} of grids without puzzles."""
    rows = corpus.split(split)
    if rows.clues is None:
        return {}
    indices = evenly_spaced(np.arange(len(rows)), min(limit or PUZZLES, PUZZLES))
    clues, solutions = rows.clues[indices], rows.array()[indices]
    ways = {
        "the most confident cell first": {"sampler": "confidence", "steps": clues.shape[1], "temperature": 0.0},
        "cells in random order": {"sampler": "first_hitting"},
    }
    ways = {name: how for name, how in ways.items() if not SAMPLERS[how["sampler"]].reason_against(model.method)}
    shares = {}
    for i, (name, how) in enumerate(ways.items()):
        filled = draw_tokens(model, len(indices), seed, progress, i, len(ways), fixed=clues, **how)
        right = (np.array(filled) == solutions).all(-1)
        shares[f"solved, {name}"] = Proportion(int(right.sum()), len(indices))
    return shares
