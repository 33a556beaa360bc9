"""`zellige sweep METHOD`: a training for each combination of options that have several values, and which came out best.

A trial is what `zellige train` does with one value of each: a run, in a folder of its own in that of the sweep. The
same command again goes on where it was stopped, since what is finished is there.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from zellige.base.errors import InputError
from zellige.cli import options, train
from zellige.cli.common import put_json
from zellige.cli.flags import Flag, flags
from zellige.cli.meanings import same_value
from zellige.cli.train import About
from zellige.show.numbers import columns, path
from zellige.show.progress import TrainingPart
from zellige.show.terminal import Terminal

from .search import Axis
from .sweep import Sweep, record_file

ABOUT = About(
    "sweep",
    Sweep,
    ("folder", "resume", "overwrite"),
    "Train every combination of the options that have several values.",
    "METHOD --train.lr 1e-3,2e-3 [options]",
    "run trials search size config data.path data.name net.layers net.hidden net.length train.steps epochs train.batch "
    "train.lr train.seed",
)
form = ABOUT.form


class _Progress(TrainingPart):
    """The bar alone: what each validation came to stands in the run's metrics.csv."""

    def validated(self, step: int, result: object, sample: str | None = None, best: bool = False) -> None: ...


def sweep(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige sweep METHOD`: the rest is flags."""
    ABOUT.help(words, terminal)
    if not words:
        raise InputError("sweep needs a method; e.g. zellige sweep mdlm --data.path notes/ --train.lr 1e-3,2e-3")
    request, rest = ABOUT.split(words, terminal)
    with terminal.waiting("starting"):
        from zellige.methods import reference

        from .search import require_optuna
    if request.search == "tpe":
        require_optuna()
    axes, constants = _axes(rest)
    if wrong := next((flag for flag in ("--resume", "--overwrite") if flag in rest), None):
        raise InputError(f"sweep has no {wrong}: it goes on with what is in --run; give it another folder")
    if not axes:
        raise InputError("sweep needs an option with several values; e.g. --train.lr 1e-3,2e-3")
    varied = [f"{axis.option}={axis.values[0]}" for axis in axes]
    training, known = train.choose(constants, terminal, "sweep", varied)
    axes = tuple(with_setting(axis, known) for axis in axes)
    terminal.fields |= options.names_of_fields(flags(Sweep))
    say = str if terminal.quiet else terminal.say
    record = replace(request, training=training, axes=axes).run(say, lambda: _Progress(terminal))
    for line in columns(record.table(), ">" * len(record.names) + "<>><"):
        terminal.result(line)
    terminal.result(f"  written   {path(record_file(Path(request.folder)))}")
    put_json(terminal, record.to_dict() | {"seconds": time.monotonic() - began})
    if record.best.error:
        return 1
    method_option = "" if isinstance(training.method, str | None) else f" --method {path(reference(training.method))}"
    terminal.try_next(
        *(
            f"zellige {command} {path(record.best.folder)}{method_option}"
            for command in ("evaluate", "report", "sample")
        )
    )
    return 0


def _axes(words: Sequence[str]) -> tuple[list[Axis], list[str]]:
    """The options that have several values, and the rest of the command line."""
    from .search import Axis

    axes, constants, rest = list[Axis](), list[str](), [*words]
    while rest:
        word = rest.pop(0)
        name, equals, text = word.partition("=")
        if word.startswith("--") and not equals and rest and not rest[0].startswith("--"):
            text = rest.pop(0)
        may_vary = word.startswith("--") and name not in ("--data.mix", "--mix")  # one mixture has commas
        axis = Axis.of(name, text) if may_vary else None
        if axis is not None:
            axes.append(axis)
        else:
            constants += [word] if equals or not text else [word, text]
    return axes, constants


def with_setting(axis: Axis, known: dict[str, Flag]) -> Axis:
    """An axis with the name of its setting, and its values as the library calls them."""
    flag = options.flag_of(axis.option, known)
    assert flag is not None  # it is read already, with one of the values
    if flag.name == "--config":
        raise InputError("--config is one file of options; give several values to the options themselves")
    values = tuple(same_value(value, flag.words) for value in axis.values)
    for value in values:
        flag.of_text(value)
    return replace(axis, values=values, setting=train.setting(flag))
