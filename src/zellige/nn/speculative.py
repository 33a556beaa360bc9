"""A causal head on a frozen network: the distribution of a token given the tokens drafted before it, in any order.

One attention block, as the last one of self-speculative masked diffusion (Campbell et al. 2025, arXiv 2510.03929). The
network has read the masked sequence; the block reads its hidden states h, the drafted tokens x, and `turn`, when each
was drafted:

    query     h of the position to be predicted, at that position: one evaluation predicts all of them (sigma-GPT)
    keys      h and x of the drafted positions, those of earlier turns only; and a zero key with a zero value
    output    h, to which attention and an MLP add what the drafted tokens change; the network's own head reads it

A position with no draft before it keeps its h, so the first token of a pass has the network's own distribution. Both
branches start at zero: an untrained head predicts what the network predicts. The short convolution is not added to h
but read by both, and starts large and random, so that from the first step the head knows which drafts stand beside a
position (as in `block.py`).

Differences from the paper: the head reads the revealed tokens by way of h alone; its queries are separate from its
keys, where the paper's one stream holds each token together with the next position; and it has a short convolution
where the network has one.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .embedding import axial_table, rotary_at, rotate


class CausalHead(nn.Module):
    """Hidden states h (B, L, D), tokens x (B, L) and turns (B, L) -> hidden states (B, L, D) that know the drafts
    before.

    Position p sees position j if turn_j < turn_p. A turn is below L where a token is drafted, and L elsewhere.

    Args:
        states: K, the tokens' number.
        width: D.
        heads: attention heads; they split D into even parts.
        conv: kernel of a short depthwise convolution over the drafted neighbours; 0 for none.
        grid: the shape of the positions, where they are no line.
    """

    def __init__(self, states: int, width: int, heads: int, conv: int = 0, grid: tuple[int, ...] = ()):
        super().__init__()
        self.heads, self.grid = heads, grid
        self.embedding = nn.Embedding(states, width)
        self.norm = nn.LayerNorm(width, bias=False)
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.neighbours = nn.Parameter(torch.empty(conv, width))
        self.norm2 = nn.LayerNorm(width, bias=False)
        wider, back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.mlp = nn.Sequential(wider, nn.GELU(approximate="tanh"), back)
        nn.init.normal_(self.embedding.weight, std=1.0)
        if conv:
            nn.init.normal_(self.neighbours, std=2 / math.sqrt(conv))
        for linear in (self.query, self.key_value, wider):
            nn.init.normal_(linear.weight, std=1 / math.sqrt(width))
        for linear in (self.out, back):
            nn.init.zeros_(linear.weight)
        nn.init.zeros_(back.bias)

    def forward(self, h: Tensor, x: Tensor, turn: Tensor) -> Tensor:
        """The hidden states of all positions; those of positions that are not drafted mean nothing."""
        B, L, D = h.shape
        visible = turn[:, None, :] < turn[:, :, None]  # of query and key
        source = self.norm(h) + self.embedding(x)
        beside = self._neighbours(source, turn)
        q = self.query(self.norm(h + beside)).view(B, L, self.heads, D // self.heads)
        k, v = self.key_value(source).view(B, L, 2, self.heads, D // self.heads).unbind(2)
        cos, sin = (r[None, :, None, :].to(h.dtype) for r in self._rotary(L, D // self.heads, h.device))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        k, v = F.pad(k, (0, 0, 1, 0)), F.pad(v, (0, 0, 1, 0))  # the zero key, which is always visible
        mask = F.pad(visible, (1, 0), value=True)[:, None]
        values = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(B, L, D)
        y = h + self.out(values)
        y = y + self.mlp(self.norm2(y + beside))
        return torch.where(visible.any(-1, keepdim=True), y, h)

    def _rotary(self, length: int, width: int, device: torch.device) -> Tensor:
        if self.grid:
            return axial_table(self.grid, width).to(device)
        return rotary_at(torch.arange(length, device=device), width)

    def _neighbours(self, source: Tensor, turn: Tensor) -> Tensor:
        """The short convolution: of the neighbours those of earlier turns, (B, L, D)."""
        L, reach = turn.shape[1], len(self.neighbours) // 2
        padded, turns = F.pad(source, (0, 0, reach, reach)), F.pad(turn, (reach, reach), value=L)
        total = torch.zeros_like(source)
        for d, weight in enumerate(self.neighbours):
            earlier = turns[:, d : d + L] < turn
            total = total + weight * padded[:, d : d + L] * earlier[..., None]
        return total
