"""A training for each combination of settings that have several values, and which one came out best.

    record = Sweep(Training("mdlm", size="tiny"), {"train.lr": [1e-3, 2e-3]}, folder="runs/sweep").run()
    record.best.folder

Each trial is a run in a folder of its own within the sweep's. The same sweep again goes on where it was stopped, since what is
finished is there. `search` says which combinations are tried.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ..errors import InputError
from ..files import file_suffix, write_file
from ..models.checkpoint.layout import holds_run
from ..show.numbers import count, duration, path
from ..show.record import as_file, json_record
from . import lock, search
from .progress import Progress, Silent
from .requests import Training
from .run import Run
from .search import Axis, Point
from .signals import Stopped

FILE = "sweep.json"  # in the folder of a sweep


@dataclass(frozen=True)
class Trial:
    """One training of a sweep: the values of its axes, its folder, and the finished run, or the error that ended it."""

    point: Point
    folder: Path
    run: Run | None = None
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

    def entry(self, names: list[str]) -> dict[str, Any]:
        """Return the trial as JSON has it."""
        run, v = self.run, None if self.run is None else self.run.validation
        return {
            "point": dict(zip(names, self.point)), "run": str(self.folder), "validation": self.value,
            "interval": None if v is None else v.to_dict()["interval"], "unit": None if v is None else v.unit,
            "kind": None if v is None else v.kind, "best_step": None if run is None else run.best_step,
            "seconds": None if run is None else run.seconds, "error": self.error or None,
        }  # fmt: skip


@dataclass(frozen=True)
class SweepRecord:
    """The trials of a sweep, the best first; `request` is the sweep itself.

    Attributes:
        names: of the axes, in the order of each trial's point.
        seconds: that it took, what was there already left out.
    """

    names: list[str]
    trials: list[Trial]
    request: "Sweep"
    seconds: float = 0.0

    @property
    def best(self) -> Trial:
        return self.trials[0]

    @property
    def file(self) -> Path:
        """Where the record is."""
        return Path(self.request.folder) / FILE

    def table(self) -> list[list[str]]:
        """Its header and a row for each trial."""
        rows = [[*trial.point, *trial.row()] for trial in self.trials]
        return [[*self.names, "validation", "at step", "trained", "run"], *rows]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        result = {"trials": [trial.entry(self.names) for trial in self.trials]}
        return json_record("sweep", self.request.to_dict(), result, seconds=self.seconds)


@dataclass(frozen=True)
class Sweep:
    """A training for each combination of settings that have several values.

    Attributes:
        training: what all have in common: a Training, or the name of a recipe or a method.
        axes: settings with several values each: {"train.lr": [1e-3, 2e-3]}; or with a range of them, "1e-4..1e-2".
    """

    training: Any
    axes: Mapping[str, Any] | tuple[Axis, ...]
    folder: str | Path = "runs/sweep"
    """the folder of the sweep; each trial's run is in a folder of its own there"""
    trials: int | None = None
    """so many combinations, of all if not given; an option may then be a range, 1e-4..1e-2"""
    search: Literal["random", "tpe"] = "random"
    """which --trials: random ones, or tpe, near those that were good (Optuna; the extra sweep)"""

    def run(self, say: Callable[[str], Any] = str, progress: Callable[[], Progress] = Silent) -> SweepRecord:
        """Train at each point that is not there yet.

        Args:
            say: called with a line about each trial.
            progress: makes what is told how a trial's training goes.

        Raises:
            InputError: a value that may not be; nothing was trained.
            Stopped: a signal; the same sweep goes on there.
        """
        work, began = _Work(self, say, progress), time.monotonic()
        with lock.hold(work.folder, "swept"):
            trials = sorted(work.go(), key=lambda t: (t.run is None, t.value is None, t.value or 0.0))
            record = SweepRecord([axis.label for axis in work.axes], trials, self, time.monotonic() - began)
            write_file(record.file, as_file(record.to_dict()))
        return record

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        axes = {axis.setting: "..".join(axis.values) if axis.between else list(axis.values) for axis in self.all_axes}
        return {
            "training": Training.of(self.training).to_dict(), "axes": axes, "folder": str(self.folder),
            "trials": self.trials, "search": self.search,
        }  # fmt: skip

    @property
    def all_axes(self) -> tuple[Axis, ...]:
        return search.axes_of(self.axes) if isinstance(self.axes, Mapping) else self.axes


class _Work:
    """A sweep that was checked, and is then done."""

    def __init__(self, sweep: Sweep, say: Callable[[str], Any], progress: Callable[[], Progress]):
        """InputError for what is wrong in any of the values, before anything is trained."""
        self.training, self.axes, self.say, self.progress = Training.of(sweep.training), sweep.all_axes, say, progress
        if sweep.search == "tpe":
            search.require_optuna()
        if self.training.resume or self.training.overwrite:
            wrong = "resume" if self.training.resume else "overwrite"
            raise InputError(f"sweep has no `{wrong}`: it goes on with what is in `run`; give it another folder")
        if not self.axes:
            raise InputError("sweep needs a setting with several values; e.g. `train.lr` 1e-3,2e-3")
        ranges = [axis.option for axis in self.axes if axis.between]
        if sweep.trials is None and ranges:
            raise InputError(f"{ranges[0]} is a range; say how many values of it to try, e.g. `trials` 20")
        self.folder = Path(sweep.folder)
        if not str(sweep.folder) or self.folder.is_file() or holds_run(self.folder):
            raise InputError(f"`run` is '{sweep.folder}'; give it a folder of its own, e.g. `run` runs/sweep")
        every = math.inf if ranges else math.prod(len(axis.values) for axis in self.axes)
        self.total = int(min(every, sweep.trials or every))
        first = tuple(axis.values[0] for axis in self.axes)
        chosen = self.at(first)
        for i, axis in enumerate(self.axes):
            for value in axis.values[1:]:
                self.at((*first[:i], value, *first[i + 1 :]))
        assert chosen.train is not None
        seed = chosen.train.seed
        self.points = (
            search.grid_points(self.axes) if self.total == every else search.SEARCHES[sweep.search](self.axes, seed)
        )
        self.point = next(self.points)

    def at(self, point: Point) -> Training:
        """Return the training at a point, in a folder of its own."""
        values = {axis.setting: value for axis, value in zip(self.axes, point)}
        asked = self.training.with_values(values)
        filled = asked.filled()
        assert filled.train is not None
        if filled.train.devices > 1:  # several processes would each ask for all of the sweep
            raise InputError(f"`train.devices` is {filled.train.devices}; sweep trains on one device, leave it out")
        minutes = (
            filled.train.minutes if "train.minutes" in asked.settings else 0.0
        )  # a size's: all take the same steps
        named = {axis.label: value for axis, value in zip(self.axes, point)}
        folder = self.folder / file_suffix(**named).strip("-")
        return replace(filled, train=replace(filled.train, devices=1, minutes=minutes), folder=folder)

    def go(self) -> list[Trial]:
        """Train at each point. A point that is asked for again is not trained again."""
        trials = dict[Point, Trial]()
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
        values = " ".join(f"{axis.option} {value}" for axis, value in zip(self.axes, self.point))
        self.say(f"{number} of {self.total}{left}: {values}")
        training, progress = self.at(self.point), self.progress()
        folder = Path(str(training.folder))
        try:
            run = replace(training, resume=holds_run(folder)).start(progress)
        except Stopped:
            self.say("  the same command goes on from there")
            raise
        except Exception as problem:
            if isinstance(problem, InputError) and number == 1:  # of all of them, most likely
                raise
            lines = str(problem).splitlines() or [type(problem).__name__]
            self.say(f"  failed: {lines[0]}")
            return Trial(self.point, folder, error=lines[0])
        finally:
            progress.close()
        self.say(f"  validation {run.validation or 'without a bound'}")
        return Trial(self.point, folder, run)
