"""`zellige tune MODEL`: an adapter of a model, trained on other data."""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Annotated, Any

import tyro

from ..data import Data
from ..show.numbers import path
from ..show.progress import Training
from ..show.terminal import Terminal
from ..training.requests import Tune
from . import options
from .common import put_json
from .train import trained

ABOUT = """Tune a model on other data: a small adapter (LoRA) beside its frozen weights.
A .jsonl or .json with 'prompt' and 'answer' teaches the answers; so do
conversations ('messages', ShareGPT, Alpaca), by the model's chat template."""


def form() -> Any:
    """The options, as a dataclass; it imports torch."""
    from ..models.config import Train

    model = Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL", help="a run, a saved folder or a hub id")
    ]
    train = Tune.defaults()
    fields = [
        ("model", model, field(default="")),
        ("request", Annotated[Tune, tyro.conf.arg(name="")], field(default=Tune())),
        ("data", Data, field(default=Data())),
        ("train", Train, field(default=train)),
    ]
    return dataclasses.make_dataclass("TuneOptions", fields, frozen=True)


def tune(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige tune MODEL --data.path FILE`"""
    with terminal.waiting("starting"):
        kind = form()
    arguments: Any = options.parse(kind, words, "tune", terminal, about=ABOUT, most=1)
    flags = options.flags(kind)
    typed = options.given(options.canonical(flags, words))
    names = [
        flag for name, flag in flags.items() if {name, flag.off} & typed and name.startswith(("--data.", "--train."))
    ]
    sections = {flag: flag.name.removeprefix("--").partition(".")[0] for flag in names}
    settings = {f"{at}.{flag.field}": getattr(getattr(arguments, at), flag.field) for flag, at in sections.items()}
    request = replace(arguments.request, settings=settings)
    progress = Training(terminal)
    try:
        with terminal.waiting("loading"):
            tuning = request.session(arguments.model or None, progress)
        run = tuning.run().made_by(request.saved())
    finally:
        progress.close()
    export = f"zellige export {path(run.folder)} --out merged"
    trained(terminal, run, rows=run.steps * run.config.train.batch * 3 // 10, then=export)
    put_json(terminal, run.to_dict() | {"seconds": time.monotonic() - began})
    return 0
