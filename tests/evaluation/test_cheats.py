"""Which measures a cheat fools: every measure says what is better of it."""

import numpy as np
import pytest
import torch

from zellige.evaluation import distances, image_quality, sample_quality
from zellige.evaluation.sample_quality import AS_REAL, HIGHER, LOWER, Number, better
from zellige.evaluation.sweep import fooled


def around(value):
    return Number(value, value - 0.1, value + 0.1)


@pytest.mark.parametrize(
    ("name", "direction"),
    [("entropy", HIGHER), ("distinct-3", HIGHER), ("perplexity", LOWER), ("TV-2", LOWER), ("typicality", AS_REAL)],
)
def test_a_cheat_fools_a_measure_by_its_direction(name, direction):
    """Lower typicality than that of real text is a fault and fools nobody; it was counted as better."""
    assert better(name) == direction
    for value, holds in ((0.5, direction == LOWER), (1.0, True), (1.15, True), (1.5, direction == HIGHER)):
        assert (fooled({name: around(value)}, {name: around(1.0)}) == [name]) == holds


def test_every_measure_says_what_is_better_of_it():
    """So none is taken for one of which less is better because nobody thought of it."""
    rows, g = [[0, 1, 2, 3, 1], [2, 1, 0, 3, 3], [1, 1, 2, 0, 2], [3, 2, 1, 0, 0]], np.random.default_rng(0)
    x, rates = g.normal(size=(4, 3)), g.normal(size=4)
    names = {
        *sample_quality.measure(rows, torch.ones(4), torch.ones(4)),
        *distances.measures(rows, rates, x, rows, rates, x),
    }
    assert {"mauve", "memorisation"} <= set(sample_quality.BETTER)
    assert set(distances.MEASURES) - {"TV"} <= set(sample_quality.BETTER)
    features = torch.from_numpy(g.normal(size=(24, 2)))
    views = image_quality.Views(features, torch.from_numpy(g.normal(size=(24, 3))))
    names |= set(image_quality.measure_images(views, views))
    for name in names:
        assert better(name) in (HIGHER, LOWER, AS_REAL)
    with pytest.raises(ValueError, match="the measure 'sparkle' does not say what is better of it"):
        fooled({"sparkle": around(1)}, {"sparkle": around(1)})
