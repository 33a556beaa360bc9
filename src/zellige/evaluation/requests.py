"""The requests of `zellige evaluate`: what can be asked about a model, each a dataclass whose fields are its options.

    Evaluate            an upper bound on -log p of a data set, or -log p itself where the method knows it
    EvaluateSteps       the same of samplers of several numbers of steps
    EvaluateBracket     -log p from above and from below, and exactly where an order or a sampler gives it
    EvaluateSuite       the zero-shot data sets of the literature, by the protocol of a paper
    EvaluatePairs       -log p(continuation | context) of pairs in a file, and the accuracy of choices
    EvaluateSamples     samples, judged
    EvaluateProbe       classifiers of its features
    EvaluateGlue        fine-tuned on the tasks of GLUE
    TrainFeatures       an image classifier, in whose features images are compared

They import no torch before they run. What they compute stands in the files that they import then.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..base.arguments import is_number
from ..base.errors import InputError, check_counts
from ..base.requests import (
    HandedOver,
    Progress,
    Request,
    alone,
    aside,
    bounded_grid,
    data_of_json,
    declared,
    option,
    verb,
)
from ..data import DATASETS, Corpus, Data, Local
from ..models.decoding import SYMMETRIES
from .protocol import Protocol, protocol_named
from .sample_options import SamplesRequest

R = TypeVar("R")

if TYPE_CHECKING:
    from ..methods.method import Method
    from ..models.model import Model, ModelSource
    from .bracket import Bracket
    from .choices import ChoiceScores, Question
    from .image_features import FeaturesRecord
    from .result import Result
    from .samples import SamplesRecord
    from .steps import StepsTable
    from .suite import SuiteTable

CONTINUOUS = "continuous"
ESTIMATOR = "bound, any_order, random, forward or backward; for csm path or loss; the method must support it"
_data = partial(
    option,
    "what to evaluate, as `train` takes it, or a `Corpus`: by default what the model was trained on. Values that stand "
    "in no split are all evaluated, each text for itself",
    default=None,
    hidden=True,
    read=partial(data_of_json, Data),
)
TWO = "an interval needs two texts"
_draws = partial(option, "Monte Carlo samples per sequence", minimum=1)
_grid = partial(
    option,
    "times of these steps, as of a sampler: uniform, cosine, log-snr, or auto, the one that samples have by default",
    default="uniform",
    check=bounded_grid,
    kw_only=True,
)
_terms = partial(
    option,
    "of a bound of T steps: drawn, one of them at random with the first and last; all, their sum: T network "
    "evaluations",
    default="drawn",
    kw_only=True,
)
_distributed = partial(aside, "share the work with the other ranks of torchrun or Slurm", default=False)


@declared
class LikelihoodRequest(Request[R]):
    """What every evaluation of likelihoods is asked: how much of the data, from which random numbers, in which
    processes.

    Neither `batch` nor `processes` changes a number.
    """

    seed: int = option("seed of the Monte Carlo samples", default=0, kw_only=True)
    limit: int | None = option(
        "evaluate only this many sequences (default: all); they are evenly spaced",
        default=None,
        minimum=2,
        why=TWO,
        kw_only=True,
    )
    batch: int = option("sequences per network evaluation", default=64, minimum=1, kw_only=True)
    processes: int = option("worker processes", default=1, minimum=1, kw_only=True)
    keep: Path | None = aside(
        "a folder for parts that are done, which are read again after an interruption", default=None
    )
    progress: Any = aside("called with (texts done, texts in all)", default=None)


@declared
class SplitRequest(LikelihoodRequest[R]):
    """The same of a split of one data set."""

    data: Any = _data()
    split: str = option("train, validation or test", default="test")
    reading: Progress | None = aside("called with (bytes read, bytes in all)", default=None)

    def _corpus(self, model: "Model") -> Corpus:
        """The data in the model's tokens."""
        from .corpus import corpus_of

        if isinstance(self.data, HandedOver):
            raise self.data.refuse("data")
        return self.data if isinstance(self.data, Corpus) else corpus_of(model, self.data, self.reading, self.split)


@declared
class Evaluate(SplitRequest["Result"]):
    """-log p of a data set, as an upper bound or (in a given order) exactly, with its two 95% intervals.

    The estimator "bound" is the method's own; others are those that the method admits: "forward" and "backward" are
    exact for the model of that order, "random" and "any_order" are averages over orders, which bound that of all
    orders. A method without a bound (CSM) has "loss", and on a space that can be enumerated "divergence", its default
    there.

    Neither `batch`, `processes` nor `distributed` changes a number. The result prints itself, and has `.value .low
    .high .unit .kind .terms .perplexity .protocol` and `.save(path)`.
    """

    returns = "zellige.evaluation.result:Result"

    draws: int = _draws(default=4)
    estimator: str = option(ESTIMATOR, default="bound", kw_only=True)
    ends: str = option(
        "endpoint terms: model, its own; jumps, each in one jump; none; published, as in the code of MD4, GenMD4, D3PM",
        default="model",
        kw_only=True,
    )
    steps: int = option(
        "the bound of the model of T steps, which bounds what `ancestral` samples in T steps (MD4, section 3); of a "
        "model of more steps, that of its coarse chain (D3PM, section 3.3); 0: the model as it is",
        default=0,
        minimum=0,
        kw_only=True,
        hidden=True,
    )
    grid: str = _grid(hidden=True)
    terms: str = _terms()
    unconditional: bool = option(
        "hide the class from a class-conditional model: a bound on -log p", default=False, kw_only=True
    )
    symmetries: int = option(**SYMMETRIES, default=1, kw_only=True)
    distributed: bool = _distributed()

    def run(self, model: "ModelSource") -> "Result":
        """Evaluate a `Model`, or a run folder, a saved folder or a hub id."""
        from ..models.averaged import averaged
        from ..models.model import as_model
        from .evaluate import evaluate_rows, rows_of

        model = averaged(as_model(model), self.symmetries)
        estimator = self.admitted(model.method)
        data = rows_of(model, self._corpus(model), self.split, self.unconditional)
        result = evaluate_rows(
            model.method, data.rows, draws=self.draws, seed=self.seed, limit=self.limit, batch=self.batch,
            characters=data.characters, estimator=estimator, unit=data.unit, progress=self.progress,
            protocol=data.protocol, ends=self.ends, steps=self.steps, grid=self.grid, terms=self.terms,
            processes=self.processes, distributed=self.distributed, keep=self.keep,
        )  # fmt: skip
        return replace(result, about=data.about, request=self.saved())

    def admitted(self, method: "Method") -> str:
        """The estimator that a method is evaluated by; InputError for what no data changes, before any is read."""
        from .likelihood import admitted

        return admitted(method, self.estimator, self.ends, self.steps, self.terms, self.grid)


@declared
class EvaluateSteps(SplitRequest["StepsTable"]):
    """The bound against the number of steps: T steps bound what `ancestral` samples in T steps.

    Of a model in continuous time any number, or of a model of T steps any number up to T: its coarse chains (D3PM,
    section 3.3). `progress` is called with (texts done, in all, T).
    """

    returns = "zellige.evaluation.steps:StepsTable"

    steps: tuple[str, ...] = option(
        'numbers of steps, and "continuous"; also 32,128,continuous', default=("32", "128", "512", CONTINUOUS)
    )
    draws: int = _draws(default=4)
    grid: str = _grid()
    terms: str = _terms()
    distributed: bool = _distributed()

    def __post_init__(self) -> None:
        if not self.numbers:
            raise InputError("`steps` needs a number of steps; e.g. 32 128 continuous")

    @property
    def numbers(self) -> list[int]:
        """The numbers of steps; 0 for continuous time."""
        return [_steps(word) for words in self.steps for word in words.split(",") if word]

    def run(self, model: "ModelSource") -> "StepsTable":
        """Evaluate a model in each number of steps, on the same draws."""
        from ..models.model import as_model
        from .steps import StepsTable

        model = as_model(model)
        for T in self.numbers:
            if not T and (own := model.method.steps):
                raise InputError(
                    f"`steps` has {CONTINUOUS}, and {model.method.name} has discrete time; use {own} for it"
                )
            self.bound(T).admitted(model.method)
        corpus = self._corpus(model)
        results = [replace(self.bound(T), data=corpus).run(model) for T in self.numbers]
        return StepsTable(tuple(self.numbers), tuple(results), request=self.saved())

    def bound(self, T: int) -> Evaluate:
        """The request of one number of steps."""
        report = self.progress
        return Evaluate(
            self.data, self.split, self.draws, seed=self.seed, limit=self.limit, batch=self.batch, steps=T,
            terms=self.terms if T else "drawn", grid=self.grid if T else "uniform", processes=self.processes,
            distributed=self.distributed, keep=self.keep,
            progress=None if report is None else lambda done, total: report(done, total, T),
        )  # fmt: skip


def _steps(word: str) -> int:
    if word == CONTINUOUS:
        return 0
    if not is_number(word) or int(word) < 1:
        raise InputError(f"`steps` is '{word}'; it must be a whole number of 1 or more, or {CONTINUOUS}")
    return int(word)


@declared
class EvaluateBracket(SplitRequest["Bracket"]):
    """Two-sided bound on -log p of a data set, and the exact values of the distributions that have one, in one unit.

    From above an importance-weighted bound, from below TUBE; exact are the distributions of an order and those of the
    samplers that take the most confident token first. The method must have a bound, and a row of the data must hold one
    text.
    """

    returns = "zellige.evaluation.bracket:Bracket"

    numbers: tuple[int, ...] = option(
        "samples per estimate; each must divide the largest; each text takes four times the largest",
        default=(1, 8, 64, 512),
    )
    limit: int | None = option(
        "evaluate only this many texts, evenly spaced", default=16, minimum=2, why=TWO, kw_only=True
    )
    orders: tuple[str, ...] = option(
        "orders to evaluate exactly; forward, backward, or positions such as 2,0,1",
        default=("forward", "backward"),
        kw_only=True,
    )
    per_step: tuple[int, ...] = option("tokens per step of samplers with exact values", default=(1, 4), kw_only=True)
    steps: int = option("steps of methods that have no exact order", default=64, minimum=1, kw_only=True)
    own: int | None = option(
        "also weigh this many of the model's own samples; None: none of them", default=16, minimum=0, kw_only=True
    )

    def __post_init__(self) -> None:
        check_counts(numbers=min(self.numbers, default=1))
        largest = max(self.numbers, default=1)
        for n in self.numbers:
            if largest % n:
                raise InputError(
                    f"`numbers` has {n}, which does not divide {largest}; each number must divide the largest"
                )

    def run(self, model: "ModelSource") -> "Bracket":
        """Evaluate both sides of a model."""
        from ..models.model import as_model
        from .bracket import bracket_rows
        from .evaluate import rows_of
        from .likelihood import bounded

        began = time.perf_counter()
        model = as_model(model)
        if not bounded(model.method):
            raise InputError(
                f"{model.method.name} defines no likelihood bound, so there is nothing to bracket; use another model"
            )
        bracket = bracket_rows(
            model.method, rows_of(model, self._corpus(model), self.split),
            sorted(set(self.numbers)) or EvaluateBracket().numbers, self.seed, self.limit, self.batch, orders=self.orders,
            per_step=self.per_step, steps=self.steps, own=self.own or 0, processes=self.processes, keep=self.keep,
            progress=self.progress,
        )  # fmt: skip
        return replace(bracket, seconds=time.perf_counter() - began, request=self.saved())


@declared
class EvaluateSuite(LikelihoodRequest["SuiteTable"]):
    """The data sets of a suite, evaluated by one protocol: the zero-shot table of the literature.

    A set that cannot be had is named with the reason, and the others are evaluated. `progress` is called for each set.
    """

    returns = "zellige.evaluation.suite:SuiteTable"

    suite: str = option(
        "name of the suite; zero-shot: PTB, WikiText-2 and -103, LM1B, LAMBADA, AG News, PubMed, arXiv",
        default="zero-shot",
    )
    protocol: str | Protocol = option(
        "zellige, or as in a paper: mdlm, sedd, bd3lm",
        default="zellige",
        read=lambda value: value if isinstance(value, str) else Protocol(**value),
    )
    data: Local = option("where the sets are", default=Local(), kw_only=True, read=partial(data_of_json, Local))
    only: tuple[str, ...] = option("only these sets of the suite", default=(), kw_only=True)
    draws: int | None = option(
        "Monte Carlo samples per sequence (default: the protocol's)", default=None, minimum=1, kw_only=True
    )
    limit: int | None = option(
        "evaluate only this many sequences per set; evenly spaced (default: all)",
        default=None,
        minimum=2,
        why=TWO,
        kw_only=True,
    )
    estimator: str = option(ESTIMATOR, default="bound", kw_only=True)
    distributed: bool = _distributed()
    begin: Callable[[str], None] | None = aside("called with the name of each set", default=None)

    def run(self, model: "ModelSource") -> "SuiteTable":
        """Evaluate a model on each set."""
        from ..models.model import as_model, identity
        from .suite import SUITES, SuiteTable, evaluate_sets, refuse

        began = time.perf_counter()
        names, protocol, model = SUITES[self.suite], protocol_named(self.protocol), as_model(model)
        refuse(self.suite, self.only, model, self.estimator, self.data.path)
        rows = evaluate_sets(
            model, self.only or names, protocol, self.data.path, self.data.cache, self.begin,
            draws=self.draws or protocol.draws, seed=self.seed, limit=self.limit, batch=self.batch,
            estimator=self.estimator, processes=self.processes, distributed=self.distributed, keep=self.keep,
            progress=self.progress,
        )  # fmt: skip
        about = identity(model) | {"length": protocol.length or model.method.shape[0]}
        seconds = time.perf_counter() - began
        return SuiteTable(self.suite, protocol, rows, about, self.seed, seconds, request=self.saved())


@declared
class EvaluatePairs(Request["ChoiceScores"]):
    """-log p(continuation | context) of each pair, as an upper bound or exactly, and the accuracy of choices."""

    returns = "zellige.evaluation.choices:ChoiceScores"

    pairs: Any = option(
        "file of pairs, .jsonl; with the fields context and continuation, or context, choices and answer; and class, "
        "if the model has classes",
        default="",
    )
    draws: int = option("Monte Carlo samples per pair", default=32, minimum=1)
    seed: int = option("random seed; a pair's noise depends on the seed and its tokens", default=0)
    batch: int = option("sequences per network evaluation", default=64, minimum=1)
    prefix: bool = option("put the end-of-document token before each context", default=False, kw_only=True)
    classes: str | int | None = option(
        "class of all pairs (class-conditional models); by name or number; default: the field class of each pair, else "
        "none",
        default=None,
        flag="class",
        typed=str | None,
        kw_only=True,
    )
    unconditional: bool = option("hide the class from a class-conditional model", default=False, kw_only=True)
    progress: Progress | None = aside("called with (network evaluations done, in all)", default=None)

    def __post_init__(self) -> None:
        if self.unconditional and self.classes is not None:
            raise InputError("`unconditional` tells no class, and `classes` tells one; leave one of the two out")

    def questions(self) -> "Sequence[Question]":
        """The lines of the file of pairs."""
        from .choices import read_pairs

        if isinstance(self.pairs, dict) and "handed_over" in self.pairs:
            raise HandedOver(self.pairs["handed_over"]).refuse("pairs")
        return read_pairs(self.pairs) if isinstance(self.pairs, (str, Path)) else list(self.pairs)

    def run(self, model: "ModelSource") -> "ChoiceScores":
        """Evaluate every choice of every pair."""
        from ..models.model import as_model
        from . import conditional
        from .choices import classes_of, scores

        questions, model = self.questions(), as_model(model)
        classes, class_words = classes_of(model, questions, self.classes, self.unconditional)
        bounds = conditional.bound(
            model,
            [(question.context, choice) for question in questions for choice in question.choices],
            self.draws,
            self.seed,
            self.batch,
            prefix=self.prefix,
            classes=classes,
            progress=self.progress,
        )
        protocol = {"prefix": self.prefix, "seed": self.seed} | ({"class": class_words} if class_words else {})
        source = str(self.pairs) if isinstance(self.pairs, (str, Path)) else "pairs"
        return replace(scores(model, questions, bounds, protocol, source), request=self.saved())


evaluate = verb(Evaluate, "evaluate")


@declared
class EvaluateSamples(SamplesRequest["SamplesRecord"]):
    """Samples of a model, judged: text by a causal language model and beside real text, images by FID and its kin.

    Without a model (`run()`) it judges the texts of `samples`. The record has `.points`, a set of samples each with its
    `.measures` by name, `.real`, `.matched`, `.protocol` and `.save(path)`.
    """

    returns = "zellige.evaluation.samples:SamplesRecord"

    def run(self, model: "ModelSource | None" = None, /) -> "SamplesRecord":
        """Judge samples of a `Model`, a run folder, a saved folder or a hub id; without one, those of a file."""
        from ..models.model import as_model
        from .samples import evaluate_samples

        if model is None and self.cheats:
            raise InputError("`cheats` are made of a run's training text; give the run too")
        return evaluate_samples(self, None if model is None else as_model(model)).made_by(self)


@declared
class TrainFeatures(Request["FeaturesRecord"]):
    """Train an image classifier, in whose features samples are compared where Inception does not fit: FID and KID of
    digits.

    The record has `.config`, with its accuracy on the test images, and `.save(path)`.
    """

    returns = "zellige.evaluation.image_features:FeaturesRecord"

    folder: str | Path = option(
        "folder to write; zellige evaluate --generate --features reads it", default="features", flag="train-features"
    )
    data: Any = option(
        "images with classes: mnist, fashion-mnist, cifar10",
        default=Data("mnist"),
        hidden=True,
        read=partial(data_of_json, Data),
    )
    width: int = option("number of features per image; FID needs more samples than that", default=64, minimum=1)
    epochs: int = option("passes over the training images", default=3, minimum=1)
    seed: int = option("random seed", default=0, minimum=0)
    device: Literal["auto", "cpu", "cuda"] = option("where to compute; auto: the GPU if there is one", default="auto")
    reading: Progress | None = aside("called with (bytes read, bytes in all)", default=None)
    progress: Progress | None = aside("called with (steps done, steps in all)", default=None)

    def run(self) -> "FeaturesRecord":
        """Train on the training images, and write the folder.

        Raises:
            InputError: images without classes, a folder of something else, or no such device.
        """
        if self.data.name in DATASETS and not {"labels", "size"} <= {*DATASETS[self.data.name].reads}:
            raise InputError(f"{self.data.name} holds no images with classes; give such, e.g. `data.name` mnist")
        import torch

        from ..data.prepare import prepare
        from . import image_features

        folder, began = image_features.free_folder(self.folder), time.monotonic()
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InputError("`device` is cuda, and there is no GPU here; use `device` cpu")
        device = "cuda" if self.device != "cpu" and torch.cuda.is_available() else "cpu"
        data = prepare(replace(self.data, labels=True), progress=self.reading)
        network, config = image_features.train_classifier(
            data, self.width, self.epochs, self.seed, device, self.progress
        )
        image_features.save_features(network, config, folder)
        return image_features.FeaturesRecord(config, time.monotonic() - began, request=self.saved())


train_features = alone(TrainFeatures, "train_features")
