"""An application behind an address: a socket that is ours before anything is said, and uvicorn on it."""

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import InputError

SLOW = 30.0  # seconds in which the headers of a request have to arrive


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
    """HTTP in which headers have SLOW seconds to arrive, from the connection or from their first byte on; else it is closed.

    uvicorn itself waits for ever, as long as there is a byte now and then.
    """

    late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
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
            self.late = self.loop.call_later(SLOW, self.transport.close)
        elif not awaited and self.late is not None:
            self.late.cancel()
            self.late = None


def server_of(app: Any) -> uvicorn.Server:
    """The server of an application, on a socket that `run(sockets=[...])` is given."""
    config = uvicorn.Config(
        app, http=Timely, log_level="warning", access_log=False, server_header=False, timeout_keep_alive=30,
        timeout_graceful_shutdown=2, ws="none",
    )  # fmt: skip
    return uvicorn.Server(config)


def answer_forever(app: Any, listening: socket.socket) -> None:
    """Answer until Ctrl-C or SIGTERM."""
    server_of(app).run(sockets=[listening])
