"""BERT and its successors: encoders trained to fill masks, from which a masked diffusion model may begin.

                 positions             norms     MLP                attention            source
    BERT         learnt vectors        after     GELU               all positions        Devlin et al. 2019, arXiv 1810.04805
    MosaicBERT   linear biases         after     gated GELU         all positions        Portes et al. 2023, arXiv 2312.17482
    ModernBERT   rotation              before    gated GELU         a window, every      Warner et al. 2024, arXiv 2412.13663
                                                                    third layer all

All three read in both directions, have no time input, and end with a dense layer, GELU and a norm before the logits,
whose table is that of the embeddings (tied). Linear biases subtract slope times distance from the scores (ALiBi: Press
et al. 2022, arXiv 2108.12409).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zellige.base.errors import InputError
from zellige.nn.attention import documents
from zellige.nn.embedding import rotate
from zellige.nn.linear import Linear
from zellige.nn.network import check_tokens_alone

POSITIONS = ("learnt", "linear", "rotary")


@dataclass(frozen=True)
class BertNet:
    """The layout of an encoder.

    Attributes:
        layers, hidden, heads: as in `Net`; hidden splits evenly into the heads.
        inner: width of the MLP.
        rows: of the table of embeddings, which may be padded beyond the states.
        length: the longest text.
        positions: learnt (a vector each), linear (biases of the scores) or rotary.
        types: token types, of which a text alone has the first; 0 for none.
        before: whether norms stand before a residual branch (the first layer's attention has none), or after the sum.
        gated: whether one half of the MLP's first product, through GELU, multiplies the other.
        bias, norm_bias: whether linear layers (a gated MLP's first one has none) and norms have one.
        window: the positions that a local layer sees on either side; 0 where all layers see all.
        every: layers 0, every, 2 every, ... see all positions.
        base, local_base: of the rotary frequencies, and of those of the local layers.
        eps, head_eps: of the norms, and of that before the logits.
        dropout, attention_dropout: of embeddings and residual branches, and of the attention's weights.
    """

    layers: int
    hidden: int
    heads: int
    inner: int
    rows: int
    length: int
    positions: str = "learnt"
    types: int = 2
    before: bool = False
    gated: bool = False
    bias: bool = True
    norm_bias: bool = True
    window: int = 0
    every: int = 1
    base: float = 1e4
    local_base: float = 1e4
    eps: float = 1e-12
    head_eps: float = 1e-12
    dropout: float = 0.0
    attention_dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "inner", "rows", "length", "every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be a whole number of 1 or more")
        if self.positions not in POSITIONS:
            raise InputError(f"positions is '{self.positions}'; it must be one of {', '.join(POSITIONS)}")
        if self.hidden % ((2 if self.positions == "rotary" else 1) * self.heads):
            even = " of an even width" if self.positions == "rotary" else ""
            raise InputError(f"hidden {self.hidden} does not split into {self.heads} heads{even}; it must")

    def local(self, layer: int) -> bool:
        """Whether a layer sees a window only."""
        return bool(self.window) and layer % self.every != 0


def slopes(heads: int) -> list[float]:
    """Slope of each head's linear bias: 2^(-8/n), 2^(-16/n), ... for n heads, a power of two; for other numbers those
    of the power below, then every second one of twice that power.

    >>> slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    >>> slopes(3) == [*slopes(2), slopes(4)[0]]
    True
    """
    power = 2 ** math.floor(math.log2(heads))
    first = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return first if power == heads else first + slopes(2 * power)[::2][: heads - power]


class TiedHead(Linear):
    """Logits of the states by the first rows of a table (rows, D) that belongs to the embedding,
    and a bias of its own."""

    def __init__(self, embedding: nn.Embedding, states: int, bias: bool = True):
        nn.Module.__init__(self)
        self.in_features, self.out_features = embedding.embedding_dim, states
        self.table = (embedding,)  # not as a part: its weights are the embedding's
        self.rows = nn.Parameter(torch.zeros(embedding.num_embeddings)) if bias else None

    @property
    def weight(self) -> Tensor:  # pyright: ignore
        return self.table[0].weight[: self.out_features]

    @property
    def bias(self) -> Tensor | None:  # pyright: ignore
        return None if self.rows is None else self.rows[: self.out_features]

    def forward(self, input: Tensor) -> Tensor:
        """(*, D) -> (*, states), in the precision of the table, which embeddings keep."""
        W, b = self.weight, self.bias
        return self.product(input.to(W.dtype), W, None if b is None else b.to(W.dtype))

    def reset_parameters(self) -> None:
        """Bias 0; the table is the embedding's."""
        if self.rows is not None:
            nn.init.zeros_(self.rows)


class BertLayer(nn.Module):
    """Attention and MLP, each a residual branch with its norm before it or after the sum."""

    matrices = ("qkv", "out", "up", "down")

    def __init__(self, net: BertNet, first: bool):
        super().__init__()
        D = net.hidden
        self.net = net
        self.norm1 = None if net.before and first else nn.LayerNorm(D, net.eps, bias=net.norm_bias)
        self.qkv = Linear(D, 3 * D, bias=net.bias)
        self.out = Linear(D, D, bias=net.bias)
        self.norm2 = nn.LayerNorm(D, net.eps, bias=net.norm_bias)
        self.up = Linear(D, (1 + net.gated) * net.inner, bias=net.bias and not net.gated)
        self.down = Linear(net.inner, D, bias=net.bias)

    def attention(self, x: Tensor, angles: tuple[Tensor, Tensor] | None, scores: Tensor | None) -> Tensor:
        """x (B, L, D) -> (B, L, D); scores: what is added to the attention's, (*, *, L, L), or bool, what is seen."""
        B, L, D = x.shape
        q, k, v = self.qkv(x).view(B, L, 3, self.net.heads, -1).unbind(2)
        if angles is not None:
            q, k = (rotate(y.to(torch.promote_types(y.dtype, torch.float32)), *angles).to(y.dtype) for y in (q, k))
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        dropout = self.net.attention_dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=scores, dropout_p=dropout)
        return self.out(y.transpose(1, 2).reshape(B, L, D))

    def mlp(self, x: Tensor) -> Tensor:
        """x (B, L, D) -> (B, L, D)."""
        h = self.up(x)
        if self.net.gated:
            a, b = h.chunk(2, -1)
            return self.down(F.gelu(a) * b)
        return self.down(F.gelu(h))

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor] | None, scores: Tensor | None) -> Tensor:
        """x (B, L, D) -> (B, L, D); the others as in `attention`."""
        x = self._branch(x, self.norm1, lambda h: self.attention(h, angles, scores))
        return self._branch(x, self.norm2, self.mlp)

    def _branch(self, x: Tensor, norm: nn.Module | None, branch: Callable[[Tensor], Tensor]) -> Tensor:
        drop = lambda h: F.dropout(h, self.net.dropout, self.training)  # noqa: E731
        if norm is None:
            return x + drop(branch(x))
        return x + drop(branch(norm(x))) if self.net.before else norm(x + drop(branch(x)))


class Bert(nn.Module):
    """States (B, L) -> hidden states (B, L, D) by `features`, -> logits (*, K) by `head`; no time input.

    `states` is K, the mask included, `net.rows` or fewer. Weights are as torch makes them, or normal of deviation 0.02
    after `initialise`; it is meant to be filled with published ones.
    """

    def __init__(self, net: BertNet, states: int):
        super().__init__()
        if not 1 <= states <= net.rows:
            raise InputError(
                f"{states:,} states do not fit tables of {net.rows:,} rows; the tokenizer is another model's"
            )
        D, norm_bias = net.hidden, net.norm_bias
        self.net, self.states = net, states
        self.embedding = nn.Embedding(net.rows, D)
        self.positions = nn.Embedding(net.length, D) if net.positions == "learnt" else None
        self.types = nn.Embedding(net.types, D) if net.types else None
        self.norm = nn.LayerNorm(D, net.eps, bias=norm_bias)
        self.layers = nn.ModuleList(BertLayer(net, first=not i) for i in range(net.layers))
        self.last = nn.LayerNorm(D, net.eps, bias=norm_bias) if net.before else None
        self.transform = Linear(D, D, bias=net.bias)
        self.transform_norm = nn.LayerNorm(D, net.head_eps, bias=norm_bias)
        self.head = TiedHead(self.embedding, states)

    @property
    def length(self) -> int:
        return self.net.length

    def initialise(self) -> None:
        """Matrices normal with deviation 0.02, biases 0, norms the identity: as BERT begins."""
        for module in self.modules():
            if isinstance(module, (nn.Embedding, nn.Linear)) and not isinstance(module, TiedHead):
                nn.init.normal_(module.weight, std=0.02)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)

    def features(
        self, x: Tensor, time: Tensor | None = None, *, segments: Tensor | None = None, condition: Tensor | None = None
    ) -> Tensor:
        """The hidden states (B, L, D) that `head` reads: those of the last layer, transformed.

        x (B, L) states; segments (B, L): positions see only those of the same number (packed documents), and each
        document begins at position 0.

        Raises:
            InputError: a time or a class, which it does not take; too many positions.
        """
        L = x.shape[1]
        check_tokens_alone(L, self.net.length, time, condition)
        h = self.embedding(x)
        if self.types is not None:
            h = h + self.types.weight[0]
        if self.positions is not None:
            position = torch.arange(L, device=x.device) if segments is None else documents(segments)[1]
            h = h + self.positions(position)
        h = F.dropout(self.norm(h), self.net.dropout, self.training)
        apart = torch.arange(L, device=x.device)
        apart = (apart[:, None] - apart).abs()  # (L, L)
        seen = None if segments is None else (segments[:, :, None] == segments[:, None, :])[:, None]
        scores = {False: self._scores(apart, seen, h.dtype)}
        if self.net.window:
            near = apart <= self.net.window
            scores[True] = near if seen is None else seen & near
        angles = {False: self._angles(L, x.device, self.net.base), True: self._angles(L, x.device, self.net.local_base)}
        for i, layer in enumerate(self.layers):
            local = self.net.local(i)
            h = layer(h, angles[local], scores[local])
        h = h if self.last is None else self.last(h)
        return self.transform_norm(F.gelu(self.transform(h)))

    def _scores(self, apart: Tensor, seen: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """What is added to the scores of attention, (*, H, L, L); or `seen` where positions have no biases."""
        if self.net.positions != "linear":
            return seen
        slope = torch.tensor(slopes(self.net.heads), device=apart.device, dtype=dtype)
        biases = -slope[:, None, None] * apart
        return biases if seen is None else biases.where(seen, -torch.inf)

    def _angles(self, length: int, device: torch.device, base: float) -> tuple[Tensor, Tensor] | None:
        """cos and sin (L, 1, W / 2) of position times frequency in float32, as the published code has it;
        None without them."""
        if self.net.positions != "rotary":
            return None
        W = self.net.hidden // self.net.heads
        frequency = 1 / base ** (torch.arange(0, W, 2, device=device, dtype=torch.float32) / W)
        angle = (torch.arange(length, device=device, dtype=torch.float32)[:, None] * frequency)[:, None]
        return angle.cos(), angle.sin()

    def forward(self, x: Tensor, **kwargs) -> Tensor:
        """Logits (B, L, K) at every position: for tests."""
        return self.head(self.features(x, **kwargs))
