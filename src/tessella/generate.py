"""Texts from a model: `sample` draws them, `infill` fills the gaps of a given one, `watch` is the loop behind both.

Every text has its own stream of random numbers, a function of (seed, its number), so that it does not depend on how many
others are drawn beside it. (The network's own rounding may: a text can differ where two tokens are equally likely to
within a few ulps.)
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from . import samplers
from .errors import InputError
from .samplers import State, run
from .terminal import Mark, Picture, Terminal, Watch, count, counted, duration, rate, scaled

BATCH = 16  # texts drawn at once


@dataclass(frozen=True)
class Frame:
    """A sampler's state after `step` of `steps` steps, with the text on it.

    Attributes:
        state: the sampler's state.
        t: the time it stands at, 1 before the first step, 0 after the last.
        before: (B, L) the tokens one step earlier.
        first: the number of the first text in it (of `count`).
        seconds: time spent in sampling this batch so far, without what was done with the frames.
        tokenizer, mask: what makes a text of tokens; the mask's token or None.
    """

    state: State
    step: int
    steps: int
    t: float
    before: Tensor
    first: int
    count: int
    seconds: float
    tokenizer: Any
    mask: int | None

    @property
    def x(self) -> Tensor:
        """(B, L) tokens."""
        return self.state.x

    @property
    def fixed(self) -> Tensor:
        """(B, L) bool, what was given."""
        return self.state.fixed

    @property
    def calls(self) -> Tensor:
        """(B,) network calls so far."""
        return self.state.calls

    @property
    def masked(self) -> Tensor:
        """(B, L) bool, what is still to come."""
        return self.x == self.mask if self.mask is not None else torch.zeros_like(self.fixed)

    @property
    def new(self) -> Tensor:
        """(B, L) bool, what took its value in this step."""
        return (self.x != self.before) & ~self.masked

    @cached_property
    def text(self) -> list[str]:
        """The texts; a masked token is `·`."""
        return [self.tokenizer.decode(row) for row in self.x.tolist()]

    def marks(self, row: int) -> list[Mark]:
        """What happened to each token of a row, as `terminal.Picture` has it."""
        known = torch.zeros_like(self.fixed) if self.mask is None else self.before != self.mask
        codes = torch.full_like(self.x, 2)
        codes[self.x != self.before] = 4  # another token than before
        codes[self.new & ~known & (self.mask is not None)] = 1
        codes[self.masked] = 0
        codes[self.masked & known] = 5  # a token before, masked again
        codes[self.fixed] = 3
        names: tuple[Mark, ...] = ("masked", "new", "shown", "given", "changed", "again")
        return [names[code] for code in codes[row].tolist()]


def check(**counts: int) -> None:
    """Each of these must be 1 or more."""
    for name, value in counts.items():
        if value < 1:
            raise InputError(f"--{name} is {value}; it must be 1 or more")


def mix(*numbers: int | str) -> int:
    """One seed (63 bits) of several numbers, by a hash: streams that have nothing in common."""
    digest = hashlib.blake2b(",".join(map(str, numbers)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def load(model: Any) -> Any:
    """A model: itself, or from a run folder, a saved folder or a hub id."""
    if isinstance(model, str) or hasattr(model, "__fspath__"):
        from .checkpoint import load

        return load(str(model))
    return model


def watch(
    model: Any,
    *,
    count: int = 1,
    steps: int | None = None,
    sampler: Any = "ancestral",
    prompt: str | None = None,
    seed: int = 0,
    temperature: float = 1.0,
    top_p: float = 1.0,
    length: int | None = None,
    batch: int = BATCH,
    fixed: Sequence[int] | Tensor | None = None,
    **options: Any,
) -> Iterator[Frame]:
    """Draw texts and give every step: frames of one batch after another, from the first state to the last.

    Args:
        model: a `Model`, or the path or id of one.
        steps: steps of the sampler, 64 by default (in discrete time the nearest divisor of T); some have their own number.
        sampler: a name in SAMPLERS or an alias of one, or a sampler.
        prompt: what each text begins with.
        temperature, top_p: act on the clean posterior.
        length: tokens of a text; the model's own length by default.
        batch: texts at once; they do not depend on it.
        fixed: (L,) instead of a prompt: the token where it is given, -1 where it is free.
        options: those of the named sampler: `watch(model, sampler="confidence", confidence="margin")`.

    Raises:
        InputError: unknown sampler, one that the method does not admit, an option that it does not take, a number out of
            its range, a prompt that is too long or not in the vocabulary.
    """
    check(count=count, batch=batch, **({} if steps is None else {"steps": steps}))
    model = load(model)
    method, tokenizer = model.method, model.tokenizer
    length = _length(model, length)
    if fixed is None and prompt:
        fixed = _prompt(tokenizer, prompt, length)
    how = _sampler(sampler, temperature, top_p, options)
    samplers.check(how, method)
    device = next((p.device for p in method.parameters()), torch.device("cpu"))
    return _watch(model, how, count, steps, seed, length, batch, fixed, device, tokenizer, _times(how, method, steps))


def _times(how: Any, method: Any, steps: int | None) -> list[float]:
    """The time of each frame, from 1 to 0; a sampler whose times are a mere counter is shown as if they were even."""
    times = [float(t) for t in how.times(method, steps).flatten()]
    if any(1 < t < math.inf for t in times):
        return [1 - i / max(len(times) - 1, 1) for i in range(len(times))]
    return [min(max(t, 0.0), 1.0) for t in times]


def _watch(model, how, total, steps, seed, length, batch, fixed, device, tokenizer, times) -> Iterator[Frame]:
    method = model.method
    training = method.training
    method.eval()
    try:
        for first in range(0, total, batch):
            B = min(batch, total - first)
            given = None
            if fixed is not None:
                row = torch.full((length,), -1, dtype=torch.long)
                row[: len(fixed)] = torch.as_tensor(fixed)
                given = row.expand(B, -1).to(device)
            streams = [torch.Generator().manual_seed(mix(seed, number)) for number in range(first, first + B)]
            states = run(how, method, (B, length), steps, fixed=given, generator=streams)
            before, step, seconds = None, 0, 0.0
            while True:
                started = time.perf_counter()
                state = next(states, None)
                seconds += time.perf_counter() - started
                if state is None:
                    break
                before = state.x if before is None else before
                t = times[min(step, len(times) - 1)]
                mask = getattr(method.process, "mask", None)
                yield Frame(state, step, len(times) - 1, t, before, first, total, seconds, tokenizer, mask)
                before, step = state.x, step + 1
    finally:
        method.train(training)


def _length(model: Any, length: int | None) -> int:
    most = int(model.method.shape[0])
    if length is None:
        return most
    check(length=length)
    if length > most:
        raise InputError(f"--length is {length:,}, the model takes {most:,}; use {most:,} or less")
    return length


def _prompt(tokenizer: Any, prompt: str, length: int) -> list[int]:
    tokens = tokenizer.encode(prompt)
    if len(tokens) > length:
        raise InputError(
            f"the prompt has {len(tokens):,} tokens, the model takes {length:,}; "
            "shorten it, or use --length with a block sampler"
        )
    return tokens


def _sampler(sampler: Any, temperature: float, top_p: float, chosen: dict[str, Any]) -> Any:
    if not temperature >= 0:
        raise InputError(f"--temperature is {temperature:g}; it must be 0 or more")
    if not 0 < top_p <= 1:
        raise InputError(f"--top-p is {top_p:g}; it must be above 0 and at most 1")
    if not isinstance(sampler, str):
        if chosen:
            raise InputError(f"{_flag(next(iter(chosen)))} goes with a sampler's name; this one is made already")
        return sampler
    cls = samplers.find(sampler)
    own = samplers.options(cls)
    for name in chosen:
        if name not in own:
            if not any(name in samplers.options(other) for other in samplers.SAMPLERS.values()):
                raise TypeError(f"watch() got an unexpected keyword argument '{name}'")
            takes = f"its options: {', '.join(map(_flag, own))}" if own else "it has no options of its own"
            raise InputError(f"sampler '{sampler}' takes no {_flag(name)}; {takes}")
    return cls(temperature=temperature, top_p=top_p, **chosen)  # pyright: ignore[reportCallIssue]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def approximate(model: Any) -> str | None:
    """What to say where tokens are given to a process for which keeping them is not exact; None where it is."""
    if getattr(model.method.process, "mask", None) is not None:
        return None
    return "given tokens are kept, which is approximate for this noise: the rest is not drawn from the exact conditional law"


@dataclass(frozen=True)
class Drawn:
    """Finished texts and what they cost."""

    texts: list[str]
    tokens: list[list[int]]
    calls: list[int]
    steps: int
    seconds: float

    @property
    def idle(self) -> list[int]:
        """Steps of each text in which nothing moved, so that the network was not asked (it may be asked twice in others)."""
        return [max(self.steps - calls, 0) for calls in self.calls]

    @property
    def speed(self) -> float:
        """Tokens a second, all texts together."""
        return sum(map(len, self.tokens)) / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        """`2 samples, 512 tokens, 0.9 s, 63 network calls each (64 steps, 1 idle)`, and on a second line the speed."""
        many = f"{counted(len(self.texts), 'sample')}, {counted(sum(map(len, self.tokens)), 'token')}"
        calls = f"{_range(self.calls)} network call{'' if set(self.calls) == {1} else 's'} each"
        steps = f"({counted(self.steps, 'step')}, {_range(self.idle)} idle)"
        return f"{many}, {duration(self.seconds)}, {calls} {steps}\n  {rate(self.speed)}"


def _range(values: list[int]) -> str:
    low, high = min(values), max(values)
    return count(low) if low == high else f"{count(low)} to {count(high)}"


def collect(frames: Iterable[Frame], see: Callable[[Frame], None] | None = None) -> Drawn:
    """Run through the frames (showing each to `see`) and keep what the last of each batch holds."""
    texts: list[str] = []
    tokens: list[list[int]] = []
    calls: list[int] = []
    steps, seconds = 0, 0.0
    for frame in frames:
        if see:
            see(frame)
        if frame.step == frame.steps:
            steps, seconds = frame.steps, seconds + frame.seconds
            texts += frame.text
            tokens += frame.x.tolist()
            calls += frame.calls.tolist()
    return Drawn(texts, tokens, calls, steps, seconds)


def sample(model: Any, **how: Any) -> list[str]:
    """Draw texts: `sample(model, count=4, steps=64, seed=0)`. The arguments are those of `watch`."""
    return collect(watch(model, **how)).texts


@dataclass(frozen=True)
class Gaps:
    """A text with gaps, as tokens.

    Attributes:
        parts: what is given, verbatim, and between two parts how many tokens are missing.
        fixed: the tokens, -1 where one is missing.
    """

    parts: list[str | int]
    fixed: list[int]

    def fill(self, tokens: Sequence[int], tokenizer: Any) -> str:
        """The text with its gaps filled from `tokens`; what was given stays as it was given."""
        out, at = "", 0
        free = [i for i, token in enumerate(self.fixed) if token < 0]
        for part in self.parts:
            if isinstance(part, str):
                out += part
                continue
            where = free[at : at + part]
            at += part
            before = list(tokens[: where[0]][-1:])
            out += _added(tokenizer, before, [tokens[i] for i in where])
        return out


def gaps(tokenizer: Any, text: str, length: int, mask_token: str | None = None) -> Gaps:
    """Read a text with gaps: each `_` (or `mask_token`) is one missing token.

    Characters and bytes count as one token each; for other tokenizers a gap has no length in characters, so that
    `mask_token` must be given, once for each missing token.

    Raises:
        InputError: nothing to fill, too long, or a character that is not in the vocabulary.
    """
    unit = getattr(tokenizer, "unit", "token")
    if mask_token is None and unit == "token" and "_" in text:
        raise InputError(
            f"'_' stands for a missing character, and '{tokenizer.name}' is not by characters; "
            "set --mask-token '_' to read each as one missing token"
        )
    sign = mask_token or "_"
    if sign not in text:
        what = (
            "mark each missing character with '_', or set --mask-token"
            if mask_token is None
            else "mark what is missing"
        )
        raise InputError(f"nothing to fill: no '{sign}' in the text; {what}")
    parts: list[str | int] = []
    fixed: list[int] = []
    if unit == "char":  # read as a whole, so that an error names the position in what was typed
        stand_in = tokenizer.decode([0])
        tokenizer.encode(text.replace(sign, stand_in * len(sign)), "the text")
    for i, given in enumerate(text.split(sign)):
        if i:
            if parts and isinstance(parts[-1], int):
                parts[-1] += 1
            else:
                parts.append(1)
            fixed.append(-1)
        if given:
            parts.append(given)
            fixed += tokenizer.encode(given, "the text")
    if len(fixed) > length:
        raise InputError(f"the text has {len(fixed):,} tokens, the model takes {length:,}; shorten it")
    return Gaps(parts, fixed)


def _added(tokenizer: Any, before: list[int], tokens: list[int]) -> str:
    """The text that `tokens` add after `before`."""
    head, whole = tokenizer.decode(before), tokenizer.decode([*before, *tokens])
    return whole[len(head) :] if whole.startswith(head) else tokenizer.decode(tokens)


def infill(
    model: Any,
    text: str,
    *,
    count: int = 1,
    steps: int | None = None,
    seed: int = 0,
    mask_token: str | None = None,
    **how: Any,
) -> list[str]:
    """Fill the gaps of `text`, `count` times; everything else stays exactly as it is.

    `infill(model, "the quick _____ fox")`: a run of `_` is as many characters; for tokenizers that are not by characters
    each `mask_token` is one missing token. The text is the beginning of one of the model's own length whose rest is free:
    the law is the model's conditional law given the text (approximately, if its noise is not absorbing). The other arguments
    are those of `watch`.
    """
    return fill(model, text, count=count, steps=steps, seed=seed, mask_token=mask_token, **how)[1].texts


def fill(
    model: Any, text: str, *, mask_token: str | None = None, see: Callable[[Frame], None] | None = None, **how: Any
) -> tuple[Gaps, Drawn]:
    """As `infill`, with what it cost; `see` is shown every frame."""
    model = load(model)
    given = gaps(model.tokenizer, text, _length(model, how.get("length")), mask_token)
    return given, filled(given, collect(watch(model, fixed=given.fixed, **how), see), model.tokenizer)


def filled(given: Gaps, drawn: Drawn, tokenizer: Any) -> Drawn:
    """Drawn rows as the text with its gaps filled; what comes after the text is cut off."""
    texts = [given.fill(row, tokenizer) for row in drawn.tokens]
    tokens = [row[: len(given.fixed)] for row in drawn.tokens]
    return Drawn(texts, tokens, drawn.calls, drawn.steps, drawn.seconds)


# ------------------------------------------------------------------------------------------------------- on a terminal
def pieces(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """The text of each token by itself, as it stands in running text; of a character of several tokens the last has it."""
    piece = _piece(tokenizer)
    out = [piece(token) for token in tokens]
    i = 0
    while i < len(out):
        end = i
        while end < len(out) and "\ufffd" in out[end] and 0 <= tokens[end] < tokenizer.size:
            end += 1
        if end > i + 1:
            out[i:end] = [""] * (end - i - 1) + [tokenizer.decode(list(tokens[i:end]))]
        i = max(end, i + 1)
    return out


def _piece(tokenizer: Any) -> Callable[[int], str]:
    if getattr(tokenizer, "unit", "token") == "char":
        return cache(lambda token: tokenizer.decode([token]))
    anchor = next((i for i in range(min(tokenizer.size, 5000)) if tokenizer.decode([i]).strip().isalnum()), None)
    return cache(lambda token: _added(tokenizer, [] if anchor is None else [anchor], [token]))


def picture(frame: Frame, row: int = 0, length: int | None = None, head: str | None = None) -> Picture:
    """One text of a frame, for `terminal.Watch`; the first `length` tokens of it."""
    tokens = frame.x[row].tolist()[:length]
    number = frame.first + row + 1
    of = f"sample {count(number)} of {count(frame.count)}   "
    calls = int(frame.calls[row])
    revealed = int((~frame.masked & ~frame.fixed)[:, :length].sum())
    speed = f"  {scaled(revealed / frame.seconds)} tokens/s" if frame.seconds and frame.step else ""
    return Picture(
        f"{of}step {frame.step}/{frame.steps}   t = {frame.t:.2f}" if head is None else head,
        pieces(frame.tokenizer, tokens),
        frame.marks(row)[:length],
        f"{counted(calls, 'network call')}{speed}",
    )


class Viewer:
    """Shows the first text of every frame on a terminal; a frame stays long enough to be followed, 5 s in all at most."""

    def __init__(self, terminal: Terminal, length: int | None = None, indent: str = "  "):
        self.terminal, self.length, self.indent = terminal, length, indent
        self.watch: Watch | None = None

    def __call__(self, frame: Frame) -> None:
        if self.watch is None:
            self.watch = Watch(self.terminal, indent=self.indent, hold=min(1 / 12, 5 / max(frame.steps, 1)))
            self.watch.__enter__()
        last = frame.step == frame.steps
        self.watch.draw(picture(frame, 0, self.length), last=last)
        if last:
            self.close()

    def close(self) -> None:
        if self.watch is not None:
            self.watch.__exit__(None, None, None)
            self.watch = None
