"""Frames on a terminal: a picture of each, and who shows them."""

from ..samplers.growing import Growth
from ..sampling.trajectory import Frame
from ..show import kinds
from ..show.numbers import count, counted, scaled
from ..show.picture import Picture, Watch
from ..show.terminal import Terminal


def picture(
    frame: Frame, row: int = 0, length: int | None = None, head: str | None = None, *, brackets: bool = False
) -> Picture:
    """One text of a frame, for `terminal.Watch`; the first `length` tokens of it, and no more than is being written.

    brackets: round what is not given.
    """
    kind, marks = kinds.of(frame.tokenizer), frame.marks(row)
    block = kind.block(frame.x[row].tolist(), marks)
    whole = min(frame.x.shape[1], length or frame.x.shape[1])
    length = min(whole, frame.reached[row])
    tokens = frame.x[row].tolist()[:length]
    number = frame.first + row + 1
    label = f"class {frame.classes[row]}   " if frame.classes else ""
    of = f"sample {count(number)} of {count(frame.count)}   {label}"
    calls = int(frame.calls[row])
    revealed_count = int((~frame.masked & ~frame.fixed)[:, :length].sum())
    speed = f"  {scaled(revealed_count / frame.seconds)} tokens/s" if frame.seconds and frame.step else ""
    return Picture(
        f"{of}step {frame.step}/{frame.steps}   t = {frame.t:.2f}" if head is None else head,
        kind.pieces(tokens) if block is None else (),
        marks[:length] if block is None else marks,
        f"{counted(calls, 'network evaluation')}{speed}",
        block,
        brackets,
        whole if block is None and isinstance(frame.state.memory, Growth) else None,
        kind.bitmap(frame.x[row].tolist(), marks),
    )


class Viewer:
    """Shows the first text of every frame on a terminal; a frame stays long enough to be followed,
    5 s in all at most. `keep` leaves the last one on the screen."""

    def __init__(
        self,
        terminal: Terminal,
        length: int | None = None,
        indent: str = "  ",
        brackets: bool = False,
        keep: bool = True,
    ):
        self.terminal, self.length, self.indent, self.brackets = terminal, length, indent, brackets
        self.keep = keep
        self.watch: Watch | None = None

    def __call__(self, frame: Frame) -> None:
        if self.watch is None:
            self.watch = Watch(
                self.terminal, indent=self.indent, hold=min(1 / 12, 5 / max(frame.steps, 1)), keep=self.keep
            )
            self.watch.__enter__()
        last = frame.step == frame.steps
        self.watch.draw(picture(frame, 0, self.length, brackets=self.brackets), last=last)
        if last:
            self.close()

    def close(self) -> None:
        if self.watch is not None:
            self.watch.__exit__(None, None, None)
            self.watch = None
