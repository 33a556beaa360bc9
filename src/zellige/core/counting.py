"""Random numbers that count: functions of a seed and of what is drawn, the same on every device, in a batch of any size."""

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import InputError
from .philox import WORD, uniforms


class Counter:
    """Draws that are functions of (seed, step, row, position), of one part of a step: the same on any device, in any parts.

    Each call draws anew; the n-th call of a part is the n-th of every other. Part p of n has the rows p, p + n, p + 2n, ...

    Args:
        seed: of 63 bits.
        step, part: below 2^32; tensors () for a compiled step, which would else be compiled for each.
    """

    def __init__(self, seed: int, step: int | Tensor = 0, part: int | Tensor = 0, parts: int = 1):
        self.key, self.step, self.part, self.parts, self.calls = (seed & WORD, seed >> 32), step, part, parts, 0

    def _draw(self, position: Tensor, row: Tensor, call: int | None = None) -> Tensor:
        if call is None:
            self.calls = call = self.calls + 1
        number = lambda value: torch.full((), value, dtype=torch.long, device=row.device)  # noqa: E731
        step = self.step if isinstance(self.step, Tensor) else number(self.step)
        return uniforms(
            (position, row, torch.full_like(row, call), step.to(row.device)), (number(self.key[0]), number(self.key[1]))
        )

    def uniform(self, shape: Sequence[int], device: torch.device | None) -> Tensor:
        rows = self.part + self.parts * torch.arange(shape[0], device=device)
        position = torch.arange(math.prod(shape[1:]), device=device)
        return self._draw(position[None], rows[:, None]).reshape(tuple(shape))

    def spare(self, device: torch.device) -> Tensor:
        """A uniform () of this part that is none of those that are drawn, and moves none of them."""
        row = torch.full((), self.part, dtype=torch.long, device=device) if isinstance(self.part, int) else self.part
        none = torch.zeros((), dtype=torch.long, device=device)
        return self._draw(none, row, call=0)

    def stratified(self, n: int, device: torch.device | None) -> Tensor:
        """As `stratified` over the rows of all parts."""
        whole = torch.full((1,), WORD, dtype=torch.long, device=device)  # a row that is none
        row = self.part + self.parts * torch.arange(n, device=device, dtype=torch.float64)
        return (self._draw(torch.zeros_like(whole), whole) + row / (self.parts * n)) % 1.0


class Streams:
    """Draws of B rows that each have a stream: functions of (the row's seed, how many draws it has had, position).

    So what a row draws depends on its seed alone: not on the rows beside it, nor on the device. Each call of a row draws anew; a
    uniform has 53 bits.

    Args:
        seeds: of 63 bits, one for each row.
        device: where they are drawn.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device | str | None = None):
        words = torch.tensor([[seed & WORD, seed >> 32] for seed in seeds], dtype=torch.long).to(device)
        self.key, self.calls = (words[:, 0], words[:, 1]), torch.zeros_like(words[:, 0])
        self.rows: Tensor | None = None  # all of them

    def __len__(self) -> int:
        return len(self.calls if self.rows is None else self.rows)

    def of(self, rows: Tensor) -> "Streams":
        """Those of these rows (N,), which go on where they are, and which the others then find so."""
        some = copy.copy(self)
        some.rows = rows if self.rows is None else self.rows[rows]
        return some

    def count(self) -> None:
        """Use up a draw of each row."""
        self.calls[slice(None) if self.rows is None else self.rows] += 1

    def draw(self, row: Tensor, position: Tensor) -> Tensor:
        """The next uniforms of these rows at these positions, which broadcast; every row uses up a draw."""
        self.count()
        row, none = row if self.rows is None else self.rows[row], torch.zeros((), dtype=torch.long, device=row.device)
        return uniforms((position, self.calls[row], none, none), (self.key[0][row], self.key[1][row]))

    def uniform(self, shape: Sequence[int], device: torch.device | None) -> Tensor:
        if len(self) != shape[0]:
            raise InputError(f"{len(self)} streams for {shape[0]} rows; give one for each row")
        row = torch.arange(len(self), device=self.calls.device)
        position = torch.arange(math.prod(shape[1:]), device=self.calls.device)
        return self.draw(row[:, None], position[None]).reshape(tuple(shape)).to(device)
