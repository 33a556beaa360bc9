"""`zellige sweep METHOD`: a training for each combination of options that have several values, and which came out best.

A trial is what `zellige train` does with one value of each: a run, in a folder of its own in that of the sweep. The same command
again goes on where it was stopped, since what is finished is there.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InputError
from ..show.numbers import columns, path
from ..show.progress import TrainingPart
from ..show.terminal import Terminal
from . import options, train
from .common import put_json
from .trainings import About

if TYPE_CHECKING:
    from ..training.search import Axis


@dataclass(frozen=True)
class Sweep:
    run: str = "runs/sweep"
    """the folder of the sweep; each trial's run is in a folder of its own there"""
    trials: int | None = None
    """so many combinations, of all if not given; an option may then be a range, 1e-4..1e-2"""
    search: Literal["random", "tpe"] = "random"
    """which --trials: random ones, or tpe, near those that were good (Optuna; the extra sweep)"""


ABOUT = About(
    "sweep", Sweep, ("run", "resume", "overwrite"), "Train each combination of the options that have several values."
)
form = ABOUT.form


class _Progress(TrainingPart):
    """The bar alone: what each validation came to stands in the run's metrics.csv."""

    def validated(self, step: int, result: Any, sample: str | None = None, best: bool = False) -> None: ...


def sweep(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige sweep METHOD`: the rest is flags."""
    ABOUT.help(words)
    if not words:
        raise InputError("sweep needs a method; e.g. zellige sweep mdlm --data.path notes/ --train.rate 1e-3,2e-3")
    chosen, rest = ABOUT.split(words)
    with terminal.waiting("starting"):
        from ..methods import reference
        from ..training import sweep as trainings
        from ..training.search import require_optuna
    if chosen.search == "tpe":
        require_optuna()
    axes, fixed = _axes(rest)
    if wrong := next((flag for flag in ("--resume", "--overwrite") if flag in rest), None):
        raise InputError(f"sweep has no {wrong}: it goes on with what is in --run; give it another folder")
    if not axes:
        raise InputError("sweep needs an option with several values; e.g. --train.rate 1e-3,2e-3")
    training, axes = train.choose(fixed, terminal, "sweep", axes)
    options.remember(Sweep)
    asked = trainings.Sweep(training, axes, chosen.run, chosen.trials, chosen.search)
    record = asked.run(terminal.say, lambda: _Progress(terminal))
    for line in columns(record.table(), ">" * len(record.names) + "<>><"):
        terminal.result(line)
    terminal.result(f"  written   {path(record.file)}")
    put_json(terminal, record.to_dict() | {"seconds": time.monotonic() - began})
    if record.best.run is None:
        return 1
    own = "" if isinstance(training.method, str | None) else f" --method {path(reference(training.method))}"
    terminal.try_next(*(f"zellige {what} {path(record.best.folder)}{own}" for what in ("evaluate", "report", "sample")))
    return 0


def _axes(words: Sequence[str]) -> tuple[list["Axis"], list[str]]:
    """The options that have several values, and the rest of the command line."""
    from ..training.search import Axis

    axes, fixed, rest = list[Axis](), list[str](), [*words]
    while rest:
        word = rest.pop(0)
        name, equals, text = word.partition("=")
        if word.startswith("--") and not equals and rest and not rest[0].startswith("--"):
            text = rest.pop(0)
        axis = Axis.of(name, text) if word.startswith("--") else None
        if axis is not None:
            axes.append(axis)
        else:
            fixed += [word] if equals or not text else [word, text]
    return axes, fixed
