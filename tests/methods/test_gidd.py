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


def test_without_random_tokens_a_visible_token_costs_nothing_whatever_the_network_says():
    x_0, x, t = (
        torch.zeros(2).long(),
        torch.tensor([0, 3]),
        torch.tensor([0.5, 0.5], dtype=torch.float64),
    )  # 3: the mask
    logits = torch.tensor([[0.0, 110, 0, 0]], dtype=torch.float64).repeat(2, 1).requires_grad_()
    exact, dynamic = (make("gidd", {"p_uniform": 0.0, "weights": weights}) for weights in ("none", "dynamic"))
    costs = exact.cost(logits, x_0, x, t), dynamic.weighted(dynamic.loss_weight(x_0, x, t), logits, x_0, x, t)
    for value in costs:
        (gradient,) = torch.autograd.grad(value.sum(), logits)
        assert value[0] == 0
        assert value[1] > 0
        assert (gradient[0] == 0).all()
        assert gradient[1].isfinite().all()


def test_options_that_are_no_noise():
    with pytest.raises(InputError, match="`gamma` is 3; it must be above 0 and at most 2"):
        GIDD.Config(gamma=3.0)
    with pytest.raises(InputError, match="`p_uniform` is 1; it must be at least 0 and below 1"):
        GIDD.Config(p_uniform=1.0)
