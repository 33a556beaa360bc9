"""Products by oneDNN are those of `torch.nn.functional.linear`, and only large float32 ones on a CPU are computed so."""

import pytest
import torch
import torch.nn.functional as F

from zellige.nn import linear
from zellige.nn.linear import Linear, product

fast = pytest.mark.skipif(not linear._able, reason="this CPU has no AVX-512, or this PyTorch no oneDNN")


@pytest.fixture
def calls(monkeypatch):
    """The shapes of the products that oneDNN computes."""
    seen, onednn = [], linear._onednn
    monkeypatch.setattr(linear, "_onednn", lambda x, W, b=None: (seen.append((x.shape, W.shape)), onednn(x, W, b))[1])
    return seen


@fast
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(48, 96), (40, 96), (3, 47, 96), (2, 5, 70, 96), (3, 512, 96)])
def test_values_and_gradients_of_both_orders(shape, bias, calls):
    torch.manual_seed(0)
    layer = Linear(96, 130, bias=bias)
    x = torch.randn(shape, requires_grad=True)
    grad = torch.randn(*shape[:-1], 130)
    parts = [x, *layer.parameters()]

    def gradients(y):
        first = torch.autograd.grad(y, parts, grad, create_graph=True)
        return [y, *first, *torch.autograd.grad(sum(g.square().sum() for g in first[:2]), parts[:2])]

    ours = gradients(layer(x))
    assert calls
    for a, b in zip(ours, gradients(F.linear(x, *layer.parameters())), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * float(b.detach().abs().max()))


@fast
def test_transforms_of_functions(calls):
    x, W = torch.randn(5, 40, 64), torch.randn(128, 64)
    torch.testing.assert_close(torch.func.vmap(lambda row: product(row, W))(x), F.linear(x, W), rtol=1e-4, atol=1e-4)
    value, pull = torch.func.vjp(lambda V: product(x, V), W)
    torch.testing.assert_close(pull(torch.ones_like(value))[0], x.sum((0, 1)).expand(128, 64), rtol=1e-4, atol=1e-3)
    assert len(calls) >= 1


@fast
def test_what_is_left_to_the_blas(calls):
    x, W = torch.randn(64, 96), torch.randn(130, 96)
    assert torch.equal(product(x.double(), W.double()), F.linear(x.double(), W.double()))
    product(x[:15], W)  # too few rows
    product(x[:, :8].contiguous(), W[:, :8])  # too small
    with torch.autocast("cpu", torch.bfloat16):
        assert product(x, W).dtype == torch.bfloat16
    assert product(x.to("meta"), W.to("meta")).shape == (64, 130)
    assert calls == []
    product(x, W)
    assert calls == [((64, 96), (130, 96))]
    calls.clear()
    for rows in range(16, 1300, 7):
        product(torch.randn(rows, 96), W)
    assert len({*calls}) == 7 + 6 + 4  # few numbers of rows, since a kernel is made and kept for each
