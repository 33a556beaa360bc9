"""GIDD: its losses, which are no bound, and its options."""

import pytest
import torch

from testing.small import make
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.methods.gidd import GIDD


def test_weighted_losses_are_positive_and_clipped():
    batch = Batch(torch.zeros(2, 8, dtype=torch.long))
    methods = (make("gidd", {"weights": kind}) for kind in ("none", "clip", "dynamic"))
    losses = [m.loss(batch, torch.Generator().manual_seed(1)) for m in methods]
    assert all(bool((loss > 0).all()) for loss in losses)
    assert bool((losses[1] <= 2 * 8 * 50).all())


def test_options_that_are_no_noise():
    with pytest.raises(InputError, match="`gamma` is 3; it must be above 0 and at most 2"):
        GIDD.Config(gamma=3.0)
    with pytest.raises(InputError, match="`p_uniform` is 1; it must be at least 0 and below 1"):
        GIDD.Config(p_uniform=1.0)
