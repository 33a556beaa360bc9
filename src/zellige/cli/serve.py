"""`zellige serve`: a model of text behind an endpoint in the form of OpenAI's."""

import os
from collections.abc import Sequence

from ..show.terminal import Terminal
from . import options
from .common import Run, command_options, load
from .listening import Listening, answer_requests, need_web


@command_options
class Serve(Listening):
    run: Run = ""
    """a run, a saved folder or a hub id"""
    name: str | None = None
    """what requests call the model; RUN if not given"""
    token: str | None = None
    """what every request has to bring; or in the environment, ZELLIGE_TOKEN"""


def serve(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige serve RUN`"""
    chosen = options.parse(Serve, words, "serve", about="An OpenAI-compatible endpoint for a model of text.", most=1)
    need_web("serve")
    model = load(terminal, chosen.run, "serve", chosen)
    from ..web.serve import application

    name, token = chosen.name or chosen.run, chosen.token or os.environ.get("ZELLIGE_TOKEN") or None
    app = application(model, name, chosen.limits(), chosen.host, token)
    model_line = f"model {name}{', with a token' if token else ''}"
    answer_requests(app, chosen, terminal, lambda address: f"{address}/v1   {model_line}", token)
    return 0
