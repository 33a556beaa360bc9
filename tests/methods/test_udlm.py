"""UDLM: the paper's bound against the definition, enumeration, and a network that knows the data."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from testing.worlds import L, V, data_distribution, five_sigma, numbers, positions, table, value_and_gradient
from zellige import exact
from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.core.prediction import LeaveOneOut
from zellige.methods import UDLM, build
from zellige.methods.diffusion import Diffusion
from zellige.nn import Net
from zellige.samplers import Ancestral, Euler

D = torch.float64
close = torch.testing.assert_close
X_0 = exact.states(V, L)
SCHEDULES = ["loglinear", "cosine", "geometric"]
each_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


class Exact(nn.Module):
    """log p(x_0 | the other positions), by enumeration."""

    def __init__(self, config: UDLM.Config, distribution: torch.Tensor):
        super().__init__()
        self.process = UDLM(None, V, (L,), config).process
        self.denoiser = exact.Denoiser(self.process, distribution, L, "leave_one_out")

    def features(self, x, time=None, **kwargs):
        t = self.process.schedule.inverse(torch.exp(-time.double()))[:, None]
        return self.denoiser.predict(x, t).mu.log()

    def head(self, h):
        return h


def known(schedule="loglinear", **more) -> UDLM:
    config = UDLM.Config(schedule, **more)
    return UDLM(Exact(config, data_distribution()), V, (L,), config)


def tabled(schedule="loglinear", time=True, **more) -> UDLM:
    return UDLM(table(V, L, time=time), V, (L,), UDLM.Config(schedule, time, **more))


# ---------------------------------------------------------------------------------- the paper's bound
@each_schedule
@pytest.mark.parametrize("t", [1e-5, 0.03, 0.5, 0.97, 1.0])
def test_the_closed_form_is_the_bound(schedule, t):
    method = UDLM(None, V, (L,), UDLM.Config(schedule))
    logits, x_0, x_t = positions(V)
    time = torch.full((len(x_0),), t, dtype=D)
    value, gradient = value_and_gradient(method.cost, logits, x_0, x_t, time)
    generic = value_and_gradient(partial(Diffusion.cost, method), logits, x_0, x_t, time)
    close((value, gradient), generic, rtol=1e-9, atol=1e-15)
    # and it is the equation as it is written, with the vectors w
    alpha, beta = (f(time) for f in (method.process.schedule.alpha, method.process.schedule.beta))
    w, w_true = (V * alpha * x + 1 - alpha for x in (logits.softmax(-1), F.one_hot(x_0, V).double()))
    z, z_true = (u.gather(-1, x_t[:, None]) for u in (w, w_true))
    inside = V / z[:, 0] - V / z_true[:, 0] + (w_true / z_true * (w_true / z_true * z / w).log()).sum(-1)
    written = beta[:, 0] / V * inside
    close(value, written, rtol=1e-8, atol=1e-11 * max(float(written.max()), 0.1))  # it cancels


@each_schedule
@pytest.mark.parametrize("t", [1e-4, 0.03, 0.5, 1.0])
def test_single_precision_is_enough(schedule, t):
    method = UDLM(None, V, (L,), UDLM.Config(schedule))
    logits, x_0, x_t = positions(V)
    time = torch.full((len(x_0),), t, dtype=D)
    rate = float(method.process.schedule.beta(time[0]))
    logits = logits.float()
    close(
        method.cost(logits, x_0, x_t, time), method.cost(logits.double(), x_0, x_t, time), rtol=1e-5, atol=1e-6 * rate
    )


# ---------------------------------------------------------------------------------- the bound
@each_schedule
@torch.no_grad()
def test_with_the_exact_distribution_the_bound_is_the_entropy(schedule):
    method, distribution = known(schedule), data_distribution()
    terms = exact.continuous_terms(method, X_0)
    whole = (distribution * (terms["diffusion"] + terms["reconstruction"] + terms["prior"])).sum()
    end = exact.marginal(method.process, distribution, L, 1.0)
    close(whole, exact.entropy(distribution) + (end * (end * V**L).log()).sum(), rtol=0, atol=2e-5)


@pytest.mark.parametrize("steps", [0, 6])
@pytest.mark.parametrize("time", [True, False])
@torch.no_grad()
def test_terms_are_draws_of_the_bound(steps, time):
    method, rows, x_0 = tabled(time=time, diffusion_steps=steps), 40_000, X_0[5:6]
    batch, generator = Batch(x_0.expand(rows, -1)), torch.Generator().manual_seed(3)
    terms = method.terms(batch, generator)
    if steps:
        assert five_sigma(sum(terms.values()), exact.step_bound(method, x_0, method.grid(steps)))
    else:
        for name, value in exact.continuous_terms(method, x_0).items():
            assert name == "start" or five_sigma(terms[name], value)
    again = (torch.Generator().manual_seed(4) for _ in range(2))
    if steps:  # training has one of all steps in one network evaluation, the bound its last one for every row
        assert five_sigma(method.loss(batch, next(again)), exact.step_bound(method, x_0, method.grid(steps)))
    else:
        assert torch.equal(method.loss(batch, next(again)), method.bound(batch, next(again)))


@pytest.mark.parametrize("sampler", [Ancestral, Euler])
@torch.no_grad()
def test_samples_approach_the_distribution(sampler):
    method, distribution = known(), data_distribution()
    few, many = (0.5 * (exact.sample_distribution(sampler(), method, n) - distribution).abs().sum() for n in (16, 64))
    assert many < 0.45 * few
    assert many < 0.02


# ---------------------------------------------------------------------------------- what it is
def test_the_network_is_told_sigma_or_nothing():
    sizes = Net(layers=1, hidden=16, heads=2, length=4)
    told, free = (build("udlm", V, sizes, UDLM.Config(time=time)) for time in (True, False))
    assert told.network.time_conditioned
    assert not free.network.time_conditioned
    t = torch.tensor([0.2, 1.0], dtype=D)
    close(told.network_time(t), told.process.schedule.sigma(t)[:, 0].float())
    assert told.network.head.out_features == V
    pred = free.predict((V * numbers(2, 4)).long(), 0.5)
    assert isinstance(pred, LeaveOneOut)
    close(pred.mu.sum(-1), torch.ones(2, 4))


def test_a_wrong_schedule_is_refused():
    with pytest.raises(InputError, match="unknown schedule 'cosin'; did you mean 'cosine'"):
        UDLM(None, V, (L,), UDLM.Config("cosin"))
