"""`nn.Llama` and `nn.GPT2` against their definitions: norms of heads, shared keys, blocks in two streams, a cache, the
shift.

What is computed layer by layer here has one dense mask, and a token's rotation is a product of complex numbers.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zellige.plugins.published.nn.gpt2 import GPT2
from zellige.plugins.published.nn.llama import Llama, LlamaNet, RMSNorm

from .check import Largest, numbers, shared
from .networks import NETWORKS, SINGLE, with_numbers

STATES, LONG, BLOCK = 5, 6, 2
KINDS = {  # Llama's choices, and the blocks
    "SDAR": ({"width": 6, "head_norms": True}, BLOCK),
    "Fast-dLLM v2": ({"bias": True, "shift": True, "tied": True}, BLOCK),
    "causal": ({}, 1),
    "LLaDA": ({"shared": 2}, 0),
    "Dream": ({"bias": True, "shift": True}, 0),
    "GPT-2": ({}, 1),
    "GPT-2 in blocks": ({}, BLOCK),
    "GPT-2 in both directions": ({}, 0),
}


def network(kind: str) -> tuple[Llama, Tensor, Tensor]:
    """A network of fixed numbers, clean texts, and noisy ones; every second token of these is the last state."""
    choices, block = KINDS[kind]
    sizes = {
        "layers": 2,
        "hidden": 8,
        "heads": 2,
        "shared": 1,
        "inner": 12,
        "rows": STATES,
        "length": LONG,
        "base": 50.0,
    }
    clean = (numbers(3 * LONG).reshape(3, LONG).abs() * 1e4).long() % (STATES - 1)
    noisy = torch.where(torch.arange(LONG) % 2 == 0, STATES - 1, clean)
    cls = GPT2 if "GPT-2" in kind else Llama
    return with_numbers(cls(LlamaNet(**sizes | choices), STATES, block)), clean, noisy


def norm(x: Tensor, layer: RMSNorm) -> Tensor:
    """x / sqrt(mean x^2 + eps) * weight."""
    return x / (x.square().mean(-1, keepdim=True) + layer.eps).sqrt() * layer.weight


def rotated(x: Tensor, position: Tensor, base: float) -> Tensor:
    """Pairs (i, i + W / 2) of x (B, L, H, W) as complex numbers, times e^(i position / base^(2 i / W))."""
    half = x.shape[-1] // 2
    angle = position.double()[:, None, None] / base ** (torch.arange(half).double() / half)
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((turned.real, turned.imag), -1)


def defined(net: Llama, x: Tensor, seen: Tensor, position: Tensor) -> Tensor:
    """Hidden states (B, M, D) of x (B, M), whose i-th position sees those with seen (M, M) bool, before the shift."""
    if isinstance(net, GPT2):
        return defined_gpt2(net, x, seen, position)
    h, size = F.embedding(x, net.embedding.weight), net.net
    layers: Any = net.layers
    for layer in layers:
        y = norm(h, layer.norm1)
        q, k, v = (
            F.linear(y, part.weight, part.bias).unflatten(-1, (-1, size.head_width))
            for part in (layer.query, layer.key, layer.value)
        )
        if size.head_norms:
            q, k = norm(q, layer.query_norm), norm(k, layer.key_norm)
        q, k = rotated(q, position, size.base), rotated(k, position, size.base)
        served = torch.arange(size.heads) // (size.heads // size.shared)  # the head of keys of each head of queries
        weight = torch.einsum("bihw,bjhw->bhij", q, k[:, :, served]) / size.head_width**0.5
        weight = weight.masked_fill(~seen, -torch.inf).softmax(-1)
        h = h + torch.einsum("bhij,bjhw->bihw", weight, v[:, :, served]).flatten(2) @ layer.out.weight.mT
        y = norm(h, layer.norm2)
        h = h + (F.silu(y @ layer.gate.weight.mT) * (y @ layer.up.weight.mT)) @ layer.down.weight.mT
    return norm(h, net.norm)


def defined_gpt2(net: GPT2, x: Tensor, seen: Tensor, position: Tensor) -> Tensor:
    """The same of GPT-2, without a shift."""

    def centred(y: Tensor, layer: Any) -> Tensor:
        y = y - y.mean(-1, keepdim=True)
        return norm(y, layer) + layer.bias

    h, heads = F.one_hot(x, STATES).double() @ net.embedding.weight + net.places.weight[position], net.net.heads
    layers: Any = net.layers
    for layer in layers:
        y = centred(h, layer.norm1)
        q, k, v = (
            (y @ weight + bias).unflatten(-1, (heads, -1))
            for weight, bias in zip(layer.qkv.columns.chunk(3, -1), layer.qkv.bias.chunk(3))
        )
        weight = torch.einsum("bihw,bjhw->bhij", q, k) / q.shape[-1] ** 0.5
        weight = weight.masked_fill(~seen, -torch.inf).softmax(-1)
        values = torch.einsum("bhij,bjhw->bihw", weight, v).flatten(2)
        h = h + values @ layer.out.columns + layer.out.bias
        z = centred(h, layer.norm2) @ layer.up.columns + layer.up.bias
        z = 0.5 * z * (1 + ((2 / torch.pi) ** 0.5 * (z + 0.044715 * z**3)).tanh())
        h = h + z @ layer.down.columns + layer.down.bias
    return centred(h, net.norm)


def two_streams(net: Llama, noisy: Tensor, clean: Tensor) -> Tensor:
    """Hidden states (B, L, D) of the noisy tokens beside the clean ones,
    as one text of twice the length (BD3-LM section 3.2)."""
    order, is_clean = (torch.arange(LONG) // net.block).repeat(2), torch.arange(2 * LONG) >= LONG
    earlier, same = order[None] < order[:, None], order[None] == order[:, None]
    seen = torch.where(is_clean[None], earlier | (same & is_clean[:, None]), same & ~is_clean[:, None])
    h = defined(net, torch.cat((noisy, clean), 1), seen, torch.arange(LONG).repeat(2))
    if not net.net.shift:
        return h[:, :LONG]
    reads = [i if i == 0 else LONG + i - 1 if i % net.block == 0 else i - 1 for i in range(LONG)]
    return h[:, reads]


@shared("networks.llama")
@torch.no_grad()
def a_llama_is_its_definition():
    """Two streams, a block behind a cache, causal and bidirectional, packed documents."""
    worst, cached, ragged, packed = Largest(), Largest(), Largest(), Largest()
    segments = torch.tensor([[0] * 2 + [1] * 4]).expand(3, -1)
    for kind in KINDS:
        net, clean, noisy = network(kind)
        apart = torch.cat((net.features(noisy[:, :2]), net.features(noisy[:, 2:])), 1)
        packed.see(net.features(noisy, segments=segments), apart, kind)
        position, block = torch.arange(LONG), net.block
        if not block:
            h = defined(net, noisy, torch.ones(LONG, LONG, dtype=torch.bool), position)
            worst.see(net.features(noisy), h[:, [0, *range(LONG - 1)]] if net.net.shift else h, kind)
            continue
        streams = two_streams(net, noisy, clean)
        worst.see(net.features(noisy, clean=clean), streams, kind)
        cache = None
        for i in range(0, LONG, block):
            got = net.features(noisy[:, i : i + block], cache=cache)
            cached.see(got, streams[:, i : i + block], f"{kind}, position {i}")
            cache = net.extend(cache, clean[:, i : i + block])
        valid = torch.tensor([[True] * 4, [False] * 2 + [True] * 2, [False] * 4])  # rows of 4, 2 and no tokens
        memory = net.extend(None, clean[:, :4], valid=valid)
        together = net.features(noisy[:, 4 : 4 + block], cache=memory)
        for row, start in enumerate((0, 2, 4)):
            alone = net.extend(None, clean[row : row + 1, start:4]) if start < 4 else None
            want = net.features(noisy[row : row + 1, 4 : 4 + block], cache=alone)
            ragged.see(together[row : row + 1], want, f"{kind}, row {row}")
    yield worst.row(NETWORKS, "Llama and GPT-2 = their definition, layer by layer", SINGLE)
    yield cached.row(NETWORKS, "... behind a cache", SINGLE)
    yield packed.row(NETWORKS, "... documents in one row = apart", SINGLE)
    yield ragged.row(NETWORKS, "... prompts of different length, one cache", SINGLE)
