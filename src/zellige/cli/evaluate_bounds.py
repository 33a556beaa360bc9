"""`zellige evaluate RUN` with `--pairs`, `--steps`, `--suite` or `--bracket`: their options,
what they print and write."""

import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError
from ..base.files import file_suffix
from ..base.processes import this_process
from ..base.requests import declared, inline, option
from ..data import Data
from ..evaluation.protocol import protocol_named
from ..evaluation.requests import CONTINUOUS, EvaluateBracket, EvaluatePairs, EvaluateSteps, EvaluateSuite
from ..show.numbers import SIGN, byte_size, columns, count, counted, decimals, half_width, parts, path, pm
from ..show.record import as_file
from ..show.terminal import Terminal
from .common import (
    OfModel,
    bars,
    load,
    of_model,
    resumable,
    typed_data,
    unfinished_folder,
    write_result,
)
from .evaluate_again import Mode

if TYPE_CHECKING:
    from ..evaluation.bracket import Bracket as BracketResult
    from ..evaluation.bracket import BracketRow
    from ..evaluation.choices import ChoiceScores
    from ..evaluation.steps import StepsTable
    from ..evaluation.suite import SuiteTable


@declared
class PairsOptions(OfModel):
    usage = "RUN --pairs FILE.jsonl [options]"

    request: EvaluatePairs = inline(default=EvaluatePairs())


def pairs(chosen: PairsOptions, words: Sequence[str], terminal: Terminal) -> "ChoiceScores":
    """`zellige evaluate RUN --pairs FILE`"""
    if not chosen.run:
        raise InputError("evaluate needs a run; e.g. zellige evaluate runs/demo --pairs pairs.jsonl")
    with terminal.waiting("loading"):
        chosen.request.questions()  # before a model is loaded
    model = load(terminal, chosen.run, "evaluate", chosen)
    with bars(terminal) as show:
        return replace(chosen.request, progress=show("pairs", "rows")).run(model)


def save_pairs(judged: "ChoiceScores", folder: Path, terminal: Terminal) -> None:
    """Write it into a run; the name has every choice that is not the default's."""
    request = judged.request
    assert isinstance(request, EvaluatePairs)
    changed = request.changed("prefix", "draws", "seed", "classes", "unconditional")
    suffix = file_suffix(**{"class" if name == "classes" else name: value for name, value in changed.items()})
    write_result(terminal, folder / f"pairs-{Path(request.pairs).stem}{suffix}.json", judged.to_dict())


def describe_pairs(judged: "ChoiceScores") -> list[str]:
    """Printed lines: the data, the mean, the population of its interval, the accuracies, the protocol."""
    result, about, p = judged.result, judged.result.about, judged.result.protocol
    lines = [
        of_model(about),
        f"{Path(about['data']).name}: {counted(about['pairs'], 'pair')}, {counted(round(result.units), 'token')} to "
        "predict",
        "",
        f"  {result}{' ' + p['class'] if 'class' in p else ''}   perplexity {result.perplexity_text}",
    ]
    if result.kind == "exact":
        lines.append("    exact for each pair: the interval is that of other pairs of the same kind")
    elif result.draws == 1:
        lines.append("    ± over other pairs of the same kind; with --draws 2 or more also over the draws")
    elif judged.drawn == math.inf:
        lines.append("    ± over other pairs of the same kind; too few replicates for one over draws")
    else:
        half = half_width(judged.drawn)
        lines.append(f"    ± over other pairs of the same kind; over other draws for these pairs: ± {half}")
    if judged.accuracy is not None:
        lines += [
            f"  accuracy {judged.accuracy} (95%, Wilson) by nats",
            f"  accuracy {judged.normalised} (95%, Wilson) by nats per character",
        ]
    if judged.note:
        lines += textwrap.wrap(judged.note, 80, initial_indent="  note      ", subsequent_indent=" " * 12)
    protocol = f"{p['name']}: {p['estimator']}; {counted(result.draws, 'draw')} a pair ({p['strata']}), network {p['network']}, "
    protocol += f"{p['weights']} weights, "
    protocol += "".join(f"{p[key]}, " for key in ("tokenizer", "class") if key in p)
    protocol += f"seed {p['seed']}"
    return [*lines, "", *textwrap.wrap(protocol, 80, initial_indent="  protocol  ", subsequent_indent=" " * 12)]


@declared
class StepsOptions(OfModel):
    usage = "RUN --steps 32 128 continuous [options]"
    shown = "steps data.path data.name split draws limit seed processes device"

    request: EvaluateSteps = inline(default=EvaluateSteps())
    data: Data = option("a data set other than the run's own, or its path", default=Data())


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
    from .evaluate_print import heading

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
    request, last = table.request, table.reference
    assert isinstance(request, EvaluateSteps)
    where = "-".join(filter(None, (last.about["data"], last.about.get("other"), request.split)))
    usual = request.numbers == EvaluateSteps().numbers
    suffix = file_suffix(
        steps=None if usual else [str(T or CONTINUOUS) for T in request.numbers],
        limit=last.sequences if last.partial else None,
        **request.changed("draws", "seed", "grid", "terms"),
    )
    write_result(terminal, folder / f"steps-{where}{suffix}.json", table.to_dict())


def step_name(T: int) -> str:
    """`1,024`, or `continuous`."""
    return count(T) if T else CONTINUOUS


@declared
class SuiteOptions(OfModel):
    usage = "RUN --suite zero-shot [options]"

    request: EvaluateSuite = inline(default=EvaluateSuite())


def suite(chosen: SuiteOptions, words: Sequence[str], terminal: Terminal) -> "SuiteTable | None":
    """`zellige evaluate RUN --suite NAME`"""
    request, process = chosen.request, this_process()
    with terminal.waiting("loading"):
        from ..evaluation.suite import SUITES

        protocol_named(request.protocol)
        SUITES[request.suite]  # an unknown one is refused before a model is read
    model = load(terminal, chosen.run, "evaluate", chosen)
    with bars(terminal) as show, resumable(terminal):
        name = [""]
        update = show("evaluate", "rows", lambda: name[0])

        def begin(of: str) -> None:
            name[0] = of
            update(0, 1)

        table = replace(
            request,
            begin=begin,
            progress=update,
            distributed=process.world > 1,
            keep=unfinished_folder(chosen.run, request.data.cache),
        ).run(model)
    return None if process.rank else table


def save_suite(table: "SuiteTable", folder: Path, terminal: Terminal) -> None:
    """Write it into a run; the name has every choice that is not the default's."""
    request = table.request
    assert isinstance(request, EvaluateSuite)
    draws = request.draws if request.draws != table.protocol.draws else None
    suffix = file_suffix(**request.changed("only", "estimator", "limit"), draws=draws, **request.changed("seed"))
    write_result(terminal, folder / f"suite-{table.suite}-{table.protocol.name}{suffix}.json", table.to_dict())


def describe_suite(table: "SuiteTable") -> list[str]:
    """The table as it is printed."""
    from ..evaluation.evaluate import PROTOCOL

    about = table.about
    title = f"{table.suite}, protocol {table.protocol.name}: {of_model(about)}"
    header = [
        ("", "", "nats/token", "perplexity", "per token, mean", "draws,"),
        ("set", "tokens", "(95%)", "corpus", "per sequence", "their ±"),
    ]
    body = [_suite_row(row.name, row.result) for row in table.rows if row.result is not None]
    out = [title, f"rows of {count(about['length'])} tokens of {about['tokenizer']}", ""]
    out += columns([*header, *body], "<>>>>>")
    out += [""]
    out += [f"  {row.name}: {row.reason.partition('; ')[0]}" for row in table.rows if row.result is None]
    out += [f"  {row.name}: {row.note}" for row in table.rows if row.note]
    out += [
        f"  {row.name}: a partial result, {row.result.judged}"
        for row in table.rows
        if row.result and row.result.partial
    ]
    p = table.protocol
    how = [
        f"{p.split} split" + (" (of LM1B, LAMBADA, AG News test)" if p.split != "test" else ""),
        "detokenized" if p.detokenize else "not detokenized",
        {"wrap": "wrapped", "document": "one document a row"}[p.pack],
        "EOS after each document" if p.eos else "no EOS between documents",
        {"none": "no BOS", "counted": "BOS counted", "given": "BOS given"}[p.begin],
        *["EOS at the end of a row"] * p.end,
    ]
    first = next(row.result for row in table.rows if row.result is not None)
    how += [str(first.protocol[key]) for key in ("time", "class") if key in first.protocol]
    text = f"{p.name} ({PROTOCOL}): {', '.join(how)}, seed {table.seed}"
    return out + textwrap.wrap(text, 80, initial_indent="  protocol  ", subsequent_indent=" " * 12)


def _suite_row(name: str, result: Any) -> tuple[str, ...]:
    sign, per_sequence = SIGN[result.kind], result.per_sequence
    draws = "-" if result.between is None else f"± {half_width(result.draws_half)}"
    return (
        name,
        count(result.units),
        f"{sign} {pm(result.value, result.half)}",
        f"{sign} {result.perplexity:.{decimals(result.perplexity)}f}",
        f"{sign} {per_sequence.value:.{decimals(per_sequence.value)}f}",
        str(result.draws) if result.kind == "exact" else f"{result.draws}, {draws}",
    )


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
    data: Data = option("a data set other than the run's own, or its path", default=Data())


def bracket(chosen: BracketOptions, words: Sequence[str], terminal: Terminal) -> "BracketResult":
    """`zellige evaluate RUN --bracket`"""
    model = load(terminal, chosen.run, "evaluate", chosen)
    request = replace(chosen.request, data=typed_data(chosen, words, model.config.data))
    with bars(terminal) as show, resumable(terminal):
        keep = unfinished_folder(chosen.run, model.config.data.cache)
        return replace(request, progress=show("bracket", "texts"), keep=keep).run(model)


def describe_bracket(result: "BracketResult") -> list[str]:
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
        lines += textwrap.wrap(text, 78, initial_indent="  no row    ", subsequent_indent=" " * 12)
    protocol = (
        f"{p['name']}: {counted(p['bound draws'], 'draw')} of the bound; n of {', '.join(map(str, p['numbers']))}, "
    )
    protocol += (
        f"{p['sets']} x the largest drawn; psi {p['psi']}; network {p['network']}, {p.get('weights', 'its')} weights, "
    )
    protocol += f"{p['tokenizer']}, " if "tokenizer" in p else ""
    protocol += f"seed {result.seed}"
    lines += [""] * bool(reasons)
    return [*lines, *textwrap.wrap(protocol, 78, initial_indent="  protocol  ", subsequent_indent=" " * 12)]


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


def save_bracket(result: "BracketResult", folder: Path, terminal: Terminal) -> None:
    """Write the JSON into a run, and the figure beside it; the name has every choice that is not the default's."""
    from .. import report
    from ..base.files import write_file

    request = result.request
    assert isinstance(request, EvaluateBracket)
    where = "-".join(filter(None, (result.about["data"], result.about.get("other"), request.split)))
    changed = request.changed("numbers", "orders", "per_step", "steps", "own", "limit", "seed")
    suffix = file_suffix(**changed | ({"own": 0} if request.own is None else {}))
    file = folder / f"bracket-{where}{suffix}.json"
    write_file(file, as_file(result.to_dict()))
    svg, picture = io.StringIO(), file.with_suffix(".svg")
    report.bracket_figure(result).savefig(svg, format="svg", metadata={"Date": None})
    write_file(picture, svg.getvalue())
    terminal.result(f"  written   {path(file)}   {path(picture)}")


SUITE = Mode(
    EvaluateSuite,
    SuiteOptions,
    "evaluate --suite",
    "Zero-shot likelihoods on the usual data sets.",
    suite,
    describe_suite,
    save_suite,
)
PAIRS = Mode(
    EvaluatePairs,
    PairsOptions,
    "evaluate --pairs",
    "Score given continuations and choose between them.",
    pairs,
    describe_pairs,
    save_pairs,
)
BRACKET = Mode(
    EvaluateBracket,
    BracketOptions,
    "evaluate --bracket",
    "Upper and lower bounds on -log p of a text.",
    bracket,
    describe_bracket,
    save_bracket,
)
STEPS = Mode(
    EvaluateSteps,
    StepsOptions,
    "evaluate --steps",
    "The bound for several numbers of sampling steps.",
    steps,
    steps_lines,
    save_steps,
)
