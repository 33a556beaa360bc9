"""tauLDR's objective from the tables of rows, float32 logits, against the general one in float64."""

import pytest
import torch
from torch import nn

from zellige.core import random
from zellige.core.batch import Batch
from zellige.core.matrices import ERROR
from zellige.core.prediction import score_given
from zellige.core.schedule import CLEAN
from zellige.methods import TauLDR, tauldr_rows

D = torch.float64
K, L, B = 96, 60, 5
ROUNDED = 2 * ERROR + K * torch.finfo(torch.float32).eps  # Q twice in a ratio; a softmax and sums of K in float32


class Net(nn.Module):
    """A table and a head."""

    def __init__(self, states: int = K):
        super().__init__()
        self.embedding, self.head = nn.Embedding(states, 8), nn.Linear(8, states)

    def features(self, x, time=None):
        return self.embedding(x)


def method(states: int = K, **more) -> TauLDR:
    torch.manual_seed(0)
    return TauLDR(Net(states), states, (L,), TauLDR.Config(more.pop("process", "gaussian"), **more))


def seeded(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


X, T = torch.randint(K, (B, L), generator=seeded()), torch.tensor([0.0, 0.002, 0.1, 0.6, 1.0], dtype=D)


@pytest.mark.parametrize("scale", [0.1, 3.0, 12.0])
@pytest.mark.parametrize("where", ["noised", "anywhere"])
def test_values_and_gradients_are_those_of_float64(scale, where):
    """At times from the first on, at likely x and at any (q down to 1e-60), of flat and of sharp networks.

    Each term of a sum is right to ROUNDED in proportion, so the sum to ROUNDED of the sum of its terms without their signs.
    """
    m = method()
    rows = tauldr_rows.rows_of(m.process, m.network, T)
    assert rows is not None
    x = rows.sample(X, torch.ones_like(X, dtype=torch.bool), seeded(2)) if where == "noised" else X.flip(1)
    row = torch.arange(B).repeat_interleave(L)
    x_0, x, t = X.flatten(), x.flatten(), T[row]
    logits = scale * torch.randn(len(x), K, generator=seeded(3))

    fast = logits.clone().requires_grad_()
    value = rows.sum(tauldr_rows.both, fast, x_0, x, row)
    (gradient,) = torch.autograd.grad(value.sum(), fast)

    slow = logits.double().requires_grad_()
    into, u, v = m.moment(slow, x_0, x, t)
    general = tauldr_rows.both(into, u, v)
    (exact,) = torch.autograd.grad(general.sum(), slow)
    size = (into * (v + u + u * (u.log().abs() + v.log().abs()))).sum(-1).detach()
    assert ((value - general).abs() <= ROUNDED * size).all()

    mu, q = slow.softmax(-1), m.process.likelihood(x, CLEAN, t)
    with_sign = m.process.push(torch.eye(K, dtype=D).expand(len(x), K, K).reshape(-1, K), CLEAN, t.repeat_interleave(K))
    slope = (with_sign.reshape(len(x), K, K) @ (into * (1 + u / v))[..., None])[..., 0] / q  # no term of it negative
    size = mu * (slope + (slope * mu).sum(-1, keepdim=True))
    assert ((gradient - exact).abs() <= (4 * ROUNDED * size).clamp_min(torch.finfo(torch.float32).tiny)).all()


@pytest.mark.parametrize("scale", [0.1, 12.0])
@pytest.mark.parametrize("f", [tauldr_rows.both, tauldr_rows.leaving, tauldr_rows.signal])
def test_leave_one_out_is_that_of_float64(f, scale):
    """As above; what is left of p~ at x divides everything, with its gradient."""
    m = method(prediction="leave-one-out")
    rows = tauldr_rows.rows_of(m.process, m.network, T, others=True)
    assert rows is not None
    x, row = (
        rows.sample(X, torch.ones_like(X, dtype=torch.bool), seeded(2)).flatten(),
        torch.arange(B).repeat_interleave(L),
    )
    x_0, t = X.flatten(), T[row]
    logits = scale * torch.randn(len(x), K, generator=seeded(3))
    fast, slow = logits.clone().requires_grad_(), logits.double().requires_grad_()
    value, moment = rows.sum(f, fast, x_0, x, row), m.moment(slow, x_0, x, t)
    into, u, v = moment
    size = (into * (v + u + u * (u.log().abs() + v.log().abs()))).sum(-1).detach()
    exact = f(*moment)
    assert ((value - exact).abs() <= ROUNDED * size).all()
    gradient, wanted = (torch.autograd.grad(y.sum(), z)[0].double() for y, z in ((value, fast), (exact, slow)))
    assert ((gradient - wanted).abs() <= 4 * ROUNDED * size[:, None] + torch.finfo(torch.float32).tiny).all()


def test_ratios_of_small_probabilities():
    m = method()
    rows = tauldr_rows.rows_of(m.process, m.network, T)
    assert rows is not None
    x_0, x = torch.arange(K).repeat(K), torch.arange(K).repeat_interleave(K)
    for b, t in enumerate(T):
        given = score_given(m.process, x_0, x, t.expand(K * K))
        assert b or given.max() > 1e40  # of the first time
        ratio = rows.Q[b, x_0] / rows.Q[b, x_0, x][:, None]
        torch.testing.assert_close(ratio, given, rtol=2 * ERROR, atol=0)


def test_what_is_drawn_and_what_a_jump_makes_likelier():
    m = method()
    rows = tauldr_rows.rows_of(m.process, m.network, T)
    assert rows is not None
    counted = torch.rand(B, L, generator=seeded(4)) < 0.7
    counted[2] = False
    x_t = rows.sample(X, counted, seeded(5))
    drawn = random.categorical(rows.Q[torch.arange(B)[:, None], X], seeded(5))
    assert torch.equal(x_t, torch.where(counted, drawn, X))
    x = tauldr_rows.jump(m.process, x_t, T, counted, seeded(6))
    general = tauldr_rows.after(m.process, X, x, T, counted)
    torch.testing.assert_close(rows.after(X, x, counted), general, rtol=2 * ERROR, atol=0)


@pytest.mark.parametrize("prediction", ["mean", "leave-one-out"])
@pytest.mark.parametrize("objective", ["one-pass", "generic", "two-pass", "one-pass-biased"])
@pytest.mark.parametrize("length", [3, L])
def test_the_loss_is_that_of_float64(objective, length, prediction, monkeypatch):
    """The weights are the same numbers; the logits differ by 1e-6, and a value of 0.1 is what is left of flows of 100.

    In two-pass it is what is left of sums at two sequences, each of which float32 logits move by 1e-7 of the flow.
    """
    monkeypatch.setattr("zellige.nn.chunks.LARGE", 1 << 14)
    x = torch.randint(K, (B, length), generator=seeded(7))
    batch = Batch(x, torch.rand(x.shape, generator=seeded(8)) < 0.8)
    one = method(objective=objective, prediction=prediction)
    value = one.loss(batch, seeded(9))
    gradients = torch.autograd.grad(value.sum(), list(one.parameters()))
    assert not one.process.cache.matrices  # no matrix was made for these times
    two = method(objective=objective, prediction=prediction).double()
    general = two.loss(batch, seeded(9))
    assert two.process.cache.logs is None
    flow = length * two.process.fastest * float(two.process.schedule.beta(1.0))
    moved = torch.finfo(torch.float32).eps * flow if objective in ("two-pass", "one-pass-biased") else 0.0
    torch.testing.assert_close(value, general, rtol=5e-6, atol=2e-5 + moved)
    for fast, slow in zip(gradients, torch.autograd.grad(general.sum(), list(two.parameters()))):
        close = moved / K + 1e-5 * float(slow.abs().max())
        torch.testing.assert_close(fast.double(), slow, rtol=1e-5, atol=close)


@pytest.mark.parametrize(
    "more", [{"states": 8}, {"process": "birth-death", "states": 256}, {"process": "uniform"}, {"min_time": 0.0}]
)
def test_where_there_are_no_tables(more):
    m = method(**more)
    assert tauldr_rows.rows_of(m.process, m.network, T) is None
    assert tauldr_rows.rows_of(method().process, m.network.double(), T) is None
