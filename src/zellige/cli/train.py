"""`zellige train METHOD`: its options are those of the method, the data, the network and the training, all dataclasses.

A recipe (`--recipe NAME`) says the method, and is the default of every option.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..data import Data
from ..errors import InputError
from ..schema import read_json
from ..show.numbers import path
from ..show.progress import Training
from ..show.terminal import Terminal
from . import options
from .common import own_class, write_json


def form(method: Any, recipe: str = "") -> Any:
    """The options of `train METHOD`, as a dataclass; of a recipe the folder is called as it is."""
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
                Annotated[str, tyro.conf.arg(help="the folder where everything goes")],
                field(default=_folder(method, recipe)),
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
                "epochs",
                Annotated[float | None, tyro.conf.arg(help="passes over the training data, in place of --train.steps")],
                field(default=None),
            ),
            ("resume", Annotated[bool, tyro.conf.arg(help="go on with the run in it")], field(default=False)),
            ("overwrite", Annotated[bool, tyro.conf.arg(help="replace the run in it")], field(default=False)),
        ],
        frozen=True,
    )


def _folder(method: Any, recipe: str) -> str:
    """Where a run goes if --run does not say it."""
    return f"runs/{recipe or getattr(method, 'name', method.__name__)}"


def _subject(words: Sequence[str]) -> tuple[str, str, list[str]]:
    """The method that is typed, the recipe (at least one of the two), and the options."""
    name, rest = ("", [*words]) if words[0].startswith("-") else (words[0], [*words[1:]])
    recipe = _value(rest, "--recipe")
    if not name and not recipe:
        if "--recipe" in options.given(rest):
            raise InputError("--recipe needs a name; see zellige list recipes")
        raise InputError(f"train needs its method first, then the options; e.g. zellige train mdlm {words[0]} ...")
    return name, recipe, rest


def train(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige train METHOD`: the rest is flags."""
    name, recipe, words = _subject(words)
    with terminal.waiting("starting"):
        method: Any = own_class(name) if name else None
        from ..methods import find
        from ..models.config import Config, from_json

        default = None
        if recipe:
            from ..training.recipes import find_recipe

            theirs = find_recipe(recipe).for_method(recipe, method)
            method = theirs.method
        cls: Any = find(method)
        Options = form(cls, recipe)
        if recipe:
            default = Options(theirs.options, theirs.data, theirs.net, theirs.train, recipe=recipe)
    words = options.canonical(options.flags(Options), words)
    where = f"train {name or f'--recipe {recipe}'}"
    name = name or str(method)
    flags = options.given(words)
    if {"--resume", "--epochs"} <= flags:
        raise InputError("--epochs is for a run that begins; with --resume say --train.steps")
    if "--resume" in flags and not options.asks_help(words):
        options.check(options.flags(Options), words, where)
        folder = _value(words, "--run") or _folder(cls, recipe)
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
            default = Options(before.options, before.data, before.net, before.train, folder, before.recipe, resume=True)
    elif "--train.start" in flags and not options.asks_help(words):
        options.check(options.flags(Options), words, where)
        from ..training import setup

        with terminal.waiting("starting"):
            own = getattr(cls, "name", name)
            sizes, choices = setup.load_start(_value(words, "--train.start"), cls, own).choices(own)
        default = default or dataclasses.replace(Options(), options=choices or cls.Config())
        default = dataclasses.replace(default, net=sizes)
    chosen: Any = options.parse(
        Options, words, where, default=default, about=f"Train {recipe or name}; everything goes into --run FOLDER."
    )
    if not chosen.run:
        raise InputError(f"--run is ''; give it a folder, e.g. --run {_folder(cls, recipe)}")
    if chosen.resume and chosen.overwrite:
        raise InputError("--resume and --overwrite exclude each other; drop one of them")
    if chosen.epochs is not None:
        if "--train.steps" in flags:
            raise InputError("--epochs and --train.steps both say how long; leave one of them out")
        with terminal.waiting("reading"):
            steps = _steps(chosen, cls, name)
        chosen = dataclasses.replace(chosen, train=dataclasses.replace(chosen.train, steps=steps))
    with terminal.waiting("starting"):
        from ..training import train as training
        from ..training.run import summary
    progress = Training(terminal)
    try:
        done = training.train(
            method, data=chosen.data, net=chosen.net, train=chosen.train, options=chosen.options, run=chosen.run,
            recipe=chosen.recipe, resume=chosen.resume, overwrite=chosen.overwrite, progress=progress,
        )  # fmt: skip
    finally:
        progress.close()
    _trained(terminal, summary(done), done.folder, cls)
    config = Config(name, chosen.options, chosen.data, chosen.net, chosen.train, chosen.run, recipe=chosen.recipe)
    arguments = dataclasses.asdict(config)
    v = done.validation
    write_json(
        terminal, "train", arguments, {"run": str(done.folder), "validation": None if v is None else v.value}, began,
        interval=None if v is None else v.to_dict()["interval"], unit=None if v is None else v.unit,
        kind=None if v is None else v.kind, protocol=None if v is None else v.protocol, seed=chosen.train.seed,
    )  # fmt: skip
    return 0


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


def _trained(terminal: Terminal, lines: Sequence[str], folder: Path, method: Any) -> None:
    """The end of a run: what it came to, its page, what to type next."""
    with terminal.waiting("drawing the report"):
        from ..methods import METHODS, reference
        from ..models.model import load
        from ..report import write

        own = "" if method in METHODS.values() else f" --method {path(reference(method))}"
        try:
            page = f"   {write(folder, model=load(folder, method=method) if own else None).name}"
        except Exception as error:  # the model is there: a page that fails is no reason to end with an error
            page = ""
            terminal.note(
                f"no report.html ({type(error).__name__}: {error}); zellige report {path(folder)}{own} tries again"
            )
    for line in lines[:-1]:
        terminal.result(line)
    terminal.result(lines[-1] + page)
    terminal.try_next(f"zellige evaluate {path(folder)}{own}", f"zellige sample {path(folder)}{own} --watch")


def _value(words: Sequence[str], flag: str) -> str:
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == flag:
            return value if equals else "".join(words[i + 1 : i + 2])
    return ""


def _config(folder: Path, method: Any, from_json: Any) -> Any:
    """The config of a run that is to go on; None where there is none (training then says so)."""
    file = folder / "config.json"
    if not file.is_file():
        return None
    fields = read_json(file, dict, "start again with --overwrite")
    return from_json(fields, method=None if isinstance(method, str) else method, source=path(file))
