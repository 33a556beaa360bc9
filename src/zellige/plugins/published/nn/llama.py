"""The transformer of Llama, Qwen2, Qwen3 and OLMo, reading in both directions or in blocks: what large diffusion models
of text are made of.

RMS norms, rotary positions, grouped keys and values, a gated MLP (SwiGLU), no biases except, in Qwen2, at queries, keys
and values (Touvron et al. 2023, arXiv 2302.13971; Ainslie et al. 2023, arXiv 2305.13245). Qwen3 normalises each head's
queries and keys, and its heads have a width of their own. LLaDA (Nie et al. 2025, arXiv 2502.09992) is trained from
scratch with it; Dream (Ye et al. 2025, arXiv 2508.15487) begins with an autoregressive model and keeps its shift: the
hidden state of position i - 1 says what stands at i.

With `block` > 0 a position sees its own block and those before, as in `DiT`: two streams, a cache (SDAR, arXiv
2510.06303). With `block` 1 it is the causal network that such models begin with.

The arithmetic is that of the published code, so that the logits agree in the precision of the weights: norms in float32
and back, rotary angles and rotations in float32. Weights keep their own precision (bfloat16 in what is published).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zellige.base.errors import InputError
from zellige.nn.attention import (
    Beside,
    Cache,
    InParts,
    Past,
    Reading,
    attend,
    check_context,
    check_whole,
    documents,
    remembered,
    sight,
)
from zellige.nn.embedding import rotate
from zellige.nn.linear import Linear
from zellige.nn.network import check_tokens_alone

from .bert import TiedHead


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
        width: of a head; 0: hidden / heads.
        head_norms: whether each head's queries and keys are normalised before they are rotated.
        tied: whether the outputs have the table of the embeddings.
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
    width: int = 0
    head_norms: bool = False
    tied: bool = False

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "shared", "inner", "rows", "length"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be a whole number of 1 or more")
        if self.width % 2 or self.width < 0:
            raise InputError(f"width is {self.width}; it must be an even number, or 0 for hidden / heads")
        if not self.width and self.hidden % (2 * self.heads):
            raise InputError(f"hidden {self.hidden} does not split into {self.heads} heads of an even width; they must")
        if self.heads % self.shared:
            raise InputError(f"{self.heads} heads do not share {self.shared} keys and values evenly; they must")

    @property
    def head_width(self) -> int:
        """W, the width of a head."""
        return self.width or self.hidden // self.heads


class RMSNorm(nn.Module):
    """x / sqrt(mean x^2 + eps) * weight; the quotient in float32 at least,
    rounded to x's precision before the product."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        return self.weight * (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class Head(Linear):
    """Logits of the states, which are the first rows of a table (rows, D) that may be padded: the rest is kept,
    not computed."""

    def __init__(self, hidden: int, states: int, rows: int):
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.bias = hidden, states, None
        self.rows = nn.Parameter(torch.empty(rows, hidden))

    @property
    def weight(self) -> Tensor:  # pyright: ignore
        return self.rows[: self.out_features]


class Layer(nn.Module):
    """Attention and MLP, each a residual branch behind a norm."""

    matrices = ("query", "key", "value", "out", "gate", "up", "down")

    def __init__(self, net: LlamaNet):
        super().__init__()
        D, W = net.hidden, net.head_width
        self.heads, self.shared = net.heads, net.shared
        self.norm1 = RMSNorm(D, net.eps)
        self.query = Linear(D, net.heads * W, bias=net.bias)
        self.key = Linear(D, net.shared * W, bias=net.bias)
        self.value = Linear(D, net.shared * W, bias=net.bias)
        self.query_norm, self.key_norm = (RMSNorm(W, net.eps) if net.head_norms else None for _ in range(2))
        self.out = Linear(net.heads * W, D, bias=False)
        self.norm2 = RMSNorm(D, net.eps)
        self.gate = Linear(D, net.inner, bias=False)
        self.up = Linear(D, net.inner, bias=False)
        self.down = Linear(net.inner, D, bias=False)

    def forward(
        self, x: Tensor, angles: tuple[Tensor, Tensor], plan: Any, past: Past | Beside | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, L, D) -> (B, L, D), and all keys and values (B, H, P + L, W), those of the P remembered positions
        first.

        Args:
            angles: cos and sin, (L, 1, W / 2) or (B, L, 1, W / 2).
            plan: of `attend`.
        """
        B, L, _ = x.shape
        h = self.norm1(x)
        q = self.query(h).view(B, L, self.heads, -1)
        k, v = (y(h).view(B, L, self.shared, -1) for y in (self.key, self.value))
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        q, k = (rotate(y.to(torch.promote_types(y.dtype, torch.float32)), *angles).to(y.dtype) for y in (q, k))
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        if past is not None:
            k, v = past.followed(k, v)
        x = x + self.out(attend(q, k, v, plan).transpose(1, 2).reshape(B, L, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), k, v


class Llama(InParts, nn.Module):
    """States (B, L) -> hidden states (B, L, D) by `features`, -> logits (*, K) by `head`.

    It has no time input: masked diffusion does not need one. `states` is K, the mask included, `net.rows` or fewer.
    `block` is the length of a block; 0: every position sees every other; 1: a causal network. Weights are as torch
    makes them; it is meant to be filled with published ones.
    """

    layer: ClassVar[Callable[[LlamaNet], nn.Module]] = Layer

    def __init__(self, net: LlamaNet, states: int, block: int = 0):
        super().__init__()
        if not 1 <= states <= net.rows:
            raise InputError(
                f"{states:,} states do not fit tables of {net.rows:,} rows; the tokenizer is another model's"
            )
        if block < 0:
            raise InputError(f"`block` is {block}; it must be 1 or more, or 0 for none")
        self.net, self.states, self.block = net, states, block
        self.embedding = nn.Embedding(net.rows, net.hidden)
        self.layers = nn.ModuleList(type(self).layer(net) for _ in range(net.layers))
        self.norm: Any = RMSNorm(net.hidden, net.eps)
        self.head = TiedHead(self.embedding, states, bias=False) if net.tied else Head(net.hidden, states, net.rows)
        if isinstance(self.head, Head) and not self.head.rows.is_meta:
            nn.init.normal_(self.head.rows, std=net.hidden**-0.5)

    def features(
        self,
        x: Tensor,
        time: Tensor | None = None,
        *,
        segments: Tensor | None = None,
        condition: Tensor | None = None,
        clean: Tensor | None = None,
        clean_time: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """The hidden states (B, L, D) that `head` reads.

        x (B, L) states; segments (B, L): positions see only those of the same number (packed documents). For a network
        of blocks, one of these: clean (B, L), the tokens that stand in the blocks before; or cache, what was read
        before x, which begins a block.

        With `shift` the first position of a block is read from the clean token before it, so what stands in its block
        does not matter to it (Fast-dLLM v2, arXiv 2509.26328). The first position of all, and of each document, is read
        from its own hidden state, as the published samplers do; it was never trained, since texts began with a token
        that is given.

        Raises:
            InputError: a time or a class, which it does not take; too many positions; what does not fit its blocks.
        """
        B, L = x.shape
        check_tokens_alone(L if cache is None else 0, self.net.length, time, condition)
        check_context(self.block, x, segments, clean, cache)
        clean = clean if self.block < L else None  # in a single block nothing stands before
        x = x if clean is None else torch.cat((x, clean))
        h = self._pass(x, 1 if clean is None else 2, segments, cache)[0]
        if not self.net.shift:
            return h[:B]
        h, clean = (h, None) if clean is None else h.chunk(2)
        first = torch.zeros_like(h[:, :1]) if cache is None else cache.tails[-1]
        before = torch.cat((first, h[:, :-1]), 1)
        position = torch.arange(L, device=x.device)[None] if segments is None else documents(segments)[1]
        if clean is not None:
            at = (position % self.block == 0)[..., None]
            before = torch.where(at, torch.cat((first, clean[:, :-1]), 1), before)
        place = 0 if cache is None else cache.place[:, None]
        return torch.where((position + place == 0)[..., None], h, before)

    def advance(
        self,
        cache: Cache | None,
        x: Tensor,
        time: Tensor | None = None,
        valid: Tensor | None = None,
        condition: Tensor | None = None,
    ) -> tuple[Tensor, Cache]:
        """Read clean tokens x (B, n), whole blocks, after what the cache holds: as `DiT.advance`."""
        check_tokens_alone(0, self.net.length, time, condition)
        check_context(self.block, x, None, None, cache)
        check_whole(self.block, x, cache, valid)
        h, layers = self._pass(x, 1, None if valid is None else valid.long(), cache, valid)
        return h, remembered(cache, layers, x, valid, self.net.length, self.block)

    def _reading(
        self, x: Tensor, start: int, reading: Reading | None, condition: Tensor | None
    ) -> tuple[Tensor, Reading]:
        """With a shift, the hidden states are those that the positions after the first are read from; the first is read
        from its own, and belongs to the part for their sake unless it begins the text."""
        check_tokens_alone(x.shape[1], self.net.length, None, condition)
        if self.block:
            raise InputError(
                "only a bidirectional network is read in parts; this one has blocks, and a cache of its own"
            )
        position = torch.arange(start, start + x.shape[1], device=x.device)
        angles, h, layers = self._at(position), self._embed(x, position), []
        for i, layer in enumerate(self.layers):
            h, k, v = layer(h, angles, None, None if reading is None else reading.beside(i, start))
            layers.append((k, v, h[..., :0]))
        h = self.norm(h)
        h = torch.cat((h[:, :1], h[:, :-1]), 1) if self.net.shift else h
        return h, Reading(x, *map(tuple, zip(*layers)))

    def _pass(
        self, x: Tensor, streams: int, segments: Tensor | None, cache: Cache | None, valid: Tensor | None = None
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor, Tensor]]]:
        """Hidden states of x (B, L), noisy rows before clean ones if there are two streams, and the keys, values and
        tail of each layer."""
        rows, seen = x[: len(x) // streams], None if cache is None else cache.seen
        view = sight(self.block, streams, rows, segments, 0 if cache is None else len(cache), seen)
        position = self._positions(x, segments if valid is None else None, cache, valid)
        angles, h, layers = self._at(position), self._embed(x, position), []
        for i, layer in enumerate(self.layers):
            h, k, v = layer(h, angles, view.plan, None if cache is None else cache.layer(i, x.shape[1]))
            layers.append((k, v, h[:, :0]))
        h = self.norm(h)
        if self.net.shift:  # the next block is read from here
            layers[-1] = (*layers[-1][:2], h[:, -1:].clone())
        return h, layers

    def _positions(self, x: Tensor, segments: Tensor | None, cache: Cache | None, valid: Tensor | None) -> Tensor:
        """Positions (L,) or (B, L) of x in the text. A row counts from its first valid position; packed documents,
        whose angles differ by a constant, count on."""
        position = torch.arange(x.shape[1], device=x.device)
        if cache is not None:
            position = cache.place[:, None] + position
        elif valid is not None:
            position = (position - (~valid).sum(-1, keepdim=True)).clamp_min(0)
        return position

    def _embed(self, x: Tensor, position: Tensor) -> Tensor:
        """The stream (B, L, D) that the first layer reads."""
        return self.embedding(x)

    def _at(self, position: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin (*, 1, W / 2) of position times frequency, at positions (*),
        in float32 as the published code has it."""
        W = self.net.head_width
        frequency = 1 / self.net.base ** (torch.arange(0, W, 2, device=position.device, dtype=torch.float32) / W)
        angle = (position.float()[..., None] * frequency)[..., None, :]
        return angle.cos(), angle.sin()

    def forward(self, x: Tensor, **kwargs) -> Tensor:
        """Logits (B, L, K) at every position: for tests."""
        return self.head(self.features(x, **kwargs))
