"""The three parameterizations are one object: at the exact network they give what Bayes' rule gives on K^L."""

import itertools

import pytest
import torch

from testing.worlds import L, V, all_processes, data_distribution, mixtures, numbers
from zellige import exact
from zellige.core import maths
from zellige.core.curves import Linear
from zellige.core.prediction import (
    LeaveOneOut,
    Mean,
    Prediction,
    Score,
    as_leave_one_out,
    as_mean,
    as_score,
    kernel,
    posterior,
    restricted,
    reverse,
    reverse_rate,
    score,
    subs,
    truth,
)
from zellige.core.process import absorbing, uniform
from zellige.core.schedule import CLEAN, PRIOR

D = torch.float64
ALL = all_processes()
KINDS = ("mean", "leave_one_out", "score")
close = torch.testing.assert_close


def distribution_of(P):
    return data_distribution(int(P.clean.sum()))


def reachable(P, t):
    """Every x_t of positive probability (N, L), the times, and the distribution of x_t on all of K^L."""
    p = exact.marginal(P, exact.embed(P, distribution_of(P), L), L, t)
    X = exact.states(P.K, L)[p > 0]
    return X, torch.full(X.shape, t, dtype=D), p


def three(P, X, time):
    return {kind: exact.Denoiser(P, distribution_of(P), L, kind).predict(X, time) for kind in KINDS}


@pytest.mark.parametrize("name", ALL)
def test_reverse_kernels_are_bayes_rule(name):
    P = ALL[name]
    for t, s in itertools.product((0.3, 0.7, 1.0), (CLEAN, 0.0, 0.2)):
        X, time, p_t = reachable(P, t)
        p_s = exact.marginal(P, exact.embed(P, distribution_of(P), L), L, s)
        Q = P.matrix(s, t)
        joint = (p_s[:, None] * torch.kron(Q, Q))[:, exact.index(X, P.K)]  # (K^L, N)
        whole = (joint / p_t[exact.index(X, P.K)]).T.reshape(-1, P.K, P.K)
        expected = torch.stack([whole.sum(2), whole.sum(1)], 1)
        for kind, pred in three(P, X, time).items():
            assert isinstance(pred, Prediction)
            close(reverse(pred, s), expected, rtol=1e-8, atol=1e-9, msg=lambda m, k=kind, t=t, s=s: f"{k} {t} {s}: {m}")
            close(kernel(pred, s), expected, rtol=1e-8, atol=1e-9)
            if s == CLEAN:
                close(posterior(pred), expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", [n for n in ALL if n.lower() != "chain"])
def test_reverse_rates_are_one_and_the_slope_of_the_kernel(name):
    P = ALL[name]
    for t in (0.3, 0.8):
        X, time, _ = reachable(P, t)
        preds = three(P, X, time)
        rate, h = reverse_rate(preds["mean"]), 1e-5
        assert (rate >= 0).all()
        for pred in preds.values():
            close(reverse_rate(pred), rate, rtol=1e-8, atol=1e-9)
        # kernel(t - h) = delta + h Rhat + O(h^2): two steps cancel the second order
        one, two = (reverse(preds["mean"], t - k * h) / (k * h) for k in (1, 2))
        off = 1 - P.one_hot(X)
        close((2 * one - two) * off, rate, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_each_converts_into_each(name):
    P = ALL[name]
    X, time, _ = reachable(P, 0.7)
    preds = three(P, X, time)
    for pred, convert, s in itertools.product(preds.values(), (as_mean, as_leave_one_out, as_score), (CLEAN, 0.2)):
        close(reverse(convert(pred), s), reverse(preds["mean"], s), rtol=1e-7, atol=1e-9)
        if name.lower() != "chain":
            close(reverse_rate(convert(pred)), reverse_rate(preds["mean"]), rtol=1e-7, atol=1e-9)


def test_scores_differ_where_no_rate_leads_though_kernels_agree():
    """A score is identified only where R_t(y, x_t) > 0: at a token that is not masked nothing leads into x_t but x_t itself."""
    P = ALL["absorbing"]
    X, time, _ = reachable(P, 0.5)
    preds = three(P, X, time)
    masked = P.mask == X
    close(score(preds["mean"])[masked], score(preds["score"])[masked])
    assert not torch.allclose(score(preds["mean"])[~masked], score(preds["score"])[~masked])


def test_score_at_a_mask_sums_to_the_odds():
    P = ALL["absorbing, below 1 at 0"]
    for t in (0.1, 0.5, 0.9):
        X, time, _ = reachable(P, t)
        alpha = P.schedule.alpha(t)
        for pred in three(P, X, time).values():
            sums = score(pred)[P.mask == X][:, P.clean].sum(-1)
            close(sums, (alpha / (1 - alpha)).expand_as(sums))


# ---------------------------------------------------------------------------------- any network output
def anything(P, N=40, seed=0):
    x_t = torch.randint(P.K, (N,), generator=torch.Generator().manual_seed(seed))
    return numbers(N, P.K, seed=seed) + 0.05, x_t


@pytest.mark.parametrize("name", ALL)
def test_mean_and_leave_one_out_give_distributions_whatever_the_network_says(name):
    P = ALL[name]
    w, x_t = anything(P)
    for t, s in ((0.4, CLEAN), (0.4, 0.2), (1.0, 0.5), (PRIOR, 1.0), (PRIOR, CLEAN)):
        reach = exact.marginal(P, P.clean.double() / P.clean.sum(), 1, t) > 0
        x, mu, time = x_t[reach[x_t]], maths.normalise(w)[reach[x_t]], torch.full((int(reach[x_t].sum()),), t, dtype=D)
        for pred in (
            restricted(P, mu, x, time),
            LeaveOneOut(P, mu * P.clean / (mu * P.clean).sum(-1, keepdim=True), x, time),
        ):
            p = reverse(pred, s)
            assert (p >= 0).all()
            close(p.sum(-1), torch.ones(len(x), dtype=D))
            assert (p[P.likelihood(x, s, time) == 0] == 0).all()


def test_mean_is_restricted_to_what_x_t_can_come_from():
    P = ALL["absorbing into a data state"]  # state 1 is grey: 0 and 2 tell their origin, 1 may come from any
    mu = torch.tensor([0.2, 0.3, 0.5], dtype=D)
    for x, expected in ((0, [1.0, 0, 0]), (2, [0, 0, 1.0]), (1, mu.tolist())):
        pred = restricted(P, mu, torch.tensor(x), torch.tensor(0.5, dtype=D))
        close(posterior(pred), torch.tensor(expected, dtype=D))
    P = absorbing(V + 1, Linear(), mask=1)
    mu = torch.tensor([0.1, 0.6, 0.1, 0.2], dtype=D)  # mass on the mask does not count
    close(
        posterior(restricted(P, mu, torch.tensor(1), torch.tensor(0.5, dtype=D))),
        torch.tensor([0.25, 0, 0.25, 0.5], dtype=D),
    )
    close(
        posterior(restricted(P, mu, torch.tensor(3), torch.tensor(0.5, dtype=D))), torch.tensor([0.0, 0, 0, 1], dtype=D)
    )


def test_subs_is_that_restriction_and_its_gradient_is_finite():
    for P in (absorbing(V + 1, Linear()), absorbing(V + 1, Linear(), mask=1), uniform(V, Linear())):
        logits = (5 * numbers(6, P.K)).requires_grad_()
        x_t, t = torch.arange(6) % P.K, torch.full((6,), 0.3, dtype=D)
        pred = subs(P, logits, x_t, t)
        close(posterior(pred), posterior(restricted(P, logits.softmax(-1), x_t, t)))
        (g,) = torch.autograd.grad(reverse(pred, 0.1)[:, 0].sum() + score(pred).sum(), logits)
        assert g.isfinite().all()
        if P.mask is not None:
            assert (g[x_t != P.mask] == 0).all()
            assert (pred.mu[:, P.mask] == 0).all()


def test_a_distribution_on_its_support_is_its_own_restriction():
    P = absorbing(V + 1, Linear())
    mu = torch.cat((maths.normalise(numbers(5, V)), torch.zeros(5, 1, dtype=D)), -1)
    x_t, t = torch.full((5,), V), torch.full((5,), 0.6, dtype=D)
    for s in (CLEAN, 0.3):
        close(reverse(Mean(P, mu, x_t, t), s), reverse(restricted(P, mu, x_t, t), s))


@pytest.mark.parametrize("make", [restricted, LeaveOneOut])
def test_a_visible_token_whose_own_probability_underflows_stays(make):
    """A softmax in float32 gives 0 where the logits differ by more than 104: the token is there all the same."""
    P = absorbing(V + 1, Linear())
    x_t, mu = torch.tensor([1]), torch.tensor([[0.0, -200, 0, -torch.inf]]).softmax(-1)
    assert mu[0, 1] == 0
    for s in (CLEAN, 0.2):
        p = kernel(make(P, mu, x_t, torch.tensor([0.6], dtype=D)), s)
        close(p, P.one_hot(x_t).double())


def test_an_impossible_x_t_gives_zeros_not_nan():
    P = absorbing(V + 1, Linear())
    x_t, mu = torch.tensor([V]), torch.tensor([[0.5, 0.5, 0.0, 0.0]], dtype=D, requires_grad=True)
    pred = restricted(P, mu, x_t, torch.tensor([CLEAN], dtype=D))  # a mask in clean data
    p = reverse(pred, CLEAN)
    assert (p == 0).all()
    (g,) = torch.autograd.grad(p.sum(), mu)
    assert g.isfinite().all()


def test_two_meanings_of_x_0_agree_at_a_mask_of_one_alpha_and_nowhere_else():
    mixed = mixtures()
    t = torch.tensor(0.5, dtype=D)
    for name, same in (("absorbing", True), ("absorbing, exponent per token", False), ("uniform", False)):
        P = mixed[name]
        mu = maths.normalise(numbers(P.K) * P.clean)
        x = torch.tensor(P.K - 1)
        a, b = (reverse(kind(P, mu, x, t), 0.2) for kind in (Mean, LeaveOneOut))
        assert torch.allclose(a, b) == same, name


# ---------------------------------------------------------------------------------- scores
def test_a_wrong_score_sums_right_and_is_clipped_by_the_kernel():
    P = uniform(V, Linear())
    x_t, t = torch.tensor([0, 1, 2]), torch.full((3,), 0.8, dtype=D)
    v = torch.tensor([[1, 9.0, 0.01], [0.1, 1, 0.1], [3, 0.02, 1]], dtype=D)
    pred = Score(P, v, x_t, t)
    raw, p = reverse(pred, 0.1), kernel(pred, 0.1)
    close(raw.sum(-1), torch.ones(3, dtype=D))
    assert (raw < 0).any()
    assert (p >= 0).all()
    close(p, raw.clamp_min(0) / raw.clamp_min(0).sum(-1, keepdim=True))
    right = exact.Denoiser(P, data_distribution(), L, "score").predict(torch.tensor([[0, 1]]), 0.8)
    close(kernel(right, 0.1), reverse(right, 0.1))  # the exact score needs no clipping


# ---------------------------------------------------------------------------------- the truth
@pytest.mark.parametrize("name", ALL)
def test_truth_is_q_of_x_s_given_both_ends(name):
    P = ALL[name]
    for t, s in ((0.8, 0.3), (1.0, 0.5), (0.5, CLEAN), (PRIOR, 1.0)):
        Q_0s, Q_st, Q_0t = P.matrix(CLEAN, s), P.matrix(s, t), P.matrix(CLEAN, t)
        for x_0, x_t in itertools.product(P.clean.nonzero()[:, 0].tolist(), range(P.K)):
            if Q_0t[x_0, x_t] > 1e-12:
                bayes = Q_0s[x_0] * Q_st[:, x_t] / Q_0t[x_0, x_t]
                pred = truth(P, torch.tensor(x_0), torch.tensor(x_t), torch.tensor(t, dtype=D))
                close(reverse(pred, s), bayes, rtol=1e-9, atol=1e-12)


def test_a_score_at_prior_is_that_of_t_1_and_gives_the_same_first_jump():
    """At PRIOR p_t is the prior and its score says nothing of the data; given positions stand beside, at CLEAN."""
    P = absorbing(V + 1, Linear(0.2))
    X = exact.states(P.K, L)
    for x_t, time in (
        (X[-1:], torch.full((1, L), PRIOR, dtype=D)),
        (torch.tensor([[1, V]]), torch.tensor([[CLEAN, PRIOR]], dtype=D)),
    ):
        for s in (1.0, 0.4, CLEAN):
            mean, _, score_ = three(P, x_t, time).values()
            close(
                kernel(score_, torch.full_like(time, s).minimum(time)),
                kernel(mean, torch.full_like(time, s).minimum(time)),
            )
    # a wrong score, too, gives a distribution: that of its normalised posterior
    wrong = Score(P, numbers(1, L, P.K, seed=4), X[-1:], torch.full((1, L), PRIOR, dtype=D))
    jump = kernel(wrong, 1.0)
    close(jump[..., :V].sum(-1), torch.full((1, L), 0.2, dtype=D))
    close(jump[..., :V], 0.2 * wrong.v[..., :V] / wrong.v[..., :V].sum(-1, keepdim=True))
