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
FEW = 12
Words = tuple[Tensor, Tensor, Tensor, Tensor]


def philox(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """Four words of 32 random bits for each counter: words (*) int64 in [0, 2^32) that broadcast, a key of two such words."""
    words = (*counter, *key)
    if not torch.compiler.is_compiling() and all(type(word) is Tensor and word.device.type == "cpu" for word in words):
        return tuple(torch.from_numpy(_counted(words).astype(np.int64)))  # pyright: ignore
    return _rounds(*words, _by_halves if torch.compiler.is_compiling() else _wrapped)


def uniforms(counter: Words, key: tuple[Tensor, Tensor]) -> Tensor:
    """Uniforms in [0, 1) with 53 random bits, (*) float64."""
    words = (*counter, *key)
    if not torch.compiler.is_compiling() and all(type(word) is Tensor and word.device.type == "cpu" for word in words):
        high, low, _, _ = _counted(words)
        return torch.from_numpy(((high >> 5 << 26) + (low >> 6)) * 2.0**-53)
    high, low, _, _ = philox(counter, key)
    return ((high >> 5 << 26) + (low >> 6)).double() * 2.0**-53


def _counted(words: tuple[Tensor, ...]) -> np.ndarray:
    """The four words, (4, *) uint64, of tensors of the CPU: by NumPy, whose operations on some numbers take a fifth of the time
    of PyTorch's; of a few by Python, which takes 10 us for one."""
    each = np.broadcast(*(word.numpy() for word in words))
    if each.size <= FEW:
        made = [_rounds(*map(int, word), _whole) for word in each]  # pyright: ignore
        return np.array(made, dtype=np.uint64).T.reshape(4, *each.shape)
    return np.stack(_rounds(*(word.numpy().astype(np.uint64) for word in words), _unsigned))  # pyright: ignore


def _rounds(a: Any, b: Any, c: Any, d: Any, k: Any, l: Any, product: Callable[[Any, int], tuple[Any, Any]]) -> Any:
    """The ten rounds, on words of whatever `product` multiplies: the high and the low word of a word times a number."""
    for _ in range(10):
        (high, low), (up, down) = product(a, _MULTIPLIERS[0]), product(c, _MULTIPLIERS[1])
        a, b, c, d = up ^ b ^ k, down, high ^ d ^ l, low
        k, l = k + _WEYL[0] & WORD, l + _WEYL[1] & WORD
    return a, b, c, d


def _whole(x: int, number: int) -> tuple[int, int]:
    return x * number >> 32, x * number & WORD


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
