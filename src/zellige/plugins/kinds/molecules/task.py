"""What a model of molecules is asked: how many of its samples are valid, how many of these differ, and how many are new.

They are drawn one character at a time, and counted as `metrics` counts them.
"""

from zellige.data import Corpus
from zellige.evaluation.interval import Proportion
from zellige.evaluation.tasks import Shown, draw_tokens
from zellige.models.model import Model
from zellige.samplers import SAMPLERS
from zellige.show.kinds import of

from .metrics import new, unique, valid

MOLECULES = 500  # at most


def shares(
    model: Model, corpus: Corpus, split: str, limit: int | None, seed: int, progress: Shown | None
) -> dict[str, Proportion]:
    """The fractions, by name; {} of data without a training split."""
    if "train" not in corpus.rows:
        return {}
    how = {} if SAMPLERS["first_hitting"].reason_against(model.method) else {"sampler": "first_hitting"}
    spell = of(model.tokenizer).values
    texts = spell(draw_tokens(model, min(limit or MOLECULES, MOLECULES), seed, progress, 0, 1, **how))
    fractions = {"valid": valid(texts)}
    if fractions["valid"].right:
        fractions["unique among these"] = unique(texts)
        fractions["new among those"] = new(texts, {*spell(corpus.train.array())})
    return fractions
