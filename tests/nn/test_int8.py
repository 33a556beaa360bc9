"""int8 weights: the formula, its error, and rows that do not depend on their neighbours."""

import copy

import pytest
import torch
from torch import nn

import zellige
from testing import small
from zellige.base.errors import InputError
from zellige.nn import int8
from zellige.nn.embedding import Modulation
from zellige.nn.int8 import Int8Linear, quantize, rounded

WAYS = [False, *([True] if int8._able else [])]


def choose(by_onednn, monkeypatch):
    """Let oneDNN multiply the codes of all layers, or of none."""
    monkeypatch.setattr(int8, "_able", by_onednn)
    monkeypatch.setattr(int8, "PACKED", 0)


@pytest.mark.parametrize("by_onednn", WAYS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(9,), (1, 9), (5, 9), (2, 3, 9), (0, 9)])
def test_the_formula_in_whole_numbers(shape, bias, by_onednn, monkeypatch):
    choose(by_onednn, monkeypatch)
    torch.manual_seed(1)
    linear = nn.Linear(9, 4, bias=bias)
    layer, x = Int8Linear(linear), 3 * torch.randn(shape)
    if x.numel() > 20:
        x.view(-1, 9)[1] = 0  # a row without a largest entry
    W, w = (t.double() for t in rounded(linear.weight.detach()))
    expected = torch.zeros(x.reshape(-1, 9).shape[0], 4, dtype=torch.float64)
    for m, row in enumerate(x.reshape(-1, 9)):
        s = float(row.abs().max()) / 127
        q = torch.tensor([round(float(v) / s) if s else 0 for v in row], dtype=torch.float64)
        for n in range(4):
            expected[m, n] = s * w[n, 0] * (q * W[n]).sum() + (linear.bias[n] if bias else 0)
    assert W.abs().amax(1).tolist() == [127] * 4
    torch.testing.assert_close(layer(x), expected.view(*shape[:-1], 4).float(), rtol=1e-5, atol=1e-6)


def test_each_weight_and_input_is_off_by_half_a_code_at_most():
    torch.manual_seed(0)
    x = torch.randn(50, 33)
    codes, scale = rounded(x)
    assert float(((x - codes * scale) / scale).abs().max()) <= 0.5 + 1e-4
    assert codes.dtype == torch.int8


@pytest.mark.parametrize("by_onednn", WAYS)
def test_a_row_does_not_depend_on_its_neighbours(by_onednn, monkeypatch):
    choose(by_onednn, monkeypatch)
    torch.manual_seed(0)
    layer = Int8Linear(nn.Linear(96, 200))
    x = torch.randn(7, 96) * torch.logspace(-3, 3, 7)[:, None]
    assert torch.equal(layer(x)[2], layer(x[2]))
    assert torch.equal(layer(x)[2:3], layer(x[2:3]))


@pytest.mark.parametrize("by_onednn", WAYS)
def test_sums_of_the_largest_codes_are_exact(by_onednn, monkeypatch):
    choose(by_onednn, monkeypatch)
    torch.manual_seed(0)
    signs, x = torch.randint(2, (50, 4096)) * 2.0 - 1, torch.randint(2, (20, 4096)) * 2.0 - 1
    linear = nn.Linear(4096, 50, bias=False)
    linear.weight.data = signs
    expected = (127**2 * (x @ signs.T).long()).float() / 127**2
    torch.testing.assert_close(Int8Linear(linear)(x), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("by_onednn", WAYS)
def test_a_copy_and_the_state_have_the_codes(by_onednn, monkeypatch):
    choose(by_onednn, monkeypatch)
    torch.manual_seed(0)
    linear, x = nn.Linear(33, 20), torch.randn(5, 33)
    layer = Int8Linear(linear)
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert torch.equal(layer.state_dict()["codes"], rounded(linear.weight.detach())[0])
    assert [*layer.state_dict()] == ["scale", "bias", "codes"]


def test_all_linear_layers_are_rounded_but_the_modulations():
    model = zellige.load("mnist")
    weights = sum(p.numel() for p in model.method.network.parameters())
    quantize(model.method.network)
    kinds = [type(part) for part in model.method.network.modules()]
    assert nn.Linear not in kinds
    assert Int8Linear in kinds
    assert not any(
        isinstance(part, nn.Linear) and not isinstance(part, Modulation) for part in model.method.network.modules()
    )
    assert sum(p.numel() for p in model.method.network.parameters()) < weights


@pytest.mark.parametrize("name", ["mdlm", "bd3lm", "ar"])
def test_a_text_is_the_same_alone_and_in_a_batch_of_seven(name):
    model = zellige.load("stories" if name == "bd3lm" else "stories-mdlm", precision="int8") if name != "ar" else None
    if model is None:
        method = small.make("ar", hidden=32).float().compute_in("int8")
        x = torch.randint(0, 3, (7, 8), generator=torch.Generator().manual_seed(0))
        h = method.hidden(x, None)
        assert torch.equal(h[3:4], method.hidden(x[3:4], None))
        return
    seven = zellige.sample(model, count=7, steps=4, length=24, seed=5)
    assert zellige.sample(model, count=1, steps=4, length=24, seed=5)[0] == seven[0]
    assert model.method.precision == "int8"


@pytest.mark.parametrize("way", ["save", "export"])
def test_rounded_weights_are_not_saved(way, tmp_path):
    """They could not be loaded; and what stands in the folder stays."""
    model = zellige.load("molecules")
    model.save(tmp_path / "it")
    before = (tmp_path / "it" / "model.safetensors").read_bytes()
    model.method.compute_in("int8")
    with pytest.raises(InputError, match="the weights are rounded to int8, which is not saved; load the model without"):
        getattr(model, way)(tmp_path / "it")
    assert (tmp_path / "it" / "model.safetensors").read_bytes() == before
    assert zellige.load(tmp_path / "it").method.precision == "float32"


def test_what_int8_is_not_for(monkeypatch):
    method = small.make("mdlm").float()
    with pytest.raises(InputError, match=r"`precision` int8 is not compiled; leave `compile` out$"):
        method.compute_in("int8", compile=True)
    with pytest.raises(InputError, match=r"`precision` int8 is for a CPU, and the model is on meta; use bfloat16$"):
        method.to("meta").compute_in("int8")
