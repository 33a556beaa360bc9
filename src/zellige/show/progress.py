"""Bars: a moving line on a terminal, now and then a plain one elsewhere."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .numbers import byte_size, count, duration, excerpt, flop_rate, percent, token_rate
from .terminal import Terminal


class Pace:
    """Rate limit of plain lines: one after 30 s or 5% of the work."""

    def __init__(self, total: int, clock=time.monotonic, first: float = 0.0):
        self.total, self.clock, self.last, self.at = total, clock, 0, clock()
        self.start, self.first = self.at, first  # `first`: seconds of silence that short work is allowed

    def due(self, done: int) -> bool:
        now = self.clock()
        if now - self.start < self.first or done <= self.last:
            return False
        if now - self.at >= 30 or done - self.last >= 0.05 * self.total:
            self.last, self.at = done, now
            return True
        return False


def gauge(share: float, width: int, ascii: bool = False, dim=lambda text: text) -> str:
    """A bar of `width` cells: `━━━━━╸━━━`, the rest dim; where no style tells the two apart, the rest is blank."""
    width_done = min(max(share, 0.0), 1.0) * width
    whole = int(width_done)
    head = "━" * whole + ("╸" if whole < width else "")
    tail = "━" * (width - len(head))
    return head + (" " * len(tail) if ascii else dim(tail))


def _line(terminal: Terminal, label: str, share: float, must: list[str], may: Sequence[str], rest: str) -> str:
    """One moving line. Narrower than its 80 columns it gives up the bar first, then the speed, never the number.

    may: the speed, at length and in short; at length only beside a bar.
    """
    width = min(terminal.width, 80) - 1
    texts = ["  ".join(f for f in fields if f) for fields in (*([*must, speed, rest] for speed in may), [*must, rest])]
    for text in texts[:-1]:
        if (room := width - len(label) - 2 - len(text) - 1) >= 5:
            return f"{label} {gauge(share, room, not terminal.unicode, lambda s: terminal.paint(s, 'dim'))} {text}"
    for text in (*texts[-2:], "  ".join(must)):
        if len(label) + 1 + len(text) <= width:
            return f"{label} {text}"
    return "  ".join(must)


class Bar:
    """Progress of one piece of work: a moving bar, or now and then a plain line."""

    def __init__(self, terminal: Terminal, label: str, total: int, unit: str = "", clock=time.monotonic, as_text=count):
        self.terminal, self.label, self.total, self.unit, self.clock = terminal, label, max(total, 1), unit, clock
        self.as_text = as_text  # how a number of pieces is written
        self.done, self.detail, self.started = 0, "", clock()
        self.pace = Pace(self.total, clock, first=2.0)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Bar":
        if self.terminal.motion:
            self._stack.enter_context(self.terminal.live(self._draw))
        return self

    def __exit__(self, *failure) -> None:
        self._stack.close()

    def update(self, done: int, detail: str = "", total: int | None = None) -> None:
        """`done` pieces so far; `detail` is a short text beside the count (a speed).
        With 0 the work begins only now."""
        if not done:
            self.started = self.clock()
        self.done, self.detail = done, detail
        if total:
            self.total = self.pace.total = total
        if not self.terminal.motion and self.pace.due(done):
            left = self._left()
            so_far = (
                f"{done}/{self.total}"
                if self.as_text is count
                else f"{self.as_text(done)} of {self.as_text(self.total)}"
            )
            fields = [self.label, so_far, self.unit, detail, f"left {left}" if left else ""]
            self.terminal.say(" ".join(f for f in fields if f))

    def _left(self) -> str:
        elapsed = self.clock() - self.started
        return duration(elapsed / self.done * (self.total - self.done)) if self.done and elapsed > 1 else ""

    def _draw(self) -> str:
        if not self.done and self.total == 1:  # how much there is to do is not known yet
            return f"  {self.label} ..."
        left = self._left()
        between = "/" if self.as_text is count else " of "
        must = [f"{self.as_text(self.done)}{between}{self.as_text(self.total)}{' ' + self.unit if self.unit else ''}"]
        suffix = f"{left} left" if left else ""
        return _line(self.terminal, f"  {self.label}", self.done / self.total, must, [self.detail], suffix)


@contextlib.contextmanager
def one_bar_each(terminal: Terminal) -> Iterator[Callable[[str, int, int], None]]:
    """Bars one after another, by a callback of (title, done, total): another title ends the bar and begins a new one."""
    with contextlib.ExitStack() as stack:
        now: tuple[str, Bar] | None = None

        def show(title: str, done: int, total: int) -> None:
            nonlocal now
            if now is None or now[0] != title:
                stack.close()
                now = title, stack.enter_context(Bar(terminal, title, total))
            now[1].update(done, total=total)

        yield show


@dataclass(frozen=True)
class Speed:
    """Speed of a training, on all its devices together.

    Attributes:
        tokens: a second.
        flops: of the model, a second, the head at every position; None for a network that is not counted.
        utilisation: their share of what the devices' data sheets promise (MFU); None where that is not known, as of a
            CPU.
    """

    tokens: float
    flops: float | None = None
    utilisation: float | None = None

    def __str__(self) -> str:
        """`98.1k tokens/s, 41.0 TFLOP/s, 38.1% MFU`, as much of it as is known."""
        flops = "" if self.flops is None else flop_rate(self.flops)
        share = "" if self.utilisation is None else f"{percent(self.utilisation)} MFU"
        return ", ".join(filter(None, (token_rate(self.tokens), flops, share)))


class Progress:
    """Receiver of the progress of a training. This one shows nothing; `TrainingBar` draws it."""

    @property
    def quiet(self) -> bool:
        """Return whether nobody reads the notes, so that none need be made."""
        return True

    def reading(self, done: int, total: int) -> None:
        """While the data is read, before anything else: `done` of `total` bytes."""

    def start(self, total: int, done: int = 0) -> None:
        """Work of `total` steps begins, `done` of them already behind (on `resume`)."""

    def step(self, step: int, loss: float | None, unit: str | None, speed: Speed | None) -> None:
        """After optimizer step `step`: the mean loss of the last 100, in `unit`; None says that it is not a bound."""

    def validated(self, step: int, result: object, sample: str | None = None, best: bool = False) -> None:
        """The validation at a step (`str(result)` is the number), and one of the samples."""

    def note(self, text: str) -> None:
        """A line that stays."""

    def go_on(self, command: str) -> None:
        """The command that goes on with what was stopped."""
        self.note(f"  go on: {command}")

    def close(self) -> None:
        """Training is over."""


class TrainingBar(Progress):
    """Display of a training on a terminal: its bar, its validations, its notes."""

    def __init__(self, terminal: Terminal, clock=time.monotonic):
        self.terminal, self.clock = terminal, clock
        self.total, self.now, self.first, self.started = 1, 0, 0, clock()
        self.loss: float | None = None
        self.unit: str | None = None
        self.speed: Speed | None = None
        self._context: Any = None
        self._reader: Bar | None = None
        self.pace = Pace(1, clock)

    @property
    def quiet(self) -> bool:
        return self.terminal.quiet

    def reading(self, done: int, total: int) -> None:
        if self._reader is None:
            self._reader = Bar(self.terminal, "read", total, clock=self.clock, as_text=byte_size).__enter__()
        self._reader.update(done, total=total)
        if done >= total:
            self._read()

    def _read(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            reader.__exit__(None, None, None)

    def start(self, total: int, done: int = 0) -> None:
        self.total, self.now, self.first, self.started = max(total, 1), done, done, self.clock()
        self.pace = Pace(self.total, self.clock, first=2.0)
        self.pace.last = done
        if self.terminal.motion and self._context is None:
            self._context = self.terminal.live(self._draw)
            self._context.__enter__()

    def step(self, step: int, loss: float | None, unit: str | None, speed: Speed | None) -> None:
        self.now, self.loss, self.unit, self.speed = step, loss, unit, speed
        if not self.terminal.motion and self.pace.due(step):
            left = self._left()
            fields = ["train", f"step {step}/{self.total}", self._loss(word=True), self._speed(), f"left {left}"]
            self.terminal.say(" ".join(f for f in (fields if left else fields[:-1]) if f))

    def validated(self, step: int, result: object, sample: str | None = None, best: bool = False) -> None:
        head = f"  step {count(step):>{len(count(self.total))}}   "
        self.terminal.say(f"{head}validation {result}" + ("   best" if best else ""))
        if sample:
            room = max(20, min(42, self.terminal.width - len(head) - 3))
            self.terminal.say(" " * len(head) + excerpt(sample, room))

    def note(self, text: str) -> None:
        self.terminal.say(text)

    def close(self) -> None:
        self._read()
        if self._context is not None:
            context, self._context = self._context, None
            context.__exit__(None, None, None)

    def _loss(self, word: bool = False) -> str:
        if self.loss is None:
            return ""
        if self.unit is None:
            return f"loss {self.loss:.3f} (not a bound)"
        return f"{'loss ' if word else ''}{self.loss:.2f} {self.unit}"

    def _speed(self) -> str:
        return str(self.speed) if self.speed else ""

    def _left(self) -> str:
        steps, elapsed = self.now - self.first, self.clock() - self.started
        return duration(elapsed / steps * (self.total - self.now)) if steps and elapsed > 1 else ""

    def _draw(self) -> str:
        left = self._left()
        must = [f"{count(self.now)}/{count(self.total)}"] + ([self._loss()] if self.loss is not None else [])
        speed = [self._speed(), token_rate(self.speed.tokens) if self.speed else ""]
        return _line(self.terminal, "  train", self.now / self.total, must, speed, f"{left} left" if left else "")


class TrainingPart(TrainingBar):
    """One of several trainings: the heading, and how to go on, is said by the work that it is part of."""

    begun = False

    @property
    def quiet(self) -> bool:
        return not self.begun or super().quiet

    def start(self, total: int, done: int = 0) -> None:
        self.begun = True
        super().start(total, done)

    def note(self, text: str) -> None:
        if self.begun:
            super().note(text)

    def go_on(self, command: str) -> None: ...
