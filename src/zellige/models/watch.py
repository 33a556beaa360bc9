"""Drawing from a model: `watch` gives every step of it, `sample` what comes of it.

Every text has its own stream of random numbers, a function of (seed, its number), so that it does not depend on how many
others are drawn beside it. (The network's own rounding may: a text can differ where two tokens are equally likely to
within a few ulps.)
"""

import inspect
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from .. import samplers
from ..arguments import argument_names, checked
from ..core.batch import tensor, whole_numbers
from ..core.random import Streams, mix
from ..data import Data
from ..errors import InputError, check_counts
from ..samplers import State, choose_sampler, pairing, run
from ..samplers.ask import hides
from ..samplers.choices import SamplerChoices
from ..samplers.growing import again, merged
from ..samplers.pairing import of_length
from ..samplers.sampler import HIDDEN, start_distribution
from ..show import kinds
from .defaults import PLAIN, check_steps, end_token, with_defaults
from .frames import BATCH, Frame, collect
from .model import as_model, class_names, text_classes


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


def before_word(tokenizer: Any, text: str) -> str:
    """Return `text` without a blank at its end that the tokenizer would join to the next word.

    Subwords begin with their blank: no text has the tokens of "Once " followed by those of "upon", and a model has never seen
    them. Without the blank the next token may bring it. Unchanged where the tokens of a longer text begin with those of `text`.
    """
    if getattr(tokenizer, "unit", "token") != "token" or not text.endswith(" ") or not text.strip():
        return text
    tokens = tokenizer.encode(text)
    longer = tokenizer.encode(text + text.split()[-1])
    return text if longer[: len(tokens)] == tokens else text[:-1]


def _prompt(tokenizer: Any, prompt: str, length: int, grows: bool) -> list[int]:
    tokens = tokenizer.encode(before_word(tokenizer, prompt))
    if len(tokens) > length:
        has = f"the prompt has {len(tokens):,} tokens, "
        if grows:
            raise InputError(f"{has}the text {length:,}; give a larger `length`")
        raise InputError(f"{has}the model takes {length:,}; shorten it, or use `length` with a block sampler")
    return tokens


@checked
def watch(
    model: Any,
    *,
    count: int = 1,
    steps: int | None = None,
    sampler: Any = None,
    prompt: str | Sequence[str] | None = None,
    seed: int | Sequence[tuple[int, int]] = 0,
    temperature: float | None = None,
    top_p: float | None = None,
    length: int | None = None,
    batch: int = BATCH,
    fixed: Any = None,
    alone: bool = False,
    classes: Any = None,
    defaults: bool = True,
    **options: Unpack[SamplerChoices],
) -> Iterator[Frame]:
    """Draw texts and give every step: frames of one batch after another, from the first state to the last.

    Args:
        model: a `Model`, or the path or id of one.
        steps: steps of the sampler, by default T of a model of T steps, else 64; some have their own number.
        sampler: a name in SAMPLERS or an alias of one, or a sampler; by default the method's own, ancestral for most.
            `block_sampler`, one of its options, makes it blockwise, with that one inside.
        prompt: what each text begins with; or N of them, as the rows of `fixed`. A blank at its end is left to the next token
            where tokens begin with their blank.
        seed: of all texts; or for each a pair (seed, number): what the text of that number would be if it were drawn under it.
        temperature, top_p: act on the clean posterior.
        length: tokens of a text; the model's own length by default, and at most unless a sampler writes from left to right.
        batch: texts at once; they do not depend on it.
        fixed: (L,) instead of a prompt: the token where it is given, -1 where it is free. Or (N, L), where `count` is a
            multiple of N: so many texts of the first row, then of the second, and so on.
        alone: of `fixed` shorter than the text draw nothing behind it, where the noise is a mask or a sampler writes from left
            to right; see `infill`.
        classes: of a model with classes, a name or a number; or several, and then `count` texts of each. None: it is told none.
        defaults: what is left out is as `model.defaults` says, if the model carries any; False: the model's own distribution,
            that of temperature 1 and the method's own sampler.
        options: those of the named sampler: `watch(model, sampler="confidence", confidence="margin")`.

    Raises:
        InputError: unknown sampler, one that the method does not admit, an option that it does not take, a number out of
            its range, a prompt that is too long or not in the vocabulary, a class that the model does not know.
    """
    check_counts(count=count, batch=batch)
    check_steps(steps)
    model = as_model(model)
    way = {"sampler": sampler, "steps": steps, "temperature": temperature, "top_p": top_p, **options}
    way = with_defaults(model, way) if defaults else way
    sampler, steps, temperature, top_p = (way.pop(name, None) for name in PLAIN)
    method, tokenizer = model.method, model.tokenizer
    condition = None if classes is None else text_classes(model, classes, count, fixed)
    count = count if condition is None else len(condition)
    if not isinstance(seed, int) and len(seed) != count:
        raise InputError(
            f"`seed` has {len(seed):,} pairs, and there are {count:,} texts; give one for each, or a number"
        )
    documents = getattr(getattr(model, "config", None), "data", Data()).pack != "wrap"
    end = None if fixed is not None else end_token(tokenizer, documents)
    how = choose_sampler(sampler, method, temperature, top_p, way, end, argument_names(inspect.signature(watch)))
    if alone and how.grows and length is None:
        length = int(torch.as_tensor(fixed).shape[-1])
    length = length_of(model, length, how.grows)
    if fixed is None and prompt:
        fixed = prompt_tokens(tokenizer, [prompt] if isinstance(prompt, str) else prompt, length, how.grows)
    if fixed is not None:
        rest = HIDDEN if alone and not how.grows and hides(method) else -1
        fixed = fixed_tokens(fixed, tokenizer, length, count, rest)
    how.admit(method, fixed)
    device = next((p.device for p in method.parameters()), torch.device("cpu"))
    inside = of_length(method, length)
    times, expected = _times(how, inside, steps), _expected(how, inside, steps, fixed)
    end = end if documents else None
    return _watch(
        model, how, count, steps, seed, length, batch, fixed, device, tokenizer, times, end, expected, condition
    )


def watch_some(model: Any, count: int, **how: Any) -> Iterator[Frame]:
    """`count` texts of the model's own distribution: of one with classes a text of each, from the first on."""
    names = class_names(model)
    if not names:
        return watch(model, count=count, defaults=False, **how)
    return watch(model, count=1, defaults=False, classes=[i % len(names) for i in range(count)], **how)


def _expected(how: Any, method: Any, steps: int | None, fixed: Tensor | None) -> float | None:
    """The mean over texts of the network calls that they take in expectation; None where the sampler does not know."""
    times = how.times(method, steps).to(start_distribution(method))
    free = [method.shape[0]] if fixed is None else (fixed == -1).sum(-1).tolist()
    if how.grows and len(set(free)) > 1:
        return None  # what is read of one text depends on where the others' gaps begin
    each = [how.expected_calls(method, times, n) for n in free]
    return None if None in each else sum(each) / len(each)


def _times(how: Any, method: Any, steps: int | None) -> list[float]:
    """The time of each frame, from 1 to 0; where they are a mere counter, or several numbers, shown as if they were even."""
    grid = how.times(method, steps)
    times = [float(t) for t in (grid if grid.ndim == 1 else grid[:, 0])]
    if grid.ndim > 1 or 1 < times[0] < math.inf:
        return [1 - i / max(len(times) - 1, 1) for i in range(len(times))]
    return [min(max(t, 0.0), 1.0) for t in times]


def _watch(
    model, how, total, steps, seed, length, batch, fixed, device, tokenizer, times, end, expected, condition
) -> Iterator[Frame]:
    method, names = model.method, class_names(model)
    training = method.training
    method.eval()
    try:
        for first in range(0, total, batch):
            B = min(batch, total - first)
            fixed_rows = (
                None if fixed is None else fixed[torch.arange(first, first + B) * len(fixed) // total].to(device)
            )
            condition_rows = None if condition is None else condition[first : first + B].to(device)
            labels = () if condition_rows is None else tuple(names[i] for i in condition_rows.tolist())
            states = _states(how, method, (B, length), steps, fixed_rows, seed, first, condition_rows)
            before, seconds = None, 0.0
            while True:
                started = time.perf_counter()
                made = next(states, None)
                seconds += time.perf_counter() - started
                if made is None:
                    break
                step, state = made
                before = state.x if before is None else before
                t = times[min(step, len(times) - 1)]
                mask = pairing.blank(method)
                frame = (state, step, len(times) - 1, t, before, first, total, seconds, tokenizer, mask, end, expected)
                yield Frame(*frame, labels)
                before = state.x
    finally:
        method.train(training)


def _states(
    how: Any,
    method: Any,
    shape: tuple[int, int],
    steps: int | None,
    fixed_rows: Tensor | None,
    seed: int | Sequence[tuple[int, int]],
    first: int,
    condition_rows: Tensor | None = None,
) -> Iterator[tuple[int, State]]:
    """The states of a batch, each with the number of its step. Texts that repeat themselves are drawn again from the beginning,
    at most `how.redraws()` times, with another stream of random numbers each time; the last step is that of all of them.
    """
    rows, whole = torch.arange(shape[0]), None
    last = len(how.times(of_length(method, shape[1]), steps)) - 1
    for tried in range(how.redraws() + 1):
        pairs = [(seed, first + row) if isinstance(seed, int) else seed[first + row] for row in rows.tolist()]
        seeds = [mix(*pair, *([tried] if tried else [])) for pair in pairs]
        streams = Streams(seeds, start_distribution(method).device)
        fixed = None if fixed_rows is None else fixed_rows[rows.to(fixed_rows.device)]
        condition = None if condition_rows is None else condition_rows[rows.to(condition_rows.device)]
        drawing = run(how, method, (len(rows), shape[1]), steps, fixed=fixed, generator=streams, condition=condition)
        for step, part in enumerate(drawing):
            state = part if whole is None else merged(whole, rows, part)
            if step == last and tried < how.redraws() and len(again(state)):
                break
            yield step, state
        else:
            return
        whole, rows = state, again(state)


@checked
def sample(
    model: Any,
    *,
    count: int = 1,
    steps: int | None = None,
    sampler: Any = None,
    prompt: str | Sequence[str] | None = None,
    seed: int | Sequence[tuple[int, int]] = 0,
    temperature: float | None = None,
    top_p: float | None = None,
    length: int | None = None,
    batch: int = BATCH,
    fixed: Any = None,
    alone: bool = False,
    classes: Any = None,
    defaults: bool = True,
    **options: Unpack[SamplerChoices],
) -> list[str] | np.ndarray:
    """Draw texts: `sample(model, count=4, steps=64, seed=0)`.

    Args:
        model: a `Model`, or the path or id of one.
        count: how many texts.
        steps: of the sampler, by default T of a model of T steps, else 64; as many network calls at most for nearly all.
        sampler: a name of `zellige list samplers`, or a sampler; by default the method's own.
        prompt: what each text begins with, or what each of them does.
        seed: a text depends on it and on the text's number alone.
        temperature, top_p: act on the clean posterior; 1 draws from the model, and is meant where it carries no default.
        length: tokens of a text; by default the model's own length.
        batch: texts at once; they do not depend on it.
        fixed, alone: tokens that stay, (L,) or (N, L), -1 where one is drawn; of a grid its symbols, as they come back.
        classes: of a model that was told classes, a name or a number, or several; `count` texts of each.
        defaults: what is left out is as `model.defaults` says; False: the model's own distribution.
        options: those of the named sampler.

    Returns:
        A list of texts; of images and music an array (count, *shape) of their tokens, of grids one of their symbols: of a
        Sudoku its digits.

    Raises:
        InputError: as `watch`.
    """
    model = as_model(model)
    kind = kinds.of(model.tokenizer)
    fixed = fixed if fixed is None else kind.tokens(fixed)
    frames = watch(
        model, count=count, steps=steps, sampler=sampler, prompt=prompt, seed=seed, temperature=temperature, top_p=top_p,
        length=length, batch=batch, fixed=fixed, alone=alone, classes=classes, defaults=defaults, **options,
    )  # fmt: skip
    return kind.values(collect(frames).tokens)
