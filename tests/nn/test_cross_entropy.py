"""The chunked cross-entropy is the plain one, in value and in every gradient, for any upstream gradient."""

import sys

import pytest
import torch
import torch.nn.functional as F

from zellige.nn import Table, cross_entropy

ce = sys.modules["zellige.nn.cross_entropy"]  # the package's attribute of that name is the function


class Head(torch.nn.Module):
    def __init__(self, D, K, bias=True):
        super().__init__()
        self.head = torch.nn.Linear(D, K, bias=bias)


def plain(h, W, b, target, weight, exclude):
    logits = F.linear(h, W, b)
    keep = [k for k in range(len(W)) if k != exclude]
    to = torch.full((len(W),), -1)
    to[keep] = torch.arange(len(keep))
    nll = F.cross_entropy(logits[:, keep], to[target], reduction="none")
    return nll if weight is None else weight * nll


def inputs(N=300, D=5, K=11, exclude=None, dtype=torch.float64, bias=True, weight=True):
    torch.manual_seed(0)
    h, W = torch.randn(N, D, dtype=dtype, requires_grad=True), torch.randn(K, D, dtype=dtype, requires_grad=True)
    b = torch.randn(K, dtype=dtype, requires_grad=True) if bias else None
    w = torch.rand(N, dtype=dtype).requires_grad_() if weight else None
    target = torch.randint(K - 1, (N,))
    if exclude is not None:
        target += (target >= exclude).long()
    return h, W, b, target, w


@pytest.mark.parametrize("exclude", [None, 0, 10])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("upstream", ["mean", "any"])
def test_equals_the_plain_one(exclude, bias, weight, upstream, monkeypatch):
    monkeypatch.setattr(ce, "chunk_rows", lambda states, device: 128)
    h, W, b, target, w = inputs(exclude=exclude, bias=bias, weight=weight)
    v = torch.full((300,), 1 / 300) if upstream == "mean" else torch.randn(300)
    leaves = [p for p in (h, W, b, w) if p is not None]
    ours, theirs = ce.chunked(h, W, b, target, w, exclude), plain(h, W, b, target, w, exclude)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(
        torch.autograd.grad(ours @ v.double(), leaves), torch.autograd.grad(theirs @ v.double(), leaves)
    )


def test_a_head_of_lower_precision_than_its_inputs():
    """Computed in that of the inputs, as the head of a published bfloat16 model is under a head of drafts."""
    h, _, _, target, w = inputs(dtype=torch.float32)
    net = Head(5, 11).bfloat16()
    ours = cross_entropy(net, h, target, weight=w)
    torch.testing.assert_close(ours, plain(h, net.head.weight.float(), net.head.bias.float(), target, w, None))


def test_gradcheck(monkeypatch):
    monkeypatch.setattr(ce, "chunk_rows", lambda states, device: 3)
    h, W, b, target, w = inputs(N=7, D=3, K=5, exclude=4)
    assert torch.autograd.gradcheck(lambda h, W, b, w: ce.chunked(h, W, b, target, w, 4), (h, W, b, w))


def test_large_vocabulary_takes_the_chunks_and_small_does_not(monkeypatch):
    calls = []
    monkeypatch.setattr(ce, "chunked", lambda *a: calls.append(a) or torch.zeros(len(a[0])))
    net = Head(4, 50_000)
    cross_entropy(net, torch.randn(200, 4), torch.zeros(200, dtype=torch.long))
    assert len(calls) == 1
    cross_entropy(net, torch.randn(20, 4), torch.zeros(20, dtype=torch.long))
    assert len(calls) == 1


@pytest.mark.parametrize("large", [False, True])
def test_both_ways_of_the_public_function(monkeypatch, large):
    monkeypatch.setattr(ce, "LARGE", 0 if large else 1 << 60)
    h, W, b, target, w = inputs(exclude=10)
    net = Head(5, 11).double()
    net.head.weight, net.head.bias = torch.nn.Parameter(W.detach()), torch.nn.Parameter(b.detach())
    torch.testing.assert_close(cross_entropy(net, h, target, weight=w, exclude=10), plain(h, W, b, target, w, 10))


@pytest.mark.parametrize("large", [False, True])
def test_no_positions(monkeypatch, large):
    monkeypatch.setattr(ce, "LARGE", 0 if large else 1 << 60)
    net = Head(5, 11)
    h = torch.randn(0, 5, requires_grad=True)
    out = cross_entropy(net, h, torch.zeros(0, dtype=torch.long), exclude=10)
    assert out.shape == (0,)
    out.sum().backward()
    assert not net.head.weight.grad.any()


def test_autocast_is_bfloat16_with_float32_sums(monkeypatch):
    monkeypatch.setattr(ce, "chunk_rows", lambda states, device: 32)
    torch.manual_seed(0)
    h, W, b, target, _ = inputs(D=64, K=500, dtype=torch.float32)
    exact = torch.autograd.grad(plain(h, W, b, target, None, 499).mean(), (h, W, b))
    with torch.autocast("cpu", torch.bfloat16):
        ours = ce.chunked(h, W, b, target, None, 499)
        logits = F.linear(h, W, b)
    assert ours.dtype == torch.float32
    rounded = F.cross_entropy(logits.double()[:, :499], target, reduction="none")  # exact, from bfloat16 logits
    torch.testing.assert_close(ours.double(), rounded, atol=1e-5, rtol=1e-5)
    for a, e in zip(torch.autograd.grad(ours.mean(), (h, W, b)), exact):
        assert a.dtype == torch.float32
        assert (a - e).norm() < 0.02 * e.norm()


def test_a_chunk_has_more_rows_where_there_are_fewer_states():
    """By entries, not by rows: of 256 states a GPU's kernel takes more than 256 times as many as of 50,258."""
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert [ce.chunk_rows(K, cpu) for K in (256, 50_258)] == [4096, 128]
    assert [ce.chunk_rows(K, gpu) for K in (256, 50_258)] == [1 << 18, 1335]


def test_twice_backward_and_frozen_head():
    h, W, b, target, _ = inputs()
    loss = ce.chunked(h, W, b, target, None).mean()
    first = torch.autograd.grad(loss, (h, W, b), retain_graph=True)
    first = [g.clone() for g in first]
    torch.testing.assert_close(list(torch.autograd.grad(loss, (h, W, b))), first)
    loss = ce.chunked(h, W.detach(), b.detach(), target, None).sum()
    (dh,) = torch.autograd.grad(loss, h)
    torch.testing.assert_close(dh, first[0] * 300)


def test_evaluation_makes_no_gradients(monkeypatch):
    h, W, b, target, w = inputs(exclude=3)
    asked, sweep = [], ce._sweep
    monkeypatch.setattr(ce, "_sweep", lambda *a: asked.append(a[-1]) or sweep(*a))
    with torch.no_grad():
        torch.testing.assert_close(ce.chunked(h, W, b, target, w, 3), plain(h, W, b, target, w, 3))
    assert asked == [(False, False, False)]


def test_extreme_logits_are_finite():
    h, W, b, target, _ = inputs(dtype=torch.float32)
    out = ce.chunked(1e4 * h, W, b, target)
    assert torch.isfinite(out).all()
    torch.testing.assert_close(out, plain(1e4 * h, W, b, target, None, None))


def test_table_has_no_linear_head():
    table = Table(3, 2)
    h = table.features(torch.tensor([[0, 2], [1, 1]]))
    out = cross_entropy(table, h[:, 0], torch.tensor([0, 1]), exclude=2)
    torch.testing.assert_close(out, -h[:, 0, :2].log_softmax(-1)[[0, 1], [0, 1]])
