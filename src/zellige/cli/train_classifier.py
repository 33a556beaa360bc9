"""`zellige train classifier MODEL`: a classifier of a model's noisy texts, which guides its samples to a class."""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ..data import Data
from ..nn.block import Net
from ..requests import option
from ..show.numbers import columns, path
from ..show.progress import Bar
from ..show.record import json_record
from ..show.terminal import Terminal
from . import options
from .common import OfModel, command_options, folder_on_model, load, put_json, typed_data

if TYPE_CHECKING:
    from ..models.classifier import ClassifierConfig

WHERE = "train classifier"
ABOUT = "Train a classifier of a model's noisy texts, for guided samples."


@command_options
class ClassifierOptions(OfModel):
    out: str | None = None
    """folder to write; sample --classifier reads it (default: the run's name with -classifier)"""
    data: Data = field(default_factory=Data)
    """texts or images with classes (default: the data of the run)"""
    steps: int = option(default=2000, minimum=1)
    """training steps"""
    batch: int = option(default=64, minimum=1)
    """examples per step"""
    lr: float = option(default=1e-3, above=0, maximum=1)
    """peak learning rate of AdamW"""
    layers: int | None = option("layers of the network (default: those of the model)", default=None, minimum=1)
    seed: int = option(default=0, minimum=0)
    """random seed"""


def train_classifier(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige train classifier MODEL`"""
    arguments: Any = options.parse(ClassifierOptions, words, WHERE, terminal, about=ABOUT, most=1)
    folder = folder_on_model(arguments, WHERE, "samples it guides", "classifier")
    model = load(terminal, arguments.run, WHERE, arguments)
    from ..training.classifier import train_classifier as train

    net: Net = (
        model.config.net if arguments.layers is None else dataclasses.replace(model.config.net, layers=arguments.layers)
    )
    with Bar(terminal, "train", 1, "steps") as bar:
        classifier = train(
            model, typed_data(arguments, words, model.config.data), steps=arguments.steps, batch=arguments.batch, lr=arguments.lr,
            seed=arguments.seed, net=net, progress=lambda done, total: bar.update(done, total=total),
        )  # fmt: skip
    classifier.save(folder)
    for line in described(classifier.config):
        terminal.result(line)
    terminal.result(f"  written   {path(folder)}")
    label = classifier.config.classes[0]
    label = f"'{label}'" if " " in label else label
    terminal.try_next(f"zellige sample {path(arguments.run)} --class {label} --classifier {path(folder)} --guidance 2")
    put_json(
        terminal,
        json_record(
            WHERE, dataclasses.asdict(arguments), dataclasses.asdict(classifier.config), unit="accuracy", kind="classifier",
            seed=arguments.seed, seconds=time.monotonic() - began,
        ),
    )  # fmt: skip
    return 0


def described(config: "ClassifierConfig") -> list[str]:
    """The lines that are printed: the calibration by noise level."""
    from ..evaluation.interval import Proportion

    level = "blank" if config.noise == "blocks" else "noise"
    rows = [[level, "texts", "accuracy (95%, Wilson)", "nats", "calibration error"]]
    for part in config.calibration:
        accuracy = str(Proportion(part.right, part.texts))
        rows.append(
            [f"{part.low:.0%} to {part.high:.0%}", f"{part.texts:,}", accuracy, f"{part.nats:.3f}", f"{part.gap:.3f}"]
        )
    return [
        f"{len(config.classes)} classes of {config.data}, on held-out texts",
        "",
        *columns(rows, "<>>>>", indent=2),
        "",
    ]
