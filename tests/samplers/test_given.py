"""Given tokens: clamping is exact for absorbing noise, and for other noise only if the network knows that they are clean."""

import pytest
import torch

from testing.pairs import METHODS, SAMPLERS, close, denoiser, distance
from testing.worlds import L, V, data_distribution
from zellige import exact
from zellige.core.curves import Linear
from zellige.core.process import absorbing, uniform
from zellige.samplers import Ancestral, AnyOrder, FirstHitting, FixedOrder
from zellige.samplers.predict import hides
from zellige.samplers.sampler import HIDDEN


def conditional(method, given):
    """The distribution of the data given some of its tokens, (K^L,)."""
    X = exact.states(method.process.K, L)
    distribution = exact.embed(method.process, data_distribution(), L) * ((given == X) | (given < 0)).all(-1)
    return distribution / distribution.sum()


# the steps of conf depend on its memory and are not enumerated, those of correctors are too many, cold samples have another
# distribution
EXACT = [
    pytest.param(name, marks=pytest.mark.long) if name == "informed" else name  # half a minute each
    for name in SAMPLERS
    if name not in ("remasking, conf", "ancestral, cold", "tau_leaping, corrected")
]


@pytest.mark.parametrize("given", [[1, -1], [-1, 0]])
@pytest.mark.parametrize("name", EXACT)
@torch.no_grad()
def test_masks_one_gap_is_exact_at_any_number_of_steps(name, given):
    sampler, given = SAMPLERS[name], torch.tensor(given)
    for title in ("d3pm, absorbing", "sedd, absorbing"):
        method = METHODS[title]()
        if sampler.reason_against(method) or (name, title) == ("remasking, loop", "d3pm, absorbing"):
            continue
        for T in (1, 2) if "remasking" in name else (1, 3):
            distribution = exact.sample_distribution(sampler, method, T, given)
            close(distribution, conditional(method, given), rtol=0, atol=1e-9, msg=f"{title}, {T}")


class Blind(exact.Denoiser):
    """The exact network of one time for all positions: it does not know that given tokens carry no noise."""

    def predict(self, x_t, t, **how):
        t = torch.as_tensor(t, dtype=torch.float64)
        return super().predict(x_t, t.amax(-1, keepdim=True) if t.ndim == 2 else t, **how)


@torch.no_grad()
def test_uniform_noise_needs_a_time_for_each_position():
    """Told that given tokens are CLEAN the error goes with 1/T; told one time for all it stays: a bias."""
    process, given = uniform(V, Linear(0.0)), torch.tensor([1, -1])
    knows, blind = denoiser(process), Blind(process, data_distribution(), L)
    distribution = conditional(knows, given)
    error = [
        [distance(exact.sample_distribution(Ancestral(), m, T, given), distribution) for T in (64, 256)]
        for m in (knows, blind)
    ]
    assert error[0][1] < max(0.3 * error[0][0], 1e-12)
    assert error[1][1] > 0.9 * error[1][0] > 0.02


# ------------------------------------------------------------------------------------------------ places that are not drawn
def beside_hidden(distribution, hidden, K, length):
    """A distribution over K^length with the last `hidden` places summed out: over K^(length - hidden)."""
    return distribution.reshape(-1, K**hidden).sum(-1) if hidden else distribution


@pytest.mark.parametrize("name", [name for name in EXACT if name != "uniformisation"])  # whose events are too many
@torch.no_grad()
@pytest.mark.long
def test_one_gap_beside_a_hidden_place_is_exact_at_any_number_of_steps(name):
    """The hidden place stays masked, and the gap has its distribution with that place summed out, as where all is drawn."""
    sampler, fixed = SAMPLERS[name], torch.tensor([-1, HIDDEN])
    for title in ("mdlm", "d3pm, absorbing", "sedd, absorbing"):
        method = METHODS[title]() if title != "mdlm" else denoiser(absorbing(V + 1, Linear()))
        if sampler.reason_against(method) or (name, title) == ("remasking, loop", "d3pm, absorbing"):
            continue
        assert hides(method)
        K = method.process.K
        whole = conditional(method, torch.tensor([-1, -1]))
        for T in (1, 2) if "remasking" in name else (1, 3):
            distribution = exact.sample_distribution(sampler, method, T, fixed)
            X = exact.states(K, L)
            assert float(distribution[X[:, 1] == method.process.mask].sum()) == pytest.approx(1)
            close(
                beside_hidden(distribution, 1, K, L),
                beside_hidden(whole, 1, K, L),
                rtol=0,
                atol=1e-9,
                msg=f"{title}, {T}",
            )


@pytest.mark.parametrize("sampler", [AnyOrder(), FixedOrder("backward"), FixedOrder("forward"), FirstHitting()])
@torch.no_grad()
def test_gaps_beside_a_hidden_place_have_the_conditional_distribution(sampler):
    """Two gaps beside a token that is given and a place that is hidden, jointly: enumerated, with the exact network."""
    length, process = 4, absorbing(3, Linear())
    method = exact.Denoiser(process, data_distribution(2, length), length)
    X = exact.states(3, length)
    whole = exact.embed(process, data_distribution(2, length), length) * (X[:, 0] == 1)
    distribution = exact.sample_distribution(sampler, method, length, torch.tensor([1, -1, -1, HIDDEN]))
    close(
        beside_hidden(distribution, 1, 3, length), beside_hidden(whole / whole.sum(), 1, 3, length), rtol=0, atol=1e-9
    )


@torch.no_grad()
def test_on_a_grid_the_error_of_gaps_beside_a_hidden_place_goes_with_the_steps():
    """As it does where all is drawn: tokens of one step are drawn independently."""
    process, fixed = absorbing(3, Linear()), torch.tensor([-1, -1, HIDDEN])
    method = exact.Denoiser(process, data_distribution(2, 3), 3)
    whole = beside_hidden(exact.embed(process, data_distribution(2, 3), 3), 1, 3, 3)
    few, many = (
        distance(beside_hidden(exact.sample_distribution(Ancestral(), method, T, fixed), 1, 3, 3), whole)
        for T in (16, 32)
    )
    assert few / many == pytest.approx(2, abs=0.15)


def test_noise_of_tokens_hides_nothing():
    """A token that is noise is read as a token: with it in place of the rest the distribution of the gap would be another."""
    process = uniform(V, Linear(0.0))
    method = denoiser(process)
    assert not hides(method)
    asked = torch.tensor([[0, 0], [0, 1], [0, 2]])
    told = method.predict(asked, 0.5)  # the same gap beside three draws of the noise
    assert (told.mu[:, 0] - told.mu[:1, 0]).abs().max() > 1e-3
