"""A comparison as a request; it imports no torch before it runs (`comparison` has what it does).

Compare(("mdlm", "md4", "sedd:process=uniform"), data=Data("pydocs"), folder="runs/compare").run()
"""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zellige.base.arguments import checked
from zellige.base.errors import InputError, check_counts
from zellige.base.requests import HandedOver, Request, aside, data_of_json, declared, option
from zellige.data import Data
from zellige.show.terminal import Terminal
from zellige.training.requests import section_of_json

if TYPE_CHECKING:
    from zellige.models.model import ModelSource

    from .comparison import Comparison
    from .samplers import SamplersComparison

CALLS = (8, 16, 32, 64, 128, 256)
STEPS = (4, 8, 16, 32, 64)  # of the samplers of one model
TABLE_CALLS = (16, 64)  # of the rows of a table, which are many


def _method(entry: object) -> Any:
    """A method of its JSON: "sedd:process=uniform", or what was handed over."""
    return HandedOver(str(entry["handed_over"])) if isinstance(entry, Mapping) else entry


@declared
class Compare(Request["Comparison"]):
    """Several methods, the same network, data, seed and budget: trained alike, each measured;
    one table and one figure."""

    returns = "zellige.plugins.studies.compare.comparison:Comparison"

    methods: Any = option(
        'names, with choices if there are any ("sedd:process=uniform"); classes; (class, "choice=value"); or folders of runs',
        default=(),
        hidden=True,
        read=lambda entries: tuple(map(_method, entries)),
    )
    data: Any = option(
        "which corpus, as `train` takes it", default=None, hidden=True, read=section_of_json("data:Data")
    )
    net: Any = option("the network's sizes", default=None, hidden=True, read=section_of_json("nn.block:Net"))
    train: Any = option("how all are trained", default=None, hidden=True, read=section_of_json("models.config:Train"))
    folder: str | Path = option(
        "folder for the comparison; each method's run has a subfolder", default="runs/compare", flag="run"
    )
    calls: tuple[int, ...] = option("numbers of sampling steps at which samples are judged", default=CALLS, read=tuple)
    samples: int = option("samples at each number of steps (0: 64, of enumerable data 2,000)", default=0)
    draws: int = option("random noisy copies of each test text", default=4)
    limit: int | None = option(
        "evaluate only this many test texts (default: all); they are evenly spaced", default=None
    )
    seeds: int = option(
        "train each method with this many seeds (train.seed and the next ones): mean and deviation",
        default=1,
        minimum=1,
    )
    table: str = option(
        "compare the rows of a paper's table on other data, never as a reproduction (zellige list tables)", default=""
    )
    minutes: float | None = option("training of each row of a table, on a CPU", default=None, above=0, unit="minutes")
    size: Literal["tiny", "small", "base", "medium"] | None = option(
        "preset of network, batch, learning rate and steps; other options override it", default=None
    )
    samplers: tuple[str, ...] = option(
        "also sample by these, each method by those that it supports, at as many network evaluations; with options as "
        "psi:kappa=0.9",
        default=(),
        read=tuple,
    )

    def run(self, terminal: Terminal | None = None) -> "Comparison":
        """Train the methods alike, measure each, and write the table and the figure.

        Args:
            terminal: where progress is reported; nowhere by default.

        Raises:
            InputError: the input is wrong; nothing was trained.
            Stopped: Ctrl-C while a method is trained; the same request goes on there.
        """
        from .comparison import compare_methods

        if self.table:
            return self._run_table(terminal)
        if self.minutes is not None:
            raise InputError("`minutes` is for the rows of a `table`; of methods say `train.minutes` or `train.steps`")
        if value := next((m for m in self.methods if isinstance(m, HandedOver)), None):
            raise value.error_for("methods")
        if not str(self.folder):
            raise InputError("`run` is ''; give it a folder, e.g. `run` runs/compare")
        return compare_methods(
            self,
            data=self.data,
            net=self.net,
            train=self.train,
            folder=self.folder,
            calls=self.calls,
            terminal=terminal,
        )

    def _run_table(self, terminal: Terminal | None) -> "Comparison":
        from .comparison import compare_methods
        from .paper import rows_of, substitute

        if self.methods:
            raise InputError("`table` says which methods are compared; leave the names out")
        if self.size:
            raise InputError("a `table` has the smallest size; leave `size` out")
        if self.minutes is None:
            raise InputError("`minutes` is not given; say how long each row is trained, e.g. `minutes` 5")
        data, net, train = substitute(self.table, self.data, self.net, self.train, self.minutes)
        usual, minutes = type(self).fields()["folder"].default, f"{self.minutes:g}"
        folder = f"runs/{self.table}-{minutes}-minutes" if str(self.folder) == usual else self.folder
        calls = TABLE_CALLS if self.calls == CALLS else self.calls
        rows = rows_of(self.table, net.length)
        return compare_methods(
            self, data=data, net=net, train=train, folder=folder, calls=calls, terminal=terminal, rows=rows
        )


@declared
class CompareSamplers(Request["SamplersComparison"]):
    """One model and its samplers: quality, diversity and speed at several numbers of steps;
    one table and one figure."""

    returns = "zellige.plugins.studies.compare.samplers:SamplersComparison"

    samplers: tuple[str, ...] = option(
        "samplers to compare, with options as confidence:entropy_bound=0.1 (default: all that the model supports)",
        default=(),
    )
    steps: tuple[int, ...] = option("numbers of sampling steps", default=STEPS)
    samples: int = option(
        "samples at each point (0: 64; 200 puzzles, 500 molecules, 2,000 of enumerable data)", default=0, minimum=0
    )
    limit: int = option(
        "held-out sequences whose exact -log p is computed, where the sampler has one; 0: none", default=16, minimum=0
    )
    batch: int | None = option("samples drawn at once", default=None, minimum=1)
    seed: int = option("random seed of the samples", default=0)
    data: Any = option(
        "another data set than the model's own", default=None, hidden=True, read=partial(data_of_json, Data)
    )
    out: str | Path = option("folder for the table and the figure (default: the run's name with -samplers)", default="")
    terminal: Terminal | None = aside("where progress is shown", default=None)

    def __post_init__(self) -> None:
        check_counts(steps=min(self.steps, default=1))
        if not self.steps:
            raise InputError("`steps` needs a number of steps; e.g. 4 8 16 32 64")
        if self.limit == 1:
            raise InputError("`limit` is 1; it must be 0, or 2 or more: an interval needs two texts")

    def run(self, model: "ModelSource", /) -> "SamplersComparison":
        """Compare the samplers of a `Model`, a run folder, a saved folder or a hub id.

        Raises:
            InputError: a sampler that there is not or that the model does not support, or data that cannot be read.
        """
        from zellige.models.model import as_model

        from .samplers import compare_samplers

        if not (self.out or isinstance(model, str | Path)):
            raise InputError("`out` is ''; give it a folder, e.g. `out` runs/samplers")
        folder = Path(self.out or f"{Path(model)}-samplers")  # pyright: ignore[reportArgumentType]
        return compare_samplers(self.saved(), as_model(model), folder, self.terminal or Terminal(quiet=True))


@checked
def compare(
    methods: Sequence[Any],
    *,
    data: Any = None,
    net: Any = None,
    train: Any = None,
    run: str | os.PathLike = "runs/compare",
    calls: Sequence[int] = CALLS,
    samples: int = 0,
    draws: int = 4,
    limit: int | None = None,
    seeds: int = 1,
    samplers: Sequence[str] = (),
    size: Literal["tiny", "small", "base", "medium"] | None = None,
    terminal: Terminal | None = None,
) -> "Comparison":
    """Train methods alike, measure each, and write a table and a figure: `Compare(methods, ...,
    folder=run).run(terminal)`.

    Args:
        methods: names, with choices if there are any ("sedd:process=uniform"); classes; (class, "choice=value"); or the
            folders of runs, which are measured as they are.
        data, net, train: the same for all of them; `train.seed` is that of everything.
        run: folder for the comparison; each method's run has a subfolder.
        calls: sampling steps at which samples are judged.
        samples: how many at each; 0: 64 of a text, 2,000 of enumerable data.
        draws, limit: of the bound, as `evaluate` takes them.
        seeds: how many each method is trained with, `train.seed` and the next ones: mean and deviation over them.
        size: tiny, small, base or medium: the network and the training where they are not given.
        samplers: also sample by these, at as many network evaluations, each method by those that it supports.
        terminal: where progress is reported; nowhere by default.

    Raises:
        InputError: the input is wrong; nothing was trained.
        Stopped: Ctrl-C while a method is trained; the same call again goes on there.
    """
    methods = methods if isinstance(methods, tuple) else tuple(methods)
    request = Compare(
        methods, data, net, train, Path(run) if run else "", tuple(calls), samples, draws, limit, seeds,
        size=size, samplers=tuple(samplers),
    )  # fmt: skip
    return request.run(terminal)
