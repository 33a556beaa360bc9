"""`zellige verify`: the identities of the methods and samplers, checked by enumeration."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from zellige.cli import options
from zellige.cli.common import IdleSeed, own_class, write_json
from zellige.show.numbers import escape
from zellige.show.progress import Bar
from zellige.show.terminal import Terminal


@dataclass(frozen=True)
class Verify:
    methods: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[METHOD ...]")] = ()
    """names, or file.py:Class; all if none is given"""
    only: str | None = None
    """only checks whose name begins so: bound.closed-form, sampler"""
    sampler: str | None = None
    """only the checks of this sampler"""
    seed: IdleSeed = 0


def verify(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige verify [METHOD ...]`; exit code 1 if an identity does not hold."""
    arguments = options.parse(
        Verify,
        words,
        "verify",
        terminal,
        about="Check the formulas on examples small enough to enumerate (default: all methods).",
        most=10**9,
    )
    with terminal.waiting("starting"):
        from . import verify as checks

        classes = [own_class(name) for name in arguments.methods]
    with Bar(terminal, "verify", 1, "checks") as bar:
        report = checks.verify(
            *classes, only=arguments.only, sampler=arguments.sampler,
            progress=lambda done, total, name: bar.update(done, name, total),
        )  # fmt: skip
    for line in report.lines():
        head, gap, word = escape(line).rpartition("  ")
        style = {"ok": "green", "FAIL": "red"}.get(word, "")
        terminal.result(head + gap + (terminal.paint(word, style, out=True) if style else word), painted=True)
    write_json(terminal, "verify", dataclasses.asdict(arguments), report.to_json(), began)
    return 0 if report.ok else 1
