"""Tasks of a model beyond its likelihood: whether puzzles are solved, and whether molecules are valid.

    puzzles      held-out ones are filled in, one cell at a time, and solved if the filling is the solution; nothing searches,
                 nothing is taken back. The most confident cell first with its likeliest symbol, as people solve one; and,
                 drawn from the model's own distribution, cells in random order
    molecules    drawn one character at a time; valid is the share that `smiles.is_molecule` takes, unique the share of these
                 that are different texts, new the share of those that are not in the training split. Texts, not structures:
                 two spellings of one molecule are two

Every share has Wilson's interval. Of other data there is nothing to ask.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..data import Corpus
from ..data.rows import Rows, evenly_spaced
from ..models.model import Model
from ..samplers import SAMPLERS
from ..sampling.sample import watch
from ..sampling.samples import collect
from ..sampling.trajectory import Frame
from ..show.kinds import of
from . import molecules
from .interval import Proportion

PUZZLES, MOLECULES = 200, 500  # at most
BATCH = 50

Shown = Callable[[int, int], None]


def task_shares(
    model: Model,
    corpus: Corpus,
    split: str = "test",
    limit: int | None = None,
    seed: int = 0,
    progress: Shown | None = None,
) -> dict[str, Proportion]:
    """Results of the task of a corpus, by name; {} where it has none, or the model has no sampler for it.

    Args:
        limit: so many puzzles, evenly spaced, or molecules; at most PUZZLES and MOLECULES.
        progress: called with (steps of a sampler done, in all).
    """
    rows = corpus.split(split)
    if getattr(rows, "clues", None) is not None:
        return dict(_puzzles(model, rows, min(limit or PUZZLES, PUZZLES), seed, progress))
    if of(model.tokenizer).name == "smiles" and "train" in corpus.rows:
        return _molecules(model, corpus.train, min(limit or MOLECULES, MOLECULES), seed, progress)
    return {}


def _puzzles(
    model: Model, rows: Rows, count: int, seed: int, progress: Shown | None
) -> Iterator[tuple[str, Proportion]]:
    indices = evenly_spaced(np.arange(len(rows)), count)
    assert rows.clues is not None
    clues, solutions = rows.clues[indices], rows.array()[indices]
    cells = int(clues.shape[1])
    ways = {
        "the most confident cell first": {"sampler": "confidence", "steps": cells, "temperature": 0.0},
        "cells in random order": {"sampler": "first_hitting"},
    }
    ways = {name: how for name, how in ways.items() if not SAMPLERS[how["sampler"]].refuse(model.method)}
    for i, (name, how) in enumerate(ways.items()):
        solutions_drawn = _drawn(model, len(indices), seed, progress, i, len(ways), fixed=clues, **how)
        yield f"solved, {name}", Proportion(int((np.array(solutions_drawn) == solutions).all(-1).sum()), len(indices))


def _molecules(model: Model, train: Rows, count: int, seed: int, progress: Shown | None) -> dict[str, Proportion]:
    how = {} if SAMPLERS["first_hitting"].refuse(model.method) else {"sampler": "first_hitting"}
    texts = of(model.tokenizer).values(_drawn(model, count, seed, progress, 0, 1, **how))
    shares = {"valid": molecules.valid(texts)}
    if shares["valid"].right:
        shares["unique among these"] = molecules.unique(texts)
        shares["new among those"] = molecules.new(texts, {*of(model.tokenizer).values(train.array())})
    return shares


def _drawn(model: Model, count: int, seed: int, progress: Shown | None, part: int, parts: int, **how: Any) -> list[Any]:
    """The tokens of `count` samples; as the `part`-th of several drawings, for `progress`."""
    batches = -(-count // BATCH)

    def see(frame: Frame) -> None:
        if progress:
            step = frame.first // BATCH * frame.steps + frame.step
            progress(part * batches * frame.steps + step, parts * batches * max(frame.steps, 1))

    return collect(watch(model, count=count, seed=seed, batch=BATCH, defaults=False, **how), see).tokens
