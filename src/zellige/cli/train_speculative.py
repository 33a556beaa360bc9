"""`zellige train speculative MODEL`: the causal head of a model, which verifies its drafts (`sample --sampler speculative`)."""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from ..data import Data
from ..requests import option
from ..show.numbers import columns, path
from ..show.progress import Bar
from ..show.record import json_record
from ..show.terminal import Terminal
from . import options
from .common import OfModel, command_options, folder_on_model, load, put_json, typed_data

WHERE = "train speculative"
ABOUT = "Train the causal head of a masked model, for samples in fewer network evaluations."


@command_options
class SpeculativeOptions(OfModel):
    out: str | None = None
    """folder to write; --head reads it (default: the run's name with -head)"""
    data: Data = field(default_factory=Data)
    """texts (default: the data of the run)"""
    steps: int = option(default=2000, minimum=1)
    """training steps"""
    batch: int = option(default=16, minimum=1)
    """examples per step"""
    lr: float = option(default=2e-3, above=0, maximum=1)
    """peak learning rate of AdamW"""
    seed: int = option(default=0, minimum=0)
    """random seed"""


def train_speculative(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige train speculative MODEL`"""
    arguments: Any = options.parse(SpeculativeOptions, words, WHERE, terminal, about=ABOUT, most=1)
    folder = folder_on_model(arguments, WHERE, "drafts it verifies", "head")
    model = load(terminal, arguments.run, WHERE, arguments)
    from ..training.speculative import train_speculative as train

    with Bar(terminal, "train", 1, "steps") as bar:
        verifier = train(
            model, typed_data(arguments, words, model.config.data), steps=arguments.steps, batch=arguments.batch,
            lr=arguments.lr, seed=arguments.seed, name=Path(arguments.run).name,
            progress=lambda done, total: bar.update(done, total=total),
        )  # fmt: skip
    verifier.save(folder)
    config = verifier.config
    rows = [["", "nats/token (95%)"]]
    for name, (mean, error) in (("drafts", config.draft), ("verified", config.verified)):
        rows.append([name, f"{mean:.3f} ± {1.96 * error:.3f}"])
    for line in (
        f"{config.texts:,} held-out texts, any number of masks in any order",
        "",
        *columns(rows, "<>", indent=2),
        "",
    ):
        terminal.result(line)
    terminal.result(f"  written   {path(folder)}")
    terminal.try_next(
        f"zellige sample {path(arguments.run)} --sampler speculative --head {path(folder)} --cosine 0.05 --rounds 4"
    )
    put_json(
        terminal,
        json_record(
            WHERE, dataclasses.asdict(arguments), dataclasses.asdict(config), unit="nats/token", kind="speculative",
            seed=arguments.seed, seconds=time.monotonic() - began,
        ),
    )  # fmt: skip
    return 0
