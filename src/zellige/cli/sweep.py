"""`zellige sweep METHOD`: a training for each combination of options that have several values, and which came out best.

A trial is what `zellige train` does with one value of each: a run, in a folder of its own in that of the sweep. The same command
again goes on where it was stopped, since what is finished is there. `training/search.py` says which combinations.
"""

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..errors import InputError
from ..show.numbers import columns, count, duration, path
from ..show.progress import TrainingPart
from ..show.record import json_record
from ..show.terminal import Terminal
from . import train
from .common import file_suffix, put_json, write_result
from .trainings import About

if TYPE_CHECKING:
    from ..training.search import Point


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


class Trial(NamedTuple):
    """One training: the values of its axes, its folder, and the finished run, or the error that ended it."""

    point: "Point"
    folder: Path
    run: Any = None
    error: str = ""

    @property
    def value(self) -> float | None:
        """Its best validation bound; None where it has none."""
        return None if self.run is None or self.run.validation is None else self.run.validation.value

    def row(self) -> list[str]:
        """Its line in the table, after its values."""
        if self.run is None:
            return ["failed", "", "", path(self.folder)]
        bound = str(self.run.validation or "without a bound")
        return [bound, count(self.run.best_step), duration(self.run.seconds), path(self.folder)]

    def entry(self, names: Sequence[str]) -> dict[str, Any]:
        """It as JSON has it."""
        run, v = self.run, None if self.run is None else self.run.validation
        return {
            "point": dict(zip(names, self.point)), "run": str(self.folder), "validation": self.value,
            "interval": None if v is None else v.to_dict()["interval"], "unit": None if v is None else v.unit,
            "kind": None if v is None else v.kind, "best_step": None if run is None else run.best_step,
            "seconds": None if run is None else run.seconds, "error": self.error or None,
        }  # fmt: skip


def sweep(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige sweep METHOD`: the rest is flags."""
    ABOUT.help(words)
    if not words:
        raise InputError("sweep needs a method; e.g. zellige sweep mdlm --data.path notes/ --train.rate 1e-3,2e-3")
    with terminal.waiting("starting"):
        from ..methods import reference
        from ..training import lock
    work = _Work(words, terminal)
    with lock.hold(work.folder, "swept"):
        trials = sorted(work.go(), key=lambda trial: (trial.run is None, trial.value is None, trial.value or 0.0))
        names = [axis.option.removeprefix("--") for axis in work.axes]
        rows = [[*names, "validation", "at step", "trained", "run"], *([*t.point, *t.row()] for t in trials)]
        for line in columns(rows, ">" * len(names) + "<>><"):
            terminal.result(line)
        result = {"trials": [trial.entry(names) for trial in trials]}
        document = json_record("sweep", {"words": [*words]}, result, seconds=time.monotonic() - began)
        write_result(terminal, work.folder / "sweep.json", document)
    put_json(terminal, document)
    if trials[0].run is None:
        return 1
    own = "" if isinstance(work.choice.method, str) else f" --method {path(reference(work.choice.cls))}"
    terminal.try_next(*(f"zellige {what} {path(trials[0].folder)}{own}" for what in ("evaluate", "report", "sample")))
    return 0


class _Work:
    """What is typed, checked; then done."""

    def __init__(self, words: Sequence[str], terminal: Terminal):
        """InputError for what is wrong in any of the values, before anything is trained."""
        from ..training import search

        self.terminal, self.axes, self.fixed = terminal, list[search.Axis](), list[str]()
        chosen, rest = ABOUT.split(words)
        if chosen.search == "tpe":
            search.require_optuna()
        self._read(rest)
        if wrong := next((flag for flag in ("--resume", "--overwrite") if flag in rest), None):
            raise InputError(f"sweep has no {wrong}: it goes on with what is in --run; give it another folder")
        if not self.axes:
            raise InputError("sweep needs an option with several values; e.g. --train.rate 1e-3,2e-3")
        ranges = [axis.option for axis in self.axes if axis.between]
        if chosen.trials is None and ranges:
            raise InputError(f"{ranges[0]} is a range; say how many values of it to try, e.g. --trials 20")
        self.folder = Path(chosen.run)
        if not chosen.run or self.folder.is_file() or (self.folder / "config.json").is_file():
            raise InputError(f"--run is '{chosen.run}'; give it a folder of its own, e.g. --run runs/sweep")
        every = math.inf if ranges else math.prod(len(axis.values) for axis in self.axes)
        self.total = int(min(every, chosen.trials or every))
        first = tuple(axis.values[0] for axis in self.axes)
        self.choice = self.choose(first)
        for i, axis in enumerate(self.axes):
            for value in axis.values[1:]:
                self.choose((*first[:i], value, *first[i + 1 :]))
        if self.total == every:
            self.points = search.grid_points(self.axes)
        else:
            self.points = search.SEARCHES[chosen.search](self.axes, self.choice.options.train.seed)
        self.point = next(self.points)

    def _read(self, words: Sequence[str]) -> None:
        """Take the options that have several values out of the command line of one training."""
        from ..training.search import Axis

        rest = [*words]
        while rest:
            word = rest.pop(0)
            name, equals, text = word.partition("=")
            if word.startswith("--") and not equals and rest and not rest[0].startswith("--"):
                text = rest.pop(0)
            axis = Axis.of(name, text) if word.startswith("--") else None
            if axis is not None:
                self.axes.append(axis)
            else:
                self.fixed += [word] if equals or not text else [word, text]

    def choose(self, point: "Point") -> train.Chosen:
        """What the training at a point is."""
        words = [*self.fixed, *(f"{axis.option}={value}" for axis, value in zip(self.axes, point))]
        choice = train.choose(words, self.terminal, "sweep")
        if (devices := choice.options.train.devices) > 1:  # several processes would each ask for all of the sweep
            raise InputError(f"--train.devices is {devices}; sweep trains on one device, leave it out")
        alone = dataclasses.replace(choice.options.train, devices=1)
        if not any(axis.option == "--train.minutes" for axis in self.axes) and "--train.minutes" not in self.fixed:
            alone = dataclasses.replace(alone, minutes=0.0)  # a size's: all trainings take the same steps
        return choice._replace(options=dataclasses.replace(choice.options, train=alone))

    def go(self) -> list[Trial]:
        """Train at each point. A point that is asked for again is not trained again."""
        trials = dict["Point", Trial]()
        for _ in range(100 * self.total):  # a search may come to the same ones over and over
            if self.point not in trials:
                spent = [trial.run.seconds for trial in trials.values() if trial.run is not None]
                left = sum(spent) / max(len(spent), 1) * (self.total - len(trials))
                trials[self.point] = self._trial(len(trials) + 1, f", about {duration(left)} left" if spent else "")
                if len(trials) == self.total:
                    break
            self.point = self.points.send(trials[self.point].value)
        return [*trials.values()]

    def _trial(self, number: int, left: str) -> Trial:
        """Train at a point, or go on with it; whatever ends it but a signal is an error of this one alone."""
        from ..training.signals import Stopped

        values = {axis.option: value for axis, value in zip(self.axes, self.point)}
        self.terminal.say(f"{number} of {self.total}{left}: {' '.join(f'{o} {v}' for o, v in values.items())}")
        folder = self.folder / file_suffix(**{o.strip("-"): v for o, v in values.items()}).strip("-")
        there = (folder / "config.json").is_file()
        try:
            run = train.run_choice(self.choose(self.point), _Progress(self.terminal), run=folder, resume=there)
        except Stopped:
            self.terminal.say("  the same command goes on from there")
            raise
        except Exception as problem:
            if isinstance(problem, InputError) and number == 1:  # of all of them, most likely
                raise
            lines = str(problem).splitlines() or [type(problem).__name__]
            self.terminal.say(f"  failed: {lines[0]}")
            return Trial(self.point, folder, error=lines[0])
        self.terminal.say(f"  validation {run.validation or 'without a bound'}")
        return Trial(self.point, folder, run)
