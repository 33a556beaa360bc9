"""GPT-2 (Radford et al. 2019), causal, in both directions or in blocks.

Pre-norm layers with biases, a vector for each position in the place of rotations, an MLP of tanh-GELU, and the table of
the embeddings as the head. All else (blocks, two streams, caches, the shift) is that of `Llama`.

The matrices lie as they are published, (inputs, outputs), the other way round than in a `Linear`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zellige.nn.attention import Beside, Cache, Past, attend, documents
from zellige.nn.linear import Linear

from .llama import Llama, LlamaNet


class Product(Linear):
    """x W + b with W (inputs, outputs)."""

    def __init__(self, inputs: int, outputs: int):
        nn.Module.__init__(self)
        self.in_features, self.out_features = inputs, outputs
        self.columns = nn.Parameter(torch.randn(inputs, outputs) * inputs**-0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    @property
    def weight(self) -> Tensor:  # pyright: ignore
        return self.columns.T


class GPT2Layer(nn.Module):
    """Attention and MLP, each a residual branch behind a norm."""

    matrices = ("qkv", "out", "up", "down")

    def __init__(self, net: LlamaNet):
        super().__init__()
        D = net.hidden
        self.heads = net.heads
        self.norm1 = nn.LayerNorm(D, net.eps)
        self.qkv = Product(D, 3 * D)
        self.out = Product(D, D)
        self.norm2 = nn.LayerNorm(D, net.eps)
        self.up = Product(D, net.inner)
        self.down = Product(net.inner, D)

    def forward(
        self, x: Tensor, angles: object, plan: object, past: Past | Beside | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `llama.Layer`, without angles."""
        B, L, _ = x.shape
        q, k, v = (y.view(B, L, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        if past is not None:
            k, v = past.followed(k, v)
        x = x + self.out(attend(q, k, v, plan).transpose(1, 2).reshape(B, L, -1))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")), k, v


class GPT2(Llama):
    """As `Llama`; `places` is how many positions have a vector, `net.length` or more."""

    layer = GPT2Layer

    def __init__(self, net: LlamaNet, states: int, block: int = 0, places: int = 0):
        super().__init__(net, states, block)
        self.norm = nn.LayerNorm(net.hidden, net.eps)
        self.places = nn.Embedding(places or net.length, net.hidden)

    def _positions(self, x: Tensor, segments: Tensor | None, cache: Cache | None, valid: Tensor | None) -> Tensor:
        """A packed document counts from its own first position."""
        if segments is None:
            return super()._positions(x, segments, cache, valid)
        position = documents(segments)[1]
        return position.repeat(len(x) // len(position), 1)  # of two streams both

    def _embed(self, x: Tensor, position: Tensor) -> Tensor:
        return self.embedding(x) + self.places(position)
