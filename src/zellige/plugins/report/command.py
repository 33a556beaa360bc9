"""`zellige report`: one page about a run."""

import dataclasses
from collections.abc import Sequence

from zellige.base.errors import InputError
from zellige.base.requests import declared, option
from zellige.cli import options
from zellige.cli.common import Loading, load, writable, write_json
from zellige.show.numbers import byte_size, path
from zellige.show.progress import Bar
from zellige.show.terminal import Terminal


@declared
class Report:
    usage = "RUN [--out FILE]"

    run: str = option("a run, or a saved folder", default="", argument="RUN")
    out: str | None = option("file to write (default: RUN/report.html)", default=None)
    seed: int = option("random seed of the samples shown", default=0, minimum=0)
    method: str | None = option("file.py:Class, for a run of your own method", default=None)


def report(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige report RUN`"""
    arguments = options.parse(Report, words, "report", terminal, about="Write a self-contained HTML page about a run.")
    if not arguments.run:
        raise InputError("report needs a run; e.g. zellige report runs/demo")
    if arguments.out:
        writable(arguments.out, "--out")
    model = load(terminal, arguments.run, "report", Loading(method=arguments.method)) if arguments.method else None
    with Bar(terminal, "draw the report", 1) as bar:
        from . import write

        show_progress = lambda done, total: bar.update(done, total=total)  # noqa: E731
        page = write(arguments.run, arguments.out, model=model, seed=arguments.seed, progress=show_progress)
    terminal.result(f"{path(page)}, {byte_size(page.stat().st_size)}")
    result = {"page": str(page), "bytes": page.stat().st_size}
    write_json(terminal, "report", dataclasses.asdict(arguments), result, began, seed=arguments.seed)
    return 0
