"""What a server has done: a line for each request, and numbers in the text format of Prometheus."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zellige.show.numbers import duration, escape

from .completions import Step

CLOSED = 499  # the status of a request whose client hung up before the answer
LONGEST = 200  # characters of a path in the log


class Meter:
    """Counts what passes through an ASGI application; `log` gets the line of each request."""

    def __init__(self, log: Callable[[str], None] | None = None):
        self.log = log
        self.requests: Counter[int] = Counter()  # by status
        self.seconds, self.tokens, self.calls = 0.0, 0, 0

    async def counted(self, steps: AsyncIterator[Step]) -> AsyncIterator[Step]:
        """The steps of a completion, whose tokens and network evaluations are counted at their end."""
        last: Step | None = None
        try:
            async for step in steps:
                last = step
                yield step
        finally:
            if last is not None:
                self.tokens += sum(text.tokens for text in last.texts)
                self.calls += sum(text.calls for text in last.texts)

    def done(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request, and write its line: `2026-01-31 12:00:00  127.0.0.1  POST /v1/completions  200  0.5 s`."""
        self.requests[status] += 1
        self.seconds += seconds
        if self.log is not None:
            now, client = time.strftime("%Y-%m-%d %H:%M:%S"), (scope.get("client") or ("-",))[0]
            path = escape(scope["path"])[:LONGEST]  # a line end in it would begin a line of its own
            self.log(f"{now}  {client}  {scope['method']} {path}  {status}  {duration(seconds)}")

    def text(self, waiting: int, running: int) -> str:
        """The numbers, and how many requests wait and run now."""
        requests = [f'zellige_requests_total{{status="{status}"}} {n}' for status, n in sorted(self.requests.items())]
        lines = [
            *_lines("requests_total", "counter", "requests that were answered, by status", requests),
            *_lines(
                "request_seconds_total", "counter", "time from the beginning of each request to its end", self.seconds
            ),
            *_lines("tokens_total", "counter", "tokens that were sampled", self.tokens),
            *_lines("network_evaluations_total", "counter", "network evaluations of all texts", self.calls),
            *_lines("requests_waiting", "gauge", "requests in the queue", waiting),
            *_lines("requests_running", "gauge", "requests that are sampled now", running),
        ]
        return "".join(f"{line}\n" for line in lines)


def _lines(name: str, kind: str, help: str, value: float | list[str]) -> list[str]:
    samples = value if isinstance(value, list) else [f"zellige_{name} {value}"]
    return [f"# HELP zellige_{name} {help}", f"# TYPE zellige_{name} {kind}", *samples]


class Metered:
    """An ASGI application whose requests a `Meter` counts."""

    def __init__(self, app: ASGIApp, meter: Meter):
        self.app, self.meter = app, meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), CLOSED

        async def watched(message: Message) -> None:
            nonlocal status
            status = message["status"] if message["type"] == "http.response.start" else status
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            self.meter.done(scope, status, time.monotonic() - began)
