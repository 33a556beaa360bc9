"""`zellige serve`: a model of text behind an endpoint in the form of OpenAI's; `zellige play`: a page where models write."""

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import tyro

from zellige.base.errors import InputError
from zellige.base.requests import option
from zellige.cli import options
from zellige.cli.common import Loading, Run, command_options, load
from zellige.cli.drawing import SampleOptions
from zellige.cli.flags import descriptions
from zellige.show.terminal import Terminal

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from .guard import Limits

MOST = 8  # models on the page
WORDS = ("steps", "sampler", "temperature", "top-p", "seed")  # explained on the page: options of `zellige sample`


@command_options
class Listening(Loading):
    host: str = "127.0.0.1"
    """address to listen at; 127.0.0.1: this machine only; 0.0.0.0: any machine that can reach it"""
    port: int = option(default=8000, minimum=0, maximum=65_535)
    """port to listen at (0: any free port)"""
    seconds: float = option(default=120.0, above=0, maximum=86_400)
    """time limit per request, queueing included"""
    steps: int = option(default=2_000, minimum=1, maximum=1_000_000)
    """maximum of sampling steps per request"""
    batch: int = option(default=16, minimum=1, maximum=10_000)
    """texts sampled at once, over all requests"""

    def limits(self) -> "Limits":
        from .guard import Limits

        return Limits(seconds=self.seconds, steps=self.steps, batch=self.batch)


@command_options
class Serve(Listening):
    run: Run = ""
    """a run, a saved folder or a hub id"""
    name: str | None = None
    """name of the model in requests (default: RUN)"""
    token: str | None = None
    """secret token that each request must send; default: the environment's ZELLIGE_TOKEN, else none"""


def serve(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige serve RUN`"""
    arguments = options.parse(
        Serve, words, "serve", terminal, about="Serve a text model by an OpenAI-compatible interface.", most=1
    )
    need_web("serve")
    model = load(terminal, arguments.run, "serve", arguments)
    from zellige.data import chat

    from .serve import application

    if note := chat.note(model.tokenizer):
        terminal.note(note)
    name, token = arguments.name or arguments.run, arguments.token or os.environ.get("ZELLIGE_TOKEN") or None
    app = application(model, name, arguments.limits(), arguments.host, token, terminal.say)
    model_line = f"model {name}{', with a token' if token else ''}"
    answer_requests(app, arguments, terminal, lambda address: f"{address}/v1   {model_line}", token)
    return 0


@command_options
class Play(Listening):
    run: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")] = ()
    """a run, a saved folder or a hub id; or several, to put side by side (default: the models that come with Zellige)"""
    included: bool = True
    """offer the models that come with Zellige, too"""


def play(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige play RUN ...`"""
    arguments = options.parse(
        Play, words, "play", terminal, about="Open a web page where models write, step by step.", most=MOST
    )
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
    helps = descriptions(SampleOptions)
    meanings = {word: helps[f"--{word}"] for word in WORDS}
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
        if warning := open_to_others(chosen.host, token):
            terminal.note(warning)
        terminal.result(f"{line(address(listening))}   Ctrl-C stops it")
        sys.stdout.flush()
        answer_forever(app, listening)


def open_to_others(host: str, token: str | None) -> str | None:
    """Warning about an address that others reach."""
    from .guard import loopback

    if loopback(host) or token is not None:
        return None
    return f"{host} lets other machines in, whoever finds it; leave --host out, or give a --token to serve"


def need_web(command: str) -> None:
    """InputError where the packages of the extra `web` are not there."""
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"{command} needs {' and '.join(missing)}; pip install 'zellige[web]'")
