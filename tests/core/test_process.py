"""Processes: what `matrix` and `rate` say must be a Markov chain, and every closed form must equal the dense definition."""

import copy
import itertools
import pickle
import re
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.worlds import (
    CTMC,
    L,
    V,
    all_processes,
    data_distribution,
    generator_matrix,
    mixtures,
    numbers,
    per_token,
    processes,
)
from zellige import exact
from zellige.base.errors import InputError
from zellige.core import matrices
from zellige.core.curves import Linear, LinearSigma, Polynomial
from zellige.core.matrices import CTMC as CTMC_
from zellige.core.prediction import reverse_rate
from zellige.core.process import Mixture, Process, absorbing, uniform
from zellige.core.schedule import CLEAN, PRIOR, Tabulated
from zellige.plugins.verify.identities.check import chains

D = torch.float64
TIMES = [CLEAN, 0.0, 0.2, 0.5, 0.9, 1.0, PRIOR]
MIXTURES, RATED, ALL = mixtures(), processes(), all_processes()
CLOSED = {**MIXTURES, **chains()}
close = torch.testing.assert_close


def at(*times):
    return torch.tensor(times, dtype=D)


def slope(f, t):
    return torch.func.jvp(f, (at(t)[0],), (torch.ones((), dtype=D),))[1]


# ---------------------------------------------------------------------------------- a Markov chain, with its two jumps
@pytest.mark.parametrize("name", ALL)
def test_semigroup_and_rows_also_across_the_jumps(name):
    P = ALL[name]
    for s, t, u in itertools.combinations(TIMES, 3):
        Q = P.matrix(s, u)
        close(Q, P.matrix(s, t) @ P.matrix(t, u), rtol=0, atol=1e-12)
        close(Q.sum(-1), torch.ones(P.K, dtype=D), rtol=0, atol=1e-12)
        assert (Q >= 0).all()
    for t in TIMES:
        close(P.matrix(t, t), torch.eye(P.K, dtype=D), rtol=0, atol=1e-12)
        if t != PRIOR:
            close(P.matrix(t, PRIOR), P.prior.expand(P.K, P.K), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", RATED)
def test_kolmogorov_also_from_clean_and_to_the_prior(name):
    P = RATED[name]
    for t in (0.1, 0.5, 0.95):
        R = P.rate(t)
        close(R.sum(-1), torch.zeros(P.K, dtype=D), rtol=0, atol=1e-12)
        assert (R - torch.diag(R.diagonal()) >= 0).all()
        for s in (CLEAN, 0.05):
            close(slope(lambda t, s=s: P.matrix(s, t), t), P.matrix(s, t) @ R, rtol=1e-9, atol=1e-10)
        for u in (0.99, PRIOR):
            close(slope(lambda t, u=u: P.matrix(t, u), t), -R @ P.matrix(t, u), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", RATED)
def test_the_prior_is_stationary(name):
    P = RATED[name]
    v = P.prior[None]
    close(v @ P.rate(0.5), torch.zeros_like(v), rtol=0, atol=1e-9)
    close(P.push(v, CLEAN, 0.7), v, rtol=0, atol=1e-9)


def test_one_alpha_per_state_needs_a_prior_of_one_state():
    """diag(a) + (1 - a) prior' with several a and a spread prior is no semigroup: what is redrawn is lost at its own rate."""
    prior, vector = torch.tensor([0.2, 0.5, 0.3], dtype=D), Polynomial(per_token(0.6, 1.0, 2.0))
    with pytest.raises(ValueError, match="single state"):
        Mixture(prior, vector)
    a, b = (
        torch.diag(k) + (1 - k)[:, None] * prior for k in (vector.alpha(0.5), vector.alpha(0.9) / vector.alpha(0.5))
    )
    whole = torch.diag(vector.alpha(0.9)) + (1 - vector.alpha(0.9))[:, None] * prior
    assert (a @ b - whole).abs().max() > 5e-3


def test_a_chain_need_not_commute_and_has_no_rate():
    P = ALL["chain"]
    a, b = P.matrix(0.0, 0.3), P.matrix(0.3, 1.0)
    assert ((a @ b - b @ a).abs() > 1e-3).any()
    with pytest.raises(NotImplementedError, match="no rate"):
        P.rate(0.5)
    with pytest.raises(NotImplementedError, match="no transition matrix"):
        Process(torch.ones(2, dtype=D) / 2).matrix(0.0, 1.0)


# ---------------------------------------------------------------------------------- closed forms
@pytest.mark.parametrize("name", CLOSED)
@given(times=st.tuples(st.floats(0, 1), st.floats(0, 1)), ends=st.sampled_from(["", "clean", "prior", "both"]))
@settings(max_examples=12, deadline=None)
def test_every_closed_form_is_the_dense_definition(name, times, ends):
    P = CLOSED[name]
    s, t = sorted(times)
    s, t = (CLEAN if ends in ("clean", "both") else s), (PRIOR if ends in ("prior", "both") else t)
    v, x = numbers(5, P.K) + 0.1, torch.randint(P.K, (5,), generator=torch.Generator().manual_seed(0))
    s, t = at(s).expand(5), at(t).expand(5)
    close(P.push(v, s, t), Process.push(P, v, s, t), rtol=0, atol=1e-12)
    close(P.likelihood(x, s, t), Process.likelihood(P, x, s, t), rtol=0, atol=1e-12)
    if bool((t < 0.95).all()):  # a matrix that can be inverted
        close(P.unpush(v, s, t), Process.unpush(P, v, s, t), rtol=1e-8, atol=1e-8)
        close(P.unpush(P.push(v, s, t), s, t), v, rtol=1e-8, atol=1e-8)
    inside = at(0.05 + 0.9 * times[0]).expand(5)
    for f in ("rate_into", "rate_from"):
        fast, dense = getattr(P, f)(x, inside), getattr(Process, f)(P, x, inside)
        close(fast, dense, rtol=1e-12, atol=1e-12)
        assert (fast.gather(-1, x[:, None]) == 0).all()


@pytest.mark.parametrize("name", ALL)
def test_each_position_may_have_its_own_time(name):
    P = ALL[name]
    t = at(CLEAN, 0.2, 0.5, 1.0, PRIOR)
    x, v = torch.arange(5) % P.K, numbers(5, P.K)
    for f in (
        lambda i, t: P.likelihood(x[i], CLEAN, t),
        lambda i, t: P.push(v[i], CLEAN, t),
        lambda i, t: P.matrix(CLEAN, t),
        lambda i, t: P.matrix(t, PRIOR),
    ):
        close(f(slice(None), t), torch.stack([f(i, t[i]) for i in range(5)]))
    if name.lower() != "chain":
        u = at(0.1, 0.2, 0.5, 0.8, 0.9)
        close(P.rate_into(x, u), torch.stack([P.rate_into(x[i], u[i]) for i in range(5)]))
        close(P.rate_from(x, u), torch.stack([P.rate_from(x[i], u[i]) for i in range(5)]))


@pytest.mark.parametrize("name", CLOSED)
def test_divergence_from_the_prior(name):
    P = CLOSED[name]
    x = torch.arange(P.K)
    for t in (CLEAN, 0.0, 0.3, 1.0, PRIOR):
        close(P.divergence(x, t), Process.divergence(P, x, t), rtol=0, atol=1e-12)
        close(P.divergence(x, at(t).expand(P.K)), Process.divergence(P, x, t), rtol=0, atol=1e-12)


# ---------------------------------------------------------------------------------- given by matrices
def band(K):
    R = torch.diag(torch.ones(K - 1, dtype=D), 1)
    R = R + R.T
    return R - torch.diag(R.sum(-1))


@pytest.mark.parametrize("h", [1e-4, 1e-2, 0.3, 4.0, 60.0])
def test_a_matrix_exponential_keeps_its_small_entries(h):
    """Moves to neighbours only: entry (0, d) of exp(R h) is about h^d / d!, which `matrix_exp` loses below 1e-11."""
    K = 12
    P = CTMC_(band(K), torch.ones(K, dtype=D) / K, LinearSigma(0.0, 100.0))
    Q = P.matrix(0.0, h / 100)
    assert (Q >= 0).all()
    digits = mpmath_exponential(band(K), h)
    close(Q, digits, rtol=0, atol=1e-14)
    known = digits > 1e-25
    close(Q[known], digits[known], rtol=1e-6, atol=0)


@pytest.mark.parametrize("h", [0.02, 0.3])
def test_a_matrix_exponential_reaches_the_farthest_of_many_states(h):
    """35 jumps lead from one end of 36 states to the other, more than one sum of the series has."""
    K = 36
    P = CTMC_(band(K), torch.ones(K, dtype=D) / K, LinearSigma(0.0, 1.0))
    digits = mpmath_exponential(band(K), h)
    assert 0 < digits.min() < 1e-55
    close(P.matrix(0.0, h), digits, rtol=1e-10, atol=0)


def mpmath_exponential(R, h):
    """exp(R h) in 130 digits, by its series."""
    with mpmath.workdps(130):
        Q = mpmath.expm(mpmath.matrix((R * h).tolist()), method="taylor")
        return torch.tensor([[float(Q[i, j]) for j in range(len(R))] for i in range(len(R))], dtype=D)


def test_the_eigenbasis_and_the_squaring_agree():
    P: Any = chains()["CTMC, Gaussian target"]
    h = at(0.7, 1.9, 5.0, 80.0)
    fast = P.exponential(h)
    rounded = copy.deepcopy(P).float().double()
    assert torch.equal(rounded.exponential(h), fast)  # the eigenbasis is not rounded with the buffers
    P._eigen = None
    close(fast, P.exponential(h), rtol=1e-9, atol=0)


def test_no_matrix_for_each_position():
    """64 levels, 4 x 4,096 positions with 4 times: K x K for each would take 537 MB."""
    K = 64
    P = CTMC_(band(K), torch.ones(K, dtype=D) / K, LinearSigma(0.0, 50.0))
    x = torch.randint(K, (4, 4096), generator=torch.Generator().manual_seed(0))
    t, v = at(0.1, 0.4, 0.6, 0.9)[:, None].expand(x.shape), torch.rand(*x.shape, K, dtype=D)
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        P.likelihood(x, CLEAN, t), P.push(v, CLEAN, t), P.rate_into(x, t), P.rate_from(x, t)
    assert max(e.cpu_memory_usage for e in seen.events() or ()) < 2**25


@pytest.mark.parametrize("matrices_held", [1, 3, 4, 20])
def test_a_chain_may_hold_some_of_its_products(matrices_held, monkeypatch):
    """Of ten steps every tenth, fourth, third or each: the matrices are the same, as products grouped otherwise."""
    whole: Any = ALL["Chain"]
    T = 10
    monkeypatch.setattr(matrices, "MOST", 8 * V * V * matrices_held)
    some = matrices.Chain(whole.steps, whole.prior)
    assert len(some.products) <= matrices_held + 1
    for i, j in itertools.combinations_with_replacement(range(T + 1), 2):
        close(some.matrix(i / T, j / T), whole.matrix(i / T, j / T), rtol=1e-13, atol=0)
        close(some.marginal(torch.arange(V), PRIOR), whole.marginal(torch.arange(V), PRIOR))


def test_the_chain_is_its_matrices():
    P, T = ALL["Chain"], 10
    for i, j in itertools.combinations(range(T + 1), 2):
        product = torch.eye(V, dtype=D)
        for n in range(i, j):
            product = product @ P.steps[n]
        close(P.matrix(i / T, j / T), product, rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match="not on the grid"):
        P.matrix(CLEAN, 0.55)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CTMC_(at(-1.0, 1.5, 1.0, -1.0).reshape(2, 2), at(0.5, 0.5), LinearSigma()), "rows of R must sum to 0; row 0"),
        (lambda: CTMC_(at(1.0, -1.0, 1.0, -1.0).reshape(2, 2), at(0.5, 0.5), LinearSigma()), "from state 0 to 1 is -1; rates"),
        (lambda: CTMC_(at(-1.0, 1.0, 2.0, -2.0).reshape(2, 2), at(0.5, 0.5), LinearSigma()), "prior is not stationary"),
        (lambda: matrices.Chain(at(0.5, 0.4, 0.0, 1.0).reshape(1, 2, 2), at(0.5, 0.5)), "row 0 of Q_1 sums to 0.9"),
        (lambda: matrices.Chain(at(1.5, -0.5, 0.0, 1.0).reshape(1, 2, 2), at(0.5, 0.5)), "Q_1 has an entry -0.5"),
        (lambda: matrices.Chain(torch.ones(1, 2, 3, dtype=D), at(0.5, 0.5)), "must be square"),
        (lambda: matrices.afford(50_000), "a matrix of 50,000 x 50,000 would take 19 GiB; use uniform or absorbing"),
    ],
)  # fmt: skip
def test_matrices_that_are_no_process(make, says):
    with pytest.raises(InputError, match=re.escape(says)):
        make()


# ---------------------------------------------------------------------------------- discrete time
TABLE = at(1.0, 0.93, 0.8, 0.33, 0.1, 0.02)
TABULATED = {
    "absorbing": absorbing(V + 1, Tabulated(TABLE)),
    "absorbing, to 0": absorbing(V + 1, Tabulated(torch.cat((TABLE, at(0.0))))),
    "uniform": uniform(V, Tabulated(TABLE)),
    "any prior": Mixture(at(0.2, 0.5, 0.3), Tabulated(TABLE)),
}


@pytest.mark.parametrize("name", TABULATED)
def test_a_tabulated_mixture_is_the_product_of_its_steps(name):
    """Q_{s,t} is the product of D3PM's matrices (1 - beta_i) I + beta_i 1 prior', beta_i = 1 - alpha_i / alpha_{i-1}."""
    P: Any = TABULATED[name]
    alpha = P.schedule.table  # pyright: ignore
    T = len(alpha) - 1
    times = at(CLEAN, *(i / T for i in range(T + 1)), PRIOR)
    # clean data is t = 0; at the prior all is lost, unless nothing was left to lose
    beta = [0.0, *(1 - alpha[1:] / alpha[:-1]).tolist(), float(alpha[-1] > 0)]
    one = [(1 - b) * torch.eye(P.K, dtype=D) + b * P.prior.expand(P.K, P.K) for b in beta]
    for i, j in itertools.combinations(range(len(times)), 2):
        whole = one[i] if j == i + 1 else torch.linalg.multi_dot(one[i:j])
        close(P.matrix(times[i], times[j]), whole, rtol=0, atol=1e-12)
        v, x = numbers(P.K, P.K) + 0.1, torch.arange(P.K)
        close(P.push(v, times[i], times[j]), v @ whole, rtol=0, atol=1e-12)
        close(P.likelihood(x, times[i], times[j]), whole.T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", TABULATED)
def test_a_tabulated_mixture_has_no_rate_and_no_time_between(name):
    P: Any = TABULATED[name]
    for f in (P.rate, lambda t: P.rate_into(torch.zeros((), dtype=torch.long), t)):
        with pytest.raises(ValueError, match="discrete time"):
            f(1 / P.schedule.T)
    with pytest.raises(ValueError, match="not on the grid"):
        P.matrix(CLEAN, 0.5 / P.schedule.T)


# ---------------------------------------------------------------------------------- draws
class Even:
    """Uniforms (n + 1/2) / N along the first axis: what is drawn N times has its distribution to within 1/N."""

    def uniform(self, shape, device):
        return ((torch.arange(shape[0]) + 0.5).double() / shape[0]).reshape(-1, *[1] * (len(shape) - 1)).expand(shape)


def test_draws_at_many_states_hold_no_distribution_for_each_position():
    """50,258 states, 4,096 positions: 1.6 GB as distributions in float64."""
    P, x = uniform(50_258, Tabulated(TABLE)), torch.zeros(4, 1024, dtype=torch.long)
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        x_t = P.sample(x, 0.6, torch.Generator().manual_seed(0))
        P.sample_prior((4, 1024))
        P.divergence(x, 1.0)
    assert max(e.cpu_memory_usage for e in seen.events() or ()) < 2**22
    assert abs(float((x_t == 0).double().mean()) - 0.33) < 0.05
    assert len(x_t.unique()) > 2500


@pytest.mark.parametrize("name", ALL)
def test_samples_have_the_distribution_of_the_matrix(name):
    P, N = ALL[name], 2000
    for x_0, t in itertools.product(range(P.K), (CLEAN, 0.0, 0.4, 1.0, PRIOR)):
        x_t = P.sample(torch.full((N,), x_0), t, Even())
        seen = torch.bincount(x_t, minlength=P.K).double() / N
        close(seen, P.matrix(CLEAN, at(t)[0])[x_0], rtol=0, atol=1.01 / N)
    seen = torch.bincount(P.sample_prior((N,), Even()), minlength=P.K).double() / N
    close(seen, P.prior, rtol=0, atol=1.01 / N)


def test_what_can_move_and_where_sampling_starts():
    x = torch.arange(V + 1)
    assert absorbing(V + 1, Linear()).movable(x).tolist() == [False, False, False, True]
    assert absorbing(V + 1, Linear(), mask=1).movable(x).tolist() == [False, True, False, False]
    assert uniform(V, Linear()).movable(x[:V]).all()
    assert absorbing(V + 1, Linear()).start_time == PRIOR  # all masks is the distribution of the prior, not of t = 1
    assert ALL["absorbing into a data state"].start_time == PRIOR
    assert uniform(V, Linear()).start_time == 1.0
    assert ALL["ctmc"].start_time == 1.0
    assert ALL["absorbing into a data state"].clean.all()
    assert absorbing(V + 1, Linear(), mask=1).clean.tolist() == [True, False, True, True]


# ---------------------------------------------------------------------------------- several positions
def joint(P: Process, t: float, length: int) -> torch.Tensor:
    """The generator on K^length: one position moves at a time."""
    eye, R, total = torch.eye(P.K, dtype=D), P.rate(t), torch.zeros(P.K**length, P.K**length, dtype=D)
    for i in range(length):
        factor = torch.ones(1, 1, dtype=D)
        for j in range(length):
            factor = torch.kron(factor, R if i == j else eye)
        total += factor
    return total


@pytest.mark.parametrize("name", RATED)
def test_rates_position_by_position_are_the_rates_on_the_whole_space(name):
    P = RATED[name]
    for t in (0.3, 0.8):
        R, X = joint(P, t, L), exact.states(P.K, L)
        p = exact.marginal(P, exact.embed(P, data_distribution(int(P.clean.sum())), L), L, t)
        close(
            slope(lambda t: exact.marginal(P, exact.embed(P, data_distribution(int(P.clean.sum())), L), L, t), t), p @ R
        )
        time = at(t).expand(X.shape)
        into, out = P.rate_into(X, time), P.rate_from(X, time)
        kept = p > 0
        back = reverse_rate(exact.Denoiser(P, data_distribution(int(P.clean.sum())), L).predict(X[kept], time[kept]))
        for i, y in itertools.product(range(L), range(P.K)):
            moved = X.clone()
            moved[:, i] = y
            j, other = exact.index(moved, P.K), X[:, i] != y
            row = torch.arange(len(X))
            close(into[:, i, y], torch.where(other, R[j, row], 0.0))
            close(out[:, i, y], torch.where(other, R[row, j], 0.0))
            whole = torch.where(other, R[j, row] * p[j] / torch.where(kept, p, 1.0), 0.0)
            close(back[:, i, y], whole[kept], rtol=1e-9, atol=1e-12)


def test_a_one_way_chain_is_defective_and_still_a_process():
    """0 -> 1 -> 2 and no way back: its generator has no eigenbasis; `CTMC` needs none."""
    R = torch.tensor([[-1.0, 1, 0], [0, -1, 1], [0, 0, 0]], dtype=D)
    P = CTMC(R)
    close(P.prior, at(0.0, 0.0, 1.0), rtol=0, atol=1e-12)
    close(P.matrix(0.0, 0.5)[0, 1], at(0.75 * 2.718281828459045**-0.75)[0])
    assert (CTMC(generator_matrix(4)).matrix(0.1, 0.9) >= 0).all()


# ---------------------------------------------------------------------------------- matrices made before
def test_a_cache_is_bounded_and_no_part_of_a_copy():
    P: Any = chains()["CTMC, one way"]
    asked = []
    make = P._of
    P._of = lambda keys: asked.append(len(keys)) or make(keys)
    t = torch.linspace(0.1, 0.9, 7, dtype=D)
    start = torch.eye(P.K, dtype=D)[:1].expand(7, -1)
    first = P.push(start, CLEAN, t)
    assert torch.equal(P.push(start, CLEAN, t), first)
    assert asked == [7]
    P.push(first, CLEAN, torch.tensor([0.1, 0.95], dtype=D).repeat(4)[:7])
    assert asked == [7, 1]  # only what is new is made
    del P._of
    for other in (copy.deepcopy(P), pickle.loads(pickle.dumps(P))):
        assert not other.cache.matrices
        assert torch.equal(other.push(first, CLEAN, t), P.push(first, CLEAN, t))
    rounded = copy.deepcopy(P).float()
    rounded.push(first, CLEAN, t)
    assert torch.equal(rounded.double().push(first, CLEAN, t), copy.deepcopy(rounded).push(first, CLEAN, t))
    many = torch.linspace(0.01, 0.99, 2 * matrices.MANY, dtype=D)
    for part in many.split(matrices.MANY // 2):
        P.push(first[:1].expand(len(part), -1), CLEAN, part)
        assert len(P.cache.matrices) <= matrices.MANY
