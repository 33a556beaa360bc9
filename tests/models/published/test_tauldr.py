"""tauLDR's network of CIFAR-10, random weights in its layout: read, equal to plain code of the published forward, and back."""

import json
import math

import pytest
import torch
import torch.nn.functional as F

import zellige
from zellige.base.errors import InputError
from zellige.models.checkpoint.read import load_tensors
from zellige.nn.logistic import within
from zellige.plugins.published import tauldr

SMALL = {
    "data": {"S": 16, "shape": [3, 8, 12]},
    "loss": {"nll_weight": 0.002, "min_time": 0.02, "one_forward_pass": False},
    "model": tauldr.USUAL["model"] | {"ch": 8, "num_res_blocks": 1, "num_scales": 3, "ch_mult": [1, 2, 3], "time_embed_dim": 8,
                                      "data_min_max": [0, 15], "rate_sigma": 1.0, "Q_sigma": 32.0, "time_base": 2.0,
                                      "time_exponential": 50.0, "dropout": 0.2},
}  # fmt: skip


def weights(config, seed=0):
    """A state of the published network, in the order of its parameters: every name and shape, numbers at random."""
    generator, model, made = torch.Generator().manual_seed(seed), config["model"], {}
    ch, colours = model["ch"], model["input_channels"]

    def fill(name, *shape):
        scale = math.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.3
        made[name] = scale * torch.randn(shape, generator=generator) + (
            "groupnorm" in name.lower() and "weight" in name
        )

    def layer(name, *shape):
        fill(f"{name}.weight", *shape)
        fill(f"{name}.bias", shape[0])

    def nin(name, inputs, outputs):
        fill(f"{name}.W", inputs, outputs)
        fill(f"{name}.b", outputs)

    def block(name, inputs, outputs):
        layer(f"{name}.groupnorm0", inputs)
        layer(f"{name}.conv0", outputs, inputs, 3, 3)
        layer(f"{name}.dense0", outputs, 4 * ch)
        layer(f"{name}.groupnorm1", outputs)
        layer(f"{name}.conv1", outputs, outputs, 3, 3)
        if inputs != outputs:
            nin(f"{name}.nin", inputs, outputs)

    def attention(name, width):
        layer(f"{name}.GroupNorm_0", width)
        for i in range(4):
            nin(f"{name}.NIN_{i}", width, width)

    layer("temb_modules.0", 4 * ch, ch)
    layer("temb_modules.1", 4 * ch, 4 * ch)
    layer("input_conv", ch, colours, 3, 3)
    skips, width, n = [ch], ch, 0
    for scale, factor in enumerate(model["ch_mult"]):
        for _ in range(model["num_res_blocks"]):
            block(f"downsampling_modules.{n}", width, ch * factor)
            width, n = ch * factor, n + 1
            skips.append(width)
            if scale == model["scale_count_to_put_attn"]:
                attention(f"downsampling_modules.{n}", width)
                n += 1
        if scale < len(model["ch_mult"]) - 1:
            layer(f"downsampling_modules.{n}.conv", width, width, 3, 3)
            skips.append(width)
            n += 1
    block("middle_modules.0", width, width)
    attention("middle_modules.1", width)
    block("middle_modules.2", width, width)
    n = 0
    for scale, factor in reversed([*enumerate(model["ch_mult"])]):
        for _ in range(model["num_res_blocks"] + 1):
            block(f"upsampling_modules.{n}", width + skips.pop(), ch * factor)
            width, n = ch * factor, n + 1
            if scale == model["scale_count_to_put_attn"]:
                attention(f"upsampling_modules.{n}", width)
                n += 1
        if scale:
            layer(f"upsampling_modules.{n}.conv", width, width, 3, 3)
            n += 1
    layer("output_modules.0", width)
    layer("output_modules.1", 2 * colours, width, 3, 3)
    return made


def forward(w, config, x, t):
    """Logits (B, C H W, S) of states x (B, C, H, W) at times t (B,) in [0, 1], as the paper's code has them."""
    w, model, S = {name: tensor.double() for name, tensor in w.items()}, config["model"], config["data"]["S"]
    root = math.sqrt(2) if model["skip_rescale"] else 1.0

    def norm(name, h):
        return F.group_norm(h, min(h.shape[1] // 4, 32), w[f"{name}.weight"], w[f"{name}.bias"], 1e-6)

    def nin(name, h):
        return torch.einsum("bi...,io->bo...", h, w[f"{name}.W"]) + w[f"{name}.b"][:, None, None]

    def conv(name, h, **how):
        return F.conv2d(h, w[f"{name}.weight"], w[f"{name}.bias"], **({"padding": 1} | how))

    def linear(name, h):
        return h @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def block(name, h):
        y = conv(f"{name}.conv0", F.silu(norm(f"{name}.groupnorm0", h)))
        y = y + linear(f"{name}.dense0", F.silu(told))[:, :, None, None]
        y = conv(f"{name}.conv1", F.silu(norm(f"{name}.groupnorm1", y)))
        return ((nin(f"{name}.nin", h) if f"{name}.nin.W" in w else h) + y) / root

    def attention(name, h):
        n = norm(f"{name}.GroupNorm_0", h)
        q, k, v = (nin(f"{name}.NIN_{i}", n).flatten(2) for i in range(3))
        law = torch.softmax(q.mT @ k / h.shape[1] ** 0.5, -1)  # (B, places that ask, places asked)
        return (h + nin(f"{name}.NIN_3", (v @ law.mT).view_as(h))) / root

    half = model["time_embed_dim"] // 2
    angles = 1000 * t.double()[:, None] * 1e4 ** (-torch.arange(half).double() / (half - 1))
    told = linear("temb_modules.0", torch.cat((angles.sin(), angles.cos()), 1))
    told = linear("temb_modules.1", F.silu(told))
    low, high = model["data_min_max"]
    centred = 2 * (x.double() - low) / (high - low) - 1
    h = conv("input_conv", centred)
    skips, n = [h], 0
    last = len(model["ch_mult"]) - 1
    for scale in range(last + 1):
        for _ in range(model["num_res_blocks"]):
            h, n = block(f"downsampling_modules.{n}", h), n + 1
            if scale == model["scale_count_to_put_attn"]:
                h, n = attention(f"downsampling_modules.{n}", h), n + 1
            skips.append(h)
        if scale < last:
            h, n = conv(f"downsampling_modules.{n}.conv", F.pad(h, (0, 1, 0, 1)), stride=2, padding=0), n + 1
            skips.append(h)
    h = block("middle_modules.2", attention("middle_modules.1", block("middle_modules.0", h)))
    n = 0
    for scale in range(last, -1, -1):
        for _ in range(model["num_res_blocks"] + 1):
            h, n = block(f"upsampling_modules.{n}", torch.cat((h, skips.pop()), 1)), n + 1
            if scale == model["scale_count_to_put_attn"]:
                h, n = attention(f"upsampling_modules.{n}", h), n + 1
        if scale:
            doubled = h.repeat_interleave(2, 2).repeat_interleave(2, 3)
            h, n = conv(f"upsampling_modules.{n}.conv", doubled), n + 1
    shift, log_scale = conv("output_modules.1", F.silu(norm("output_modules.0", h))).chunk(2, 1)
    mean, inverse = torch.tanh(centred + shift)[..., None], torch.exp(2 - log_scale)[..., None]
    edges = torch.linspace(-1, 1, S + 1).double()
    right, left = (F.logsigmoid((edge - mean) * inverse) for edge in (edges[1:], edges[:-1]))
    return (right + torch.log1p(1e-6 - (left - right).exp())).reshape(len(x), -1, S)


def agree(model, w, config, t):
    colours, height, width = config["data"]["shape"]
    S = config["data"]["S"]
    x = torch.randint(S, (len(t), colours, height, width), generator=torch.Generator().manual_seed(3))
    rows = x.permute(0, 2, 3, 1).reshape(len(t), -1)  # ours: line by line, a pixel's colours together
    method = model.method.double()
    with torch.no_grad():
        outputs = method.network(rows, method.input_times(rows, torch.as_tensor(t), None))
        ours = method._clean(outputs, rows).view(len(t), height, width, colours, S).permute(0, 3, 1, 2, 4).flatten(1, 3)
    theirs = forward(w, config, x, torch.as_tensor(t))
    torch.testing.assert_close(ours.log_softmax(-1), theirs.log_softmax(-1), rtol=1e-5, atol=1e-5)
    assert float(theirs.log_softmax(-1).std()) > 0.1


def checkpoint(file, w, averaged=None, config=None):
    """What the published code saves."""
    state = {f"net.{name}": tensor for name, tensor in w.items()}
    if averaged is not None:
        state |= {"ema_decay": 0.9999, "ema_num_updates": 7, "ema_shadow_params": [*averaged.values()]}
    file.parent.mkdir(exist_ok=True, parents=True)
    torch.save({"model": state, "optimizer": {"state": {}, "param_groups": []}, "n_iter": 1999999}, file)
    if config:
        (file.parent / "config.json").write_text(json.dumps(config))
    return file


@pytest.mark.long
def test_the_network_of_cifar10_agrees_with_the_published_forward_pass(tmp_path):
    """No config.json: the published configuration. 35.7 million weights of one file, all of them used."""
    w = weights(tauldr.USUAL)
    assert sum(tensor.numel() for tensor in w.values()) == 35_749_766
    model = zellige.load(checkpoint(tmp_path / "ckpt_0001999999.pt", w), system="tauldr")
    assert (model.config.method, model.config.data.name, model.config.net.rescale) == ("tauldr", "cifar10", True)
    options = model.config.options
    assert (options.base, options.growth, options.rate_sigma, options.target_sigma) == (3.0, 100.0, 6.0, 512.0)
    assert model.about["step"] == 1999999
    agree(model, w, tauldr.USUAL, [0.37])


@pytest.mark.parametrize("attended", [0, 1, 2])
@pytest.mark.parametrize("rescale", [True, False])
def test_other_sizes_agree_go_back_and_can_be_saved(tmp_path, attended, rescale):
    """The averaged weights are taken; export gives them under the published names, bit for bit."""
    config = {**SMALL, "model": SMALL["model"] | {"scale_count_to_put_attn": attended, "skip_rescale": rescale}}
    config["loss"] = SMALL["loss"] | {"one_forward_pass": rescale}
    raw, averaged = weights(config), weights(config, 1)
    model = zellige.load(checkpoint(tmp_path / "a" / "ckpt.pt", raw, averaged, config))
    options = model.config.options
    assert (options.base, options.growth, options.rate_sigma, options.target_sigma) == (2.0, 50.0, 1.0, 32.0)
    assert (options.auxiliary, options.min_time, model.config.net.dropout) == (0.002, 0.02, 0.2)
    assert options.objective == ("one-pass-biased" if rescale else "two-pass")
    model.export(tmp_path / "back")
    back, _ = load_tensors(tmp_path / "back" / "model.safetensors")
    assert {name: tuple(t.shape) for name, t in back.items()} == {
        f"net.{n}": tuple(t.shape) for n, t in averaged.items()
    }
    assert all(torch.equal(back[f"net.{name}"], tensor) for name, tensor in averaged.items())
    assert json.loads((tmp_path / "back" / "config.json").read_text()) == config
    model.save(tmp_path / "own")
    agree(zellige.load(tmp_path / "own"), averaged, config, [0.02, 0.8])
    agree(model, averaged, config, [0.02, 0.8])


def test_the_bins_are_finite_far_from_the_mean():
    """In float32, of scales from a thousandth of a bin to a hundred times the range: logits and their gradients."""
    outputs = torch.cartesian_prod(torch.tensor([-30.0, -1.0, 0.0, 3.0]), torch.linspace(-7, 9, 9)).requires_grad_()
    logits = within(outputs, torch.arange(len(outputs)) * 7 % 256, 256)
    assert logits.isfinite().all()
    logits.log_softmax(-1)[:, 3].sum().backward()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()
    exact = within(outputs.detach().double(), torch.arange(len(outputs)) * 7 % 256, 256).softmax(-1)
    torch.testing.assert_close(logits.detach().softmax(-1).double(), exact, rtol=1e-2, atol=1e-4)


def test_what_does_not_fit_is_named(tmp_path):
    w = weights(SMALL)
    few = {name: tensor for name, tensor in w.items() if name != "middle_modules.1.NIN_2.W"}
    for place, tensors, config, message in (
        ("a", few, SMALL, r"1 key missing \(middle_modules.1.NIN_2.W\); the format is tauldr"),
        (
            "b",
            w | {"more.weight": torch.zeros(2)},
            SMALL,
            r"1 unexpected \(more.weight\); the format is tauldr, of a U-Net of 8, 16",
        ),
        (
            "c",
            w,
            {**SMALL, "model": SMALL["model"] | {"fix_logistic": True}},
            "model.fix_logistic is True; only False is known",
        ),
    ):
        with pytest.raises(InputError, match=message):
            zellige.load(checkpoint(tmp_path / place / "ckpt.pt", tensors, config=config))
