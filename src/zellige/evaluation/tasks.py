"""Tasks of a model beyond its likelihood, if its data set has one (`Source.task`): solved puzzles, valid molecules.

Every fraction has Wilson's interval.
"""

from collections.abc import Callable
from typing import Any

from ..base.plugins import named
from ..data import DATASETS, Corpus
from ..models.model import Model
from ..sampling.sample import watch
from ..sampling.samples import collect
from ..sampling.trajectory import Frame
from .interval import Proportion

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
    """Results of the task of a corpus, by name; {} if it has none, or the model has no sampler for it.

    Args:
        limit: evaluate this many puzzles, evenly spaced, or molecules; at most as many as the task takes.
        progress: called with (sampling steps done, steps in all).
    """
    source = DATASETS.get(corpus.about.get("name", ""))
    if source is not None and source.task:
        return named(source.task)(model, corpus, split, limit, seed, progress)
    return {}


def draw_tokens(
    model: Model, count: int, seed: int, progress: Shown | None, part: int, parts: int, **how: Any
) -> list[Any]:
    """Tokens of `count` samples; `part` is the number of this set among several, for `progress`."""
    batches = -(-count // BATCH)

    def see(frame: Frame) -> None:
        if progress:
            step = frame.first // BATCH * frame.steps + frame.step
            progress(part * batches * frame.steps + step, parts * batches * max(frame.steps, 1))

    return collect(watch(model, count=count, seed=seed, batch=BATCH, defaults=False, **how), see).tokens
