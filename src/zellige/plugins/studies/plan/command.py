"""`zellige plan RECIPE`, `plan METHOD` or `plan TABLE`: what a training, or each of a paper's table, takes on GPUs that
are not at hand; nothing is trained or read.

Its options are those of `zellige train`, and which devices.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from zellige.base.errors import InputError, unknown
from zellige.cli import options, train
from zellige.cli.common import put_json
from zellige.cli.flags import flags
from zellige.cli.train import About
from zellige.papers.tables import TABLES
from zellige.show.numbers import byte_size, columns, count, counted, duration, parameters, percent, scaled, token_rate
from zellige.show.terminal import Terminal

from .request import Plan, PlanTable

if TYPE_CHECKING:
    from .estimate import Budget, TableBudget


ABOUT = About(
    "plan",
    Plan,
    ("folder", "resume", "overwrite", "epochs"),
    "Estimate memory, time and cost of a training on GPUs you do not have.",
    "RECIPE or METHOD [options]",
    "gpus device mfu price vocabulary size config net.layers net.hidden net.length net.checkpoint train.steps "
    "train.batch train.accumulate train.precision",
)
form = ABOUT.form


def plan(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige plan RECIPE`, `plan METHOD` or `plan TABLE`: the rest is flags."""
    ABOUT.help(words, terminal)
    if not words:
        raise InputError("plan needs a recipe, a method or a table; e.g. zellige plan mdlm-owt --gpus 8 --device h100")
    if words[0] in TABLES:
        return _plan_table(words[0], words[1:], terminal, began)
    request, rest = ABOUT.split(words, terminal)
    with terminal.waiting("starting"):
        from zellige.methods import METHODS
        from zellige.papers.recipes import RECIPES
        from zellige.training.device import DEVICES
        from zellige.training.notes import exporting

        _ = DEVICES[request.device]
    names = {*RECIPES, *METHODS, *TABLES}
    if rest and not rest[0].startswith("-") and rest[0] not in names and ".py:" not in rest[0]:
        raise unknown("recipe, method or table", rest[0], names, "zellige list recipes, methods or tables")
    rest = ["--recipe", *rest] if rest and rest[0] in RECIPES else rest
    if wrong := next((f for f in ("--run", "--resume", "--overwrite", "--epochs") if f in options.given(rest)), None):
        raise InputError(f"plan has no {wrong}: nothing is trained or read; say --train.steps and --net.length")
    # the size is that of a GPU
    training, _ = train.choose(rest, terminal, "plan", default={"--train.device": "cuda"})
    complete = training.filled()
    terminal.fields |= options.names_of_fields(flags(Plan))
    with terminal.waiting("counting"):
        result = replace(request, training=complete).run()
    for line in _lines(complete.recipe or complete.name, request, result):
        terminal.result(line)
    if note := exporting(complete.config):
        terminal.say(note)
    put_json(terminal, result.to_dict() | {"seconds": time.monotonic() - began})
    return 0


def _plan_table(name: str, words: Sequence[str], terminal: Terminal, began: float) -> int:
    arguments = options.parse(
        PlanTable, words, "plan", terminal, about=f"Estimate what each row of {TABLES[name].title} costs."
    )
    with terminal.waiting("starting"):
        from zellige.training.device import DEVICES

        _ = DEVICES[arguments.device]
    with terminal.waiting("counting"):
        result = replace(arguments, table=name).run()
    for line in _table_lines(arguments, result):
        terminal.result(line)
    put_json(terminal, result.to_dict() | {"seconds": time.monotonic() - began})
    return 0


def _table_lines(chosen: PlanTable, planned: "TableBudget") -> list[str]:
    table = TABLES[planned.table]
    head = ["row", str(table.columns[0]), "recipe", "FLOP", "memory", "GPU hours", *(["cost"] if chosen.price else [])]
    rows, notes = [head], list[str]()
    for row in table.rows:
        budget = planned.budgets.get(row.recipe)
        cells = ["-"] * (len(head) - 3)
        if budget is not None:
            cells = [f"{budget.cost.flops:.1e}", byte_size(budget.ddp.total), count(budget.gpu_hours)]
            cells += [] if budget.price is None else [count(budget.price)]
        rows.append([row.name, table.shown(row)[0], row.recipe or "-", *cells])
        note = row.remark if not row.recipe else planned.reasons.get(row.recipe, "")
        notes += [f"  {row.name}: {note}"] if note else []
    whole = f"each recipe once: {count(planned.gpu_hours)} GPU hours on {chosen.gpus} x {chosen.device}"
    return [
        f"{table.title}: {table.what}; {table.protocol}",
        *columns(rows, "<<<" + ">" * (len(head) - 3)),
        f"  {whole}",
        *notes,
    ]


def _lines(title: str, chosen: Plan, planned: "Budget") -> list[str]:
    from .estimate import LAUNCH, LAUNCH_SOURCE, PARTS

    p, device = planned, planned.device
    peak = f"{device.peak(p.precision) / 1e12:.0f} TFLOP/s"
    sizes = lambda memory: [byte_size(getattr(memory, part)) for part in PARTS]  # noqa: E731
    titles = {"ddp": "ddp", "fsdp": "fsdp"} | ({"hybrid": f"hybrid, {p.node} a node"} if p.node < p.gpus else {})
    ways = {title: p.ways[name] for name, title in titles.items() if name in p.ways}
    table = columns(
        [["memory of each", *ways], *zip(PARTS.values(), *map(sizes, ways.values()))], "<" + ">" * len(ways), 2, 3
    )
    price = "" if p.price is None else f"   cost {count(p.price)}"
    lines = [
        f"{title} on {p.gpus} x {chosen.device}, {p.precision}   {counted(p.rows, 'sequence')} per GPU at a time",
        f"  {parameters(p.cost.parameters)}   {scaled(p.cost.tokens)} tokens   {p.cost.flops:.1e} FLOP",
        *table,
        f"  {token_rate(p.tokens_per_second)} at {percent(p.reached)} of {peak}   {_time(p.seconds)} a step",
        f"  {_time(3600 * p.hours)} in all   {count(p.gpu_hours)} GPU hours{price}",
    ]
    launch_note = f"{count(p.launches)} kernels, {1e6 * LAUNCH:g} us or more to launch each, {_time(p.launching)}"
    parts = f"  of a step: products {_time(p.products)}; {launch_note}; memory {_time(p.traffic)}"
    sources = [f"  {chosen.device}: {device.source}", f"  {LAUNCH_SOURCE}"]
    return [*lines, f"  limit: {_limit(p)}", parts, *sources]


def _limit(p: "Budget") -> str:
    """Limiting resource, in words."""
    have = byte_size(p.device.memory)
    if p.limit == "memory":
        return f"memory, {have} each; more --train.accumulate, --net.checkpoint or more --gpus take less"
    only = "" if p.ddp.total <= p.device.memory else f"; in {have} only with --train.strategy fsdp"
    return f"{p.limit}{only}"


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else duration(seconds)
