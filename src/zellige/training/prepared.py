"""All that is checked, read and built before the steps of a training."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..data import Corpus
from ..methods.method import Method
from ..models.config import Config
from .device import Fleet
from .forecast import Plan


@dataclass(frozen=True)
class Prepared:
    """A training that is ready to take its steps, from the first one or from a checkpoint.

    Attributes:
        about: what is known of the run beside its config.
        changes: by `resume`, by name: [before, now].
        checkpoint: the one that it goes on from, taken after `step` steps; None: from the start.
        defaults: by which the trained model is sampled (`models.defaults`).
        plan: of its steps, where they were fitted into minutes.
    """

    method: Method
    corpus: Corpus
    config: Config
    about: dict[str, Any]
    fleet: Fleet
    changes: dict[str, Any]
    checkpoint: Path | None
    step: int
    defaults: Mapping[str, Any] = field(default_factory=dict)
    plan: Plan | None = None

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return Path(self.config.run)
