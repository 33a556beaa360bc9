"""Weighted particles: their batch, cost, resampling, wrong rewards, the tilted mean, and the interval of log Z."""

import math
import sys
from pathlib import Path

import pytest
import torch

from testing.pairs import METHODS, close, denoiser
from testing.worlds import L, V
from zellige import exact
from zellige.base.errors import InputError
from zellige.core.curves import Linear
from zellige.core.process import absorbing
from zellige.core.random import Streams
from zellige.core.student import student
from zellige.methods import MDLM
from zellige.plugins.verify.identities.check import enumerable
from zellige.samplers import Rewarded, Smc, run
from zellige.samplers.smc import Constant, Particles

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "studies" / "gb1"))
import coverage_particles


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


@pytest.mark.parametrize("name", ["mdlm", "sedd, uniform"])
def test_every_particle_costs_an_evaluation_of_its_own(name, monkeypatch):
    """Against a network that counts the sequences which it gets; with masks, those with none left cost nothing."""
    method, seen = METHODS[name](), []
    predict = method.predict
    monkeypatch.setattr(method, "predict", lambda x, *a, **k: seen.append(len(x)) or predict(x, *a, **k))
    fixed = torch.tensor([1, -1][:L] + [-1] * (L - 2))
    for count in (1, 3):
        seen.clear()
        calls = last(Smc(particles=count), Rewarded(method, letters), 5, steps=7, fixed=fixed).calls
        assert int(calls.sum()) == sum(seen)
        assert name == "mdlm" or calls.tolist() == [7 * count] * 5
    assert len({*calls.tolist()}) > 1 or name != "mdlm"


def test_the_effective_size_is_the_smallest_of_all_steps():
    zeros = torch.zeros(2, dtype=torch.float64)
    even = torch.full((2, 4), -math.log(4), dtype=torch.float64)
    particles = Particles(torch.zeros(2, 3, 1), even, even * 0, zeros, zeros + 4, zeros.long())
    factor = torch.tensor([[0.0, -torch.inf, -torch.inf, math.log(3)], [0.5, 0.5, 0.5, 0.5]], dtype=torch.float64)
    one_uneven = particles.weighed(factor)
    close(one_uneven.ess, torch.tensor([16 / 10, 4.0]).double())
    back = one_uneven.weighed(torch.tensor([[math.log(3), 0, 0, 0.0], [0.0] * 4], dtype=torch.float64))
    close(back.effective_size(), torch.tensor([2.0, 4.0]).double())
    close(back.ess, torch.tensor([16 / 10, 4.0]).double())
    none_left = back.weighed(torch.full((2, 4), -torch.inf).double())
    assert none_left.ess.tolist() == [0, 0]
    assert none_left.log_z.tolist() == [-math.inf] * 2


def test_where_the_effective_size_is_small_particles_are_drawn_anew():
    method = Rewarded(METHODS["sedd, uniform"](), letters, 3.0)
    never, seldom, often = (last(Smc(particles=8, resample_below=f), method, 64).memory for f in (0.0, 0.5, 1.0))
    assert int(never.resampled.max()) == 0
    assert 0 < int(seldom.resampled.sum()) < int(often.resampled.sum())
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
    memory = (state := last(Smc(particles=6), method, 40)).memory
    texts = torch.cat((state.x[:, None], memory.others), 1)
    allowed = ~(texts == 1).any(-1)
    some = allowed.any(-1)
    assert torch.equal(memory.log_z > -torch.inf, some)
    assert 0 < int(some.sum()) < 40
    assert torch.equal((memory.weights > 0)[some], allowed[some])
    assert allowed[some, 0].all()
    assert torch.equal(memory.ess == 0, ~some)


def test_the_interval_of_log_z_is_the_jackknife():
    """Against each mean without one of the groups; a group without a particle has Z = 0."""
    z = torch.tensor([0.3, 1.7, 0.0, 0.9, 2.2], dtype=torch.float64)
    without = torch.stack([z[torch.arange(5) != i].mean().log() for i in range(5)])
    error = math.sqrt(4 / 5 * float((without - without.mean()).square().sum()))
    constant = Constant.of(z.log() + 700)  # of which exp is infinite
    assert constant.value == pytest.approx(700 + math.log(5.1 / 5))
    assert constant.half == pytest.approx(student(4) * error)
    assert constant.count == 5
    assert constant.effective == pytest.approx(5.1**2 / float(z.square().sum()))


@pytest.mark.parametrize(
    ("z", "determined"),
    [
        ([0.2], False), ([0.2, 0.2, 0.2], False), ([0.2, 0.2, 0.2, 0.2], True), ([0.0] * 5, False),
        ([0.2, 0.0, 0.0, 0.0], False), ([0.2, 0.2, 0.0, 0.0], True), ([16.0, 1, 1, 1], True), ([999.0, 1, 1, 1], False),
    ],
)  # fmt: skip
def test_no_interval_of_fewer_than_4_groups_or_where_one_has_all_of_the_weight(z, determined):
    assert math.isfinite(Constant.of(torch.tensor(z).double().log()).half) == determined


@pytest.mark.parametrize("choices", [{}, {"carry_over": False}, {"zero_masking": False}], ids=str)
def test_little_annealing_weighs_little(choices):
    """Also where the last step draws visible tokens anew."""
    method = enumerable(MDLM, diffusion_steps=2, **choices)
    log_z = last(Smc(anneal=1.000001, particles=1), method, 40, steps=2).memory.log_z
    close(log_z, torch.zeros_like(log_z), rtol=0, atol=1e-5)


@pytest.mark.parametrize("lookahead", [4, 0])
def test_the_interval_of_log_z_holds_with_a_rare_reward(lookahead):
    """Of 250 intervals of 16 groups; of intervals that hold 93% fewer than 218 hold with a probability of 5e-4.

    With a lookahead that trusts four sequences to 10 nats, 20% hold. `studies/gb1/coverage_particles.py` has all of it.
    """
    method, reward = coverage_particles.small()
    sampler, steps = Smc(particles=8, lookahead=lookahead), 4
    values = coverage_particles.log_z(method, reward, sampler, steps, 250 * 16, seed=0)
    given, held = coverage_particles.held(values.reshape(250, 16), coverage_particles.truth(method, reward, steps))
    assert given >= 240
    assert held >= 218


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
