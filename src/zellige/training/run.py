"""A finished run, and what is said of it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..base.errors import InputError
from ..base.schema import shown
from ..evaluation.result import Result
from ..models.checkpoint.layout import CHECKPOINTS, newest
from ..models.checkpoint.read import read_state, run_config
from ..models.config import Config
from ..models.model import Model, load
from ..show.numbers import byte_size, count, counted, duration, path, scaled
from ..show.progress import Speed
from ..show.record import Record, json_record

HEAD = "head at every position"  # also where it is computed at the masks alone, so that FLOP/s and MFU compare


@dataclass(frozen=True)
class Run(Record):
    """A finished run: the record of a training.

    Attributes:
        folder: where everything is.
        validation: the best validation bound, at `best_step`, of `validations`.
        seconds, tokens: of training, over all sessions; `speed` of this one, at its end.
        peak: bytes of GPU memory at most, 0 on the CPU.
    """

    folder: Path
    config: Config
    validation: Result | None
    best_step: int
    validations: int
    steps: int
    seconds: float
    tokens: int
    speed: Speed | None = None
    peak: float = 0
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def tokens_per_second(self) -> float | None:
        """Of this session, at its end."""
        return self.speed.tokens if self.speed else None

    def to_dict(self) -> dict[str, Any]:
        v = self.validation
        result = {"run": str(self.folder), "validation": None if v is None else v.value}
        return json_record(
            "tune" if self.config.adapter else "train",
            asdict(replace(self.config, run=str(self.folder))),
            result,
            interval=None if v is None else v.to_dict()["interval"],
            unit=None if v is None else v.unit,
            kind=None if v is None else v.kind,
            protocol=None if v is None else v.protocol,
            seed=self.config.train.seed,
            seconds=self.seconds,
            request=self.request,
        )

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], source: str = "it") -> "Run":
        """Read the run of a record from its folder, which holds all of it."""
        try:
            return cls.of(Path(document["result"]["run"]))
        except (KeyError, TypeError) as wrong:
            raise InputError(f"'{source}' is not a record of zellige train; give one that it wrote") from wrong

    @classmethod
    def of(cls, folder: Path) -> "Run":
        """Return the run in a folder, as its newest checkpoint has it."""
        (config, about), last = run_config(folder), newest(folder / CHECKPOINTS)
        if last is None:
            raise InputError(f"'{shown(folder)}' holds no checkpoint yet; continue it with `resume`")
        return cls.at(folder, config, about, read_state(last)["run"])

    @classmethod
    def at(
        cls,
        folder: Path,
        config: Config,
        about: dict[str, Any],
        state: Mapping[str, Any],
        speed: Speed | None = None,
        peak: float = 0,
    ) -> "Run":
        """Return the run with the progress that a checkpoint records (`read_state`)."""
        best = state["best"]
        return cls(
            folder=folder, config=config, validation=Result.from_dict(best["result"]) if best else None,
            best_step=best["step"] if best else 0, validations=state["validations"], steps=state["step"],
            seconds=state["seconds"], tokens=state["tokens"], speed=speed, peak=peak, about=about,
        )  # fmt: skip

    @property
    def model(self) -> Model:
        """Best model of the run, loaded once. Functions that take a model take the run, too: `zellige.sample(run)`."""
        return self._model

    @cached_property
    def _model(self) -> Model:  # a checker of types takes no cached property for the one of `ModelSource`
        return load(self.folder)


def summary(run: Run) -> list[str]:
    """The lines with which `zellige train` ends."""
    speed = f"   last steps: {run.speed}" if run.speed else ""
    peak = f"   peak {byte_size(run.peak)}" if run.peak else ""
    lines = [
        f"trained {counted(run.steps, 'step')} in {duration(run.seconds)}   {scaled(run.tokens)} tokens{speed}{peak}"
    ]
    if run.validation is not None:
        lines.append(
            f"  validation {run.validation}   "
            f"the best of {count(run.validations)}, at step {count(run.best_step)}; lower is better"
        )
    lines.append(f"  saved in {path(run.folder)}: checkpoints last and best, metrics.csv")
    return lines
