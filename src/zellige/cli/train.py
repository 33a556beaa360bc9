"""`zellige train METHOD`: its options are those of the method, the data, the network and the training, all dataclasses.

A recipe (`--recipe NAME`) says the method, and is the default of every option.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from ..data import Data
from ..errors import InputError
from ..launched import this_process
from ..schema import read_json
from ..show.numbers import path
from ..show.progress import Bar, Training
from ..show.terminal import Terminal
from ..trust import allow, refuse_code
from . import config_file, options
from .common import own_class, write_json


def form(method: Any) -> Any:
    """The options of `train METHOD`, as a dataclass."""
    from ..models.config import Train
    from ..nn import Net

    return dataclasses.make_dataclass(
        "Options",
        [
            ("options", Annotated[method.Config, tyro.conf.arg(name="")], field(default=method.Config())),
            ("data", Data, field(default=Data())),
            ("net", Net, field(default=Net())),
            ("train", Train, field(default=Train())),
            (
                "run",
                Annotated[
                    str | None,
                    tyro.conf.arg(help="the folder where everything goes; runs/METHOD-DATA if not given, numbered"),
                ],
                field(default=None),
            ),
            (
                "recipe",
                Annotated[
                    str,
                    tyro.conf.arg(help="a paper's configuration, which fills what is not typed (zellige list recipes)"),
                ],
                field(default=""),
            ),
            (
                "size",
                Annotated[
                    Literal["tiny", "small", "base", "medium"] | None,
                    tyro.conf.arg(
                        help="network, batch, rate and steps that belong together; what is typed beside it comes first"
                    ),
                ],
                field(default=None),
            ),
            (
                "epochs",
                Annotated[float | None, tyro.conf.arg(help="passes over the training data, in place of --train.steps")],
                field(default=None),
            ),
            (
                "config",
                Annotated[
                    str | None, tyro.conf.arg(help="a file of options, .yaml, .json or .toml, or a run's config.json")
                ],
                field(default=None),
            ),
            ("resume", Annotated[bool, tyro.conf.arg(help="go on with the run in it")], field(default=False)),
            ("overwrite", Annotated[bool, tyro.conf.arg(help="replace the run in it")], field(default=False)),
        ],
        frozen=True,
    )


def _subject(words: Sequence[str], entries: dict[str, Any], source: str) -> tuple[str, str, list[str]]:
    """The method that is typed or stands in a file of options, the recipe (at least one of the two), and the options."""
    name, rest = ("", [*words]) if words[0].startswith("-") else (words[0], [*words[1:]])
    theirs = str(entries.pop("method", ""))
    recipe = options.value_of(rest, "--recipe") or ("" if name else str(entries.get("recipe") or ""))
    if not name and not recipe:
        refuse_code(theirs, f"'{source}'")
    name = name or ("" if recipe else theirs)
    if not name and not recipe:
        if "--recipe" in options.given(rest):
            raise InputError("--recipe needs a name; see zellige list recipes")
        raise InputError(f"train needs its method first, then the options; e.g. zellige train mdlm {words[0]} ...")
    return name, recipe, rest


class Chosen(NamedTuple):
    """What a command line of `train` comes to: the method's name, the name or class that finds it, its class, the options."""

    name: str
    method: Any
    cls: Any
    options: Any


def choose(words: Sequence[str], terminal: Terminal, command: str = "train") -> Chosen:
    """What is typed after `zellige train`, a method first; the rest is flags. InputError says of it what is wrong."""
    file = options.value_of(words, "--config")
    entries = {} if not file or options.asks_help(words) else config_file.read_entries(file)
    name, recipe, words = _subject(words, entries, file)
    with terminal.waiting("starting"):
        method: Any = own_class(name) if name else None
        from ..methods import find
        from ..models.config import from_json

        default = None
        if recipe:
            from ..training.recipes import RECIPES

            theirs = RECIPES[recipe].for_method(recipe, method)
            method = theirs.method
        cls: Any = find(method)
        Options = form(cls)
        if recipe:
            default = Options(theirs.options, theirs.data, theirs.net, theirs.train, recipe=recipe)
    known = options.flags(Options)
    words = options.canonical(known, words)
    where = f"{command} {name or f'--recipe {recipe}'}"
    words = options.with_data(known, [*words, *config_file.words(entries, known, words, file, where)])
    name = name or str(method)
    flags = options.given(words)
    begins = (
        set() if this_process().launcher else {"--resume"} & flags
    )  # a launcher starts the same command to begin and to go on
    if begins and "--epochs" in flags:
        raise InputError("--epochs is for a run that begins; with --resume say --train.steps")
    for other in begins | {"--recipe", "--train.start"} & flags if "--size" in flags else ():
        raise InputError(f"--size and {other} both choose the network; leave one of them out")
    before, folder = None, ""
    if "--resume" in flags and not options.asks_help(words):
        options.check(known, words, where)
        folder = options.value_of(words, "--run") or _usual(words, recipe or getattr(cls, "name", name))
        before = _config(Path(folder), method, from_json)
        if before is not None:
            if before.method != getattr(cls, "name", name):
                raise InputError(
                    f"'{folder}' is a run of {before.method}, not {name}; zellige train {before.method} continues it"
                )
            if recipe and before.recipe != recipe:
                raise InputError(
                    f"'{folder}' is a run of {before.recipe or 'no recipe'}, not of {recipe}; leave --recipe out"
                )
    if before is not None:
        default = Options(before.options, before.data, before.net, before.train, folder, before.recipe, resume=True)
    elif "--train.start" in flags and not options.asks_help(words):
        options.check(known, words, where)
        from ..training import setup

        with terminal.waiting("starting"):
            own = getattr(cls, "name", name)
            sizes, choices = setup.load_start(options.value_of(words, "--train.start"), cls, own).choices(own)
        default = default or dataclasses.replace(Options(), options=choices or cls.Config())
        default = dataclasses.replace(default, net=sizes)
    elif size := default_size(words, recipe):
        options.check(known, words, where) if not options.asks_help(words) else None
        default = _sized(Options, cls, size, words)
    chosen: Any = options.parse(
        Options, words, where, default=default, about=f"Train {recipe or name}; everything goes into --run FOLDER."
    )
    if chosen.run == "":
        raise InputError(f"--run is ''; give it a folder, e.g. --run runs/{recipe or getattr(cls, 'name', name)}")
    if chosen.resume and chosen.overwrite:
        raise InputError("--resume and --overwrite exclude each other; drop one of them")
    if chosen.epochs is not None:
        if "--train.steps" in flags:
            raise InputError("--epochs and --train.steps both say how long; leave one of them out")
        with terminal.waiting("reading"):
            steps = _steps(chosen, cls, name)
        chosen = dataclasses.replace(chosen, train=dataclasses.replace(chosen.train, steps=steps))
    if chosen.train.minutes and "--train.minutes" not in flags and {"--epochs", "--train.steps"} & flags:
        chosen = dataclasses.replace(chosen, train=dataclasses.replace(chosen.train, minutes=0.0))
    return Chosen(name, method, cls, chosen)


def run_choice(choice: Chosen, progress: Training, **how: Any) -> Any:
    """Train what was chosen; `how` comes before its `run`, `resume` and `overwrite`. Returns the finished run."""
    with progress.terminal.waiting("starting"):
        from ..training import train as training
    chosen = choice.options
    how = {"run": chosen.run, "resume": chosen.resume, "overwrite": chosen.overwrite} | how
    try:
        return training.train(
            choice.method, data=chosen.data, net=chosen.net, train=chosen.train, options=chosen.options,
            recipe=chosen.recipe, size=chosen.size or "", progress=progress, **how,
        )  # fmt: skip
    finally:
        progress.close()


def train(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige train METHOD`: the rest is flags."""
    choice = choose(words, terminal)
    chosen = choice.options
    with terminal.waiting("starting"):
        from ..models.config import Config
        from ..training.run import summary
    done = run_choice(choice, Training(terminal))
    _trained(terminal, summary(done), done.folder, choice.cls, done.steps * done.config.train.batch * 3 // 10)
    config = Config(
        choice.name, chosen.options, chosen.data, chosen.net, done.config.train, str(done.folder), recipe=chosen.recipe
    )
    arguments = dataclasses.asdict(config)
    v = done.validation
    write_json(
        terminal, "train", arguments, {"run": str(done.folder), "validation": None if v is None else v.value}, began,
        interval=None if v is None else v.to_dict()["interval"], unit=None if v is None else v.unit,
        kind=None if v is None else v.kind, protocol=None if v is None else v.protocol, seed=chosen.train.seed,
    )  # fmt: skip
    return 0


def default_size(words: Sequence[str], recipe: str) -> str:
    """The size that is typed; without one tiny, or small where there is a GPU, unless the network is chosen otherwise."""
    flags = options.given(words)
    if "--size" in flags or recipe or any(flag.startswith("--net.") for flag in flags):
        return options.value_of(words, "--size")
    import torch

    from ..training.setup import CPU, GPU

    device = options.value_of(words, "--train.device") or "auto"
    return CPU if device == "cpu" or (device == "auto" and not torch.cuda.is_available()) else GPU


def _sized(Options: Any, cls: Any, size: str, words: Sequence[str]) -> Any:
    """The defaults of a size, for the data and the kind of network that are typed."""
    from ..training.setup import SIZES

    data = options.value_of(words, "--data.name") or Data().name
    net, train = SIZES[size].of(data, cls, options.value_of(words, "--net.kind"))
    return Options(size=size, net=net, train=train)


def _usual(words: Sequence[str], name: str) -> str:
    """The folder of the newest run of this name, or of this method on the data that is typed."""
    from ..models.checkpoint.layout import data_label, default_folder

    data = Data(
        options.value_of(words, "--data.name") or Data().name, path=options.value_of(words, "--data.path") or None
    )
    return str(
        default_folder(name if "--recipe" in options.given(words) else f"{name}-{data_label(data)}", existing=True)
    )


def _steps(chosen: Any, cls: Any, name: str) -> int:
    """How many steps --epochs are, on the data that is there."""
    from ..training import setup

    if not 0 < chosen.epochs < math.inf:
        raise InputError(f"--epochs is {chosen.epochs:g}; it must be above 0")
    own = getattr(cls, "name", name)
    start = setup.load_start(chosen.train.start, cls, own) if chosen.train.start else None
    config = setup.choose_config(
        None, own, cls, chosen.data, chosen.net, chosen.train, chosen.options, chosen.run, start
    )
    return math.ceil(chosen.epochs * len(setup.read_corpus(config, start=start).train) / chosen.train.batch)


def _trained(terminal: Terminal, lines: Sequence[str], folder: Path, method: Any, rows: int) -> None:
    """The end of a run: what it came to, its page, what to type next.

    rows: network evaluations that the page takes at most, about: a tenth of the training, whose backward pass counts for two.
    """
    with Bar(terminal, "draw the report", 1) as bar:
        from ..methods import METHODS, reference
        from ..models.model import load
        from ..report import write

        own = "" if method in METHODS.values() else f" --method {path(reference(method))}"
        try:
            model = load(folder, method=method) if own else None
            with allow(remote=True):  # what it was trained on was asked for
                counted = lambda done, total: bar.update(done, total=total)  # noqa: E731
                page = f"   {write(folder, model=model, rows=rows, progress=counted).name}"
        except Exception as error:  # the model is there: a page that fails is no reason to end with an error
            page = ""
            terminal.note(
                f"no report.html ({type(error).__name__}: {error}); zellige report {path(folder)}{own} tries again"
            )
        except BaseException:  # a signal
            terminal.note(
                f"the run is whole and saved, without report.html; zellige report {path(folder)}{own} writes it"
            )
            raise
    for line in lines[:-1]:
        terminal.result(line)
    terminal.result(lines[-1] + page)
    terminal.try_next(f"zellige evaluate {path(folder)}{own}", f"zellige sample {path(folder)}{own} --watch")


def _config(folder: Path, method: Any, from_json: Any) -> Any:
    """The config of a run that is to go on; None where there is none (training then says so)."""
    file = folder / "config.json"
    if not file.is_file():
        return None
    fields = read_json(file, dict, "start again with --overwrite")
    return from_json(fields, method=None if isinstance(method, str) else method, source=path(file))
