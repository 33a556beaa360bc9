"""Frames of a sample while it is drawn, and the texts that were drawn."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..launched import Place, join
from ..samplers import State
from ..samplers.growing import Ending, Growth, again
from ..samplers.metropolis import Walk, report
from ..show.numbers import count, counted, duration, token_rate
from ..show.style import Mark

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
        end: the token that ends a text, of a model that was trained on documents; else None.
        classes: what the class of each text is called, where they were asked for; else ().
        expected_calls: how many network calls a text takes in expectation, where that is known; the mean of all texts.
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
    end: int | None = None
    expected_calls: float | None = None
    classes: tuple[str, ...] = ()

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
        """(B, L) bool, what is still to come; of noise that absorbs into a token of the data, nothing is at the end."""
        ended = self.step == self.steps and self.mask is not None and self.mask < self.tokenizer.size
        return torch.zeros_like(self.fixed) if self.mask is None or ended else self.x == self.mask

    @property
    def new(self) -> Tensor:
        """(B, L) bool, what took its value in this step."""
        return (self.x != self.before) & ~self.masked

    @property
    def ends(self) -> list[int]:
        """How many tokens each text has: all, but where it ended before; drawn in any order it has not before the last step."""
        memory = self.state.memory
        if isinstance(memory, Growth):
            return memory.ends.tolist()
        end = self.end if self.step == self.steps else None
        return Ending(end).find(self.x, self.fixed, 0, self.x.shape[1]).tolist()

    @property
    def reached(self) -> list[int]:
        """How far each text is given or being written; of a sampler that writes from left to right less than all of it."""
        memory = self.state.memory
        if not isinstance(memory, Growth):
            return self.ends
        prefixes = self.fixed.long().cumprod(-1).sum(-1).tolist()
        return [min(end, max(memory.end, first)) for end, first in zip(self.ends, prefixes)]

    @cached_property
    def text(self) -> list[str]:
        """The texts; a masked token is `·`."""
        return [self.tokenizer.decode(row[:end]) for row, end in zip(self.x.tolist(), self.ends)]

    def marks(self, row: int) -> list[Mark]:
        """What happened to each token of a row, as `show.style` names it."""
        known = torch.zeros_like(self.fixed) if self.mask is None else self.before != self.mask
        codes = torch.full_like(self.x, 2)
        codes[self.x != self.before] = 4  # another token than before
        codes[self.new & ~known & (self.mask is not None)] = 1
        codes[self.masked] = 0
        codes[self.masked & known] = 5  # a token before, masked again
        codes[self.fixed] = 3
        names: tuple[Mark, ...] = ("masked", "new", "shown", "given", "changed", "again")
        return [names[code] for code in codes[row].tolist()]


@dataclass(frozen=True)
class Drawn:
    """Finished texts and what they cost; and where they are the ends of chains, how these walked, a `Walk` a batch.

    classes: the class that each was asked for, where there is one.
    Where texts that repeat themselves were drawn again: how often each was before (`tries`), and how many still do.
    """

    texts: list[str]
    tokens: list[list[int]]
    calls: list[int]
    steps: int
    seconds: float
    walks: list[Walk] = field(default_factory=list)
    expected_calls: float | None = None
    tries: list[int] = field(default_factory=list)
    repeating: int = 0
    classes: list[str | None] = field(default_factory=list)

    @property
    def idle(self) -> list[int]:
        """Steps of each text in which nothing moved, so that the network was not asked (it may be asked twice in others)."""
        return [max(self.steps - calls, 0) for calls in self.calls]

    @property
    def speed(self) -> float:
        """Tokens a second, all texts together."""
        return sum(map(len, self.tokens)) / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        """`2 samples, 512 tokens, 0.9 s, 569 tokens/s`, below it `63 network calls each (64 steps, 1 idle, 62.8 calls expected)`.

        Of chains also `38.2% of 1,000 proposals accepted, autocorrelation time 21 proposals`.
        """
        many = f"{counted(len(self.texts), 'sample')}, {counted(sum(map(len, self.tokens)), 'token')}"
        calls = f"{_range(self.calls)} network call{'' if set(self.calls) == {1} else 's'} each"
        expected = "" if self.expected_calls is None else f", {self.expected_calls:,.1f} calls expected"
        steps = f"({counted(self.steps, 'step')}, {_range(self.idle)} idle{expected})"
        walked = f"\n  {report(self.walks)}" if self.walks else ""
        return f"{many}, {duration(self.seconds)}, {token_rate(self.speed)}\n  {calls} {steps}{walked}{self._again()}"

    def _again(self) -> str:
        """`3 samples drawn again, 5 times in all; 1 sample still below entropy` on a line of its own, where there are such."""
        redrawn = sum(tries > 0 for tries in self.tries)
        if not redrawn:
            return ""
        still = f"; {counted(self.repeating, 'sample')} still below `entropy`" if self.repeating else ""
        return f"\n  {counted(redrawn, 'sample')} drawn again, {counted(sum(self.tries), 'time')} in all{still}"


def _range(values: list[int]) -> str:
    low, high = min(values), max(values)
    return count(low) if low == high else f"{count(low)} to {count(high)}"


def collect(frames: Iterable[Frame], see: Callable[[Frame], None] | None = None) -> Drawn:
    """Run through the frames (showing each to `see`) and keep what the last of each batch holds."""
    texts: list[str] = []
    tokens: list[list[int]] = []
    calls: list[int] = []
    walks: list[Walk] = []
    tries: list[int] = []
    classes: list[str | None] = []
    steps, seconds, expected, repeating = 0, 0.0, None, 0
    for frame in frames:
        if see:
            see(frame)
        if frame.step == frame.steps:
            steps, seconds, expected = frame.steps, seconds + frame.seconds, frame.expected_calls
            texts += frame.text
            tokens += [row[:end] for row, end in zip(frame.x.tolist(), frame.ends)]
            calls += frame.calls.tolist()
            classes += frame.classes or [None] * len(frame.x)
            memory = frame.state.memory
            walks += [memory] if isinstance(memory, Walk) else []
            tries += memory.tries.tolist() if isinstance(memory, Growth) and memory.tries is not None else []
            repeating += len(again(frame.state))
    return Drawn(texts, tokens, calls, steps, seconds, walks, expected, tries, repeating, classes)


def share(here: Place, count: int, seed: int, classes: Sequence[str]) -> dict[str, Any] | None:
    """What a process asks `watch` for in the place of `count`, `seed` and `classes`; None where nothing is left for it."""
    mine = range(here.rank, count * max(len(classes), 1), here.world)
    if not mine:
        return None
    one = (
        {"count": len(mine), "classes": None}
        if not classes
        else {"count": 1, "classes": [classes[n // count] for n in mine]}
    )
    return one | {"seed": [(seed, n) for n in mine]}


def gather_texts(here: Place, drawn: Drawn | None) -> Drawn:
    """What all have drawn, as if one had drawn it; every process must ask."""
    import torch

    join(here)
    every: list[Any] = [None] * here.world
    torch.distributed.all_gather_object(every, drawn)
    every = [each for each in every if each is not None]
    columns = {
        name: [
            getattr(each, name)[i] for i in range(len(every[0].texts)) for each in every if i < len(getattr(each, name))
        ]
        for name in ("texts", "tokens", "calls", "tries", "classes")
    }
    walks = [walk for each in every for walk in each.walks]
    return Drawn(
        steps=every[0].steps, seconds=max(each.seconds for each in every), walks=walks,
        expected_calls=every[0].expected_calls, repeating=sum(each.repeating for each in every), **columns,
    )  # fmt: skip
