"""Changes of the network and of the batches that speed-runs of small language models found, each alone.

    qk=1           RMS norm of queries and keys (Henry et al. 2020)
    relu2=1        squared ReLU instead of GELU in the MLP (So et al. 2021)
    values=1       each block's values are half the first block's, by a share that is learnt (Zhou et al. 2024)
    tied=1         the head has the matrix of the embedding
    zero=1         the last matrix of each residual branch begins at 0
    masks=0.1,0.9  the share of masks is drawn between these in training (`mdlm`)
    masks=beta     its density is 6 u (1 - u)
    grow=batch     8, 16 and 32 rows a step, each for a third of the time
    grow=length    rows of 32, 64 and 128 tokens, each for a third of the time, in steps of as many tokens

They change a method before its first step, except `grow`, which is a list of stages.
"""

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zellige.nn.attention import attend
from zellige.nn.embedding import rotate

Stage = tuple[float, int, int]  # share of the time, rows of a step, tokens of a row


def stages(grow: str, batch: int, length: int) -> list[Stage]:
    if grow == "batch":
        return [(1 / 3, batch // 2, length), (1 / 3, batch, length), (1 / 3, batch * 2, length)]
    if grow == "length":
        return [(1 / 3, batch * 4, length // 4), (1 / 3, batch * 2, length // 2), (1 / 3, batch, length)]
    return [(1.0, batch, length)]


class SquaredReLU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x).square()


def change(method: Any, lever: str) -> None:
    """Change the network of a method that was just built."""
    network = method.network
    if lever == "zero":
        for name, p in network.named_parameters():
            if name.endswith((".out.weight", ".mlp.2.weight")):
                nn.init.zeros_(p)
    elif lever == "tied":  # logits of deviation 1 at first: the last norm has the factor
        network.head.weight = network.embedding.weight
        nn.init.constant_(network.norm.weight, network.net.hidden**-0.5)
    elif lever == "relu2":
        for block in network.blocks:
            block.mlp[1] = SquaredReLU()
    elif lever in ("qk", "values"):
        first: dict[str, Tensor] = {}
        for block in network.blocks:
            if lever == "values" and block is not network.blocks[0]:
                block.share = nn.Parameter(torch.tensor(0.5))
            block.attention = types.MethodType(_attention, block)
            block.lever, block.first = lever, first
    else:
        raise ValueError(f"no lever '{lever}'")


def _attention(block, x, rotary, seen, past, at=None):
    """As `Block.attention` without a cache, with normed queries and keys or with the first block's values."""
    B, L, D = x.shape
    qk, v = block.qkv(x).view(B, L, 3, block.heads, D // block.heads).tensor_split((2,), 2)
    if block.lever == "qk":
        qk = F.rms_norm(qk, qk.shape[-1:])
    elif not hasattr(block, "share"):
        block.first["values"] = v
    else:
        v = torch.lerp(v, block.first["values"], block.share.to(v.dtype))
    cos, sin = (r[..., None, None, :].to(qk.dtype) for r in rotary)
    q, k = (y.transpose(1, 2) for y in rotate(qk, cos, sin).unbind(2))
    v = v.squeeze(2).transpose(1, 2)
    values = attend(q, k, v, seen.plan).transpose(1, 2).reshape(B, L, D)
    return block.out(values if at is None else at.of(values)), k, v


@contextlib.contextmanager
def shares(method: Any, *which: str) -> Iterator[None]:
    """Draw shares of masks from another density, with the weights that they have in the bound."""
    spread = method.spread

    def drawn(n: Tensor, generator: Any = None) -> Tensor:
        v = spread(n, generator)
        if which == ("beta",):
            return 0.5 - ((1 - 2 * v).asin() / 3).sin()
        low, high = map(float, which)
        return low + (high - low) * v

    method.spread = drawn
    try:
        yield
    finally:
        del method.spread
