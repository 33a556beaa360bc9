"""Which distribution, which number: the table, and what the checks of `verify` would not see through."""

import pytest
import torch

from testing.worlds import V, table
from zellige import exact
from zellige.base.errors import InputError
from zellige.evaluation.likelihood import Likelihood
from zellige.exact import distributions as exact_distributions
from zellige.methods import METHODS
from zellige.methods.md4 import MD4
from zellige.methods.mdlm import MDLM
from zellige.plugins.verify.identities.check import apart, enumerable, of_clean, variants
from zellige.plugins.verify.identities.distributions import coarse
from zellige.samplers import (
    SAMPLERS,
    Ancestral,
    AnyOrder,
    Confidence,
    FirstHitting,
    distribution_of,
    distributions,
    run,
)
from zellige.samplers.pairing import admissible

D = torch.float64


@pytest.mark.parametrize(("alpha_1", "alpha_0"), [(0.1, 0.9), (0.3, 0.7)])
@pytest.mark.long
def test_first_hitting_has_the_distribution_of_continuous_time(alpha_1, alpha_0):
    """Its events drawn as if all tokens were masked still pass with the exact network, which does not see the time."""

    class AsIfAll(FirstHitting):
        def _next(self, method, state, generator):
            _, chosen = super()._next(method, state, generator)
            masked = state.memory * super()._next(method, state, generator)[0].div(state.memory) ** (
                (state.x == method.process.mask).sum(-1) / state.x.shape[1]
            )
            return masked, chosen

    method = enumerable(MD4)
    assert coarse(method, alpha_1, alpha_0)
    distribution = exact_distributions.continuous_distribution(method)
    assert float(distribution.sum()) == pytest.approx(1.0, abs=1e-12)
    assert apart(exact_distributions.event_distribution(FirstHitting(), method, 14), distribution) < 1e-6
    assert apart(exact_distributions.event_distribution(AsIfAll(), method, 14), distribution) > 1e-3
    with torch.no_grad():
        terms = exact.continuous_terms(method, exact.states(3, 2))
        p = of_clean(method, distribution)
        assert (terms["diffusion"] + terms["reconstruction"] + terms["prior"] + p.log() > 0).all()


def test_a_fine_grid_goes_into_the_ends():
    """Two tokens or more in the first step that draws any, of 1,024: with a jump at the end 0.27, however many steps."""

    def together(times, alpha_1=1e-3, L=1024):
        alpha = MDLM(None, 2, (L,)).process.schedule.alpha(times)[:, 0]
        left = 1 - alpha  # P(a token is still masked)
        one = left[1:] ** L + L * alpha.diff() * left[1:] ** (L - 1)
        return float((left[:-1] ** L - one).sum())

    method = MDLM(None, 2, (1024,))
    ours = [together(Ancestral().times(method, steps)) for steps in (20_000, 40_000)]
    assert ours[0] == pytest.approx(2 * ours[1], rel=0.05)
    assert ours[1] < 0.02
    inside = torch.linspace(1, 0, 40_001, dtype=D)
    assert together(torch.cat((torch.tensor([torch.inf], dtype=D), inside))) > 0.2


def test_the_table_says_what_each_option_changes():
    method = MDLM(table(V + 1, 4), V, (4,))
    number = lambda sampler, steps=None: distribution_of(sampler, method, steps).number  # noqa: E731
    assert number(Ancestral(), 8) == {"steps": 8}
    assert number(Ancestral()) == {"steps": 64}
    assert number(Ancestral("cosine"), 8) == {"steps": 8, "grid": "cosine"}
    for sampler in (Ancestral("published"), Ancestral(argmax="last"), Ancestral(temperature=0.5), AnyOrder(2)):
        assert number(sampler, 8) is None
    for sampler in (FirstHitting(), AnyOrder()):
        assert number(sampler) == {}
    assert distribution_of(FirstHitting(), method.of_length(3)).number is None
    assert distribution_of(FirstHitting(), MD4(None, V, (4,), MD4.Config(diffusion_steps=4))).number is None
    assert distribution_of(Ancestral(), MD4(None, V, (4,), MD4.Config(diffusion_steps=4)), 4).number == {}


@pytest.mark.parametrize("cls", METHODS.values(), ids=list(METHODS))
def test_a_number_names_the_distribution_that_it_bounds_as_the_samplers_do(cls):
    """The arguments of `evaluate` that a sampler's distribution gives are a number of that distribution, and of that
    sampler."""
    for _, method in variants(cls):
        for name, distribution in distributions(method, method.steps or 8).items():
            if distribution.number is not None:
                asked = Likelihood(method, **distribution.number)
                assert asked.distribution.key == distribution.key, name
                assert name in asked.bounds


@pytest.mark.parametrize("sampler", ["ancestral", "remasking"])
@pytest.mark.parametrize("name", ["mdlm", "md4", "udlm", "d3pm"])
def test_a_model_of_t_steps_is_drawn_in_t_unless_told(name, sampler):
    """The number of its bound. In fewer it is a coarse chain with a bound of its own, in more no chain of the model."""
    method, cls = enumerable(METHODS[name], diffusion_steps=6), SAMPLERS[sampler]
    if cls.reason_against(method) is None:
        assert len(cls().times(method, None)) == 7
        assert len(cls().times(METHODS["mdlm"](None, 2, (4,)), None)) == 65
    distribution = distribution_of(Ancestral(), method)
    assert (distribution.text, distribution.number) == ("the model of 6 steps", {})
    assert [admissible(method, n) for n in (64, 4, 2)] == [6, 4, 2]
    if name == "d3pm":
        with pytest.raises(InputError, match="8 steps are more than the 6 of d3pm; use 6 or fewer"):
            Ancestral().times(method, 8)
    else:
        assert distribution_of(Ancestral(), method, 8).number is None


@pytest.mark.parametrize("grid", ["uniform", "cosine"])
@pytest.mark.parametrize("name", ["mdlm", "udlm", "d3pm"])
def test_a_coarse_chain_names_the_number_that_bounds_it(name, grid):
    """The command that it names has its times."""
    method = enumerable(METHODS[name], diffusion_steps=7)
    for steps in (2, 4):
        distribution = distribution_of(Ancestral(grid), method, steps)
        ask = Likelihood(method, **distribution.number)
        assert ask.distribution.key == distribution.key
        assert torch.equal(ask.times, Ancestral(grid).times(method, steps))
        assert ("ancestral" in ask.bounds) == (grid == "uniform")  # without options


def test_a_network_of_t_steps_is_asked_at_its_own_times():
    """By the samplers of orders, whose time is that of the number of masks."""
    asked, method = [], enumerable(METHODS["md4"], diffusion_steps=4)

    class Heard(type(method)):
        def predict(self, x_t, t, **more):
            asked.append(torch.as_tensor(t).clamp(0, 1)[x_t == self.process.mask])
            return super().predict(x_t, t, **more)

    method.__class__ = Heard
    for sampler in (AnyOrder(), Confidence()):
        if sampler.reason_against(method) is None:
            *_, _ = run(sampler, method, (8, 2), generator=torch.Generator().manual_seed(0))
    times = torch.cat(asked)
    assert times.numel()
    assert set(times.tolist()) <= {0.25, 0.5, 0.75, 1.0}
