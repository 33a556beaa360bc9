"""Patches of an image: what a transformer reads instead of each pixel (`net.patch`), as ViT (Dosovitskiy et al. 2021,
arXiv 2010.11929) and DiT (Peebles & Xie 2023, arXiv 2212.09748) do.

    pixels (B, L, W)  ->  patches (B, N, D)    the p x p pixels of a patch, all their colours, through one matrix
    patches (B, N, D) ->  pixels (B, L, W)     each pixel W features of its own, added to how it was embedded; GELU

L = H W C positions, N = (H / p) (W / p) patches, W = D / p features of a pixel. Attention then costs 1 / p^4.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from ..base.errors import InputError
from .block import Net
from .linear import Linear


class Patches(nn.Module):
    """Pixels (B, L, W) to patches (B, N, D) by `join`, and back by `part`."""

    def __init__(self, net: Net):
        super().__init__()
        if not net.grid:
            raise InputError(f"`net.patch` is for images, and the rows are a line of {net.length:,}; leave it out")
        self.patch, (self.rows, self.columns) = net.patch, net.cells
        features = net.hidden * net.length // net.patch // (self.rows * self.columns)
        self.into, self.onto = Linear(features, net.hidden), Linear(net.hidden, features)

    def join(self, pixels: Tensor) -> Tensor:
        """The patches (B, N, D), line by line."""
        shape = len(pixels), self.rows, self.patch, self.columns, self.patch, -1
        return self.into(pixels.reshape(shape).transpose(2, 3).flatten(3).flatten(1, 2))

    def part(self, patches: Tensor, pixels: Tensor) -> Tensor:
        """Features of the pixels (B, L, W); `pixels` is what `join` was given."""
        shape = len(pixels), self.rows, self.columns, self.patch, self.patch, -1
        parts = self.onto(patches).reshape(shape).transpose(2, 3).reshape(pixels.shape)
        return F.gelu(parts + pixels, approximate="tanh")
