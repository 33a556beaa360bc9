"""What is refused where a method is asked from outside: rows that are no texts of it, times and positions of other shapes."""

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import arguments
from ..core.batch import Batch, tensor
from ..core.random import Counter, Randomness
from ..core.schedule import as_time
from ..errors import InputError

if TYPE_CHECKING:
    from .method import Method

ROUNDING = 1e-6  # of a time that was computed, such as that at which alpha has a value


def of_rows(function: Any, like: Any) -> Any:
    """`terms`, `bound` or `loss` of a method, which then refuses rows that are no texts of this method."""

    @functools.wraps(function)
    def ask(self: "Method", batch: Batch, generator: Randomness = None) -> Any:
        refuse_rows(self, batch)
        if torch.compiler.is_compiling():
            if isinstance(generator, Counter):
                batch = replace(batch, spare=generator.spare(batch.tokens.device))
            return function(self, batch, generator)
        with self.in_precision(batch.tokens.device):
            return function(self, batch, generator)

    return arguments.checked(ask, like=like)


def refuse_rows(method: "Method", batch: Batch) -> None:
    """InputError unless the batch holds rows of the method's length and vocabulary; not looked for in a compiled step."""
    if torch.compiler.is_compiling():
        return
    rows, length = batch.tokens.shape
    if not rows or not 0 < length <= method.shape[0]:
        raise InputError(
            f"tokens are {tensor(batch.tokens)}; they must be one row or more, of 1 to {method.shape[0]:,} tokens"
        )
    states, process = method.vocabulary, method.process
    if process is not None and process.mask is not None and process.mask < states:
        states = process.K  # the mask is among the tokens, those after it are numbered one further
    refuse_tokens(batch.tokens, states)


def _at_hand(x: Tensor) -> bool:
    """Whether values can be looked at: not in a compiled step, nor on a GPU, which would have to wait for the answer."""
    return not torch.compiler.is_compiling() and x.device.type == "cpu" and x.numel() > 0


def refuse_tokens(x: Tensor, states: int) -> None:
    """InputError where tokens are not 0 to `states` - 1, if they are at hand."""
    if not _at_hand(x):
        return
    low, high = (int(value) for value in x.aminmax())
    if low < 0 or high >= states:
        raise InputError(f"tokens hold {low if low < 0 else high:,}; they must be 0 to {states - 1:,}")


def refuse_times(method: "Method", x: Tensor, t: Tensor | float, at: Tensor | None = None) -> None:
    """InputError unless t are times that broadcast to the tokens x (B, L), and `at` says True or False of each."""
    if isinstance(t, Tensor) and (
        t.ndim > x.ndim or any(a not in (1, b) for a, b in zip(t.shape[::-1], x.shape[::-1]))
    ):
        raise InputError(f"`t` is {tensor(t)}; it must be a time, or times that broadcast to {tuple(x.shape)}")
    if at is not None and (at.shape != x.shape or at.dtype != torch.bool):
        raise InputError(f"`at` is {tensor(at)}; it must be True and False, of the shape {tuple(x.shape)}")
    if method.process is None or torch.compiler.is_compiling() or not _at_hand(t := as_time(t)):
        return
    low, high = method.process.span
    first, last = (float(value) for value in torch.where(t.isinf(), low, t.detach().double()).aminmax())
    if not low - ROUNDING <= first <= last <= high + ROUNDING:  # so of nan
        wrong = last if low <= first else first
        raise InputError(f"`t` is {wrong:g}; it must be from {low:g} to {high:g}, CLEAN or PRIOR")
