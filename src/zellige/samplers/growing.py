"""Shared parts of samplers that write a text from left to right: progress, context, given tokens, ending."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.requests import TOKENS, declared, option
from ..core import maths
from ..methods.method import Method
from .sampler import Memory, Sampler, State, Summary, first_at, ordered

SPAN = 256  # the tokens whose entropy tells whether a text repeats itself
REDRAW = 1_000  # times that a text is drawn again, at most


@dataclass(frozen=True)
class Redrawn(Summary):
    """How texts ended that were written from left to right.

    Attributes:
        ended: whether a token ended each text before its length; a text that was stopped since it repeats itself has
            not ended.
        tries: how often each text was drawn again since it repeated itself.
        repeating: whether each text still repeats itself.
    """

    ended: list[bool]
    tries: list[int]
    repeating: list[bool]

    @classmethod
    def joined(cls, parts: Sequence["Redrawn"], places: Sequence[int]) -> "Redrawn":
        of = lambda name: ordered(places, *(getattr(part, name) for part in parts))  # noqa: E731
        return cls(of("ended"), of("tries"), of("repeating"))

    def describe(self, pm: Any, one_target: bool) -> str:
        """`3 samples drawn again, 5 times in all; 1 sample still below entropy`; "" where none was drawn again."""
        redrawn, times = sum(tries > 0 for tries in self.tries), sum(self.tries)
        still = f"; {_counted(sum(self.repeating), 'sample')} still below `entropy`" if any(self.repeating) else ""
        return f"{_counted(redrawn, 'sample')} drawn again, {_counted(times, 'time')} in all{still}" if redrawn else ""


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


@dataclass(frozen=True)
class Growth(Memory):
    """Progress of B texts; the memory of `Blockwise` and `LeftToRight`.

    Attributes:
        begin, end: what is being written; everything before is.
        ends: (B,) long, the length of each text: N, or where it ended before.
        rows: (R,) long, those that are still written; the context is of these.
        free: the first position that is not given in all of them; N where there are none.
        open: (R,) bool, False where one of them is finished after all: where steps have a fixed shape, the rows are
            looked through once in some steps. None: all are written.
        steps: in a block, since then.
        read: how many tokens the context has read.
        inner: the state of the sampler inside the block, of these rows; its positions end with the block.
        repeats: (B,) bool, whether it ended since its last tokens repeat themselves (`Ending.entropy`); None if it is
            not checked.
        tries: (B,) long, how often each was drawn before for that reason; None where none was.
    """

    begin: int
    end: int
    ends: Tensor
    rows: Tensor
    free: int = 0
    open: Tensor | None = None
    steps: int = 0
    read: int = 0
    inner: State | None = None
    repeats: Tensor | None = None
    tries: Tensor | None = None

    @property
    def written(self) -> Tensor:
        """(R,) long, 1 for each of the rows that is still written, 0 for one that is finished."""
        return torch.ones_like(self.rows) if self.open is None else self.open.long()

    def lengths(self, found: Tensor) -> Tensor:
        return self.ends

    def reached(self, given: Tensor, lengths: Tensor) -> Tensor:
        return lengths.minimum(given.clamp_min(self.end))

    def summary(self, state: State) -> Redrawn:
        repeats = torch.zeros_like(self.ends, dtype=torch.bool) if self.repeats is None else self.repeats
        tries = torch.zeros_like(self.ends) if self.tries is None else self.tries
        ended = (self.ends < state.x.shape[1]) & ~repeats
        return Redrawn(ended.tolist(), tries.tolist(), repeats.tolist())


@dataclass(frozen=True)
class Ending:
    """Condition under which a text ends before its length.

    Attributes:
        token: at this token, if it was drawn and not given; None: at none.
        next_text: at this one too, which begins the next text; None: at none.
        entropy: where the tokens among the last SPAN have an entropy below so many nats; None: never. A text that
            repeats itself has a low one.
    """

    token: int | None = None
    entropy: float | None = None
    next_text: int | None = None

    def find(self, x: Tensor, fixed: Tensor, start: int, end: int) -> Tensor:
        """Position in [start, end) at which texts x (R, N), written up to `end`, ended: (R,) long; N if they did not.

        The token that ended a text is no part of it.
        """
        ends, end = torch.full_like(x[:, 0], x.shape[1]), min(end, x.shape[1])
        for token in (self.token, self.next_text):
            first = first_at(token, x[:, start:end], fixed[:, start:end])
            ends = ends.minimum(torch.where(first < end - start, start + first, ends))
        return torch.where(self.repeats(x, end), ends.clamp_max(end), ends)

    def repeats(self, x: Tensor, end: int) -> Tensor:
        """Return whether the last tokens of texts x (R, N), written up to `end`, repeat themselves: (R,) bool."""
        end = min(end, x.shape[1])
        if self.entropy is None or end < SPAN:
            return torch.zeros_like(x[:, 0], dtype=torch.bool)
        low = [entropy(row) < self.entropy for row in x[:, end - SPAN : end]]
        return torch.tensor(low, dtype=torch.bool, device=x.device)


def entropy(x: Tensor) -> float:
    """Entropy of the frequencies of the tokens in x (n,), in nats."""
    share = x.unique(return_counts=True)[1] / x.numel()
    return float(-maths.xlogy(share, share).sum())


def close(state: State, ending: Ending) -> State:
    """Finish the tokens that are being written. Ended texts are padded with the token that ends them."""
    memory: Growth = state.memory
    if ending == Ending():  # nothing ends them
        return replace(state, memory=replace(memory, begin=memory.end, repeats=None))
    x, rows = state.x, memory.rows
    end_at = ending.find(x[rows], state.fixed[rows], memory.begin, memory.end)
    if memory.open is not None:
        end_at = torch.where(memory.open, end_at, memory.ends[rows])
    ends, repeats = memory.ends.index_copy(0, rows, end_at), None
    if ending.entropy is not None:
        low = ending.repeats(x[rows], memory.end) & (end_at == min(memory.end, x.shape[1]))  # no token ended it before
        before = torch.zeros_like(ends, dtype=torch.bool) if memory.repeats is None else memory.repeats
        repeats = before.index_copy(0, rows, low)
    if ending.token is not None:
        after = torch.arange(x.shape[1], device=x.device) >= ends[:, None]
        x = torch.where(after & ~state.fixed, ending.token, x)
    return replace(state, x=x, memory=replace(memory, begin=memory.end, ends=ends, repeats=repeats))


@declared
class Growing(Sampler):
    """A sampler that writes a text from left to right, and may end it before its length.
    `state.memory` is a `Growth`."""

    window: int | None = option(
        "largest number of tokens that the network sees (default: its own length)",
        default=None,
        kw_only=True,
        minimum=1,
        maximum=TOKENS,
    )
    end: int | None = option(
        "id of the token that ends a text; -1: none (default: the tokenizer's, if it has one)",
        default=None,
        kw_only=True,
        maximum=TOKENS,
    )
    entropy: float | None = option(
        "end a text that repeats itself: when the entropy of its last 256 tokens falls below this, in nats per token",
        default=None,
        kw_only=True,
        above=0,
        unit="in nats per token",
    )
    redraw: int = option(
        "when `entropy` ends a text, sample it anew instead, at most this many times (9 in BD3-LM's code)",
        default=0,
        kw_only=True,
        minimum=0,
        maximum=REDRAW,
    )

    ahead: bool = option(
        "tokens may be given after a gap, where this sampler does not see them: for candidates, among which these tokens "
        "decide (`best_of`)",
        default=False,
        kw_only=True,
        hidden=True,
    )

    def __post_init__(self):
        if self.redraw and self.entropy is None:
            raise InputError(
                "`redraw` needs `entropy`, which says what repeats itself; e.g. `entropy` 4, in nats per token"
            )

    report: ClassVar[type[Summary] | None] = Redrawn

    def check_given(self, method: Method, fixed: Tensor | None, first: int, stride: int) -> None:
        """Raise InputError if a token is given right of a gap, where it is not seen, or may be cut off; as
        `right_of_gap`."""
        where = right_of_gap(fixed, first, stride)
        if where is None or (self.ahead and self.ending == Ending()):
            return
        if self.ahead:
            raise InputError(
                f"position {where:,} is given right of a gap, and `end` or `entropy` may end the text before it; leave "
                "these out"
            )
        raise InputError(
            f"position {where:,} is given and lies right of a gap; {method.name} writes from left to right and cannot see "
            "it; use a model of mdlm, such as the included stories-mdlm, or infill with `best_of` 32, which chooses among "
            "candidates"
        )

    @property
    def ending(self) -> Ending:
        """Condition under which a text ends before its length."""
        return Ending(None if self.end is None or self.end < 0 else self.end, self.entropy)

    def attempts(self, states, draw, last):
        """Texts that repeat themselves are drawn again from their beginning, at most `redraw` times."""
        whole, rows = None, torch.empty(0)
        for attempt in range(self.redraw + 1):
            for step, part in enumerate(states):
                state = part if whole is None else merged(whole, rows, part)
                if step == last and attempt < self.redraw and len(again(state)):
                    break
                yield step, state
            else:
                return
            whole, rows = state, again(state)
            states = draw(rows, attempt + 1)

    def most_calls(self, method, times):
        return super().most_calls(method, times) * (1 + self.redraw)


def again(state: State) -> Tensor:
    """Return the texts (R,) that repeat themselves, which `Growing.redraw` samples again."""
    repeats = state.memory.repeats
    return state.x.new_zeros(0) if repeats is None else repeats.nonzero()[:, 0]


def merged(whole: State, rows: Tensor, part: State) -> State:
    """Merge the texts `rows` (R,) that were sampled again, `part`, into the state of all texts;
    their calls are added."""
    old, new = whole.memory, part.memory
    zeros = torch.zeros_like(whole.calls)
    repeats = None if new.repeats is None else old.repeats.index_copy(0, rows, new.repeats)
    memory = replace(
        new,
        ends=old.ends.index_copy(0, rows, new.ends),
        rows=rows[new.rows],
        repeats=old.repeats.index_fill(0, rows, False) if repeats is None else repeats,
        tries=(zeros if old.tries is None else old.tries).index_add(0, rows, torch.ones_like(rows)),
    )
    x, calls = whole.x.index_copy(0, rows, part.x), whole.calls.index_add(0, rows, part.calls)
    return State(x, whole.fixed, calls, None, memory, whole.condition)


def begin(state: State, new: int, look: bool = True, all_rows: bool = False) -> State:
    """Start writing the next `new` tokens of the texts that have not ended and have free positions left.

    Args:
        look: leave out the rows of the others; without it their computations go on, to no effect.
        all_rows: leave none out before all are finished: a graph is for one number of rows.
    """
    memory: Growth = state.memory
    rows, N = memory.rows, state.x.shape[1]
    position = torch.arange(N, device=rows.device)
    first = torch.where(state.fixed[rows] | (position < memory.begin), N, position).amin(-1)  # (R,) that is free
    first = torch.where(memory.ends[rows] == N, first, N)
    memory = replace(memory, end=memory.begin + new, inner=None)
    if not look:
        return replace(state, memory=replace(memory, open=first < N))
    firsts = first.tolist()
    left = [i for i, n in enumerate(firsts) if n < N]
    memory = replace(memory, open=None, steps=0, free=min(firsts, default=N))
    if len(left) == len(rows):
        return replace(state, memory=memory)
    if left and all_rows:
        return replace(state, memory=replace(memory, open=first < N))
    if not left:
        return replace(state, context=None, memory=replace(memory, rows=rows[:0]))
    index = torch.tensor(left, dtype=torch.long, device=rows.device)
    context = None if state.context is None else state.context.take(index)
    return replace(state, context=context, memory=replace(memory, rows=rows[index]))


def pieces(read: int, start: int, held: int, window: int, block: int) -> Iterator[slice]:
    """Yield the pieces, of whole blocks, in which the tokens from `read` to `start` are read after `held` positions.

    A block is read with at most window - block tokens before it, as it was when it was written; as many blocks at once
    as that leaves the same. So what is remembered does not depend on when it was read.
    """
    while read < start:
        end = min(start, read + window - held)
        yield slice(read, end)
        held, read = min(held + end - read, window - block), end


def window_of(method: Method, asked: int | None) -> int:
    """Largest number of tokens that the network sees, the one being sampled included."""
    if asked is not None and not 1 <= asked <= method.window:
        limit = method.window
        raise InputError(f"`window` is {asked:,}, the model takes {limit:,}; give a number from 1 to {limit:,}")
    return asked or method.window


def right_of_gap(fixed: Tensor | None, first: int, stride: int) -> int | None:
    """Return a position that is given right of a masked one in an earlier block, None if there is none; blocks end at
    first, first + stride, ..."""
    if fixed is None:
        return None
    fixed = fixed if fixed.ndim == 2 else fixed[None]
    position = torch.arange(fixed.shape[1], device=fixed.device)
    block = (position - first).div(stride, rounding_mode="floor").clamp_min(-1)
    gap = torch.where(fixed < 0, block, fixed.shape[1]).cummin(-1).values  # the first block that has one
    wrong = ((fixed >= 0) & (gap < block)).any(0)
    return int(wrong.nonzero()[0]) if wrong.any() else None
