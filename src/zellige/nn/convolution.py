"""The short convolution before attention: along the sequence, over a grid, or within what a position of a block may see."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .attention import ALL, Sight


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


class Near(torch.autograd.Function):
    """The convolution in blocks, weight after weight; nothing but its input is kept for the backward pass.

    x (streams * B, blocks, b, D), past (B, reach + blocks * b, D), the clean positions behind `reach` others, and weight
    (2 * reach + 1, D) -> as x.
    """

    @staticmethod
    def forward(ctx, x, past, weight):
        ctx.save_for_backward(x, past, weight)
        out = torch.zeros_like(x)
        for w, read, written in zip(*taps(weight, x, past, out, out.unflatten(0, (-1, len(past))))):
            written.addcmul_(read, w)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, past, weight = ctx.saved_tensors
        dx, dpast, dweight = torch.zeros_like(x), torch.zeros_like(past), torch.zeros_like(weight)
        whole = grad.unflatten(0, (-1, len(past))).sum(0, keepdim=True)  # both streams read the same past
        each = (taps(weight, x, past, grad, whole), taps(dweight, dx, dpast, grad, whole))
        for (w, read, written), (dw, dread, _) in zip(*(zip(*tap) for tap in each)):
            dread.addcmul_(written, w)
            dw.add_((read * written).flatten(0, -2).sum(0))
        return dx, dpast, dweight


def taps(weight, x, past, out, later) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Each weight, what it reads, and where that is added: in the block itself, then (to `later`) from those before."""
    reach, (blocks, b) = len(weight) // 2, x.shape[1:3]
    weights, read, written = [], [], []
    for d in range(max(-reach, 1 - b), min(reach, b - 1) + 1):
        weights.append(weight[reach + d])
        read.append(x[:, :, max(d, 0) : b + min(d, 0)])
        written.append(out[:, :, max(-d, 0) : b - max(d, 0)])
    for d in range(-reach, 0):  # places 0 .. -d - 1 of a block reach beyond its beginning
        weights.append(weight[reach + d])
        read.append(past[None, :, reach + d :][:, :, : blocks * b].unflatten(2, (blocks, b))[:, :, :, :-d])
        written.append(later[:, :, :, :-d])
    return weights, read, written
