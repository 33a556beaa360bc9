"""`zellige evaluate RUN --steps T T ...`: its options, what it prints and writes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from zellige.base.files import file_suffix
from zellige.base.processes import this_process
from zellige.base.requests import declared, inline, option
from zellige.cli.common import OfModel, bars, load, resumable, typed_data, unfinished_folder, write_result
from zellige.cli.evaluate_again import Mode
from zellige.data import Data
from zellige.show.numbers import byte_size, columns, count, counted, decimals, pm
from zellige.show.terminal import Terminal

from .request import CONTINUOUS, EvaluateSteps

if TYPE_CHECKING:
    from .table import StepsTable


@declared
class StepsOptions(OfModel):
    usage = "RUN --steps 32 128 continuous [options]"
    shown = "steps data.path data.name split draws limit seed processes device"

    request: EvaluateSteps = inline(default=EvaluateSteps())
    data: Data = option("what to evaluate (default: the data of the run)", default=Data(), of_run=True)


def steps(chosen: StepsOptions, words: Sequence[str], terminal: Terminal) -> "StepsTable | None":
    """`zellige evaluate RUN --steps T T ...`"""
    model = load(terminal, chosen.run, "evaluate", chosen)
    data = typed_data(chosen, words, model.config.data)
    request, process = replace(chosen.request, data=data), this_process()
    with bars(terminal) as show, resumable(terminal):
        now = [0]
        update = show("evaluate", "texts", lambda: step_name(now[0]))

        def progress(done: int, total: int, T: int) -> None:
            now[0] = T
            update(done, total)

        table = replace(
            request,
            reading=show("read", as_text=byte_size),
            progress=progress,
            distributed=process.world > 1,
            keep=unfinished_folder(chosen.run, model.config.data.cache),
        ).run(model)
    return None if process.rank else replace(table, request=request)


def steps_lines(table: "StepsTable") -> list[str]:
    """Printed lines: a row for each number of steps."""
    from zellige.cli.evaluate_print import heading

    last = table.reference
    beside = step_name(table.steps[table.results.index(last)])
    header = ("steps", f"{last.unit} (95%)", f"perplexity per {last.per}", f"above {beside}, paired")
    rows = [
        (
            step_name(T),
            f"≤ {pm(r.value, r.half)}",
            f"≤ {r.perplexity:.{decimals(r.perplexity)}f}",
            "" if d is None else pm(d.value, d.half),
        )
        for T, r, d in zip(table.steps, table.results, table.apart)
    ]
    grid = getattr(table.request, "grid", "uniform")
    sampler_note = "T steps" if grid == "uniform" else f"T steps on the grid {grid}"
    return [
        *heading(last)[:-1],
        f"{counted(last.draws, 'draw')} of each, the same for all rows",
        "",
        *columns([header, *rows], "<>>>"),
        f"The bound of T steps holds for samples of ancestral in exactly {sampler_note}",
    ]


def save_steps(table: "StepsTable", folder: Path, terminal: Terminal) -> None:
    """Write it into a run; the name has every choice that is not the default's."""
    from zellige.evaluation.result import loaded

    request, last = table.request, table.reference
    assert isinstance(request, EvaluateSteps)
    where = "-".join(filter(None, (last.about["data"], last.about.get("other"), request.split)))
    usual = request.numbers == EvaluateSteps().numbers
    suffix = file_suffix(
        steps=None if usual else [str(T or CONTINUOUS) for T in request.numbers],
        limit=last.sequences if last.partial else None,
        **request.changed("draws", "seed", "grid", "terms"),
        **loaded(last.about, last.protocol),
    )
    write_result(terminal, folder / f"steps-{where}{suffix}.json", table.to_dict())


def step_name(T: int) -> str:
    """`1,024`, or `continuous`."""
    return count(T) if T else CONTINUOUS


STEPS = Mode(
    EvaluateSteps,
    StepsOptions,
    "evaluate --steps",
    "The bound for several numbers of sampling steps.",
    steps,
    steps_lines,
    save_steps,
)
