"""Embeddings of position and time: rotary angles, the time's embedding and how it modulates a layer."""

import math
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base.errors import InputError
from ..base.waiting import at_hand


def rotary_table(length: int, width: int, base: float = 1e4) -> Tensor:
    """(2, length, width / 2): cos and sin of position times frequency (Su et al. 2021), float32."""
    return rotary_at(torch.arange(length), width, base)


def rotary_at(position: Tensor, width: int, base: float = 1e4) -> Tensor:
    """(2, *, width / 2): the same at any positions (*)."""
    frequency = base ** (-torch.arange(0, width, 2, dtype=torch.float64, device=position.device) / width)
    angle = position.double()[..., None] * frequency
    return torch.stack((angle.cos(), angle.sin())).float()


def axial_table(grid: tuple[int, ...], width: int, base: float = 100.0) -> Tensor:
    """(2, prod(grid), width / 2): as `rotary_table`, the frequencies shared out among the axes of a grid
    (Heo et al. 2024)."""
    pairs, axes = width // 2, len(grid)
    counts = [pairs // axes + (axis < pairs % axes) for axis in range(axes)]
    coordinates = torch.cartesian_prod(*[torch.arange(n, dtype=torch.float64) for n in grid]).reshape(-1, axes)
    angle = [
        coordinates[:, a, None] * base ** (-torch.arange(n, dtype=torch.float64) / max(n, 1))
        for a, n in enumerate(counts)
    ]
    angle = torch.cat(angle, -1)
    return torch.stack((angle.cos(), angle.sin())).float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (i, i + width / 2) of the last axis of x (B, L, *, width) by the angle of their position;
    cos and sin broadcast to (B, L, *, width / 2)."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def both(time: Tensor, clean_time: Tensor | None, x: Tensor) -> Tensor:
    """Times of noisy rows x (B, L), then of as many clean ones: (2B,) or (2B, L)."""
    times = [time, time if clean_time is None else clean_time]
    if max(t.ndim for t in times) < 2:
        return torch.cat([t.expand(len(x)) for t in times])
    return torch.cat([(t[:, None] if t.ndim == 1 else t).expand(x.shape) for t in times])


class TimeEmbedding(nn.Module):
    """A time (*) -> its embedding (*, width): 256 cosines and sines, then a small MLP (`inner` wide, or width), then
    SiLU.

    Frequencies fall from 1 to 1e-4, which is not among them. Where `ends` it is, and sines come first: so DDPM and its
    successors have it (transformers as GLIDE). `silu`: whether there is one at the end.
    """

    def __init__(self, width: int, waves: int = 256, inner: int | None = None, ends: bool = False, silu: bool = True):
        super().__init__()
        self.waves, self.ends, self.silu, inner = waves, ends, silu, inner or width
        self.mlp = nn.Sequential(nn.Linear(waves, inner), nn.SiLU(), nn.Linear(inner, width))

    def sinusoid(self, time: Tensor) -> Tensor:
        half = self.waves // 2
        number = torch.arange(half, device=time.device, dtype=torch.float32)
        angle = time.float()[..., None] * torch.exp(-math.log(1e4) / (half - self.ends) * number)
        waves = (angle.sin(), angle.cos()) if self.ends else (angle.cos(), angle.sin())
        return torch.cat(waves, -1)

    def forward(self, time: Tensor) -> Tensor:
        vector = self.mlp(self.sinusoid(time).to(next(self.parameters()).dtype))
        return F.silu(vector) if self.silu else vector


def check_inputs(timed: bool, time: Tensor | None, classes: nn.Embedding | None, condition: Tensor | None) -> None:
    """Raise InputError if a network gets a time or classes that it does not take, or no time although it is
    time-conditioned."""
    if (time is None) == timed:
        raise InputError(
            "this network is conditioned on the time; give it one"
            if timed
            else "this network is time-free; build it with time=True to give it one"
        )
    if condition is not None and classes is None:
        raise InputError("this network has no classes; give no condition")


def embed_classes(table: Tensor, condition: Tensor | None, rows: int) -> Tensor:
    """The embedding (rows, width) of each row's class (rows,), in a table whose last row is that of none,
    as are -1 and None."""
    if condition is None:
        return F.silu(table[torch.full((rows,), -1, device=table.device)])
    outside = (condition < -1) | (condition >= len(table))  # of no rows at all none is
    if condition.shape != (rows,) or (at_hand(outside) and outside.any()):
        raise InputError(f"condition must say a class of 0 to {len(table) - 2} for each of {rows} rows, or -1 for none")
    return F.silu(table[condition % len(table)])  # -1 is the last row: no class


class Modulation(nn.Linear):
    """adaLN: the embedding of the time -> `parts` vectors (B or 1, L or 1, D). Zero at the start, as in DiT.

    It is computed for the distinct times `c` (U, condition) and then given to the positions by `where`, an index
    that broadcasts to (B, L). Without `where` one time holds for all, `c` (condition,): vectors (D,).
    """

    def __init__(self, condition: int, hidden: int, parts: int):
        super().__init__(condition, parts * hidden)
        self.parts = parts

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, c: Tensor, where: Tensor | None = None) -> tuple[Tensor, ...]:
        vectors = super().forward(c)
        return (vectors if where is None else vectors[where]).chunk(self.parts, -1)


def modulate(norm: nn.LayerNorm, x: Tensor, shift: Tensor | None, scale: Tensor | None) -> Tensor:
    """norm(x) * (1 + scale) + shift. Vectors (D,), which hold for all of x, go into the norm's weight and bias."""
    if shift is None or scale is None:
        return norm(x)
    if shift.ndim > 1:
        return norm(x) * (1 + scale) + shift
    weight, bias = norm.weight * (1 + scale), shift if norm.bias is None else norm.bias * (1 + scale) + shift
    return F.layer_norm(x, norm.normalized_shape, weight, bias.to(weight), norm.eps)  # under autocast shift is bfloat16


class Places(Protocol):
    """N positions of (B, L), such as `core.positions`."""

    def of(self, values: Tensor) -> Tensor: ...


def chosen(at: Places | None, *vectors: Tensor | None) -> list[Any]:
    """Vectors (B, L, D) or (B, 1, D) at the positions `at`, (N, D); those that hold for all, (D,) or None,
    as they are."""
    return [v if at is None or v is None or v.ndim == 1 else at.of(v) for v in vectors]


def add(x: Tensor, gate: Tensor | None, branch: Tensor) -> Tensor:
    """x + gate * branch."""
    if gate is None:
        return x + branch
    return x + gate * branch if gate.ndim > 1 else torch.addcmul(x, gate, branch)
