"""An application behind an address: a socket that is ours before anything is said, and uvicorn on it."""

import socket
from typing import Any

import uvicorn

from ..errors import InputError


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


def answer_forever(app: Any, listening: socket.socket) -> None:
    """Answer until Ctrl-C or SIGTERM."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_keep_alive=30, timeout_graceful_shutdown=2,
        ws="none",
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listening])
