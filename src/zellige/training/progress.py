"""Where the progress of a training is reported, and how fast it goes."""

from dataclasses import dataclass
from typing import Protocol

from ..show.numbers import flop_rate, percent, token_rate

HEAD = "head at every position"  # also where it is computed at the masks alone, so that FLOP/s and MFU compare


@dataclass(frozen=True)
class Speed:
    """Speed of a training, on all its devices together.

    Attributes:
        tokens: a second.
        flops: of the model, a second (`plan.model_flops`), the head at every position; None for a network that is not counted.
        utilisation: their share of what the devices' data sheets promise (MFU); None where that is not known, as of a CPU.
    """

    tokens: float
    flops: float | None = None
    utilisation: float | None = None

    def __str__(self) -> str:
        """`98.1k tokens/s, 41.0 TFLOP/s, 38.1% MFU`, as much of it as is known."""
        flops = "" if self.flops is None else flop_rate(self.flops)
        share = "" if self.utilisation is None else f"{percent(self.utilisation)} MFU"
        return ", ".join(filter(None, (token_rate(self.tokens), flops, share)))


class Progress(Protocol):
    """Receiver of the progress of a training (`show.progress.Training` draws it)."""

    def start(self, total: int, done: int = 0) -> None:
        """Work of `total` steps begins, `done` of them already behind."""

    def step(self, step: int, loss: float | None, unit: str | None, speed: Speed | None) -> None:
        """After a step: the mean loss of the last 100, in `unit`; None says that it is not a bound."""

    def validated(self, step: int, result: object, sample: str | None = None, best: bool = False) -> None:
        """The validation bound at a step, and one of the samples."""

    def note(self, text: str) -> None:
        """A line that stays."""

    def close(self) -> None:
        """Training is over."""


class Silent:
    """Says nothing."""

    quiet = True  # of a Progress: nobody reads its notes, and none need be made

    def start(self, total: int, done: int = 0) -> None: ...
    def step(self, step: int, loss: float | None, unit: str | None, speed: Speed | None) -> None: ...
    def validated(self, step: int, result: object, sample: str | None = None, best: bool = False) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...
