"""`zellige evaluate RUN --steps 32 128 continuous`: the bound of one model against its number of steps (MD4's ablation)."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..arguments import is_number
from ..errors import InputError
from ..launched import this_process
from ..show.numbers import byte_size, columns, count, counted, decimals, pm
from ..show.progress import Bar
from ..show.record import json_record
from ..show.terminal import Terminal
from . import options
from .common import (
    Document,
    OfData,
    command_options,
    file_suffix,
    load,
    note_change,
    resumable,
    run_folder,
    typed_data,
    unfinished_folder,
    write_result,
)  # fmt: skip

CONTINUOUS = "continuous"


@command_options
class Steps(OfData):
    steps: tuple[str, ...] = ("32", "128", "512", CONTINUOUS)
    """numbers of steps, and "continuous"; also 32,128,continuous"""


def steps(words: Sequence[str], terminal: Terminal, began: float, write: bool = True) -> Document | None:
    """`zellige evaluate RUN --steps T T ... continuous`"""
    chosen = options.parse(Steps, words, "evaluate --steps", about="The bound against the number of steps.", most=1)
    wanted = [_steps(word) for words in chosen.steps for word in words.split(",") if word]
    if not wanted:
        raise InputError("--steps needs a number of steps; e.g. --steps 32 128 continuous")
    model = load(terminal, chosen.run, "evaluate", chosen)
    data = typed_data(chosen, words, model.config.data)
    from ..evaluation import evaluate as judge
    from ..evaluation.result import difference
    from .evaluate_print import heading

    here = this_process()
    for T in wanted:
        judge.admitted(model.method, steps=T, draws=chosen.draws, limit=chosen.limit, batch=chosen.batch)
    with Bar(terminal, "read", 1, as_text=byte_size) as bar:
        corpus = judge.corpus_of(model, data, progress=lambda done, total: bar.update(done, total=total))
    results = []
    with resumable(terminal), Bar(terminal, "evaluate", 1, "texts") as bar:
        for T in wanted:
            result = judge.evaluate(
                model, corpus, chosen.split, chosen.draws, chosen.seed, chosen.limit, chosen.batch, steps=T,
                processes=chosen.processes, distributed=here.world > 1,
                keep=unfinished_folder(chosen.run, model.config.data.cache),
                progress=lambda done, total, T=T: bar.update(done, _name(T), total=total),
            )  # fmt: skip
            results.append(result)
    if here.rank:
        return None
    last = results[wanted.index(0)] if 0 in wanted else results[-1]
    apart = [None if r is last else difference(r, last) for r in results]
    for line in [*heading(last)[:-1], f"{counted(last.draws, 'draw')} of each, the same for all rows", ""]:
        terminal.result(line)
    beside = _name(wanted[results.index(last)])
    header = ("steps", f"{last.unit} (95%)", f"perplexity per {last.per}", f"above {beside}, paired")
    rows = [
        (
            _name(T),
            f"≤ {pm(r.value, r.half)}",
            f"≤ {r.perplexity:.{decimals(r.perplexity, 'per ')}f}",
            "" if d is None else pm(d.value, d.half),
        )
        for T, r, d in zip(wanted, results, apart)
    ]
    for line in columns([header, *rows], "<>>>"):
        terminal.result(line)
    terminal.result("T steps bound the samples of ancestral in T steps, and those of no other number")
    note_change(terminal, last.about)
    document = json_record(
        "evaluate", dataclasses.asdict(chosen) | {"data": None if data is None else dataclasses.asdict(data)},
        {
            "steps": [_row(T, r, d) for T, r, d in zip(wanted, results, apart)], "partial": last.partial or None,
            "about": last.about,
        },
        unit=last.unit, kind=last.kind, protocol=last.protocol, seed=chosen.seed, seconds=sum(r.seconds or 0 for r in results),
    )  # fmt: skip
    folder = run_folder(chosen.run) if write else None
    if folder is not None:
        where = "-".join(filter(None, (last.about["data"], last.about.get("other"), chosen.split)))
        suffix = file_suffix(
            steps=None if wanted == [_steps(word) for word in Steps.steps] else [str(T or CONTINUOUS) for T in wanted],
            limit=last.sequences if last.partial else None, draws=chosen.draws if chosen.draws != Steps.draws else None,
            seed=chosen.seed or None,
        )  # fmt: skip
        write_result(terminal, folder / f"steps-{where}{suffix}.json", document)
    return document


def _name(T: int) -> str:
    return count(T) if T else CONTINUOUS


def _row(T: int, r: Any, d: Any) -> dict[str, Any]:
    entries = r.to_dict(None)
    above = None if d is None else {"value": d.value, "low": d.low, "high": d.high}
    return {"steps": T or None, "above": above} | {k: entries[k] for k in ("result", "interval", "protocol")}


def _steps(word: str) -> int:
    if word == CONTINUOUS:
        return 0
    if not is_number(word) or int(word) < 1:
        raise InputError(f"--steps is '{word}'; it must be a whole number of 1 or more, or {CONTINUOUS}")
    return int(word)
