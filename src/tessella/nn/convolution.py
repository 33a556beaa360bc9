"""The short convolution before attention: along the sequence, over a grid, or within what a position of a block may see."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tessella.nn.attention import ALL, Sight


class ShortConv(nn.Module):
    """A depthwise convolution along the sequence, (B, L, D) -> (B, L, D), zero beyond its ends (and across documents).

    On a grid of two or three axes it is one over the grid: kernel x kernel (x kernel). In blocks a position reads, of its
    neighbours, what attention may see too: those of its own block and of those before, in the clean stream if there are two.
    """

    def __init__(self, hidden: int, kernel: int, grid: tuple[int, ...] = ()):
        super().__init__()
        self.kernel, self.grid = kernel, grid if 2 <= len(grid) <= 3 else ()
        self.weight = nn.Parameter(torch.empty(kernel ** max(len(self.grid), 1), hidden))

    def forward(self, x: Tensor, sight: Sight = ALL, tail: Tensor | None = None) -> Tensor:
        """x (B, L, D), with two streams the noisy rows before the clean ones; tail (B, kernel // 2, D), what stood before."""
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
        """Each block by itself, behind the clean positions that it reaches and before zeros."""
        reach, b, (B, L, D) = self.kernel // 2, sight.block, x.shape
        blocks = -(-L // b)
        clean = x[B // 2 :] if sight.streams == 2 else x
        past = F.pad(clean, (0, 0, reach, 0)) if tail is None else torch.cat((tail, clean), 1)
        past = past.unfold(1, reach, b)[:, :blocks].repeat(sight.streams, 1, 1, 1)  # (B, blocks, D, reach)
        own = F.pad(x, (0, 0, 0, blocks * b - L)).unflatten(1, (blocks, b)).mT
        window = F.pad(torch.cat((past, own), -1), (0, reach)).flatten(0, 1)
        out = F.conv1d(window, self.weight.T[:, None].to(x.dtype), groups=D)
        return out.mT.reshape(B, blocks * b, D)[:, :L]

    def in_documents(self, x: Tensor, sight: Sight) -> Tensor:
        """Neighbour by neighbour, since documents begin and end anywhere."""
        reach, L = self.kernel // 2, x.shape[1]
        assert sight.document is not None
        document = sight.document
        order = torch.zeros_like(document) if sight.order is None else sight.order
        clean = x[len(x) // 2 :] if sight.streams == 2 else x
        own, past = (F.pad(y, (0, 0, reach, reach)) for y in (x, clean.repeat(sight.streams, 1, 1)))
        documents, orders = (F.pad(y, (reach, reach), value=-1) for y in (document, order))
        out = torch.zeros_like(x)
        for d, w in enumerate(self.weight):
            same = documents[:, d : d + L] == document
            here, earlier = same & (orders[:, d : d + L] == order), same & (orders[:, d : d + L] < order)
            here, earlier = (y[..., None].repeat(sight.streams, 1, 1) for y in (here, earlier))
            read = own[:, d : d + L] * here
            if sight.order is not None:
                read = read + past[:, d : d + L] * earlier
            out = out + w * read
        return out
