"""`zellige evaluate --train-features`: an image classifier, in whose features samples are compared."""

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Annotated

import tyro

from ..data import Data
from ..evaluation.requests import TrainFeatures
from ..show.numbers import byte_size, path
from ..show.terminal import Terminal
from . import options
from .common import bars, command_options, put_json

FEATURES = "Train an image classifier for FID and KID."


@command_options
class FeaturesOptions:
    request: Annotated[TrainFeatures, tyro.conf.arg(name="")] = field(default_factory=TrainFeatures)
    data: Data = field(default_factory=Data)
    """images with classes: mnist, fashion-mnist, cifar10"""


def train_features(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige evaluate --train-features FOLDER`"""
    chosen = options.parse(FeaturesOptions, words, "evaluate --train-features", terminal, about=FEATURES, most=0)
    with bars(terminal) as show:
        record = replace(
            chosen.request, data=chosen.data, reading=show("read", as_text=byte_size), progress=show("train", "steps")
        ).run()
    folder = path(chosen.request.folder)
    terminal.result(f"{record.config.features} features of {record.config.name}")
    terminal.result(f"  written   {folder}")
    terminal.result(f"  next      zellige evaluate RUN --generate --features {folder}")
    put_json(terminal, record.to_dict())
    return 0
