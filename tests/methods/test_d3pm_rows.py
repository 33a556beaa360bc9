"""D3PM's step from the tables of rows, float32 logits, against the general one in float64."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from zellige.core import by_row, random
from zellige.core.batch import Batch
from zellige.core.schedule import CLEAN
from zellige.methods import D3PM, TauLDR, d3pm_rows
from zellige.nn.logistic import logistic, near

D = torch.float64
K, L, B, STEPS = 96, 60, 6, 200
EPS = torch.finfo(torch.float32).eps


class Net(nn.Module):
    """A table and a head."""

    def __init__(self, states: int = K, outputs: int = K):
        super().__init__()
        self.embedding, self.head = nn.Embedding(states, 8), nn.Linear(8, outputs)

    def features(self, x, time=None):
        return self.embedding(x)


def method(states: int = K, **more) -> D3PM:
    torch.manual_seed(0)
    config = D3PM.Config(more.pop("process", "gaussian"), diffusion_steps=STEPS, **more)
    return D3PM(Net(states, D3PM.outputs(states, config)), states, (L,), config)


def seeded(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


X = torch.randint(K, (B, L), generator=seeded())
T = torch.tensor([1, 2, 3, 20, 120, STEPS], dtype=D) / STEPS
S = torch.where(T * STEPS == 1, CLEAN, ((T * STEPS).round() - 1) / STEPS)
READ = [{}, {"last": "image"}, {"prediction": "mean"}, {"process": "band"}]


@pytest.mark.parametrize("scale", [0.1, 3.0, 12.0])
@pytest.mark.parametrize("more", READ)
def test_values_and_gradients_are_those_of_float64(more, scale):
    """From the first step to the last, of flat and of sharp networks.

    A distribution of float32 is right to about K eps in proportion, so a term log(q/p) to that beside itself.
    """
    m = method(**more)
    rows = m._rows(T, S)
    assert rows is not None
    assert {True, False} == {flat for _, flat in rows.kinds}
    x_t = rows.sample(X, torch.ones_like(X, dtype=torch.bool), seeded(2)).flatten()
    row = torch.arange(B).repeat_interleave(L)
    x_0, t, s = X.flatten(), T[row], S[row]
    logits = scale * torch.randn(B * L, K, generator=seeded(3))

    fast = logits.clone().requires_grad_()
    value = rows.loss(fast, x_0, x_t, row, 7.0, 0.5)
    (gradient,) = torch.autograd.grad(value.sum(), fast)

    slow = logits.double().requires_grad_()
    exact = 7 * m.cost(slow, x_0, x_t, t, s) + 0.5 * nn.functional.cross_entropy(slow, x_0, reduction="none")
    (slope,) = torch.autograd.grad(exact.sum(), slow)
    rounded = K * EPS
    torch.testing.assert_close(value, exact, rtol=rounded, atol=7 * rounded)
    torch.testing.assert_close(gradient.double(), slope, rtol=4 * rounded, atol=7 * rounded)
    assert float(value.detach().min()) > 0


def test_a_small_step_keeps_its_digits():
    """Where the prediction is nearly the truth the KL is some 1e-9, which logarithms in float32 would lose."""
    m = method()
    rows = m._rows(T, S)
    assert rows is not None
    row = torch.full((L,), 4)
    x_0, t, s = X[4], T[row], S[row]
    logits = 3 * nn.functional.one_hot((x_0 + 1).clamp_max(K - 1), K).float() + 4 * nn.functional.one_hot(x_0, K)
    logits = logits + 3 * nn.functional.one_hot((x_0 - 1).clamp_min(0), K)
    exact = m.cost(logits.double(), x_0, x_0, t, s)
    assert float(exact.median()) < 1e-4
    torch.testing.assert_close(rows.loss(logits, x_0, x_0, row, 1.0, 0.0), exact, rtol=2e-3, atol=1e-12)


def test_what_is_drawn():
    m = method()
    rows = m._rows(T, S)
    assert rows is not None
    counted = torch.rand(B, L, generator=seeded(4)) < 0.7
    drawn = random.categorical(m.process.marginal(X, T[:, None].expand(B, L)), seeded(5))
    assert torch.equal(rows.sample(X, counted, seeded(5)), torch.where(counted, drawn, X))


@pytest.mark.parametrize("more", [*READ, {"head": "logistic", "last": "image"}])
def test_loss_and_bound_are_those_of_float64(more, monkeypatch):
    monkeypatch.setattr("zellige.nn.chunks.LARGE", 1 << 14)
    batch = Batch(X, torch.rand(X.shape, generator=seeded(8)) < 0.8)
    one, two = method(auxiliary=0.3, **more), method(auxiliary=0.3, **more).double()
    assert two._rows(T, S) is None
    for f in ("loss", "bound"):
        value, exact = (getattr(m, f)(batch, seeded(9)) for m in (one, two))
        torch.testing.assert_close(value, exact, rtol=2e-5, atol=0)
        made = [torch.autograd.grad(v.sum(), list(m.parameters())) for v, m in ((value, one), (exact, two))]
        for fast, slow in zip(*made):
            torch.testing.assert_close(fast.double(), slow, rtol=1e-4, atol=1e-4 * float(slow.abs().max()))


@pytest.mark.parametrize("more", [{"states": 8}, {"process": "uniform"}, {"process": "middle"}])
def test_where_there_are_no_tables(more):
    assert method(**more)._rows(T, S) is None
    assert d3pm_rows.MANY > 8


def test_the_divergence_of_each_state_once():
    m = method()
    each = torch.stack([m.process.divergence(x, 1.0) for x in X.split(1)])
    torch.testing.assert_close(m.process.divergence(X, 1.0), each[:, 0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [D, torch.float32])
def test_the_floored_head_is_its_definition(dtype):
    """Values and gradients, of sharp and of flat distributions, at the ends too."""
    outputs = torch.stack(
        [torch.linspace(-6, 6, 41), torch.linspace(5, -9, 41)[torch.randperm(41, generator=seeded(3))]], -1
    ).to(dtype)
    x = torch.randint(K, (41,), generator=seeded())
    weight = torch.randn(41, K, generator=seeded(2), dtype=D)
    exact = outputs.double().requires_grad_()
    shift, log_scale = exact.unbind(-1)
    distribution = logistic(torch.tanh(2 * x.double() / (K - 1) - 1 + shift), log_scale, K).softmax(-1)
    wanted = (distribution + 1e-6 / K).log()
    ours = outputs.clone().requires_grad_()
    value = near(ours, x, K)
    tolerance = 1e-9 if dtype == D else 2e-2  # of the most, a level in float32 is 1e-7 off and the scale 1/8,000
    torch.testing.assert_close(value.double(), wanted, rtol=0, atol=tolerance)
    slopes = [torch.autograd.grad((weight.to(v) * v).sum(), o)[0].double() for v, o in ((value, ours), (wanted, exact))]
    torch.testing.assert_close(slopes[0], slopes[1], rtol=tolerance, atol=tolerance * float(slopes[1].abs().max()))


class Operators(TorchDispatchMode):
    """How many operators run, and the most numbers in the result of one."""

    count = largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.count += 1
        for made in out if isinstance(out, (tuple, list)) else (out,):
            self.largest = max(self.largest, made.numel() if isinstance(made, torch.Tensor) else 0)
        return out


def step_of(m, rows: int) -> Operators:
    """The operators of one step of training."""
    batch = Batch(torch.randint(K, (rows, 12), generator=seeded()))
    m.loss(batch, seeded(2))  # what is made once
    with Operators() as operators:
        m.loss(batch, seeded(3)).mean().backward()
    return operators


@pytest.mark.parametrize("more", [{}, {"last": "image"}, {"process": "band"}, {"auxiliary": 0.0}, "tauldr"])
def test_operators_of_a_step_do_not_grow_with_the_batch(more, monkeypatch):
    """As a GPU takes them. A loop over rows took 20,000 launches for a batch of images; only bytes may add some."""
    monkeypatch.setattr(by_row, "PART", by_row.PART_GPU)
    torch.manual_seed(0)
    m = TauLDR(Net(), K, (12,), TauLDR.Config("gaussian")) if more == "tauldr" else method(**more)
    few, many = step_of(m, 8), step_of(m, 48)
    assert many.count <= few.count + 60  # one kind of rows more: the first step, or small entries
    monkeypatch.setattr(by_row, "PART", 1 << 14)
    small = step_of(m, 48)
    assert small.count > many.count
    assert small.largest <= max(1 << 14, 48 * K * K)  # one table of all rows


@pytest.mark.parametrize("part", [1, 1 << 12, 1 << 24])
def test_rows_at_once_are_rows_one_by_one(part, monkeypatch):
    """Rows of 1 to 40 positions, of two kinds: each position comes once, with its own row."""
    monkeypatch.setattr(by_row, "PART", part)
    lengths, kinds = torch.tensor([40, 1, 0, 7, 7, 22, 3, 40]), [True, False, True, True, False, True, True, False]
    row = torch.arange(len(lengths)).repeat_interleave(lengths)
    seen = torch.zeros(len(row) + 1, dtype=torch.long)
    for rows, index in by_row.by_row(row, K, kinds):
        assert len({kinds[b] for b in rows}) == 1
        assert len(rows) == 1 or index.numel() * K <= part
        for b, one in zip(rows, index):
            one = one[one < len(row)]
            assert (row[one] == b).all()
            seen[one] += 1
    assert (seen[:-1] == 1).all()


def test_products_of_many_steps_at_once_are_those_of_one():
    whole: Any = method().process
    i, j = torch.meshgrid(torch.arange(0, 8), torch.arange(0, 8), indexing="ij")
    s, t = (i[i <= j] / STEPS).double(), (j[i <= j] / STEPS).double()
    for every in (1, 3):
        chain: Any = method().process
        chain.every, chain.products = every, whole.products[::every].contiguous()
        for one, begin, end in zip(chain.matrix(s, t), s.tolist(), t.tolist()):
            exact = torch.eye(K, dtype=D)
            for n in range(round(begin * STEPS), round(end * STEPS)):
                exact = exact @ chain.steps[n]
            torch.testing.assert_close(one, exact, rtol=1e-13, atol=0)
