"""`zellige import` and `zellige export`: published models in, and out again."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from zellige.base.errors import InputError
from zellige.base.requests import declared, inline, option
from zellige.cli import options
from zellige.cli.common import write_json
from zellige.cli.flags import options_class
from zellige.show.numbers import count, counted, parameters, path
from zellige.show.terminal import Terminal

from .layout import Choices
from .layouts import LAYOUTS
from .writing import HUB, layout_name


def import_(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige import SOURCE --out DIR`"""
    fields = [
        ("source", str, option("a hub id, a folder or a file of weights", default="", argument="SOURCE")),
        ("out", str, option("folder to write the model into", default="")),
        ("choices", Choices, inline(default=Choices())),
    ]
    form = options_class("Import", fields, usage="SOURCE --out FOLDER [options]")
    about = "Convert a published model into a folder in Zellige's format."
    arguments: Any = options.parse(form, words, "import", terminal, about=about)
    if not arguments.source or not arguments.out:
        raise InputError(
            f"import needs a {'source' if not arguments.source else 'folder'}; "
            f"e.g. zellige import {arguments.source or 'louaaron/sedd-small'} --out models/mine (all: zellige list "
            "checkpoints)"
        )
    choices = {name: value for name, value in dataclasses.asdict(arguments.choices).items() if value is not None}
    with terminal.waiting("loading"):
        from zellige.models.model import load

        model = load(arguments.source, **choices)
    published_entries = model.about.get("published")
    if published_entries is None:
        raise InputError(f"'{arguments.source}' is a model of Zellige's own already; use it as it is")
    with terminal.waiting("writing"):
        folder = model.save(arguments.out)
    net, tokenizer = model.config.net, model.tokenizer
    number = model.method.parameter_count
    average_note = ", averaged (EMA) weights" if published_entries["weights"] == "ema" else ""
    terminal.result(
        f"{model.config.method} from format {published_entries['layout']}, {parameters(number)}, "
        f"{counted(net.layers, 'layer')}, length {count(net.length)}, tokenizer {tokenizer.name}{average_note}"
    )
    terminal.result(f"  written   {path(folder)}")
    terminal.try_next(
        f"zellige sample {path(folder)} --watch", f"zellige export {path(folder)} --out {path(folder)}-back"
    )
    result = {"folder": str(folder), "method": model.config.method, "parameters": number, **published_entries}
    write_json(terminal, "import", {"source": arguments.source, "out": arguments.out, **choices}, result, began)
    return 0


@declared
class Export:
    usage = "MODEL --to LAYOUT --out FOLDER"

    model: str = option("a run, a saved folder or a hub id", default="", argument="MODEL")
    to: str | None = option(
        f"format to write: {', '.join(LAYOUTS)}, or {HUB} for Zellige's own with a model card; default: the format in "
        f"which the model was published, of a model that was trained here {HUB}",
        default=None,
    )
    precision: Literal["float32", "int8"] = option(
        f"int8: 8-bit weights of linear layers, for a CPU, in a quarter of the memory; only with --to {HUB}",
        default="float32",
    )
    out: str = option("folder to write into", default="")


def export(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige export MODEL --to LAYOUT --out DIR`"""
    about = "Save a model in a format that the published code can read."
    arguments = options.parse(Export, words, "export", terminal, about=about)
    if not arguments.model or not arguments.out:
        raise InputError(
            f"export needs a {'model' if not arguments.model else 'folder'}; "
            f"e.g. zellige export {arguments.model or 'runs/mine'} --out exported"
        )
    with terminal.waiting("loading"):
        from zellige.models.model import load

        model = load(arguments.model, precision=arguments.precision)
        layout = layout_name(model.about, arguments.to)
    with terminal.waiting("writing"):
        folder = model.export(arguments.out, arguments.to)
    came = model.about.get("published", {}).get("layout") == layout
    rounded = ", int8" if model.method.precision == "int8" else ""
    terminal.result(f"{model.config.method} in format {layout}{', as it came' if came else ''}{rounded}")
    terminal.result(f"  written   {path(folder)}")
    result = {"folder": str(folder), "layout": layout}
    write_json(terminal, "export", dataclasses.asdict(arguments), result, began)
    return 0
