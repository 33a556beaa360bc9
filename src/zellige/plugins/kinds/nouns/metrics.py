"""Fractions of sampled pictures that are a combination of parts, of parts that are right, and of pictures that are new.

Each sample is compared with the combination from which it differs at the fewest positions, which is found exactly
(`parts.Parts.nearest`). A part is right if the sample has it wherever the combination shows it; fully hidden parts do not
count. A sample is valid if all its parts are right: then it equals the combination.
"""

from functools import cache, partial
from typing import Any

import numpy as np

from zellige.data import Corpus
from zellige.evaluation.interval import Proportion
from zellige.evaluation.metrics import WILSON, Metric
from zellige.evaluation.tasks import Shown, draw_tokens
from zellige.models.model import Model
from zellige.samplers import SAMPLERS

from .parts import PARTS, parts, splits

PICTURES, STEPS = 64, 256  # of `shares`: samples at most, and the steps in which they are drawn
INVALID, NEW, TRAINING, HELD_OUT = -1, 0, 1, 2  # of `seen`


def judged(rows: np.ndarray, labels_by: str = "") -> dict[str, Any]:
    """Arguments of the metrics for samples (N, L)."""
    of, numbers = parts(), parts().nearest(rows)
    right = of.right(rows, numbers)
    is_valid = is_combination(right)
    seen = np.array([_seen().get(picture, NEW) for picture in of.identity(numbers).tolist()])
    part = PARTS.index(labels_by or "head")
    found = np.where(is_valid & ~np.isnan(right[:, part]), of.split(numbers)[part], -1)  # -1 if it is hidden, too
    return {
        "right_parts": right, "seen": np.where(is_valid, seen, INVALID), "found": found,
    }  # fmt: skip


@cache
def _seen() -> dict[int, int]:
    """For each picture of a split its value of `seen`."""
    of_split = {"train": TRAINING, "validation": HELD_OUT, "test": HELD_OUT}
    pictures = {split: parts().identity(numbers).tolist() for split, numbers in splits().items()}
    return {picture: of_split[split] for split, in_split in pictures.items() for picture in in_split}


def is_combination(right_parts: np.ndarray) -> np.ndarray:
    """Return whether all parts (N, 5) that are not fully hidden are right: (N,) bool."""
    return (right_parts != 0).all(1)


def valid_pictures(right_parts: np.ndarray) -> Proportion:
    """Fraction of the samples that equal a combination of parts at every position."""
    return Proportion(int(is_combination(right_parts).sum()), len(right_parts))


def right_share(right_parts: np.ndarray) -> np.ndarray:
    """Fraction of the parts of each sample that are right, without fully hidden ones: (N,)."""
    return np.nanmean(right_parts, 1)


def new_pictures(seen: np.ndarray) -> Proportion:
    """Fraction of the valid samples that are not in the training split."""
    return Proportion(int(np.isin(seen, (NEW, HELD_OUT)).sum()), int((seen != INVALID).sum()))


def held_out_pictures(seen: np.ndarray) -> Proportion:
    """Fraction of the valid samples that are in the validation or test split."""
    return Proportion(int((seen == HELD_OUT).sum()), int((seen != INVALID).sum()))


def shares(
    model: Model, corpus: Corpus, split: str, limit: int | None, seed: int, progress: Shown | None
) -> dict[str, Proportion]:
    """Fractions of samples that are valid, in which each part is right, and of the valid ones that are new."""
    count = min(limit or PICTURES, PICTURES)
    in_steps = SAMPLERS["ancestral"].reason_against(model.method) is None and not model.method.steps
    how = {"steps": STEPS} if in_steps else {}
    known = judged(np.array(draw_tokens(model, count, seed, progress, 0, 1, **how)))
    right, seen = known["right_parts"], known["seen"]
    fractions = {"valid": valid_pictures(right)}
    for part, of_part in zip(PARTS, right.T):
        fractions[f"{part} right"] = Proportion(int((of_part == 1).sum()), int((~np.isnan(of_part)).sum()))
    return fractions | ({"new among the valid": new_pictures(seen)} if (seen != INVALID).any() else {})


_fraction = partial(Metric, interval=WILSON, sides=True, page="nouns", subject="nouns")
VALID = _fraction(
    "valid picture", valid_pictures, ("right_parts",), True, title="valid", column="valid",
    definition="fraction that equals a combination of parts",
)  # fmt: skip
RIGHT_PARTS = Metric(
    "right parts", right_share, ("right_parts",), True, column="parts", page="nouns", subject="nouns",
    definition="of the nearest combination, those that are as they should be wherever they are seen; mean over samples",
)  # fmt: skip
NEW_PICTURE = _fraction(
    "new picture",
    new_pictures,
    ("seen",),
    None,
    title="new",
    column="new",
    definition="valid ones not in the training split",
)
HELD_OUT_PICTURE = _fraction(
    "held-out picture",
    held_out_pictures,
    ("seen",),
    None,
    title="held out",
    definition="valid ones in validation or test split",
)
