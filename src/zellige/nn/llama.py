"""The transformer of Llama, Qwen2 and OLMo, reading in both directions: what large masked diffusion models are made of.

RMS norms, rotary positions, grouped keys and values, a gated MLP (SwiGLU), no biases except, in Qwen2, at queries, keys and
values (Touvron et al. 2023, arXiv 2302.13971; Ainslie et al. 2023, arXiv 2305.13245). LLaDA (Nie et al. 2025, arXiv
2502.09992) is trained from scratch with it; Dream (Ye et al. 2025, arXiv 2508.15487) begins with an autoregressive model and
keeps its shift: the hidden state of position i - 1 says what stands at i.

The arithmetic is that of the published code, so that the logits agree in the precision of the weights: norms in float32 and
back, rotary angles and rotations in float32. Weights keep their own precision (bfloat16 in what is published).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError
from .embedding import rotate
from .network import check_tokens_alone


@dataclass(frozen=True)
class LlamaNet:
    """The size of a network.

    Attributes:
        layers, hidden, heads: as in `Net`; hidden splits evenly into the heads.
        shared: heads of keys and values, each of which serves heads / shared heads of queries.
        inner: width of the MLP.
        rows: of the tables of embeddings and outputs, which may be padded beyond the states.
        length: the longest text.
        base: of the rotary frequencies.
        eps: of the norms.
        bias: whether queries, keys and values have a bias.
        shift: whether position i is read from the hidden state of i - 1.
    """

    layers: int
    hidden: int
    heads: int
    shared: int
    inner: int
    rows: int
    length: int
    base: float = 1e4
    eps: float = 1e-6
    bias: bool = False
    shift: bool = False

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "shared", "inner", "rows", "length"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be a whole number of 1 or more")
        if self.hidden % (2 * self.heads):
            raise InputError(f"hidden {self.hidden} does not split into {self.heads} heads of an even width")
        if self.heads % self.shared:
            raise InputError(f"{self.heads} heads do not share {self.shared} keys and values evenly")


class RMSNorm(nn.Module):
    """x / sqrt(mean x^2 + eps) * weight; the quotient in float32 at least, rounded to x's precision before the product."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        return self.weight * (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class Head(nn.Linear):
    """Logits of the states, which are the first rows of a table (rows, D) that may be padded: the rest is kept, not computed."""

    def __init__(self, hidden: int, states: int, rows: int):
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.bias = hidden, states, None
        self.rows = nn.Parameter(torch.empty(rows, hidden))

    @property
    def weight(self) -> Tensor:  # pyright: ignore
        return self.rows[: self.out_features]


class Layer(nn.Module):
    """Attention and MLP, each a residual branch behind a norm."""

    def __init__(self, net: LlamaNet):
        super().__init__()
        D, width = net.hidden, net.hidden // net.heads
        self.heads, self.shared = net.heads, net.shared
        self.norm1 = RMSNorm(D, net.eps)
        self.query = nn.Linear(D, D, bias=net.bias)
        self.key = nn.Linear(D, net.shared * width, bias=net.bias)
        self.value = nn.Linear(D, net.shared * width, bias=net.bias)
        self.out = nn.Linear(D, D, bias=False)
        self.norm2 = RMSNorm(D, net.eps)
        self.gate = nn.Linear(D, net.inner, bias=False)
        self.up = nn.Linear(D, net.inner, bias=False)
        self.down = nn.Linear(net.inner, D, bias=False)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], seen: Tensor | None) -> Tensor:
        """x (B, L, D) -> (B, L, D); angles: cos and sin (L, 1, W / 2); seen: (B, 1, L, L) bool, or None for all."""
        B, L, D = x.shape
        h = self.norm1(x)
        q = self.query(h).view(B, L, self.heads, -1)
        k, v = (y(h).view(B, L, self.shared, -1) for y in (self.key, self.value))
        q, k = (rotate(y.to(torch.promote_types(y.dtype, torch.float32)), *angles).to(y.dtype) for y in (q, k))
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=self.heads != self.shared)
        x = x + self.out(y.transpose(1, 2).reshape(B, L, D))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """States (B, L) -> hidden states (B, L, D) by `features`, -> logits (*, K) by `head`; every position sees every other.

    It has no time input: masked diffusion does not need one. `states` is K, the mask included, `net.rows` or fewer.
    Weights are as torch makes them; it is meant to be filled with published ones.
    """

    def __init__(self, net: LlamaNet, states: int):
        super().__init__()
        if not 1 <= states <= net.rows:
            raise InputError(
                f"{states:,} states do not fit tables of {net.rows:,} rows; the tokenizer is another model's"
            )
        self.net, self.states = net, states
        self.embedding = nn.Embedding(net.rows, net.hidden)
        self.layers = nn.ModuleList(Layer(net) for _ in range(net.layers))
        self.norm = RMSNorm(net.hidden, net.eps)
        self.head = Head(net.hidden, states, net.rows)
        if not self.head.rows.is_meta:
            nn.init.normal_(self.head.rows, std=net.hidden**-0.5)

    def features(
        self, x: Tensor, time: Tensor | None = None, *, segments: Tensor | None = None, condition: Tensor | None = None
    ) -> Tensor:
        """The hidden states (B, L, D) that `head` reads.

        x (B, L) states; segments (B, L): positions see only those of the same number (packed documents).

        With `shift` the first position, and the first of each document, is read from its own hidden state, as the published
        samplers do; it was never trained, since texts began with a token that is given.

        Raises:
            InputError: a time or a class, which it does not take; too many positions.
        """
        L = x.shape[1]
        check_tokens_alone(L, self.net.length, time, condition)
        mask = None if segments is None else (segments[:, :, None] == segments[:, None, :])[:, None]
        angles = self._angles(L, x.device)
        h = self.embedding(x)
        for layer in self.layers:
            h = layer(h, angles, mask)
        h = self.norm(h)
        if not self.net.shift:
            return h
        before = torch.cat((h[:, :1], h[:, :-1]), 1)
        if segments is None:
            return before
        starts = F.pad(segments[:, 1:] != segments[:, :-1], (1, 0), value=True)
        return torch.where(starts[..., None], h, before)

    def _angles(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """cos and sin (L, 1, W / 2) of position times frequency, all in float32 as the published code has it."""
        W = self.net.hidden // self.net.heads
        frequency = 1 / self.net.base ** (torch.arange(0, W, 2, device=device, dtype=torch.float32) / W)
        angle = (torch.arange(length, device=device, dtype=torch.float32)[:, None] * frequency)[:, None]
        return angle.cos(), angle.sin()

    def forward(self, x: Tensor, **kwargs) -> Tensor:
        """Logits (B, L, K) at every position: for tests."""
        return self.head(self.features(x, **kwargs))
