"""GIDD: what is drawn, and the weights of its losses, which are no bound."""

import pytest
import torch

from small import make
from zellige.core.batch import Batch
from zellige.errors import InputError
from zellige.methods.gidd import GIDD, Drifting, Hybrid


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_draws_have_the_marginals(gamma):
    process, x_0 = Drifting(4, Hybrid(0.3, gamma)), torch.tensor([0, 2]).repeat(40_000, 1)
    for t in (0.1, 0.5, 0.95):
        x = process.sample(x_0, t, torch.Generator().manual_seed(0))
        found = torch.nn.functional.one_hot(x, 4).double().mean(0)
        assert float((found - process.marginal(x_0[0], torch.tensor(t).double())).abs().max()) < 0.01


def test_the_weights_of_the_losses():
    """Of the right token, the mask and a wrong token."""
    x_0, t = torch.zeros(3, dtype=torch.long), torch.tensor([0.2, 0.2, 0.2]).double()
    x_t = torch.tensor([0, 3, 1])
    plain, clip, dynamic = (make("gidd", {"weights": kind}) for kind in ("none", "clip", "dynamic"))
    weights = plain.loss_weight(x_0, x_t, t)
    assert float(weights.max()) > 2
    assert torch.equal(clip.loss_weight(x_0, x_t, t), weights.clamp(max=2))
    assert torch.allclose(
        weights[0] / weights[2], plain.process.marginal(x_0, t)[0, 1] / plain.process.marginal(x_0, t)[0, 0]
    )
    right = plain.process.schedule.B / 3 * 0.5  # e^{-lambda/2} = (t / (1 - t))^{1/2}
    assert torch.allclose(dynamic.loss_weight(x_0, x_t, t), torch.tensor([right, 2.0, 1.0]).double())
    batch = Batch(torch.zeros(2, 8, dtype=torch.long))
    losses = [m.loss(batch, torch.Generator().manual_seed(1)) for m in (plain, clip, dynamic)]
    assert all(bool((loss > 0).all()) for loss in losses)
    assert bool((losses[1] <= 2 * 8 * 50).all())


def test_the_mask_is_never_predicted():
    method = make("gidd")
    mu = method.predict(torch.tensor([[0, 1, 2, 3, 3, 0, 1, 2]]), 0.5).mu
    assert bool((mu[..., 3] == 0).all())
    assert bool((mu[..., :3] > 0).all())


def test_options_that_are_no_noise():
    with pytest.raises(InputError, match="`gamma` is 3; it must be above 0 and at most 2"):
        GIDD.Config(gamma=3.0)
    with pytest.raises(InputError, match="`p_uniform` is 1; it must be at least 0 and below 1"):
        GIDD.Config(p_uniform=1.0)
