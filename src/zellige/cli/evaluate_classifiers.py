"""`zellige evaluate` with `--probe` or `--train-features`: classifiers, in a model's features and of images."""

import contextlib
import dataclasses
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..data import DATASETS, Data
from ..errors import InputError
from ..show.numbers import byte_size, columns, path, pm
from ..show.progress import Bar
from ..show.record import json_record
from ..show.terminal import Terminal
from . import options
from .common import (
    Document,
    OfRun,
    Where,
    command_options,
    file_suffix,
    load,
    of_model,
    put_json,
    run_folder,
    write_result,
)

if TYPE_CHECKING:
    from ..evaluation.probe import Probe as ProbeResult


@dataclass(frozen=True)
class ProbeData(Where):
    path: str | None = None
    """the folder of test.csv; downloaded if not given"""


@command_options
class Probe(OfRun):
    probe: str = "ag_news"
    """labelled texts: ag_news"""
    data: ProbeData = field(default_factory=ProbeData)
    """where they are"""
    layer: int | None = None
    """the block of the network that the linear probe reads; what the head reads if not given"""
    linear: bool = False
    """only the linear probes: a small part of the time"""
    epochs: int = 3
    """of fine-tuning"""
    rate: float = 1e-3
    """learning rate of fine-tuning, at its highest"""
    batch: int = 32
    """texts in a step of fine-tuning"""
    seed: int = 0
    """of the split, of fresh weights, of the order of the texts"""


def probe(words: Sequence[str], terminal: Terminal, began: float, write: bool = True) -> Document | None:
    """`zellige evaluate RUN --probe ag_news`"""
    about = "A linear probe and fine-tuning, against random weights and a bag of tokens."
    chosen = options.parse(Probe, words, "evaluate --probe", about=about, most=1)
    if not chosen.run:
        raise InputError("evaluate needs a run; e.g. zellige evaluate runs/demo --probe ag_news")
    if not chosen.rate > 0:
        raise InputError(f"--rate is {chosen.rate:g}; it must be above 0")
    with terminal.waiting("reading"):
        from ..evaluation import probe as probing

        data = probing.labelled(chosen.probe, chosen.data.path, chosen.data.cache)
    folder = run_folder(chosen.run) if write else None
    model = load(terminal, chosen.run, "evaluate", chosen)
    with contextlib.ExitStack() as stack:
        bars: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:  # each classifier has a bar of its own
            if what not in bars:
                stack.close()
                bars[what] = stack.enter_context(Bar(terminal, what, total))
            bars[what].update(done, total=total)

        result = probing.probe(
            model, data, seed=chosen.seed, epochs=0 if chosen.linear else chosen.epochs, rate=chosen.rate,
            batch=chosen.batch, layer=chosen.layer, progress=show,
        )  # fmt: skip
    for line in describe_probe(result):
        terminal.result(line)
    document = json_record(
        "evaluate", dataclasses.asdict(chosen), result.to_dict(), protocol=result.protocol, unit="accuracy", seed=chosen.seed,
        seconds=time.monotonic() - began,
    )  # fmt: skip
    if folder is not None:
        epochs, rate = (None if chosen.linear else chosen.epochs, chosen.rate)
        suffix = file_suffix(
            linear=chosen.linear, layer=chosen.layer, epochs=epochs if epochs != Probe.epochs else None,
            rate=rate if rate != Probe.rate else None, seed=chosen.seed or None,
        )  # fmt: skip
        write_result(terminal, folder / f"probe-{chosen.probe}{suffix}.json", document)
    return document


def describe_probe(result: "ProbeResult") -> list[str]:
    """What is printed: who was asked what, the accuracies, what training brings, the protocol."""
    about, p = result.about, result.protocol
    lines = [
        f"{of_model(about)}, trained on {about['trained on']}",
        f"{about['data']}: {p['texts']}; {p['length']}",
        "",
    ]
    rows = [("classifier", "accuracy (95%, Wilson)", "chosen")]
    rows += [(row.name, str(row.share), row.chosen) for row in result.rows]
    lines += [*columns(rows, "<<<", indent=2, gap=3), ""]
    rows = [("difference, on the same texts", "points (95%)")]
    rows += [(name, pm(100 * value, 100 * half, 1)) for name, value, half in result.gains]
    lines += columns(rows, "<>", indent=2, gap=3)
    protocol = ", ".join([p["name"], p["data"], p["features"], p["regression"], p["fine-tuning"]])
    protocol += (f", {p['class']}" if "class" in p else "") + f", seed {p['seed']}"
    return [*lines, "", *textwrap.wrap(protocol, 80, initial_indent="  protocol  ", subsequent_indent=" " * 12)]


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
