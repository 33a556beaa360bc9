"""Requests that train a network on a model.

    TrainClassifier(steps=400).run(model)        a classifier that guides samples of the model
    TrainSpeculative("runs/a-head").run(model)   a causal head that verifies its drafts
    TrainDistill("runs/a-4").run(model)          a student that samples in fewer steps

They import no torch before they run.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from zellige.base.errors import InputError
from zellige.base.files import made, writable
from zellige.base.requests import Request, aside, data_of_json, declared, option
from zellige.data import Data
from zellige.training.requests import refuse_handed_over

if TYPE_CHECKING:
    from zellige.models.classifier import TextClassifier
    from zellige.models.model import Model, ModelSource
    from zellige.models.speculative import Verifier

    from .classifier import ClassifierRecord
    from .distill import DistillRecord
    from .small import FitOptions
    from .speculative import HeadRecord

R = TypeVar("R", covariant=True)

_out = partial(option, default=None)
_steps = partial(option, "training steps", default=2000, minimum=1)
_batch = partial(option, "examples per step", minimum=1)
_lr = partial(option, "peak learning rate of AdamW", above=0, maximum=1)
_precision = partial(
    option,
    "precision of matrix products in training; the weights stay in float32",
    default="float32",
    hidden=True,
)
_seed = partial(option, "random seed", default=0, minimum=0)
_progress = partial(aside, "called with (steps done, steps in all)", default=None)


class OnModel(Request[R]):
    """A network that is trained on a model: what its requests have in common."""

    out: str | Path | None
    data: Any
    steps: int
    batch: int
    lr: float
    precision: str
    seed: int
    progress: Callable[[int, int], None] | None

    def run(self, model: "ModelSource") -> R:
        """Train it on a `Model`, or on a run folder, a saved folder or a hub id.

        Raises:
            InputError: the model or the data does not suit, or the folder is there.
        """
        check_new(self.out)
        refuse_handed_over(self, "data")
        from zellige.models.model import as_model

        from .small import FitOptions

        began = time.monotonic()
        options = FitOptions(self.steps, self.batch, self.lr, self.seed, self.progress, self.precision)
        record, network = self._trained(as_model(model), options)
        if self.out is not None:
            network.save(self.out)
        return replace(record, seconds=time.monotonic() - began, request=self.saved())

    def _trained(self, model: "Model", options: "FitOptions") -> tuple[Any, Any]:
        """The record, and what is saved."""
        raise NotImplementedError


@declared
class TrainClassifier(OnModel["ClassifierRecord"]):
    """Train a classifier of a model's noisy texts, which guides its samples to a class.

    The record has `.classifier`, an argument of `zellige.sample`, and `.config` with its calibration on held-out texts.
    """

    returns = "zellige.plugins.students.classifier:ClassifierRecord"

    out: str | Path | None = _out(
        "folder to write; zellige sample --classifier reads it (default: the run's name with -classifier; in Python: "
        "none)"
    )
    data: Any = option(
        "texts or images with classes (default: the data of the run)",
        default=None,
        hidden=True,
        read=partial(data_of_json, Data),
    )
    steps: int = _steps()
    batch: int = _batch(default=64)
    lr: float = _lr(default=1e-3)
    layers: int | None = option("layers of the network (default: those of the model)", default=None, minimum=1)
    precision: Literal["float32", "tf32", "bfloat16"] = _precision()
    seed: int = _seed()
    progress: Callable[[int, int], None] | None = _progress()

    def _trained(self, model: "Model", options: "FitOptions") -> "tuple[ClassifierRecord, TextClassifier]":
        from .classifier import ClassifierRecord, train_classifier

        classifier = train_classifier(model, self.data, self.layers, options)
        return ClassifierRecord(classifier.config, classifier=classifier), classifier


@declared
class TrainSpeculative(OnModel["HeadRecord"]):
    """Train the causal head of a masked model, which verifies its drafts, for samples in fewer network evaluations.

    The model has it from then on: `zellige.sample(model, sampler="speculative")`. The record has `.config`, with the
    nats per token of drafts and head on held-out texts.
    """

    returns = "zellige.plugins.students.speculative:HeadRecord"

    out: str | Path | None = _out(
        "folder to write; zellige sample --head reads it (default: the run's name with -head; in Python: none)"
    )
    data: Any = option(
        "texts (default: the data of the run)", default=None, hidden=True, read=partial(data_of_json, Data)
    )
    steps: int = _steps()
    batch: int = _batch(default=16)
    lr: float = _lr(default=2e-3)
    precision: Literal["float32", "tf32", "bfloat16"] = _precision()
    seed: int = _seed()
    progress: Callable[[int, int], None] | None = _progress()

    def _trained(self, model: "Model", options: "FitOptions") -> "tuple[HeadRecord, Verifier]":
        from .speculative import HeadRecord, train_speculative

        verifier = train_speculative(model, self.data, options)
        return HeadRecord(verifier.config), verifier


@declared
class TrainDistill(OnModel["DistillRecord"]):
    """Train a student of a model that samples in fewer steps.

    The record has `.model`, an ordinary model that samples in `.config.steps` steps by default, and `.config` with the
    loss of each round on held-out texts.
    """

    returns = "zellige.plugins.students.distill:DistillRecord"

    out: str | Path | None = _out(
        "folder to write the student into (default: the run's name with -distilled; in Python: none)"
    )
    data: Any = option(
        "texts (default: the data of the run)", default=None, hidden=True, read=partial(data_of_json, Data)
    )
    by: Literal["auto", "sdtt", "consistency", "di4c"] = option(
        "sdtt: one step of the student learns several steps of the teacher, for masked models; "
        "consistency: the same along one path of noise, for uniform noise; di4c: a mixture, so that the "
        "tokens of a step can depend on each other; auto: sdtt or consistency, as the noise is",
        default="auto",
    )
    teacher_steps: int = option("steps of the teacher in the first round", default=64, minimum=2)
    rounds: int = option("number of rounds; each divides the number of sampling steps by `merge`", default=4, minimum=1)
    merge: int = option("teacher steps that one student step replaces", default=2, minimum=2)
    divergence: Literal["kl", "reverse-kl", "tvd", "mse"] = option(
        "what is minimized between teacher and student: kl(teacher || student), reverse-kl, total "
        "variation (tvd), or the squared error of logarithms (mse)",
        default="kl",
    )
    latents: int | None = option("for di4c: number of components of the mixture (default: 8)", default=None, minimum=2)
    steps: int = option("training steps of each round", default=500, minimum=1)
    batch: int = _batch(default=16)
    lr: float = _lr(default=3e-4)
    ema: float = option(
        "decay of the averaged weights; the averaged student is the teacher of the next round",
        default=0.99,
        minimum=0,
        below=1,
    )
    precision: Literal["float32", "tf32", "bfloat16"] = _precision()
    seed: int = _seed()
    progress: Callable[[int, int], None] | None = _progress()

    def _trained(self, model: "Model", options: "FitOptions") -> "tuple[DistillRecord, Model]":
        from .distill import DistillRecord, distill

        student, config = distill(
            model, self.data, by=self.by, teacher_steps=self.teacher_steps, rounds=self.rounds, merge=self.merge,
            divergence=self.divergence, latents=self.latents, ema=self.ema, options=options,
        )  # fmt: skip
        return DistillRecord(config, model=student), student


def check_new(folder: str | Path | None) -> None:
    """Raise InputError for a folder that is there already, or cannot be written."""
    if folder is None:
        return
    if Path(folder).exists():
        raise InputError(f"'{folder}' is there; give the name of a new folder with `out`")
    with made(Path(folder).parent):
        writable(folder)
