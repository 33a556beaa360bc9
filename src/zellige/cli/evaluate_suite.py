"""`zellige evaluate RUN --suite zero-shot`: the data sets of the literature, by one protocol, in one table."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..launched import this_process
from ..show.numbers import columns, count, decimals
from ..show.progress import Bar
from ..show.terminal import Terminal
from . import options
from .common import (
    Document,
    Estimator,
    OfTexts,
    Where,
    command_options,
    file_suffix,
    load,
    of_model,
    resumable,
    run_folder,
    unfinished_folder,
    write_result,
)  # fmt: skip

if TYPE_CHECKING:
    from ..evaluation.suite import SuiteTable


@dataclass(frozen=True)
class Local(Where):
    path: str | None = None
    """a folder of local copies, with a subfolder for each set: wikitext-2, lambada, ag_news, ..."""


@command_options
class Suite(OfTexts):
    suite: str = "zero-shot"
    """zero-shot: PTB, WikiText-2 and -103, LM1B, LAMBADA, AG News, PubMed, arXiv"""
    protocol: str = "zellige"
    """zellige, or the choices of a paper: mdlm, sedd, bd3lm"""
    data: Local = field(default_factory=Local)
    only: tuple[str, ...] = ()
    """these sets of the suite alone"""
    draws: int | None = None
    """draws of each row; the protocol's if not given"""
    limit: int | None = None
    """so many rows of each set, evenly spaced; all if not given"""
    estimator: Estimator = "bound"


def suite(words: Sequence[str], terminal: Terminal, began: float, write: bool = True) -> Document | None:
    """`zellige evaluate RUN --suite NAME`"""
    chosen = options.parse(Suite, words, "evaluate --suite", about="The zero-shot table of the literature.", most=1)
    from ..evaluation.protocol import protocol_named
    from ..evaluation.suite import SUITES

    protocol_named(chosen.protocol)
    SUITES[chosen.suite]  # an unknown one is refused before a model is read
    model = load(terminal, chosen.run, "evaluate", chosen)
    from ..evaluation.suite import judge

    here = this_process()
    folder = run_folder(chosen.run) if write else None
    with resumable(terminal), Bar(terminal, "evaluate", 1, "rows") as bar:
        name = [""]

        def begin(of: str) -> None:
            name[0] = of
            bar.update(0, of, total=1)

        table = judge(
            model, chosen.suite, chosen.protocol, root=chosen.data.path, cache=chosen.data.cache, only=chosen.only,
            draws=chosen.draws, seed=chosen.seed, limit=chosen.limit, batch=chosen.batch, estimator=chosen.estimator,
            processes=chosen.processes, distributed=here.world > 1,
            keep=unfinished_folder(chosen.run, chosen.data.cache), begin=begin,
            progress=lambda done, total: bar.update(done, name[0], total=total),
        )  # fmt: skip
    if here.rank:
        return None
    for line in lines(table):
        terminal.result(line)
    document = table.to_dict(dataclasses.asdict(chosen))
    if folder is not None:
        suffix = file_suffix(
            only=chosen.only, estimator=chosen.estimator if chosen.estimator != "bound" else None, limit=chosen.limit,
            draws=chosen.draws if chosen.draws != table.protocol.draws else None, seed=chosen.seed or None,
        )  # fmt: skip
        write_result(terminal, folder / f"suite-{chosen.suite}-{chosen.protocol}{suffix}.json", document)
    return document


def lines(table: "SuiteTable") -> list[str]:
    """The table as it is printed."""
    from ..evaluation.evaluate import PROTOCOL

    about = table.about
    title = f"{table.suite}, protocol {table.protocol.name}: {of_model(about)}"
    header = [
        ("", "", "nats/token", "perplexity", "per token, mean", "draws,"),
        ("set", "tokens", "(95%)", "corpus", "per sequence", "their ±"),
    ]
    body = [_row(row.name, row.result) for row in table.rows if row.result is not None]
    out = [title, f"rows of {count(about['length'])} tokens of {about['tokenizer']}", ""]
    out += columns([*header, *body], "<>>>>>")
    out += [""]
    out += [f"  {row.name}: {row.reason.partition('; ')[0]}" for row in table.rows if row.result is None]
    out += [f"  {row.name}: {row.note}" for row in table.rows if row.note]
    out += [
        f"  {row.name}: a partial result, {row.result.partial}"
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
    ]  # fmt: skip
    first = next(row.result for row in table.rows if row.result is not None)
    how += [str(first.protocol[key]) for key in ("time", "class") if key in first.protocol]
    import textwrap

    text = f"{p.name} ({PROTOCOL}): {', '.join(how)}, seed {table.seed}"
    return out + textwrap.wrap(text, 80, initial_indent="  protocol  ", subsequent_indent=" " * 12)


def _row(name: str, result: Any) -> tuple[str, ...]:
    from ..show.numbers import SIGN, pm

    sign, each = SIGN[result.kind], result.per_sequence
    drawn = "-" if result.between is None else f"± {pm(0, result.draws_half).partition('± ')[2]}"
    return (
        name,
        count(result.units),
        f"{sign} {pm(result.value, result.half)}",
        f"{sign} {result.perplexity:.{decimals(result.perplexity, 'per token')}f}",
        f"{sign} {each.value:.{decimals(each.value, 'per token')}f}",
        str(result.draws) if result.kind == "exact" else f"{result.draws}, {drawn}",
    )
