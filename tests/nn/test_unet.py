"""The U-Net: equal to plain arithmetic on its weights, of the published sizes, and a network like any other to a method."""

import dataclasses
import math
from typing import Any

import pytest
import torch

import zellige
from zellige import Data, Train, exact
from zellige.base.errors import InputError
from zellige.cli import main
from zellige.core.batch import Batch
from zellige.methods import D3PM, MD4, METHODS, build, diffusion
from zellige.models.config import Config, from_json, to_json
from zellige.nn import DiT, Net, UNet
from zellige.nn.chunks import each_position
from zellige.nn.cross_entropy import cross_entropy
from zellige.nn.network import unfilled
from zellige.nn.unet import doubled

SMALL = Net(
    length=70, grid=(5, 7, 2), kind="unet", channels=8, multipliers=(1, 2), blocks=1, attention=(4,), condition=6
)

UVIT = Net(
    length=70,
    grid=(5, 7, 2),
    kind="u-vit",
    layers=2,
    hidden=16,
    heads=2,
    channels=8,
    blocks=1,
    attention=(0,),
    condition=6,
)


def of(grid, **more):
    """A small net for images of this shape."""
    return dataclasses.replace(SMALL, grid=grid, length=math.prod(grid), **more)


def busy(net):
    """The same network with every parameter moved: so that tests see those that start at zero."""
    with torch.no_grad():
        for p in net.parameters():
            p += 0.2 * torch.randn_like(p)
    return net.double().eval()


def rows(net, states, count=2):
    return torch.randint(states, (count, net.length), generator=torch.Generator().manual_seed(1))


# ---------------------------------------------------------------------------------- plain arithmetic
def norm(x, weight, bias, groups):
    """Group norm of (D, H, W)."""
    out = torch.empty_like(x)
    for part in torch.arange(len(x)).chunk(groups):
        out[part] = (x[part] - x[part].mean()) / (x[part].var(unbiased=False) + 1e-6).sqrt()
    return out * weight[:, None, None] + bias[:, None, None]


def convolve(x, weight, bias, stride=1, before=None):
    """3 x 3 or 1 x 1, of (D, H, W), zeros beyond: pixel by pixel. `before`: lines of zeros above and left where not one."""
    reach, (_, height, width) = weight.shape[-1] // 2, x.shape
    top, left = (reach, reach) if before is None else before
    padded = torch.zeros(len(x), height + 2 * reach + 1, width + 2 * reach + 1, dtype=x.dtype)
    padded[:, top : top + height, left : left + width] = x
    out = [
        [(weight * padded[:, i : i + 2 * reach + 1, j : j + 2 * reach + 1]).sum((1, 2, 3)) + bias
         for j in range(0, width, stride)] for i in range(0, height, stride)
    ]  # fmt: skip
    return torch.stack([torch.stack(line, -1) for line in out], 1)


def silu(x):
    return x / (1 + (-x).exp())


class Plain:
    """The network on one image, from the state_dict of a UNet of two resolutions with one block each, attention in the
    second."""

    def __init__(self, network, channels=8):
        self.w, self.channels, self.net = network.state_dict(), channels, network.net

    def norm(self, name, x):
        groups = len(x) // 4 if self.net.published else {8: 2, 16: 4, 24: 2, 32: 8}[len(x)]
        return norm(x, self.w[f"{name}.weight"], self.w[f"{name}.bias"], groups)

    def conv(self, name, x, stride=1):
        """Halved, an even side begins at its first pixel, as "SAME" has it in JAX; of before, at a line of zeros."""
        before = tuple(side % 2 for side in x.shape[1:]) if stride == 2 and self.net.published else None
        return convolve(x, self.w[f"{name}.weight"], self.w[f"{name}.bias"], stride, before)

    def sum(self, x, branch):
        return (x + branch) / (2**0.5 if self.net.rescale else 1)

    def attention(self, name, x):
        pixels = self.norm(f"{name}.norm", x).flatten(1).T
        linear = lambda layer, y: y @ self.w[f"{name}.{layer}.weight"].T + self.w[f"{name}.{layer}.bias"]  # noqa: E731
        q, k, v = linear("qkv", pixels).split(len(x), -1)
        distribution = (q @ k.T / len(x) ** 0.5).exp()
        return self.sum(x, linear("out", distribution / distribution.sum(-1, keepdim=True) @ v).T.reshape(x.shape))

    def block(self, name, x, c, attention=False):
        h = self.conv(f"{name}.conv1", silu(self.norm(f"{name}.norm1", x)))
        if c is not None:
            bias = self.w[f"{name}.shift.bias"] if self.net.published else 0.0
            h = h + (self.w[f"{name}.shift.weight"] @ c + bias)[:, None, None]
        h = self.conv(f"{name}.conv2", silu(self.norm(f"{name}.norm2", h)))
        x = self.sum(h, self.conv(f"{name}.shortcut", x) if f"{name}.shortcut.weight" in self.w else x)
        return self.attention(f"{name}.attention", x) if attention else x

    def time(self, t):
        half = self.channels // 2
        angle = [
            t * 1e4 ** (-i / (half - self.net.published)) for i in range(half)
        ]  # the last of the published ones is t / 1e4
        waves = (math.sin, math.cos) if self.net.published else (math.cos, math.sin)
        c = torch.tensor([wave(a) for wave in waves for a in angle], dtype=torch.float64).float().double()
        for layer in (0, 2):
            c = silu(self.w[f"time.mlp.{layer}.weight"] @ c + self.w[f"time.mlp.{layer}.bias"])
        return c

    def logits(self, x, shape, t=None, states=0):
        height, width, colours = shape
        values = (
            self.w["embedding.weight"][x]
            if "embedding.weight" in self.w
            else 2 * x[:, None].double() / (states - 1) - 1
        )
        image = torch.stack([torch.cat([*pixel]) for pixel in values.reshape(height * width, colours, -1)], -1)
        c = None if t is None else self.time(t)
        first = self.conv("input", image.reshape(-1, height, width))
        second = self.block("down.0", first, c)
        third = self.conv("down.1", second, stride=2)
        fourth = self.block("down.2", third, c, attention=True)
        h = self.block("middle.1", self.block("middle.0", fourth, c, attention=True), c)
        h = self.block("up.0", torch.cat((h, fourth)), c, attention=True)
        h = self.block("up.1", torch.cat((h, third)), c, attention=True)
        large = torch.stack([h[:, i // 2, j // 2] for i in range(height) for j in range(width)], -1)
        h = self.conv("up.2", large.reshape(-1, height, width))
        h = self.block("up.3", torch.cat((h, second)), c)
        h = self.block("up.4", torch.cat((h, first)), c)
        h = self.conv("output", silu(self.norm("norm", h)))
        each = [h[d * self.channels : (d + 1) * self.channels, i, j]
                for i in range(height) for j in range(width) for d in range(colours)]  # fmt: skip
        return torch.stack(each) @ self.w["head.weight"].T + self.w["head.bias"]


@pytest.mark.parametrize("grid", [(5, 7, 2), (6, 4)])
@pytest.mark.parametrize("levels", [False, True])
@pytest.mark.parametrize("time", [False, True])
@pytest.mark.parametrize("more", [{}, {"rescale": True}, {"published": False}], ids=str)
def test_the_network_is_plain_arithmetic_on_its_weights(grid, levels, time, more):
    torch.manual_seed(0)
    net = of(grid, attention=((max(grid[:2]) + 1) // 2,), **more)
    network, x = busy(UNet(net, 5, time=time, levels=levels)), rows(net, 5)
    t, tolerance = (torch.tensor([0.3, 7.0], dtype=torch.float64), 1e-6) if time else (None, 1e-10)  # sines in float32
    out = network(x, t)
    for i in range(2):
        expected = Plain(network).logits(x[i], (*grid, 1)[:3], None if t is None else float(t[i]), 5)
        torch.testing.assert_close(out[i], expected, rtol=tolerance, atol=tolerance)


def gelu(x):
    return x * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)).tanh()) / 2


@pytest.mark.parametrize("told", [True, False])
def test_a_transformer_in_the_middle_is_plain_arithmetic_on_patches(told):
    """MD4's: a patch a position, odd sides filled with zeros; norms with nothing learnt that are told, or else RMS norms."""
    torch.manual_seed(0)
    network: Any = busy(UNet(UVIT, 5, time=told))
    middle, x, c = network.middle[0], torch.randn(2, 8, 5, 7).double(), torch.randn(2, 6).double() if told else None
    w = middle.state_dict()
    image = torch.zeros(2, 8, 6, 8, dtype=torch.float64)
    image[:, :, :5, :7] = x
    each = [image[:, :, i : i + 2, j : j + 2].flatten(1) for i in range(0, 6, 2) for j in range(0, 8, 2)]
    h = torch.stack([patch @ w["patch.weight"].flatten(1).T + w["patch.bias"] for patch in each], 1) + w["places"]

    def normed(name, h, shift, scale):
        if c is None:
            return h / (h.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w[f"{name}.weight"]
        h = (h - h.mean(-1, keepdim=True)) / (h.var(-1, unbiased=False, keepdim=True) + 1e-6).sqrt()
        return h * (1 + scale) + shift

    def vectors(name, parts):
        if c is None:
            return [None, None, 1.0] * 2
        made = silu(c) @ w[f"{name}modulation.weight"].T + w[f"{name}modulation.bias"]
        return made[:, None].chunk(parts, -1)

    for i in range(2):
        shift1, scale1, gate1, shift2, scale2, gate2 = vectors(f"blocks.{i}.", 6)
        layer = lambda name, y, i=i: y @ w[f"blocks.{i}.{name}.weight"].T + w[f"blocks.{i}.{name}.bias"]  # noqa: E731
        q, k, v = layer("qkv", normed(f"blocks.{i}.norm1", h, shift1, scale1)).split(16, -1)
        heads = []
        for part in (slice(0, 8), slice(8, 16)):
            distribution = (q[..., part] @ k[..., part].mT / 8**0.5).softmax(-1)
            heads.append(distribution @ v[..., part])
        h = h + gate1 * (torch.cat(heads, -1) @ w[f"blocks.{i}.out.weight"].T)
        h = h + gate2 * layer("mlp.2", gelu(layer("mlp.0", normed(f"blocks.{i}.norm2", h, shift2, scale2))))
    shift, scale = vectors("", 2)[:2]
    h = normed("norm", h, shift, scale) @ w["pixels.weight"].T + w["pixels.bias"]
    out = middle(x, c)
    for i in range(5):
        for j in range(7):
            which = torch.arange(8) * 4 + i % 2 * 2 + j % 2  # channel by channel, the four pixels of the patch
            torch.testing.assert_close(out[:, :, i, j], h[:, i // 2 * 4 + j // 2, which], rtol=1e-10, atol=1e-10)
    if c is None:
        return
    adaptive: Any = network.down[0].norm1
    ones = torch.ones(8, dtype=torch.float64)
    vectors_ = c @ adaptive.modulation.weight.T + adaptive.modulation.bias  # told c itself: no SiLU before it
    for i in range(2):
        expected = norm(x[i], 1 + vectors_[i, 8:], 0 * ones, 2) + vectors_[i, :8, None, None]
        torch.testing.assert_close(adaptive(x, c)[i], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["unet", "flat-unet", "u-vit"])
def test_what_the_time_is_told_as(kind):
    """Frequencies 1 to 1e-4, both among them; MD4's network is told what the MLP gives, those of DDPM its SiLU."""
    torch.manual_seed(0)
    network = UNet(dataclasses.replace(SMALL if kind == "unet" else UVIT, **FLAT.get(kind, {})), 5, time=True).double()
    assert network.time is not None
    waves = network.time.sinusoid(torch.tensor([2.0]))[0]
    angles = 2 * torch.tensor([1, 1e-4 ** (1 / 3), 1e-4 ** (2 / 3), 1e-4])
    torch.testing.assert_close(waves, torch.cat((angles.sin(), angles.cos())))
    made = network.time.mlp(waves.double()[None])
    torch.testing.assert_close(network.time(torch.tensor([2.0])), silu(made) if kind == "unet" else made)


FLAT: dict[str, dict[str, Any]] = {
    "flat-unet": {"kind": "flat-unet", "layers": Net.layers, "hidden": Net.hidden, "heads": Net.heads}
}
RECORDED = {  # of weights 0.3 sin(1.7 n^1.01), by the code of before there was a choice of conventions
    "unet": [-0.533237722, 0.312937146, 0.124296541, -0.303894679, 0.111073664],
    "flat-unet": [-0.11637871, 0.283765542, -0.126335911, -0.3439087, 0.631368299],
    "u-vit": [0.757319383, -0.231314481, -0.62244898, 1.191624443, -1.081099805],
}


@pytest.mark.parametrize("kind", RECORDED)
def test_the_numbers_of_each_kind_are_those_recorded(kind):
    """Of a network by its config."""
    sizes: dict[str, Any] = {
        "unet": {"multipliers": [1, 2], "attention": [4]},
        "flat-unet": {"attention": [7]},
        "u-vit": {"layers": 2, "hidden": 16, "heads": 2, "attention": [0]},
    }[kind]
    saved = to_json(Config("md4", MD4.Config()))
    fresh = {"length": 70, "grid": [5, 7, 2], "channels": 8, "blocks": 1, "condition": 6, "kind": kind}
    fresh |= {"published": False, "rescale": False, **sizes}
    saved["net"] |= fresh
    network, start = UNet(from_json(saved).net, 5, time=True).double().eval(), 0
    with torch.no_grad():
        for p in network.parameters():
            number = torch.arange(start, start + p.numel(), dtype=torch.float64)
            p.copy_((0.3 * torch.sin(1.7 * number**1.01)).view(p.shape))
            start += p.numel()
        out = network(torch.arange(140).view(2, 70) * 7 % 5, torch.tensor([120.0, 700.0]))
    torch.testing.assert_close(out[1, 33], torch.tensor(RECORDED[kind], dtype=torch.float64), rtol=1e-7, atol=1e-7)


# ---------------------------------------------------------------------------------- first weights and dropout
def spread(p):
    """The standard deviation of a tensor, in units of 1 / sqrt(inputs)."""
    return float(p.detach().square().mean().sqrt() * p[0].numel() ** 0.5)


def test_first_weights_are_those_of_the_authors():
    """Variances to 10%: of 2,000 weights or more that is 3.5 standard errors of a normal one, so false in less than one of 20
    seeds for all of them; this seed is fixed."""
    torch.manual_seed(0)
    sizes = {"channels": 32, "condition": 64, "blocks": 1}
    made: dict[str, dict[str, torch.Tensor]] = {}
    for name, net in {
        "d3pm": of((16, 16), attention=(8,), **sizes),
        "tauldr": of((16, 16), attention=(8,), rescale=True, **sizes),
        "md4": of((16, 16), kind="flat-unet", multipliers=Net.multipliers, attention=(0,), **sizes),
        "u-vit": dataclasses.replace(UVIT, grid=(16, 16), length=256, layers=1, hidden=64, **sizes),
    }.items():
        made[name] = dict(UNet(net, 5, time=True).named_parameters())
    for name, w in made.items():
        spreads = 3**-0.5 if name == "tauldr" else 1.0
        for layer in ("input.weight", "output.weight", "down.0.conv1.weight", "time.mlp.0.weight", "time.mlp.2.weight"):
            assert spread(w[layer]) == pytest.approx(spreads, rel=0.05)
            most = float(w[layer].abs().max() * w[layer][0].numel() ** 0.5)
            assert most == pytest.approx(1.0 if name == "tauldr" else 2 / 0.8796, rel=0.03)  # uniform, or cut at two
        assert float(w["head.weight"].abs().max()) == 0
        assert (float(w["down.0.conv2.weight"].abs().max()) > 0) is (name == "tauldr")
        assert (float(w["input.bias"].abs().max()) > 0) is (name == "tauldr")
    assert spread(made["d3pm"]["down.0.shift.weight"]) == pytest.approx(1.0, rel=0.05)
    assert float(made["md4"]["down.0.shift.weight"].abs().max()) == 0
    assert spread(made["md4"]["embedding.weight"]) == pytest.approx(1.0, rel=0.3)  # of 160 only
    assert float(made["d3pm"]["middle.0.attention.out.weight"].abs().max()) == 0
    assert spread(made["md4"]["middle.0.attention.out.weight"]) == pytest.approx(1.0, rel=0.1)
    assert spread(made["tauldr"]["middle.0.attention.qkv.weight"]) == pytest.approx(0.1**0.5, rel=0.05)
    vit = made["u-vit"]
    assert spread(vit["middle.0.blocks.0.mlp.2.weight"]) == pytest.approx(1.0, rel=0.05)
    for zero in ("middle.0.pixels.weight", "middle.0.blocks.0.modulation.weight", "down.0.norm1.modulation.weight"):
        assert float(vit[zero].abs().max()) == 0
    line, column, i = (
        3,
        5,
        7,
    )  # of 8 x 8 patches: sines and cosines of the column in the first half, of the line in the second
    place = vit["middle.0.places"][line * 8 + column]
    for half, at in ((0, column), (32, line)):
        assert float(place[half + i]) == pytest.approx(math.sin(at * 1e4 ** (-i / 16)), abs=1e-6)
        assert float(place[half + 16 + i]) == pytest.approx(math.cos(at * 1e4 ** (-i / 16)), abs=1e-6)


@pytest.mark.parametrize("net", [SMALL, of((5, 7, 2), rescale=True), UVIT], ids=str)
def test_no_first_weights_are_drawn_where_they_will_be_loaded(net):
    before = torch.get_rng_state()
    with unfilled():
        METHODS["d3pm"].build_network(net, 8, METHODS["d3pm"].Config())
    assert torch.equal(torch.get_rng_state(), before)


def test_a_patch_has_dropout_of_whole_channels_after_attention_and_twice_in_the_mlp(monkeypatch):
    torch.manual_seed(0)
    block: Any = busy(UNet(dataclasses.replace(UVIT, dropout=0.5), 5)).middle[0].blocks[0]
    block.train()
    x, shares = torch.randn(3, 12, 16).double(), []
    dropped = block.attention(x) == 0
    assert dropped.all(1).equal(dropped.any(1))
    assert 5 < int(dropped.all(1).sum()) < 43  # of 48 channels, a half each: 9 standard deviations
    attend, drop = torch.nn.functional.scaled_dot_product_attention, torch.nn.functional.dropout

    def products(*parts, dropout_p):
        shares.append(dropout_p)
        return attend(*parts, dropout_p=dropout_p)

    def dropout(y, share, training):
        shares.append((tuple(y.shape), share if training else 0.0))
        return drop(y, share, training)

    monkeypatch.setattr("zellige.nn.unet.F.scaled_dot_product_attention", products)
    monkeypatch.setattr("zellige.nn.unet.F.dropout", dropout)
    for share in (0.5, 0.0):
        shares.clear()
        block(x, None)
        assert shares == [share, ((3, 1, 16), share), ((3, 12, 64), share), ((3, 12, 16), share)]
        block.eval()


# ---------------------------------------------------------------------------------- published sizes
CIFAR = Net(length=3072, grid=(32, 32, 3), kind="unet", condition=512, dropout=0.1)


def count(module):
    return sum(p.numel() for p in module.parameters())


def conv(inputs, outputs):
    return 9 * inputs * outputs + outputs


def body(network):
    """All but the ends, where published networks have one convolution to C K numbers: ours goes through D for each colour."""
    return count(network) - count(network.output) - count(network.head)


def test_d3pm_and_taldr_on_cifar10_have_the_35_7_million_parameters_of_ddpm():
    """DDPM, appendix B: 35.7 million."""
    with torch.device("meta"):
        network = D3PM.build_network(CIFAR, 256, D3PM.Config("gaussian", head="logistic"))
    assert body(network) + conv(128, 3) == 35_746_307  # DDPM's, whose end is three numbers a pixel
    assert body(network) + conv(128, 3 * 2) == 35_749_766  # D3PM's and tauLDR's: a mean and a scale for each
    assert count(network) == 36_185_858


def test_md4_on_cifar10_has_28_million_parameters():
    """Its code: an embedding of 128, 32 blocks of 128 channels, attention in the middle, an embedding of the time 128 wide."""
    net = Net(length=3072, grid=(32, 32, 3), kind="flat-unet", dropout=0.1)
    with torch.device("meta"):
        network = MD4.build_network(net, 256, MD4.Config(time=True))
    assert body(network) + conv(128, 3 * 256) == 28_427_520
    assert count(network) == 28_017_921


def test_md4_on_imagenet64_has_198_million_parameters():
    """Its code, in the sizes that it calls best for the likelihood: 24 blocks of 256 channels round 12 layers of 768."""
    size = {"layers": 12, "hidden": 768, "heads": 12, "channels": 256, "condition": 256, "dropout": 0.1}
    with torch.device("meta"):
        network = MD4.build_network(
            Net(length=12288, grid=(64, 64, 3), kind="u-vit", **size), 256, MD4.Config(time=True)
        )
    assert body(network) + conv(256, 3 * 256) == 198_279_680


def test_resolutions_and_their_attention():
    with torch.device("meta"):
        network = UNet(CIFAR, 256)
    attended = [
        name.removesuffix(".attention.qkv.weight")
        for name, _ in network.named_parameters()
        if name.endswith("qkv.weight")
    ]
    assert attended == ["down.3", "down.4", "middle.0", "up.8", "up.9", "up.10"]  # DDPM: at 16 x 16 and in the middle


# ---------------------------------------------------------------------------------- what it sees and how it runs
@pytest.mark.parametrize("grid", [(1, 1), (2, 2), (7, 7), (14, 14, 3), (48, 36)])
@pytest.mark.parametrize("kind", ["unet", "flat-unet", "u-vit"])
def test_any_size_and_every_place_is_seen_from_every_other(grid, kind):
    torch.manual_seed(0)
    sizes = {"layers": 1, "hidden": 8, "heads": 2} if kind == "u-vit" else {}
    multipliers = (1, 1, 1) if kind == "unet" else Net.multipliers
    net = of(grid, kind=kind, multipliers=multipliers, attention=(16,), **sizes)
    network, x = busy(UNet(net, 5)), rows(net, 5, 1)
    out = network.features(x)
    assert out.shape == (1, net.length, net.channels)
    for place in {0, net.length // 2, net.length - 1}:
        other = x.clone()
        other[0, place] = (x[0, place] + 1) % 5
        assert ((network.features(other) - out).abs().amax(-1) > 0).all()


@pytest.mark.parametrize("kind", ["unet", "flat-unet", "u-vit"])
def test_a_network_starts_uniform_time_free_ones_have_no_time_and_gradients_reach_every_parameter(kind):
    torch.manual_seed(0)
    flat = dataclasses.replace(UVIT, kind="flat-unet", layers=Net.layers, hidden=Net.hidden, heads=Net.heads)
    net = {"unet": SMALL, "flat-unet": flat, "u-vit": UVIT}[kind]
    x = rows(net, 5)
    free = UNet(net, 5)
    assert (free(x) == 0).all()
    assert not [
        name for name, _ in free.named_parameters() if "time" in name or "shift" in name or "modulation" in name
    ]
    network = busy(UNet(dataclasses.replace(net, classes=3), 5, time=True))
    network(x, torch.rand(2), condition=torch.tensor([0, 2])).log_softmax(-1)[..., 0].sum().backward()
    unused = {name for name, p in network.named_parameters() if p.grad is None or not p.grad.any()}
    assert unused == set()


@pytest.mark.parametrize("net", [SMALL, UVIT], ids=str)
def test_dropout_is_off_in_eval_and_checkpointing_changes_no_gradient(net):
    x, gradients = rows(net, 5), []
    for flag in (False, True):
        torch.manual_seed(0)
        network = busy(UNet(dataclasses.replace(net, dropout=0.3, checkpoint=flag), 5))
        assert torch.equal(network(x), network(x))
        network.train()
        torch.manual_seed(1)
        out = network(x)
        assert not torch.equal(out, network(x))
        torch.manual_seed(1)
        network(x).square().sum().backward()
        gradients.append([p.grad for p in network.parameters()])
    torch.testing.assert_close(*gradients)


def test_a_class_is_told_and_none_is_the_last():
    torch.manual_seed(0)
    net = dataclasses.replace(SMALL, classes=2)
    network, x = busy(UNet(net, 5, time=True)), rows(SMALL, 5)
    t = torch.tensor([0.1, 0.9])
    out = network(x, t, condition=torch.tensor([1, -1]))
    torch.testing.assert_close(out[1], network(x, t)[1])
    assert not torch.allclose(out[0], network(x, t)[0])
    torch.testing.assert_close(network(x, torch.tensor(0.1))[0], network(x, t)[0])  # one time for all


@pytest.mark.parametrize("net", [SMALL, UVIT], ids=str)
def test_compiles_without_graph_breaks_and_stays_channels_last(net):
    torch.manual_seed(0)
    network = busy(UNet(net, 5, time=True)).float()
    x, t, outputs = rows(SMALL, 5), torch.rand(2), []
    compiled = torch.compile(network.features, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, t), network.features(x, t))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(network.features(x, t).float(), compiled(x, t).float(), atol=0.2, rtol=0.2)
    for layer in (network.input, *network.down, *network.middle, *network.up, network.output):
        layer.register_forward_hook(lambda _module, _inputs, out: outputs.append(out))
    network.features(x, t)
    assert all(out.is_contiguous(memory_format=torch.channels_last) for out in outputs)


def test_the_head_reads_positions_alone_and_losses_take_it_in_chunks():
    torch.manual_seed(0)
    net = of((20, 20, 3), attention=(10,))
    network, x = busy(UNet(net, 3000)), rows(net, 3000)
    h = network.features(x)
    at = torch.rand(x.shape) < 0.3
    torch.testing.assert_close(network.head(h[at]), network(x)[at])
    nll = -network(x).log_softmax(-1).gather(-1, x[..., None])[..., 0]
    torch.testing.assert_close(cross_entropy(network, h[at], x[at]), nll[at])  # in chunks: 720 x 3,000 logits or so
    first = each_position(network.head, h[at], 3000, lambda logits, i: logits[:, 0], network.parameters())
    torch.testing.assert_close(first, network(x)[at][:, 0])


# ---------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"kind": "unet", "layers": 4}, "`net.layers` is for `net.kind` dit or conv or u-vit, and this is unet; leave it out"),
        ({"kind": "flat-unet", "constant": True},
         "`net.constant` is for `net.kind` dit or conv, and this is flat-unet; leave it out"),
        ({"channels": 64}, "`net.channels` is for `net.kind` unet or flat-unet or u-vit, and this is dit; leave it out"),
        ({"kind": "flat-unet", "multipliers": (1, 2)},
         "`net.multipliers` is for `net.kind` unet, and this is flat-unet; leave it out"),
        ({"kind": "unet", "channels": 6}, "`net.channels` is 6; it must be a multiple of 4, which groups are normalised in"),
        ({"kind": "unet", "multipliers": ()},
         "`net.multipliers` is empty; it must be whole numbers of 1 or more, such as 1 2 2 2"),
        ({"kind": "unet", "blocks": -1}, "`net.blocks` is -1; it must be 0 or more"),
        ({"kind": "unet", "attention": (-4,)}, "`net.attention` is -4; it must be sides in pixels, or 0 for none"),
        ({"kind": "resnet"}, "`net.kind` is 'resnet'; it must be dit, conv, unet, flat-unet or u-vit"),
    ],
)  # fmt: skip
def test_choices_that_mean_nothing_are_refused(choices, message):
    with pytest.raises(InputError) as caught:
        Net(**choices)
    assert str(caught.value) == message


def test_data_without_an_image_and_what_does_not_fit_are_refused():
    for shape, rows_are in [({}, "a line of 256"), ({"grid": (2, 2, 2, 2), "length": 16}, "a grid of 2 x 2 x 2 x 2")]:
        with pytest.raises(InputError, match=f"is for images .* and the rows are {rows_are}; use `net.kind` dit"):
            build("mdlm", 5, Net(kind="unet", **shape))
    with pytest.raises(InputError, match=r"`net.attention` is 9; the resolutions of 5 x 7 are 7, 4"):
        UNet(dataclasses.replace(SMALL, attention=(7, 9)), 5)
    with pytest.raises(InputError, match="reads all of an image at once, and this method block after block"):
        build("ar", 5, SMALL)
    network, x = UNet(SMALL, 5), rows(SMALL, 5)
    with pytest.raises(InputError, match="takes all its 70 positions"):
        network(x[:, :9])
    with pytest.raises(InputError, match="time-free"):
        network(x, torch.zeros(2))
    with pytest.raises(InputError, match=r"the time is \(2, 70\); a U-Net takes one for each row"):
        UNet(SMALL, 5, time=True)(x, torch.zeros(2, 70))


# ---------------------------------------------------------------------------------- methods
def small(name, **choices):
    """A method with a U-Net on images of 2 x 2 pixels of 3 levels, random weights, float64."""
    torch.manual_seed(0)
    net = of((2, 2), attention=(0,))
    method = build(name, 3, net, METHODS[name].Config(**choices), ordered=True)
    busy(method.network)
    return method.double().eval()


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("mdlm", {"diffusion_steps": 4}),
        ("md4", {}),
        ("tauldr", {"process": "gaussian"}),
        ("d3pm", {"process": "gaussian", "head": "logistic", "last": "image", "diffusion_steps": 4}),
    ],
)
def test_bounds_are_those_of_enumeration(name, choices):
    """Masked and structured noise: closed forms equal the generic bound at every x_t, and the T-step bound lies above -log
    p."""
    method = small(name, **choices)
    assert isinstance(method.network, UNet)
    assert method.network.levels == ("process" in choices)
    process, x_0 = method.process, exact.states(3, 4)[[0, 5, 40, 80]]
    if method.steps:
        times = method.grid(method.steps)
        bound = exact.step_bound(method, x_0, times)
        nll = -exact.log_likelihood(method, times)[exact.index(x_0, 3)]
        assert (nll.isfinite() & (bound > nll)).all()
        assert float(torch.exp(exact.log_likelihood(method, times)).sum()) == pytest.approx(1, abs=1e-9)
    X = exact.states(process.K, 4)
    for t, s in [(0.75, 0.5)] if method.steps else [(0.75, None), (0.25, None)]:
        for x in x_0:
            possible = process.likelihood(X, -math.inf, torch.full(X.shape, t, dtype=torch.float64))
            X_t = X[possible[:, torch.arange(4), x].prod(-1) > 0]
            time, batch = torch.full((len(X_t),), t, dtype=torch.float64), Batch(x.expand(X_t.shape))
            later = None if s is None else torch.full_like(time, s)
            closed = (
                method.continuous_bound(batch, X_t, time)
                if later is None
                else method.discrete_bound(batch, X_t, time, later)
            )
            torch.testing.assert_close(
                closed, diffusion.from_prediction(method, batch, X_t, time, later), rtol=1e-8, atol=1e-8
            )


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("ar", "bd3lm", "flexmdm")])
def test_every_method_takes_one(name):
    method = small(name)
    batch = Batch(exact.states(3, 4)[:6])
    method.loss(batch, torch.Generator().manual_seed(0)).mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in method.network.parameters())
    assert method.network.time_conditioned == type(method).timed(method.config)


# ---------------------------------------------------------------------------------- trainings
FEW = "--train.steps 2 --train.batch 2 --train.samples 0 --train.validate-rows 2 --train.no-tensorboard --train.device cpu"


@pytest.mark.parametrize(
    ("name", "choices", "net"),
    [
        ("mdlm", {}, Net(kind="unet", channels=8, multipliers=(1, 2), blocks=1, attention=(4,))),
        ("d3pm", {"process": "gaussian", "head": "logistic", "diffusion_steps": 4}, Net(kind="flat-unet", channels=8, blocks=1)),
        ("md4", {}, Net(layers=1, hidden=16, heads=2)),
        ("md4", {}, Net(kind="u-vit", layers=1, hidden=16, heads=2, channels=8, blocks=1)),
    ],
)  # fmt: skip
def test_trains_is_saved_and_loads(name, choices, net, tmp_path):
    train = Train(steps=2, batch=2, samples=0, validate_rows=2, tensorboard=False, device="cpu")
    run = tmp_path / "run"
    zellige.train(name, data=Data("digits"), net=net, train=train, options=METHODS[name].Config(**choices), run=run)
    model = zellige.load(run)
    assert model.config.net == dataclasses.replace(net, length=64, grid=(8, 8))
    again = zellige.load(model.save(tmp_path / "copy"))
    x = torch.randint(17, (2, 64), generator=torch.Generator().manual_seed(0))
    t = torch.full((2, 64), 0.5, dtype=torch.float64)
    assert torch.equal(model.method.hidden(x, t), again.method.hidden(x, t))
    assert len(zellige.sample(again, count=1, steps=2, seed=0)) == 1


def test_on_the_command_line(tmp_path, capsys):
    flags = f"--data.name digits --net.kind unet --net.channels 8 --net.multipliers 1 1 --net.blocks 1 --net.attention 0 {FEW}"
    assert main(["train", "mdlm", *flags.split(), "--data.labels", "--run", str(tmp_path / "run")]) == 0
    assert ", a U-Net of 8, 8 channels, 10 classes, length 64, " in "".join(capsys.readouterr())
    assert str(zellige.load(tmp_path / "run").config.net) == "a U-Net of 8, 8 channels"
    text = tmp_path / "notes.txt"
    text.write_text("the sea, the sea. " * 400)
    argv = f"train mdlm --data.name text --data.path {text} --data.tokenizer bytes --net.kind unet --run {tmp_path / 'b'} {FEW}"
    assert main(argv.split()) == 2
    assert "--net.kind unet is for images" in capsys.readouterr().err
    wrong, commands = ["--net.kind", "mdlm", "--run", str(tmp_path / "c")], ("train mdlm", "compare mdlm md4")
    for words in (
        f"{command} {size}" for command in commands for size in ("", "--size tiny", "--size small --data.name mnist")
    ):
        assert main([*words.split(), *wrong]) == 2
        assert (
            capsys.readouterr().err == "error: --net.kind is 'mdlm'; it must be dit, conv, unet, flat-unet or u-vit\n"
        )


def test_without_a_kind_it_is_the_transformer():
    assert isinstance(build("mdlm", 5, Net(length=8)).network, DiT)


def test_an_image_of_twice_the_size_is_that_of_interpolate():
    """Its values and its gradient."""
    h = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 3, 8, 10, dtype=torch.float64)
    plain = torch.nn.functional.interpolate(h, scale_factor=2.0, mode="nearest")
    assert torch.equal(doubled(h), plain)
    mine, other = (torch.autograd.grad((image * weight).sum(), h)[0] for image in (doubled(h), plain))
    torch.testing.assert_close(mine, other)
