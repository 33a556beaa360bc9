"""Who is told how a training goes."""

from typing import Any, Protocol


class Progress(Protocol):
    """Who is told how it goes (`show.progress.Training` draws it)."""

    def start(self, total: int, done: int = 0) -> None:
        """Work of `total` steps begins, `done` of them already behind."""

    def step(self, step: int, loss: float | None, unit: str | None, tokens_per_second: float | None) -> None:
        """After a step: the mean loss of the last 100, in `unit`; None says that it is not a bound."""

    def validated(self, step: int, result: Any, sample: str | None = None, best: bool = False) -> None:
        """The validation bound at a step, and one of the samples."""

    def note(self, text: str) -> None:
        """A line that stays."""

    def close(self) -> None:
        """Training is over."""


class Silent:
    """Says nothing."""

    quiet = True  # of a Progress: nobody reads its notes, and none need be made

    def start(self, total: int, done: int = 0) -> None: ...
    def step(self, step: int, loss: float | None, unit: str | None, tokens_per_second: float | None) -> None: ...
    def validated(self, step: int, result: Any, sample: str | None = None, best: bool = False) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...
