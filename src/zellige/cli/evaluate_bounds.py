"""`zellige evaluate RUN` with `--pairs`, `--steps`, `--suite` or `--bracket`: bounds of texts, each in another table."""

import dataclasses
import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ..data import Data
from ..errors import InputError
from ..evaluation.requests import CONTINUOUS, EvaluateSteps
from ..launched import this_process
from ..show.numbers import byte_size, columns, count, counted, decimals, path, pm, quantity
from ..show.progress import Bar
from ..show.record import as_file
from ..show.terminal import Terminal
from . import options
from .common import (
    Document,
    Estimator,
    OfModel,
    OfRun,
    OfTexts,
    Where,
    bars,
    command_options,
    file_suffix,
    load,
    note_change,
    of_model,
    resumable,
    run_folder,
    typed_data,
    unfinished_folder,
    write_result,
)

if TYPE_CHECKING:
    from ..evaluation.bracket import Bracket as BracketResult
    from ..evaluation.bracket import BracketRow
    from ..evaluation.choices import ChoiceScores
    from ..evaluation.steps import StepsTable
    from ..evaluation.suite import SuiteTable


@command_options
class Pairs(OfRun):
    pairs: str = ""
    """a .jsonl with the fields context and continuation, or context, choices and answer; and class, if the model has classes"""
    draws: int = 32
    """draws of each pair"""
    batch: int = 64
    """rows in one call of the network; the numbers do not depend on it"""
    prefix: bool = False
    """the token that ends documents stands before each context"""
    classes: Annotated[str | None, tyro.conf.arg(name="class")] = None
    """of a model with classes: that of all pairs, by name or number; the field class of each if not given, else none"""
    unconditional: bool = False
    """of a model with classes, tell it none"""


def pairs(words: Sequence[str], terminal: Terminal, began: float, write: bool = True) -> Document | None:
    """`zellige evaluate RUN --pairs FILE`"""
    about = "-log p(continuation | context) of pairs in a file, and the accuracy of choices."
    chosen = options.parse(Pairs, words, "evaluate --pairs", about=about, most=1)
    if not chosen.run:
        raise InputError("evaluate needs a run; e.g. zellige evaluate runs/demo --pairs pairs.jsonl")
    if chosen.unconditional and chosen.classes is not None:
        raise InputError("--unconditional tells no class, and --class tells one; leave one of the two out")
    with terminal.waiting("loading"):
        from ..evaluation import choices

        records = choices.read_pairs(chosen.pairs)
    folder = run_folder(chosen.run) if write else None
    model = load(terminal, chosen.run, "evaluate", chosen)
    with Bar(terminal, "pairs", 1, "rows") as bar:
        judged = choices.score_choices(
            model, records, chosen.draws, chosen.seed, chosen.batch, prefix=chosen.prefix, label=chosen.classes,
            unconditional=chosen.unconditional, source=chosen.pairs,
            progress=lambda done, total: bar.update(done, total=total),
        )  # fmt: skip
    for line in describe_pairs(judged):
        terminal.result(line)
    document = judged.to_dict(dataclasses.asdict(chosen))
    if folder is not None:
        draws = chosen.draws if chosen.draws != Pairs.draws else None
        classes = {"class": chosen.classes, "unconditional": chosen.unconditional}
        suffix = file_suffix(prefix=chosen.prefix, draws=draws, seed=chosen.seed or None, **classes)
        write_result(terminal, folder / f"pairs-{Path(chosen.pairs).stem}{suffix}.json", document)
    return document


def describe_pairs(judged: "ChoiceScores") -> list[str]:
    """What is printed: what was judged, the mean, over what its interval is, the accuracies, the protocol."""
    result, about, p = judged.result, judged.result.about, judged.result.protocol
    lines = [
        of_model(about),
        f"{Path(about['data']).name}: {counted(about['pairs'], 'pair')}, {counted(round(result.units), 'token')} to be said",
        "",
        f"  {result}{' ' + p['class'] if 'class' in p else ''}   perplexity {result.perplexity_text}",
    ]
    if result.kind == "exact":
        lines.append("    exact for each pair: the interval is that of other pairs of the same kind")
    elif result.draws == 1:
        lines.append("    of other pairs of the same kind; with --draws 2 or more it is known what the draws bring")
    elif judged.drawn == math.inf:
        lines.append("    of other pairs of the same kind; too few replicates to say what draws do")
    else:
        half = pm(0, judged.drawn).partition("± ")[2]
        lines.append(f"    of other pairs of the same kind; other draws for these very pairs: ± {half}")
    if judged.accuracy is not None:
        lines += [
            f"  accuracy {judged.accuracy} (95%, Wilson) by nats",
            f"  accuracy {judged.normalised} (95%, Wilson) by nats per character",
        ]
    if judged.note:
        lines += textwrap.wrap(judged.note, 80, initial_indent="  note      ", subsequent_indent=" " * 12)
    protocol = f"{p['name']}: {p['estimator']}; {counted(result.draws, 'draw')} a pair ({p['strata']}), network {p['network']}, "
    protocol += f"{p['weights']} weights, "
    protocol += f"{p['class']}, " if "class" in p else ""
    protocol += f"seed {p['seed']}"
    return [*lines, "", *textwrap.wrap(protocol, 80, initial_indent="  protocol  ", subsequent_indent=" " * 12)]


@command_options
class StepsOptions(OfModel):
    request: Annotated[EvaluateSteps, tyro.conf.arg(name="")] = field(default_factory=EvaluateSteps)
    data: Data = field(default_factory=Data)
    """another data set than the run's own, or where that lies"""


def steps(chosen: StepsOptions, words: Sequence[str], terminal: Terminal) -> "StepsTable | None":
    """`zellige evaluate RUN --steps T T ... continuous`"""
    model = load(terminal, chosen.run, "evaluate", chosen)
    data = typed_data(chosen, words, model.config.data)
    request, here = replace(chosen.request, data=data), this_process()
    with bars(terminal) as show, resumable(terminal):
        now = [0]
        update = show("evaluate", "texts", lambda: step_name(now[0]))

        def progress(done: int, total: int, T: int) -> None:
            now[0] = T
            update(done, total)

        table = replace(
            request, reading=show("read", as_text=byte_size), progress=progress, distributed=here.world > 1,
            keep=unfinished_folder(chosen.run, model.config.data.cache),
        ).run(model)  # fmt: skip
    return None if here.rank else replace(table, request=request)


def steps_lines(table: "StepsTable") -> list[str]:
    """What is printed: a row for each number of steps."""
    from .evaluate_print import heading

    last = table.reference
    beside = step_name(table.steps[table.results.index(last)])
    header = ("steps", f"{last.unit} (95%)", f"perplexity per {last.per}", f"above {beside}, paired")
    rows = [
        (
            step_name(T),
            f"≤ {pm(r.value, r.half)}",
            f"≤ {r.perplexity:.{decimals(r.perplexity, 'per ')}f}",
            "" if d is None else pm(d.value, d.half),
        )
        for T, r, d in zip(table.steps, table.results, table.apart)
    ]
    return [
        *heading(last)[:-1], f"{counted(last.draws, 'draw')} of each, the same for all rows", "",
        *columns([header, *rows], "<>>>"), "T steps bound the samples of ancestral in T steps, and those of no other number",
    ]  # fmt: skip


def save_steps(table: "StepsTable", folder: Path, terminal: Terminal) -> None:
    """Write it into a run; the name has every choice that is not the default's."""
    request, last, usual = table.request, table.reference, EvaluateSteps()
    assert isinstance(request, EvaluateSteps)
    where = "-".join(filter(None, (last.about["data"], last.about.get("other"), request.split)))
    suffix = file_suffix(
        steps=None if request.numbers == usual.numbers else [str(T or CONTINUOUS) for T in request.numbers],
        limit=last.sequences if last.partial else None, draws=request.draws if request.draws != usual.draws else None,
        seed=request.seed or None,
    )  # fmt: skip
    write_result(terminal, folder / f"steps-{where}{suffix}.json", table.to_dict())


def step_name(T: int) -> str:
    """`1,024`, or `continuous`."""
    return count(T) if T else CONTINUOUS


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
    for line in describe_suite(table):
        terminal.result(line)
    document = table.to_dict(dataclasses.asdict(chosen))
    if folder is not None:
        suffix = file_suffix(
            only=chosen.only, estimator=chosen.estimator if chosen.estimator != "bound" else None, limit=chosen.limit,
            draws=chosen.draws if chosen.draws != table.protocol.draws else None, seed=chosen.seed or None,
        )  # fmt: skip
        write_result(terminal, folder / f"suite-{chosen.suite}-{chosen.protocol}{suffix}.json", document)
    return document


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
    text = f"{p.name} ({PROTOCOL}): {', '.join(how)}, seed {table.seed}"
    return out + textwrap.wrap(text, 80, initial_indent="  protocol  ", subsequent_indent=" " * 12)


def _suite_row(name: str, result: Any) -> tuple[str, ...]:
    from ..show.numbers import SIGN

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
    for line in describe_bracket(result):
        terminal.result(line)
    note_change(terminal, result.about)
    document = result.to_dict()
    folder = run_folder(chosen.run) if write else None
    if folder is not None:
        _write_bracket(terminal, folder / f"bracket-{_bracket_name(chosen, result)}.json", document)
    return document


def describe_bracket(result: "BracketResult") -> list[str]:
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
            body += [(title, *header), *(_bracket_cells(row, p["law"]) for row in rows), ("", "", "", "")]
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


def _bracket_cells(row: "BracketRow", law: str) -> tuple[str, ...]:
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


def _bracket_name(chosen: Bracket, result: "BracketResult") -> str:
    """`SET-SPLIT`, and every choice that is not the default's."""
    where = "-".join(filter(None, (result.about["data"], result.about.get("other"), chosen.split)))
    names = ("numbers", "orders", "per_step", "steps", "own", "limit", "seed")
    values: dict[str, Any] = {name: getattr(chosen, name) for name in names} | {"own": chosen.own or 0}
    return where + file_suffix(**{k: v for k, v in values.items() if v != getattr(Bracket, k)})


def _write_bracket(terminal: Terminal, file: Any, document: dict[str, Any]) -> None:
    """The JSON, and the figure beside it."""
    from ..files import write_file
    from ..report.bracket import bracket_figure

    write_file(file, as_file(document))
    drawn, picture = io.StringIO(), file.with_suffix(".svg")
    bracket_figure(document).savefig(drawn, format="svg", metadata={"Date": None})
    write_file(picture, drawn.getvalue())
    terminal.result(f"  written   {path(file)}   {path(picture)}")
