"""One bound, every paper's formula: the closed forms of MDLM, MD4, SEDD, Duo, GenMD4, D3PM and tauLDR are its special cases."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from testing.worlds import (
    CTMC,
    L,
    V,
    all_processes,
    data_distribution,
    generator_matrix,
    numbers,
    per_token,
    processes,
    table,
)
from zellige import exact
from zellige.core import bound, maths
from zellige.core.batch import Batch
from zellige.core.curves import Linear, Polynomial
from zellige.core.prediction import LeaveOneOut, Score, posterior, restricted, reverse_rate, subs, truth
from zellige.core.process import absorbing, uniform
from zellige.core.schedule import CLEAN, PRIOR
from zellige.methods import MD4, MDLM

D = torch.float64
close = torch.testing.assert_close
ALL, RATED = all_processes(), processes()


def noised(P, N=200, seed=0):
    """x_0 clean, x_t ~ q(. | x_0), times in (0, 1): (N,) each."""
    g = torch.Generator().manual_seed(seed)
    x_0 = P.clean.nonzero()[:, 0][torch.randint(int(P.clean.sum()), (N,), generator=g)]
    t = 0.05 + 0.9 * numbers(N, seed=seed + 1)
    if not hasattr(P, "schedule") and not isinstance(P, CTMC):
        t = (t * 10).round().clamp(2, 9) / 10  # a chain's grid
    return x_0, P.sample(x_0, t, g), t


def guess(P, x_t, t, seed=5):
    """A random Mean, its mass anywhere."""
    return restricted(P, maths.normalise(numbers(len(x_t), P.K, seed=seed) + 0.02), x_t, t)


def pick(z, i):
    return z.gather(-1, i[..., None])[..., 0]


# ---------------------------------------------------------------------------------- what a bound must be
@pytest.mark.parametrize("name", ALL)
def test_bounds_are_divergences(name):
    P = ALL[name]
    x_0, x_t, t = noised(P)
    target, pred = truth(P, x_0, x_t, t), guess(P, x_t, t)
    for s in (CLEAN, t - 0.1) if name.lower() == "chain" else (CLEAN, t / 2):
        assert (bound.discrete(target, pred, s) >= -1e-12).all()
        close(bound.discrete(target, target, s), torch.zeros_like(t), rtol=0, atol=1e-12)
    if name.lower() != "chain":
        assert (bound.continuous(target, pred) >= -1e-12).all()
        close(bound.continuous(target, target), torch.zeros_like(t), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_the_step_to_clean_is_the_reconstruction(name):
    P = ALL[name]
    x_0, x_t, t = noised(P)
    pred = guess(P, x_t, t)
    close(bound.discrete(truth(P, x_0, x_t, t), pred, CLEAN), -pick(posterior(pred), x_0).log(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", RATED)
@pytest.mark.parametrize("kind", [restricted, LeaveOneOut])
def test_continuous_is_the_limit_of_discrete(name, kind):
    P = RATED[name]
    x_0, x_t, t = noised(P, 60)
    mu = maths.normalise((numbers(60, P.K) + 0.05) * P.clean)
    target, pred = truth(P, x_0, x_t, t), kind(P, mu, x_t, t)
    h = 1e-4
    a, b, c = (bound.discrete(target, pred, t - k * h) / (k * h) for k in (1, 2, 4))
    once = 2 * a - b, 2 * b - c  # errors in h cancelled, then those in h^2
    close((4 * once[0] - once[1]) / 3, bound.continuous(target, pred), rtol=2e-5, atol=2e-5)


def test_prior_terms():
    P, x_0 = uniform(V, Linear(0.2)), torch.arange(V)
    p = 0.2 + 0.8 / V
    kl = p * math.log(p * V) + (V - 1) * (1 - p) / (V - 1) * math.log((1 - p) / (V - 1) * V)
    close(bound.prior(P, x_0, 1.0), torch.full((V,), kl, dtype=D))
    P = absorbing(V + 1, Linear())
    close(bound.prior(P, x_0, PRIOR), torch.zeros(V, dtype=D))
    assert (
        bound.prior(P, x_0, 1.0) == torch.inf
    ).all()  # why an absorbing process starts at PRIOR, with a jump to t = 1


# ---------------------------------------------------------------------------------- MDLM, MD4
class Middle(MDLM):
    """MDLM with the mask between the tokens."""

    def __init__(self, network, vocabulary, shape, config=None):
        super().__init__(network, vocabulary, shape, config, mask=1)


def masked_methods():
    yield MDLM(table(V + 1, L), V, (L,))
    yield MDLM(table(V + 1, L, time=True), V, (L,), MDLM.Config("cosine", time=True))
    yield Middle(table(V + 1, L, seed=3), V, (L,), MDLM.Config("polynomial"))
    for schedule in ("linear", "cosine", "polynomial"):
        yield MD4(table(V + 1, L, time=True), V, (L,), MD4.Config(schedule, eps=1e-2))


def every_pair(P, t):
    """Every clean x_0 with every x_t it can become (N, L), and the times."""
    X = exact.states(P.K, L)
    X_0 = X[P.clean[X].all(-1)]
    x_0, x_t = X_0.repeat_interleave(len(X), 0), X.repeat(len(X_0), 1)
    reachable = ((x_t == P.mask) | (x_t == x_0)).all(-1)
    x_0, x_t = x_0[reachable], x_t[reachable]
    return x_0, x_t, torch.full(x_0.shape, t, dtype=D)


@pytest.mark.parametrize("method", masked_methods(), ids=lambda m: f"{m.name}-{m.config.schedule}-{m.config.time}")
def test_weighted_cross_entropy_is_the_generic_bound_value_and_gradient(method):
    P, parameters = method.process, list(method.parameters())
    for t, s in [
        (0.1, None),
        (0.6, None),
        (1.0, None),
        (0.9, 0.4),
        (PRIOR, 0.7),
        (PRIOR, 1.0),
        (0.3, CLEAN),
        (PRIOR, CLEAN),
    ]:
        x_0, x_t, time = every_pair(P, t)
        target, pred = truth(P, x_0, x_t, time), method.predict(x_t, time)
        if s is None:
            fast, generic = method.continuous_bound(Batch(x_0), x_t, time[:, 0]), bound.continuous(target, pred).sum(-1)
        else:
            fast = method.discrete_bound(Batch(x_0), x_t, time[:, 0], torch.full_like(time[:, 0], s))
            generic = bound.discrete(target, pred, torch.full_like(time, s)).sum(-1)
        close(fast, generic, rtol=1e-9, atol=1e-9)
        w = numbers(len(x_0))
        g = [torch.autograd.grad((w * v).sum(), parameters)[0] for v in (fast, generic)]
        close(*g, rtol=1e-9, atol=1e-9)
        assert g[0].abs().sum() > 0 or (t == 1.0 and "cosine" in method.config.schedule)  # a weight of 0


def test_padding_counts_nothing_and_the_rest_as_before():
    method = MDLM(table(V + 1, 3), V, (3,))
    x_0 = torch.tensor([[0, 2, 1], [1, 1, 0]])
    mask = torch.tensor([[True, True, False], [True, True, False]])
    x_t = method.corrupt(Batch(x_0, mask), 1.0, torch.Generator().manual_seed(0))
    assert torch.equal(x_t[:, 2], x_0[:, 2])
    t = torch.tensor([0.4, 0.8], dtype=D)
    time = torch.where(mask, t[:, None], CLEAN)
    generic = bound.continuous(truth(method.process, x_0, x_t, time), method.predict(x_t, time))
    assert (generic[:, 2] == 0).all()
    close(method.continuous_bound(Batch(x_0, mask), x_t, t), generic.sum(-1), rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------------------- SEDD
def test_sedd_absorbing():
    P = absorbing(V + 1, Linear())
    x_0, x_t, t = noised(P)
    logs = 2 * numbers(len(t), V + 1) - 1
    pred = Score(P, logs.exp().scatter(-1, x_t[:, None], 1.0), x_t, t)
    e1 = torch.expm1(P.schedule.sigma(t)[:, 0])
    entropy = logs[:, :V].exp().sum(-1) - pick(logs, x_0) / e1 + (1 / e1) * ((1 / e1).log() - 1)  # SEDD, eq. 10
    expected = P.schedule.beta(t)[:, 0] * torch.where(x_t == V, entropy, 0.0)
    close(bound.continuous(truth(P, x_0, x_t, t), pred), expected, rtol=1e-9, atol=1e-9)


def test_sedd_uniform():
    P, N = uniform(V, Linear()), V
    x_0, x_t, t = noised(P)
    logs = (2 * numbers(len(t), V) - 1).scatter(-1, x_t[:, None], 0.0)
    e1, same = torch.expm1(P.schedule.sigma(t)[:, 0]), x_t == x_0
    ratio = 1 - N / (e1 + N)
    negative = logs.mean(-1) - pick(logs, x_t) / N
    negative = torch.where(same, ratio * negative, pick(logs, x_0) / e1 + negative)
    constant = torch.where(same, (N - 1) / N * ratio * (ratio.log() - 1), ((-ratio.log() - 1) / ratio - (N - 2)) / N)
    entropy = logs.exp().mean(-1) - 1 / N - negative + constant
    pred = Score(P, logs.exp(), x_t, t)
    expected = P.schedule.beta(t)[:, 0] * entropy
    close(bound.continuous(truth(P, x_0, x_t, t), pred), expected, rtol=1e-8, atol=1e-9)


# ---------------------------------------------------------------------------------- Duo / UDLM
def duo(P, log_mu, x_0, x_t, t):
    """Duo's uniform NELBO per token (arXiv 2506.10892), written from its formula."""
    N, alpha, slope = P.K, P.schedule.alpha(t)[:, 0], (P.schedule.beta(t) * P.schedule.alpha(t))[:, 0]
    same = (x_0 == x_t).double()
    bar = N * alpha[:, None] * log_mu.exp() + 1 - alpha[:, None]
    known = (1 - alpha) + N * alpha * same
    c = (1 - alpha) / (N * alpha + 1 - alpha)
    offset = ((N - 1) * c * same - (1 / c) * (1 - same)) * c.log()
    theta = -(same * c + 1 - same) * (bar.log().sum(-1) - N * pick(bar, x_t).log())
    theta = theta - N * alpha / (1 - alpha) * (pick(bar, x_0).log() - pick(bar, x_t).log()) * (1 - same)
    return -slope / (N * alpha) * (N * (1 / known - 1 / pick(bar, x_t)) - (theta + offset))


def test_duo_reads_its_network_as_leave_one_out():
    P = uniform(V, Linear())
    x_0, x_t, t = noised(P)
    log_mu = (3 * numbers(len(t), V)).log_softmax(-1)
    expected, target = duo(P, log_mu, x_0, x_t, t), truth(P, x_0, x_t, t)
    close(bound.continuous(target, LeaveOneOut(P, log_mu.exp(), x_t, t)), expected, rtol=1e-8, atol=1e-8)
    as_mean = bound.continuous(target, restricted(P, log_mu.exp(), x_t, t))
    assert not torch.allclose(as_mean, expected, atol=1e-2)  # the other meaning of "predict x_0" is another bound


# ---------------------------------------------------------------------------------- GenMD4
def test_genmd4():
    w = per_token(0.7, 1.0, 2.5)
    P = absorbing(V + 1, Polynomial(torch.cat((w, w[:1]))))
    x_0, x_t, t = noised(P)
    pred = subs(P, 3 * numbers(len(t), V + 1), x_t, t)
    mu, one = pred.mu[:, :V], F.one_hot(x_0, V).double()
    rate = -w / t[:, None]  # alpha'_k / (1 - alpha_k)
    integrand = (pick(mu, x_0).log()[:, None] + 1) * one - mu  # (arXiv 2406.04329, eq. 32)
    expected = (rate * integrand).sum(-1) * (x_t == V)
    expected = torch.where(x_t == V, expected, 0.0)
    close(bound.continuous(truth(P, x_0, x_t, t), pred), expected, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------------------- D3PM
def test_d3pm_absorbing_with_mass_on_the_mask():
    """The closed form of D3PM's KL (alpha = 1 - t) for a mu that puts mass on the mask: eq. 4 plugs mu in (LeaveOneOut)."""
    P, T = absorbing(V + 1, Linear(0.0)), 10
    x_0, _, _ = noised(P)
    t = torch.randint(2, T, x_0.shape, generator=torch.Generator().manual_seed(3)) / T
    t = t.double()
    s, x_t = t - 1 / T, torch.full_like(x_0, V)
    mu = maths.normalise(numbers(len(x_0), V + 1) + 0.05)
    mask = mu[:, V]
    reveal = 1 / T / t
    norm = ((1 - t) * mask / t + 1).log()

    def closed(alpha_s):
        stay = norm - (alpha_s * mask / s + 1).log()
        return reveal * (norm - pick(mu, x_0).log()) + (1 - reveal) * stay

    kl = bound.discrete(truth(P, x_0, x_t, t), LeaveOneOut(P, mu, x_t, t), s)
    close(kl, closed(1 - s), rtol=1e-9, atol=1e-9)
    assert not torch.allclose(kl, closed(s), atol=1e-3)  # a published slip: alpha_s = t - 1/T
    # the mixture over x_0 restricts mu to the support and so pays nothing for the mass on the mask
    as_mean = bound.discrete(truth(P, x_0, x_t, t), restricted(P, mu, x_t, t), s)
    close(as_mean, -reveal * (pick(mu, x_0) / (1 - mask)).log(), rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------------------- tauLDR
def test_tauldr_elbo_differs_by_a_constant():
    """E_x [ sum_x' Rhat(x, x') - sum_x' R(x, x') log Rhat(x', x) ] (tauLDR, proposition 2), constants of theta left out."""
    P, X, t = CTMC(generator_matrix(V)), exact.states(V, L), 0.6
    time, R = torch.full(X.shape, t, dtype=D), P.rate(t)

    def both(seed):
        pred = restricted(P, maths.normalise(numbers(len(X), L, V, seed=seed) + 0.1), X, time)
        back, rows = reverse_rate(pred), []
        for x_0 in exact.states(V, L):
            q = P.likelihood(X, CLEAN, time)[:, torch.arange(L), x_0].prod(-1)
            ours = (q * bound.continuous(truth(P, x_0.expand(X.shape), X, time), pred).sum(-1)).sum()
            theirs = (q * back.sum((-1, -2))).sum()
            for n, i, y in itertools.product(range(len(X)), range(L), range(V)):
                if y != X[n, i]:
                    moved = X[n].clone()
                    moved[i] = y
                    theirs = theirs - q[n] * R[X[n, i], y] * back[exact.index(moved, V), i, X[n, i]].log()
            rows.append(ours - theirs)
        return torch.stack(rows)

    close(both(1), both(2), rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------------------- the sum of all three terms
@pytest.mark.parametrize("name", RATED)
def test_with_the_exact_network_the_terms_are_the_entropy(name):
    """sum of terms = H + KL(p_start || prior): exactly, where an absorbing process passes its ends one token at a time.

    Up to O(alpha_1^2) where it jumps from PRIOR to t = 1, and O((1 - alpha_0)^2) where all positions jump to clean tokens.
    """
    P = RATED[name]
    distribution = data_distribution(int(P.clean.sum()))
    denoiser = exact.Denoiser(P, distribution, L)
    terms = exact.continuous_terms(denoiser, denoiser.x_0)
    total = (distribution * (terms["diffusion"] + terms["reconstruction"] + terms["prior"])).sum()
    p_1 = exact.marginal(P, exact.embed(P, distribution, L), L, P.start_time)
    prior = P.prior[exact.states(P.K, L)].prod(-1)
    jumps = P.start_time == PRIOR
    gap = float(total - exact.entropy(distribution) - maths.kl(p_1, prior))
    if jumps:
        assert abs(gap) < 1e-5
        at_once = exact.continuous_terms(denoiser, denoiser.x_0, jumps=True)
        gap = float((distribution * sum(at_once[k] - terms[k] for k in ("diffusion", "reconstruction", "prior"))).sum())
    alpha_1 = float(P.schedule.alpha(1.0).max()) if hasattr(P, "schedule") else 0.0
    lost = 1 - float(P.schedule.alpha(0.0).min()) if hasattr(P, "schedule") else 0.0
    assert -1e-6 < gap < L**2 * (2 * alpha_1**2 if jumps else lost**2) + 1e-5
    if jumps:
        without = float(total - (distribution * terms["start"]).sum() - exact.entropy(distribution))
        assert without < -0.1 * alpha_1  # the published bound, which leaves that end out, is below the entropy
