"""The sizes of a network, and one of a transformer's blocks: attention and MLP, each a residual branch behind a layer
norm.

A network may have a short convolution before its attention: along the sequence, over a grid, or within what a position
of a block may see.
"""

import math
from dataclasses import dataclass, fields
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..base.errors import InputError
from ..base.requests import check_fields, option
from .attention import ALL, Beside, Past, Sight, attend
from .embedding import Modulation, Places, add, chosen, modulate, rotate
from .linear import Linear


@partial(check_fields, prefix="net.")
@dataclass(frozen=True)
class Net:
    """Size and options of a network.

    `condition` is a width, and `checkpoint` is gradient checkpointing. With `constant` an adaptive layer norm has one
    vector for all positions, which goes into the layer norms and the residual sums, so it costs nothing.
    """

    layers: int = option("blocks of attention and MLP", default=6, minimum=1)
    hidden: int = option("width of the residual stream; the width per head must be even", default=256, minimum=1)
    heads: int = option("attention heads", default=8, minimum=1)
    length: int = option("tokens per sequence", default=256, minimum=1)
    conv: int = option(
        "kernel size (odd) of a short depthwise convolution in each block; with it, small models learn far sooner. 0: none, "
        "as in published checkpoints",
        default=0,
        minimum=0,
    )
    dropout: float = option("fraction of the activations dropped in training", default=0.0, minimum=0, below=1)
    drop_channels: bool = option(
        "dropout drops the same channels at all positions of a sequence, as MD4's code does", default=False
    )
    mlp: Literal["gelu", "swiglu"] = option(
        "MLP of a block: gelu (four times as wide) or swiglu (gated, with as many parameters; MD4 has it for texts)",
        default="gelu",
    )
    condition: int = option(
        "width of the embedding of times and classes, for a conditioned network", default=128, minimum=1
    )
    checkpoint: bool = option("gradient checkpointing: less memory, a third more work", default=False)
    grid: tuple[int, ...] = option(
        "shape of a sequence that is not a line: an image (height width), music (steps voices); the last "
        "axis runs fastest. Rotary positions are then axial, and each position has an embedding. Data "
        "with a shape sets it",
        default=(),
    )
    constant: bool = option(
        "adaptive layer norms that read the constant sigma = 0, as in published checkpoints without time input",
        default=False,
    )
    classes: int = option("number of classes, for a class-conditional network; 0: none", default=0, minimum=0)
    given: bool = option(
        "the network sees which positions are given; `data.given` sets it if the noise has no mask",
        default=False,
    )
    self_condition: bool = option(
        "the network reads each noisy text twice, the second time with its first prediction: an "
        "evaluation takes two passes",
        default=False,
    )
    latents: int = option(
        "number of values of a latent variable, for a mixture over it, as `zellige train distill --by di4c` makes; 0: none",
        default=0,
        minimum=0,
    )
    kind: Literal["dit", "conv", "unet", "flat-unet", "u-vit"] = option(
        "dit: a transformer; conv: dilated convolutions of `net.conv` positions (9), for long sequences such as DNA. For "
        "images also unet, as in D3PM and tauLDR; flat-unet, at one resolution, as in MD4; and u-vit, also in MD4: a "
        "flat-unet with `layers` of a transformer in the middle",
        default="dit",
    )
    channels: int = option("for a U-Net: channels at the first resolution", default=128)
    multipliers: tuple[int, ...] = option(
        "for unet: channels at each resolution, in multiples of `net.channels`; each resolution is half "
        "as fine as the one before",
        default=(1, 2, 2, 2),
    )
    blocks: int = option(
        "for a U-Net: residual blocks at each resolution on the way down; 0: as published (unet 2, flat-"
        "unet 32, u-vit 24)",
        default=0,
        minimum=0,
    )
    attention: tuple[int, ...] = option(
        "for a U-Net: attention after each block where the longer side of the image is one of these; 0: "
        "only in the middle",
        default=(16,),
    )
    patch: int = option(
        "for dit on images: side of the square patches, in pixels, that the transformer reads instead of single pixels; 4 "
        "makes its sequence 16 times shorter. 1: single pixels",
        default=1,
        minimum=1,
    )
    rescale: bool = option("for unet: residual sums are divided by the square root of 2, as in tauLDR", default=False)
    published: bool = option(
        "for a U-Net: padding, time frequencies, biases, dropout and initial weights as in the published "
        "code; without it, conventions of our own, as in the included model mnist",
        default=True,
    )

    def __post_init__(self) -> None:
        self._check_kind()
        if self.hidden % (2 * self.heads):
            raise InputError(
                f"`net.hidden` {self.hidden} does not split into `net.heads` {self.heads} of an even width; "
                f"try `net.hidden` {max(1, round(self.hidden / (2 * self.heads))) * 2 * self.heads}"
            )
        if self.conv and self.conv % 2 == 0:
            raise InputError(f"`net.conv` is {self.conv}; it must be an odd number, or 0 for no convolution")
        if self.grid and (min(self.grid) < 1 or math.prod(self.grid) != self.length):
            shape = " x ".join(map(str, self.grid))
            raise InputError(
                f"`net.grid` is {shape}, which is {math.prod(self.grid):,} positions, and `net.length` "
                f"{self.length:,}; they must be as many"
            )
        if self.hidden % self.patch:
            raise InputError(
                f"`net.hidden` is {self.hidden}; with `net.patch` {self.patch} it must be a multiple of {self.patch}, since "
                "each pixel has that part of it"
            )
        if self.grid and self.patch > 1 and (len(self.grid) == 1 or any(side % self.patch for side in self.grid[:2])):
            raise InputError(
                f"`net.patch` is {self.patch}, and the rows are {' x '.join(map(str, self.grid))}; it must divide the "
                "height and the width of an image; 1 for none"
            )

    def _check_kind(self) -> None:
        """InputError for a choice that means nothing to this kind of network, or is none of a U-Net."""
        if self.is_unet and self.given:
            raise InputError(f"`net.kind` {self.kind} cannot see which positions are given; use dit")
        if not self.is_unet:
            object.__setattr__(self, "published", True)  # it has no other
        usual = {field.name: field.default for field in fields(Net)}
        for name in UNREAD[self.kind]:
            if getattr(self, name) != usual[name]:
                kinds = " or ".join(kind for kind, names in UNREAD.items() if name not in names)
                raise InputError(f"`net.{name}` is for `net.kind` {kinds}, and this is {self.kind}; leave it out")
        if self.channels < 4 or self.channels % 4:
            raise InputError(
                f"`net.channels` is {self.channels}; it must be a multiple of 4, which groups are normalised in"
            )
        if not self.multipliers or min(self.multipliers) < 1:
            wrong = " ".join(map(str, self.multipliers)) or "empty"
            raise InputError(f"`net.multipliers` is {wrong}; it must be whole numbers of 1 or more, such as 1 2 2 2")
        if self.attention and min(self.attention) < 0:
            raise InputError(f"`net.attention` is {min(self.attention)}; it must be sides in pixels, or 0 for none")

    @property
    def is_unet(self) -> bool:
        """Return whether the network is a U-Net."""
        return self.kind not in ("dit", "conv")

    @property
    def cells(self) -> tuple[int, ...]:
        """Shape of what a transformer reads: `grid`, or its patches."""
        return self.grid if self.patch == 1 else tuple(side // self.patch for side in self.grid[:2])

    @property
    def width(self) -> int:
        """Width of the widest hidden states."""
        widest = {"dit": 0, "conv": 0, "unet": max(self.multipliers)}.get(self.kind, 1) * self.channels
        return max(widest, 0 if "hidden" in UNREAD[self.kind] else self.hidden)

    def __str__(self) -> str:
        inside = "convolutions" if self.kind == "conv" else f"{self.heads} heads"
        layers = f"{self.layers:,} layers of {self.hidden:,}, {inside}"
        if not self.is_unet:
            return layers + (f", on patches of {self.patch} x {self.patch}" if self.patch > 1 else "")
        widths = [self.channels * m for m in (self.multipliers if self.kind == "unet" else (1,))]
        return f"a U-Net of {', '.join(map(str, widths))} channels" + (
            f" round {layers}" if self.kind == "u-vit" else ""
        )


OF_DIT = ("conv", "constant", "self_condition", "drop_channels", "mlp", "latents")
UNREAD = {  # what each kind does not read
    "dit": ("channels", "multipliers", "blocks", "attention", "rescale"),
    "conv": ("channels", "multipliers", "blocks", "attention", "rescale", "patch"),
    "unet": ("layers", "hidden", "heads", *OF_DIT, "patch"),
    "flat-unet": ("layers", "hidden", "heads", *OF_DIT, "patch", "multipliers", "rescale"),
    "u-vit": (*OF_DIT, "patch", "multipliers", "rescale"),
}


class Gate(nn.Module):
    """SiLU of the first half of the channels times the second half: (*, 2 H) -> (*, H)."""

    def forward(self, x: Tensor) -> Tensor:
        gate, value = x.chunk(2, -1)
        return F.silu(gate) * value


def mlp(net: Net) -> nn.Sequential:
    """MLP of a block: tanh-GELU of 4 D channels, or SwiGLU (Shazeer 2020) of 8 D/3, rounded up to a multiple of 32,
    no biases."""
    D = net.hidden
    if net.mlp == "gelu":
        return nn.Sequential(Linear(D, 4 * D), nn.GELU(approximate="tanh"), Linear(4 * D, D))
    H = 32 * -(-8 * D // 96)  # as many parameters as 4 D channels have, as MD4's code rounds it
    return nn.Sequential(Linear(D, 2 * H, bias=False), Gate(), Linear(H, D, bias=False))


class Block(nn.Module):
    """Attention and MLP, each a residual branch behind a layer norm; before them, if asked for, a short convolution.

    The convolution is a branch of its own, on the residual stream itself, and starts large and random, so that from the
    first step a position knows its neighbours and their order. That breaks the plateau on which a small model otherwise
    sits. On a-z prose (hidden 128, 4 blocks, kernel 7, 400 steps at rate 4e-3) it gives 2.95 bits per character,
    against 2.96 behind a layer norm of its own, 3.76 when it starts at zero, 3.84 inside the attention branch, 3.94
    without.
    """

    matrices = ("qkv", "out", "mlp")  # Muon may train them: see `training.optimizer`

    def __init__(self, net: Net, adaptive: bool, bias: bool):
        super().__init__()
        D = net.hidden
        self.heads, self.dropout, self.drop_channels = net.heads, net.dropout, net.drop_channels
        self.conv = ShortConv(D, net.conv, net.cells) if net.conv else None
        self.norm1 = nn.LayerNorm(D, bias=bias)
        self.qkv = Linear(D, 3 * D, bias=False)
        self.out = Linear(D, D, bias=False)
        self.norm2 = nn.LayerNorm(D, bias=bias)
        self.mlp = mlp(net)
        self.modulation = Modulation(net.condition, D, 6) if adaptive else None

    def attention(
        self,
        x: Tensor,
        rotary: tuple[Tensor, Tensor],
        seen: Sight,
        past: Past | Beside | None,
        at: Places | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, L, D) -> (B, L, D), or (N, D) of the positions `at`, and all keys and values (B, H, P + L, W), those of
        the P remembered positions first."""
        B, L, D = x.shape
        qkv = self.qkv(x).view(B, L, 3, self.heads, D // self.heads)
        cos, sin = (r[..., None, None, :].to(qkv.dtype) for r in rotary)
        q, k = rotate(qkv[:, :, :2], cos, sin).unbind(2)
        q, k, v = (y.transpose(1, 2) for y in (q, k, qkv[:, :, 2]))
        if past is not None:
            k, v = past.followed(k, v)
        values = attend(q, k, v, seen.plan).transpose(1, 2).reshape(B, L, D)
        return self.out(values if at is None else at.of(values)), k, v

    def remember(self, x, rotary, time, seen, past=None, at: Places | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """As `forward`, with all keys and values."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(*time) if self.modulation else [None] * 6
        if self.conv is not None and isinstance(past, Beside):
            stream, before = past.around(x, self.conv.kernel // 2)
            x = x + self.conv(stream)[:, before : before + x.shape[1]]
        elif self.conv is not None:
            x = x + self.conv(x, seen, None if past is None else past[2])
        y, k, v = self.attention(modulate(self.norm1, x, shift1, scale1), rotary, seen, past, at)
        shape = x.shape
        x, gate1, shift2, scale2, gate2 = chosen(at, x, gate1, shift2, scale2, gate2)
        x = add(x, gate1, self._drop(y, shape, at))
        h = modulate(self.norm2, x, shift2, scale2)
        return add(x, gate2, self._drop(self.mlp(h), shape, at)), k, v

    def _drop(self, y: Tensor, shape: torch.Size, at: Places | None) -> Tensor:
        """y with dropout; at some positions only, that of all positions (B, L, D):
        it does not depend on which are asked."""
        if not self.training or self.dropout == 0:
            return y
        if at is None and not self.drop_channels:
            return F.dropout(y, self.dropout)
        positions = 1 if self.drop_channels else shape[1]
        kept = F.dropout(y.new_ones(shape[0], positions, shape[2]), self.dropout).expand(shape)
        return y * (kept if at is None else at.of(kept))

    def forward(self, x, rotary, time, seen, past=None, at: Places | None = None) -> Tensor:
        """x (B, L, D), the residual stream; time: what `Modulation` takes, or (); past: keys, values and tail of a
        cache.

        at: the positions that are read; what follows attention is computed there alone, (N, D).
        """
        return self.remember(x, rotary, time, seen, past, at)[0]


class ShortConv(nn.Module):
    """A depthwise convolution along the sequence, (B, L, D) -> (B, L, D), zero beyond its ends (and across documents).

    On a grid of two or three axes it is one over the grid: kernel x kernel (x kernel). In blocks a position reads, of
    its neighbours, what attention may see too: those of its own block and of those before, in the clean stream if there
    are two.
    """

    def __init__(self, hidden: int, kernel: int, grid: tuple[int, ...] = ()):
        super().__init__()
        self.kernel, self.grid = kernel, grid if 2 <= len(grid) <= 3 else ()
        self.weight = nn.Parameter(torch.empty(kernel ** max(len(self.grid), 1), hidden))

    def forward(self, x: Tensor, sight: Sight = ALL, tail: Tensor | None = None) -> Tensor:
        """x (B, L, D), with two streams the noisy rows before the clean ones; tail (B, kernel // 2, D),
        what stood before."""
        if sight.document is not None:
            return self.in_documents(x, sight)
        if sight.block:
            return self.in_blocks(x, sight, tail)
        reach, (B, L, D) = self.kernel // 2, x.shape
        axes = self.grid or (L,)
        weight = self.weight.T.reshape(D, 1, *[self.kernel] * len(axes)).to(x.dtype)
        convolve = (F.conv1d, F.conv2d, F.conv3d)[len(axes) - 1]
        return convolve(x.mT.reshape(B, D, *axes), weight, padding=reach, groups=D).reshape(B, D, L).mT

    def in_blocks(self, x: Tensor, sight: Sight, tail: Tensor | None) -> Tensor:
        """Each block by itself, and what it reaches of the clean positions before it."""
        reach, b, (B, L) = self.kernel // 2, sight.block, x.shape[:2]
        x = F.pad(x, (0, 0, 0, -L % b))
        clean = x[B // 2 :] if sight.streams == 2 else x
        past = F.pad(clean, (0, 0, reach, 0)) if tail is None else torch.cat((tail, clean), 1)
        return Near.apply(x.unflatten(1, (-1, b)), past, self.weight.to(x.dtype)).flatten(1, 2)[:, :L]

    def in_documents(self, x: Tensor, sight: Sight) -> Tensor:
        """Neighbour by neighbour, since documents begin and end anywhere."""
        reach, L = self.kernel // 2, x.shape[1]
        assert sight.document is not None
        document = sight.document
        order = torch.zeros_like(document) if sight.order is None else sight.order
        clean = x[len(x) // 2 :] if sight.streams == 2 else x
        stream, past = (F.pad(y, (0, 0, reach, reach)) for y in (x, clean.repeat(sight.streams, 1, 1)))
        documents, orders = (F.pad(y, (reach, reach), value=-1) for y in (document, order))
        out = torch.zeros_like(x)
        for d, w in enumerate(self.weight):
            same = documents[:, d : d + L] == document
            same_block, earlier = same & (orders[:, d : d + L] == order), same & (orders[:, d : d + L] < order)
            same_block, earlier = (y[..., None].repeat(sight.streams, 1, 1) for y in (same_block, earlier))
            read = stream[:, d : d + L] * same_block
            if sight.order is not None:
                read = read + past[:, d : d + L] * earlier
            out = out + w * read
        return out


class Near(torch.autograd.Function):
    """The convolution in blocks, weight after weight; nothing but its input is kept for the backward pass.

    x (streams * B, blocks, b, D), past (B, reach + blocks * b, D), the clean positions behind `reach` others, and
    weight (2 * reach + 1, D) -> as x.
    """

    @staticmethod
    def forward(ctx, x, past, weight):
        ctx.save_for_backward(x, past, weight)
        out = torch.zeros_like(x)
        for w, read, target in zip(*taps(weight, x, past, out, out.unflatten(0, (-1, len(past))))):
            target.addcmul_(read, w)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, past, weight = ctx.saved_tensors
        dx, dpast, dweight = torch.zeros_like(x), torch.zeros_like(past), torch.zeros_like(weight)
        whole = grad.unflatten(0, (-1, len(past))).sum(0, keepdim=True)  # both streams read the same past
        tap_lists = (taps(weight, x, past, grad, whole), taps(dweight, dx, dpast, grad, whole))
        for (w, read, target), (dw, dread, _) in zip(*(zip(*tap) for tap in tap_lists)):
            dread.addcmul_(target, w)
            dw.add_((read * target).flatten(0, -2).sum(0))
        return dx, dpast, dweight


def taps(weight, x, past, out, later) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Each weight, what it reads, and where that is added: in the block itself, then (to `later`) from those before."""
    reach, (blocks, b) = len(weight) // 2, x.shape[1:3]
    weights, read, targets = [], [], []
    for d in range(max(-reach, 1 - b), min(reach, b - 1) + 1):
        weights.append(weight[reach + d])
        read.append(x[:, :, max(d, 0) : b + min(d, 0)])
        targets.append(out[:, :, max(-d, 0) : b - max(d, 0)])
    for d in range(-reach, 0):  # positions 0 .. -d - 1 of a block reach beyond its beginning
        weights.append(weight[reach + d])
        read.append(past[None, :, reach + d :][:, :, : blocks * b].unflatten(2, (blocks, b))[:, :, :, :-d])
        targets.append(later[:, :, :, :-d])
    return weights, read, targets
