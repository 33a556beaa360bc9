"""`zellige evaluate --train-features`: an image classifier, in whose features samples are compared."""

from collections.abc import Sequence
from dataclasses import replace

from zellige.base.requests import declared, inline, option
from zellige.cli import options
from zellige.cli.common import bars, put_json
from zellige.cli.evaluate import FEATURES
from zellige.data import Data
from zellige.show.numbers import byte_size, path
from zellige.show.terminal import Terminal

from .request import TrainFeatures


@declared
class FeaturesOptions:
    usage = "--train-features FOLDER [options]"
    shown = "data.name data.path epochs seed device"

    request: TrainFeatures = inline(default=TrainFeatures())
    data: Data = option("images with classes: mnist, fashion-mnist, cifar10", default=Data())


def train_features(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige evaluate --train-features FOLDER`"""
    chosen = options.parse(FeaturesOptions, words, "evaluate --train-features", terminal, about=FEATURES[1])
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
