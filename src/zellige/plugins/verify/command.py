"""`zellige verify`: the identities of the methods and samplers, checked by enumeration."""

import dataclasses
from collections.abc import Sequence

from zellige.base.requests import declared, option
from zellige.cli import options
from zellige.cli.common import idle_seed, own_class, write_json
from zellige.show.numbers import escape
from zellige.show.progress import Bar
from zellige.show.terminal import Terminal


@declared
class Verify:
    usage = "[METHOD ...]"

    methods: tuple[str, ...] = option(
        "names, or file.py:Class; all if none is given", default=(), argument="[METHOD ...]"
    )
    only: str | None = option("only checks whose name begins so: bound.closed-form, sampler", default=None)
    sampler: str | None = option("only the checks of this sampler", default=None)
    seed: int = idle_seed()


def verify(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige verify [METHOD ...]`; exit code 1 if an identity does not hold."""
    arguments = options.parse(
        Verify,
        words,
        "verify",
        terminal,
        about="Check the formulas on examples small enough to enumerate (default: all methods).",
    )
    with terminal.waiting("starting"):
        from . import verify as checks

        classes = [own_class(name) for name in arguments.methods]
    with Bar(terminal, "verify", 1, "checks") as bar:
        report = checks.verify(
            *classes,
            only=arguments.only,
            sampler=arguments.sampler,
            progress=lambda done, total, name: bar.update(done, name, total),
        )
    for line in report.lines():
        head, gap, word = escape(line).rpartition("  ")
        style = {"ok": "green", "FAIL": "red"}.get(word, "")
        terminal.result(head + gap + (terminal.paint(word, style, out=True) if style else word), painted=True)
    write_json(terminal, "verify", dataclasses.asdict(arguments), report.to_json(), began)
    return 0 if report.ok else 1
