"""Samples that begin from the noise of a text (`run(begin=...)`, `zellige.Sample(reconstruct=...)`), enumerated."""

import pytest
import torch

from testing.worlds import V, data_distribution
from zellige import InputError, exact
from zellige.core.curves import Linear
from zellige.core.process import absorbing, uniform
from zellige.core.schedule import Tabulated
from zellige.samplers import Ancestral, AnyOrder, Remasking, run
from zellige.samplers.sampler import below


def denoiser(process, predicts="leave_one_out"):
    return exact.Denoiser(process, data_distribution(L=1), 1, predicts)


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


@pytest.mark.parametrize("T", [11, 49, 100])
def test_a_model_of_t_steps_takes_as_many_as_are_left(T):
    """One for each of its times from the noise on, though a time is not the same float64 on the grid and as i / T."""
    noise = absorbing(V + 1, Tabulated(torch.linspace(1.0, 0.0, T + 1, dtype=torch.float64)))
    method = denoiser(noise, "leave_one_out")
    for i in range(1, T + 1):
        times = below(Ancestral(), method, Ancestral().times(method, T), i / T)
        assert len(times) == i + 1
        assert float(times[0]) == i / T


@pytest.mark.parametrize("sampler", [AnyOrder(), Remasking()])
def test_a_sampler_without_a_time_is_refused(sampler):
    method = denoiser(absorbing(V + 1, Linear()), "mean")
    with pytest.raises(InputError, match=f"sampler '{sampler.name}' cannot begin with a noisy text; use ancestral"):
        next(run(sampler, method, (1, 1), 4, begin=(torch.zeros(1, 1, dtype=torch.long), 0.5)))
