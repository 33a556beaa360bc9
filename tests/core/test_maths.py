"""Logarithms against 60-digit arithmetic; draws against the intervals they must have."""

import itertools
import math
from decimal import Decimal, getcontext
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.worlds import Given
from zellige.core import maths, random
from zellige.core.random import truncated_gumbel
from zellige.exact.script import Script

getcontext().prec = 60
D = torch.float64


def exactly(x: float) -> Decimal:
    return Decimal(x)


# ---------------------------------------------------------------------------------- logarithms
def test_xlogy_and_its_gradient_at_zero():
    x = torch.tensor([0.0, 0.0, 0.5], dtype=D, requires_grad=True)
    y = torch.tensor([0.0, 2.0, 0.25], dtype=D, requires_grad=True)
    value = maths.xlogy(x, y)
    torch.testing.assert_close(value, torch.tensor([0.0, 0.0, 0.5 * math.log(0.25)], dtype=D))
    value.sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([0.0, 0.0, math.log(0.25)], dtype=D))
    torch.testing.assert_close(y.grad, torch.tensor([0.0, 0.0, 2.0], dtype=D))
    p = torch.tensor([0.0, 1.0], dtype=D, requires_grad=True)
    maths.xlogy(p, p).sum().backward()
    assert p.grad.isfinite().all()  # torch.special.xlogy(p, p) has nan here


def test_kl():
    p = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]], dtype=D)
    q = torch.tensor([[0.25, 0.25, 0.5], [1.0, 0.0, 0.0]], dtype=D)
    torch.testing.assert_close(maths.kl(p, q), torch.tensor([math.log(2), math.inf], dtype=D))
    assert (maths.kl(p, p) == 0).all()


@given(st.floats(1e-300, 700.0))
def test_log1mexp_has_full_precision(x):
    value = float(maths.log1mexp(torch.tensor(x, dtype=D)))
    q = (-exactly(x)).exp()
    if x > 40:
        with_digits = -q - q * q / 2
    else:
        with_digits = (1 - q).ln() if x > 1e-25 else exactly(x).ln() - exactly(x) / 2
    assert value == pytest.approx(float(with_digits), rel=1e-14, abs=1e-320)


def test_log1mexp_gradient_is_finite_on_both_sides():
    x = torch.tensor([1e-30, 0.5, 0.7, 800.0], dtype=D, requires_grad=True)
    maths.log1mexp(x).sum().backward()
    torch.testing.assert_close(x.grad, 1 / torch.expm1(x.detach()), rtol=1e-9, atol=0)


@given(st.floats(1e-8, 1e8), st.floats(-20, 3), st.sampled_from([-1, 1]))
@settings(max_examples=200)
def test_score_entropy_near_and_far(u, exponent, sign):
    """v - u + u log(u/v) to 1e-15 of the difference |v - u| and of itself: where v is close to u it is of second order in it,
    and the plain formula would lose it in the rounding of u."""
    v = u * (1 + sign * 10.0 ** min(exponent, -0.01 if sign < 0 else 3))
    if v <= 0:
        return
    value = float(maths.score_entropy(torch.tensor(u, dtype=D), torch.tensor(v, dtype=D)))
    a, b = exactly(u), exactly(v)
    exact = b - a + a * (a / b).ln()
    assert value == pytest.approx(float(exact), rel=1e-14, abs=1e-15 * abs(v - u))


def test_score_entropy_where_the_truth_is_zero():
    u = torch.tensor([0.0, 0.0, 1.0, 1e-300], dtype=D, requires_grad=True)
    v = torch.tensor([0.7, 0.0, 1e-200, 1.0], dtype=D, requires_grad=True)
    value = maths.score_entropy(u, v)
    torch.testing.assert_close(value[:2], torch.tensor([0.7, 0.0], dtype=D))
    assert float(value[2].detach()) == pytest.approx(200 * math.log(10) - 1, rel=1e-12)
    (g,) = torch.autograd.grad(value.sum(), v)
    torch.testing.assert_close(g, 1 - torch.where(u > 0, u / v, 0.0))
    assert maths.score_entropy(torch.ones(1, dtype=D), torch.zeros(1, dtype=D)).isinf().all()


def test_binomials_equal_rational_arithmetic():
    for p in (Fraction(0), Fraction(1, 10000), Fraction(3, 10), Fraction(999, 1000), Fraction(1)):
        for n in (1, 2, 7, 40):
            pmf = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
            k = torch.arange(n + 1)
            tail = torch.tensor([float(sum(pmf[j:])) for j in range(n + 1)], dtype=D)
            many = torch.full_like(k, n)
            exact = torch.tensor([float(q) for q in pmf], dtype=D)
            torch.testing.assert_close(maths.binomial_pmf(many, k, float(p)), exact, rtol=1e-11, atol=1e-300)
            torch.testing.assert_close(maths.binomial_tail(many, k, float(p)), tail, rtol=1e-11, atol=1e-300)
    # rows of different length together
    n, k = torch.tensor([3, 40, 1]), torch.tensor([3, 1, 1])
    torch.testing.assert_close(maths.binomial_tail(n, k, 0.25), torch.tensor([0.25**3, 1 - 0.75**40, 0.25], dtype=D))


def test_binomial_weights_of_a_long_sequence_sum_to_one():
    n = torch.full((8193,), 8192)
    assert float(maths.binomial_pmf(n, torch.arange(8193), 0.37).sum()) == pytest.approx(1, abs=1e-10)


def test_normalise_keeps_impossible_rows_at_zero():
    w = torch.tensor([[1.0, 3.0], [0.0, 0.0]], dtype=D, requires_grad=True)
    p = maths.normalise(w)
    torch.testing.assert_close(p, torch.tensor([[0.25, 0.75], [0.0, 0.0]], dtype=D))
    p[0, 0].backward()
    assert w.grad.isfinite().all()


# ---------------------------------------------------------------------------------- draws
def drawn(p, u):
    """The token that the uniform u draws from the distribution p (K,)."""
    return int(random.categorical(p, Given(torch.tensor(u, dtype=D))))


@given(
    st.lists(st.sampled_from([0.0, 0.0, 1e-300, 1e-9, 0.1, 1.0, 7.0]), min_size=1, max_size=12),
    st.floats(0, 1, exclude_max=True),
)
@settings(max_examples=300)
def test_categorical_is_the_inverse_cdf_and_never_draws_zero(weights, u):
    if not any(weights):
        return
    p = torch.tensor(weights, dtype=D)
    for v in (u, 0.0, 1 - 2**-53):
        k = drawn(p, v)
        assert weights[k] > 0
        total = sum(map(Fraction, weights))
        low, high = (sum(map(Fraction, weights[:j])) / total for j in (k, k + 1))
        assert low - Fraction(1, 10**14) <= Fraction(v) <= high + Fraction(1, 10**14)


def test_zero_at_the_end_is_not_drawn_even_where_u_times_total_rounds_up_to_total():
    p = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0], dtype=torch.float32) / 3
    assert drawn(p, 1 - 2**-53) == 2
    assert drawn(torch.tensor([0.0, 0.0, 1.0], dtype=torch.float32), 0.0) == 2
    assert drawn(torch.tensor([0.0, 5e-324, 0.0], dtype=D), 0.9) == 1  # it does so for the smallest number only


def test_exact_in_the_tail_of_a_large_vocabulary_where_float32_gumbel_draws_nothing():
    """A head token and 50,257 others of 1e-9 each: together 5e-5, once in 20,000 draws, and each in its own interval."""
    K, tail = 50_258, 1e-9
    p = torch.full((K,), tail, dtype=D)
    p[0] = 1 - tail * (K - 1)
    ks = torch.linspace(1, K - 1, 50).long()
    u = p[0] + (ks.double() - 0.5) * tail
    got = random.categorical(p.expand(len(ks), K), Given(u))
    assert torch.equal(got, ks)
    # float32 Gumbel (as an exponential race): even the best clock of the tail loses to the worst clock of the head
    one, least = torch.tensor(1 - 2**-24), torch.tensor(0.0)
    clock = lambda p, u: p / (1e-10 - (u + 1e-10).log())  # noqa: E731
    assert clock(torch.tensor(tail), one) < clock(p[0].float(), least)


def test_float32_probabilities_are_summed_in_float64():
    K = 50_258
    p = torch.full((K,), 1.0, dtype=torch.float32)
    p[0] = 2.0**25  # in float32 adding 1 to it changes nothing
    u = torch.tensor([(2.0**25 + k + 0.5) / (2.0**25 + K - 1) for k in (0, 1000, K - 2)], dtype=D)
    assert random.categorical(p.expand(3, K), Given(u)).tolist() == [1, 1001, K - 1]


def test_a_draw_of_many_is_the_distribution():
    """Chi-square of 64 cells of equal mass, K = 5,000: a false alarm has probability 1e-6 (and the seed is fixed)."""
    K, N, cells = 5_000, 4_000, 50
    p = 1 / (torch.arange(K, dtype=D) + 10)
    p = p / p.sum()
    x = torch.cat([random.categorical(p.expand(500, K), torch.Generator().manual_seed(i)) for i in range(N // 500)])
    cell = (p.cumsum(0) * cells).floor().clamp_max(cells - 1).long()
    expected = torch.zeros(cells, dtype=D).index_add(0, cell, p) * N
    seen = torch.bincount(cell[x], minlength=cells).double()
    chi2, df, z = float(((seen - expected) ** 2 / expected).sum()), cells - 1, 4.75
    assert chi2 < df * (1 - 2 / (9 * df) + z * math.sqrt(2 / (9 * df))) ** 3  # Wilson-Hilferty


def test_bernoulli_is_strict():
    p = torch.tensor([0.0, 0.25, 1.0], dtype=D)
    assert random.bernoulli(p, Given(0.0)).tolist() == [False, True, True]
    assert random.bernoulli(p, Given(0.25)).tolist() == [False, False, True]
    assert random.bernoulli(p, Given(1 - 2**-53)).tolist() == [False, False, True]


def generators(*seeds):
    return [torch.Generator().manual_seed(s) for s in seeds]


def test_rows_with_their_own_generator_do_not_see_their_batch():
    p = torch.rand(3, 4, 6, generator=torch.Generator().manual_seed(0), dtype=D)
    whole = random.categorical(p, generators(5, 6, 7))
    coins = random.bernoulli(p[..., 0], generators(5, 6, 7))
    for b, seed in enumerate((5, 6, 7)):
        assert torch.equal(random.categorical(p[b : b + 1], generators(seed)), whole[b : b + 1])
        assert torch.equal(random.bernoulli(p[b : b + 1, :, 0], generators(seed)), coins[b : b + 1])
    with pytest.raises(ValueError, match="2 generators for 3 rows"):
        random.categorical(p, generators(1, 2))


def test_a_draw_at_a_position_does_not_depend_on_which_others_are_drawn():
    p = torch.rand(3, 4, 6, generator=torch.Generator().manual_seed(0), dtype=D)
    at = torch.rand(3, 4, generator=torch.Generator().manual_seed(1)) < 0.5
    everywhere = random.categorical(p, torch.Generator().manual_seed(2))
    assert torch.equal(random.categorical(p[at], torch.Generator().manual_seed(2), at), everywhere[at])
    a, b = generators(1, 2), generators(1, 2)
    random.discard((2, 5), a)
    random.uniform((2, 5), b)
    assert torch.equal(random.uniform((2, 1), a), random.uniform((2, 1), b))


def test_uniforms_have_53_bits_and_are_below_one():
    u = random.uniform((100_000,), torch.Generator().manual_seed(0))
    assert u.dtype == D
    assert ((u >= 0) & (u < 1)).all()
    assert ((u * 2**30) % 1 > 0).double().mean() > 0.99


# ---------------------------------------------------------------------------------- strata and ranks
@given(st.integers(1, 50), st.floats(0, 1, exclude_max=True))
def test_stratified_times_are_evenly_spread(n, u):
    t = random.stratified(n, Given(u))
    assert ((t >= 0) & (t < 1)).all()
    gaps = t.sort().values.diff()
    assert torch.allclose(gaps, torch.full_like(gaps, 1 / n), atol=1e-12)
    assert float(t[0]) == u  # so each is uniform by itself, as u is


def test_replace_keeps_or_draws_from_one_distribution():
    distribution, N = torch.tensor([0.5, 0.0, 0.2, 0.3], dtype=D), 100_000
    even = Given((torch.arange(N, dtype=D) + 0.5) / N)
    drawn = random.replace(torch.full((N,), 2), 0.7, distribution, even)
    seen = torch.bincount(drawn, minlength=4).double() / N
    torch.testing.assert_close(seen, 0.7 * distribution + 0.3 * torch.tensor([0, 0, 1, 0], dtype=D), rtol=0, atol=2 / N)
    x = torch.tensor([[0, 1, 2], [3, 1, 0]])
    assert torch.equal(random.replace(x, 0.0, distribution), x)
    p = torch.tensor([[1.0, 0.0, 1.0]], dtype=D).expand(2, 3)
    some = random.replace(x, p, distribution, torch.Generator().manual_seed(0))
    assert torch.equal(some[:, 1], x[:, 1])  # also where the distribution would never say it
    assert (some[:, 0] != 1).all()
    tiny = random.replace(
        torch.ones(1000, dtype=torch.long), 1e-12, distribution, Given(torch.tensor(1e-12 * (1 - 1e-9)))
    )
    assert (tiny == 3).all()  # the last of the distribution, never past its end


def test_replace_can_be_enumerated():
    distribution, x = torch.tensor([0.5, 0.1, 0.4], dtype=D), torch.tensor([[0, 2]])
    total = torch.zeros(3, 3, dtype=D)
    for a, b in itertools.product(range(3), repeat=2):
        script = Script([[a, b]], 1)
        assert random.replace(x, 0.3, distribution, script).tolist() == [[a, b]]
        total[a, b] = script.probability[0]
    kept = torch.eye(3, dtype=D)
    torch.testing.assert_close(
        total, torch.outer(0.3 * distribution + 0.7 * kept[0], 0.3 * distribution + 0.7 * kept[2])
    )


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_truncated_gumbel_noise_is_what_argmax_draws(bits):
    """A million draws of argmax log p - log(-log u) with u below 1 - 2^-bits; states of equal and of zero probability too."""
    p = torch.tensor([0.5, 0.25, 0.0, 0.125, 0.125 - 1e-3, 1e-3], dtype=torch.float64)
    u = torch.rand(10**6, 6, generator=torch.Generator().manual_seed(bits), dtype=torch.float64) * (1 - 2.0**-bits)
    drawn = torch.bincount((p.log() - (-u.log()).log()).argmax(-1), minlength=6) / 10**6
    expected = truncated_gumbel(3 * p, bits)  # not normalised
    assert float(expected.sum()) == pytest.approx(1, abs=1e-12)
    assert ((drawn - expected).abs() <= 5.5 * (expected * (1 - expected) / 10**6).sqrt() + 1e-12).all()
    assert torch.allclose(truncated_gumbel(p, 53), p, rtol=0, atol=1e-12)
