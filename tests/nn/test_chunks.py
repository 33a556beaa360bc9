"""A function of logits in chunks: the same values and gradients as in one piece, whatever gradient comes in."""

import pytest
import torch
from torch import nn

from zellige.nn import chunks
from zellige.nn.chunks import each_position


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 3)
    torch.manual_seed(0)
    head, scale = nn.Linear(5, 7).double(), nn.Parameter(torch.rand(7, dtype=torch.float64))
    h, target = torch.randn(11, 5, dtype=torch.float64, requires_grad=True), torch.randint(7, (11,))

    def f(logits, which):
        assert logits.dtype == torch.float64
        assert len(logits) == len(target[which])
        return ((scale * logits).logsumexp(-1) - logits.gather(-1, target[which, None])[:, 0]).exp()

    return head, scale, h, f


@pytest.mark.parametrize("upstream", ["sum", "mean", "uneven"])
def test_the_same_values_and_gradients(world, monkeypatch, upstream):
    head, scale, h, f = world
    weight = {"sum": torch.ones(11), "mean": torch.full((11,), 1 / 11), "uneven": torch.rand(11)}[upstream].double()
    found = []
    for large in (1, 1 << 22):
        monkeypatch.setattr(chunks, "LARGE", large)
        value = each_position(head, h, 7, f, [scale])
        gradients = torch.autograd.grad((weight * value).sum(), [h, *head.parameters(), scale])
        found.append((value.detach(), *gradients))
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_without_gradients_and_with_a_head_that_is_no_module(world, monkeypatch):
    head, scale, h, f = world
    monkeypatch.setattr(chunks, "LARGE", 1)
    with torch.no_grad():
        value = each_position(head, h, 7, f)
    assert not value.requires_grad
    plain = each_position(lambda h: head(h), h, 7, f)
    torch.testing.assert_close(value, plain, rtol=1e-12, atol=1e-12)
    assert plain.requires_grad
    (only,) = torch.autograd.grad(each_position(head, h.detach(), 7, f, [scale]).sum(), [scale])
    assert float(only.abs().sum()) > 0


def test_logits_are_float32_at_least(monkeypatch):
    head = nn.Linear(5, 7).bfloat16()
    seen = []

    def f(logits, which):
        seen.append(logits.dtype)
        return logits.sum(-1)

    for large in (1, 1 << 22):
        monkeypatch.setattr(chunks, "LARGE", large)
        each_position(head, torch.randn(4, 5).bfloat16(), 7, f).sum().backward()
    assert set(seen) == {torch.float32}
