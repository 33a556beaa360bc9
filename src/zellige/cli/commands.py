"""The commands, one function each: (words after the command, terminal, when it began) -> exit code.

Their options are frozen dataclasses; what they do is one call of the Python interface; what remains here is what is printed.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..errors import InputError
from ..show.numbers import byte_size, columns, escape, path
from ..show.progress import Bar
from ..show.terminal import Terminal
from . import help, options
from .common import Run, load, own_class, writable, write_json

if TYPE_CHECKING:
    pass


# ---------------------------------------------------------------------------------------------------------- evaluate


# ---------------------------------------------------------------------------------------------- verify, report, demo
@dataclass(frozen=True)
class Verify:
    methods: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """names, or file.py:Class; all if none is given"""
    only: str | None = None
    """a check, or the beginning of its name: bound.closed-form, sampler"""
    sampler: str | None = None
    """the checks of one sampler only"""
    seed: int = 0
    """changes nothing: nothing is drawn at random"""


def verify(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige verify [METHOD ...]`; exit code 1 if an identity does not hold."""
    chosen = options.parse(Verify, words, "verify", about="Check the identities by enumeration.", most=10**9)
    with terminal.waiting("starting"):
        from ..exact import verify as checks

        classes = [own_class(name) for name in chosen.methods]
    with Bar(terminal, "verify", 1, "checks") as bar:
        report = checks.verify(
            *classes, only=chosen.only, sampler=chosen.sampler,
            progress=lambda done, total, name: bar.update(done, name, total),
        )  # fmt: skip
    for line in report.lines():
        head, gap, word = escape(line).rpartition("  ")
        style = {"ok": "green", "FAIL": "red"}.get(word, "")
        terminal.result(head + gap + (terminal.paint(word, style, out=True) if style else word), painted=True)
    write_json(terminal, "verify", dataclasses.asdict(chosen), report.to_json(), began)
    return 0 if report.ok else 1


@dataclass(frozen=True)
class Report:
    run: Run = ""
    """a run, or a saved folder"""
    out: str | None = None
    """the page; RUN/report.html if not given"""
    seed: int = 0
    """of the samples that are shown"""
    method: str | None = None
    """file.py:Class of a run with an own method"""


def report(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige report RUN`"""
    chosen = options.parse(Report, words, "report", about="One self-contained page about a run.", most=1)
    if not chosen.run:
        raise InputError("report needs a run; e.g. zellige report runs/demo")
    if chosen.out:
        writable(chosen.out, "--out")
    model = load(terminal, chosen.run, "report", chosen.method, "auto") if chosen.method else None
    with terminal.waiting("drawing"):
        from ..report import write

        page = write(chosen.run, chosen.out, model=model, seed=chosen.seed)
    terminal.result(f"{path(page)}, {byte_size(page.stat().st_size)}")
    result = {"page": str(page), "bytes": page.stat().st_size}
    write_json(terminal, "report", dataclasses.asdict(chosen), result, began, seed=chosen.seed)
    return 0


@dataclass(frozen=True)
class Demo:
    steps: int | None = None
    """training steps; fewer than the default make a short run, of which nothing is claimed"""
    run: str | None = None
    """the folder; the first free one of runs/demo, runs/demo-2, ... if not given"""
    seed: int = 0


def demo(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige demo`"""
    chosen = options.parse(Demo, words, "demo", about="Train a small model here and now, and watch it write.")
    from .demo import demo

    how: dict[str, Any] = {"run": chosen.run, "seed": chosen.seed}
    if chosen.steps is not None:
        how["steps"] = chosen.steps
    code = demo(terminal, **how)
    write_json(terminal, "demo", dataclasses.asdict(chosen), {"exit": code}, began, seed=chosen.seed)
    return code


# --------------------------------------------------------------------------------------------------------------- list
@dataclass(frozen=True)
class List:
    what: Annotated[Literal["methods", "samplers", "data", "checkpoints"] | None, tyro.conf.Positional] = None
    seed: int = 0
    """changes nothing"""


def list_(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige list methods|samplers|data|checkpoints`; without a word: these four."""
    chosen = options.parse(List, words, "list", about="What there is to choose from.", most=1)
    rows: Any = help.table(chosen.what) if chosen.what else [{"name": k, "what": v} for k, v in help.LISTS.items()]
    header = [*rows[0]]
    whole = [row for row in rows if row.keys() == rows[0].keys()]
    for line in columns([header, *([row[name] for name in header] for row in whole)], "<" * len(header)):
        terminal.result(line)
    for row in rows[len(whole) :]:  # other names
        terminal.result(f"{row['name']:<{max(len(r['name']) for r in rows) + 2}}= {row['same as']}")
    write_json(terminal, "list", dataclasses.asdict(chosen), rows, began)
    return 0
