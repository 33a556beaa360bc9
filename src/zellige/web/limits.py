"""How much one request may ask for, and how much waits."""

from dataclasses import dataclass

from ..errors import InputError
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

    def check(self, name: str, value: int, what: str) -> None:
        """InputError where `value` is more of `what` than the limit `name` allows."""
        most = getattr(self, name)
        if value > most:
            raise InputError(f"{count(value)} {what}; at most {count(most)} are allowed here")
