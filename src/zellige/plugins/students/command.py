"""`zellige train classifier MODEL`, `... speculative MODEL` and `... distill MODEL`:
networks that are trained on a model."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zellige.base.errors import InputError
from zellige.base.requests import declared, inline, option
from zellige.cli import options
from zellige.cli.common import OfModel, load, loading, put_json, typed_data
from zellige.core.student import half
from zellige.data import Data
from zellige.show.numbers import columns, counted, path
from zellige.show.progress import Bar
from zellige.show.terminal import Terminal

from .requests import TrainClassifier, TrainDistill, TrainSpeculative, check_new

if TYPE_CHECKING:
    from zellige.models.classifier import ClassifierConfig
    from zellige.models.speculative import HeadConfig

    from .distill import Distilled


@declared
class ClassifierOptions(OfModel):
    shown = "out data.path data.name data.labels steps batch lr layers seed device"

    request: TrainClassifier = inline(default=TrainClassifier())
    data: Data = option(
        "texts or images with classes to train on (default: the data of the run)", default=Data(), of_run=True
    )


@declared
class SpeculativeOptions(OfModel):
    shown = "out data.path data.name steps batch lr seed device"

    request: TrainSpeculative = inline(default=TrainSpeculative())
    data: Data = option("what to train on (default: the data of the run)", default=Data(), of_run=True)


@declared
class DistillOptions(OfModel):
    shown = "by teacher-steps rounds divergence out data.path data.name steps batch lr seed device"

    request: TrainDistill = inline(default=TrainDistill())
    data: Data = option("what to train on (default: the data of the run)", default=Data(), of_run=True)


@dataclass(frozen=True)
class Command:
    """One of the commands.

    Attributes:
        about: what it does, for its help.
        purpose: what the network is for, for the error without a model.
        suffix: what the name of its folder has beside the model's.
        lines: printed of its config.
        then: the command that uses it, given the model, the folder and the config.
    """

    options: type[OfModel]
    about: str
    purpose: str
    suffix: str
    lines: Callable[[Any], Sequence[str]]
    then: Callable[[str, str, Any], str]


def classifier_lines(config: "ClassifierConfig") -> list[str]:
    """The calibration of a classifier by noise level."""
    from zellige.evaluation.interval import Proportion

    rows = [
        [
            "blank" if config.noise == "blocks" else "noise",
            "examples",
            "accuracy (95%, Wilson)",
            "nats",
            "calibration error",
        ]
    ]
    for part in config.calibration:
        accuracy = str(Proportion(part.right, part.texts))
        rows.append(
            [f"{part.low:.0%} to {part.high:.0%}", f"{part.texts:,}", accuracy, f"{part.nats:.3f}", f"{part.gap:.3f}"]
        )
    what = f"{len(config.classes)} classes of {config.data}, on held-out examples"
    return [what, "", *columns(rows, "<>>>>", indent=2)]


def head_lines(config: "HeadConfig") -> list[str]:
    """Nats per token of the drafts and of the head."""
    values = {
        "the network, each token by itself": config.draft,
        "the head, each token given those before it": config.verified,
    }
    rows = [("", "nats/token (95%)")]
    rows += [(name, f"{mean:.3f} ± {half(error, config.texts):.3f}") for name, (mean, error) in values.items()]
    title = (
        f"-log p of {counted(config.texts, 'held-out text')}, a random share masked, the masked tokens in random order"
    )
    return [title, "", *columns(rows, "<>", indent=2)]


def rounds_lines(config: "Distilled") -> list[str]:
    """The loss of each round, as it began and as it ended."""
    number = lambda value: f"{value[0]:.4g} ± {half(value[1], config.texts):.1g}"  # noqa: E731
    rows = [("round", "steps", "before", "after (95%)")]
    rows += [
        (f"{i}", f"{r.teacher} to {r.student}", number(r.before), number(r.after))
        for i, r in enumerate(config.rounds, 1)
    ]
    title = f"{config.by}: {config.loss} a token, on {counted(config.texts, 'held-out text')}"
    return [title, "", *columns(rows, "<<>>", indent=2)]


def _guided(model: str, folder: str, config: "ClassifierConfig") -> str:
    return f"zellige sample {model} --class {shlex.quote(config.classes[0])} --classifier {folder} --guidance 2"


def _drafted(model: str, folder: str, _: object) -> str:
    return f"zellige sample {model} --sampler speculative --head {folder} --cosine 0.05 --rounds 4"


def _few(_: str, folder: str, config: "Distilled") -> str:
    return f"zellige sample {folder} --steps {config.steps}"


COMMANDS = {
    "classifier": Command(
        ClassifierOptions, "Train a classifier of a model's noisy texts, for guided samples.",
        "samples it guides", "classifier", classifier_lines, _guided,
    ),
    "speculative": Command(
        SpeculativeOptions, "Train a causal head on a masked model, to sample in fewer network evaluations.",
        "drafts it verifies", "head", head_lines, _drafted,
    ),
    "distill": Command(
        DistillOptions, "Train a student of a model that samples in fewer steps.",
        "steps it reduces", "distilled", rounds_lines, _few,
    ),
}  # fmt: skip


def train_on_model(name: str, words: Sequence[str], terminal: Terminal) -> int:
    """`zellige train classifier MODEL`, `zellige train speculative MODEL` or `zellige train distill MODEL`"""
    command, where = COMMANDS[name], f"train {name}"
    arguments: Any = options.parse(command.options, words, where, terminal, about=command.about)
    if not arguments.run:
        raise InputError(f"{where} needs the model whose {command.purpose}; e.g. zellige {where} runs/demo")
    folder = arguments.request.out or f"{Path(arguments.run)}-{command.suffix}"
    check_new(folder)
    # the weights stay as they are, whatever the training computes in
    weights, asked = replace(arguments, precision="float32"), replace(arguments.request, precision=arguments.precision)
    model = load(terminal, arguments.run, where, weights)
    request = replace(asked, out=folder, data=typed_data(arguments, words, model.config.data))
    with Bar(terminal, "train", 1, "steps") as bar:
        record: Any = replace(request, progress=lambda done, total: bar.update(done, total=total)).run(model)
    for line in [*command.lines(record.config), "", f"  written   {path(folder)}"]:
        terminal.result(line)
    terminal.try_next(command.then(path(arguments.run), path(folder), record.config))
    put_json(terminal, record.made_by(request, loading(weights)).to_dict())
    return 0
