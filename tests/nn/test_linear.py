"""Products by oneDNN are those of `torch.nn.functional.linear`, and only large ones on a CPU are computed so; packed
weights are those of their layer."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from zellige.nn import linear
from zellige.nn.linear import Linear, Packs, product

fast = pytest.mark.skipif(not linear.able, reason="this CPU has no AVX-512, or this PyTorch no oneDNN")


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


# ---------------------------------------------------------------------------------- packed weights
@pytest.fixture
def layer():
    torch.manual_seed(0)
    return Linear(512, 700).eval()


def packed(layer, x):
    """The output of a layer without gradients, which came from packed weights."""
    with torch.no_grad():
        y = layer(x)
    assert layer._packed is not None
    return y


def plain(layer, x):
    return F.linear(x, layer.weight.detach(), None if layer.bias is None else layer.bias.detach())


@fast
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(512,), (1, 512), (2, 3, 512), (13, 512), (1, 37, 512), (256, 512)])
def test_packed_weights_give_the_plain_product(shape, bias):
    torch.manual_seed(0)
    layer, x = Linear(512, 700, bias=bias).eval(), torch.randn(shape)
    torch.testing.assert_close(packed(layer, x), plain(layer, x), rtol=1e-5, atol=1e-5)


@fast
def test_a_row_is_the_same_alone_and_among_others_but_for_rounding(layer):
    x = torch.randn(3, 11, 512)
    together = packed(layer, x)
    for row in range(11):
        torch.testing.assert_close(packed(layer, x[1, row]), together[1, row], rtol=1e-5, atol=1e-5)


@fast
def test_a_product_without_contiguous_inputs(layer):
    x = torch.randn(512, 9)
    torch.testing.assert_close(packed(layer, x.T), plain(layer, x.T), rtol=1e-5, atol=1e-5)


def in_place(layer):
    layer.weight.mul_(2)


def uncounted(layer):
    layer.weight.data.mul_(2)


def other_data(layer):
    layer.weight.data = layer.weight.data * 2


def other_parameter(layer):
    layer.weight = nn.Parameter(layer.weight * 2)


def loaded(layer):
    layer.load_state_dict({"weight": layer.weight * 2, "bias": layer.bias})


def assigned(layer):
    layer.load_state_dict({"weight": layer.weight * 2, "bias": layer.bias}, assign=True)


@fast
@pytest.mark.parametrize("change", [in_place, uncounted, other_data, other_parameter, loaded, assigned])
def test_changed_weights_are_packed_again(layer, change):
    x = torch.randn(5, 512)
    before = packed(layer, x)
    with torch.no_grad():
        change(layer)
    after = packed(layer, x)
    assert (after - before).abs().max() > 0.1
    torch.testing.assert_close(after, plain(layer, x), rtol=1e-5, atol=1e-5)


@fast
def test_a_packed_copy_is_given_up_and_never_kept_elsewhere(layer):
    x = torch.randn(5, 512)
    y = packed(layer, x)
    assert [*layer.state_dict()] == ["weight", "bias"]
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other._packed is None
        assert torch.equal(packed(other, x), y)
    for change in (lambda: layer.train(), lambda: layer.to(torch.float64).float(), lambda: layer.to("meta")):
        packed(layer.eval(), x)
        change()
        assert layer._packed is None


@fast
def test_a_table_shared_by_layers_is_read_as_it_is():
    class Head(Packs):
        def __init__(self, table):
            super().__init__()
            self.table = table

        def forward(self, x):
            return self.product(x, self.table.weight[:600])

    table, x = nn.Embedding(700, 512), torch.randn(3, 512)
    head = Head(table).eval()
    first = packed(head, x)
    copy_ = head._packed
    packed(head, x)
    assert head._packed is copy_
    with torch.no_grad():
        table.weight.mul_(-1)
    torch.testing.assert_close(packed(head, x), -first)


@pytest.mark.skipif(torch.bfloat16 not in linear._packs, reason="this CPU does not compute in bfloat16")
def test_packed_bfloat16_is_that_of_autocast():
    torch.manual_seed(0)
    layer, x = Linear(1024, 700).eval().bfloat16(), torch.randn(5, 1024)
    with torch.autocast("cpu", torch.bfloat16):
        y = packed(layer, x)
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(y, plain(layer, x), rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(packed(layer, x.bfloat16()), y)


@fast
def test_what_is_not_packed(layer):
    x = torch.randn(5, 512)
    layer(x)  # with gradients
    with torch.no_grad():
        layer.train()(x)
        layer.eval()(torch.randn(257, 512))  # many rows
        assert layer(x[:0]).shape == (0, 700)
        with torch.autocast("cpu", torch.bfloat16):
            layer(x)
        assert layer._packed is None
        small = Linear(256, 700).eval()
        small(x[:, :256])
        assert small._packed is None
        small(torch.randn(16, 256))  # enough multiplications
        assert small._packed is not None
        double = Linear(512, 700).eval().double()
        assert double(x.double()).dtype == torch.float64
        assert double._packed is None
