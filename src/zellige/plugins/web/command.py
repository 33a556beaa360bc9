"""`zellige serve`: a model of text behind an endpoint in the form of OpenAI's; `zellige play`:
a page where models write."""

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from zellige.base.errors import InputError
from zellige.base.requests import declared, option
from zellige.cli import options
from zellige.cli.common import Loading, load
from zellige.cli.drawing import SampleOptions
from zellige.cli.flags import flags
from zellige.show.terminal import Terminal

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from .guard import Limits

MOST = 8  # models on the page
WORDS = ("steps", "sampler", "temperature", "top-p", "seed")  # explained on the page: options of `zellige sample`


@declared
class Listening(Loading):
    host: str = option(
        "address to listen at; 127.0.0.1: this machine only; 0.0.0.0: any machine that can reach it",
        default="127.0.0.1",
    )
    port: int = option("port to listen at (0: any free port)", default=8000, minimum=0, maximum=65_535)
    seconds: float = option("time limit per request, queueing included", default=120.0, above=0, maximum=86_400)
    steps: int = option("maximum number of sampling steps of a request", default=2_000, minimum=1, maximum=1_000_000)


@declared
class Serve(Listening):
    usage = "RUN [options]"

    run: str = option("the folder of a model, the name of an included one, or a hub id", default="", argument="RUN")
    name: str | None = option("name of the model in requests (default: RUN)", default=None)
    token: str | None = option(
        "secret token that each request must send (default: the environment's ZELLIGE_TOKEN, if it is set)",
        default=None,
    )
    batch: int = option(
        "maximum number of texts in a request, and in a network evaluation", default=16, minimum=1, maximum=10_000
    )

    def limits(self) -> "Limits":
        from .guard import Limits

        return Limits(seconds=self.seconds, steps=self.steps, batch=self.batch)


def serve(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige serve RUN`"""
    arguments = options.parse(
        Serve, words, "serve", terminal, about="Serve a text model by an OpenAI-compatible interface."
    )
    need_web("serve")
    token = os.environ.get("ZELLIGE_TOKEN") if arguments.token is None else arguments.token
    if token is not None and not re.fullmatch("[!-~]+", token):
        raise InputError("`token` (or ZELLIGE_TOKEN) is empty or not printable ASCII without blanks; correct it")
    model = load(terminal, arguments.run, "serve", arguments)
    from zellige.data import chat

    from .serve import application

    if note := chat.note(model.tokenizer):
        terminal.note(note)
    name = arguments.name or arguments.run
    app = application(model, name, arguments.limits(), arguments.host, token, terminal.say)
    model_line = f"model {name}{', with a token' if token else ''}"
    answer_requests(app, arguments, terminal, lambda address: f"{address}/v1   {model_line}", token)
    return 0


@declared
class Play(Listening):
    usage = "[RUN ...] [options]"
    shown = "host port seconds steps included device"

    run: tuple[str, ...] = option(
        "the folder of a model, the name of an included one, or a hub id; several are shown side by side "
        "(default: all included models)",
        default=(),
        argument="RUN ...",
    )
    included: bool = option("offer the included models as well", default=True)


def play(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige play RUN ...`"""
    arguments = options.parse(Play, words, "play", terminal, about="Open a web page where models write, step by step.")
    if arguments.run[MOST:]:
        raise InputError(f"'{arguments.run[MOST]}' is one model too many; play shows {MOST} side by side at most")
    need_web("play")
    from zellige.models import shipped

    from .examples import included
    from .play import LIMITS, application

    models = {name: load(terminal, name, "play", arguments) for name in arguments.run}
    beside = included() if arguments.included else []
    known = {shipped.name_of(model) for model in models.values()}
    for name in beside:
        if name not in known and name not in models:
            models[name] = load(terminal, name, "play", replace(arguments, method=None), note=False)
    if not models:
        raise InputError("play needs a run; e.g. zellige play runs/demo")

    limits = replace(LIMITS, seconds=arguments.seconds, steps=arguments.steps)
    explained = flags(SampleOptions)
    meanings = {word: explained[f"--{word}"].option.help for word in WORDS}
    answer_requests(
        application(models, limits, arguments.host, meanings), arguments, terminal, "{}   open it in a browser".format
    )
    return 0


def answer_requests(
    app: "ASGIApp", chosen: Listening, terminal: Terminal, line: Callable[[str], str], token: str | None = None
) -> None:
    """Answer requests until Ctrl-C; `line` says of the address what a person does with it."""
    from .guard import address, answer_forever, listen

    with listen(chosen.host, chosen.port) as listening:
        if warning := open_to_others(chosen, token):
            terminal.note(warning)
        terminal.result(f"{line(address(listening))}   Ctrl-C stops it")
        sys.stdout.flush()
        answer_forever(app, listening)


def open_to_others(chosen: Listening, token: str | None) -> str | None:
    """Warning about an address that others reach."""
    from .guard import loopback

    if loopback(chosen.host) or token is not None:
        return None
    protection = "or set a --token" if isinstance(chosen, Serve) else "as play has no token"
    return f"{chosen.host} lets in every machine that can reach this one; leave --host out, {protection}"


def need_web(command: str) -> None:
    """InputError where the packages of the extra `web` are not there."""
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"{command} needs {' and '.join(missing)}; pip install 'zellige[web]'")
