"""A transformer in the middle of a U-Net, on patches of 2 x 2 pixels: the blocks are those of `DiT`."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .attention import ALL
from .block import Block, Net
from .embedding import Modulation, axial_table, modulate

PATCH = 2


class Patches(nn.Module):
    """Images (B, channels, H, W) -> (B, channels, H, W), through `net.layers` blocks on a patch a position.

    A side that is odd is filled up with a line of zeros. What it is told is (B or 1, condition).
    """

    rotary: Tensor

    def __init__(self, channels: int, image: tuple[int, ...], net: Net, adaptive: bool):
        super().__init__()
        self.checkpoint, (height, width) = net.checkpoint, ((side + 1) // PATCH for side in image)
        self.patch = nn.Conv2d(channels, net.hidden, PATCH, stride=PATCH)
        self.places = nn.Parameter(torch.empty(height * width, net.hidden))
        self.blocks = nn.ModuleList(Block(net, adaptive, bias=False) for _ in range(net.layers))
        self.norm = nn.LayerNorm(net.hidden, bias=False)
        self.modulation = Modulation(net.condition, net.hidden, 2) if adaptive else None
        self.pixels = nn.Linear(net.hidden, PATCH * PATCH * channels)
        self.register_buffer("rotary", axial_table((height, width), net.hidden // net.heads), persistent=False)

    def forward(self, x: Tensor, c: Tensor | None) -> Tensor:
        height, width = x.shape[2:]
        patches = self.patch(F.pad(x, (0, width % PATCH, 0, height % PATCH)))
        h, rotary = patches.flatten(2).mT + self.places, tuple(self.rotary)
        modulation = () if c is None else (c, torch.arange(len(c), device=c.device)[:, None])
        for block in self.blocks:
            if self.checkpoint and torch.is_grad_enabled():
                h = checkpoint(block, h, rotary, modulation, ALL, use_reentrant=False)
            else:
                h = block(h, rotary, modulation, ALL)
        vectors = (None, None) if self.modulation is None else self.modulation(*modulation)
        h = self.pixels(modulate(self.norm, h, *vectors)).mT.reshape(len(x), -1, *patches.shape[2:])  # pyright: ignore
        image = F.pixel_shuffle(h, PATCH)[:, :, :height, :width]
        return image.contiguous(memory_format=torch.channels_last)
