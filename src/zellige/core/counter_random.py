"""Counter-based random numbers: functions of a seed and a counter, equal on every device and for any batch size.

The bits are those of Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). Each word is a
function of a key and a counter; there is no state.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.waiting import at_hand

WORD = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
FEW = 12
Words = tuple[Tensor, Tensor, Tensor, Tensor]
W = TypeVar("W", int, Tensor)


def philox(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """Four words of 32 random bits for each counter, (*) int64 each.

    Args:
        counter: four words (*) int64 in [0, 2^32) that broadcast.
        key: two such words.
    """
    words = (*counter, *key)
    if all(type(word) is Tensor and at_hand(word) for word in words):
        a, b, c, d = torch.from_numpy(_counted(words).astype(np.int64))
        return a, b, c, d
    return _rounds(*words, _by_halves if torch.compiler.is_compiling() else _wrapped)


def uniforms(counter: Words, key: tuple[Tensor, Tensor]) -> Tensor:
    """Uniforms in [0, 1) with 53 random bits, (*) float64."""
    words = (*counter, *key)
    if all(type(word) is Tensor and at_hand(word) for word in words):
        high, low, _, _ = _counted(words)
        return torch.from_numpy(((high >> 5 << 26) + (low >> 6)) * 2.0**-53)
    high, low, _, _ = philox(counter, key)
    return ((high >> 5 << 26) + (low >> 6)).double() * 2.0**-53


def _counted(words: tuple[Tensor, ...]) -> np.ndarray:
    """`philox` of CPU tensors, (4, *) uint64.

    By NumPy, which takes a fifth of PyTorch's time for small arrays, or by Python, which takes 10 us per counter.
    """
    grid = np.broadcast(*(word.numpy() for word in words))
    if grid.size <= FEW:
        results = [_rounds(a, b, c, d, k, l, _whole) for a, b, c, d, k, l in (map(int, word) for word in grid)]
        return np.array(results, dtype=np.uint64).T.reshape(4, *grid.shape)
    return _rounds_of_arrays(*(word.numpy() for word in words))


def _rounds_of_arrays(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray, k: np.ndarray, l: np.ndarray
) -> np.ndarray:
    """Ten rounds of Philox on arrays that broadcast, (4, *) uint64.

    Both products of a round are one operation, into memory that is allocated once.
    """
    shape = np.broadcast_shapes(*(np.shape(word) for word in (a, b, c, d, k, l)))
    axes = (1,) * len(shape)
    x, y, low = (np.empty((2, *shape), np.uint64) for _ in range(3))  # (a, c), (b, d)
    key = np.empty((2, *np.broadcast_shapes(axes, k.shape, l.shape)), np.uint64)
    x[0], x[1], y[0], y[1], key[0], key[1] = a, c, b, d, k, l
    multipliers, weyl = (np.array(pair, np.uint64).reshape(2, *axes) for pair in (_MULTIPLIERS, _WEYL))
    word, half = np.uint64(WORD), np.uint64(32)
    for round_key in key + np.arange(10, dtype=np.uint64).reshape(10, 1, *axes) * weyl & word:
        np.multiply(x, multipliers, out=x)
        np.bitwise_and(x, word, out=low)
        np.right_shift(x, half, out=x)
        np.bitwise_xor(x[::-1], y, out=y)
        np.bitwise_xor(y, round_key, out=y)
        x, y, low = y, low[::-1], x
    return np.stack((x[0], y[0], x[1], y[1]))


def _rounds(a: W, b: W, c: W, d: W, k: W, l: W, product: Callable[[W, int], tuple[W, W]]) -> tuple[W, W, W, W]:
    """Ten rounds of Philox on words of any type; `product` multiplies two words into a high and a low word."""
    for _ in range(10):
        (high, low), (up, down) = product(a, _MULTIPLIERS[0]), product(c, _MULTIPLIERS[1])
        a, b, c, d = up ^ b ^ k, down, high ^ d ^ l, low
        k, l = k + _WEYL[0] & WORD, l + _WEYL[1] & WORD
    return a, b, c, d


def _whole(x: int, number: int) -> tuple[int, int]:
    return x * number >> 32, x * number & WORD


def _wrapped(x: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """High and low word of the product in int64, which wraps modulo 2^64."""
    whole = x * number
    return whole >> 32 & WORD, whole & WORD


def _by_halves(x: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """As `_wrapped`, without overflow, which is undefined for signed integers in compiled code."""
    low = (x & 0xFFFF) * number
    high = (x >> 16) * number + (low >> 16)
    return high >> 16, (high & 0xFFFF) << 16 | low & 0xFFFF


class Counter:
    """Random numbers of a training step, a function of (seed, step, example, call, position).

    They are equal on every device and for any split of a step into parts: part p of n has the examples p, p + n,
    p + 2n, ... Each call gives new numbers, and every part must make the same calls in the same order.

    Args:
        seed: 63 bits.
        step: the number of the step, below 2^32. A tensor () for a compiled step; a number would compile it again each
            time.
        part: the number of the part, in the same form as `step`.
        parts: the number of parts.
    """

    def __init__(self, seed: int, step: int | Tensor = 0, part: int | Tensor = 0, parts: int = 1):
        self.key, self.step, self.part, self.parts, self.calls = (seed & WORD, seed >> 32), step, part, parts, 0

    def _draw(self, position: Tensor, row: Tensor, call: int | None = None) -> Tensor:
        if call is None:
            self.calls = call = self.calls + 1

        def number(value: int) -> Tensor:
            return torch.full((), value, dtype=torch.long, device=row.device)

        step = self.step if isinstance(self.step, Tensor) else number(self.step)
        counter = position, row, torch.full_like(row, call), step.to(row.device)
        return uniforms(counter, (number(self.key[0]), number(self.key[1])))

    def uniform(self, shape: Sequence[int], device: torch.device | None) -> Tensor:
        rows = self.part + self.parts * torch.arange(shape[0], device=device)
        position = torch.arange(math.prod(shape[1:]), device=device)
        return self._draw(position[None], rows[:, None]).reshape(tuple(shape))

    def spare(self, device: torch.device) -> Tensor:
        """A uniform () of this part, from a stream of its own: other numbers do not change."""
        row = torch.full((), self.part, dtype=torch.long, device=device) if isinstance(self.part, int) else self.part
        zero = torch.zeros((), dtype=torch.long, device=device)
        return self._draw(zero, row, call=0)

    def stratified(self, n: int, device: torch.device | None) -> Tensor:
        """Uniforms (n,) of this part, stratified over the examples of all parts; see `random.stratified`."""
        row = self.part + self.parts * torch.arange(n, device=device, dtype=torch.float64)
        return (self.shared(device) + row / (self.parts * n)) % 1.0

    def shared(self, device: torch.device | None) -> Tensor:
        """A uniform (1,) that all parts share."""
        whole = torch.full((1,), WORD, dtype=torch.long, device=device)  # no example has this number
        return self._draw(torch.zeros_like(whole), whole)


class Independent(Counter):
    """As `Counter`, with independent instead of stratified times."""

    def stratified(self, n: int, device: torch.device | None) -> Tensor:
        return self.uniform((n,), device)


class Middle(Counter):
    """As `Counter`, with most times in the middle: nine of ten in [0.2, 0.8), the others anywhere."""

    LOW, HIGH, ANYWHERE = 0.2, 0.8, 0.1

    def place(self, u: Tensor) -> Tensor:
        """Map uniforms (*) in [0, 1) to times of this distribution."""
        within = self.LOW + (self.HIGH - self.LOW) * (u - self.ANYWHERE) / (1 - self.ANYWHERE)
        return torch.where(u < self.ANYWHERE, u / self.ANYWHERE, within)


class Streams:
    """Random numbers of B sequences, a function of (seed of the sequence, its number of calls, position).

    The numbers of a sequence do not depend on the batch or the device. Each call gives new numbers; a uniform has 53
    bits.

    Args:
        seeds: 63 bits for each sequence.
        device: the device of the numbers.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device | str | None = None):
        words = torch.tensor([[seed & WORD, seed >> 32] for seed in seeds], dtype=torch.long).to(device)
        self.key, self.calls = (words[:, 0], words[:, 1]), torch.zeros_like(words[:, 0])
        self.rows: Tensor | None = None  # all of them
        self.uses = torch.ones_like(self.calls)  # by how much a call raises the counter of each

    def __len__(self) -> int:
        return len(self.calls if self.rows is None else self.rows)

    def of(self, rows: Tensor, at: Tensor | None = None) -> "Streams":
        """Select the streams of these sequences (N,), which share their counters with this object.

        Where `at` (N,) is False, calls of the result do not count: the caller does not use their numbers.
        """
        uses = self.uses[rows]
        rows = rows if self.rows is None else self.rows[rows]
        return self._with(self.calls, rows, uses if at is None else uses * at)

    def apart(self) -> "Streams":
        """The same streams, with counters of their own."""
        return self._with(self.calls.clone(), self.rows, self.uses)

    def _with(self, calls: Tensor, rows: Tensor | None, uses: Tensor) -> "Streams":
        streams = object.__new__(Streams)  # a compiled step knows no copy.copy
        streams.key, streams.calls, streams.rows, streams.uses = self.key, calls, rows, uses
        return streams

    def count(self) -> None:
        """Count one call of each sequence without drawing numbers."""
        self.calls[slice(None) if self.rows is None else self.rows] += self.uses

    def draw(self, row: Tensor, position: Tensor) -> Tensor:
        """Next uniforms at `row` and `position`, which broadcast. It counts as one call of every sequence."""
        self.count()
        row, zero = row if self.rows is None else self.rows[row], torch.zeros((), dtype=torch.long, device=row.device)
        return uniforms((position, self.calls[row], zero, zero), (self.key[0][row], self.key[1][row]))

    def uniform(self, shape: Sequence[int], device: torch.device | None) -> Tensor:
        if len(self) != shape[0]:
            raise InputError(f"{len(self)} streams for {shape[0]} rows; give one for each row")
        row = torch.arange(len(self), device=self.calls.device)
        position = torch.arange(math.prod(shape[1:]), device=self.calls.device)
        return self.draw(row[:, None], position[None]).reshape(tuple(shape)).to(device)
