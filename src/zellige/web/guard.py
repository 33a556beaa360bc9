"""What is refused before anything is read: a large body, a slow one, another host, another page's request, no token.

An ASGI application around another; what it refuses is answered in the form that it is given (`refuse`).
"""

import asyncio
import hmac
import ipaddress
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from ..show.numbers import byte_size
from .limits import Limits

DRAIN = 256 << 20  # bytes of a body that is refused are still taken in, and forgotten, so that the answer is read
SLOW = 30.0  # seconds in which a body has to arrive
LOOPBACK = ("localhost", "127.0.0.1", "::1")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
Refusal = Callable[[int, str, str], dict[str, Any]]  # (status, code, what was wrong; what would be right) -> the JSON


def loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Checks each request before the application sees it.

    Args:
        host: where it listens. Of this machine alone: requests under another name are refused, since a page elsewhere may have
            had its name point here.
        token: what every request has to bring as `Authorization: Bearer TOKEN`; None: nothing.
        refuse: the JSON of a refusal.
    """

    def __init__(self, app: Any, limits: Limits, host: str, token: str | None, refuse: Refusal):
        self.app, self.limits, self.local, self.token, self.refuse = app, limits, loopback(host), token, refuse

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        wrong = self._wrong(headers)
        if wrong is None and scope["method"] in ("POST", "PUT", "PATCH"):
            try:
                body = await asyncio.wait_for(_read(receive, self.limits.body, headers.get("content-length")), SLOW)
                receive = _again(body, receive)
            except _TooLarge:
                wrong = 413, "too_large", f"the body is above {byte_size(self.limits.body)}; send less"
            except TimeoutError:
                wrong = 408, "timeout", f"the body did not arrive within {SLOW:.0f} seconds; send it at once"
            except _HungUp:
                return
        if wrong is not None:
            await _answer(send, wrong[0], self.refuse(*wrong))
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *own]}
            await send(message)

        await self.app(scope, receive, with_headers)

    def _wrong(self, headers: dict[str, str]) -> tuple[int, str, str] | None:
        host = headers.get("host", "")
        if self.local and _name(f"//{host}") not in LOOPBACK:
            return 403, "wrong_host", "this is for 127.0.0.1 alone; use that address, or start it for others (`host`)"
        origin = headers.get("origin")
        if origin is not None and origin.partition("//")[2] != host:
            return 403, "wrong_origin", "another page asks; only this one may"
        if self.token is not None:
            scheme, _, brought = headers.get("authorization", "").partition(" ")
            right = hmac.compare_digest(brought.encode(), self.token.encode())
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


async def _read(receive: Any, most: int, announced: str | None) -> bytes:
    """The body. Of one that is too large the rest is taken in and forgotten, so that whoever sends it comes to the answer."""
    parts, size = [], 0
    large = announced is not None and announced.isdecimal() and int(announced) > most
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


def _again(body: bytes, receive: Any) -> Any:
    """A `receive` that gives the body that was read, then what comes after it."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def inner() -> Any:
        return left.pop() if left else await receive()

    return inner


async def _answer(send: Any, status: int, content: dict[str, Any]) -> None:
    body = json.dumps(content).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"} | HEADERS
    head = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
