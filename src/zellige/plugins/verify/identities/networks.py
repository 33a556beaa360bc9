"""Real networks inside methods: classes, hidden states of the masks alone, blocks and U-Nets against their definitions.

Their weights are fixed numbers. What an identity says of a network it says of the method that asks it: bounds and
samples.
"""

import dataclasses
import math
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zellige import methods
from zellige.core.batch import Batch
from zellige.core.positions import positions
from zellige.exact import enumeration, script
from zellige.methods import AR, METHODS
from zellige.methods.diffusion import Diffusion
from zellige.methods.flexmdm import FlexMDM
from zellige.methods.method import Method
from zellige.nn import UNet
from zellige.nn.block import Block, Net, mlp
from zellige.nn.embedding import modulate
from zellige.samplers import Ancestral

from .blocks import lengths, noisy, transformer
from .check import L, Largest, V, above, numbers, own, shared, state_of

NETWORKS = "networks"
N = TypeVar("N", bound=nn.Module)
SINGLE = 1e-6  # rotary angles and embeddings of the time are float32


def with_numbers(network: N) -> N:
    """The same with fixed numbers for weights, in float64; norms near 1."""
    network = network.double().eval()
    with torch.no_grad():
        for i, (name, p) in enumerate(network.named_parameters()):
            values = numbers(*p.shape, shift=i)
            p.copy_(1 + values / 4 if "norm" in name and p.ndim == 1 else values / max(p[0].numel(), 4) ** 0.5)
    return network


# ---------------------------------------------------------------------------------- classes
def takes_classes(method: Method) -> bool:
    """Return whether the method, of noise or of next tokens, is built on a transformer with optional classes."""
    return isinstance(method, Diffusion | AR) and type(method).__module__ in {c.__module__ for c in METHODS.values()}


def classed(method: Method) -> list[Any]:
    """Methods like this one whose transformer knows two classes: one, or one for each length of blocks, 1 the shortest;
    none if the method has a network of its own."""
    net = Net(layers=1, hidden=12, heads=3, length=L, condition=8, classes=2)
    blocks = [{"block": b} for b in (1, L)] if "block" in vars(method.config) else [{}]
    configs = [dataclasses.replace(method.config, **more) for more in blocks]
    try:
        several = [with_numbers(methods.build(type(method), V, net, config, ordered=True)) for config in configs]
    except methods.InputError:
        return []
    return [instance for instance in several if getattr(instance.network, "classes", None) is not None]


@own("networks.classes", lambda m: takes_classes(m) or isinstance(m, FlexMDM))
@torch.no_grad()
def a_class_is_its_row(method: Method):
    """Rows of class 0, of class 1 and of none, against an unconditional network whose row for "no class" is that
    row."""
    if not (several := classed(method)):
        return
    bounds, steps, apart = Largest(), Largest(), math.inf
    for instance in several:
        apart = min(apart, _see_classes(instance, bounds, steps))
    yield bounds.row(NETWORKS, "classes: bound = of a network of that class")
    yield above(NETWORKS, "... and of two classes two bounds", apart, 1e-3, "≥ 1e-03")
    if any(_step(instance, None) is not None for instance in several):
        yield steps.row(NETWORKS, "... and a step of ancestral")


def _see_classes(instance: Any, bounds: Largest, steps: Largest) -> float:
    """Compare the bounds and steps of each class; returns how far apart the bounds of two classes are, at most."""
    table = instance.network.classes.weight
    rows, X = table.clone(), enumeration.states(V, L)
    for number in (0, 1, -1):
        condition = torch.full((len(X),), number)
        values = instance.bound(Batch(X, condition=condition), torch.Generator().manual_seed(1))
        transition = _step(instance, condition)
        table[-1] = rows[number]
        bounds.see(values, instance.bound(Batch(X), torch.Generator().manual_seed(1)), f"class {number}")
        if transition is not None:
            steps.see(transition, _step(instance, None), f"class {number}")  # pyright: ignore[reportArgumentType]
        table[-1] = rows[-1]
    mixture = torch.arange(len(X)) % 3 - 1
    values = instance.bound(Batch(X, condition=mixture), torch.Generator().manual_seed(1))
    class_values = [
        instance.bound(Batch(X, condition=torch.full_like(mixture, c)), torch.Generator().manual_seed(1))
        for c in (-1, 0, 1)
    ]
    bounds.see(values, torch.stack(class_values).gather(0, (mixture + 1)[None])[0], "a batch of all three")
    return float((class_values[1] - class_values[2]).abs().max())


def _step(made: Method, condition: Tensor | None) -> Tensor | None:
    """The transition matrix of one step inside (0, 1), of every state with this class."""
    if not isinstance(made, Diffusion) or Ancestral.reason_against(made) is not None:
        return None
    X = enumeration.states(made.process.K, L)
    state = state_of(X, condition=None if condition is None else condition[:1].expand(len(X)))
    time = torch.full((len(X), 1), 0.75, dtype=torch.float64)
    return script.transition(Ancestral(), made, state, time, time - 0.25)


# ---------------------------------------------------------------------------------- what is not read
@own("networks.masks", lambda m: isinstance(m, Diffusion) and m.process.mask is not None)
@torch.no_grad()
def hidden_states_of_the_masks_alone(method: Method):
    """The layers after the last attention, computed at some positions, against those of all positions, times of blocks
    included."""
    worst = Largest()
    for block in lengths(method):
        try:
            model = transformer(method, block)
        except methods.InputError:  # a network of its own
            return
        if not getattr(model.network, "chooses", False):
            return
        x_0, x_t, t = noisy(model, max(block, 1))
        batch, time = Batch(x_0), t if block else t[:, :1]
        for name, masks in (("the masks", x_t == V), ("one a row", torch.arange(x_t.shape[1]) == x_0[:, :1])):
            at, context = positions(masks.expand(x_t.shape)), model.clean(batch)
            of_all = at.of(model.hidden(x_t, time, batch, context))
            worst.see(model.hidden(x_t, time, batch, context, at), of_all, f"L' = {block}, {name}")
    yield worst.row(NETWORKS, "hidden states at the masks = those at all", SINGLE)


# ---------------------------------------------------------------------------------- what is read twice
@own("networks.self-condition", lambda m: isinstance(m, Diffusion) and m.process.mask is not None)
@torch.no_grad()
def a_network_reads_its_own_prediction(method: Method):
    """Hidden states with self-conditioning, against two passes without: the probabilities of the first are added to the
    embeddings of the noisy tokens of the second."""
    worst = Largest()
    for block in lengths(method):
        try:
            model = transformer(method, block, self_condition=True)
        except methods.InputError:  # a network of its own
            return
        network = model.network
        if getattr(network, "estimates", None) is None:
            return
        x_0, x_t, t = noisy(model, max(block, 1))
        time, context = t if block else t[:, :1], model.clean(Batch(x_0))
        hidden = model.hidden(x_t, time, Batch(x_0), context)
        weight, network.estimates, embed = network.estimates, None, network.embedding
        beside = network.head(model.hidden(x_t, time, Batch(x_0), context)).softmax(-1) @ weight

        def with_estimate(x: Tensor, embed: Any = embed, beside: Tensor = beside) -> Tensor:
            return embed(x) + F.pad(beside, (0, 0, 0, 0, 0, len(x) - len(beside)))  # nothing for a clean stream

        network._embed = with_estimate
        worst.see(hidden, model.hidden(x_t, time, Batch(x_0), context), f"L' = {block}")
    yield worst.row(NETWORKS, "self-conditioning = a second pass beside the first", SINGLE)


# ---------------------------------------------------------------------------------- parts of a block
@shared("networks.mlp")
@torch.no_grad()
def swiglu_is_its_definition():
    """W2 (silu(W1 x) * W3 x) (Shazeer 2020), of 2/3 of 4 D channels, rounded up to a multiple of 32."""
    worst, width, x = Largest(), Largest(), numbers(3, 48)
    module = with_numbers(mlp(Net(hidden=48, heads=2, mlp="swiglu")))
    first, last = (p.double() for p in module.parameters())
    w1, w3 = first.chunk(2)
    a = x @ w1.mT
    worst.see(module(x), (a / (1 + (-a).exp()) * (x @ w3.mT)) @ last.mT, "48 channels")
    yield worst.row(NETWORKS, "SwiGLU = W2 (silu(W1 x) * W3 x)")
    for hidden in (12, 48, 100, 768, 784):
        gated: Any = mlp(Net(hidden=hidden, heads=2, mlp="swiglu"))
        width.see(float(gated[-1].in_features), 32.0 * math.ceil(int(8 * hidden / 3) / 32), f"D = {hidden}")
    yield width.row(NETWORKS, "... its width: 8 D/3, up to a multiple of 32")


@shared("networks.adaptive")
@torch.no_grad()
def an_adaptive_norm_is_its_definition():
    """norm(x) (1 + scale) + shift, by moments, of vectors for each sequence and of vectors for all of them."""
    worst, D = Largest(), 8
    norm, x = with_numbers(nn.LayerNorm(D)), numbers(3, 4, D)
    deviation = (x.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    plain = (x - x.mean(-1, keepdim=True)) / deviation * norm.weight + norm.bias
    for shape in ((3, 1, D), (D,)):
        shift, scale = numbers(*shape), numbers(*shape).flip(-1)
        worst.see(modulate(norm, x, shift, scale), plain * (1 + scale) + shift, f"vectors of shape {shape}")
    yield worst.row(NETWORKS, "adaptive norm = norm(x) (1 + scale) + shift", SINGLE)


@shared("networks.dropout")
@torch.no_grad()
def channels_are_dropped_whole():
    """`drop_channels`: at all positions of a sequence or at none, and others in each sequence."""
    B, length, D, worst = 64, 5, 48, Largest()
    block = Block(
        Net(layers=1, hidden=D, heads=2, length=length, dropout=0.5, drop_channels=True), False, False
    ).train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kept = block._drop(torch.ones(B, length, D), torch.Size((B, length, D)), None)
    worst.see(kept, kept[:, :1].expand(kept.shape), "positions")
    worst.see((kept * (kept - 2)).double(), 0.0, "dropped, or doubled")
    yield worst.row(NETWORKS, "dropped channels: at all positions, or none")
    others = float((kept != kept.roll(1, 0)).double().mean())
    yield above(NETWORKS, "... and others in each sequence, share", others, 0.25, "≥ 0.25")


# ---------------------------------------------------------------------------------- U-Nets
IMAGE = (3, 2, 2)  # height, width, colours
KINDS: dict[str, dict[str, Any]] = {
    "unet": {"multipliers": (1, 2), "blocks": 1, "attention": (2,)},
    "unet, rescaled": {"multipliers": (1, 2), "blocks": 1, "attention": (3,), "rescale": True},
    "flat-unet": {"blocks": 2, "attention": (0,)},
}


@shared("networks.unet")
@torch.no_grad()
def a_unet_is_its_definition():
    """Layer by layer on (B, D, H, W): convolutions by shifts, group norms by moments, attention by softmax."""
    worst = Largest()
    for kind, choices in KINDS.items():
        for levels in (False, True):
            name: Any = kind.partition(",")[0]
            sizes = {"channels": 8, "grid": IMAGE, "length": math.prod(IMAGE), "condition": 12, "classes": 2}
            net = Net(kind=name, **sizes, **choices)
            network = with_numbers(UNet(net, V, time=True, levels=levels))
            x = enumeration.states(V, 3).repeat(1, net.length // 3)[::4]
            time = torch.linspace(0, 8, len(x), dtype=torch.float64)
            classes = torch.arange(len(x)) % 3 - 1
            hidden = network.features(x, time, condition=classes)
            worst.see(hidden, _defined(network, x, time, classes), f"{kind}, levels {levels}")
            alone = [network.features(x[i : i + 1], time[i : i + 1], condition=classes[i : i + 1])[0] for i in (0, 3)]
            worst.see(hidden[[0, 3]], torch.stack(alone), f"{kind}, a row alone")
    yield worst.row(NETWORKS, "U-Net = its definition, layer by layer", SINGLE)


def _defined(network: UNet, x: Tensor, time: Tensor, classes: Tensor) -> Tensor:
    """Hidden states (B, L, D) as Ho et al. 2020 define them."""
    net, (height, width, colours) = network.net, network.image
    values = network.embedding.weight[x] if network.embedding is not None else (2 * x.double() / (V - 1) - 1)[..., None]
    h = values.reshape(len(x), height, width, -1).permute(0, 3, 1, 2)
    half = 1e4 ** (-torch.arange(net.channels // 2, dtype=torch.float32) / (net.channels // 2 - 1))
    waves = torch.cat([f(time.float()[:, None] * half) for f in (torch.sin, torch.cos)], -1).double()
    assert network.time is not None
    assert network.classes is not None
    c = _linear(F.silu(_linear(waves, network.time.mlp[0])), network.time.mlp[2])
    c = (F.silu(c) if network.time.silu else c) + F.silu(network.classes.weight[classes % 3])
    scale = 0.5**0.5 if net.rescale else 1.0

    def block(b: Any, h: Tensor) -> Tensor:
        inner = _convolved(F.silu(_normed(h, b.norm1)), b.conv1) + _linear(c, b.shift)[:, :, None, None]
        inner = _convolved(F.silu(_normed(inner, b.norm2)), b.conv2)
        shortcut = h if b.shortcut is None else torch.einsum("bchw,dc->bdhw", h, b.shortcut.weight[:, :, 0, 0])
        shortcut = shortcut if b.shortcut is None else shortcut + b.shortcut.bias[:, None, None]
        h = (shortcut + inner) * scale
        if b.attention is None:
            return h
        pixels = _normed(h, b.attention.norm).flatten(2)
        q, k, v = (_linear(pixels.mT, b.attention.qkv).mT).chunk(3, 1)
        weight = (torch.einsum("bdi,bdj->bij", q, k) / q.shape[1] ** 0.5).softmax(-1)
        values_out = torch.einsum("bij,bdj->bdi", weight, v)
        return (h + _linear(values_out.mT, b.attention.out).mT.reshape(h.shape)) * scale

    h = _convolved(h, network.input)
    skips = [h]
    for layer in network.down:
        h = block(layer, h) if not isinstance(layer, nn.Conv2d) else _halved(h, layer)
        skips.append(h)
    for layer in network.middle:
        h = block(layer, h)
    for layer in network.up:
        if isinstance(layer, nn.Conv2d):
            tall, wide = skips[-1].shape[2:]
            h = _convolved(h.repeat_interleave(2, 2).repeat_interleave(2, 3)[:, :, :tall, :wide], layer)
        else:
            h = block(layer, torch.cat((h, skips.pop()), 1))
    h = _convolved(F.silu(_normed(h, network.norm)), network.output)
    return h.unflatten(1, (colours, net.channels)).permute(0, 3, 4, 1, 2).flatten(1, 3)


def _linear(x: Tensor, layer: Any) -> Tensor:
    y = x.double() @ layer.weight.mT
    return y if layer.bias is None else y + layer.bias


def _normed(h: Tensor, layer: nn.GroupNorm) -> Tensor:
    """By the mean and variance of each group's channels and pixels."""
    groups = h.unflatten(1, (layer.num_groups, -1))
    mean = groups.mean((2, 3, 4), keepdim=True)
    deviation = ((groups - mean).square().mean((2, 3, 4), keepdim=True) + 1e-6).sqrt()
    return ((groups - mean) / deviation).flatten(1, 2) * layer.weight[:, None, None] + layer.bias[:, None, None]


def _convolved(h: Tensor, layer: nn.Conv2d) -> Tensor:
    """A 3 x 3 convolution as nine shifted products, zeros around."""
    tall, wide = h.shape[2:]
    around = F.pad(h, (1, 1, 1, 1))
    shifts = ((i, j) for i in range(3) for j in range(3))
    y = sum(
        torch.einsum("bchw,dc->bdhw", around[:, :, i : i + tall, j : j + wide], layer.weight[:, :, i, j])
        for i, j in shifts
    )
    return y + layer.bias[:, None, None]  # pyright: ignore


def _halved(h: Tensor, layer: nn.Conv2d) -> Tensor:
    """Every second pixel of that convolution, from the second on as DDPM pads, or (an odd side) from the first."""
    tall, wide = h.shape[2:]
    return _convolved(h, layer)[:, :, 1 - tall % 2 :: 2, 1 - wide % 2 :: 2]
