"""The request of `zellige evaluate`, and what those of `plugins/evaluations/` share with it.

A request is a dataclass whose fields are its options. It imports no torch before it runs; what it computes stands in the
files that it imports then.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..base.requests import (
    HandedOver,
    Progress,
    Request,
    aside,
    bounded_grid,
    data_of_json,
    declared,
    option,
    verb,
)
from ..data import Corpus, Data
from ..models.decoding import SYMMETRIES

R = TypeVar("R")

if TYPE_CHECKING:
    from ..methods.method import Method
    from ..models.model import Model, ModelSource
    from .result import Result

ESTIMATOR = (
    "bound; forward or backward: exact, in that order; random or any_order: mean over orders; for csm path or loss; the "
    "method must support it"
)
_data = partial(
    option,
    "what to evaluate, as `train` takes it, or a `Corpus`: by default what the model was trained on. Values that stand "
    "in no split are all evaluated, each text for itself",
    default=None,
    hidden=True,
    read=partial(data_of_json, Data),
)
TWO = "an interval needs two texts"
draws_option = partial(option, "random noisy copies of each sequence", minimum=1)
grid_option = partial(
    option,
    "times of these steps, as of a sampler: uniform, cosine, log-snr, or auto, the one that samples have by default",
    default="uniform",
    check=bounded_grid,
    kw_only=True,
)
terms_option = partial(
    option,
    "for a bound of T steps, which of its terms: drawn (the first, the last and a random one) or all "
    "(T network evaluations)",
    default="drawn",
    kw_only=True,
)
distributed_option = partial(aside, "share the work with the other ranks of torchrun or Slurm", default=False)


@declared
class LikelihoodRequest(Request[R]):
    """What every evaluation of likelihoods is asked: how much of the data, from which random numbers, in which
    processes.

    Neither `batch` nor `processes` changes a number.
    """

    seed: int = option("random seed of the noise", default=0, kw_only=True)
    limit: int | None = option(
        "evaluate only this many sequences, evenly spaced (default: all)",
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

    def arguments(self, *names: str) -> dict[str, Any]:
        """The fields that all of these have, and those of `names`, as arguments of what computes."""
        shared = ("seed", "limit", "batch", "processes", "keep", "progress")
        return {name: getattr(self, name) for name in (*shared, *names)}


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
            raise self.data.error_for("data")
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

    draws: int = draws_option(default=4)
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
    grid: str = grid_option(hidden=True)
    terms: str = terms_option()
    unconditional: bool = option(
        "hide the class from a class-conditional model: a bound on -log p", default=False, kw_only=True
    )
    symmetries: int = option(**SYMMETRIES, default=1, kw_only=True)
    distributed: bool = distributed_option()

    def run(self, model: "ModelSource") -> "Result":
        """Evaluate a `Model`, or a run folder, a saved folder or a hub id."""
        from ..models.averaged import averaged
        from ..models.model import as_model
        from .evaluate import evaluate_rows, rows_of

        model = averaged(as_model(model), self.symmetries)
        estimator = self.admitted(model.method)
        data = rows_of(model, self._corpus(model), self.split, self.unconditional)
        result = evaluate_rows(
            model.method,
            data.rows,
            characters=data.characters,
            estimator=estimator,
            unit=data.unit,
            protocol=data.protocol,
            **self.arguments("draws", "ends", "steps", "grid", "terms", "distributed"),
        )
        return replace(result, about=data.about, request=self.saved())

    def admitted(self, method: "Method") -> str:
        """The estimator that a method is evaluated by; InputError for what no data changes, before any is read."""
        from .likelihood import admitted

        return admitted(method, self.estimator, self.ends, self.steps, self.terms, self.grid)


evaluate = verb(Evaluate, "evaluate")
