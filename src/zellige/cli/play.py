"""`zellige play`: a page on this machine where models write, and are looked at while they do."""

from collections.abc import Sequence
from typing import Annotated

import tyro

from ..errors import InputError
from ..show.terminal import Terminal
from . import options
from .brief import descriptions
from .common import command_options, load
from .drawing import SampleOptions
from .listening import Listening, answer_requests, need_web

MOST = 8  # models
WORDS = ("steps", "sampler", "temperature", "top-p", "seed")  # of the page: options of `zellige sample`


@command_options
class Play(Listening):
    run: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")] = ()
    """a run, a saved folder or a hub id; or several, to put side by side"""


def play(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige play RUN ...`"""
    chosen = options.parse(Play, words, "play", about="A page where models write, step by step.", most=MOST)
    need_web("play")
    if not chosen.run:
        raise InputError("play needs a run; e.g. zellige play runs/demo")
    models = {name: load(terminal, name, "play", chosen) for name in chosen.run}
    from dataclasses import replace

    from ..web.play import LIMITS, application

    limits = replace(LIMITS, seconds=chosen.seconds, steps=chosen.steps)
    helps = descriptions(SampleOptions)
    meanings = {word: helps[f"--{word}"] for word in WORDS}
    answer_requests(
        application(models, limits, chosen.host, meanings), chosen, terminal, "{}   open it in a browser".format
    )
    return 0
