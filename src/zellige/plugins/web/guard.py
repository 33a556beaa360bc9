"""Requests that are refused before their body is read: too large, too slow, for another host, from another page,
without a token.

An ASGI application around another; a refusal has the form of the inner one (`refuse`). `Limits` has the size of a
request and of the queue; `listen` opens the address before anything is printed, and uvicorn serves on it.
"""

import asyncio
import hmac
import ipaddress
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from zellige.base.errors import InputError
from zellige.base.requests import size_steps
from zellige.methods.method import Method
from zellige.samplers.pairing import of_length
from zellige.samplers.sampler import Sampler
from zellige.show.numbers import byte_size, count


@dataclass(frozen=True)
class Limits:
    """Upper limits of a request.

    Attributes:
        body: bytes of a request.
        text: characters of a prompt, a suffix, a text with masked spans.
        steps: of a sampler.
        tokens: of all texts of a request together.
        seconds: from its arrival to its end, waiting included.
        waiting: requests that wait for a model; the next one is refused for now.
        batch: texts drawn at once: of one request, or of several that agree.
        lanes: groups of requests that take their steps in turn.
    """

    body: int = 1 << 20
    text: int = 100_000
    steps: int = 2_000
    tokens: int = 65_536
    seconds: float = 120.0
    waiting: int = 256
    batch: int = 16
    lanes: int = 4

    @property
    def work(self) -> int:
        """Network evaluations times positions of a request: those of the most steps, each of the most tokens."""
        return self.steps * self.tokens

    def check_draw(self, sampler: Sampler, method: Method, steps: int | None, length: int, rows: int = 1) -> None:
        """InputError where a draw takes more steps, or more work, than a request may;
        before anything is computed for it."""
        steps_of_grid = size_steps(getattr(sampler.inner or sampler, "grid", ""))
        self.check("steps", steps_of_grid or steps or 1, "steps")
        inside = of_length(method, length)
        calls = sampler.most_calls(inside, sampler.times(inside, steps))
        has_cache = sampler.grows and 0 < method.block < method.window  # what stands before is not computed again
        calls *= sampler.passes(method)
        self.check_work(rows * calls * (method.block if has_cache else min(length, method.window)))

    def check_work(self, positions: int) -> None:
        """InputError where the network would be evaluated at more positions, each time counted,
        than in a request may be."""
        if positions > self.work:
            work = (
                f"{count(positions)} network evaluations times positions; at most {count(self.work)} are allowed here"
            )
            raise InputError(f"{work}, ask for fewer steps, texts or tokens")

    def check(self, name: str, value: int, what: str) -> None:
        """InputError where `value` is more of `what` than the limit `name` allows."""
        most = getattr(self, name)
        if value > most:
            raise InputError(f"{count(value)} {what}; at most {count(most)} are allowed here")


SLOW_HEADERS = 30.0  # seconds in which the headers of a request have to arrive


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; port 0: a free one. InputError where it cannot."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=512)
    except (OSError, UnicodeError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise InputError(
            f"cannot listen on {host}:{port} ({reason}); give another `port`, or 0 for a free one"
        ) from None


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class Timely(H11Protocol):
    """HTTP that is closed unless headers arrive within SLOW_HEADERS seconds of the connection or of their first byte.

    uvicorn itself waits for ever, as long as there is a byte now and then.
    """

    late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._time_headers(True)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._time_headers(self.cycle is None or self.cycle.response_complete)

    def connection_lost(self, exc: Exception | None) -> None:
        self._time_headers(False)
        super().connection_lost(exc)

    def _time_headers(self, awaited: bool) -> None:
        if awaited and self.late is None:
            self.late = self.loop.call_later(SLOW_HEADERS, self.transport.close)
        elif not awaited and self.late is not None:
            self.late.cancel()
            self.late = None


def server_of(app: ASGIApp) -> uvicorn.Server:
    """The server of an application, on a socket that `run(sockets=[...])` is given."""
    config = uvicorn.Config(
        app,
        http=Timely,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
        ws="none",
    )
    return uvicorn.Server(config)


def answer_forever(app: ASGIApp, listening: socket.socket) -> None:
    """Answer until Ctrl-C or SIGTERM."""
    server_of(app).run(sockets=[listening])


DRAIN = 256 << 20  # bytes of a body that is refused are still taken in, and forgotten, so that the answer is read
SLOW_BODY = 30.0  # seconds in which a body has to arrive
OPEN = "/health"  # is asked without a token: it says that the server answers, and nothing else
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
Refusal = Callable[[int, str, str], dict[str, Any]]  # (status, code, what was wrong; what would be right) -> the JSON


def loopback(host: str) -> bool:
    """Return whether an address is reached from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Checks each request before the application sees it.

    Args:
        host: where it listens. Of this machine alone: requests under another name are refused, since a page elsewhere
            may have had its name point here.
        token: what every request has to bring as `Authorization: Bearer TOKEN`; None: nothing.
        refuse: the JSON of a refusal.
    """

    def __init__(self, app: ASGIApp, limits: Limits, host: str, token: str | None, refuse: Refusal):
        self.app, self.limits, self.local, self.token, self.refuse = app, limits, loopback(host), token, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        wrong = self._wrong(headers, scope["path"])
        if wrong is None and scope["method"] in ("POST", "PUT", "PATCH"):
            try:
                body = await asyncio.wait_for(
                    _read(receive, self.limits.body, headers.get("content-length")), SLOW_BODY
                )
                receive = _again(body, receive)
            except _TooLarge:
                wrong = 413, "too_large", f"the body is above {byte_size(self.limits.body)}; send less"
            except TimeoutError:
                wrong = 408, "timeout", f"the body did not arrive within {SLOW_BODY:.0f} seconds; send it at once"
            except _HungUp:
                return
        if wrong is not None:
            await _answer(send, wrong[0], self.refuse(*wrong))
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                header_pairs = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *header_pairs]}
            await send(message)

        await self.app(scope, receive, with_headers)

    def _wrong(self, headers: dict[str, str], path: str) -> tuple[int, str, str] | None:
        host = headers.get("host", "")
        if self.local and not loopback(_name(f"//{host}") or ""):
            why = "this is for this machine alone; use the address that was printed, or start it for others (`host`)"
            return 403, "wrong_host", why
        origin = headers.get("origin")
        if origin is not None and origin.partition("//")[2] != host:
            return 403, "wrong_origin", "another page asks; only this one may"
        if self.token is not None and path != OPEN:
            scheme, _, password = headers.get("authorization", "").partition(" ")
            right = hmac.compare_digest(password.encode(), self.token.encode())
            if not right or scheme.lower() != "bearer":
                return (
                    401,
                    "invalid_api_key",
                    "a token is needed, or this one is wrong; send Authorization: Bearer TOKEN",
                )
        return None


def _name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


class _TooLarge(Exception):
    pass


class _HungUp(Exception):
    pass


async def _read(receive: Receive, most: int, announced: str | None) -> bytes:
    """The body. Of one that is too large the rest is taken in and forgotten,
    so that whoever sends it comes to the answer."""
    parts, size = [], 0
    large = announced is not None and announced.isdecimal() and (len(announced) > 18 or int(announced) > most)
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _HungUp
        part = message.get("body", b"")
        size += len(part)
        large = large or size > most
        if large:
            parts = []
        else:
            parts.append(part)
        if not message.get("more_body") or size > DRAIN:
            break
    if large:
        raise _TooLarge
    return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Any:
    """A `receive` that gives the body that was read, then what comes after it."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def inner() -> Any:
        return left.pop() if left else await receive()

    return inner


async def _answer(send: Send, status: int, content: dict[str, Any]) -> None:
    body = json.dumps(content).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"} | HEADERS
    head = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
