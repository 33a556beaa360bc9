"""Counter-based random numbers: functions of a seed and a counter, equal on every device and in a batch of any size.

The bits are those of Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): each word is a
function of a key and a counter, so that there is no state.
"""

import copy
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
    """Four words of 32 random bits for each counter. Counter: words (*) int64 in [0, 2^32) that broadcast; key: two
    such words."""
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
    """The four words (4, *) uint64 of CPU tensors. NumPy takes a fifth of PyTorch's time for small arrays, and Python
    10 us for a single counter."""
    grid = np.broadcast(*(word.numpy() for word in words))
    if grid.size <= FEW:
        results = [_rounds(a, b, c, d, k, l, _whole) for a, b, c, d, k, l in (map(int, word) for word in grid)]
        return np.array(results, dtype=np.uint64).T.reshape(4, *grid.shape)
    return _rounds_of_arrays(*(word.numpy() for word in words))


def _rounds_of_arrays(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray, k: np.ndarray, l: np.ndarray
) -> np.ndarray:
    """The ten rounds on arrays that broadcast, (4, *) uint64: both products of a round in one operation, into memory at
    hand."""
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
    """The ten rounds on words of any type. `product` multiplies a word by a number and returns the high and the low
    word."""
    for _ in range(10):
        (high, low), (up, down) = product(a, _MULTIPLIERS[0]), product(c, _MULTIPLIERS[1])
        a, b, c, d = up ^ b ^ k, down, high ^ d ^ l, low
        k, l = k + _WEYL[0] & WORD, l + _WEYL[1] & WORD
    return a, b, c, d


def _whole(x: int, number: int) -> tuple[int, int]:
    return x * number >> 32, x * number & WORD


def _wrapped(x: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Modulo 2^64, whose sign does not matter."""
    whole = x * number
    return whole >> 32 & WORD, whole & WORD


def _by_halves(x: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The same without a sum above 2^63: overflow of signed integers is undefined in compiled code."""
    low = (x & 0xFFFF) * number
    high = (x >> 16) * number + (low >> 16)
    return high >> 16, (high & 0xFFFF) << 16 | low & 0xFFFF


class Counter:
    """Random numbers as a function of (seed, step, example, position). They are equal on every device and for any split
    of a step.

    Each call gives new numbers; the n-th call of one part corresponds to the n-th of every other. Part p of n has the
    examples p, p + n, p + 2n, ...

    Args:
        seed: of 63 bits.
        step, part: below 2^32; tensors () for a compiled step, which would otherwise be compiled for each value.
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
        """A uniform () of this part that no other draw uses or changes."""
        row = torch.full((), self.part, dtype=torch.long, device=device) if isinstance(self.part, int) else self.part
        zero = torch.zeros((), dtype=torch.long, device=device)
        return self._draw(zero, row, call=0)

    def stratified(self, n: int, device: torch.device | None) -> Tensor:
        """Strata over the examples of all parts; see `random.stratified`."""
        row = self.part + self.parts * torch.arange(n, device=device, dtype=torch.float64)
        return (self.shared(device) + row / (self.parts * n)) % 1.0

    def shared(self, device: torch.device | None) -> Tensor:
        """A uniform (1,) that all parts share."""
        whole = torch.full((1,), WORD, dtype=torch.long, device=device)  # a row that is none
        return self._draw(torch.zeros_like(whole), whole)


class Independent(Counter):
    """As `Counter`, with times that are independent instead of spread evenly over the examples."""

    def stratified(self, n: int, device: torch.device | None) -> Tensor:
        return self.uniform((n,), device)


class Streams:
    """Random numbers of B sequences, each with its own stream: a function of (its seed, its number of draws, position).

    A sequence's numbers depend on its seed alone, not on the batch or the device. Each call gives new numbers; a
    uniform has 53 bits.

    Args:
        seeds: of 63 bits, one for each sequence.
        device: of the numbers.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device | str | None = None):
        words = torch.tensor([[seed & WORD, seed >> 32] for seed in seeds], dtype=torch.long).to(device)
        self.key, self.calls = (words[:, 0], words[:, 1]), torch.zeros_like(words[:, 0])
        self.rows: Tensor | None = None  # all of them
        self.uses: Tensor | int = 1  # draws of each that a call uses up

    def __len__(self) -> int:
        return len(self.calls if self.rows is None else self.rows)

    def of(self, rows: Tensor, at: Tensor | None = None) -> "Streams":
        """The streams of these sequences (N,). They share their counters with this object.

        Where `at` (N,) is False what is drawn is for nothing, and no draw is used up.
        """
        subset = copy.copy(self)
        uses = self.uses[rows] if isinstance(self.uses, Tensor) else self.uses
        subset.uses = uses if at is None else uses * at
        subset.rows = rows if self.rows is None else self.rows[rows]
        return subset

    def count(self) -> None:
        """Skip one draw of each sequence."""
        self.calls[slice(None) if self.rows is None else self.rows] += self.uses

    def draw(self, row: Tensor, position: Tensor) -> Tensor:
        """The next uniforms at these sequences and positions, which broadcast. Every sequence uses up one draw."""
        self.count()
        row, zero = row if self.rows is None else self.rows[row], torch.zeros((), dtype=torch.long, device=row.device)
        return uniforms((position, self.calls[row], zero, zero), (self.key[0][row], self.key[1][row]))

    def uniform(self, shape: Sequence[int], device: torch.device | None) -> Tensor:
        if len(self) != shape[0]:
            raise InputError(f"{len(self)} streams for {shape[0]} rows; give one for each row")
        row = torch.arange(len(self), device=self.calls.device)
        position = torch.arange(math.prod(shape[1:]), device=self.calls.device)
        return self.draw(row[:, None], position[None]).reshape(tuple(shape)).to(device)
