"""`zellige compare METHOD METHOD ...`: data, network and training are those of `train`, the same for all methods.

`zellige compare RUN RUN` compares runs that are trained, `zellige compare --table NAME --minutes 5` the rows of a
paper's table on data at hand, and `zellige compare RUN --samplers` the samplers of one trained model.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from zellige.base import files
from zellige.base.errors import InputError
from zellige.base.requests import declared, inline, option
from zellige.cli import options
from zellige.cli.common import OfModel, load, loading, own_class, put_json, typed_data
from zellige.cli.flags import flags, options_class
from zellige.cli.train import default_size, own_fields
from zellige.data import Data
from zellige.show.numbers import path
from zellige.show.terminal import Terminal

SAMPLERS = "--samplers"
SHOWN = (
    "data.path data.name net.layers net.hidden net.length train.steps train.minutes train.batch train.lr run calls samples draws "
    "limit"
)


def compare(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige compare METHOD METHOD ...`, or `zellige compare RUN --samplers`"""
    if SAMPLERS in options.given(words) and len(leading(words)) < 2:
        return compare_samplers(words, terminal)
    about = "Train several methods with the same network, data and steps, and compare them.\n"
    about += "Runs that are trained already: zellige compare RUN RUN\n"
    about += "The samplers of one model: zellige compare RUN --samplers (-h for its options)\n"
    about += "Samplers of several methods: zellige compare METHOD METHOD --samplers NAME NAME"
    with terminal.waiting("starting"):
        known = flags(form())
        terminal.fields = options.names_of_fields(known)
        typed = options.with_data(known, options.take(known, words, "compare")[0])
        name = typed.get("--table", "")
        size = "" if name else _size(words, typed)
        Options = form(name, size, words, typed)
    arguments: Any = options.parse(Options, words, "compare", terminal, about=about)
    with terminal.waiting("starting"):
        from zellige.methods import reference

        from .request import Compare

        methods = [_own(word) for word in arguments.methods]
        own_classes = [method[0] for method in methods if not isinstance(method, str)]
    values = {field.name: getattr(arguments, field.name) for field in fields(Compare) if field.name != "methods"}
    values |= {"size": size or None, **_settled(values, typed, size)}
    try:
        comparison = Compare(tuple(methods), **values).run(terminal)
    except KeyboardInterrupt:
        terminal.say("stopped; what is finished is kept, the same command goes on")
        return 130
    for line in str(comparison).splitlines():
        terminal.result(line)
    written = [path(comparison.folder / f"{comparison.name}.{end}") for end in ("json", "md", "svg")]
    terminal.result(f"  written   {'   '.join(written)}")
    put_json(terminal, comparison.plain)
    best = comparison.plain["result"]["methods"][0]
    method_option = next((f" --method {path(reference(cls))}" for cls in own_classes if cls.name == best["method"]), "")
    folder = path((comparison.folder / best["folder"]).resolve())
    terminal.try_next(f"zellige sample {folder}{method_option} --watch", f"zellige report {folder}{method_option}")
    return 0


def _size(words: Sequence[str], typed: Mapping[str, Any]) -> str:
    """Return the typed size, or the machine's; "" for trained runs, and for methods that begin with a model."""
    from zellige.models.checkpoint.layout import holds_run

    trained = any(holds_run(Path(word)) for word in leading(words))
    usual = "" if trained else default_size(typed, "", typed.get("--train.device", "auto"))
    return typed.get("--size") or usual


def _settled(values: dict[str, Any], typed: Mapping[str, Any], size: str) -> dict[str, Any]:
    """What is None of trained runs, where nothing is typed; and the training without a size's minutes,
    where steps are."""
    if not size and "--train.start" not in typed and not values["table"]:
        return {name: None for name in ("data", "net") if not any(flag.startswith(f"--{name}.") for flag in typed)}
    minutes = "--train.minutes" in typed or "--train.steps" not in typed
    return {} if minutes else {"train": replace(values["train"], minutes=0.0)}


def leading(words: Sequence[str]) -> list[str]:
    """The words before the first option: of several methods, or of one model."""
    return [*itertools.takewhile(lambda word: not word.startswith("-"), words)]


def compare_samplers(words: Sequence[str], terminal: Terminal) -> int:
    """`zellige compare RUN --samplers`"""
    where = f"compare {SAMPLERS}"
    words = all_samplers(words)
    with terminal.waiting("starting"):
        Options = samplers_form()
    chosen: Any = options.parse(Options, words, where, terminal, about="Compare the samplers of one trained model.")
    if not chosen.run:
        raise InputError(f"{where} needs a trained model; e.g. zellige compare runs/demo {SAMPLERS}")
    out = Path(chosen.request.out or f"{Path(chosen.run)}-samplers")
    with terminal.waiting("starting"):
        from .samplers import check_folder, written

        check_folder(out)
        files.writable((out if out.is_dir() else out.parent if out.parent.is_dir() else Path()) / "samplers.json")
    model = load(terminal, chosen.run, "compare", chosen)
    data = typed_data(chosen, words, model.config.data)
    request = replace(chosen.request, out=str(out), data=data or chosen.request.data, terminal=terminal)
    try:
        record = request.run(model).made_by(request, loading(chosen))
    except KeyboardInterrupt:
        terminal.say("stopped; what is measured is kept, the same command goes on")
        return 130
    for line in str(record).splitlines():
        terminal.result(line)
    terminal.result(f"  written   {'   '.join(map(path, written(out)))}")
    put_json(terminal, record.to_dict())
    return 0


def samplers_form() -> Any:
    """The options of `compare RUN --samplers`, as a dataclass; torch comes with them."""
    from .request import CompareSamplers

    @declared
    class SamplersOptions(OfModel):
        usage = "RUN --samplers [NAME ...] [options]"
        shown = "samplers steps samples limit data.path data.name out batch seed device head"

        request: CompareSamplers = inline(default=CompareSamplers())
        data: Data = option("what to evaluate (default: the data of the run)", default=Data(), of_run=True)

    return SamplersOptions


def all_samplers(words: Sequence[str]) -> list[str]:
    """The command line without a `--samplers` that names none: then all are compared."""
    at = [*words].index(SAMPLERS) if SAMPLERS in words else -1
    names_none = at >= 0 and (at + 1 == len(words) or words[at + 1].startswith("-"))
    return [*words[:at], *words[at + 1 :]] if names_none else [*words]


def _own(word: str) -> Any:
    """A method by name, or the class in `file.py:Class`; either with choices after a colon."""
    where, mark, rest = word.partition(".py:")
    if not mark:
        return word
    title, _, choices = rest.partition(":")
    return own_class(f"{where}.py:{title}"), choices


def form(
    table: str = "", size: str = "", words: Sequence[str] = (), typed: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    """The options, as a dataclass; torch comes with them.

    Args:
        table: of a paper, whose rows say data, network and training.
        size: that says network and training, for the data and the methods that are typed beside it.
    """
    from zellige.methods import METHODS
    from zellige.models.config import Train
    from zellige.nn import Net
    from zellige.training.setup import SIZES

    from .paper import substitute
    from .request import Compare

    usual = substitute(table, None, None, None, 0.0) if table else (Data(), Net(), Train())
    if size:
        names = (word.partition(":")[0] for word in leading(words))
        named = [METHODS[name] for name in names if name in METHODS]
        data, kind = typed.get("--data.name", Data().name), typed.get("--net.kind", "")
        optimizer = typed.get("--train.optimizer", "")
        usual = Data(), *SIZES[size].of(data, *named, kind=kind, optimizer=optimizer)
    about = "two or more, with choices if there are any: mdlm sedd:process=uniform file.py:Class; or folders of trained runs"
    methods = option(about, default=(), argument="METHOD METHOD ...")
    sections = zip(("data", "net", "train"), (Data, Net, Train), usual)
    fields = [
        ("methods", tuple[str, ...], methods),
        *((name, kind, option(default=value)) for name, kind, value in sections),
    ]
    return options_class("Compare", [*fields, *own_fields(Compare)], usage="METHOD METHOD ... [options]", shown=SHOWN)
