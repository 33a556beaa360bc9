"""Given tokens: clamping is exact for absorbing noise, and for other noise only if the network knows that they are clean."""

import pytest
import torch
from pairs import METHODS, SAMPLERS, close, denoiser, distance

from worlds import L, V, data_law
from zellige import exact
from zellige.process import uniform
from zellige.samplers import Ancestral
from zellige.schedule import Linear


def conditional(method, given):
    """The law of the data given some of its tokens, (K^L,)."""
    X = exact.states(method.process.K, L)
    law = exact.embed(method.process, data_law(), L) * ((given == X) | (given < 0)).all(-1)
    return law / law.sum()


@pytest.mark.parametrize("given", [[1, -1], [-1, 0]])
@pytest.mark.parametrize("name", SAMPLERS)
@torch.no_grad()
def test_masks_one_gap_is_exact_at_any_number_of_steps(name, given):
    """For every sampler; the steps of conf depend on its memory and are not enumerated, those of correctors are too many, cold
    samples have another law."""
    sampler, given = SAMPLERS[name], torch.tensor(given)
    if name in ("remasking, conf", "ancestral, cold", "tau_leaping, corrected"):
        return
    for title in ("d3pm, absorbing", "sedd, absorbing"):
        method = METHODS[title]()
        if sampler.refuse(method) or (name, title) == ("remasking, loop", "d3pm, absorbing"):
            continue
        for T in (1, 3, 6):
            law = exact.sample_law(sampler, method, T, given)
            close(law, conditional(method, given), rtol=0, atol=1e-9, msg=f"{title}, {T}")


class Blind(exact.Denoiser):
    """The exact network of one time for all positions: it does not know that given tokens carry no noise."""

    def predict(self, x_t, t, **how):
        t = torch.as_tensor(t, dtype=torch.float64)
        return super().predict(x_t, t.amax(-1, keepdim=True) if t.ndim == 2 else t, **how)


@torch.no_grad()
def test_uniform_noise_needs_a_time_for_each_position():
    """Told that given tokens are CLEAN the error goes with 1/T; told one time for all it stays: a bias."""
    process, given = uniform(V, Linear(0.0)), torch.tensor([1, -1])
    knows, blind = denoiser(process), Blind(process, data_law(), L)
    law = conditional(knows, given)
    error = [[distance(exact.sample_law(Ancestral(), m, T, given), law) for T in (64, 256)] for m in (knows, blind)]
    assert error[0][1] < max(0.3 * error[0][0], 1e-12)
    assert error[1][1] > 0.9 * error[1][0] > 0.02
