"""Requests about one training: `Training` makes a run, `Plan` estimates what it takes on other devices.

    Training("mdlm", size="tiny", settings={"data.path": "notes/", "train.steps": 2000}).run()
    Plan("mdlm-owt", gpus=8, device="h100").run()

`Training.filled` says what is trained: what is not given comes from the run that is resumed, else from the recipe, the model
that it begins with or the size, else it is the default.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from ..data import DATASETS, Data
from ..data.corpus import as_data
from ..data.file_names import data_of
from ..errors import InputError
from ..launched import this_process
from ..methods import find, reference
from ..methods.method import Method
from ..models.checkpoint.layout import CONFIG, data_label, default_folder, holds_run
from ..models.config import Config, Train, from_json
from ..nn.block import Net
from ..schema import CONVERTER, read_json, shown
from . import setup
from .device import DEVICES
from .plan import UTILISATION, Budget, budget_of
from .progress import Progress
from .recipes import RECIPES
from .run import Run
from .settings import SECTIONS, read_value, with_settings
from .train import train


@dataclass(frozen=True)
class Training:
    """One training: what `zellige.train` takes, and single fields by their names.

    Attributes:
        folder: of the run; by default runs/METHOD-DATA, numbered.
        epochs: passes over the training data, in place of `train.steps`.
        settings: fields of `options`, `data`, `net` and `train`, which come before all else: {"train.steps": 500}; a text is
            read as on the command line.
    """

    method: Any = None
    data: Any = None
    net: Any = None
    train: Train | None = None
    options: Any = None
    folder: str | Path | None = None
    recipe: str = ""
    size: str = ""
    resume: bool = False
    overwrite: bool = False
    epochs: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, what: Any) -> "Training":
        """Return a training: itself, or that of a recipe or a method."""
        if isinstance(what, Training):
            return what
        return cls(recipe=what) if isinstance(what, str) and what in RECIPES else cls(what)

    @property
    def method_class(self) -> type[Method]:
        return find("mdlm" if self.method is None else self.method)

    @property
    def name(self) -> str:
        """The name of the method."""
        return getattr(self.method_class, "name", self.method_class.__name__)

    @property
    def config(self) -> Config:
        """The config of a training that is `filled`."""
        return Config(
            self.name, self.options, self.data, self.net, self.train or Train(), str(self.folder or ""), recipe=self.recipe
        )  # fmt: skip

    def with_values(self, values: Mapping[str, Any]) -> "Training":
        """Return the training with other settings; "method", "size", "recipe" and "epochs" are settings here, too."""
        whole = {name: values[name] for name in ("method", "size", "recipe") if name in values}
        if "epochs" in values:
            whole["epochs"] = read_value(float, values["epochs"], "epochs")
        return replace(
            self, **whole, settings=dict(self.settings) | {n: v for n, v in values.items() if n not in whole}
        )

    def filled(self) -> "Training":
        """Return the training with all of `options`, `data`, `net` and `train`, and no settings beside them.

        Raises:
            InputError: choices that exclude each other, or a value that may not be; nothing was written.
        """
        recipe = RECIPES[self.recipe].for_method(self.recipe, self.method) if self.recipe else None
        asked = replace(self, method=recipe.method if recipe else "mdlm" if self.method is None else self.method)
        return asked._filled(recipe, _with_data_name(self.settings))

    def run(self, progress: Progress | None = None) -> Run:
        """Train, or go on with the run in the folder; `progress` is told how it goes."""
        return self.filled().start(progress)

    def start(self, progress: Progress | None = None) -> Run:
        """Train as a request that is `filled` says."""
        return train(
            self.method, data=self.data, net=self.net, train=self.train, options=self.options, run=self.folder,
            recipe=self.recipe, size=self.size, resume=self.resume, overwrite=self.overwrite, progress=progress,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        plain = {name: _plain(getattr(self, name)) for name in SECTIONS}
        method = self.method if isinstance(self.method, str) or self.method is None else reference(self.method)
        return {
            "method": method, **plain, "folder": None if self.folder is None else str(self.folder), "recipe": self.recipe,
            "size": self.size, "epochs": self.epochs, "settings": dict(self.settings),
        }  # fmt: skip

    def _filled(self, recipe: Config | None, settings: Mapping[str, Any]) -> "Training":
        start = str(settings.get("train.start") or (self.train.start if self.train else ""))
        resumes = self.resume and not this_process().launcher  # a launcher starts one command to begin and to go on
        if resumes and self.epochs is not None:
            raise InputError("`epochs` is for a run that begins; with `resume` say `train.steps`")
        others = {"resume": resumes, "recipe": bool(recipe), "train.start": bool(start)}
        if self.size and (other := next((name for name, given in others.items() if given), "")):
            raise InputError(f"`size` and `{other}` both choose the network; leave one of them out")
        before = self._resumed(settings) if self.resume else None
        base = before or recipe
        sections = {name: getattr(base, name) for name in SECTIONS} if base else self._defaults()
        if before is None and start:
            net, options = setup.load_start(start, self.method_class, self.name).choices(self.name)
            sections |= {"net": net} | ({} if options is None or recipe else {"options": options})
        elif before is None and self.size:
            data = str(settings.get("data.name") or (Data() if self.data is None else as_data(self.data)).name)
            sizes = setup.SIZES[self.size].of(data, self.method_class, str(settings.get("net.kind") or ""))
            sections |= dict(zip(("net", "train"), sizes))
        given = {name: value for name in SECTIONS if (value := getattr(self, name)) is not None}
        given |= {"data": as_data(given["data"])} if "data" in given else {}
        sections = with_settings(sections | given, settings)
        if self.folder == "":
            raise InputError(f"`run` is ''; give it a folder, e.g. `run` runs/{self.recipe or self.name}")
        if self.resume and self.overwrite:
            raise InputError("`resume` and `overwrite` exclude each other; drop one of them")
        filled = replace(self, **sections, settings={})
        if before:
            filled = replace(filled, size="", recipe=before.recipe, folder=self._last_folder(settings))
        return replace(filled, epochs=None, train=filled._timed(settings), size="" if start else filled.size)

    def _defaults(self) -> dict[str, Any]:
        return {"options": self.method_class.Config(), "data": Data(), "net": Net(), "train": Train()}

    def _resumed(self, settings: Mapping[str, Any]) -> Config | None:
        """Return the config of the run to go on with; None where there is none (training then reports it)."""
        folder = self._last_folder(settings)
        if not holds_run(folder):
            return None
        entries = read_json(folder / CONFIG, dict, "start again with `overwrite`")
        method = None if isinstance(self.method, str) else self.method
        before = from_json(entries, method=method, source=shown(folder / CONFIG))
        if before.method != self.name:
            raise InputError(
                f"'{shown(folder)}' is a run of {before.method}, not {self.name}; zellige train {before.method} continues it"
            )
        if self.recipe and before.recipe != self.recipe:
            raise InputError(
                f"'{shown(folder)}' is a run of {before.recipe or 'no recipe'}, not of {self.recipe}; leave `recipe` out"
            )
        return before

    def _last_folder(self, settings: Mapping[str, Any]) -> Path:
        """Return the folder that is given, or that of the newest run of the recipe, or of the method on the data."""
        if self.folder:
            return Path(self.folder)
        named = {field: settings.get(f"data.{field}") for field in ("name", "path")}
        data = as_data(self.data) if self.data is not None else Data(named["name"] or Data().name, path=named["path"])
        return default_folder(self.recipe or f"{self.name}-{data_label(data)}", existing=True)

    def _timed(self, settings: Mapping[str, Any]) -> Train:
        """Return how it is trained, with the steps of its epochs; steps that are given come before the minutes of a size."""
        assert self.train is not None
        steps, minutes = self.train.steps, self.train.minutes
        if self.epochs is not None:
            if "train.steps" in settings:
                raise InputError("`epochs` and `train.steps` both say how long; leave one of them out")
            steps = self._steps_of_epochs(self.epochs)
        if "train.minutes" not in settings and (self.epochs is not None or "train.steps" in settings):
            minutes = 0.0
        return replace(self.train, steps=steps, minutes=minutes)

    def _steps_of_epochs(self, epochs: float) -> int:
        """Return how many steps the epochs are, on the data that is there."""
        if not 0 < epochs < math.inf:
            raise InputError(f"`epochs` is {epochs:g}; it must be above 0")
        assert self.train is not None
        loaded = setup.load_start(self.train.start, self.method_class, self.name) if self.train.start else None
        config = setup.choose_config(
            None, self.name, self.method_class, self.data, self.net, self.train, self.options, self.folder, loaded
        )
        return math.ceil(epochs * len(setup.read_corpus(config, start=loaded).train) / self.train.batch)


def _plain(section: Any) -> Any:
    """Return a section as JSON has it; of one that was handed over as something else, what it is."""
    if section is None or isinstance(section, str):
        return section
    return (
        CONVERTER.unstructure(section, type(section))
        if is_dataclass(section)
        else {"handed_over": type(section).__name__}
    )


def _with_data_name(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings with the `data.name` that a `data.path` or a `data.mix` means, where none is given."""
    if "data.name" in settings or not {"data.path", "data.mix"} & {*settings}:
        return settings
    if "data.mix" in settings:
        return {**settings, "data.name": "text"}
    if "path" in DATASETS[Data().name].reads:
        return settings
    return {**settings, "data.name": data_of(str(settings["data.path"]))}


@dataclass(frozen=True)
class Plan:
    """What a training takes on GPUs that are not at hand: memory, speed, hours and cost. Nothing is trained or read.

    Attributes:
        training: the training, or the name of a recipe or a method.
    """

    training: Any
    gpus: int = 1
    """devices, among which the batch is split"""
    device: str = "h100"
    """b200, h200, h100, h100-pcie, a100, a100-40, l40s, l4, rtx4090 or mi300x"""
    mfu: float = UTILISATION
    """share of the peak of matrix products that is reached, above 0 up to 1"""
    price: float | None = None
    """of a device for an hour, in any currency"""
    vocabulary: int | None = None
    """tokens of the tokenizer; the recipe's if not given"""

    def __post_init__(self) -> None:
        for name in ("gpus", "vocabulary"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise InputError(f"`{name}` is {value}; it must be 1 or more")
        if not 0 < self.mfu <= 1:
            raise InputError(f"`mfu` is {self.mfu:g}; it must be above 0 and at most 1")
        if self.price is not None and not 0 <= self.price < math.inf:
            raise InputError(f"`price` is {self.price:g}; it must be 0 or more")

    def run(self) -> Budget:
        """Count a step of the training, and return what all of them take."""
        device, asked = DEVICES[self.device], Training.of(self.training).filled()
        vocabulary, recipe = self.vocabulary, RECIPES.get(asked.recipe)
        if vocabulary is None and recipe is not None and asked.data == recipe.data:
            vocabulary = recipe.vocabulary
        if vocabulary is None:
            raise InputError("plan reads no data; say how many tokens it has, e.g. `vocabulary` 50257 of gpt2")
        budget = budget_of(asked.config, vocabulary, self.gpus, device, self.mfu)
        return replace(budget, request=replace(self, training=asked, vocabulary=vocabulary))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"training": Training.of(self.training).to_dict()} | {
            f.name: getattr(self, f.name) for f in fields(self)[1:]
        }


def plan(training: Any, **options: Any) -> Budget:
    """Estimate what a training takes on GPUs that are not at hand: `Plan(training, ...).run()`."""
    return Plan(training, **options).run()
