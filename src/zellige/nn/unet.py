"""A U-Net that reads an image of states and returns hidden states for each position, each colour of each pixel.

The U-Net of DDPM (Ho et al. 2020, arXiv 2006.11239), with which D3PM (Austin et al. 2021, arXiv 2107.03006) and tauLDR
(Campbell et al. 2022, arXiv 2205.14987) model images: residual blocks of two 3 x 3 convolutions behind group norms,
down by two and up again, joined by skip connections; attention of one head in the middle, and after the blocks of some
resolutions. At one resolution (`flat-unet`) it is the network of MD4 (Shi et al. 2024, arXiv 2406.04329), which takes
it from variational diffusion models (Kingma et al. 2021, arXiv 2107.00630); with a transformer in the middle and
adaptive group norms (`u-vit`) that of MD4 for larger images. tauLDR's divides residual sums by the root of 2
(`net.rescale`), as score_sde does, from which it comes. A time-free network has no embedding of the time.

    states (B, H W C)   ->  (B, 3D or 3, H, W)     embedded; ordered levels are scaled to -1..1 (a colour a channel)
                        ->  (B, D, H, W)           the U-Net
                        ->  (B, H W C, D)          a 3 x 3 convolution gives each colour D features of its own

The positions are those of `data/levels.py`: line by line, a pixel's colours together. Published networks end with one 3
x 3 convolution to C K logits; here it goes through D features for each colour, which one head reads position by
position, so that K logits are computed only where they are read. All else is as published, each kind by its authors'
code, where `net.published`.

A side that is odd is halved upwards (7, 4, 2, 1), and cut when it is doubled again; what is missing for that is filled
with zeros, at the end first. Tensors are in the channels-last format.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..base.errors import InputError
from .attention import ALL
from .block import Block, Net
from .embedding import Modulation, TimeEmbedding, add, axial_table, check_inputs, embed_classes, modulate
from .first_weights import first_weights
from .linear import Linear

PATCH = 2


class PatchBlock(nn.Module):
    """Attention and MLP on patches (B, N, D), each a residual branch behind a norm whose only parameters come from the
    conditioning.

    The conditioning is (B or 1, condition); without it there are RMS norms. Dropout is at the products of attention, of
    whole channels after it, and twice in the MLP.
    """

    matrices = ("qkv", "out", "mlp")

    def __init__(self, net: Net, adaptive: bool):
        super().__init__()
        D, self.heads, self.dropout = net.hidden, net.heads, net.dropout
        self.norm1: Any = norm(D, adaptive)
        self.norm2: Any = norm(D, adaptive)
        self.qkv = Linear(D, 3 * D)
        self.out = Linear(D, D, bias=False)
        self.mlp = nn.Sequential(Linear(D, 4 * D), nn.GELU(approximate="tanh"), Linear(4 * D, D))
        self.modulation = Modulation(net.condition, D, 6) if adaptive else None

    def forward(self, x: Tensor, c: Tensor | None) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = modulations(self.modulation, c, 6)
        x = add(x, gate1, self.attention(modulate(self.norm1, x, shift1, scale1)))
        h = self.mlp[1](self.mlp[0](modulate(self.norm2, x, shift2, scale2)))
        h = self.mlp[2](F.dropout(h, self.dropout, self.training))
        return add(x, gate2, F.dropout(h, self.dropout, self.training))

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        values = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        y = self.out(values.transpose(1, 2).flatten(2))
        return y * F.dropout(torch.ones_like(y[:, :1]), self.dropout, self.training)


def norm(width: int, adaptive: bool) -> nn.Module:
    """A layer norm without parameters, for adaptive modulation; or an RMS norm."""
    return nn.LayerNorm(width, eps=1e-6, elementwise_affine=False) if adaptive else nn.RMSNorm(width, eps=1e-6)


def modulations(modulation: Modulation | None, c: Tensor | None, parts: int) -> tuple[Tensor | None, ...]:
    """The modulation vectors (B or 1, 1, D) of all patches, None without conditioning."""
    if modulation is None or c is None:
        return (None,) * parts
    return tuple(vector[:, None] for vector in modulation(F.silu(c)))


class PatchTransformer(nn.Module):
    """Images (B, channels, H, W) -> (B, channels, H, W), through `net.layers` blocks on a patch a position.

    An odd side is padded with a line of zeros. The conditioning is (B or 1, condition). Each position has an embedding;
    if not `net.published`, the blocks are those of `DiT`, with rotary positions as well.
    """

    rotary: Tensor

    def __init__(self, channels: int, image: tuple[int, ...], net: Net, adaptive: bool):
        super().__init__()
        self.checkpoint, (height, width) = net.checkpoint, ((side + 1) // PATCH for side in image)
        self.patch = nn.Conv2d(channels, net.hidden, PATCH, stride=PATCH)
        self.places = nn.Parameter(torch.empty(height * width, net.hidden))
        self.published = net.published
        if net.published:
            self.blocks = nn.ModuleList(PatchBlock(net, adaptive) for _ in range(net.layers))
            self.norm = norm(net.hidden, adaptive)
        else:
            self.blocks = nn.ModuleList(Block(net, adaptive, bias=False) for _ in range(net.layers))
            self.norm = nn.LayerNorm(net.hidden, bias=False)
            self.register_buffer("rotary", axial_table((height, width), net.hidden // net.heads), persistent=False)
        self.modulation = Modulation(net.condition, net.hidden, 2) if adaptive else None
        self.pixels = Linear(net.hidden, PATCH * PATCH * channels)

    def forward(self, x: Tensor, c: Tensor | None) -> Tensor:
        height, width = x.shape[2:]
        patches = self.patch(F.pad(x, (0, width % PATCH, 0, height % PATCH)))
        h = patches.flatten(2).mT + self.places
        modulation = () if c is None else (c, torch.arange(len(c), device=c.device)[:, None])
        more = (c,) if self.published else (tuple(self.rotary), modulation, ALL)
        for block in self.blocks:
            if self.checkpoint and torch.is_grad_enabled():
                h = checkpoint(block, h, *more, use_reentrant=False)
            else:
                h = block(h, *more)
        if self.published:
            vectors = modulations(self.modulation, c, 2)
        else:
            vectors = (None, None) if self.modulation is None else self.modulation(*modulation)
        h = self.pixels(modulate(self.norm, h, *vectors)).mT.reshape(len(x), -1, *patches.shape[2:])  # pyright: ignore
        image = F.pixel_shuffle(h, PATCH)[:, :, :height, :width]
        return image.contiguous(memory_format=torch.channels_last)


def doubled(h: Tensor) -> Tensor:
    """Each pixel of (B, D, H, W) as 2 x 2, channels last.

    PyTorch 2.13's Inductor loses the gradient of `interpolate` in bfloat16 on a CPU: it is 0, and nothing says so.
    """
    B, D, H, W = h.shape
    pixels = h.permute(0, 2, 3, 1)[:, :, None, :, None].expand(B, H, 2, W, 2, D)
    return pixels.reshape(B, 2 * H, 2 * W, D).permute(0, 3, 1, 2)


ZERO = ("conv2.weight", "out.weight", "mlp.2.weight", "shift.weight", "pixels.weight")  # where not `net.published`


class Norm(nn.GroupNorm):
    """Group norm over 32 groups in the published sizes, of fewer channels four in a group.

    With `condition` it is adaptive: the conditioning (B or 1, condition) scales and shifts each channel.
    """

    def __init__(self, channels: int, published: bool, condition: int = 0):
        groups = min(32, channels // 4)
        if not published or channels % groups:
            groups = math.gcd(32, channels // 4)
        super().__init__(groups, channels, eps=1e-6, affine=not condition)
        self.modulation = Modulation(condition, channels, 2) if condition else None

    def forward(self, x: Tensor, c: Tensor | None = None) -> Tensor:
        y = super().forward(x)
        if self.modulation is None or c is None:
            return y
        shift, scale = (vector[:, :, None, None] for vector in self.modulation(c))
        return y * (1 + scale) + shift


def add_branch(x: Tensor, branch: Tensor, rescale: bool) -> Tensor:
    """The sum of both, divided by the root of 2 if it is to keep its scale."""
    return (x + branch) * 0.5**0.5 if rescale else x + branch


class Attention(nn.Module):
    """Attention of one head among all pixels, a residual branch: (B, D, H, W) -> (B, D, H, W)."""

    matrices = ("qkv", "out")

    def __init__(self, channels: int, net: Net):
        super().__init__()
        self.rescale = net.rescale
        self.norm = Norm(channels, net.published)
        self.qkv = Linear(channels, 3 * channels)
        self.out = Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        pixels = self.norm(x).flatten(2).mT  # (B, H W, D)
        q, k, v = self.qkv(pixels)[:, None].chunk(3, -1)
        y = self.out(F.scaled_dot_product_attention(q, k, v)[:, 0])
        return add_branch(x, y.mT.reshape(x.shape), self.rescale)


class ResBlock(nn.Module):
    """Two convolutions behind group norms, a residual branch: (B, inputs, H, W) -> (B, outputs, H, W); then attention,
    if any.

    The conditioning (B or 1, condition) is added to every pixel between them, or enters the norms.
    """

    def __init__(self, inputs: int, outputs: int, net: Net, adaptive: bool, attention: bool):
        super().__init__()
        self.dropout, self.rescale = net.dropout, net.rescale
        norms = net.condition if adaptive and net.kind == "u-vit" else 0
        bias = net.published and net.kind == "unet"
        self.norm1, self.conv1 = Norm(inputs, net.published, norms), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.shift = Linear(net.condition, outputs, bias=bias) if adaptive and not norms else None
        self.norm2, self.conv2 = Norm(outputs, net.published, norms), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else None
        self.attention = Attention(outputs, net) if attention else None

    def forward(self, x: Tensor, c: Tensor | None) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x, c)))
        if self.shift is not None:
            h = h + self.shift(c)[:, :, None, None]
        h = self.conv2(F.dropout(F.silu(self.norm2(h, c)), self.dropout, self.training))
        x = add_branch(x if self.shortcut is None else self.shortcut(x), h, self.rescale)
        return x if self.attention is None else self.attention(x)


class UNet(nn.Module):
    """States (B, L) -> hidden states (B, L, D) by `features`, -> logits (*, K) by `head`; L positions of `net.grid`.

    `states` is K, the mask included. With `time` the network is conditioned on the time of each sequence. `outputs` is
    what the head gives where that is not K logits. With `levels` it reads the states as numbers, not as names.
    """

    def __init__(self, net: Net, states: int, time: bool = False, outputs: int | None = None, levels: bool = False):
        super().__init__()
        if len(net.grid) not in (2, 3):
            shape = f"a grid of {' x '.join(map(str, net.grid))}" if net.grid else f"a line of {net.length:,}"
            raise InputError(
                f"`net.kind` {net.kind} is for images (height width, or height width colours), and the rows are "
                f"{shape}; use `net.kind` dit"
            )
        self.net, self.states, self.time_conditioned, self.levels = net, states, time, levels
        self.image = (*net.grid, 1)[:3]
        D, colours = net.channels, self.image[2]
        widths = [D * m for m in (net.multipliers if net.kind == "unet" else (1,))]
        blocks = net.blocks or {"unet": 2, "flat-unet": 32, "u-vit": 24}[net.kind]
        attention = self._attention(len(widths))
        adaptive = time or net.classes > 0
        self.embedding = None if levels else nn.Embedding(states, D)
        silu = net.kind == "unet" or not net.published
        self.time = TimeEmbedding(net.condition, D, 4 * D, net.published, silu) if time else None
        self.classes = nn.Embedding(net.classes + 1, net.condition) if net.classes else None
        self.input = nn.Conv2d(colours if levels else colours * D, D, 3, padding=1)
        self.down, skips, width = nn.ModuleList(), [D], D
        for i, outputs_ in enumerate(widths):
            if i:
                self.down.append(nn.Conv2d(width, width, 3, stride=2, padding=0 if net.published else 1))
                skips.append(width)
            for _ in range(blocks):
                self.down.append(ResBlock(width, outputs_, net, adaptive, attention[i]))
                skips.append(width := outputs_)
        if net.kind == "u-vit":
            self.middle = nn.ModuleList([PatchTransformer(width, self.image[:2], net, adaptive)])
        else:
            self.middle = nn.ModuleList(ResBlock(width, width, net, adaptive, a) for a in (True, False))
        self.up = nn.ModuleList()
        for i, outputs_ in reversed([*enumerate(widths)]):
            for _ in range(blocks + 1):
                self.up.append(ResBlock(width + skips.pop(), outputs_, net, adaptive, attention[i]))
                width = outputs_
            if i:
                self.up.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm = Norm(width, net.published, net.condition if adaptive and net.kind == "u-vit" else 0)
        self.output = nn.Conv2d(width, colours * D, 3, padding=1)
        self.head = Linear(D, outputs or states)
        self.initialise()

    def _attention(self, resolutions: int) -> list[bool]:
        """Resolutions with attention; InputError for a requested side that is none of them."""
        sides = [max(self.image[:2])]
        while len(sides) < resolutions:
            sides.append((sides[-1] + 1) // 2)
        requested_sides = self.net.attention
        missing = [side for side in requested_sides if side not in (0, *sides)]
        if missing and requested_sides != Net.attention:
            height, width, _ = self.image
            raise InputError(
                f"`net.attention` is {missing[0]}; the resolutions of {height} x {width} are "
                f"{', '.join(map(str, sides))}"
            )
        return [side in requested_sides for side in sides]

    def initialise(self) -> None:
        """First weights as each kind's authors have them; the head is zero, so that its first distribution is uniform
        (or about x_t)."""
        if self.net.published:
            return first_weights(self, self.net)
        for name, p in self.named_parameters():
            if p.ndim == 1:
                nn.init.constant_(p, float("norm" in name and name.endswith("weight")))
            elif name.startswith("head") or name.endswith(ZERO) or "modulation" in name:
                nn.init.zeros_(p)
            else:
                nn.init.normal_(p, std=1.0 if name.endswith(("embedding.weight", "places")) else p[0].numel() ** -0.5)

    def features(
        self,
        x: Tensor,
        time: Tensor | None = None,
        *,
        segments: Tensor | None = None,
        condition: Tensor | None = None,
    ) -> Tensor:
        """The hidden states (B, L, D) that `head` reads.

        x (B, L) states, all positions of the image; time: a scalar or (B,), finite, for a network with time and only
        for one; condition (B,), for a network with classes: the class of each row, or -1 or the last (as None): it has
        none.
        """
        self._check(x, time, segments, condition)
        c = self.conditioning(x, time, condition)
        h = self.input(self._embed(x))
        skips = [h]
        for layer in self.down:
            h = self._run(layer, h, c)
            skips.append(h)
        for layer in self.middle:
            h = self._run(layer, h, c)
        for layer in self.up:
            if isinstance(layer, ResBlock):
                h = self._run(layer, torch.cat((h, skips.pop()), 1), c)
            else:
                height, width = skips[-1].shape[2:]
                h = layer(doubled(h)[:, :, :height, :width])
        h = self.output(F.silu(self.norm(h, c)))
        return h.permute(0, 2, 3, 1).reshape(*x.shape, self.net.channels)

    def conditioning(self, x: Tensor, time: Tensor | None, condition: Tensor | None = None) -> Tensor | None:
        """Conditioning of all blocks, (B or 1, condition); None for an unconditional network."""
        c = None if self.time is None or time is None else self.time(time.reshape(-1))
        if self.classes is None:
            return c
        classes = embed_classes(self.classes.weight, condition, len(x))
        return classes if c is None else c + classes

    def _embed(self, x: Tensor) -> Tensor:
        """(B, L) states -> (B, C D or C, H, W)."""
        if self.embedding is None:
            values = 2 * x.to(self.input.weight.dtype) / max(self.states - 1, 1) - 1
        else:
            values = self.embedding(x)
        height, width, _ = self.image
        image = values.reshape(len(x), height, width, self.input.in_channels).permute(0, 3, 1, 2)
        return image.contiguous(memory_format=torch.channels_last)

    def _run(self, layer: nn.Module, h: Tensor, c: Tensor | None) -> Tensor:
        if isinstance(layer, nn.Conv2d):
            height, width = h.shape[2:]
            return layer(F.pad(h, (width % 2, 1, height % 2, 1)) if self.net.published else h)
        if self.net.checkpoint and isinstance(layer, ResBlock) and torch.is_grad_enabled():
            return checkpoint(layer, h, c, use_reentrant=False)
        return layer(h, c)

    def _check(self, x: Tensor, time: Tensor | None, segments: Tensor | None, condition: Tensor | None) -> None:
        """InputError for what does not fit this network."""
        if x.shape[1] != self.net.length or segments is not None:
            shape = " x ".join(map(str, self.net.grid))
            raise InputError(f"a U-Net of {shape} takes all its {self.net.length:,} positions, without segments")
        if time is not None and time.ndim > 1:
            raise InputError(
                f"the time is {tuple(time.shape)}; a U-Net takes one for each row, ({len(x)},), or one for all"
            )
        check_inputs(self.time_conditioned, time, self.classes, condition)

    def forward(self, x: Tensor, time: Tensor | None = None, **kwargs) -> Tensor:
        """Logits (B, L, K) at every position: for small K and for tests."""
        return self.head(self.features(x, time, **kwargs))
