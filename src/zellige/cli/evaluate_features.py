"""`zellige evaluate --train-features FOLDER --data.name mnist`: a small classifier, in whose features images are compared."""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..data import DATASETS, Data
from ..errors import InputError
from ..show.numbers import byte_size, path
from ..show.progress import Bar
from ..show.record import json_record
from ..show.terminal import Terminal
from . import options
from .common import put_json


@dataclass(frozen=True)
class TrainFeatures:
    train_features: str = "features"
    """the folder to write; --generate --features reads it"""
    data: Data = field(default_factory=Data)
    """images with classes: mnist, fashion-mnist, cifar10"""
    width: int = 64
    """how many features an image has; FID needs more samples than that"""
    epochs: int = 3
    """passes over the training images"""
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"


def train_features(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige evaluate --train-features FOLDER`"""
    about = "A classifier of images, whose features FID and its kin can use."
    chosen = options.parse(TrainFeatures, words, "evaluate --train-features", about=about, most=0)
    from ..evaluation import image_features
    from ..files import writable

    labelled = dataclasses.replace(chosen.data, labels=True)
    if chosen.data.name in DATASETS and not {"labels", "size"} <= {*DATASETS[chosen.data.name].reads}:
        raise InputError(f"{chosen.data.name} holds no images with classes; give such, e.g. --data.name mnist")
    folder = Path(chosen.train_features)
    if folder.exists() and not (folder / image_features.CONFIG).is_file():
        raise InputError(f"'{chosen.train_features}' is there and holds no features; give the name of a new folder")
    writable((folder if folder.is_dir() else folder.parent) / image_features.CONFIG)
    with terminal.waiting("loading"):
        import torch

        from ..data.prepare import prepare

    if chosen.device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device is cuda, and there is no GPU here; use --device cpu")
    device = "cuda" if chosen.device != "cpu" and torch.cuda.is_available() else "cpu"
    with Bar(terminal, "read", 1, as_text=byte_size) as bar:
        data = prepare(labelled, progress=lambda done, total: bar.update(done, total=total))
    with Bar(terminal, "train", 1, "steps") as bar:
        network, config = image_features.train_classifier(
            data, chosen.width, chosen.epochs, chosen.seed, device, lambda done, total: bar.update(done, total=total)
        )
    image_features.save_features(network, config, folder)
    terminal.result(f"{config.features} features of {config.name}")
    terminal.result(f"  written   {path(folder)}")
    terminal.result(f"  next      zellige evaluate RUN --generate --features {path(folder)}")
    put_json(
        terminal,
        json_record(
            "evaluate", dataclasses.asdict(chosen), dataclasses.asdict(config), unit="accuracy", kind="features",
            seed=chosen.seed, seconds=time.monotonic() - began,
        ),
    )  # fmt: skip
    return 0
