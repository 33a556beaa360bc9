"""The times of `Psi` with a pause, for every number of steps."""

import itertools

import pytest
import torch

from testing.small import make
from zellige.base.errors import InputError
from zellige.samplers import Psi

ENDS = [(1.0, 0.0), (0.5, 0.0), (0.5, 0.1), (0.45, 0.45), (0.35, 0.15), (0.0, 0.0)]


@pytest.mark.parametrize("name", ["mdlm", "udlm"])
@pytest.mark.parametrize("grid", ["uniform", "published"])
@pytest.mark.parametrize("pause", [0.0005, 0.5, 0.99999])
def test_the_times_fall_and_their_number_is_that_of_the_steps(name, grid, pause):
    """Also where the parts round up together, and where alpha is `pause` beyond t = 1 or below the last time."""
    method = make(name)
    for steps, (t_on, t_off) in itertools.product(range(1, 16), ENDS):
        times = Psi(pause=pause, t_on=t_on, t_off=t_off, grid=grid).times(method, steps)
        assert len(times) == steps + (2 if grid == "published" else 1)
        assert (times[1:] <= times[:-1]).all(), (steps, t_on, t_off)
        assert grid == "published" or float(times[0]) == method.process.start_time
        assert float(times[-1]) == -torch.inf


def test_no_steps():
    with pytest.raises(InputError, match="`steps` is 0; it must be 1 or more"):
        Psi(pause=0.5).times(make("mdlm"), 0)
