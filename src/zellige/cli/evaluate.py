"""`zellige evaluate`: one entry for likelihoods, samples, pairs, probes and suites."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import tyro

from ..errors import InputError
from ..launched import this_process
from ..show.numbers import byte_size, path
from ..show.progress import Bar
from ..show.terminal import Terminal
from . import options
from .common import (
    Document,
    Estimator,
    OfData,
    command_options,
    load,
    note_change,
    put_json,
    resumable,
    run_folder,
    typed_data,
    unfinished_folder,
)
from .evaluate_again import again, audit, status
from .evaluate_bounds import Bracket, Pairs, Steps, Suite, bracket, pairs, steps, suite
from .evaluate_classifiers import Probe, probe, train_features
from .generate import Generate, generate

if TYPE_CHECKING:
    from ..evaluation.interval import Proportion
    from ..evaluation.result import Result

MODES: dict[
    str, tuple[Callable[..., Document | None], type]
] = {  # a flag of `evaluate` that makes another command of it
    "--suite": (suite, Suite),
    "--generate": (generate, Generate),
    "--pairs": (pairs, Pairs),
    "--probe": (probe, Probe),
    "--bracket": (bracket, Bracket),
    "--steps": (steps, Steps),  # last: others have an option of that name
}
TRAIN = "--train-features"  # trains, and judges nothing


@command_options
class Evaluate(OfData):
    estimator: Estimator = "bound"
    ends: str = "model"
    """terms at the ends of time: model, its own; jumps, each in one; none; published, as MD4's, GenMD4's, D3PM's code"""
    terms: str = "drawn"
    """of T steps in discrete time: drawn, one of them a draw beside the first and last; all, their sum: T network evaluations"""
    unconditional: bool = False
    """of a model with classes, tell it none: a bound on -log p, and not given the class"""
    from_: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """do again what this file says was done, of any kind, and say whether its number holds"""
    show: bool = False
    """with --from: print what the file holds, evaluate nothing"""
    audit: str | None = None
    """a folder with claims.csv: model, data, protocol, value, unit; computes each, and says which hold"""


def evaluate(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige evaluate RUN`"""
    flags = options.given(words)
    asked = not options.asks_help(words)
    if TRAIN in flags:
        return train_features(words, terminal, began)
    if "--show" in flags and asked:
        return _show(words, terminal)
    if "--audit" in flags and asked:
        document = audit(words, terminal, judge_words)
        put_json(terminal, document)
        return status(document)
    if "--from" in flags and asked:
        classes = {"": Evaluate} | {flag: cls for flag, (_, cls) in MODES.items()}
        document = again(words, terminal, began, judge_words, classes)
    else:
        document = judge_words(words, terminal, began)
    if document is None:  # of several processes, the first one speaks
        return 0
    put_json(terminal, document)
    return 0 if all(document.get("held", {}).values()) else 1


def judge_words(words: Sequence[str], terminal: Terminal, began: float, write: bool = True) -> Document | None:
    """Judge what a command line asks for, and print it; `write`: into the run, if it is one. None: another process speaks."""
    flags = options.given(words)
    mode = next((MODES[flag][0] for flag in MODES if flag in flags), judge_text)
    return mode(words, terminal, began, write)


def judge_text(words: Sequence[str], terminal: Terminal, began: float, write: bool = True) -> Document | None:
    """The likelihood of a text."""
    about = f"The likelihood of a text, with its 95% intervals.\n{', '.join([*MODES, TRAIN])}: each has its own --help."
    chosen = options.parse(Evaluate, words, "evaluate", about=about, most=1)
    file = run_folder(chosen.run) if write else None
    model = load(terminal, chosen.run, "evaluate", chosen)
    data = typed_data(chosen, words, model.config.data)
    from ..evaluation import evaluate as judge

    here = this_process()
    judge.admitted(
        model.method, chosen.estimator, ends=chosen.ends, terms=chosen.terms, draws=chosen.draws, limit=chosen.limit,
        batch=chosen.batch,
    )  # fmt: skip
    with Bar(terminal, "read", 1, as_text=byte_size) as bar:
        corpus = judge.corpus_of(model, data, progress=lambda done, total: bar.update(done, total=total))
    with resumable(terminal), Bar(terminal, "evaluate", 1, "texts") as bar:
        result = judge.evaluate(
            model, corpus, chosen.split, chosen.draws, chosen.seed, chosen.limit, chosen.batch,
            estimator=chosen.estimator, ends=chosen.ends, terms=chosen.terms, unconditional=chosen.unconditional,
            processes=chosen.processes, distributed=here.world > 1, keep=unfinished_folder(chosen.run, model.config.data.cache),
            progress=lambda done, total: bar.update(done, total=total),
        )  # fmt: skip
    if here.rank:
        return None
    from ..evaluation.tasks import task_shares

    with Bar(terminal, "try", 1, "steps") as bar:
        shares = task_shares(
            model, corpus, chosen.split, chosen.limit, chosen.seed, lambda done, total: bar.update(done, total=total)
        )
    arguments = {
        "run": chosen.run, "data": None if data is None else dataclasses.asdict(data), "split": chosen.split,
        "draws": chosen.draws, "seed": chosen.seed, "limit": chosen.limit, "batch": chosen.batch,
        "estimator": chosen.estimator, "ends": chosen.ends, "terms": chosen.terms, "unconditional": chosen.unconditional,
        "method": chosen.method, "device": chosen.device, "precision": chosen.precision,
    }  # fmt: skip
    _print(terminal, result, shares)
    document = result.to_dict("evaluate", arguments)
    if shares:
        document["result"]["tasks"] = {name: share.to_dict() for name, share in shares.items()}
    if file is not None:
        from .evaluate_print import write as write_into

        name = write_into(file, result, document, terminal)
        terminal.result(f"  written   {path(name)}")
        terminal.result(f"  again     zellige evaluate --from {path(name)}")
    return document


def _show(words: Sequence[str], terminal: Terminal) -> int:
    """What a file of a likelihood holds, as it was printed."""
    from ..evaluation.result import Result, read_result

    chosen = options.parse(Evaluate, words, "evaluate", most=1)
    if not chosen.from_:
        raise InputError("--show needs a file; e.g. zellige evaluate --from runs/demo/evaluate-pydocs-test.json --show")
    document = read_result(chosen.from_)
    _print(terminal, Result.from_dict(document, chosen.from_))
    put_json(terminal, document)
    return 0


def _print(terminal: Terminal, result: "Result", shares: "dict[str, Proportion] | None" = None) -> None:
    from .evaluate_print import describe, heading, tasks

    for line in [*heading(result), *describe(result), *tasks(shares or {})]:
        terminal.result(line)
    note_change(terminal, result.about)
