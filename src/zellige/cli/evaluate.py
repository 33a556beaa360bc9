"""`zellige evaluate`: one entry for likelihoods, samples, pairs, probes and suites."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import tyro

from ..data import Data
from ..errors import InputError
from ..show.numbers import byte_size, path
from ..show.progress import Bar
from ..show.terminal import Terminal
from . import options
from .common import (
    Estimator,
    OfData,
    command_options,
    load,
    note_change,
    resumable,
    run_folder,
    unfinished_folder,
    write_json,
)
from .evaluate_bracket import bracket
from .evaluate_features import train_features
from .evaluate_generate import generate
from .evaluate_pairs import pairs
from .evaluate_probe import probe
from .evaluate_steps import steps
from .evaluate_suite import suite

if TYPE_CHECKING:
    from ..evaluation.result import Result

MODES = {  # a flag of `evaluate` that makes another command of it
    "--suite": suite,
    "--generate": generate,
    "--pairs": pairs,
    "--probe": probe,
    "--train-features": train_features,
    "--bracket": bracket,
    "--steps": steps,  # last: others have an option of that name
}


@command_options
class Evaluate(OfData):
    estimator: Estimator = "bound"
    ends: str = "model"
    """terms at the ends of time: model, its own; none; or published, as the code of MD4, GenMD4 and D3PM's images has them"""
    unconditional: bool = False
    """of a model with classes, tell it none: a bound on -log p, and not given the class"""
    from_: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """do again what this file says was done"""
    show: bool = False
    """with --from: print what the file holds, evaluate nothing"""


def evaluate(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige evaluate RUN`"""
    flags = options.given(words)
    mode = next((MODES[flag] for flag in MODES if flag in flags), None)
    if mode is not None:
        return mode(words, terminal, began)
    about = f"The likelihood of a text, with its 95% intervals.\n{', '.join(MODES)}: each has its own --help."
    chosen = options.parse(Evaluate, words, "evaluate", about=about, most=1)
    data = chosen.data if any(flag.startswith("--data.") for flag in flags) else None
    recorded = None
    if chosen.show and not chosen.from_:
        raise InputError("--show needs a file; e.g. zellige evaluate --from runs/demo/evaluate-pydocs-test.json --show")
    if chosen.from_:
        from ..evaluation.result import Result
        from ..evaluation.result_json import read_result

        document = read_result(chosen.from_)
        recorded = Result.from_dict(document, chosen.from_)
        if chosen.show:
            _print(terminal, recorded)
            write_json(terminal, "evaluate", None, document, began)
            return 0
        chosen, data = _again(chosen, data, document, flags)
    file = run_folder(chosen.run)
    model = load(terminal, chosen.run, "evaluate", chosen.method, chosen.device)
    from ..evaluation import evaluate as judge
    from ..evaluation import workers

    rank, world = workers.ranks()
    with Bar(terminal, "read", 1, as_text=byte_size) as bar:
        corpus = judge.corpus_of(model, data, progress=lambda done, total: bar.update(done, total=total))
    with resumable(terminal), Bar(terminal, "evaluate", 1, "texts") as bar:
        result = judge.evaluate(
            model, corpus, chosen.split, chosen.draws, chosen.seed, chosen.limit, chosen.batch,
            estimator=chosen.estimator, ends=chosen.ends, unconditional=chosen.unconditional, processes=chosen.processes,
            distributed=world > 1, keep=unfinished_folder(chosen.run, model.config.data.cache),
            progress=lambda done, total: bar.update(done, total=total),
        )  # fmt: skip
    if rank:  # of several, the first one speaks
        return 0
    arguments = {
        "run": chosen.run, "data": None if data is None else dataclasses.asdict(data), "split": chosen.split,
        "draws": chosen.draws, "seed": chosen.seed, "limit": chosen.limit, "batch": chosen.batch,
        "estimator": chosen.estimator, "ends": chosen.ends, "unconditional": chosen.unconditional, "method": chosen.method,
        "device": chosen.device,
    }  # fmt: skip
    _print(terminal, result)
    document = result.to_dict("evaluate", arguments)
    if recorded is not None:
        same = recorded.value == result.value
        terminal.note(f"{path(chosen.from_ or '')} holds {'the same number' if same else str(recorded)}")
    elif file is not None:
        from .evaluate_print import write

        name = write(file, result, document, terminal)
        terminal.result(f"  written   {path(name)}")
        terminal.result(f"  again     zellige evaluate --from {path(name)}")
    write_json(terminal, "evaluate", arguments, document, began)
    return 0


def _again(chosen: Evaluate, data: Data | None, document: dict, flags: set[str]) -> tuple[Evaluate, Data | None]:
    """The options that a result was made with; those given now outrank them."""
    before = document.get("arguments")
    if not isinstance(before, dict) or "run" not in before:
        raise InputError(f"'{chosen.from_}' does not say how it was made; evaluate the run itself")
    before = dict(before)
    made_on = before.pop("data", None)
    if data is None and made_on is not None:
        data = Data(**made_on)
    names = {f.name for f in dataclasses.fields(Evaluate)} - {"data", "from_", "show", "processes"}
    keep = {n: v for n, v in before.items() if n in names and f"--{n}" not in flags and not (n == "run" and chosen.run)}
    return dataclasses.replace(chosen, **keep), data


def _print(terminal: Terminal, result: "Result") -> None:
    from .evaluate_print import describe, heading

    for line in [*heading(result), *describe(result)]:
        terminal.result(line)
    note_change(terminal, result.about)
