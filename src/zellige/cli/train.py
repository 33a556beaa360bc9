"""`zellige train METHOD`: its options are those of the method, the data, the network and the training, all dataclasses."""

import dataclasses
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
                Annotated[str, tyro.conf.arg(help="the folder where everything goes")],
                field(default=_folder(method)),
            ),
            ("resume", Annotated[bool, tyro.conf.arg(help="go on with the run in it")], field(default=False)),
            ("overwrite", Annotated[bool, tyro.conf.arg(help="replace the run in it")], field(default=False)),
        ],
        frozen=True,
    )


def _folder(method: Any) -> str:
    """Where a run goes if --run does not say it."""
    return f"runs/{getattr(method, 'name', method.__name__)}"


def train(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige train METHOD`: the rest is flags."""
    name, *words = words
    if name.startswith("-"):
        raise InputError(f"train needs its method first, then the options; e.g. zellige train mdlm {name} ...")
    with terminal.waiting("starting"):
        method = own_class(name)
        from ..methods import find
        from ..models.config import Config, from_json

        cls: Any = find(method)
        Options = form(cls)
    words = ["--train.seed" + w[len("--seed") :] if w.partition("=")[0] == "--seed" else w for w in words]
    where = f"train {name}"
    flags = options.given(words)
    default = None
    if "--resume" in flags and "--help" not in flags:
        options.check(options.flags(Options), words, where)
        folder = _value(words, "--run") or _folder(cls)
        before = _config(Path(folder), method, from_json)
        if before is not None:
            if before.method != getattr(cls, "name", name):
                raise InputError(
                    f"'{folder}' is a run of {before.method}, not {name}; zellige train {before.method} continues it"
                )
            default = Options(before.options, before.data, before.net, before.train, folder, True, False)
    elif "--train.start" in flags and "--help" not in flags:
        options.check(options.flags(Options), words, where)
        from ..training import setup

        with terminal.waiting("starting"):
            own = getattr(cls, "name", name)
            sizes, choices = setup.load_start(_value(words, "--train.start"), cls, own).choices(own)
        default = dataclasses.replace(Options(), options=choices or cls.Config(), net=sizes)
    chosen: Any = options.parse(
        Options, words, where, default=default, about=f"Train {name}; everything goes into --run FOLDER."
    )
    if not chosen.run:
        raise InputError(f"--run is ''; give it a folder, e.g. --run {_folder(cls)}")
    if chosen.resume and chosen.overwrite:
        raise InputError("--resume and --overwrite exclude each other; drop one of them")
    with terminal.waiting("starting"):
        from ..training import train as training
        from ..training.run import summary
    progress = Training(terminal)
    try:
        done = training.train(
            method, data=chosen.data, net=chosen.net, train=chosen.train, options=chosen.options, run=chosen.run,
            resume=chosen.resume, overwrite=chosen.overwrite, progress=progress,
        )  # fmt: skip
    finally:
        progress.close()
    _trained(terminal, summary(done), done.folder, cls)
    arguments = dataclasses.asdict(Config(name, chosen.options, chosen.data, chosen.net, chosen.train, chosen.run))
    v = done.validation
    write_json(
        terminal, "train", arguments, {"run": str(done.folder), "validation": None if v is None else v.value}, began,
        interval=None if v is None else v.to_dict()["interval"], unit=None if v is None else v.unit,
        kind=None if v is None else v.kind, protocol=None if v is None else v.protocol, seed=chosen.train.seed,
    )  # fmt: skip
    return 0


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
            return value if equals else words[i + 1]
    return ""


def _config(folder: Path, method: Any, from_json: Any) -> Any:
    """The config of a run that is to go on; None where there is none (training then says so)."""
    file = folder / "config.json"
    if not file.is_file():
        return None
    fields = read_json(file, dict, "start again with --overwrite")
    return from_json(fields, method=None if isinstance(method, str) else method, source=path(file))
