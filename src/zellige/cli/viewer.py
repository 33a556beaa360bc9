"""Frames on a terminal: a picture of each, and who shows them."""

from ..samplers.growing import Growth
from ..sampling.trajectory import Frame
from ..show import kinds
from ..show.numbers import count, counted, scaled
from ..show.picture import Picture, Watch
from ..show.terminal import Terminal


def picture(frame: Frame, length: int | None = None, *, brackets: bool = False) -> Picture:
    """The first text of a frame, for `Watch`; the first `length` tokens of it, and no more than is being written.

    brackets: round what is not given.
    """
    kind, marks, row = kinds.of(frame.tokenizer), frame.marks(0), frame.x[0].tolist()
    block = kind.block(row, marks)
    whole = min(len(row), length or len(row))
    length = min(whole, frame.reached[0])
    label = f"class {frame.classes[0]}   " if frame.classes else ""
    of = f"sample {count(frame.first + 1)} of {count(frame.count)}   {label}"
    calls = int(frame.calls[0])
    revealed_count = int((~frame.masked & ~frame.fixed)[:, :length].sum())
    speed = f"  {scaled(revealed_count / frame.seconds)} tokens/s" if frame.seconds and frame.step else ""
    return Picture(
        f"{of}step {frame.step}/{frame.steps}   t = {frame.t:.2f}",
        kind.pieces(row[:length]) if block is None else (),
        marks[:length] if block is None else marks,
        f"{counted(calls, 'network evaluation')}{speed}",
        block,
        brackets,
        whole if block is None and isinstance(frame.state.memory, Growth) else None,
        kind.bitmap(row, marks),
    )


class Viewer:
    """Shows the first text of every frame on a terminal; a frame stays long enough to be followed,
    5 s in all at most. `keep` leaves the last one on the screen."""

    def __init__(self, terminal: Terminal, length: int | None = None, brackets: bool = False, keep: bool = True):
        self.terminal, self.length, self.brackets, self.keep = terminal, length, brackets, keep
        self.watch: Watch | None = None

    def __call__(self, frame: Frame) -> None:
        if self.watch is None:
            self.watch = Watch(self.terminal, hold=min(1 / 12, 5 / max(frame.steps, 1)), keep=self.keep)
        self.watch.draw(picture(frame, self.length, brackets=self.brackets), last=frame.is_last)
        if frame.is_last:
            self.close()

    def close(self) -> None:
        if self.watch is not None:
            self.watch.close()
            self.watch = None
