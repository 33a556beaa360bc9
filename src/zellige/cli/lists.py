"""`zellige list`: what there is to choose from. It needs no torch."""

import dataclasses
import textwrap
from collections.abc import Sequence
from typing import Any, Literal

from ..base.errors import InputError, either, nearest
from ..base.requests import declared, option
from ..show.numbers import wrapped
from ..show.terminal import Terminal
from . import options, tables
from .common import idle_seed, write_json

NONE = {"models": "no models come with this installation", "plugins": "no other package plugs anything in"}
What = Literal["models", "methods", "samplers", "data", "checkpoints", "recipes", "tables", "plugins"]


@declared
class List:
    usage = "models|methods|samplers|data|checkpoints|recipes|tables"

    what: What | None = option(either(tables.LISTS), default=None, argument="[WHAT]")
    seed: int = idle_seed()


def list_(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige list WHAT`; without a word: the names of the lists."""
    if words and not words[0].startswith("-") and words[0] not in tables.LISTS:
        near = nearest(words[0], tables.LISTS)
        hint = f"did you mean '{near}'?" if near else either(tables.LISTS)
        raise InputError(f"unknown list '{words[0]}'; {hint}")
    arguments = options.parse(
        List, words, "list", terminal, about="List what you can choose from; without a name, list these lists."
    )
    rows: Any = (
        tables.table(arguments.what) if arguments.what else [{"name": k, "what": v} for k, v in tables.LISTS.items()]
    )
    header = [*rows[0]] if rows else [NONE[str(arguments.what)]]
    whole = [row for row in rows if row.keys() == rows[0].keys()]
    for line in wrapped([header, *([row[name] for name in header] for row in whole)]):
        terminal.result(line)
    for row in rows[len(whole) :]:  # other names
        indent = max(len(r["name"]) for r in rows) + 2
        text = f"{row['name']:<{indent}}= {row['same as']}"
        for line in textwrap.wrap(text, 80, subsequent_indent=" " * (indent + 2), drop_whitespace=True):
            terminal.result(line)
    if arguments.what in tables.LEGENDS:
        terminal.note(tables.LEGENDS[arguments.what])
    write_json(terminal, "list", dataclasses.asdict(arguments), rows, began)
    return 0
