"""Which points a sweep tries: every one of a grid, or one after another, each chosen once it is known what came of
those before.

A point is a value for each axis, as a text. The generators are sent what their last point came to: a number that is to
be small, None where it failed. They depend on that and on the seed alone, so that a sweep that is begun again asks for
the same points, which are there already, and goes on after them: nothing else need be stored.
"""

import itertools
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from zellige.base.arguments import of_kind
from zellige.base.errors import InputError, not_installed

Point = tuple[str, ...]
Points = Generator[Point, float | None, None]
_NUMBER = r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"


@dataclass(frozen=True)
class Axis:
    """A setting with several values, `1e-3,2e-3`, or with all of a range, `1e-4..1e-2`, of which `values` are the ends.

    Attributes:
        option: what the user calls it: "train.lr"; on the command line with its dashes.
        setting: its name as `Training.with_values` takes it.
    """

    option: str
    values: Point
    between: bool = False
    setting: str = ""

    @property
    def label(self) -> str:
        """Its name in tables and in the names of folders."""
        return self.option.removeprefix("--")

    @classmethod
    def of(cls, option: str, text: str) -> "Axis | None":
        """Return the axis of a list or a range; None for one value. InputError for a value twice,
        or none between two commas."""
        if ends := re.fullmatch(rf"({_NUMBER})\.\.({_NUMBER})", text):
            if float(ends[1]) >= float(ends[2]):
                raise InputError(f"{option} is {text}; a range goes from the smaller to the larger")
            return cls(option, (ends[1], ends[2]), True, option.removeprefix("--"))
        values = tuple(value.strip() for value in text.split(","))
        if len(values) == 1:
            return None
        if "" in values:
            raise InputError(f"{option} is '{text}'; separate values by commas, as in 1e-3,2e-3")
        return cls.listed(option, values)

    @classmethod
    def listed(cls, option: str, values: Iterable[Any]) -> "Axis":
        """Return the axis of values that are named one by one."""
        texts = tuple(map(str, values))
        if twice := next((text for text in texts if texts.count(text) > 1), None):
            raise InputError(f"{option} has {twice} twice; name each value once")
        return cls(option, texts, False, option.removeprefix("--"))

    def suggested(self, trial: Any) -> str:
        """The value that a trial of Optuna's, or `Chance`, suggests; of a positive range by its logarithm."""
        if not self.between:
            return trial.suggest_categorical(self.option, self.values)
        if all(re.fullmatch(r"-?[0-9]+", end) for end in self.values):
            return str(trial.suggest_int(self.option, *map(int, self.values)))
        low, high = map(float, self.values)
        value = trial.suggest_float(self.option, low, high, log=low > 0)
        texts = (f"{value:.{digits}g}" for digits in range(3, 18))  # few, as the folder and the table have it
        return next(text for text in texts if low <= float(text) <= high)


def axes_of(values: Mapping[str, Any]) -> tuple[Axis, ...]:
    """Return the axes of settings by their names, each with a list of values, or with a text,
    "1e-4..1e-2" or "1e-3,2e-3"."""
    axes = []
    for name, several in values.items():
        if not isinstance(name, str) or not isinstance(several, Iterable):
            raise InputError(f"the axis {name!r} is {of_kind(several)}; give a setting's name with a list of values")
        axis = Axis.of(name, several) if isinstance(several, str) else Axis.listed(name, several)
        if axis is None or not axis.values:
            raise InputError(f"`{name}` has one value; give a list, or a range such as 1e-4..1e-2")
        axes.append(axis)
    return tuple(axes)


class Chance(Random):
    """Answers as a trial of Optuna's does, at random."""

    def suggest_categorical(self, name: str, choices: Point) -> str:
        return self.choice(choices)

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return self.randint(low, high)

    def suggest_float(self, name: str, low: float, high: float, log: bool) -> float:
        return low * (high / low) ** self.random() if log else self.uniform(low, high)


def grid_points(axes: Sequence[Axis]) -> Points:
    """Every point of the lists, the last axis first."""
    for point in itertools.product(*(axis.values for axis in axes)):  # noqa: UP028 (`yield from` hands on what is sent)
        yield point


def random_points(axes: Sequence[Axis], seed: int) -> Points:
    """Points without end, each value drawn on its own (Bergstra and Bengio 2012)."""
    chance = Chance(seed)
    while True:
        yield tuple(axis.suggested(chance) for axis in axes)


def tpe_points(axes: Sequence[Axis], seed: int) -> Points:
    """Points without end, near those that were good, by Optuna's tree of Parzen estimators (Bergstra et al. 2011)."""
    import optuna  # pyright: ignore[reportMissingImports]

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    while True:
        trial = study.ask()
        value = yield tuple(axis.suggested(trial) for axis in axes)
        study.tell(trial, value, state=optuna.trial.TrialState.FAIL if value is None else None)


SEARCHES = {"random": random_points, "tpe": tpe_points}


def require_optuna() -> None:
    """InputError unless Optuna is installed."""
    try:
        import optuna  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise not_installed("`search` tpe", "optuna", "sweep") from None
