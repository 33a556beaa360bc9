"""Whether the values of a tensor are at hand, and whether shapes may depend on them.

Work on a GPU is queued: Python runs ahead, and waits for all of the queue where it reads a value (`bool(x.any())`) or
makes a shape of values (`x.nonzero()`). On a CPU reading costs nothing, and saves work.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

READABLE = ("cpu",)  # devices whose values are at hand; the others are waited for


class _Thread(threading.local):
    """What holds in this thread: whether shapes are fixed, and the count of `at_most`."""

    def __init__(self) -> None:
        self.fixed, self.most = False, None


_thread: Any = _Thread()


def at_hand(x: Tensor) -> bool:
    """Return whether the values of a tensor can be read at no cost."""
    return x.device.type in READABLE and not fixed()


def fixed() -> bool:
    """Return whether no shape may depend on a value: in a compiled step, and within `fixed_shapes`."""
    return torch.compiler.is_compiling() or _thread.fixed


def most_positions() -> int | None:
    """Return the count of `at_most`; None outside of it."""
    return _thread.most


def fixed_shapes(on: bool = True) -> contextlib.AbstractContextManager[None]:
    """Within it, if `on`, no value is read: all positions are computed, and those that are not chosen are left out of the
    result."""
    return contextlib.nullcontext() if fixed() or not on else _set("fixed", True)


def at_most(count: int) -> contextlib.AbstractContextManager[None]:
    """Within it, where shapes are fixed, only `count` positions are computed; the caller knows that no more are chosen."""
    return _set("most", count)


@contextlib.contextmanager
def _set(name: str, value: object) -> Iterator[None]:
    before = getattr(_thread, name)
    setattr(_thread, name, value)
    try:
        yield
    finally:
        setattr(_thread, name, before)
