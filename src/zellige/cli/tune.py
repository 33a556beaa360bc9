"""`zellige tune MODEL`: an adapter of a model, trained on other data."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..base.requests import inline, option
from ..data import Data
from ..show.numbers import path
from ..show.progress import TrainingBar
from ..show.terminal import Terminal
from ..training.requests import Tune
from . import options
from .common import put_json
from .flags import flags, options_class
from .train import trained

ABOUT = """Tune a model on other data: a small adapter (LoRA) beside its frozen weights.
From a .jsonl or .json with 'prompt' and 'answer', the model learns only the
answers; from conversations ('messages', ShareGPT, Alpaca) only the last one."""
SHOWN = "data.path data.fill run resume overwrite rank alpha dropout targets length train.steps train.lr train.batch"


def form() -> Any:
    """The options, as a dataclass; it imports torch."""
    from ..models.config import Train

    fields = [
        ("model", str, option("a run, a saved folder or a hub id", default="", argument="MODEL")),
        ("request", Tune, inline(default=Tune())),
        ("data", Data, option(default=Data())),
        ("train", Train, option(default=Tune.defaults())),
    ]
    return options_class("TuneOptions", fields, usage="MODEL --data.path FILE [options]", shown=SHOWN)


def tune(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige tune MODEL --data.path FILE`"""
    with terminal.waiting("starting"):
        kind = form()
    arguments: Any = options.parse(kind, words, "tune", terminal, about=ABOUT)
    paths = [flag.path for name, flag in flags(kind).items() if name in options.typed(kind, words)]
    settings = {
        f"{section}.{field}": getattr(getattr(arguments, section), field)
        for section, field in paths
        if section in ("data", "train")
    }
    request = replace(arguments.request, settings=settings)
    with contextlib.closing(TrainingBar(terminal)) as progress:
        with terminal.waiting("loading"):
            tuning = request.session(arguments.model or None, progress)
        run = tuning.run().made_by(request.saved())
    trained(terminal, run, then=f"zellige export {path(run.folder)} --out merged")
    put_json(terminal, run.to_dict() | {"seconds": time.monotonic() - began})
    return 0
