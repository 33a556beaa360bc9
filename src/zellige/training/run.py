"""A finished run, and what is said of it."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..evaluation.result import Result
from ..models.config import Config
from ..models.model import Model, load
from ..show.numbers import byte_size, count, counted, duration, path, scaled
from .progress import HEAD, Speed


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: where everything is.
        validation: the best validation bound, at `best_step`, of `validations`.
        seconds, tokens: of training, over all sessions; `speed` of this one, at its end.
        peak: bytes of GPU memory at most, 0 on the CPU.
    """

    folder: Path
    config: Config
    validation: Result | None
    best_step: int
    validations: int
    steps: int
    seconds: float
    tokens: int
    speed: Speed | None = None
    peak: int = 0
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def tokens_per_second(self) -> float | None:
        """Of this session, at its end."""
        return self.speed.tokens if self.speed else None

    @cached_property
    def model(self) -> Model:
        """The best model of the run. Whatever takes a model takes the run, too: `zellige.sample(run)`."""
        return load(self.folder)


def summary(run: Run) -> list[str]:
    """The lines with which `zellige train` ends."""
    speed = f"   {run.speed}" if run.speed else ""
    speed += f" ({HEAD})" if run.speed and run.speed.flops else ""
    peak = f"   peak {byte_size(run.peak)}" if run.peak else ""
    lines = [
        f"trained {counted(run.steps, 'step')} in {duration(run.seconds)}   {scaled(run.tokens)} tokens{speed}{peak}"
    ]
    if run.validation is not None:
        lines.append(
            f"  validation {run.validation}   best of {count(run.validations)}, at step {count(run.best_step)}"
        )
    lines.append(f"  {path(run.folder)}   checkpoints: last, best   metrics.csv")
    return lines
