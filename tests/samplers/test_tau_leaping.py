"""Tau-leaping: what Poisson jumps come to, the distribution of a leap, its order, the corrector."""

import itertools
import math

import pytest
import torch

from testing.pairs import METHODS, close, denoiser, distance, generators, md4, mdlm, sedd
from testing.worlds import Given, L, V, data_distribution, five_sigma, numbers, per_token
from zellige import exact
from zellige.base.errors import InputError
from zellige.core import random
from zellige.core.curves import Geometric, Linear, LinearSigma, Polynomial
from zellige.core.matrices import CTMC
from zellige.core.prediction import kernel, reverse_rate
from zellige.core.process import absorbing, uniform
from zellige.core.schedule import CLEAN, PRIOR
from zellige.methods import tauldr_rates
from zellige.samplers import Ancestral, State, TauLeaping, run
from zellige.samplers.tau_leaping import (
    Leap,
    clipped_probability,
    corrector_rate,
    describe_leaps,
    joined_leaps,
    landing,
    leap_distribution,
    single_distribution,
)  # fmt: skip

D = torch.float64


def ordered(process, predicts="mean"):
    method = denoiser(process, predicts)
    method.ordered = True
    return method


def birth_death(V=V):
    R, distribution = tauldr_rates.birth_death(V)
    return CTMC(R, distribution, Geometric(1e-2, 4.0))


def pmf(n, mean):
    return torch.exp(torch.special.xlogy(n, mean) - mean - torch.lgamma(n + 1))


# ---------------------------------------------------------------------------------- Poisson numbers
@pytest.mark.parametrize("mean", [1e-12, 1e-3, 0.7, 3.0, 40.0, 900.0])
def test_a_poisson_count_is_the_inverse_cdf(mean):
    """Just below the sum of the probabilities of 0..n the count is n, just above it is n + 1 (torch's series: to 1e-9)."""
    n = torch.arange(3000, dtype=D)
    cdf = pmf(n, torch.tensor(mean, dtype=D)).cumsum(0)
    middle = (cdf > 1e-6) & (cdf < 1 - 1e-6)
    n, cdf = n[middle], cdf[middle]
    for shift in (-1, 1):
        u = cdf * (1 + shift * (1e-12 if mean < 10 else 1e-8))
        count = random.poisson(torch.full_like(u, mean), Given(u))
        assert torch.equal(count, n + (shift > 0))


def test_the_rarest_and_largest_counts():
    assert float(random.poisson(torch.tensor([1e-12], dtype=D), Given(1 - 2**-53))) == 1
    assert float(random.poisson(torch.zeros(1, dtype=D), Given(1 - 2**-53))) == 0
    assert float(random.poisson(torch.tensor([1e9], dtype=D), Given(0.5))) == pytest.approx(1e9, abs=1)
    assert float(random.poisson(torch.tensor([1e300], dtype=D), Given(0.5))) > 1e11  # beyond every state


def test_counts_at_a_position_do_not_depend_on_which_others_are_drawn():
    mean, at = 3 * numbers(2, 4, 5), torch.tensor([[True, False, True, True], [False, True, False, True]])
    for make in (lambda: torch.Generator().manual_seed(3), lambda: generators(3, 4)):
        assert torch.equal(random.poisson(mean, make())[at], random.poisson(mean[at], make(), at))


# ---------------------------------------------------------------------------------- the distribution of a leap
def test_a_leap_is_clamped_as_a_whole():
    """Up twice by 2 and down once by 1, from 1: 1 + 4 - 1 is beyond 3, whatever came first."""
    assert int(landing(torch.tensor(1), torch.tensor([1.0, 0.0, 0.0, 2.0]))) == 3
    assert int(landing(torch.tensor(1), torch.tensor([4.0, 0.0, 0.0, 2.0]))) == 1
    assert int(landing(torch.tensor(1), torch.tensor([1e300, 0.0, 0.0, 0.0]))) == 0


def test_many_jumps_and_none():
    x = torch.tensor([2, 2])
    distribution = leap_distribution(x, torch.tensor([[0.0, 0.0, 0.0, 0.0], [200.0, 0.0, 0.0, 0.0]], dtype=D))
    close(distribution, torch.tensor([[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]], dtype=D), rtol=0, atol=1e-12)


def test_two_jumps_are_rejected():
    mean = torch.tensor([[0.3, 0.0, 0.2]], dtype=D)
    p = math.exp(-0.5)
    close(single_distribution(torch.tensor([1]), mean), torch.tensor([[0.3 * p, 1 - 0.5 * p, 0.2 * p]], dtype=D))


# ---------------------------------------------------------------------------------- a step
STEPS = {
    "md4": (md4, "one"),
    "sedd, uniform": (lambda: sedd(True), "one"),
    "sedd, absorbing": (sedd, "one"),
    "birth and death": (lambda: ordered(birth_death()), "sum"),
    "uniform, ordered": (lambda: ordered(uniform(V, Linear(1e-2)), "leave_one_out"), "sum"),
}


@pytest.mark.parametrize("name", STEPS)
@torch.no_grad()
def test_a_step_is_a_product_of_leaps_and_a_kernel_at_the_ends(name):
    """All positions leap independently, given the network's answer; also where it is chosen first and asked later."""
    make, jumps = STEPS[name]
    method = make()
    X = exact.states(method.process.K, L)
    state = State(X, torch.zeros_like(X, dtype=torch.bool), torch.zeros(len(X)))
    for t, s in ((0.6, 0.5), (0.9, 0.3), (1.0, 0.8), (0.3, CLEAN), *([(PRIOR, 0.7)] if method.process.mask else [])):
        time, later = (torch.full((len(X), 1), u, dtype=D) for u in (t, s))
        pred = method.predict(X, time)
        if t >= 1 or s == CLEAN:
            each = kernel(pred, later.expand(X.shape))
        else:
            each = (leap_distribution if jumps == "sum" else single_distribution)(X, (t - s) * reverse_rate(pred))
        expected = torch.stack([each[:, i, X[:, i]] for i in range(L)]).prod(0)
        possible = expected.sum(-1) > 0.5
        possible &= (method.process.mask == X).all(-1) if t == PRIOR else torch.ones_like(possible)
        for sampler in (TauLeaping(), TauLeaping(jumps=jumps)):  # what `auto` is
            ours = exact.transition(sampler, method, state, time, later)
            close(ours[possible], expected[possible], rtol=0, atol=1e-10)


@torch.no_grad()
def test_counts_that_are_drawn_have_the_enumerated_distribution():
    """40,000 samples within 5.5 standard errors (a false alarm: 4e-7): what is drawn by counts is enumerated by convolution."""
    method = ordered(birth_death())
    distribution = exact.sample_distribution(TauLeaping(), method, 8)
    (*_, state) = run(TauLeaping(), method, (40_000, L), 8, generator=torch.Generator().manual_seed(1))
    drawn = torch.nn.functional.one_hot(exact.index(state.x, V), len(distribution)).double()
    assert five_sigma(drawn, distribution)
    assert not five_sigma(drawn, exact.sample_distribution(TauLeaping(jumps="one"), method, 8))


@torch.no_grad()
def test_clipped_positions_are_counted_among_what_is_drawn():
    """20,000 steps from the lowest level, against the distribution of the displacement."""
    method, n = ordered(birth_death()), 20_000
    x = torch.tensor([[0, 1]]).expand(n, L)
    state = State(x, torch.zeros_like(x, dtype=torch.bool), x[:, 0])
    (t, s) = (torch.tensor(u, dtype=D) for u in (0.6, 0.3))
    ((_, numbers),) = TauLeaping().step(method, state, t, s, torch.Generator().manual_seed(1)).memory.steps
    rate = reverse_rate(method.predict(x[:1], torch.full((1, L), 0.6, dtype=D)))
    expected = clipped_probability(x[:1], 0.3 * rate)[0].sum()
    assert 0.1 < float(expected) < 1.9
    assert five_sigma(numbers[:, 2:3], expected[None])


def test_leaps_of_batches_are_joined_by_their_positions():
    joined = joined_leaps(
        [[Leap(0.5, 30, 0.2, 0.0, 0.1)], [Leap(0.5, 10, 0.6, 0.4, 0.1)], [Leap(0.5, 0, 0.0, 0.0, 0.0)]]
    )
    (leap,) = joined
    assert (leap.t, leap.positions) == (0.5, 40)
    assert (leap.jump, leap.clipped, leap.rejected) == pytest.approx((0.3, 0.1, 0.1))
    steps = [Leap(1.0, 0, 0.0, 0.0, 0.0), leap, Leap(0.25, 40, 0.1, 0.0, 0.0)]
    jump, clipped = "20.0% of the positions jump (at most 30.0%)", "5% are clipped (at most 10.0%)"
    assert describe_leaps(steps) == f"in a leap {jump}, {clipped}, 5% are rejected (at most 10.0%)"
    assert describe_leaps(steps[:1]) == "no step was a leap"


@torch.no_grad()
def test_a_row_of_counts_with_its_own_generator_does_not_see_its_batch():
    method, sampler = ordered(birth_death()), TauLeaping(corrector=1)
    fixed = torch.tensor([[-1, -1], [-1, 2], [1, 1]])
    (*_, whole) = run(sampler, method, (3, L), 5, fixed=fixed, generator=generators(0, 1, 2))
    for b in range(3):
        (*_, alone) = run(sampler, method, (1, L), 5, fixed=fixed[b : b + 1], generator=generators(b))
        assert torch.equal(alone.x[0], whole.x[b])
        assert int(alone.calls) == int(whole.calls[b]) == (9 if b < 2 else 0)  # the last step has no corrector
    assert torch.equal(whole.x[fixed >= 0], fixed[fixed >= 0])


# ---------------------------------------------------------------------------------- its order
PROCESSES = {
    "absorbing": (absorbing(V + 1, Linear(1e-6)), "one", "uniform"),
    "an exponent per token": (absorbing(V + 1, Polynomial(per_token(1.0, 1.3, 2.5, 1.0), 1e-6)), "one", "uniform"),
    "uniform": (uniform(V, Geometric(1e-3, 14.0)), "one", "uniform"),
    "uniform, ordered": (uniform(V, Geometric(1e-3, 14.0)), "sum", "uniform"),
    "birth and death": (CTMC(*tauldr_rates.birth_death(V), LinearSigma(1e-4, 14.0)), "sum", "log-snr"),
}


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("predicts", ["mean", "score"])
@torch.no_grad()
def test_it_converges_with_order_1(name, predicts):
    P, jumps, grid = PROCESSES[name]
    method, data = ordered(P, predicts), exact.embed(P, data_distribution(), L)
    a, b = (distance(exact.sample_distribution(TauLeaping(grid, jumps), method, T), data) for T in (64, 128))
    assert math.log2(a / b) == pytest.approx(1.0, abs=0.15)
    assert b < 0.02


# ---------------------------------------------------------------------------------- the corrector
def moved(method, state, t, h, sampler):
    """The transition matrix of one corrector leap."""
    distribution = torch.zeros(len(state.x), method.process.K**L, dtype=D)
    time, size = (torch.full((len(distribution), 1), u, dtype=D) for u in (t, h))
    for new, chance in exact.scripts(
        lambda script: sampler.correct(method, state, time, size, script), len(distribution)
    ):
        distribution.scatter_add_(1, exact.index(new.x, method.process.K)[:, None], chance[:, None])
    return distribution


@pytest.mark.parametrize("name", ["md4", "genmd4", "sedd, absorbing", "sedd, uniform", "uniform, mean"])
@torch.no_grad()
def test_a_corrector_leap_is_a_product_of_leaps_of_both_rates(name):
    """For absorbing noise tokens are masked without asking, and masks may be chosen first."""
    method, t, h = METHODS[name](), 0.4, 0.1
    X = exact.states(method.process.K, L)
    state = State(X, torch.zeros_like(X, dtype=torch.bool), torch.zeros(len(X)))
    pred = method.predict(X, torch.full(X.shape, t, dtype=D))
    each = single_distribution(X, h * (method.process.rate_from(X, torch.tensor(t, dtype=D)) + reverse_rate(pred)))
    expected = torch.stack([each[:, i, X[:, i]] for i in range(L)]).prod(0)
    close(moved(method, state, t, h, TauLeaping()), expected, rtol=0, atol=1e-10)
    close(h * corrector_rate(pred).sum(-1), h * (pred.process.rate_from(X, pred.t) + reverse_rate(pred)).sum(-1))


@torch.no_grad()
@pytest.mark.long
def test_a_step_with_correctors_is_the_step_and_then_these():
    """At the time reached, of `corrector_step` times the step, where the step starts at `corrector_from` or below."""
    method = denoiser(uniform(V, Linear(1e-2)))
    X = exact.states(V, L)
    state = State(X, torch.zeros_like(X, dtype=torch.bool), torch.zeros(len(X)))
    sampler, plain = TauLeaping(corrector=2, corrector_step=0.5, corrector_from=0.6), TauLeaping()
    for t, s, times in ((0.6, 0.4, 2), (0.8, 0.6, 0), (0.3, CLEAN, 0)):
        time, later = (torch.full((len(X), 1), u, dtype=D) for u in (t, s))
        expected = exact.transition(plain, method, state, time, later)
        for _ in range(times):
            expected = expected @ moved(method, state, s, 0.5 * (t - s), plain)
        close(exact.transition(sampler, method, state, time, later), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["md4", "genmd4", "sedd, absorbing"])
@torch.no_grad()
def test_masks_with_correctors(name):
    """40,000 samples of the whole within 5.5 standard errors (a false alarm: 6e-7) of the product of its parts' matrices."""
    method, sampler = METHODS[name](), TauLeaping(corrector=2, corrector_step=0.7)
    X, times = exact.states(V + 1, L), sampler.times(method, 3)
    state, distribution = (
        State(X, torch.zeros_like(X, dtype=torch.bool), torch.zeros(len(X))),
        method.process.prior[X].prod(-1),
    )
    for t, s in itertools.pairwise(times):
        distribution = distribution @ exact.transition(
            TauLeaping(), method, state, t.expand(len(X), 1), s.expand(len(X), 1)
        )
        for _ in range(2 if s.isfinite() else 0):
            distribution = distribution @ moved(method, state, float(s), 0.7 * (min(float(t), 1.0) - float(s)), sampler)
    (*_, last) = run(sampler, method, (40_000, L), 3, generator=torch.Generator().manual_seed(4))
    assert five_sigma(torch.nn.functional.one_hot(exact.index(last.x, V + 1), len(distribution)).double(), distribution)
    close(distribution.sum(), torch.ones((), dtype=D))


@torch.no_grad()
def test_correctors_bring_the_distribution_nearer():
    method, data = ordered(uniform(V, Geometric(1e-3, 14.0))), data_distribution()
    plain, corrected = (distance(exact.sample_distribution(TauLeaping(corrector=n), method, 16), data) for n in (0, 1))
    assert corrected < 0.8 * plain


@torch.no_grad()
def test_what_is_given_is_not_corrected():
    """And with a network that knows that it is clean the rest has the conditional distribution in the limit."""
    process, given = uniform(V, Geometric(1e-3, 14.0)), torch.tensor([1, -1])
    method, X = denoiser(process), exact.states(V, L)
    target = data_distribution() * (X[:, 0] == 1)
    a, b = (exact.sample_distribution(TauLeaping(corrector=1), method, T, given) for T in (16, 32))
    assert float(a[X[:, 0] != 1].abs().max()) == 0
    a, b = (distance(distribution, target / target.sum()) for distribution in (a, b))
    assert b < 0.6 * a


# ---------------------------------------------------------------------------------- what it refuses
def test_what_needs_order():
    assert TauLeaping(jumps="sum").init(ordered(uniform(V, Linear())), (1, L)).x.shape == (1, L)
    with pytest.raises(
        InputError, match="`jumps` sum needs ordered tokens, such as pixels or pitches; these are not, use"
    ):
        TauLeaping(jumps="sum").init(METHODS["uniform, mean"](), (1, L))
    with pytest.raises(
        InputError, match="`jumps` sum needs states that are all levels; exact has a mask, use `jumps` one"
    ):
        TauLeaping(jumps="sum").init(ordered(absorbing(V + 1, Linear())), (1, L))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jumps": "two"}, "`jumps` is 'two'; it must be auto, one or sum"),
        ({"corrector": -1}, "`corrector` is -1; it must be 0 or more"),
        ({"corrector_step": 0.0}, "`corrector_step` is 0; it must be above 0"),
        ({"corrector_step": math.inf}, "`corrector_step` is inf; it must be a finite number"),
        ({"corrector_from": 2.0}, "`corrector_from` is 2; it must be above 0 and at most 1"),
        (
            {"grid": "sine"},
            "unknown grid 'sine'; auto, uniform, cosine, log-snr, published, or the size of a step, such as 0.05",
        ),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(InputError) as error:
        TauLeaping(**options)
    assert str(error.value) == message


@torch.no_grad()
def test_one_alpha_masks_need_few_calls():
    """Chosen first: a step in which no mask jumps asks nothing, and each is asked about once, at any number of steps."""
    method = mdlm(length=4)
    for sampler in (TauLeaping(), Ancestral()):
        (*_, state) = run(sampler, method, (50, 4), 300, generator=torch.Generator().manual_seed(0))
        assert (state.calls <= 4).all()
    for a, b in itertools.pairwise(run(TauLeaping(), method, (20, 4), 8, generator=torch.Generator().manual_seed(0))):
        assert torch.equal(b.x[a.x != V], a.x[a.x != V])  # without a corrector a token stays
