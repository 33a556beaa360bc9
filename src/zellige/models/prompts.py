"""What is given of a text before it is drawn: how many places it has, and the token at those that are not free."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import samplers
from ..core.batch import tensor, whole_numbers
from ..errors import InputError, check_counts
from ..show import kinds


def length_of(model: Any, length: int | None, grows: bool = False) -> int:
    """Tokens of a text: the model's own length, or what was asked for: less, or more where the sampler goes on (`grows`)."""
    most, running = int(model.method.shape[0]), kinds.of(model.tokenizer).running
    if length is None:
        return most
    check_counts(length=length)
    if length > most and not (grows and running):
        blocks = running and samplers.Blockwise.refuse(model.method) is None
        more = ", or a block sampler: `block_sampler` ancestral" if blocks else ""
        raise InputError(f"`length` is {length:,}, the model takes {most:,}; use {most:,} or less{more}")
    if length < most and not running:
        raise InputError(f"`length` is {length:,}, the rows of this model have {most:,} places; leave it out")
    return length


def flat_rows(values: Tensor, shape: Sequence[int]) -> Tensor:
    """Rows of a shape, (*shape) or (N, *shape), as (L,) or (N, L); anything else as it is."""
    axes = len(shape)
    return values.flatten(-axes) if axes > 1 and tuple(values.shape[-axes:]) == tuple(shape) else values


def fixed_tokens(fixed: Any, tokenizer: Any, length: int, total: int, rest: int = -1) -> Tensor:
    """(N, length) tokens, -1 where they are free, of (N, L) or (L,) with L of `length` at most; behind it `rest`."""
    rows = flat_rows(whole_numbers("fixed", fixed).cpu(), getattr(tokenizer, "shape", ()))
    rows = rows[None] if rows.ndim == 1 else rows
    if rows.ndim != 2:
        raise InputError(f"`fixed` is {tensor(rows)}; it must be (L,) or (N, L) tokens, -1 where one is free")
    N, width = rows.shape
    if width > length or (width < length and not kinds.of(tokenizer).running):
        raise InputError(f"fixed has {width:,} places, the model takes {length:,}; give a token or -1 for each")
    low, high = (int(x) for x in rows.aminmax()) if rows.numel() else (-1, -1)
    if low < -1 or high >= tokenizer.size:
        wrong = low if low < -1 else high
        raise InputError(f"fixed holds {wrong:,}; give tokens 0 to {tokenizer.size - 1:,}, and -1 where one is free")
    mask = getattr(tokenizer, "mask", None)
    if mask is not None and bool((rows == mask).any()):
        raise InputError(f"fixed holds {mask:,}, the mask; give -1 where a token is free")
    if not N or total % N:
        raise InputError(f"`count` is {total:,}, fixed has {N:,} rows; give a multiple of that")
    return torch.nn.functional.pad(rows, (0, length - width), value=rest)


def prompt_tokens(tokenizer: Any, prompts: Sequence[str], length: int, grows: bool) -> list[list[int]]:
    """The tokens of each, -1 behind those that are shorter than others."""
    rows = [_prompt(tokenizer, prompt, length, grows) for prompt in prompts]
    longest = max(map(len, rows), default=0)
    return [row + [-1] * (longest - len(row)) for row in rows]


def _prompt(tokenizer: Any, prompt: str, length: int, grows: bool) -> list[int]:
    tokens = tokenizer.encode(prompt)
    if len(tokens) > length:
        has = f"the prompt has {len(tokens):,} tokens, "
        if grows:
            raise InputError(f"{has}the text {length:,}; give a larger `length`")
        raise InputError(f"{has}the model takes {length:,}; shorten it, or use `length` with a block sampler")
    return tokens
