"""Weighted particles: their batch, resampling, given tokens, wrong rewards, and the tilted mean."""

import math

import pytest
import torch
from pairs import METHODS, close, denoiser

from worlds import L, V
from zellige import exact
from zellige.core.curves import Linear
from zellige.core.process import absorbing
from zellige.core.random import Streams
from zellige.errors import InputError
from zellige.samplers import Rewarded, Smc, run


def letters(x, condition):
    """How often token 1 occurs."""
    return (x == 1).sum(-1).double()


def last(sampler, method, rows, steps=6, seeds=None, **more):
    *_, state = run(sampler, method, (rows, L), steps, generator=Streams(seeds or list(range(rows))), **more)
    return state


@pytest.mark.parametrize("name", ["mdlm", "sedd, uniform", "d3pm, absorbing"])
def test_a_group_does_not_depend_on_its_batch(name):
    method = Rewarded(METHODS[name](), letters, 2.0)
    together = last(Smc(particles=4, resample_below=1.0), method, 6)
    apart = last(Smc(particles=4, resample_below=1.0), method, 2, seeds=[1, 4])
    assert torch.equal(together.x[[1, 4]], apart.x)
    for field in ("others", "log_weights", "log_z", "ess", "resampled"):
        close(getattr(together.memory, field)[[1, 4]], getattr(apart.memory, field))
    assert together.memory.resampled.float().mean() > 1
    assert torch.equal(together.calls <= 4 * 6, torch.ones(6, dtype=torch.bool))


def test_where_the_effective_size_is_small_particles_are_drawn_anew():
    method = Rewarded(METHODS["sedd, uniform"](), letters, 3.0)
    never, seldom, often = (last(Smc(particles=8, resample_below=f), method, 64).memory for f in (0.0, 0.3, 1.0))
    assert int(never.resampled.max()) == 0
    assert 0 < int(seldom.resampled.sum()) < int(often.resampled.sum())
    assert (seldom.ess[seldom.resampled == 0] >= 0.3 * 8 - 4).all()
    close(never.weights.sum(-1), torch.ones(64).double())


def test_many_particles_have_the_tilted_mean():
    """E[Z w(x)] against the sum, on 2,000 groups; a deviation of 5 standard errors has a chance of 6e-7 for each of two."""
    method = Rewarded(denoiser(absorbing(V + 1, Linear())), letters, 1.0)
    memory = (state := last(Smc(particles=4), method, 2000, steps=16)).memory
    X = exact.states(V, L)
    p = exact.sample_distribution(Smc(), method.method, 16)[exact.index(X, V + 1)]
    factor = letters(X, None).exp()
    count = letters(torch.cat((state.x[:, None], memory.others), 1).flatten(0, 1), None).reshape(-1, 4)
    for of_texts, of_particles in ((torch.ones(len(X)), torch.ones_like(count)), (letters(X, None), count)):
        values = memory.log_z.exp() * (memory.weights * of_particles).sum(-1)
        error = float(values.mean() - (p * factor * of_texts).sum())
        assert abs(error) < 5 * float(values.std()) / math.sqrt(2000)


def test_a_forbidden_sample_has_no_weight():
    method = Rewarded(METHODS["mdlm"](), lambda x, c: torch.where((x == 1).any(-1), -torch.inf, 0.0), 0.0)
    state = last(Smc(particles=6), method, 40)
    possible = ~(state.x == 1).any(-1)
    assert possible[state.memory.log_z > -torch.inf].all()
    assert possible.float().mean() > 0.9


@pytest.mark.parametrize(
    ("reward", "error"),
    [
        (lambda x, c: torch.full((len(x),), torch.nan), "gave nan; it must return finite numbers"),
        (lambda x, c: torch.full((len(x),), torch.inf), "gave inf; it must return finite numbers"),
        (lambda x, c: torch.zeros(len(x), 1), r"gave the shape \(8, 1\); it must return 8 numbers"),
        (lambda x, c: ["a"] * len(x), "gave no numbers; it must return one for each of 8 samples"),
    ],
)
def test_a_wrong_reward_is_refused(reward, error):
    with pytest.raises(InputError, match=error):
        last(Smc(), Rewarded(METHODS["mdlm"](), reward), 1)
