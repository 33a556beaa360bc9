"""How much one request may ask for, and how much waits."""

from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..samplers.grid import size_steps
from ..samplers.pairing import of_length
from ..show.numbers import count


@dataclass(frozen=True)
class Limits:
    """What a request may be at most.

    Attributes:
        body: bytes of a request.
        text: characters of a prompt, a suffix, a text with gaps.
        steps: of a sampler.
        rows: texts in one request.
        tokens: of all texts of a request together.
        seconds: from its arrival to its end, waiting included.
        waiting: requests that wait for a model; the next one is told to come back later.
        batch: texts of requests that agree, drawn at once.
        lanes: groups of requests that take their steps in turn.
    """

    body: int = 1 << 20
    text: int = 100_000
    steps: int = 2_000
    rows: int = 16
    tokens: int = 65_536
    seconds: float = 120.0
    waiting: int = 256
    batch: int = 16
    lanes: int = 4

    @property
    def work(self) -> int:
        """Network evaluations times positions of a request: those of the most steps, each of the most tokens."""
        return self.steps * self.tokens

    def check_draw(self, sampler: Any, method: Any, steps: int | None, length: int, rows: int = 1) -> None:
        """InputError where a draw takes more steps, or more work, than a request may; before anything is computed for it."""
        steps_of_grid = size_steps(getattr(sampler.inner or sampler, "grid", ""))
        self.check("steps", steps_of_grid or steps or 1, "steps")
        calls = sampler.most_calls(sampler.times(of_length(method, length), steps))
        cached = sampler.grows and 0 < method.block < method.window  # what stands before is not computed again
        self.check_work(rows * calls * (method.block if cached else min(length, method.window)))

    def check_work(self, positions: int) -> None:
        """InputError where the network would be evaluated at more positions, each time counted, than in a request may be."""
        if positions > self.work:
            what = (
                f"{count(positions)} network evaluations times positions; at most {count(self.work)} are allowed here"
            )
            raise InputError(f"{what}, ask for fewer steps, texts or tokens")

    def check(self, name: str, value: int, what: str) -> None:
        """InputError where `value` is more of `what` than the limit `name` allows."""
        most = getattr(self, name)
        if value > most:
            raise InputError(f"{count(value)} {what}; at most {count(most)} are allowed here")
