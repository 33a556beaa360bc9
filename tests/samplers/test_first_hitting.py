"""First hitting: no error with the exact network, exact times; thinning where each token has its own alpha."""

import pytest
import torch

from testing.pairs import close, constant, denoiser, generators, mdlm
from testing.worlds import Given, L, V, data_distribution, five_sigma, per_token, table
from zellige import exact
from zellige.base.errors import InputError
from zellige.core.curves import Linear, Polynomial
from zellige.core.prediction import posterior
from zellige.core.process import absorbing
from zellige.methods import MD4, MDLM
from zellige.samplers import AnyOrder, FirstHitting, run


@torch.no_grad()
def test_first_hitting_has_no_error():
    for P in (absorbing(V + 1, Linear()), absorbing(V + 1, Linear(0.2), mask=0), absorbing(V + 1, Polynomial(3.0))):
        method, data = denoiser(P), exact.embed(P, data_distribution(), L)
        close(exact.sample_distribution(FirstHitting(), method, L), data, rtol=0, atol=1e-12)
    method = mdlm()  # and of any time-free network: the any-order autoregressive model
    close(
        exact.sample_distribution(FirstHitting(), method, L),
        exact.sample_distribution(AnyOrder(), method, L),
        rtol=0,
        atol=1e-12,
    )


@torch.no_grad()
def test_first_hitting_asks_at_the_exact_times():
    """One token, a network that sees the time: p = integral over m = 1 - alpha in (0, 1) of mu(t(m)). 20,000 samples within 5.5
    standard errors (a false alarm: 4e-8 a token)."""
    method = MD4(table(V + 1, 1, time=True), V, (1,), MD4.Config("polynomial", eps=0.1))
    method.network_time = lambda t: 3 * t  # type: ignore[method-assign]
    (*_, state) = run(FirstHitting(), method, (20_000, 1), generator=torch.Generator().manual_seed(0))
    m = ((torch.arange(4000) + 0.5) / 4000).double()
    t = method.process.schedule.inverse(1 - m)
    expected = posterior(method.predict(torch.full((4000, 1), V), t[:, None]))[:, 0].mean(0)
    drawn = torch.nn.functional.one_hot(state.x[:, 0], V + 1).double()
    assert five_sigma(drawn, expected)
    assert not five_sigma(drawn, posterior(method.predict(torch.full((1, 1), V), 1.0))[0, 0])  # it does see the time


@torch.no_grad()
def test_first_hitting_times():
    """With n masks left 1 - alpha falls by U^(1/n): the largest of n uniforms."""
    method = MDLM(table(V + 1, 3), V, (3,))
    sampler = FirstHitting()
    state = sampler.init(method, (1, 3))
    u = [0.3, 0.6, 0.2]
    for n, v in zip((3, 2, 1), u):
        before = float(state.memory)
        state = sampler.step(method, state, torch.tensor(0.0), torch.tensor(0.0), Given(1 - v, 0.5, 0.5))
        assert float(state.memory) == pytest.approx(before * v ** (1 / n))
        assert int((state.x == V).sum()) == n - 1
    assert int(state.calls) == 3


# ---------------------------------------------------------------------------------- an exponent for each token
@torch.no_grad()
def test_thinning_one_token():
    """A network that always says mu: p_k = eps mu_k + (1 - eps) mu_k w_k / sum(mu w). 20,000 samples within 5.5 standard errors
    (a false alarm: 4e-8 a token); without thinning it would be mu."""
    eps, w, mu = 0.2, per_token(0.5, 1.0, 3.0, 1.0), per_token(0.5, 0.3, 0.2, 0.0)
    method = constant(Polynomial(w, eps), mu.log())
    (*_, state) = run(FirstHitting(), method, (20_000, 1), generator=torch.Generator().manual_seed(0))
    drawn = torch.nn.functional.one_hot(state.x[:, 0], V + 1).double()
    assert five_sigma(drawn, eps * mu + (1 - eps) * mu * w / (mu * w).sum())
    assert not five_sigma(drawn, mu)
    assert float(state.calls.double().mean()) > 1.2  # candidates that were refused were asked about too


@torch.no_grad()
def test_thinning_has_no_error():
    """The exact network, two tokens: 40,000 samples within 5.5 standard errors of the data (a false alarm: 6e-7 each). With a
    jump at the noisy end, and at the clean end too, where many tokens are still masked."""
    for begin in (0.0, 0.3):
        P = absorbing(V + 1, Polynomial(per_token(0.5, 1.0, 2.5, 1.0), 0.1, begin=begin))
        method, data = denoiser(P), exact.embed(P, data_distribution(), L)
        states = list(run(FirstHitting(), method, (40_000, L), generator=torch.Generator().manual_seed(2)))
        for step, state in enumerate(states):
            assert ((state.x == V).sum(-1) == L - step).all()  # exactly one token a step
        assert five_sigma(torch.nn.functional.one_hot(exact.index(states[-1].x, V + 1), len(data)).double(), data)


@torch.no_grad()
def test_thinning_of_equal_exponents_is_the_plain_sampler():
    """The same draws, but for the uniform that decides on acceptance: it is asked once a token."""
    method = constant(Polynomial(per_token(2.0, 2.0, 2.0, 2.0)), [0.0, 1.0, 2.0, 0.0], length=4)
    (*_, state) = run(FirstHitting(), method, (3, 4), generator=generators(0, 1, 2))
    assert state.calls.tolist() == [4, 4, 4]


def test_what_cannot_be_thinned():
    method = denoiser(absorbing(V + 1, Polynomial(per_token(0.5, 1.0, 2.5, 1.0), 1e-2, 1 - 1e-2)))
    with pytest.raises(InputError, match=r"needs one alpha, or 1 - \(1 - eps\) tau\^w for each token; with exact use"):
        FirstHitting().init(method, (1, L))
