"""What a probe and GLUE are asked for."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from zellige.base.requests import Request, aside, data_of_json, declared, option
from zellige.data import Local

if TYPE_CHECKING:
    from zellige.models.model import ModelSource

    from .glue import GlueRecord
    from .probe import ProbeRecord


R = TypeVar("R")


@declared
class FineTuning(Request[R]):
    """What both are asked: how long a classifier is trained, and where its progress is shown."""

    epochs: int = option("epochs of fine-tuning", default=3, minimum=1, kw_only=True)
    progress: Callable[[str, int, int], None] | None = aside("called with (title, done, total)", default=None)

    @property
    def _shown(self) -> dict[str, Any]:
        return {} if self.progress is None else {"progress": self.progress}


@declared
class EvaluateProbe(FineTuning["ProbeRecord"]):
    """Classify texts by the features of a trained denoiser: a linear probe and a fine-tuned classifier, with baselines.

    The record has `.rows`, each with its `.accuracy`, `.differences`, `.protocol` and `.save(path)`.
    """

    returns = "zellige.plugins.studies.probes.probe:ProbeRecord"

    probe: str = option(
        "labelled texts: ag_news; a task of Genomic Benchmarks; or GLUE, with options of its own: glue, glue:sst2",
        default="ag_news",
    )
    data: Local = option(
        "where they are; `path` has test.csv, or the tasks", default=Local(), read=partial(data_of_json, Local)
    )
    layer: int | None = option(
        "block of the network that the linear probe reads (default: what the head reads)", default=None, minimum=0
    )
    linear: bool = option("only the linear probes; much faster", default=False)
    rate: float = option("peak learning rate of fine-tuning", default=1e-3, above=0)
    batch: int = option("texts per step of fine-tuning", default=32, minimum=1)
    seed: int = option("random seed of the split, the weights and the data order", default=0)
    folds: int = option("number of repetitions, each with its own split and seeds", default=1, minimum=1)

    def run(self, model: "ModelSource", /) -> "ProbeRecord":
        """Probe a `Model`, or a run folder, a saved folder or a hub id."""
        from .probe import labelled, probe_folds

        data, epochs = labelled(self.probe, self.data.path, self.data.cache), 0 if self.linear else self.epochs
        record = probe_folds(
            model,
            data,
            self.folds,
            seed=self.seed,
            epochs=epochs,
            rate=self.rate,
            batch=self.batch,
            layer=self.layer,
            **self._shown,
        )
        return record.made_by(self)


@declared
class EvaluateGlue(FineTuning["GlueRecord"]):
    """Fine-tune a trained denoiser on GLUE, by the protocol of MDLM's appendix D.6.

    The record has `.rows`, each with its `.metric` and `.value`, `.mean`, `.protocol` and `.save(path)`.
    """

    returns = "zellige.plugins.studies.probes.glue:GlueRecord"

    probe: str = option("glue, all its tasks, or one: glue:sst2", default="glue")
    data: Local = option(
        "where it is; `path` has a folder for each task", default=Local(), read=partial(data_of_json, Local)
    )
    rate: float = option("first learning rate, which falls to 0", default=2e-5, above=0)
    batch: int = option("texts per step", default=16, minimum=1)
    seed: int = option("random seed of the linear map and the data order", default=0)

    def run(self, model: "ModelSource", /) -> "GlueRecord":
        """Fine-tune and judge a `Model`, or a run folder, a saved folder or a hub id."""
        from .glue import glue, tasks_of

        record = glue(
            model,
            tasks_of(self.probe),
            path=self.data.path,
            cache=self.data.cache,
            seed=self.seed,
            epochs=self.epochs,
            rate=self.rate,
            batch=self.batch,
            **self._shown,
        )
        return record.made_by(self)
