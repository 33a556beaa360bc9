"""`zellige evaluate RUN --bracket`: -log p from above and from below, and the exact values of the laws that have one."""

import dataclasses
import io
import textwrap
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ..data import Data
from ..show.numbers import columns, count, counted, path, pm, quantity
from ..show.progress import Bar
from ..show.record import as_file
from ..show.terminal import Terminal
from . import options
from .common import (
    Document,
    OfTexts,
    command_options,
    file_suffix,
    load,
    note_change,
    of_model,
    resumable,
    run_folder,
    typed_data,
    unfinished_folder,
)

if TYPE_CHECKING:
    from ..evaluation.bracket import Bracket as Result
    from ..evaluation.bracket import BracketRow


@command_options
class Bracket(OfTexts):
    bracket: bool = False
    """-log p from above (importance-weighted) and from below (TUBE); exact of an order, and of the surest-first samplers"""
    data: Data = field(default_factory=Data)
    """another data set than the run's own, or where that lies"""
    split: str = "test"
    """train, validation or test"""
    limit: int | None = 16
    """so many texts, evenly spaced"""
    numbers: tuple[int, ...] = (1, 8, 64, 512)
    """draws of one estimate; each divides the largest, and of each text four times the largest are drawn"""
    orders: tuple[str, ...] = ("forward", "backward")
    """forward, backward, or positions such as 2,0,1"""
    per_step: tuple[int, ...] = (1, 4)
    """tokens that the samplers of exact laws draw at once"""
    steps: int = 64
    """T of the chain where no order gives the method's law"""
    own: int | None = 16
    """samples of the model's own that are weighed too; None: none of them"""


def bracket(words: Sequence[str], terminal: Terminal, began: float, write: bool = True) -> Document | None:
    """`zellige evaluate RUN --bracket`"""
    about = "-log p between an upper and a lower bound, and the laws whose -log p is exact."
    chosen = options.parse(Bracket, words, "evaluate --bracket", about=about, most=1)
    model = load(terminal, chosen.run, "evaluate", chosen)
    data = typed_data(chosen, words, model.config.data)
    from ..evaluation.bracket import bracket as judge
    from ..evaluation.corpus import corpus_of

    corpus = corpus_of(model, data)
    with resumable(terminal), Bar(terminal, "bracket", 1, "texts") as bar:
        result = judge(
            model, corpus, chosen.split, chosen.numbers, chosen.seed, chosen.limit, chosen.batch, orders=chosen.orders,
            per_step=chosen.per_step, steps=chosen.steps, own=chosen.own or 0, processes=chosen.processes,
            keep=unfinished_folder(chosen.run, model.config.data.cache),
            progress=lambda done, total: bar.update(done, total=total),
        )  # fmt: skip
    arguments = dataclasses.asdict(chosen) | {"data": None if data is None else dataclasses.asdict(data)}
    result = dataclasses.replace(result, arguments=arguments)
    for line in describe(result):
        terminal.result(line)
    note_change(terminal, result.about)
    document = result.to_dict()
    folder = run_folder(chosen.run) if write else None
    if folder is not None:
        _write(terminal, folder / f"bracket-{_name(chosen, result)}.json", document)
    return document


def describe(result: "Result") -> list[str]:
    """What is printed: what was judged, the rows of its own law, of others, of its own samples, who has no row, the protocol."""
    about, p, unit = result.about, result.protocol, result.unit
    lines = [of_model(about), f"{about['data']} {about['split']}: texts of {count(about['length'])}, {p['texts']}", ""]
    shown = [row for row in result.rows if row.result]
    exact = [row for row in shown if row.side in ("exact", "oracle") and row.name != "bound"]
    own = [row for row in shown if row.own]
    parts = {
        f"law: {p['law']}": [row for row in shown if row not in exact and not row.own],
        "other laws": exact,
        f"its own samples, {p['own samples']}": own,
    }
    header, body = (f"{unit} (95%)", "draws' ±", "calls a text"), []
    for title, rows in parts.items():
        if rows:
            body += [(title, *header), *(_cells(row, p["law"]) for row in rows), ("", "", "", "")]
    lines += columns(body, "<>>>")
    if why := {row.why for row in shown if not row.determined}:
        lines += [*textwrap.wrap("; ".join(filter(None, why)), 78, initial_indent="  ", subsequent_indent="  "), ""]
    refused = [f"{row.name}: {row.why}" for row in result.rows if row.result is None]
    for text in refused:
        lines += textwrap.wrap(text, 78, initial_indent="  no row    ", subsequent_indent=" " * 12)
    protocol = (
        f"{p['name']}: {counted(p['bound draws'], 'draw')} of the bound; n of {', '.join(map(str, p['numbers']))}, "
    )
    protocol += (
        f"{p['sets']} x the largest drawn; psi {p['psi']}; network {p['network']}, {p.get('weights', 'its')} weights, "
    )
    protocol += f"seed {result.seed}"
    lines += [""] * bool(refused)
    return [*lines, *textwrap.wrap(protocol, 78, initial_indent="  protocol  ", subsequent_indent=" " * 12)]


def _cells(row: "BracketRow", law: str) -> tuple[str, ...]:
    r = row.result
    assert r is not None
    name = f"bound, {row.law}" if row.name == "bound" and row.law != law else row.name
    value = (
        pm(r.value, r.half) if row.side == "difference" else quantity(r.value, r.half, "", r.kind).partition("  (")[0]
    )
    drawn = "-" if r.kind == "exact" else pm(0, r.draws_half).partition("± ")[2]
    if not row.determined:
        value, drawn = value.partition(" ±")[0], "undetermined"
    return (name, value, drawn, "-" if row.calls is None else count(row.calls))


def _name(chosen: Bracket, result: "Result") -> str:
    """`SET-SPLIT`, and every choice that is not the default's."""
    where = "-".join(filter(None, (result.about["data"], result.about.get("other"), chosen.split)))
    names = ("numbers", "orders", "per_step", "steps", "own", "limit", "seed")
    values: dict[str, Any] = {name: getattr(chosen, name) for name in names} | {"own": chosen.own or 0}
    return where + file_suffix(**{k: v for k, v in values.items() if v != getattr(Bracket, k)})


def _write(terminal: Terminal, file: Any, document: dict[str, Any]) -> None:
    """The JSON, and the figure beside it."""
    from ..files import write_file
    from ..report.bracket import bracket_figure

    write_file(file, as_file(document))
    drawn, picture = io.StringIO(), file.with_suffix(".svg")
    bracket_figure(document).savefig(drawn, format="svg", metadata={"Date": None})
    write_file(picture, drawn.getvalue())
    terminal.result(f"  written   {path(file)}   {path(picture)}")
