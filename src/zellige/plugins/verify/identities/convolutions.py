"""Dilated convolutions against their definition, position by position; documents in one row, and what is remembered."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from zellige.nn import DiT
from zellige.nn.block import Net

from .check import Largest, V, numbers, shared
from .networks import NETWORKS, SINGLE, with_numbers

LENGTH, LAYERS, KERNEL = 11, 3, 3  # distances of 1, 2 and 4


def _network(causal: bool, timed: bool) -> Any:
    net = Net(kind="conv", layers=LAYERS, hidden=8, heads=1, conv=KERNEL, length=LENGTH, condition=6)
    return with_numbers(DiT(net, V, time=timed, block=int(causal)))


def _texts() -> Tensor:
    return (numbers(3, LENGTH) * 1e6).long() % V


def _defined(network: Any, x: Tensor, time: Tensor | None, document: Tensor) -> Tensor:
    """Hidden states (B, L, D): sums over the positions that each position reads, one after another."""
    causal, (B, L) = network.block > 0, x.shape
    c = None if time is None else network.time(time)[:, None]
    norm = lambda h: (h - h.mean(-1, keepdim=True)) / (h.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()  # noqa: E731

    def parts(layer: Any, count: int) -> Any:
        return [None] * count if c is None else (c @ layer.weight.T + layer.bias).chunk(count, -1)

    def scaled(h: Tensor, layer: Any, shift: Tensor | None, scale: Tensor | None) -> Tensor:
        h = norm(h) * layer.weight
        return h if shift is None or scale is None else h * (1 + scale) + shift

    h = network.embedding.weight[x]
    for i, block in enumerate(network.blocks):
        shift1, scale1, gate1, shift2, scale2, gate2 = parts(block.modulation, 6)
        u, g = (scaled(h, block.norm1, shift1, scale1) @ block.qkv.weight.T).chunk(2, -1)
        read = torch.zeros_like(u)
        for row in range(B):
            for at in range(L):
                for k in range(KERNEL):
                    other = at + (k - (KERNEL - 1 if causal else KERNEL // 2)) * 2**i
                    if 0 <= other < L and document[row, other] == document[row, at]:
                        read[row, at] += block.dilated.weight[k] * u[row, other]
        y = (read * g * g.sigmoid()) @ block.out.weight.T
        h = h + (y if gate1 is None else gate1 * y)
        y = scaled(h, block.norm2, shift2, scale2) @ block.mlp[0].weight.T + block.mlp[0].bias
        y = F.gelu(y, approximate="tanh") @ block.mlp[2].weight.T + block.mlp[2].bias
        h = h + (y if gate2 is None else gate2 * y)
    return scaled(h, network.norm, *parts(network.modulation, 2))


@shared("networks.convolution")
@torch.no_grad()
def convolutions_are_their_definition():
    worst, alone, cached = Largest(), Largest(), Largest()
    x, segments = _texts(), torch.tensor([[0] * 4 + [1] * 5 + [2] * 2] * 3)
    time = torch.tensor([0.0, 3.0, 8.0], dtype=torch.float64)
    for causal in (False, True):
        for timed in (False, True):
            network, times = _network(causal, timed), time if timed else None
            for document in (None, segments):
                where = f"{'causal' if causal else 'both sides'}, {'time' if timed else 'no time'}"
                hidden = network.features(x, times, segments=document)
                whole = torch.zeros_like(x) if document is None else document
                worst.see(hidden, _defined(network, x, times, whole), where)
            single = torch.cat([network.features(part, times) for part in x.split([4, 5, 2], 1)], 1)
            alone.see(network.features(x, times, segments=segments), single, where)
        if causal:
            cache, states = None, []
            network = _network(True, False)
            for part in x.split([1, 4, 1, 5], 1):
                h, cache = network.advance(cache, part)
                states.append(h)
            cached.see(torch.cat(states, 1), network.features(x), "pieces of 1, 4, 1 and 5 tokens")
    yield worst.row(NETWORKS, "dilated convolutions = their definition", SINGLE)
    yield alone.row(NETWORKS, "... documents in one row = each alone", SINGLE)
    yield cached.row(NETWORKS, "... remembered = read again", SINGLE)
