"""A transformer in the middle of a U-Net, on patches of 2 x 2 pixels, as MD4 has it (Shi et al. 2024, arXiv 2406.04329)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .attention import ALL
from .block import Block, Net
from .embedding import Modulation, add, axial_table, modulate

PATCH = 2


class PatchBlock(nn.Module):
    """Attention and MLP on patches (B, N, D), each a residual branch behind a norm that has nothing learnt but what it is told.

    What it is told is (B or 1, condition); told nothing it has RMS norms. Dropout is at the products of attention, of whole
    channels after it, and twice in the MLP.
    """

    def __init__(self, net: Net, adaptive: bool):
        super().__init__()
        D, self.heads, self.dropout = net.hidden, net.heads, net.dropout
        self.norm1: Any = norm(D, adaptive)
        self.norm2: Any = norm(D, adaptive)
        self.qkv = nn.Linear(D, 3 * D)
        self.out = nn.Linear(D, D, bias=False)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(approximate="tanh"), nn.Linear(4 * D, D))
        self.modulation = Modulation(net.condition, D, 6) if adaptive else None

    def forward(self, x: Tensor, c: Tensor | None) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = told(self.modulation, c, 6)
        x = add(x, gate1, self.attention(modulate(self.norm1, x, shift1, scale1)))
        h = self.mlp[1](self.mlp[0](modulate(self.norm2, x, shift2, scale2)))
        h = self.mlp[2](F.dropout(h, self.dropout, self.training))
        return add(x, gate2, F.dropout(h, self.dropout, self.training))

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        y = self.out(mixed.transpose(1, 2).flatten(2))
        return y * F.dropout(torch.ones_like(y[:, :1]), self.dropout, self.training)


def norm(width: int, adaptive: bool) -> nn.Module:
    """A layer norm with nothing learnt, which is told what to do; or an RMS norm."""
    return nn.LayerNorm(width, eps=1e-6, elementwise_affine=False) if adaptive else nn.RMSNorm(width, eps=1e-6)


def told(modulation: Modulation | None, c: Tensor | None, parts: int) -> tuple[Tensor | None, ...]:
    """The vectors (B or 1, 1, D) of what all patches are told, None where that is nothing."""
    if modulation is None or c is None:
        return (None,) * parts
    return tuple(vector[:, None] for vector in modulation(F.silu(c)))


class Patches(nn.Module):
    """Images (B, channels, H, W) -> (B, channels, H, W), through `net.layers` blocks on a patch a position.

    A side that is odd is filled up with a line of zeros. What it is told is (B or 1, condition). Each place has an embedding of
    its own; where not `net.published` the blocks are those of `DiT`, with rotary positions beside it.
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
        self.pixels = nn.Linear(net.hidden, PATCH * PATCH * channels)

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
            vectors = told(self.modulation, c, 2)
        else:
            vectors = (None, None) if self.modulation is None else self.modulation(*modulation)
        h = self.pixels(modulate(self.norm, h, *vectors)).mT.reshape(len(x), -1, *patches.shape[2:])  # pyright: ignore
        image = F.pixel_shuffle(h, PATCH)[:, :, :height, :width]
        return image.contiguous(memory_format=torch.channels_last)
