"""`zellige evaluate RUN --suite NAME`: its options, what it prints and writes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zellige.base.files import file_suffix
from zellige.base.processes import this_process
from zellige.base.requests import declared, inline
from zellige.cli.common import OfModel, bars, load, of_model, resumable, unfinished_folder, write_result
from zellige.cli.evaluate_again import Mode
from zellige.show.numbers import SIGN, columns, count, decimals, half_width, paragraph, pm
from zellige.show.terminal import Terminal

from .protocol import protocol_named
from .request import EvaluateSuite

if TYPE_CHECKING:
    from .suite import SuiteTable


@declared
class SuiteOptions(OfModel):
    usage = "RUN --suite zero-shot [options]"

    request: EvaluateSuite = inline(default=EvaluateSuite())


def suite(chosen: SuiteOptions, words: Sequence[str], terminal: Terminal) -> "SuiteTable | None":
    """`zellige evaluate RUN --suite NAME`"""
    request, process = chosen.request, this_process()
    with terminal.waiting("loading"):
        from .suite import SUITES

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
    from zellige.evaluation.result import loaded

    request = table.request
    assert isinstance(request, EvaluateSuite)
    draws = request.draws if request.draws != table.protocol.draws else None
    choices = request.changed("seed") | loaded(table.about, table.measured)
    suffix = file_suffix(**request.changed("only", "estimator", "limit"), draws=draws, **choices)
    write_result(terminal, folder / f"suite-{table.suite}-{table.protocol.name}{suffix}.json", table.to_dict())


def describe_suite(table: "SuiteTable") -> list[str]:
    """The table as it is printed."""
    from zellige.evaluation.evaluate import PROTOCOL

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
    return out + paragraph("protocol", text)


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


SUITE = Mode(
    EvaluateSuite,
    SuiteOptions,
    "evaluate --suite",
    "Zero-shot likelihoods on the usual data sets.",
    suite,
    describe_suite,
    save_suite,
)
