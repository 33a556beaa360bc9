"""Requests about one training: `Training` makes a run, `Tune` adapts its model.

    Training("mdlm", size="tiny", settings={"data.path": "notes/", "train.steps": 2000}).run()
    Tune(data="chat.jsonl", rank=8).run("runs/demo")    a run whose weights are those of another, and an adapter

They import no torch before they run. `Training.filled` says what is trained: what is not given comes from the run that
is resumed, else from the recipe, the model that it begins with or the size, else it is the default.
"""

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..base.arguments import of_kind
from ..base.errors import InputError
from ..base.processes import this_process
from ..base.requests import HandedOver, Request, declared, may_follow, option
from ..base.schema import read_json, shown, structure
from ..data import DATASETS, Data
from ..data.corpus import as_data
from ..data.file_names import data_of
from ..models.low_rank import Adapter
from .settings import SECTIONS, read_value, with_settings

if TYPE_CHECKING:
    from ..methods.method import Method
    from ..models.config import Config, Train
    from ..models.model import ModelSource
    from ..show.progress import Progress
    from .run import Run
    from .setup import Start
    from .tune import Tuning


def section_of_json(where: str) -> Callable[[Any], Any]:
    """Return what reads a section of its JSON, given the module and the name of its class; for `option(read=...)`."""
    return partial(_section, where)


def _section(where: str, value: object) -> Any:
    """A section of its JSON, given the module and the name of its class; any other value as it is."""
    if not isinstance(value, Mapping):
        return value
    if "handed_over" in value:
        return HandedOver(str(value["handed_over"]))
    module, _, name = where.partition(":")
    return structure(value, getattr(importlib.import_module(f"..{module}", __package__), name), "the request")


@declared
class Training(Request["Run"]):
    """One training: what `zellige.train` takes, and single fields by their names, which come before all else."""

    returns = "zellige.training.run:Run"

    method: Any = option(
        "a name of `zellige list methods`, or a class (default: the recipe's, or mdlm)",
        default=None,
        hidden=True,
        read=section_of_json(""),
    )
    data: Any = option(
        "which corpus, as `train` takes it", default=None, hidden=True, read=section_of_json("data:Data")
    )
    net: Any = option(
        "the network's sizes, or a network", default=None, hidden=True, read=section_of_json("nn.block:Net")
    )
    train: Any = option("how it is trained", default=None, hidden=True, read=section_of_json("models.config:Train"))
    options: Any = option("the method's own Config", default=None, hidden=True)
    settings: Any = option(
        'single fields by their names, {"train.steps": 500}; a text is read as on the command line',
        default=None,
        hidden=True,
    )
    folder: str | Path | None = option(
        "folder for everything; default: runs/METHOD-DATA, numbered", default=None, flag="run"
    )
    recipe: str = option("use the settings of a paper (zellige list recipes)", default="")
    size: Literal["tiny", "small", "base", "medium"] | None = option(
        "preset of network, batch, learning rate and steps; other options override it", default=None
    )
    epochs: float | None = option("passes over the training data, instead of steps", default=None, above=0)
    resume: bool = option("continue the run in this folder", default=False)
    overwrite: bool = option("delete the run in this folder and start again", default=False)

    @classmethod
    def of(cls, training: object) -> "Training":
        """Return a training: itself, or that of a recipe or a method."""
        from ..papers.recipes import RECIPES

        if isinstance(training, Training):
            return training
        return cls(recipe=training) if isinstance(training, str) and training in RECIPES else cls(training)

    @property
    def method_class(self) -> "type[Method]":
        from ..methods import find
        from ..papers.recipes import RECIPES

        usual = RECIPES[self.recipe].for_method(self.method).method if self.recipe else "mdlm"
        return find(usual if self.method is None else self.method)

    @property
    def name(self) -> str:
        """The name of the method."""
        if isinstance(self.method, str):
            return self.method
        return getattr(self.method_class, "name", self.method_class.__name__)

    @property
    def place(self) -> Path:
        """The folder that is given; else runs/RECIPE or runs/METHOD-DATA: the newest to resume or overwrite,
        or a new one."""
        from ..models.checkpoint.layout import data_label, default_folder

        if self.folder is not None:
            return Path(self.folder)
        name = self.recipe or f"{self.name}-{data_label(self.data)}"
        return default_folder(name, self.resume or self.overwrite, this_process().rank)

    @property
    def config(self) -> "Config":
        """The config of a training that is `filled`; of an own network its class and its length alone."""
        from ..models.config import Config
        from ..nn.block import Net

        net, network, usual = self.net, "", Net()
        if not isinstance(net, Net):
            net, network = Net(length=int(getattr(net, "length", usual.length))), type(net).__name__
        folder = str(self.folder or "")
        return Config(self.name, self.options, self.data, net, self.train, folder, network, self.recipe)

    def with_values(self, values: Mapping[str, Any]) -> "Training":
        """Return the training with other settings; "method", "size", "recipe" and "epochs" are settings here, too."""
        whole = {name: values[name] for name in ("method", "size", "recipe") if name in values}
        if "epochs" in values:
            whole["epochs"] = read_value(float, values["epochs"], "epochs")
        return replace(
            self, **whole, settings={**(self.settings or {}), **{n: v for n, v in values.items() if n not in whole}}
        )

    def filled(self) -> "Training":
        """Return the training with `method`, `options`, `data`, `net` and `train`, and no `settings` or `epochs` left.

        What is not given is that of the run that goes on, else of the recipe, the model that it begins with or the
        size, else the default.

        Raises:
            InputError: choices that exclude each other, or a value that may not be; nothing was written.
        """
        from ..papers.recipes import RECIPES
        from . import setup

        refuse_handed_over(self, "method", *SECTIONS)
        recipe = RECIPES[self.recipe].for_method(self.method) if self.recipe else None
        settings = _with_data_name(self.settings or {}, recipe.data.name if recipe else Data().name)
        asked = replace(
            self,
            method=self.name if self.method is None else self.method,
            data=None if self.data is None else as_data(self.data),
            settings=settings,
        )
        asked._refuse_conflicts()
        run = asked._run_there() if self.resume else None
        begun = setup.load_start(start, self.method_class, self.name) if (start := asked._start) and not run else None

        sections = asked._usual(run, recipe, begun)
        sections |= {name: value for name in SECTIONS if (value := getattr(asked, name)) is not None}
        sections = with_settings(sections, settings)
        setup.check_choices(self.method_class, sections["net"], sections["options"])
        if settings.get("data.pack") == "wrap" != sections["data"].pack:
            raise InputError("`data.labels` is with `data.pack` wrap; a row must be one document: `data.pack` document")
        if begun:
            sections["options"] = begun.with_tokens(sections["options"])
        if run and sections["data"].fill is None:
            sections["data"] = sections["data"].replaced(fill=run.data.fill)
        complete = replace(asked, **sections, settings=None, epochs=None)
        if run:
            complete = replace(complete, size=None, recipe=run.recipe, folder=str(asked._folder_there))
        elif this_process().launcher:  # which starts one command to begin and to go on
            complete = replace(complete, resume=False)
        return replace(complete, train=complete._timed(settings, self.epochs, run))

    def run(self, progress: "Progress | None" = None) -> "Run":
        """Train, or go on with the run in the folder; progress is reported to `progress`."""
        return self.filled().start(progress)

    def start(self, progress: "Progress | None" = None) -> "Run":
        """Train as a request that is `filled` says."""
        from ..nn.block import Net
        from ..show.progress import Progress
        from .session import Session

        if not isinstance(progress, Progress | None):
            raise InputError(f"`progress` is {of_kind(progress)}; it must be a Progress")
        config = replace(self.config, run=str(self.place))
        network = None if isinstance(self.net, Net) else self.net
        session = Session(
            config, self.method_class, network, self.size or "", self.resume, self.overwrite, progress or Progress()
        )
        return session.run().made_by(self)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"settings": dict(self.settings or {}) or None}

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any], source: str = "it") -> "Training":
        request = super().from_dict(entries, source)
        if not isinstance(request.options, Mapping):
            return request
        if isinstance(request.method, HandedOver) or "handed_over" in request.options:
            return replace(request, options=HandedOver("Config"))
        return replace(
            request, options=structure(request.options, request.method_class.Config, f"'{source}'", "options")
        )

    @property
    def _start(self) -> str:
        """The model that a new run begins with."""
        return str((self.settings or {}).get("train.start") or (self.train.start if self.train else ""))

    def _refuse_conflicts(self) -> None:
        """InputError for choices that exclude each other."""
        resumes = self.resume and not this_process().launcher  # a launcher starts one command to begin and to go on
        if resumes and self.epochs is not None:
            raise InputError("`epochs` is for a run that begins; with `resume` say `train.steps`")
        conflicts = {"resume": resumes, "recipe": bool(self.recipe), "train.start": bool(self._start)}
        if self.size and (conflict := next((name for name, is_given in conflicts.items() if is_given), "")):
            raise InputError(f"`size` and `{conflict}` both choose the network; leave one of them out")
        if self.folder == "":
            raise InputError(f"`run` is ''; give it a folder, e.g. `run` runs/{self.recipe or self.name}")
        if self.resume and self.overwrite:
            raise InputError("`resume` and `overwrite` exclude each other; drop one of them")

    def _usual(self, run: "Config | None", recipe: "Config | None", begun: "Start | None") -> dict[str, Any]:
        """Return the sections where nothing is said."""
        from ..models.config import Train
        from ..nn.block import Net
        from . import setup

        base = run or recipe
        if base:
            sections = {name: getattr(base, name) for name in SECTIONS}
        else:
            sections = {"options": self.method_class.Config(), "data": Data(), "net": Net(), "train": Train()}
        if begun and recipe:
            sections["net"] = replace(begun.sections(self.name)["net"], length=recipe.net.length)
        elif begun:
            sections |= begun.sections(self.name)
        elif self.size and run is None:
            settings = self.settings or {}
            data = str(settings.get("data.name") or (self.data or Data()).name)
            kind = settings.get("net.kind") or (self.net.kind if isinstance(self.net, Net) else "")
            usual = "" if isinstance(self.net, Net | None) else "adamw"  # an own network may name no matrices
            optimizer = settings.get("train.optimizer") or usual
            sizes = setup.SIZES[self.size].of(data, self.method_class, kind=str(kind), optimizer=str(optimizer))
            sections |= dict(zip(("net", "train"), sizes))
        return sections

    @property
    def _folder_there(self) -> Path:
        """The folder of the run to go on with."""
        of_name = ("data.name", "data.path", "data.mix")
        named = {name: value for name, value in (self.settings or {}).items() if name in of_name}
        return replace(self, data=with_settings({"data": self.data or Data()}, named)["data"]).place

    def _run_there(self) -> "Config | None":
        """Return the config of the run to go on with; None where there is none (training then reports it)."""
        from ..models.checkpoint.layout import holds_run

        folder = self._folder_there
        if not holds_run(folder):
            return None
        before = config_of(folder, None if isinstance(self.method, str) else self.method)
        if before.method != self.name:
            raise InputError(
                f"'{shown(folder)}' is a run of {before.method}, not {self.name}; zellige train {before.method} "
                "continues it"
            )
        if before.adapter:
            raise InputError(f"'{shown(folder)}' is a tuned model; zellige tune continues it")
        if self.recipe and before.recipe != self.recipe:
            raise InputError(
                f"'{shown(folder)}' is a run of {before.recipe or 'no recipe'}, not of {self.recipe}; leave `recipe` "
                "out"
            )
        return before

    def _timed(self, settings: Mapping[str, Any], epochs: float | None, run: "Config | None") -> "Train":
        """Return how it is trained: its epochs are steps, and steps that are given come before the minutes of a
        size."""
        steps, minutes = self.train.steps, self.train.minutes
        if epochs is not None:
            if "train.steps" in settings:
                raise InputError("`epochs` and `train.steps` both say how long; leave one of them out")
            steps = self._steps_of_epochs(epochs)
        if "train.minutes" not in settings and (epochs is not None or "train.steps" in settings):
            minutes = 0.0
        if run and minutes:  # the run has chosen its steps, unless they are said
            steps, minutes = steps if "train.steps" in settings else run.train.steps, 0.0
        return replace(self.train, steps=steps, minutes=minutes)

    def _steps_of_epochs(self, epochs: float) -> int:
        """Return how many steps the epochs are, on the data that is there."""
        from . import setup

        config, method = self.config, self.method_class
        start = setup.load_start(config.train.start, method, self.name) if config.train.start else None
        corpus = setup.read_corpus(config, setup.ends_for(config, method), start=start)
        return math.ceil(epochs * len(corpus.train) / config.train.batch)


def refuse_handed_over(request: Request[Any], *names: str) -> None:
    """InputError where a field was handed over in Python, in a request that comes from a file."""
    for name in names:
        if isinstance(value := getattr(request, name), HandedOver):
            raise value.error_for(name)


def config_of(folder: Path, method: "type[Method] | None" = None) -> "Config":
    """The config of the run in a folder; method: an own class."""
    from ..models.checkpoint.layout import CONFIG
    from ..models.config import from_json

    entries = read_json(folder / CONFIG, dict, "start again with `overwrite`")
    return from_json(entries, method=method, source=shown(folder / CONFIG))


def _with_data_name(settings: Mapping[str, Any], default: str = Data().name) -> Mapping[str, Any]:
    """Return the settings with the `data.name` that a `data.path` or a `data.mix` means, where none is given.

    For a recipe of images or music, whose data set is the `default`, files that would be read as text are a copy of it.
    """
    if "data.name" in settings or not {"data.path", "data.mix"} & {*settings}:
        return settings
    if "data.mix" in settings:
        return {**settings, "data.name": "text"}
    name = data_of(str(settings["data.path"]))
    return settings if name == "text" and DATASETS[default].shaped else {**settings, "data.name": name}


def training_of_json(value: object) -> Any:
    """A training of its JSON; any other value as it is."""
    return Training.from_dict(value, "the request") if isinstance(value, Mapping) else value


@declared
class Tune(Request["Run"]):
    """Tune a model on other data: train low-rank adapters beside its matrices (LoRA, arXiv 2106.09685), by the library
    peft.

    The data is of prompts and answers, or of conversations (`data.records`), of which the answers are learnt, or any
    other. The run's folder holds the adapter, and is a model as any other where the base is there.
    """

    returns = "zellige.training.run:Run"

    data: Any = option(
        "which corpus, as `train` takes it", default=None, hidden=True, read=section_of_json("data:Data")
    )
    train: Any = option("how it is trained", default=None, hidden=True, read=section_of_json("models.config:Train"))
    settings: Any = option(
        'single fields of `data` and `train` by their names, {"train.steps": 500}', default=None, hidden=True
    )
    rank: int | None = may_follow(Adapter, "rank", default=None)
    alpha: float | None = may_follow(Adapter, "alpha", default=None)
    dropout: float | None = may_follow(Adapter, "dropout", default=None)
    targets: tuple[str, ...] | None = option(
        "matrices that get an adapter, by their names in a block: qkv, out, mlp.0, query, value and "
        "others (default: all of attention and MLP)",
        default=None,
    )
    length: int | None = option(
        "tokens per sequence of running text (default: as many as the model reads); pairs keep their own length",
        default=None,
        minimum=1,
    )
    strict: bool = option(
        "stop at a pair that is too long or has no answer (default: leave such pairs out and count them)", default=False
    )
    folder: str | Path | None = option(
        "folder for everything; default: runs/MODEL-tuned, numbered", default=None, flag="run"
    )
    resume: bool = option("continue the run in this folder", default=False)
    overwrite: bool = option("delete the run in this folder and start again", default=False)

    @staticmethod
    def defaults() -> "Train":
        """Return the training of an adapter where nothing else is given."""
        from ..models.config import Train

        return Train(steps=1000, batch=16, lr=5e-4, warmup=50, weight_decay=0.0, ema=0.0, validate_every=200, samples=0)

    def run(self, model: "ModelSource | None" = None, progress: "Progress | None" = None) -> "Run":
        """Tune a `Model` that lies in a folder, or a run folder, a saved folder or a hub id; to `resume` it may be left
        out.

        Raises:
            InputError: an option or the data is wrong, or peft is not installed; nothing was written.
        """
        return self.session(model, progress).run().made_by(self.saved())

    def session(self, model: "ModelSource | None", progress: "Progress | None" = None) -> "Tuning":
        """Return the session that tunes a model, with the complete config.

        Raises:
            InputError: as `run`.
        """
        from ..models.adapter import check_peft
        from ..models.checkpoint.layout import default_folder, holds_run
        from ..show.progress import Progress
        from .tune import Tuning, name_of, resolved

        check_peft("tune")
        refuse_handed_over(self, "data", "train")
        if self.resume and self.overwrite:
            raise InputError("`resume` and `overwrite` exclude each other; drop one of them")
        if model is None and self.folder is None:
            raise InputError("tune needs the model that is tuned; e.g. zellige tune runs/demo --data.path chat.jsonl")
        label = "" if self.folder is not None else f"{Path(name_of(model)).name}-tuned"
        folder = Path(self.folder) if self.folder is not None else default_folder(label, self.resume or self.overwrite)
        saved, launched = None, bool(this_process().launcher)  # a launcher starts one command to begin and to go on
        if self.resume and holds_run(folder):
            method = getattr(model, "method", None)  # of a model that is handed over
            saved = config_of(folder, None if method is None else type(method))
            if saved.adapter is None:
                raise InputError(
                    f"'{shown(folder)}' is a run of {saved.method} and not tuned; zellige train continues it"
                )
        elif self.resume and not launched:
            raise InputError(f"no run at '{shown(folder)}' to resume; drop `resume` to start one")
        settings = dict(_with_data_name(self.settings or {}))
        given = None if self.data is None else as_data(self.data)
        if saved is None and given is None and not {"data.name", "data.path"} & {*settings}:
            raise InputError("tune needs what to learn; give `data.path`, e.g. a .jsonl with 'prompt' and 'answer'")
        sections = {
            "data": given or (saved.data if saved else Data()),
            "train": self.train or (saved.train if saved else self.defaults()),
        }
        sections = with_settings(sections, settings)
        data, train = sections["data"], sections["train"]
        if train.minutes:
            raise InputError("`train.minutes` is for a model that is trained from the start; give `train.steps`")
        if "train.start" in settings:
            raise InputError("`train.start` is the model that is tuned; leave it out")
        if saved is None and not data.given and data.path and data.name == "text":
            data = _with_answers(data)
        adapter = {name: getattr(self, name) for name in ("rank", "alpha", "dropout", "targets", "length")}
        adapter = {name: value for name, value in adapter.items() if value is not None}
        base, config = resolved(model, adapter, data, train, folder, saved)
        return Tuning(
            config,
            type(base.method),
            resume=self.resume and (bool(saved) or not launched),
            overwrite=self.overwrite,
            progress=progress or Progress(),
            base=base,
            strict=self.strict,
        )

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"settings": dict(self.settings or {}) or None}


def _with_answers(data: Data) -> Data:
    """The data with its prompts given, where its records have answers.

    Raises:
        InputError: they have neither answers nor a text, and no field is named.
    """
    from ..data import file_names, readers, records

    file = file_names.find_files(str(data.path))[0]
    record = {} if file_names.is_remote(str(data.path)) else readers.first_record(file)
    if records.is_conversation(record) and not data.field:
        return replace(data, given="field")
    if record and not data.field and not records.is_known(record):
        raise InputError(
            f"'{file}' holds records of {', '.join(record)}; give {records.FORMS}, or name the text's field by "
            "`data.field`"
        )
    return data
