"""`zellige serve`: a model of text behind an endpoint in the form of OpenAI's."""

import os
import sys
from collections.abc import Sequence

from ..show.terminal import Terminal
from . import options
from .common import Run, command_options, load
from .listening import Listening, need_web, open_to_others


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
    model = load(terminal, chosen.run, "serve", chosen.method, chosen.device)
    from ..web.listen import address, answer_forever, listen
    from ..web.serve import application

    name, token = chosen.name or chosen.run, chosen.token or os.environ.get("ZELLIGE_TOKEN") or None
    app = application(model, name, chosen.limits(), chosen.host, token)
    with listen(chosen.host, chosen.port) as listening:
        if warning := open_to_others(chosen.host, token):
            terminal.note(warning)
        terminal.result(f"{address(listening)}/v1   model {name}{', with a token' if token else ''}   Ctrl-C stops it")
        sys.stdout.flush()
        answer_forever(app, listening)
    return 0
