"""What `zellige play` and `zellige serve` share: where they listen, and what they need."""

import importlib.util
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..show.terminal import Terminal
from .common import Loading, command_options

if TYPE_CHECKING:
    from ..web.guard import Limits


@command_options
class Listening(Loading):
    host: str = "127.0.0.1"
    """who reaches it: this machine alone; 0.0.0.0 every machine that reaches this one"""
    port: int = 8000
    """0: a free one"""
    seconds: float = 120.0
    """a request may take, waiting included"""
    steps: int = 2_000
    """a request may ask for"""
    batch: int = 16
    """texts of several requests drawn at once"""

    def __post_init__(self):
        for name, low, high in (("port", 0, 65_535), ("steps", 1, 1_000_000), ("batch", 1, 10_000)):
            if not low <= getattr(self, name) <= high:
                raise InputError(f"--{name} is {getattr(self, name):,}; it must be {low:,} to {high:,}")
        if not 0 < self.seconds <= 86_400:
            raise InputError(f"--seconds is {self.seconds:g}; it must be above 0 and at most 86400")

    def limits(self) -> "Limits":
        from ..web.guard import Limits

        return Limits(seconds=self.seconds, steps=self.steps, batch=self.batch)


def answer_requests(
    app: Any, chosen: Listening, terminal: Terminal, line: Callable[[str], str], token: str | None = None
) -> None:
    """Answer requests until Ctrl-C; `line` says of the address what a person does with it."""
    from ..web.guard import address, answer_forever, listen

    with listen(chosen.host, chosen.port) as listening:
        if warning := open_to_others(chosen.host, token):
            terminal.note(warning)
        terminal.result(f"{line(address(listening))}   Ctrl-C stops it")
        sys.stdout.flush()
        answer_forever(app, listening)


def open_to_others(host: str, token: str | None) -> str | None:
    """What to say of an address that others reach."""
    from ..web.guard import loopback

    if loopback(host) or token is not None:
        return None
    return f"{host} lets other machines in, whoever finds it; leave --host out, or give a --token to serve"


def need_web(command: str) -> None:
    """InputError where the packages of the extra `web` are not there."""
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"{command} needs {' and '.join(missing)}; pip install 'zellige[web]'")
