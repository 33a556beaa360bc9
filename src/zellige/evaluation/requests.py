"""The requests of `zellige evaluate`: what can be asked about a model, each a dataclass whose fields are its options.

    Evaluate            an upper bound on -log p of a data set, or -log p itself where the method knows it
    EvaluateSteps       the same of samplers of several numbers of steps

They import no torch before they run. What they compute stands in the files that they import then.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments import is_number
from ..data import Corpus, Data
from ..errors import InputError
from ..requests import HandedOver, Request, aside, data_of_json, declared, option, verb

if TYPE_CHECKING:
    from .result import Result
    from .steps import StepsTable

Progress = Callable[[int, int], None]  # told (done, total)
CONTINUOUS = "continuous"
TWO = "an interval needs two texts"
LIMIT = "evaluate only this many sequences, evenly spaced (default: all)"
DATA = (
    "what to evaluate, as `train` takes it, or a `Corpus`: by default what the model was trained on. Values that stand in no "
    "split are all evaluated, each text for itself"
)


@declared
class Evaluate(Request["Result"]):
    """-log p of a data set, as an upper bound or (in a given order) exactly, with its two 95% intervals.

    The estimator "bound" is the method's own; others are those that the method admits: "forward" and "backward" are exact for
    the model of that order, "random" and "any_order" are averages over orders, which bound that of all orders. A method
    without a bound (CSM) has "loss", and on a space that can be enumerated "divergence", its default there.

    Neither `batch`, `processes` nor `distributed` changes a number. The result prints itself, and has `.value .low .high .unit
    .kind .terms .perplexity .protocol` and `.save(path)`.
    """

    data: Any = option(DATA, default=None, hidden=True, read=partial(data_of_json, Data))
    split: str = option("train, validation or test", default="test")
    draws: int = option("Monte Carlo samples per sequence", default=4, minimum=1)
    seed: int = option("seed of the draws", default=0)
    limit: int | None = option(LIMIT, default=None, minimum=2, why=TWO)
    batch: int = option("sequences per network evaluation", default=64, minimum=1)
    estimator: str = option(
        "bound, or another that the method admits: any_order, random, forward, backward; of csm path, loss",
        default="bound", kw_only=True,
    )  # fmt: skip
    ends: str = option(
        "endpoint terms: model, its own; jumps, each in one jump; none; published, as in the code of MD4, GenMD4, D3PM",
        default="model", kw_only=True,
    )  # fmt: skip
    steps: int = option(
        "the T-step bound of a model in continuous time, on its grid (MD4, section 3), which bounds what `ancestral` samples "
        "in T steps; 0: the model as it is",
        default=0, minimum=0, kw_only=True, hidden=True,
    )  # fmt: skip
    terms: str = option(
        "of a bound of T steps: drawn, one of them at random beside the first and last; all, their sum: T network evaluations",
        default="drawn", kw_only=True,
    )  # fmt: skip
    unconditional: bool = option(
        "do not tell a class-conditional model the class: a bound on -log p", default=False, kw_only=True
    )
    processes: int = option("worker processes", default=1, minimum=1, kw_only=True)
    distributed: bool = aside("share the work with the other ranks of torchrun or Slurm", default=False)
    keep: Path | None = aside(
        "a folder for parts that are done, which are read again after an interruption", default=None
    )
    progress: Progress | None = aside("called with (texts done, texts in all)", default=None)
    reading: Progress | None = aside("called with (bytes read, bytes in all)", default=None)

    @classmethod
    def record(cls) -> "type[Result]":
        from .result import Result

        return Result

    def run(self, model: Any) -> "Result":
        """Evaluate a `Model`, or a run folder, a saved folder or a hub id."""
        from ..models.model import as_model
        from .corpus import corpus_of
        from .evaluate import asked_of, evaluate_rows

        model = as_model(model)
        estimator = self.admitted(model.method)
        if isinstance(self.data, HandedOver):
            raise self.data.refuse("data")
        corpus = self.data if isinstance(self.data, Corpus) else corpus_of(model, self.data, self.reading, self.split)
        asked = asked_of(model, corpus, self.split, self.unconditional)
        result = evaluate_rows(
            model.method, asked.rows, draws=self.draws, seed=self.seed, limit=self.limit, batch=self.batch,
            characters=asked.characters, estimator=estimator, unit=asked.unit, progress=self.progress,
            protocol=asked.protocol, ends=self.ends, steps=self.steps, terms=self.terms, processes=self.processes,
            distributed=self.distributed, keep=self.keep,
        )  # fmt: skip
        return replace(result, about=asked.about, request=self.saved())

    def admitted(self, method: Any) -> str:
        """The estimator that a method is evaluated by; InputError for what no data changes, before any is read."""
        from .likelihood import admitted

        return admitted(method, self.estimator, self.ends, self.steps, self.terms)


@declared
class EvaluateSteps(Request["StepsTable"]):
    """The bound of a model in continuous time against the number of steps: T steps bound what `ancestral` samples in T steps."""

    data: Any = option(DATA, default=None, hidden=True, read=partial(data_of_json, Data))
    steps: tuple[str, ...] = option(
        'numbers of steps, and "continuous"; also 32,128,continuous', default=("32", "128", "512", CONTINUOUS)
    )
    split: str = option("train, validation or test", default="test")
    draws: int = option("Monte Carlo samples per sequence", default=4, minimum=1)
    seed: int = option("seed of the draws", default=0)
    limit: int | None = option(LIMIT, default=None, minimum=2, why=TWO)
    batch: int = option("sequences per network evaluation", default=64, minimum=1)
    processes: int = option("worker processes", default=1, minimum=1, kw_only=True)
    distributed: bool = aside("share the work with the other ranks of torchrun or Slurm", default=False)
    keep: Path | None = aside(
        "a folder for parts that are done, which are read again after an interruption", default=None
    )
    progress: Callable[[int, int, int], None] | None = aside("called with (texts done, in all, T)", default=None)
    reading: Progress | None = aside("called with (bytes read, bytes in all)", default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.numbers:
            raise InputError("`steps` needs a number of steps; e.g. 32 128 continuous")

    @property
    def numbers(self) -> list[int]:
        """The numbers of steps; 0 for continuous time."""
        return [_steps(word) for words in self.steps for word in words.split(",") if word]

    @classmethod
    def record(cls) -> "type[StepsTable]":
        from .steps import StepsTable

        return StepsTable

    def run(self, model: Any) -> "StepsTable":
        """Evaluate a model in each number of steps, on the same draws."""
        from ..models.model import as_model
        from .corpus import corpus_of
        from .steps import StepsTable

        model = as_model(model)
        for T in self.numbers:
            self.bound(T).admitted(model.method)
        if isinstance(self.data, HandedOver):
            raise self.data.refuse("data")
        corpus = self.data if isinstance(self.data, Corpus) else corpus_of(model, self.data, self.reading, self.split)
        results = [replace(self.bound(T), data=corpus).run(model) for T in self.numbers]
        return StepsTable(tuple(self.numbers), tuple(results), request=self.saved())

    def bound(self, T: int) -> Evaluate:
        """The request of one number of steps."""
        told = self.progress
        return Evaluate(
            self.data, self.split, self.draws, self.seed, self.limit, self.batch, steps=T, processes=self.processes,
            distributed=self.distributed, keep=self.keep,
            progress=None if told is None else lambda done, total: told(done, total, T),
        )  # fmt: skip


def _steps(word: str) -> int:
    if word == CONTINUOUS:
        return 0
    if not is_number(word) or int(word) < 1:
        raise InputError(f"`steps` is '{word}'; it must be a whole number of 1 or more, or {CONTINUOUS}")
    return int(word)


evaluate = verb(Evaluate, "evaluate")
