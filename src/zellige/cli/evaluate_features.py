"""`zellige evaluate --train-features`: an image classifier, in whose features samples are compared."""

from collections.abc import Sequence
from dataclasses import replace

from ..base.requests import declared, inline, option
from ..data import Data
from ..evaluation.requests import TrainFeatures
from ..show.numbers import byte_size, path
from ..show.terminal import Terminal
from . import options
from .common import bars, put_json

FEATURES = "Train an image classifier for FID and KID."


@declared
class FeaturesOptions:
    usage = "--train-features FOLDER [options]"
    shown = "data.name data.path epochs seed device"

    request: TrainFeatures = inline(default=TrainFeatures())
    data: Data = option("images with classes: mnist, fashion-mnist, cifar10", default=Data())


def train_features(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige evaluate --train-features FOLDER`"""
    chosen = options.parse(FeaturesOptions, words, "evaluate --train-features", terminal, about=FEATURES)
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
