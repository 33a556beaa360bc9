"""Random bits by counting: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").

Each draw is a function of a key and a counter, so that there is no state, and the same on every device.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

WORD = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
Words = tuple[Tensor, Tensor, Tensor, Tensor]


def philox(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """Four words of 32 random bits for each counter: words (*) int64 in [0, 2^32) that broadcast, a key of two such words.

    The tensors of a CPU are counted by NumPy, whose operations on a few numbers take a fifth of the time.
    """
    words: tuple[Any, Any, Any, Any, Any, Any] = (*counter, *key)
    if torch.compiler.is_compiling():
        return _rounds(*words, _by_halves)
    if all(type(word) is Tensor and word.device.type == "cpu" for word in words):
        a, b, c, d, k, l = (word.numpy().astype(np.uint64) for word in words)
        made = _rounds(a, b, c, d, k, l, _unsigned)
        return tuple(torch.from_numpy(np.asarray(word).astype(np.int64)) for word in made)  # pyright: ignore
    return _rounds(*words, _wrapped)


def uniforms(counter: Words, key: tuple[Tensor, Tensor]) -> Tensor:
    """Uniforms in [0, 1) with 53 random bits, (*) float64."""
    high, low, _, _ = philox(counter, key)
    return ((high >> 5 << 26) + (low >> 6)).double() * 2.0**-53


def _rounds(a: Any, b: Any, c: Any, d: Any, k: Any, l: Any, product: Callable[[Any, int], tuple[Any, Any]]) -> Any:
    """The ten rounds, on words of whatever `product` multiplies: the high and the low word of a word times a number."""
    for _ in range(10):
        (high, low), (up, down) = product(a, _MULTIPLIERS[0]), product(c, _MULTIPLIERS[1])
        a, b, c, d = up ^ b ^ k, down, high ^ d ^ l, low
        k, l = k + _WEYL[0] & WORD, l + _WEYL[1] & WORD
    return a, b, c, d


def _unsigned(x: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    whole = x * np.uint64(number)
    return whole >> np.uint64(32), whole & np.uint64(WORD)


def _wrapped(x: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Modulo 2^64, whose sign does not matter."""
    whole = x * number
    return whole >> 32 & WORD, whole & WORD


def _by_halves(x: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Without a sum above 2^63: a compiler takes it that there is none, and is free to do anything where there is."""
    low = (x & 0xFFFF) * number
    high = (x >> 16) * number + (low >> 16)
    return high >> 16, (high & 0xFFFF) << 16 | low & 0xFFFF
