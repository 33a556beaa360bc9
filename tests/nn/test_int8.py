"""int8 weights: the formula, its error, and rows that do not depend on their neighbours."""

import copy
import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import zellige
from testing import small
from zellige import Config, Net, Train
from zellige.base.errors import InputError
from zellige.cli import main
from zellige.data.tokenizer import Characters
from zellige.methods import build
from zellige.models import shipped
from zellige.models.model import Model
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


def test_all_linear_layers_are_rounded_but_those_of_time():
    """A U-Net with a time input; what it takes is counted as before."""
    method = zellige.load("mnist").method
    network, count = method.network, method.parameter_count
    quantize(network)
    left = [name for name, part in network.named_modules() if isinstance(part, nn.Linear)]
    assert left
    assert all(name.startswith("time.") or isinstance(network.get_submodule(name), Modulation) for name in left)
    assert method.parameter_count == count > sum(p.numel() for p in method.parameters())
    network.features(torch.zeros(1, 784, dtype=torch.long), torch.ones(1))


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


# ---------------------------------------------------------------------------------- a folder
@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a model of blocks that `export` rounded."""
    folder = tmp_path_factory.mktemp("int8") / "stories"
    assert main(["export", "stories", "--precision", "int8", "--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("by_onednn", WAYS)
def test_a_saved_model_is_the_same(by_onednn, saved, monkeypatch):
    """Bit for bit, on a processor with the layout of oneDNN and on one without; its codes are plain."""
    choose(by_onednn, monkeypatch)
    method, loaded = zellige.load("stories", precision="int8").method, zellige.load(saved).method
    assert loaded.precision == "int8"
    assert loaded.parameter_count == method.parameter_count == zellige.load("stories").method.parameter_count
    x = torch.randint(0, 100, (3, 48), generator=torch.Generator().manual_seed(0))
    assert torch.equal(loaded.logits(loaded.hidden(x, None)), method.logits(method.hidden(x, None)))
    codes, _ = rounded(zellige.load("stories").method.network.head.weight.detach())
    assert torch.equal(load_file(saved / "model.safetensors")["network.head.codes"], codes)


def test_its_files(saved, tmp_path):
    """Checksums, a card that says int8, and no results of the model before; saved again, the same tensors."""
    (tmp_path / "run").mkdir()
    shutil.copytree(shipped.FOLDER / "stories", tmp_path / "run", dirs_exist_ok=True)
    result = {"result": {"value": 3.0, "about": {"data": "of-float32"}}, "interval": {"low": 2.9, "high": 3.1}}
    for network in ("float32", "int8"):
        entries = result | {"unit": "nats/token", "protocol": {"network": network}}
        (tmp_path / "run" / f"evaluate-{network}.json").write_text(json.dumps(entries))
    zellige.load(tmp_path / "run", precision="int8", checksums=False).export(tmp_path / "out")
    assert [file.name for file in sorted((tmp_path / "out").glob("evaluate-*"))] == ["evaluate-int8.json"]
    assert "5,791,489 parameters, int8" in (tmp_path / "out" / "README.md").read_text()
    again = zellige.load(saved)
    again.save(tmp_path / "again")
    before, after = (load_file(folder / "model.safetensors") for folder in (saved, tmp_path / "again"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    raw = bytearray((saved / "model.safetensors").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "again" / "model.safetensors").write_bytes(raw)
    with pytest.raises(InputError, match="has changed since it was written"):
        zellige.load(tmp_path / "again")


def test_a_wide_network_takes_a_quarter(tmp_path):
    sizes = []
    for precision in ("float32", "int8"):
        method = build("mdlm", 27, Net(layers=2, hidden=256, heads=4, length=8)).compute_in(precision)
        model = Model(
            method, Characters("abcdefghijklmnopqrstuvwxyz "), Config("mdlm", method.config, net=method.network.net)
        )
        model.save(tmp_path / precision)
        sizes.append((tmp_path / precision / "model.safetensors").stat().st_size)
        assert zellige.load(tmp_path / precision).method.precision == precision
    assert 0.25 < sizes[1] / sizes[0] < 0.27


def test_the_verbs_take_it(saved, capsys):
    model = zellige.load("stories", precision="int8")
    assert zellige.sample(saved, length=16, steps=2, seed=3) == zellige.sample(model, length=16, steps=2, seed=3)
    text = "Tom saw a ___"
    assert zellige.infill(saved, text, seed=3) == zellige.infill(model, text, seed=3)
    assert main(["sample", str(saved), "--length", "8", "--steps", "1"]) == 0
    assert "int8 weights: another model" in "".join(capsys.readouterr())
    values = [zellige.evaluate(of, ["Tom had a cat."] * 3, draws=1) for of in (saved, model)]
    assert values[0].value == values[1].value
    assert values[0].protocol["network"] == "int8"


REFUSED = {
    "the format bd3lm has no weights rounded to int8; use `to` hub, Zellige's own": lambda folder: zellige.load(
        folder
    ).export(folder.parent / "no", "bd3lm"),
    "`precision` is bfloat16, and the weights are rounded to int8; leave it out": lambda folder: zellige.load(
        folder, precision="bfloat16"
    ),
    "`precision` int8 is not compiled; leave `compile` out": lambda folder: zellige.load(folder, compile=True),
    "weights rounded to int8 are not trained; use the model they were rounded from": lambda folder: zellige.load(
        folder
    ).method.train(),
    "has weights rounded to int8, which are not trained; take the model it was made of": lambda folder: zellige.train(
        "bd3lm", data=["a cat"] * 99, train=Train(start=str(folder)), run=folder.parent / "run"
    ),
    "int8, which are not trained; take the model it was made of": lambda folder: zellige.Tune(
        data=["a cat"] * 99, folder=folder.parent / "tuned"
    ).run(folder),
    "weights rounded to int8 give a head no gradients; use the model they were rounded from": lambda _: (
        zellige.TrainSpeculative(data=["a cat"] * 99).run(zellige.load("stories-mdlm", precision="int8"))
    ),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_a_rounded_model_is_not_for(sentence, saved):
    with pytest.raises(InputError, match=re.escape(sentence) + "$"):
        REFUSED[sentence](saved)
    assert sorted(path.name for path in saved.parent.iterdir()) == ["stories"]


def test_what_int8_is_not_for():
    method = small.make("mdlm").float()
    with pytest.raises(InputError, match=r"`precision` int8 is not compiled; leave `compile` out$"):
        method.compute_in("int8", compile=True)
    with pytest.raises(InputError, match=r"`precision` int8 is for a CPU, and the model is on meta; use bfloat16$"):
        method.to("meta").compute_in("int8")
    rounded_method = small.make("mdlm").float().compute_in("int8").to("meta")
    with pytest.raises(InputError, match=r"`precision` int8 is for a CPU, and the model is on meta; use `device` cpu$"):
        rounded_method.compute_in("float32")
