"""Tasks of a model beyond its likelihood, which a data set may bring (`Source.task`): puzzles solved, valid molecules.

    molecules    drawn one character at a time; valid is the share that `smiles.is_molecule` takes, unique the share of these
                 that are different texts, new the share of those that are not in the training split. Texts, not structures:
                 two spellings of one molecule are two

Every share has Wilson's interval. Of other data there is nothing to ask.
"""

from collections.abc import Callable
from typing import Any

from ..base.plugins import named
from ..data import DATASETS, Corpus
from ..data.rows import Rows
from ..models.model import Model
from ..samplers import SAMPLERS
from ..sampling.sample import watch
from ..sampling.samples import collect
from ..sampling.trajectory import Frame
from ..show.kinds import of
from . import molecules
from .interval import Proportion

MOLECULES = 500  # at most
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
        limit: so many puzzles, evenly spaced, or molecules; at most as many as the task takes.
        progress: called with (steps of a sampler done, in all).
    """
    source = DATASETS.get(corpus.about.get("name", ""))
    if source is not None and source.task:
        return named(source.task)(model, corpus, split, limit, seed, progress)
    if of(model.tokenizer).name == "smiles" and "train" in corpus.rows:
        return _molecules(model, corpus.train, min(limit or MOLECULES, MOLECULES), seed, progress)
    return {}


def _molecules(model: Model, train: Rows, count: int, seed: int, progress: Shown | None) -> dict[str, Proportion]:
    how = {} if SAMPLERS["first_hitting"].refuse(model.method) else {"sampler": "first_hitting"}
    texts = of(model.tokenizer).values(draw_tokens(model, count, seed, progress, 0, 1, **how))
    shares = {"valid": molecules.valid(texts)}
    if shares["valid"].right:
        shares["unique among these"] = molecules.unique(texts)
        shares["new among those"] = molecules.new(texts, {*of(model.tokenizer).values(train.array())})
    return shares


def draw_tokens(
    model: Model, count: int, seed: int, progress: Shown | None, part: int, parts: int, **how: Any
) -> list[Any]:
    """The tokens of `count` samples; as the `part`-th of several drawings, for `progress`."""
    batches = -(-count // BATCH)

    def see(frame: Frame) -> None:
        if progress:
            step = frame.first // BATCH * frame.steps + frame.step
            progress(part * batches * frame.steps + step, parts * batches * max(frame.steps, 1))

    return collect(watch(model, count=count, seed=seed, batch=BATCH, defaults=False, **how), see).tokens
