"""`zellige evaluate RUN --bracket`: its options, what it prints and writes."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from zellige.base.files import file_suffix, write_file
from zellige.base.requests import declared, inline, option
from zellige.cli.common import OfModel, bars, load, of_model, resumable, typed_data, unfinished_folder
from zellige.cli.evaluate_again import Mode
from zellige.data import Data
from zellige.show.numbers import SIGN, columns, count, counted, half_width, paragraph, parts, path
from zellige.show.record import as_file
from zellige.show.terminal import Terminal

from .request import EvaluateBracket

if TYPE_CHECKING:
    from .bracket import Bracket, BracketRow


@declared
class BracketOptions(OfModel):
    usage = "RUN --bracket [options]"
    shown = "limit numbers orders per-step steps own data.path data.name split seed device"

    bracket: bool = option(
        "two-sided bound on -log p: importance-weighted from above, TUBE from below; exact of an order and of "
        "confidence order",
        default=False,
    )
    request: EvaluateBracket = inline(default=EvaluateBracket())
    data: Data = option("what to evaluate (default: the data of the run)", default=Data(), of_run=True)


def bracket(chosen: BracketOptions, words: Sequence[str], terminal: Terminal) -> "Bracket":
    """`zellige evaluate RUN --bracket`"""
    model = load(terminal, chosen.run, "evaluate", chosen)
    request = replace(chosen.request, data=typed_data(chosen, words, model.config.data))
    with bars(terminal) as show, resumable(terminal):
        keep = unfinished_folder(chosen.run, model.config.data.cache)
        return replace(request, progress=show("bracket", "texts"), keep=keep).run(model)


def describe_bracket(result: "Bracket") -> list[str]:
    """Return the printed lines: rows of the model's distribution, of others and of its samples, absent rows,
    the protocol."""
    about, p, unit = result.about, result.protocol, result.unit
    lines = [of_model(about), f"{about['data']} {about['split']}: texts of {count(about['length'])}, {p['texts']}", ""]
    rows_with_values = [row for row in result.rows if row.result]
    exact = [row for row in rows_with_values if row.side in ("exact", "oracle") and row.name != "bound"]
    own_rows = [row for row in rows_with_values if row.own]
    parts = (
        (f"distribution: {p['distribution']}", [row for row in rows_with_values if row not in exact and not row.own]),
        ("other distributions", exact),
        (f"samples of the model, {p['own samples']}", own_rows),
    )
    header, body = (f"{unit} (95%)", "± over draws", "NFE per text"), []
    for title, rows in parts:
        if rows:
            body += [
                (title, *header),
                *(_bracket_cells(row, p.get("distribution_key")) for row in rows),
                ("", "", "", ""),
            ]
    lines += columns(body, "<>>>")
    if why := {row.why for row in rows_with_values if not row.determined}:
        lines += [*textwrap.wrap("; ".join(filter(None, why)), 78, initial_indent="  ", subsequent_indent="  "), ""]
    reasons = [f"{row.name}: {row.why}" for row in result.rows if row.result is None]
    for text in reasons:
        lines += paragraph("no row", text, 78)
    tokenizer = f"{p['tokenizer']}, " if "tokenizer" in p else ""
    protocol = (
        f"{p['name']}: {counted(p['bound draws'], 'draw')} of the bound; n of {', '.join(map(str, p['numbers']))}, "
        f"{p['sets']} x the largest drawn; psi {p['psi']}; network {p['network']}, {p.get('weights', 'its')} weights, "
        f"{tokenizer}seed {result.seed}"
    )
    lines += [""] * bool(reasons)
    return [*lines, *paragraph("protocol", protocol, 78)]


def _bracket_cells(row: "BracketRow", key: str | None) -> tuple[str, ...]:
    r = row.result
    assert r is not None
    other = row.distribution if row.name == "bound" and row.distribution and row.distribution.key != key else None
    name = f"bound, {other.text}" if other else row.name
    value, half = parts(r.value, r.half)
    draws = "-" if r.kind == "exact" else half_width(r.draws_half)
    value = value if row.side == "difference" else f"{SIGN[r.kind]} {value}"
    value, draws = (f"{value} ± {half}", draws) if row.determined else (value, "undetermined")
    return (name, value, draws, "-" if row.calls is None else count(row.calls))


def save_bracket(result: "Bracket", folder: Path, terminal: Terminal) -> None:
    """Write the JSON into a run, and the figure beside it; the name has every choice that is not the default's."""
    from zellige import report
    from zellige.evaluation.result import loaded

    request = result.request
    assert isinstance(request, EvaluateBracket)
    where = "-".join(filter(None, (result.about["data"], result.about.get("other"), request.split)))
    changed = request.changed("numbers", "orders", "per_step", "steps", "own", "limit", "seed")
    changed |= {"own": 0} if request.own is None else {}
    suffix = file_suffix(**changed, **loaded(result.about, result.protocol))
    file = folder / f"bracket-{where}{suffix}.json"
    write_file(file, as_file(result.to_dict()))
    picture = file.with_suffix(".svg")
    write_file(picture, report.as_svg(report.bracket_figure(result)))
    terminal.result(f"  written   {path(file)}   {path(picture)}")


BRACKET = Mode(
    EvaluateBracket,
    BracketOptions,
    "evaluate --bracket",
    "Upper and lower bounds on -log p of a text.",
    bracket,
    describe_bracket,
    save_bracket,
)
