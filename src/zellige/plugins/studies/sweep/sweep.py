"""A training for each combination of settings that have several values, and which one came out best.

    record = Sweep(Training("mdlm", size="tiny"), {"train.lr": [1e-3, 2e-3]}, folder="runs/sweep").run()
    record.best.folder

Each trial is a run in a folder of its own within the sweep's. The same sweep again goes on where it was stopped, since
what is finished is there. `search` says which combinations are tried.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zellige.base.errors import InputError
from zellige.base.files import file_suffix
from zellige.base.requests import Request, alone, declared, option
from zellige.show.numbers import duration
from zellige.show.progress import Progress
from zellige.training.requests import Training, training_of_json

from . import search
from .search import Axis, Point

FEW = 64  # points of a grid that are all looked at before the first is trained

if TYPE_CHECKING:
    from zellige.models.config import Train

    from .record import SweepRecord, Trial


@declared
class Sweep(Request["SweepRecord"]):
    """A training for each combination of settings that have several values."""

    returns = "zellige.plugins.studies.sweep.record:SweepRecord"

    training: Any = option(
        "what all have in common: a Training, or the name of a recipe or a method",
        default=None,
        hidden=True,
        read=training_of_json,
    )
    axes: Mapping[str, Any] | Sequence[Axis] | None = option(
        'settings with several values each, {"train.lr": [1e-3, 2e-3]}, or with a range of them, "1e-4..1e-2"',
        default=None,
        hidden=True,
    )
    folder: str | Path = option("folder for the sweep; each trial has a subfolder", default="runs/sweep", flag="run")
    trials: int | None = option(
        "try only this many combinations (default: all); an option may then be a range, 1e-4..1e-2",
        default=None,
        minimum=1,
    )
    search: Literal["random", "tpe"] = option(
        "how to choose trials: random, or tpe, near good ones (Optuna; the extra sweep)", default="random"
    )

    def run(self, say: Callable[[str], Any] = str, progress: Callable[[], Progress] | None = None) -> "SweepRecord":
        """Train at each point that is not there yet.

        Args:
            say: called with a line about each trial.
            progress: makes the receiver of a trial's progress.

        Raises:
            InputError: a value that may not be; nothing was trained.
            Stopped: a signal; the same sweep goes on there.
        """
        from zellige.training import lock

        from .record import SweepRecord

        work, began = _Work(self, say, progress or Progress), time.monotonic()
        with lock.hold(work.folder, "swept"):
            trials = sorted(work.go(), key=lambda trial: trial.rank)
            names = tuple(axis.label for axis in work.axes)
            record = SweepRecord(names, tuple(trials), time.monotonic() - began, request=self.saved())
            record.save(record_file(work.folder))
        return record

    def to_dict(self) -> dict[str, Any]:
        axes = {axis.setting: "..".join(axis.values) if axis.between else list(axis.values) for axis in self.all_axes}
        return super().to_dict() | {"axes": axes}

    @property
    def all_axes(self) -> tuple[Axis, ...]:
        return search.axes_of(self.axes) if isinstance(self.axes, Mapping) else tuple(self.axes or ())


def record_file(folder: Path) -> Path:
    """Return the file of a sweep's record."""
    return folder / "sweep.json"


class _Work:
    """A sweep that was checked, and is then done."""

    def __init__(self, sweep: Sweep, say: Callable[[str], Any], progress: Callable[[], Progress]):
        """InputError for what is wrong in any of the values, before anything is trained."""
        from zellige.models.checkpoint.layout import holds_run

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
        total = math.inf if ranges else math.prod(len(axis.values) for axis in self.axes)
        self.total = int(min(total, sweep.trials or total))
        first = tuple(axis.values[0] for axis in self.axes)
        more = [(*first[:i], value, *first[i + 1 :]) for i, axis in enumerate(self.axes) for value in axis.values[1:]]
        self.shared: Train | None = None  # steps and warmup of all, where a size's minutes have become steps
        self.known = {point: self.at(point) for point in (first, *more)}
        seed, grid = self.known[first].train.seed, self.total == total
        self.points = search.grid_points(self.axes) if grid else search.SEARCHES[sweep.search](self.axes, seed)
        if grid and self.total <= FEW:
            self.known = {point: self.at(point) for point in search.grid_points(self.axes)}
        self.point = next(self.points)

    def at(self, point: Point) -> Training:
        """Return the training at a point, in a folder of its own."""
        values = {axis.setting: value for axis, value in zip(self.axes, point)}
        request = self.training.with_values(values)
        complete_request = request.filled()
        if complete_request.train.devices > 1:  # several processes would each ask for all of the sweep
            raise InputError(
                f"`train.devices` is {complete_request.train.devices}; sweep trains on one device, leave it out"
            )
        train = replace(complete_request.train, devices=1)
        self.sized = bool(train.minutes) and {"train.minutes", "size"}.isdisjoint({*request.settings, *values})
        if self.sized and self.shared:
            train = replace(train, steps=self.shared.steps, minutes=self.shared.minutes, warmup=self.shared.warmup)
        labels = {axis.label: value for axis, value in zip(self.axes, point)}
        folder = self.folder / file_suffix(**labels).strip("-")
        return replace(complete_request, train=train, folder=folder)

    def announce(self) -> None:
        """Say how long all trials take. Minutes that a size sets become steps that all of them take, as many as the
        slowest may.

        The first trial is given the minutes that these steps take it, and so plans them again; the others take its
        steps.
        """
        from zellige.training import device, forecast, setup

        self._take_steps()
        trainings = [self.at(point) for point in self.known]
        configs = [training.config for training in trainings]
        first, whole, several = configs[0], 0, configs
        if not device.cuda(first) and (self.sized or self.say is not str):
            several = forecast.timed([(config, of.method_class) for config, of in zip(configs, trainings)])
            if self.sized and self.shared is None:
                whole, several = first.train.steps, forecast.alike(several)
                self.shared = replace(first.train, minutes=several[0].seconds / 60 + 1e-9)
        size, varied = self.training.size or "", [axis.setting for axis in self.axes]
        preset = setup.described(size, first, trainings[0].method_class, shaped=bool(first.net.grid), varied=varied)
        self.say(forecast.of_several(several, self.total, preset, whole, size))

    def _take_steps(self) -> None:
        """Let all trials take the steps of one that was begun, if there is one and a size has said how many minutes."""
        from zellige.models.checkpoint.layout import holds_run
        from zellige.training import forecast

        run = next((run for run in sorted(self.folder.glob("*/")) if holds_run(run)), None)
        if self.sized and run is not None:
            self.shared = forecast.as_long_as(run, next(iter(self.known.values())).train)

    def go(self) -> "list[Trial]":
        """Train at each point. A point that is asked for again is not trained again."""
        self.announce()
        trials: dict[Point, Trial] = {}
        for _ in range(100 * self.total):  # a search may come to the same ones over and over
            if self.point not in trials:
                durations = [trial.seconds for trial in trials.values() if trial.seconds is not None]
                left = sum(durations) / max(len(durations), 1) * (self.total - len(trials))
                trials[self.point] = self._trial(len(trials) + 1, f", about {duration(left)} left" if durations else "")
                if len(trials) == self.total:
                    break
            bound = trials[self.point].validation
            self.point = self.points.send(None if bound is None else bound.value)
        return [*trials.values()]

    def _trial(self, number: int, left: str) -> "Trial":
        """Train at a point, or go on with it; whatever ends it but a signal is an error of this one alone."""
        from zellige.models.checkpoint.layout import holds_run
        from zellige.training.signals import Stopped

        from .record import Trial

        values = " ".join(f"{axis.option} {value}" for axis, value in zip(self.axes, self.point))
        self.say(f"{number} of {self.total}{left}: {values}")
        self._take_steps()
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
        return Trial(self.point, folder, run.validation, run.best_step, run.seconds)


sweep = alone(Sweep, "sweep")
