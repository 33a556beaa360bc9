"""`zellige evaluate`: one entry for likelihoods, samples, pairs, probes and suites."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError
from ..base.plugins import Fits, Registry, named, ours
from ..base.processes import this_process
from ..base.requests import declared, inline, option
from ..data import Data
from ..evaluation.requests import Evaluate
from ..show.numbers import byte_size, path
from ..show.record import Record, read_document
from ..show.terminal import Terminal
from . import options
from .common import (
    OfModel,
    bars,
    load,
    loading,
    note_change,
    put_json,
    resumable,
    typed_data,
    unfinished_folder,
    with_sampler,
)
from .evaluate_again import Mode, again, audit, status
from .flags import flags

if TYPE_CHECKING:
    from ..evaluation.result import Result

EVALUATIONS: Registry[Mode] = Registry(  # by the flag that makes another command of `evaluate`, without its dashes
    "evaluation",
    "zellige evaluate -h",
    "zellige.evaluations",
    Fits(lambda value: isinstance(value, Mode), "a zellige.cli.evaluate_again.Mode"),
)
TRAIN = "--train-features"  # trains, and judges nothing


@declared
class EvaluateOptions(OfModel):
    shown = "data.path data.name split draws limit seed estimator from device"

    request: Evaluate = inline(default=Evaluate())
    data: Data = option("what to evaluate (default: the data of the run)", default=Data(), of_run=True)
    from_: str | None = option(
        "repeat the evaluation behind this result and compare; a JSON file that evaluate wrote",
        default=None,
        flag="from",
    )
    show: bool = option("with --from: only print the result that is in the file", default=False)
    audit: str | None = option(
        "check the numbers claimed in a folder's claims.csv (columns model, data, protocol, value, unit)", default=None
    )


def evaluate(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige evaluate RUN`"""
    given = options.given(words)
    runs = not options.asks_help(words)
    if TRAIN in given:
        return named(ours("zellige.trainings")[TRAIN])(words, terminal, began)
    if "--show" in given and runs:
        return _show(words, terminal)
    if "--audit" in given and runs:
        document = audit(*_taken("--audit", words), terminal, judge_words)
        put_json(terminal, document)
        return status(document)
    if "--from" in given and runs:
        document = again(*_taken("--from", words), terminal, judge, _all_modes())
    else:
        record = judge_words(words, terminal, began)
        document = None if record is None else record.to_dict()
    if document is None:  # of several processes, the first one speaks
        return 0
    put_json(terminal, document)
    return 0 if all(document.get("held", {}).values()) else 1


def _taken(name: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """The value of an option, and the command line without the two."""
    values, rest = options.take({name: flags(EvaluateOptions)[name]}, words, "evaluate")
    return values[name], rest


def judge_words(words: Sequence[str], terminal: Terminal, began: float, write: bool = True) -> Record | None:
    """Judge what a command line asks for, and print it; `write`: into the run, if it is one. None:
    another process speaks."""
    mode = mode_of(words)
    words = [word for word in words if word != "--generate"]  # the one flag of a mode that is no option of it
    form = with_sampler(mode.options, words)
    return judge(mode, options.parse(form, words, mode.where, terminal, about=mode.about), words, terminal, write)


def mode_of(words: Sequence[str]) -> Mode:
    """What a command line of `evaluate` asks for: by its flag, and by the value of that flag."""
    typed = options.given(words)
    strange = [flag.removeprefix("--") for flag in typed - flags(EvaluateOptions).keys()]
    name = next((n for n in [*EVALUATIONS.names(), *strange] if f"--{n}" in typed and n in EVALUATIONS), None)
    if name is None:
        return BOUND
    mode = EVALUATIONS[name]
    return mode.others.get(re.split("[:/]", options.value_of(words, f"--{name}"))[0], mode)


def _all_modes() -> list[Mode]:
    modes = [EVALUATIONS[name] for name in EVALUATIONS.names()]
    return [BOUND, *modes, *(other for mode in modes for other in mode.others.values())]


def judge(mode: Mode, chosen: Any, words: Sequence[str], terminal: Terminal, write: bool = True) -> Record | None:
    """Judge what the options of a mode ask for, and print it; `write`: into the run, if it is one."""
    folder = mode.folder(chosen) if write else None
    record = mode.run(chosen, words, terminal, *([folder] if mode.early else []))
    if record is None:
        return None
    record = record.made_by(record.request, loading(chosen))
    for line in mode.lines(record):
        terminal.result(line)
    note_change(terminal, record.about)
    if folder is not None:
        mode.save(record, folder, terminal, *([chosen] if mode.early else []))
    return record


def bound(chosen: EvaluateOptions, words: Sequence[str], terminal: Terminal) -> "Result | None":
    """The likelihood of a data set, and what its task asks."""
    model = load(terminal, chosen.run, "evaluate", chosen)
    data = typed_data(chosen, words, model.config.data)
    request, process = replace(chosen.request, data=data), this_process()
    request.admitted(model)
    with bars(terminal) as show, resumable(terminal):
        from ..evaluation.corpus import corpus_of
        from ..evaluation.tasks import task_shares
        from ..models.averaged import averaged

        corpus = corpus_of(model, data, show("read", as_text=byte_size), request.split)
        result = replace(
            request,
            data=corpus,
            progress=show("evaluate", "texts"),
            distributed=process.world > 1,
            keep=unfinished_folder(chosen.run, model.config.data.cache),
        ).run(model)
        if process.rank:
            return None
        model = averaged(model, request.symmetries)
        shares = task_shares(model, corpus, request.split, request.limit, request.seed, show("try", "steps"))
    return replace(result, tasks=shares, request=request)


def bound_lines(result: "Result") -> list[str]:
    """Printed lines of a likelihood."""
    from .evaluate_print import describe, heading, tasks

    return [*heading(result), *describe(result), *tasks(result.tasks)]


def save_bound(result: "Result", folder: Path, terminal: Terminal) -> None:
    """Write it into a run, beside the others."""
    from .evaluate_print import write

    name = write(folder, result, terminal)
    terminal.result(f"  written   {path(name)}")
    terminal.result(f"  again     zellige evaluate --from {path(name)}")


TITLE = "Likelihood of held-out text. RUN: a folder, an included model or a hub id."
FRONTIER = ("--generate --frontier", "Perplexity against entropy, as a curve.")
FEATURES = (f"{TRAIN} FOLDER", "Train an image classifier for FID and KID.")


def _modes() -> str:
    """The other commands of `evaluate`, a line each, for its help."""
    order = ("generate", "steps", "bracket", "suite", "pairs", "probe")
    modes = [EVALUATIONS[name] for name in [*order, *(n for n in EVALUATIONS.names() if n not in order)]]
    titles = {mode.options.usage: mode.about for mode in modes}
    lines = [(usage.removeprefix("RUN ").removesuffix(" [options]"), about) for usage, about in titles.items()]
    lines = [lines[0], FRONTIER, *lines[1:], FEATURES]
    wide = max(len(usage) for usage, _ in lines) + 2
    table = [f"  {usage:<{wide}}{about.rstrip('.')}" for usage, about in lines]
    return "\n".join(["Other evaluations (each has its own -h):", *table])


BOUND = Mode(Evaluate, EvaluateOptions, "evaluate", f"{TITLE}\n{_modes()}", bound, bound_lines, save_bound)


def _show(words: Sequence[str], terminal: Terminal) -> int:
    """Contents of a file of a likelihood, as they were printed."""
    from ..evaluation.result import Result

    arguments = options.parse(EvaluateOptions, words, "evaluate", terminal)
    if not arguments.from_:
        raise InputError(
            "--show needs a file; e.g. zellige evaluate --from runs/demo/evaluate-stories-test.json --show"
        )
    document = read_document(arguments.from_, "zellige evaluate")
    result = Result.from_dict(document, arguments.from_)
    for line in bound_lines(result):
        terminal.result(line)
    note_change(terminal, result.about)
    put_json(terminal, document)
    return 0
