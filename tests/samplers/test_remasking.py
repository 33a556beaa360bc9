"""ReMDM: the marginals are kept, exactly; what is not kept; sigma of each kind; the loop."""

import itertools
import math

import pytest
import torch

from testing.pairs import METHODS, close, constant, denoiser, distance, md4, mdlm
from testing.worlds import L, V, data_distribution
from zellige import exact
from zellige.base.errors import InputError
from zellige.core.curves import Cosine, Linear
from zellige.core.process import absorbing
from zellige.core.schedule import CLEAN, PRIOR
from zellige.methods import MDLM
from zellige.samplers import P2, Ancestral, Remasking, State, run

CAP, RESCALE, LOOP = Remasking("cap", eta=0.3), Remasking("rescale", eta=0.4), Remasking("loop", eta=0.3)
STEPS = [(PRIOR, 0.7), (0.9, 0.4), (0.6, 0.6), (0.5, 0.45), (0.3, CLEAN)]


def at(method, t, s):
    """Every state, and the times of the step."""
    X = exact.states(V + 1, L)
    state = State(X, torch.zeros_like(X, dtype=torch.bool), torch.zeros(len(X)), memory=torch.zeros(X.shape).double())
    return state, *(torch.full((len(X), 1), u, dtype=torch.float64) for u in (t, s))


@pytest.mark.parametrize("sampler", [CAP, RESCALE, LOOP], ids=lambda s: s.remasking)
@pytest.mark.parametrize(("t", "s"), STEPS)
@torch.no_grad()
def test_given_x_0_a_step_keeps_the_marginals(sampler, t, s):
    """x_t ~ q(x_t | x_0) and a network that knows x_0: then x_s ~ q(x_s | x_0), all positions jointly."""
    process = absorbing(V + 1, Cosine(1e-2, 1 - 1e-2))
    distribution = torch.zeros(V**L, dtype=torch.float64)
    distribution[5] = 1.0  # two tokens that differ
    method = exact.Denoiser(process, distribution, L)
    state, time, later = at(method, t, s)
    before, after = (exact.marginal(process, exact.embed(process, distribution, L), L, u) for u in (t, s))
    close(before @ exact.transition(sampler, method, state, time, later), after, rtol=0, atol=1e-12)


@torch.no_grad()
def test_p2_of_strictness_0_masks_no_token_again():
    """However sure the network is of the masks: one to three of them left of revealed tokens that it says are wrong."""
    method = constant(Linear(), [50.0, 0, 0, 0], 4)
    x = torch.tensor([[V, V, V, 1], [V, V, 2, 1], [V, 1, 2, 1]])
    state = State(x, torch.zeros_like(x, dtype=torch.bool), torch.zeros(3, dtype=torch.long))
    t, s = torch.tensor([[0.75], [0.5], [0.25]]), torch.tensor([[0.5], [0.25], [0.25]])
    state = P2(0.0).step(method, state, t.double(), s.double(), torch.Generator().manual_seed(0))
    assert state.x.tolist() == [[0, V, V, 1], [0, V, 2, 1], [V, 1, 2, 1]]


@torch.no_grad()
def test_conf_leaves_more_masks():
    """By alpha_t times the mean of sigma, since its masks are revealed as if nothing were masked again."""
    process = absorbing(V + 1, Linear())
    distribution = torch.zeros(V**L, dtype=torch.float64)
    distribution[5] = 1.0
    method = exact.Denoiser(process, distribution, L)
    state, t, s = at(method, 0.6, 0.4)
    before, after = (exact.marginal(process, exact.embed(process, distribution, L), L, u) for u in (0.6, 0.4))
    got = before @ exact.transition(Remasking("conf"), method, state, t, s)
    masks = (state.x == V).double().mean(-1)
    alpha_t, alpha_s = (process.schedule.alpha(u) for u in (t, s))
    sigma = Remasking("conf").sigma(state, state.x == V, alpha_t[..., 0], alpha_s[..., 0])
    close((got - after) @ masks, before @ (sigma * (state.x < V)).mean(-1), rtol=0, atol=1e-12)
    assert float((got - after) @ masks) > 0.01


def test_its_grids():
    """As those of `ancestral`, but for the loop, whose published times go from t = 1 to 1e-5 as alpha says."""
    method = MDLM(None, V, (L,), MDLM.Config(alpha_1=0.0))
    for grid in ("uniform", "cosine", "published"):
        assert torch.equal(Remasking("cap", grid=grid).times(method, 6), Ancestral(grid).times(method, 6))
    loop = Remasking("loop", grid="published").times(method, 1000)
    alpha = method.process.schedule.alpha(loop)[:, 0]
    assert (float(alpha[0]), float(alpha[-1])) == (0.0, 1.0)
    assert float(alpha[-2]) == pytest.approx(1 - 0.1 * 1e-5 / 0.05, abs=1e-12)
    with pytest.raises(
        InputError, match="remasking 'loop' has times of its own; use grid uniform or published, not cosine"
    ):
        Remasking("loop", grid="cosine")
    with pytest.raises(InputError, match="`argmax` is 'every'; it must be none or last"):
        Remasking(argmax="every")


@torch.no_grad()
def test_the_last_step_may_be_an_argmax():
    method = mdlm()
    state, t, s = at(method, 0.3, CLEAN)
    step = exact.transition(Remasking(argmax="last"), method, state, t, s)
    close(step, exact.transition(Ancestral(argmax="last"), method, state, t, s), rtol=0, atol=1e-12)


@torch.no_grad()
def test_with_the_exact_network_each_position_keeps_its_marginal():
    process = absorbing(V + 1, Linear())
    method, data = denoiser(process), exact.embed(process, data_distribution(), L)
    for sampler, t, s in ((CAP, 0.6, 0.4), (RESCALE, 0.6, 0.4), (LOOP, 0.5, 0.5)):
        state, time, later = at(method, t, s)
        got = exact.marginal(process, data, L, t) @ exact.transition(sampler, method, state, time, later)
        expected = exact.marginal(process, data, L, s)
        for axis in range(L):
            close(*(p.reshape([V + 1] * L).sum(axis) for p in (got, expected)), rtol=0, atol=1e-12)
        assert (
            distance(got, expected) > 1e-3
        )  # but not the joint distribution: what is drawn anew is drawn independently


@pytest.mark.long
@torch.no_grad()
def test_the_distribution_comes_slowly_or_not():
    """With sigma that does not shrink with the step the order is 1/2, that of ancestral 1; in the loop there is no limit."""
    method = denoiser(absorbing(V + 1, Linear()))
    data = exact.embed(method.process, data_distribution(), L)
    for sampler, order in ((Ancestral(), 1.0), (CAP, 0.5), (RESCALE, 0.5), (LOOP, 0.0)):
        a, b = (distance(exact.sample_distribution(sampler, method, T), data) for T in (128, 512))
        assert math.log2(a / b) / 2 == pytest.approx(order, abs=0.07)


@torch.no_grad()
@pytest.mark.long
def test_without_remasking_it_is_ancestral():
    for method in (mdlm(), md4(), METHODS["d3pm, absorbing"]()):
        for kind in ("cap", "rescale"):
            for T in (1, 3):
                plain = exact.sample_distribution(Ancestral(), method, T)
                close(exact.sample_distribution(Remasking(kind, eta=0.0), method, T), plain, rtol=0, atol=1e-12)


def test_sigma():
    memory = torch.tensor([[0.9, 0.2, 0.0, 0.5]], dtype=torch.float64)
    x, fixed = torch.tensor([[0, 1, V, 2]]), torch.tensor([[False, False, False, True]])
    state, a, b = (
        State(x, fixed, torch.zeros(1), memory=memory),
        torch.tensor([0.8]).double(),
        torch.tensor([0.9]).double(),
    )
    masked = x == V
    for sampler, value in (
        (Remasking(eta=0.1), 0.1),
        (Remasking(eta=0.5), 0.125),
        (Remasking("rescale", eta=0.4), 0.05),
    ):
        close(sampler.sigma(state, masked, a, b), torch.full((1, 4), value, dtype=torch.float64))
    close(LOOP.sigma(state, masked, a, b), torch.zeros(1, 4).double())
    close(LOOP.sigma(state, masked, a, a), torch.full((1, 4), 0.25).double())
    ours = Remasking("conf").sigma(state, masked, a, b)
    weight = torch.softmax(torch.tensor([-0.9, -0.2], dtype=torch.float64), 0)
    close(ours, 0.125 * torch.tensor([[weight[0], weight[1], 0.0, 0.0]]).double())
    assert Remasking("conf").sigma(state, ~masked | masked, a, b).abs().max() == 0  # a row without tokens


def test_the_loop_stands_still():
    for method in (mdlm(), md4("cosine")):
        times = Remasking("loop", t_on=0.6, t_off=0.2, alpha_on=0.8).times(method, 10)
        assert (times[0], times[-1]) == (PRIOR, CLEAN)
        alpha = method.process.schedule.alpha(times)[:, 0]
        expected = [0.0, 0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8, 0.9, 1.0]  # at u = 1, 0.9, ..., 0 but for the ends
        close(alpha[1:8], torch.tensor([*expected[1:4], 0.8, 0.8, 0.8, 0.8]).double(), rtol=1e-6, atol=1e-6)
        close(alpha[8:], torch.tensor([0.8, 0.9, 1.0]).double(), rtol=1e-6, atol=1e-6)
    with pytest.raises(InputError, match="remasking 'loop' needs continuous time; with exact use cap, rescale or conf"):
        Remasking("loop").times(METHODS["d3pm, absorbing"](), 6)


@torch.no_grad()
def test_conf_remembers_what_the_network_said():
    method = mdlm()
    states = list(run(Remasking("conf"), method, (20, L), 8, generator=torch.Generator().manual_seed(0)))
    masked_again = 0
    for before, after in itertools.pairwise(states):
        new = (before.x == V) & (after.x != V)
        p = method.predict(before.x, 0.5).mu  # pyright: ignore[reportAttributeAccessIssue]
        close(after.memory[new], p.gather(-1, after.x.clamp_max(V - 1)[..., None])[..., 0][new])
        masked_again += int(((before.x != V) & (after.x == V)).sum())
    assert masked_again > 0
    assert (states[-1].x < V).all()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"remasking": "capp"}, "`remasking` is 'capp'; it must be cap, rescale, conf or loop"),
        ({"eta": -1.0}, "`eta` is -1; it must be between 0 and 1"),
        ({"t_on": 0.1, "t_off": 0.5}, "the loop runs from `t_on` 0.1 down to `t_off` 0.5; e.g. 0.55 and 0.05"),
        ({"alpha_on": 1.0}, "`alpha_on` is 1; it must be above 0 and below 1"),
    ],
)
def test_wrong_input(how, message):
    with pytest.raises(InputError) as error:
        Remasking(**how)
    assert str(error.value) == message
