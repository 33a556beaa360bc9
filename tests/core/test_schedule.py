"""Schedules: each quantity against the derivative, the inverse or the closed form that defines it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from testing.worlds import per_token
from zellige import methods
from zellige.base.errors import InputError
from zellige.core.curves import (
    SCHEDULES,
    Cosine,
    CosinePower,
    Exponential,
    Geometric,
    Linear,
    LinearSigma,
    Logarithmic,
    Polynomial,
)
from zellige.core.schedule import CLEAN, PRIOR, Schedule, Tabulated

D = torch.float64
close = torch.testing.assert_close
SCALAR = {
    "linear": Linear(),
    "linear, both ends": Linear(1e-4, 1 - 1e-4),
    "linear, to 0": Linear(0.0),
    "cosine": Cosine(),
    "cosine, both ends": Cosine(1e-4, 1 - 1e-4),
    "cosine power 1": CosinePower(1.0),
    "cosine power 2": CosinePower(2.0),
    "logarithmic": Logarithmic(),
    "polynomial 2": Polynomial(2.0),
    "polynomial 0.5": Polynomial(per_token(0.5)),
    "polynomial 3, both ends": Polynomial(3.0, 1e-2, 0.99),
    "polynomial, learnable": Polynomial(1.7, learnable=True).double(),
    "polynomial 1.5, begin": Polynomial(1.5, begin=0.02),
    "polynomial 1.5, both ends, begin": Polynomial(1.5, 1e-2, 0.98, begin=0.02),
    "geometric": Geometric(),
    "linear sigma": LinearSigma(),
    "linear sigma, from above 0": LinearSigma(1e-2, 7.0),
    "exponential": Exponential(0.07, 100.0),
    "exponential, begin": Exponential(0.5, 10.0, begin=0.1),
}
VECTOR = {
    "per token": Polynomial(per_token(0.5, 1.0, 3.0)),
    "per token, both ends": Polynomial(per_token(0.5, 1.0, 3.0), 1e-2, 0.98),
    "per token, learnable": Polynomial(per_token(0.5, 1.0, 3.0), learnable=True),
    "per token, begin": Polynomial(per_token(0.5, 1.0, 3.0), learnable=True, begin=1e-3),
}
ALL = {**SCALAR, **VECTOR}
every = pytest.mark.parametrize("schedule", ALL.values(), ids=ALL.keys())
scalar = pytest.mark.parametrize("schedule", SCALAR.values(), ids=SCALAR.keys())
INSIDE = torch.linspace(0.01, 0.99, 25, dtype=D)


def slope(f, t):
    return torch.func.jvp(f, (t,), (torch.ones_like(t),))[1]


@every
def test_beta_weight_and_log_snr_are_the_derivatives(schedule):
    t = INSIDE
    alpha, slope_ = schedule.alpha(t), slope(schedule.alpha, t)
    h = 1e-6
    torch.testing.assert_close(slope_, (schedule.alpha(t + h) - schedule.alpha(t - h)) / (2 * h), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(slope_, -schedule.beta(t) * alpha, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(slope_, -schedule.weight(t) * (1 - alpha), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(slope(schedule.sigma, t), schedule.beta(t), rtol=1e-9, atol=1e-12)
    # d log(alpha / (1 - alpha)) = -(beta + weight): the log-SNR form of the loss is a change of variables
    torch.testing.assert_close(
        slope(schedule.log_snr, t), -schedule.beta(t) - schedule.weight(t), rtol=1e-8, atol=1e-10
    )
    torch.testing.assert_close(schedule.sigma(t), -alpha.log(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(schedule.log_snr(t), (alpha / (1 - alpha)).log(), rtol=1e-9, atol=1e-12)


@every
def test_alpha_decreases_from_alpha_0_to_alpha_1_with_a_jump_at_each_end(schedule):
    times = torch.tensor([CLEAN, 0.0, 1.0, PRIOR], dtype=D)
    alpha = schedule.alpha(times)
    assert float(alpha[1].detach().min()) == pytest.approx(schedule.clean_end, rel=1e-12)
    ends = torch.tensor([1.0, schedule.clean_end, schedule.alpha_1, 0.0], dtype=D)[:, None].expand_as(alpha).clone()
    if getattr(schedule, "begin", 0.0):  # then each token has lost its own share at t = 0
        ends[1] = schedule.alpha_0 - (schedule.alpha_0 - schedule.alpha_1) * schedule.begin**schedule.w
    torch.testing.assert_close(alpha, ends, rtol=1e-9, atol=1e-15)
    assert (alpha[0] == 1).all()
    assert (alpha[3] == 0).all()
    assert (schedule.alpha(INSIDE).diff(dim=0) < 0).all()
    assert (schedule.beta(times[[0, 3]]) == 0).all()
    assert (schedule.weight(times[[0, 3]]) == 0).all()
    assert (schedule.sigma(times)[0] == 0).all()
    assert (schedule.sigma(times)[3] == torch.inf).all()
    assert (schedule.log_snr(times)[0] == torch.inf).all()
    assert (schedule.log_snr(times)[3] == -torch.inf).all()
    assert schedule.alpha(PRIOR).shape == alpha.shape[1:]  # a plain number is a time too


@every
def test_no_gradient_is_nan_where_the_ends_stand_among_times(schedule):
    t = torch.tensor([[CLEAN, 0.3], [0.9, PRIOR]], dtype=D, requires_grad=True)
    parameters = list(schedule.parameters())
    for f in (schedule.alpha, schedule.beta, schedule.weight, schedule.sigma):
        value = f(t)
        if not value.requires_grad:  # a constant
            continue
        value = torch.where(value.isfinite(), value, 0.0)
        for g in torch.autograd.grad(value.sum(), [t, *parameters], retain_graph=True, allow_unused=True):
            assert g is None or g.isfinite().all(), f.__name__
        (g,) = torch.autograd.grad(value.sum(), t)
        assert (g[t.isinf()] == 0).all()


@every
def test_times_inside_alone_are_as_among_the_ends(schedule):
    """Where no time lies beyond [0, 1] the ends are not computed: the values are the same."""
    inside = torch.tensor([1e-6, 0.3, 0.9, 1.0], dtype=torch.float64)
    among = torch.cat((inside, torch.tensor([CLEAN, -1e-5, 1.0 + 1e-5, PRIOR], dtype=torch.float64)))
    for ask in (schedule.alpha, schedule.beta, schedule.weight):
        close(ask(inside), ask(among)[:4], rtol=1e-14, atol=0)  # a vector's cosine rounds otherwise by its length


@every
def test_alpha_of_some_states(schedule):
    t = torch.tensor([[CLEAN, 0.0, 0.3], [0.9, 1.0, PRIOR]], dtype=D)
    x = torch.tensor([[0, 1, 2], [2, 1, 0]])
    whole = schedule.alpha(t).expand(2, 3, 3).gather(-1, x[..., None])[..., 0]
    torch.testing.assert_close(schedule.alpha_of(x, t), whole, rtol=1e-12, atol=0)
    torch.testing.assert_close(schedule.alpha_of(x, t[:, :1]), schedule.alpha_of(x, t[:, :1].expand(2, 3)))
    assert (schedule.alpha_of(x, CLEAN) == 1).all()
    for p in schedule.parameters():
        (g,) = torch.autograd.grad(schedule.alpha_of(x, t).sum(), p)
        assert g.isfinite().all()


def test_begin_is_a_piece_of_the_same_curve():
    whole, piece = Polynomial(1.5), Polynomial(1.5, begin=0.02)
    t = torch.cat((torch.tensor([0.0, 1.0], dtype=D), INSIDE))
    tau = piece.tau(t)
    torch.testing.assert_close(piece.alpha(t), whole.alpha(tau))
    torch.testing.assert_close(piece.weight(t), 0.98 * whole.weight(tau))  # per unit of t, not of tau
    torch.testing.assert_close(piece.time(tau), t)
    assert float(piece.time(torch.tensor(0.01, dtype=D))) == 0.0
    assert piece.clean_end < 1.0


@scalar
def test_inverse(schedule):
    t = torch.cat((torch.tensor([0.0, 1.0], dtype=D), INSIDE))
    torch.testing.assert_close(schedule.inverse(schedule.alpha(t)[:, 0]), t, rtol=1e-7, atol=1e-7)
    between = schedule.alpha_1 + (schedule.clean_end - schedule.alpha_1) * INSIDE  # alphas within the range
    torch.testing.assert_close(schedule.alpha(schedule.inverse(between))[:, 0], between, rtol=1e-7, atol=1e-9)
    # beyond the range: in the ends (first hitting draws alphas in (0, 1))
    span = torch.tensor(schedule.span, dtype=D)
    torch.testing.assert_close(schedule.inverse(torch.tensor([1.0, 0.0], dtype=D)), span, rtol=0, atol=1e-7)


@every
def test_the_ends_are_passed_at_an_even_pace_for_all_states_alike(schedule):
    """What is still masked before t = 0, and still there after t = 1, is a share of what it is then; the slopes are those."""
    low, high = schedule.span
    clean, noisy = schedule.alpha(torch.tensor([0.0, 1.0], dtype=D))
    near = {"rtol": 1e-6, "atol": 1e-14}  # a late time of a short end has few digits
    for share in (0.9, 0.5, 0.1):
        early, late = torch.tensor([low * (1 - share), 1 + (high - 1) * (1 - share)], dtype=D)
        if low < 0:
            torch.testing.assert_close(1 - schedule.alpha(early), share * (1 - clean), **near)
            pace = schedule.weight(early) * (1 - schedule.alpha(early))
            torch.testing.assert_close(pace, (1 - clean) / -low, **near)
            torch.testing.assert_close(schedule.beta(early) * schedule.alpha(early), pace, **near)
        if high > 1:
            torch.testing.assert_close(schedule.alpha(late), share * noisy, **near)
            pace = schedule.beta(late) * schedule.alpha(late)
            torch.testing.assert_close(pace, noisy / (high - 1), **near)
            torch.testing.assert_close(schedule.weight(late) * (1 - schedule.alpha(late)), pace, **near)


@given(st.floats(1e-3, 1.0), st.floats(0.1, 8.0), st.floats(0, 0.3), st.floats(0.5, 1.0))
def test_inverse_of_any_polynomial(u, w, low, high):
    schedule = Polynomial(torch.tensor(w, dtype=D), low, high)
    alpha = schedule.alpha(torch.tensor(u, dtype=D))[0]
    assert float(schedule.alpha(schedule.inverse(alpha))[0]) == pytest.approx(float(alpha), abs=1e-12)


def test_weights_in_closed_form():
    t = INSIDE
    torch.testing.assert_close(Linear(1e-3).weight(t)[:, 0], 1 / t)  # whatever alpha_1 is
    torch.testing.assert_close(Linear(0.0).weight(t), Linear(0.3).weight(t))
    torch.testing.assert_close(Polynomial(3.0).weight(t)[:, 0], 3 / t)
    a = math.pi / 2 * (1 - t)
    torch.testing.assert_close(Cosine(0.0).weight(t)[:, 0], math.pi / 2 * torch.tan(a))  # MD4, table 4
    c, s = torch.cos(math.pi / 2 * t), torch.sin(math.pi / 2 * t)
    torch.testing.assert_close(CosinePower(2.0, 0.0).weight(t)[:, 0], math.pi * c / s)
    sigma = Geometric().sigma(t)
    torch.testing.assert_close(Geometric().weight(t), sigma * math.log(2e5) / torch.expm1(sigma))


@pytest.mark.parametrize("name", ["linear", "polynomial 2", "polynomial 0.5", "geometric", "linear sigma"])
@pytest.mark.parametrize("t", [1e-30, 1e-12, 1e-7, 1e-4, 0.5, 1.0])
def test_float32_weights_keep_their_digits_at_small_times(name, t):
    """1 - alpha is 0 in float32 below t = 6e-8: the closed forms do not go through it."""
    single, double = (torch.tensor(t, dtype=dtype) for dtype in (torch.float32, D))
    low = SCALAR[name].weight(single)
    assert low.isfinite().all()
    torch.testing.assert_close(low.double(), SCALAR[name].weight(double), rtol=3e-5, atol=0)


def test_float64_weights_at_small_times():
    """Of the schedules whose weight goes through 1 - alpha: good to 1e-6 down to t = 1e-9, where 1e-9 of a token is masked."""
    for schedule, exact in ((Cosine(0.0), lambda t: 1 / t), (CosinePower(2.0, 0.0), lambda t: 2 / t)):
        t = torch.tensor([1e-9, 1e-7, 1e-5], dtype=D)[: None if isinstance(schedule, Cosine) else 0]
        torch.testing.assert_close(schedule.weight(t)[:, 0], exact(t), rtol=1e-6, atol=0)


def test_one_exponent_per_token_is_one_schedule_per_token():
    ends = (1e-2, 0.98)
    together = Polynomial(per_token(0.5, 1.0, 3.0), *ends)
    for k, w in enumerate((0.5, 1.0, 3.0)):
        alone = Polynomial(per_token(w), *ends)
        for f in ("alpha", "beta", "weight", "sigma", "log_snr"):
            torch.testing.assert_close(getattr(together, f)(INSIDE)[:, k : k + 1], getattr(alone, f)(INSIDE))
    with pytest.raises(ValueError, match="no single inverse"):
        together.inverse(0.5)


def test_learnable_exponents_start_where_they_are_told_and_have_gradients():
    w = per_token(0.01, 0.5, 1.0, 30.0)
    schedule = Polynomial(w, learnable=True)
    torch.testing.assert_close(schedule.w.detach(), w)
    t = torch.tensor([0.0, 1e-300, 0.5, 1.0], dtype=D)
    for f in (schedule.alpha, lambda t: schedule.weight(t[1:])):
        (g,) = torch.autograd.grad(f(t).sum(), schedule.raw)
        assert g.isfinite().all()
    (g,) = torch.autograd.grad(schedule.alpha(torch.tensor(0.5, dtype=D)).sum(), schedule.raw)
    expected = -(1 - 1e-3) * 0.5**w * math.log(0.5) * torch.sigmoid(schedule.raw.detach())
    torch.testing.assert_close(g, expected)


def test_a_table_of_alpha():
    """D3PM: alpha_i at t = i/T, its own names for the two ends, and nothing in between."""
    alpha = torch.tensor([1.0, 0.9, 0.6, 0.2, 0.0], dtype=D)
    schedule = Tabulated(alpha)
    t = torch.arange(5, dtype=D) / 4
    assert (schedule.T, schedule.clean_end, schedule.alpha_1) == (4, 1.0, 0.0)
    assert torch.equal(schedule.alpha(t)[:, 0], alpha)
    assert torch.equal(schedule.alpha(t.float())[:, 0], alpha)
    assert schedule.alpha(t.reshape(5, 1)).shape == (5, 1, 1)
    assert torch.equal(schedule.alpha(torch.tensor([CLEAN, 0.5, PRIOR])).squeeze(), per_token(1.0, 0.6, 0.0))
    assert float(schedule.alpha(0.25)) == 0.9
    torch.testing.assert_close(schedule.sigma(t)[:, 0], -alpha.log())
    torch.testing.assert_close(schedule.log_snr(t)[1:4, 0], torch.logit(alpha[1:4]))
    assert Tabulated(alpha.float()).table.dtype == D  # cumulative products keep their digits
    third = Tabulated(torch.linspace(1, 0, 1001, dtype=D))  # i/1000 is no float, yet on the grid
    torch.testing.assert_close(third.alpha(torch.linspace(1, 0, 1001))[:, 0], third.table.flip(0), rtol=0, atol=0)
    for wrong in (0.3, 0.125, 0.99):
        with pytest.raises(ValueError, match="T = 4 steps"):
            schedule.alpha(wrong)
    for f in (schedule.beta, schedule.weight, schedule.inverse):
        with pytest.raises(ValueError, match="discrete time"):
            f(0.5)
    for wrong in ([1.0], [0.9, 0.5], [1.0, 1.0], [1.0, 0.5, 0.6], [1.0, -0.1]):
        with pytest.raises(ValueError, match="must decrease"):
            Tabulated(per_token(*wrong))


def test_impossible_schedules_are_said():
    for wrong in ((0.5, 0.5), (-0.1, 1.0), (0.0, 1.1), (0.9, 0.1)):
        with pytest.raises(ValueError, match="must decrease"):
            Linear(*wrong)
    for wrong in ({"base": 0.0}, {"growth": 1.0}, {"begin": -0.1}, {"begin": 1.0}):
        with pytest.raises(ValueError, match=r"must be above 0, growth .* above 1, and begin .* in \[0, 1\)"):
            Exponential(**wrong)
    with pytest.raises(ValueError, match="above 0"):
        Polynomial(per_token(1.0, 0.0))
    for wrong in ((0.0, math.inf), (2.0, 1.0), (-1.0, 1.0)):
        with pytest.raises(ValueError, match="finite"):
            LinearSigma(*wrong)


def test_every_named_schedule_can_be_made_as_it_is():
    for name, cls in SCHEDULES.items():
        schedule = cls()
        assert isinstance(schedule, Schedule), name
        assert "=" in repr(schedule)


@pytest.mark.parametrize("method", ["mdlm", "radd", "udlm", "bd3lm"])
def test_the_ends_of_a_schedule_are_a_choice(method):
    """Of the schedules that are given by sigma; MDLM's configuration has 1e-3 to 7 for `linear`."""
    cls = methods.METHODS[method]
    make = lambda **choices: cls(None, 5, (16,), cls.Config(**choices)).process.schedule  # noqa: E731
    noise = make(schedule="linear-sigma", sigma_min=1e-3, sigma_max=7.0)
    close(noise.sigma(torch.tensor([0.0, 0.5, 1.0], dtype=D))[:, 0], torch.tensor([1e-3, 3.5005, 7.0], dtype=D))
    ends = torch.tensor([0.0, 1.0], dtype=D)
    close(make(schedule="linear-sigma").sigma(ends)[:, 0], torch.tensor([0.0, 10.0], dtype=D))
    close(make(schedule="geometric", sigma_max=8.0).sigma(ends)[:, 0], torch.tensor([1e-4, 8.0], dtype=D))
    close(make().alpha(ends)[:, 0], torch.tensor([1.0, 1e-3], dtype=D))
    for name in ("loglinear", "cosine", "cosine-power", "polynomial"):
        close(make(schedule=name, alpha_1=0.2).alpha(ends)[:, 0], torch.tensor([1.0, 0.2], dtype=D))
    early = torch.tensor([0.25], dtype=D)
    for name, exponent, lost in (("square", None, 0.0625), ("square-root", None, 0.5), ("polynomial", 0.5, 0.5)):
        close(
            make(schedule=name, alpha_1=1e-3, exponent=exponent).alpha(early)[:, 0],
            1 - 0.999 * torch.tensor([lost], dtype=D),
        )
    for wrong, line in [
        ({"exponent": 2.0}, "`schedule` loglinear has no `exponent`; drop it, or take polynomial or cosine-power"),
        ({"schedule": "polynomial", "exponent": 0.0}, "`exponent` is 0; it must be above 0, and finite"),
        ({"alpha_1": 1.0}, "`alpha_1` is 1; it must be 0 or more, and below 1"),
        ({"alpha_1": float("nan")}, "`alpha_1` is nan; it must be a number"),
        ({"schedule": "geometric", "alpha_1": 0.1}, "`schedule` geometric has no `alpha_1`; use `sigma_max`"),
        ({"sigma_max": 7.0}, "`sigma_max` needs `schedule` geometric or linear-sigma; drop it"),
        (
            {"schedule": "geometric", "sigma_min": 0.0},
            "do not fit: sigma of a geometric schedule starts at 0; it must be above 0",
        ),
        (
            {"schedule": "linear-sigma", "sigma_min": 7.0, "sigma_max": 7.0},
            "do not fit: sigma runs from 7.0 to 7.0; it must increase",
        ),
        (
            {"schedule": "linear-sigma", "sigma_max": float("nan")},
            "`sigma_max` is nan; it must be a number",
        ),
    ]:
        with pytest.raises(InputError, match=line):
            make(**wrong)


def test_a_network_is_not_told_noise_without_end():
    """ReMDM's and BD3-LM's alpha ends at 0, where sigma is infinite: their networks are not told it, and give no score."""
    zero = {"alpha_1": 0.0}
    assert methods.MDLM(None, 5, (16,), methods.MDLM.Config(**zero)).process.schedule.alpha_1 == 0.0
    for make in (
        lambda: methods.MDLM(None, 5, (16,), methods.MDLM.Config(time=True, **zero)),
        lambda: methods.SEDD(None, 5, (16,), methods.SEDD.Config(**zero)),
        lambda: methods.UDLM(None, 5, (16,), methods.UDLM.Config(**zero)),
    ):
        with pytest.raises(
            InputError, match="`alpha_1` 0 is noise without end at t = 1, which no network can take as input"
        ):
            make()
