"""Samples that begin from the noise of a text (`run(begin=...)`, `zellige.Sample(reconstruct=...)`), enumerated."""

import itertools

import pytest
import torch
from pairs import close

from worlds import V, data_distribution
from zellige import InputError, exact
from zellige.core.curves import Linear
from zellige.core.process import absorbing, uniform
from zellige.core.schedule import CLEAN, Tabulated
from zellige.exact.distributions import joint_kernel
from zellige.exact.script import branches
from zellige.samplers import Ancestral, AnyOrder, Remasking, run

EVEN = Tabulated(torch.linspace(1.0, 0.05, 13, dtype=torch.float64))  # T = 12


def denoiser(process, predicts="leave_one_out"):
    return exact.Denoiser(process, data_distribution(L=1), 1, predicts)


WORLDS = {
    "uniform": (denoiser(uniform(V, Linear(0.05))), 0.3, [0.3, 0.25, CLEAN]),
    "absorbing": (denoiser(absorbing(V + 1, Linear()), "mean"), 0.5, [0.5, 0.25, CLEAN]),
    "T = 12": (denoiser(uniform(V, EVEN)), 0.6, [7 / 12, 6 / 12, 3 / 12, CLEAN]),
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_text_is_noised_and_denoised_from_there(name):
    """P(sample | text) is q(x_t | text) times the kernels of the times after t."""
    method, t, times = WORLDS[name]
    K, X = method.process.K, torch.arange(V)[:, None]
    found = torch.zeros(V, K, dtype=torch.float64)

    def draw(rows, script):
        states = [*run(Ancestral(grid="uniform"), method, (len(rows), 1), 4, generator=script, begin=(X[rows], t))]
        assert len(states) == len(times)
        return states[-1].x[:, 0]

    for rows, x, probability in branches(draw, V):
        found.index_put_((rows, x), probability, accumulate=True)
    expected = method.process.matrix(CLEAN, times[0])[:V]
    for begin, end in itertools.pairwise(times):
        expected = expected @ joint_kernel(method, torch.arange(K)[:, None], begin, end)
    close(found, expected, rtol=0, atol=1e-12)
    assert float((found[:, :V] - data_distribution(L=1)).abs().max()) > 0.05  # the text is still there


def test_given_positions_stay():
    method = exact.Denoiser(uniform(V, Linear(0.05)), data_distribution(), 2, "leave_one_out")
    x_0 = torch.tensor([[0, 1]]).expand(200, 2)
    fixed = torch.tensor([[-1, 2]])
    states = [
        state.x
        for state in run(
            Ancestral(), method, (200, 2), 8, fixed=fixed, begin=(x_0, 0.9), generator=torch.Generator().manual_seed(0)
        )
    ]
    assert all(bool((x[:, 1] == 2).all()) for x in states)
    assert len(states[0][:, 0].unique()) == V


@pytest.mark.parametrize("sampler", [AnyOrder(), Remasking()])
def test_a_sampler_without_a_time_is_refused(sampler):
    method = denoiser(absorbing(V + 1, Linear()), "mean")
    with pytest.raises(InputError, match=f"sampler '{sampler.name}' cannot begin with a noisy text; use ancestral"):
        next(run(sampler, method, (1, 1), 4, begin=(torch.zeros(1, 1, dtype=torch.long), 0.5)))
