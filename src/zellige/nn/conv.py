"""A block of dilated convolutions: where a transformer's block attends, it reads fixed distances along the sequence.

Layer i reads `kernel` positions 2^i apart (again 1 apart where a kernel would be wider than the row), each channel by
weights of its own, and a gate multiplies the outcome: the cost grows with the length, not with its square. Everything
round it is a transformer's (`DiT`): norms, MLP, times, classes. In both directions for masks and uniform noise; in a
causal network, which AR has, a position reads itself and those before. Such networks are used of DNA, where they take
the place of Mamba here.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base.errors import InputError
from .attention import Past, Sight
from .block import Block, Net
from .linear import Linear

KERNEL = 9  # where `net.conv` says none


class Dilated(nn.Module):
    """Each channel's sum of `kernel` positions, `dilation` apart, (B, L, D) -> (B, L, D); zero beyond the ends."""

    def __init__(self, hidden: int, kernel: int, dilation: int):
        super().__init__()
        self.dilation = dilation
        self.reach = (kernel - 1) * dilation  # from the first position that it reads to the last
        self.weight = nn.Parameter(torch.empty(kernel, hidden))

    def forward(self, x: Tensor, causal: bool = False, document: Tensor | None = None) -> Tensor:
        """causal: position i reads i - (kernel - 1) dilation .. i. document (B, L):
        positions read those of the same number."""
        (kernel, D), L = self.weight.shape, x.shape[1]
        before = self.reach if causal else kernel // 2 * self.dilation
        after = self.reach - before
        weight = self.weight.to(x.dtype)
        if document is None:
            around = F.pad(x.mT, (before, after))
            return F.conv1d(around, weight.T[:, None], dilation=self.dilation, groups=D).mT
        around, documents = F.pad(x, (0, 0, before, after)), F.pad(document, (before, after), value=-1)
        out = torch.zeros_like(x)
        for k, w in enumerate(weight):
            span = slice(k * self.dilation, k * self.dilation + L)
            out = out + w * around[:, span] * (documents[:, span] == document)[..., None]
        return out


class ConvBlock(Block):
    """`Block` with a gated dilated convolution in the place of attention;
    what it remembers are the convolution's inputs."""

    def __init__(self, net: Net, adaptive: bool, bias: bool, layer: int):
        super().__init__(net, adaptive, bias)
        D, kernel = net.hidden, net.conv or KERNEL
        doublings = max((net.length // max(kernel - 1, 1)).bit_length(), 1)
        self.conv, self.qkv = None, Linear(D, 2 * D, bias=False)
        self.dilated = Dilated(D, kernel, 2 ** (layer % doublings))

    def attention(self, x: Tensor, rotary, seen: Sight, past: Past | None, at=None):
        u, gate = self.qkv(x).chunk(2, -1)
        u, nothing, n = u[:, None], u[:, None, :, :0], x.shape[1]
        if past is not None:
            u, nothing = past.followed(u, nothing)
        read = slice(-n - self.dilated.reach, None)  # of what is remembered
        document = None if seen.document is None else seen.document[:, read]
        y = self.dilated(u[:, 0, read], seen.block > 0, document)[:, -n:] * F.silu(gate)
        return self.out(y if at is None else at.of(y)), u, nothing


def refuse_blocks(net: Net, block: int) -> None:
    """InputError where a convolutional network would be read in blocks, or over a grid."""
    if block > 1:
        raise InputError(
            "`net.kind` conv reads a whole sequence, or from left to right, and not in blocks; use dit, or ar"
        )
    if net.grid:
        shape = " x ".join(map(str, net.grid))
        raise InputError(f"`net.kind` conv is for sequences, and the rows are a grid of {shape}; use dit, or unet")
