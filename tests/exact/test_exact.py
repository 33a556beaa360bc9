"""Enumeration: the tools that other tests and `verify` stand on, against brute force and known integrals."""

import itertools
import math

import pytest
import torch

from testing.worlds import L, V, all_processes, data_distribution, numbers, table
from zellige import exact
from zellige.base.errors import InputError
from zellige.core import bound, maths, random
from zellige.core.batch import Batch
from zellige.core.curves import Linear
from zellige.core.prediction import Mean, kernel, posterior
from zellige.core.process import absorbing, uniform
from zellige.core.schedule import CLEAN, PRIOR
from zellige.exact import Denoiser
from zellige.methods import MD4, MDLM, METHODS, build
from zellige.plugins.verify.identities import variants
from zellige.samplers import Ancestral, FirstHitting
from zellige.samplers.guidance import Product

D = torch.float64
close = torch.testing.assert_close
ALL = all_processes()


# ---------------------------------------------------------------------------------- the space
@pytest.mark.parametrize(("K", "length"), [(2, 1), (3, 2), (4, 3), (2, 5)])
def test_index_is_the_row_of_states(K, length):
    X = exact.states(K, length)
    assert X.shape == (K**length, length)
    assert torch.equal(exact.index(X, K), torch.arange(K**length))
    assert len(X.unique(dim=0)) == len(X)


def test_distributions_embed_on_clean_sequences():
    P, distribution = absorbing(V + 1, Linear(), mask=1), data_distribution()
    whole, X = exact.embed(P, distribution, L), exact.states(V + 1, L)
    assert (whole[(X == 1).any(-1)] == 0).all()
    close(whole[(X != 1).all(-1)], distribution)
    with pytest.raises(ValueError, match="9 sequences are clean"):
        exact.embed(P, distribution[:4], L)


def test_entropy():
    close(exact.entropy(torch.tensor([0.5, 0.25, 0.25, 0.0], dtype=D)), torch.tensor(1.5 * math.log(2), dtype=D))


@pytest.mark.parametrize("name", ALL)
def test_marginal_is_the_sum_over_x_0(name):
    P, length = ALL[name], 3
    distribution = exact.embed(P, data_distribution(int(P.clean.sum()), length), length)
    for s, t in ((CLEAN, 0.4), (0.2, 0.9), (0.3, PRIOR)):
        Q, X = P.matrix(s, t), exact.states(P.K, length)
        joint = torch.stack([Q[X[:, i]][:, X[:, i]] for i in range(length)]).prod(0)
        close(exact.marginal(P, distribution, length, t, s), distribution @ joint, rtol=1e-12, atol=1e-15)


# ---------------------------------------------------------------------------------- the model of T steps
@pytest.mark.parametrize("name", ["masks", "uniform", "guided"])
@torch.no_grad()
def test_the_model_is_the_product_of_whole_matrices(name):
    """Three positions, so that the two halves differ, and memory for seven sequences at once."""
    length, cls = 3, METHODS["udlm" if name == "uniform" else "mdlm"]
    K = cls.states(V, cls.Config())
    method = build(cls, V, table(K, length, outputs=cls.outputs(V, cls.Config())), cls.Config(), length=length).double()
    if name == "guided":
        method = Product(method, [(Denoiser(method.process, data_distribution(V, length), length), 0.7)], power=0.6)
    X, times = exact.states(K, length), method.grid(3)
    p = method.process.prior[X].prod(-1)
    for t, s in itertools.pairwise(times):
        kernels = kernel(method.predict(X, t.expand(X.shape)), s.expand(X.shape))
        p = p @ kernels[:, torch.arange(length), X].prod(-1)
    each = 8 * (2 * length * K + 2 * K + 2 * K**2)
    few = exact.model_distribution(method, times, memory=8 * 3 * K**length + 7 * each)
    close(few, p, rtol=1e-10, atol=1e-15)
    close(exact.model_distribution(method, times), p, rtol=1e-10, atol=1e-15)
    with pytest.raises(
        InputError, match=rf"{K}\^3 = {K**3} sequences need [\d,]+ bytes, and `memory` is 900; give more"
    ):
        exact.model_distribution(method, times, memory=900)


# ---------------------------------------------------------------------------------- the exact denoiser
@pytest.mark.parametrize("name", ALL)
def test_denoiser_is_bayes_rule_for_three_positions(name):
    P, length, t = ALL[name], 3, 0.6
    distribution = data_distribution(int(P.clean.sum()), length)
    p_0, X = exact.embed(P, distribution, length), exact.states(P.K, length)
    Q = P.matrix(CLEAN, t)
    for x_t in X[numbers(len(X)) < 0.2]:
        joint = p_0 * torch.stack([Q[X[:, i], x_t[i]] for i in range(length)]).prod(0)
        loo = [p_0 * torch.stack([Q[X[:, j], x_t[j]] for j in range(length) if j != i]).prod(0) for i in range(length)]
        if joint.sum() == 0:
            continue
        each = lambda w: torch.stack([torch.zeros(P.K, dtype=D).index_add(0, X[:, i], w[i]) for i in range(length)])  # noqa: E731
        mean = exact.Denoiser(P, distribution, length).predict(x_t[None], t).mu[0]
        close(mean, maths.normalise(each([joint] * length)))
        close(
            exact.Denoiser(P, distribution, length, "leave_one_out").predict(x_t[None], t).mu[0],
            maths.normalise(each(loo)),
        )
        score = exact.Denoiser(P, distribution, length, "score").predict(x_t[None], t).v[0]
        p_t = exact.marginal(P, p_0, length, t)
        for i, y in itertools.product(range(length), range(P.K)):
            moved = x_t.clone()
            moved[i] = y
            close(score[i, y], p_t[exact.index(moved, P.K)] / p_t[exact.index(x_t, P.K)], rtol=1e-9, atol=1e-12)


def test_denoiser_takes_a_time_for_each_position_and_asks_where_told():
    P, distribution = absorbing(V + 1, Linear()), data_distribution()
    denoiser, x_t = exact.Denoiser(P, distribution, L), torch.tensor([[V, 1], [2, V]])
    t = torch.tensor([[0.5, CLEAN], [CLEAN, 0.5]], dtype=D)
    mean = denoiser.predict(x_t, t)
    joint = distribution.reshape(V, V)
    close(mean.mu[0, 0, :V], joint[:, 1] / joint[:, 1].sum())
    close(mean.mu[1, 1, :V], joint[2] / joint[2].sum())
    some = denoiser.predict(x_t, t, at=x_t == V)
    assert isinstance(some, Mean)
    close(some.mu, mean.mu[x_t == V])


# ---------------------------------------------------------------------------------- quadrature
@pytest.mark.parametrize(
    ("f", "value"),
    [
        (lambda t: torch.ones_like(t), 1.0),
        (lambda t: t**7, 1 / 8),
        (lambda t: t**-0.5, 2.0),  # a singular end
        (lambda t: -t.log(), 1.0),
        (lambda t: -(1 - t).clamp_min(1e-300).log(), 1.0),
        (lambda t: 1 / (1e-3 + t), math.log(1001)),  # a steep one, as beta of loglinear at t = 1
        (lambda t: 1 / (1e-3 + (1 - t)), math.log(1001)),
    ],
)
def test_quadrature(f, value):
    t, w = exact.quadrature()
    assert ((t > 0) & (t < 1)).all()
    assert float((w * f(t)).sum()) == pytest.approx(value, rel=1e-7)


# ---------------------------------------------------------------------------------- the distribution of a sampler's code
def mdlm(length=L):
    return MDLM(table(V + 1, length), V, (length,))


class Slow(MD4):
    """Its network is told t itself: a table that varies over t as 1000 t would need far finer grids."""

    def network_time(self, t):
        return t


def md4():
    return Slow(table(V + 1, L, time=True), V, (L,), MD4.Config(eps=0.05))


@torch.no_grad()
def test_transitions_of_the_plain_step_are_the_product_of_its_kernels():
    for method in (md4(), exact.Denoiser(uniform(V, Linear()), data_distribution(), L)):
        X = exact.states(method.process.K, L)
        sampler = Ancestral(choose=False)
        state = sampler.init(method, X.shape)
        state = type(state)(X, state.fixed, state.calls)
        t, s = torch.full((len(X), 1), 0.8, dtype=D), torch.full((len(X), 1), 0.3, dtype=D)
        each = kernel(method.predict(X, t), s)
        expected = torch.stack([torch.kron(*each[n]) for n in range(len(X))])
        close(exact.transition(sampler, method, state, t, s), expected)


@torch.no_grad()
def test_enumerated_distributions_are_distributions():
    for sampler, method in ((Ancestral(), mdlm(3)), (Ancestral(choose=False), md4()), (FirstHitting(), mdlm())):
        (length,) = method.shape
        distribution = exact.sample_distribution(sampler, method, 3 if length == L else 1)
        assert (distribution >= 0).all()
        close(distribution.sum(), torch.ones((), dtype=D))


@torch.no_grad()
def test_a_script_counts_every_outcome_once():
    """The probabilities of all scripts of a step with nested draws sum to one, and impossible outcomes have none."""
    p = torch.tensor([0.3, 0.6], dtype=D)
    total, seen = 0.0, {}
    for a, b in itertools.product(itertools.product(range(2), repeat=2), itertools.product(range(3), repeat=2)):
        script = exact.Script([a, b], 1)
        coin = script.bernoulli(p[None])
        distribution = torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]], dtype=D)[None].expand(1, 2, 3)
        drawn = script.categorical(distribution[coin], coin)
        total += float(script.probability)
        key = (tuple(coin[0].tolist()), tuple(drawn.tolist()))
        seen[key] = seen.get(key, 0.0) + float(script.probability)
    assert total == pytest.approx(1.0)
    assert seen[(True, True), (1, 2)] == pytest.approx(0.3 * 0.6 * 0.5 * 0.7)
    assert seen[(True, False), (1,)] == pytest.approx(0.3 * 0.4 * 0.5)
    assert seen[(False, False), ()] == pytest.approx(0.7 * 0.4)


# ---------------------------------------------------------------------------------- likelihoods and bounds
@torch.no_grad()
@pytest.mark.parametrize("make", [mdlm, md4])
def test_likelihood_of_the_T_step_model(make):
    method = make()
    X = exact.states(V, L)
    for T in (1, 2, 6):
        times = Ancestral().times(method, T)
        log_p = exact.log_likelihood(method, times)
        close(log_p.exp().sum(), torch.ones((), dtype=D))
        bound = exact.step_bound(method, X, times)
        assert (bound >= -log_p - 1e-12).all()
        if T == 1:  # one step: all masks to clean, the bound is the likelihood
            close(bound, -log_p)
            p = posterior(method.predict(torch.full((1, L), V), 1.0))[0]
            close(log_p, sum(p[i, X[:, i]].log() for i in range(L)))


@torch.no_grad()
def test_continuous_terms_are_the_limit_of_steps():
    """Of a grid over the span (-0.05, 1.05) that has the times 0 and 1, where what the network is told bends."""
    method, X = md4(), exact.states(V, L)
    terms = exact.continuous_terms(method, X)
    b = [exact.step_bound(method, X, method.grid(T)) for T in (44, 88, 176)]
    once = 2 * b[1] - b[0], 2 * b[2] - b[1]
    close((4 * once[1] - once[0]) / 3, terms["diffusion"] + terms["reconstruction"] + terms["prior"], rtol=0, atol=1e-5)
    assert torch.equal(terms["start"], terms["prior"])  # an absorbing process starts at its prior


@torch.no_grad()
def test_any_order_by_hand():
    method = mdlm()
    ask = lambda *x: posterior(method.predict(torch.tensor([x]), 0.5))[0]  # noqa: E731
    x = torch.tensor([[2, 0]])
    start, first, second = ask(V, V), ask(2, V), ask(V, 0)
    by_hand = -(start[0, 2] * first[1, 0]).log() / 2 - (start[1, 0] * second[0, 2]).log() / 2
    close(exact.any_order(method, x)[0], by_hand)


@torch.no_grad()
def test_many_times_at_once_are_each_alone():
    method, X = md4(), exact.states(V, L)
    t, s = torch.tensor([PRIOR, 0.9, 0.4], dtype=D), torch.tensor([0.9, 0.4, CLEAN], dtype=D)
    steps = exact.expected(method, X, t, s)
    assert steps.shape == (3, V**L)
    for i in range(3):
        close(steps[i], exact.expected(method, X, t[i], s[i]))
    close(exact.expected(method, X, t[1:], None)[1], exact.expected(method, X, 0.4, None))
    times = torch.tensor([PRIOR, 0.9, 0.4, CLEAN], dtype=D)
    close(exact.step_bound(method, X, times), steps.sum(0) + bound.prior(method.process, X, PRIOR).sum(-1))


# ---------------------------------------------------------------------------------- expectations of draws
@torch.no_grad()
@pytest.mark.parametrize("mask", [True, False])
def test_expectation_over_a_noisy_text_at_a_drawn_time(mask):
    """A loss that is a table of (x_0, x_t) times a function of t, integrated by hand."""
    P, X = (absorbing(V + 1, Linear(0.0)) if mask else uniform(V, Linear(0.0))), exact.states(V, L)
    value = numbers(V**L, P.K**L)

    def draw(batch, generator):
        t = random.stratified(len(batch), generator)
        x_t = P.sample(batch.tokens, t[:, None], generator)
        return t**2 * value[exact.index(batch.tokens, V), exact.index(x_t, P.K)]

    t, w = exact.quadrature()
    by_hand = torch.zeros(V**L, dtype=D)
    for u, weight in zip(t, w):
        q = P.matrix(CLEAN, u)[:V]
        by_hand += weight * u**2 * (torch.kron(q, q) * value).sum(-1)
    close(exact.expectation(draw, X), by_hand, rtol=1e-9, atol=1e-12)
    steps = (torch.tensor([0.25, 0.75], dtype=D), torch.tensor([0.5, 0.5], dtype=D))
    once = lambda u: u**2 * (torch.kron(*[P.matrix(CLEAN, u)[:V]] * 2) * value).sum(-1)  # noqa: E731
    close(exact.expectation(draw, X, steps), (once(0.25) + once(0.75)) / 2)


def test_expectation_over_orders_and_its_gradient():
    """Uniforms (B, L) stand for an order. The gradient is the expectation of the gradient of the draw, with the chances
    fixed."""
    w = torch.tensor([0.3, -0.2], dtype=D, requires_grad=True)

    def draw(batch, generator):
        first = random.uniform(batch.tokens.shape, generator).argmin(-1)
        coin = random.bernoulli(w.sigmoid().expand(batch.tokens.shape), generator)
        return w[first] * coin.sum(-1)

    p = w.sigmoid().detach()
    value = exact.expectation(draw, exact.states(V, L)[:2])
    close(value, (w.mean() * p.sum()).detach().expand(2), check_dtype=False)
    (g,) = torch.autograd.grad(value[0], [w])
    close(g, torch.full_like(w, 0.5) * p.sum())


@pytest.mark.parametrize("name", ["mdlm", "udlm", "d3pm", "tauldr"])
def test_many_outcomes_in_one_batch_are_one_after_another(name):
    """An expectation and its gradient, against the definition: a run for every outcome of all draws."""
    _, method = next(variants(METHODS[name]))
    x_0, u, weight = exact.states(V, L)[[1, 5]], torch.tensor([0.2, 0.6]).double(), torch.tensor([0.3, 0.7]).double()
    x, each = x_0.repeat_interleave(2, 0), u.repeat(2)
    every = [p * value for value, p in exact.scripts(lambda script: method.bound(Batch(x), script), 4, each)]
    by_definition = torch.stack(every).sum(0).reshape(2, 2) @ weight
    ours = exact.expectation(method.bound, x_0, (u, weight))
    close(ours, by_definition, rtol=1e-12, atol=0)
    parameters, weights = list(method.parameters()), torch.tensor([1.0, 3.0], dtype=D)
    for a, b in zip(*(torch.autograd.grad(value @ weights, parameters) for value in (ours, by_definition))):
        close(a, b, rtol=1e-9, atol=1e-12)


def test_parts_integrate_what_jumps_between_them():
    t, w = exact.parts(3)
    assert ((t > 0) & (t < 1)).all()
    close(w.sum(), torch.ones((), dtype=D))
    count = 1 + (t * 3).long()
    close((w * count).sum(), torch.full((), 2.0, dtype=D))
    close((w * count * t**2).sum(), torch.tensor((1 + 2 * 7 + 3 * 19) / 81, dtype=D))


@torch.no_grad()
def test_distributions_of_a_sampler_at_every_time():
    method, sampler = md4(), Ancestral()
    distributions = exact.sample_distributions(sampler, method, 4)
    assert distributions.shape == (5, (V + 1) ** L)
    assert distributions[0, -1] == 1.0  # all masks
    close(distributions[-1], exact.sample_distribution(sampler, method, 4))
    close(distributions[2], exact.sample_distribution(sampler, method, sampler.times(method, 4)[:3]))
    close(distributions.sum(-1), torch.ones(5, dtype=D))
