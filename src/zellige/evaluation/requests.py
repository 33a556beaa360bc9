"""The request of `zellige evaluate`, and what the requests of `plugins/evaluations/` share with it.

A request is a dataclass; its fields are the options. It imports torch and the code of the computation only when it runs.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..base.requests import HandedOver, Progress, Request, aside, bounded_grid, data_of_json, declared, option, verb
from ..data import Corpus, Data
from ..models.decoding import SYMMETRIES

R = TypeVar("R")

if TYPE_CHECKING:
    from ..models.model import Model, ModelSource
    from .result import Result

ESTIMATOR = (
    "bound; forward, backward: exact, in this order; random, any_order: mean over orders; path, loss: for csm. Not every "
    "method supports all"
)
_data = partial(
    option,
    "what to evaluate, in the forms that `train` takes, or a `Corpus`; default: the training data. Values without "
    "splits are all evaluated, each text by itself",
    default=None,
    hidden=True,
    read=partial(data_of_json, Data),
)
TWO = "an interval needs two texts"
draws_option = partial(option, "random noisy copies of each sequence", minimum=1)
grid_option = partial(
    option,
    "times of these steps, as for a sampler: uniform, cosine, log-snr, or auto (the default of sampling)",
    default="uniform",
    check=bounded_grid,
    kw_only=True,
)
terms_option = partial(
    option,
    "for a bound of T steps, its terms: the first, the last and a random one (drawn), or all (T network evaluations)",
    default="drawn",
    kw_only=True,
)
distributed_option = partial(aside, "share the work with the other ranks of torchrun or Slurm", default=False)


@declared
class LikelihoodRequest(Request[R]):
    """Options of every evaluation of likelihoods: how much data, random seed, processes.

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
    keep: Path | None = aside("folder for finished parts, which are read again after an interruption", default=None)
    progress: Any = aside("called with (texts done, texts in all)", default=None)

    def arguments(self, *names: str) -> dict[str, Any]:
        """The shared fields and those of `names`, as arguments of the computation."""
        shared = ("seed", "limit", "batch", "processes", "keep", "progress")
        return {name: getattr(self, name) for name in (*shared, *names)}


@declared
class SplitRequest(LikelihoodRequest[R]):
    """Options of evaluations on a split of one data set."""

    data: Any = _data()
    split: str = option("train, validation or test", default="test")
    reading: Progress | None = aside("called with (bytes read, bytes in all)", default=None)

    def _corpus(self, model: "Model") -> Corpus:
        """Return the data in the model's tokens."""
        from .corpus import corpus_of

        if isinstance(self.data, HandedOver):
            raise self.data.error_for("data")
        return self.data if isinstance(self.data, Corpus) else corpus_of(model, self.data, self.reading, self.split)


@declared
class Evaluate(SplitRequest["Result"]):
    """-log p of a data set, as an upper bound or (in a given order) exactly, with its two 95% intervals.

    The estimator "bound" is the method's own. "forward" and "backward" are exact for sampling in that order; "random" and
    "any_order" are averages over orders, an upper bound for sampling in random order. A method without a bound (CSM) has
    "loss"; on a space that can be enumerated its default is "divergence".

    Neither `batch`, `processes` nor `distributed` changes a number. The result prints itself, and has `.value .low
    .high .unit .kind .terms .perplexity .protocol` and `.save(path)`.
    """

    returns = "zellige.evaluation.result:Result"

    draws: int = draws_option(default=4)
    estimator: str = option(ESTIMATOR, default="bound", kw_only=True)
    ends: str = option(
        "endpoint terms of the bound: model; jumps (a bound of another model); none or published (as in the code of MD4, "
        "GenMD4, D3PM), which give no bound",
        default="model",
        kw_only=True,
    )
    steps: int = option(
        "the bound for samples of `ancestral` in T steps (MD4, section 3); for a model of more steps, that of its "
        "coarse chain (D3PM, section 3.3); 0: the model as it is",
        default=0,
        minimum=0,
        kw_only=True,
        hidden=True,
    )
    grid: str = grid_option(hidden=True)
    terms: str = terms_option()
    unconditional: bool = option("evaluate a class-conditional model without its class", default=False, kw_only=True)
    symmetries: int = option(**SYMMETRIES, default=1, kw_only=True)
    distributed: bool = distributed_option()

    def run(self, model: "ModelSource") -> "Result":
        """Evaluate a `Model`, or a run folder, a saved folder or a hub id."""
        from ..models.averaged import averaged
        from ..models.model import as_model
        from .evaluate import evaluate_rows, rows_of

        model = averaged(as_model(model), self.symmetries)
        estimator = self.admitted(model)
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

    def admitted(self, model: "ModelSource") -> str:
        """Return the estimator for a model. InputError: its method does not support these options."""
        from ..models.model import as_model
        from .likelihood import admitted

        return admitted(as_model(model).method, self.estimator, self.ends, self.steps, self.terms, self.grid)


evaluate = verb(Evaluate, "evaluate")
