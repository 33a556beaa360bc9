"""Printed results: a likelihood with its terms and its protocol; samples, a column or a row for each point."""

import contextlib
import os
import textwrap
from pathlib import Path

from ..base.errors import InputError
from ..evaluation.evaluate import PROTOCOL
from ..evaluation.interval import FREEDOM, Proportion
from ..evaluation.metrics import METRICS, Metric, find, grouped
from ..evaluation.result import Result
from ..evaluation.sample_sets import ScoredSet, curves_of
from ..evaluation.samples import SamplesRecord
from ..samplers.tau_leaping import describe_leaps
from ..show.numbers import (
    beside,
    columns,
    count,
    counted,
    half_width,
    parameters,
    path,
    percent,
    perplexity,
    quantity,
)
from ..show.terminal import Terminal
from ..show.units import unit_of
from .common import of_model


def heading(result: Result) -> list[str]:
    """Heading: the model and the data."""
    about = result.about
    if not about:
        return []
    noun = result.per
    texts = f"{counted(result.sequences, 'sequence')} of {count(about['length'])}"
    note = f", evenly spaced among {count(about['texts'])}" if result.partial else ""
    return [
        of_model(about),
        f"{about['data']} {about['split']}: {counted(round(result.units), noun)} in {texts}{note}",
        "",
    ]


def describe(result: Result) -> list[str]:
    """The lines that `zellige evaluate` prints under its heading: terms, number, where its width comes from,
    protocol."""
    p = result.protocol
    per_sequence = result.units / max(result.sequences, 1)
    loss = result.kind == "loss"  # no nats, and no perplexity
    rows = [("term", "a sequence" if loss else "nats/sequence", f"per {result.per}" if loss else result.unit)]
    total = 0.0
    for name, nats in result.terms.items():
        rows.append((name, f"{nats:.3f}", f"{nats / per_sequence / result.scale:.3f}"))
        total += nats
    if len(result.terms) > 1:
        rows.append(("total", f"{total:.3f}", f"{total / per_sequence / result.scale:.3f}"))
    lines = columns(rows, "<>>", indent=2, gap=4)
    label = f" {p['class']}" if "class" in p else ""
    label += f" given {p['given']}" if "given" in p else ""
    lines += ["", f"  {result}{label}" + ("" if loss else f"   perplexity {result.perplexity_text}")]
    if result.partial:
        lines.append(f"    a partial result: {result.judged}")
    if (bits := result.per_character) is not None:
        text = quantity(bits.value, bits.half, unit_of(bits.unit).title, result.kind)
        lines.append(f"  {text}   {result.about['characters_per_token']:.3f} characters a token")
        if (bits := result.per_word) is not None:
            text = quantity(bits.value, bits.half, unit_of(bits.unit).title, result.kind)
            lines.append(f"  {text}   {1 / result.about['words_per_unit']:.3f} tokens a word")
    if result.document is not None:
        lines.append(f"  {result.document}   {counted(round(result.document.units), 'document')}")
    if not loss:
        lines += _both(result)
        lines += textwrap.wrap(_bounded_samplers(result), 80, initial_indent="    ", subsequent_indent="    ")
    counts = f"    {count(result.sequences)} sequences x {counted(result.draws, 'draw')}"
    if result.undetermined:
        lines += textwrap.wrap(
            f"{counts.strip()}; the interval is {result.undetermined}",
            80,
            initial_indent="    ",
            subsequent_indent="    ",
        )
    elif result.kind == "exact":
        lines.append(f"    {counted(result.sequences, 'sequence')}; exact for each: the interval is that of the texts")
    elif result.draws == 1:
        lines.append(f"{counts}; --draws 2 or more shows how much of the interval is from the draws")
    elif result.between is None:
        lines.append(f"{counts}: no interval over the draws alone, as that needs")
        lines.append(f"    {FREEDOM} degrees of freedom{_freedom(result)}; take more texts or draws")
    else:
        lines.append(f"{counts}; {percent(result.between)} of the variance lies between the texts,")
        half = half_width(result.floor)
        text = (
            f"{percent(1 - result.between)} in the draws: ever more draws would narrow the interval to about ± {half}"
        )
        lines += textwrap.wrap(text, 80, initial_indent="    ", subsequent_indent="    ")
    protocol = [str(p[key]) for key in ("packing", "tokenizer", "separators", "time", "class") if key in p]
    protocol += [f"{key} {p[key]}" for key in ("network", "bound", "trained by") if key in p]
    protocol += [f"averaged over {count(p['symmetries'])} symmetries"] if "symmetries" in p else []
    protocol += [f"{p['weights']} weights"] if "weights" in p else []
    text = f"{p.get('name', PROTOCOL)}: {', '.join([*protocol, f'seed {result.seed}'])}"
    lines += ["", *textwrap.wrap(text, 80, initial_indent="  protocol  ", subsequent_indent=" " * 12)]
    return lines


def tasks(shares: dict[str, Proportion]) -> list[str]:
    """The lines below them, of what the data's task asks (`evaluation.tasks`)."""
    rows = [(name, str(share), f"{count(share.right)} of {count(share.total)}") for name, share in shares.items()]
    return ["", *columns([("task", "share [95%]", ""), *rows], "<<<", indent=2, gap=4)] if rows else []


def _bounded_samplers(result: Result) -> str:
    """The samplers whose samples the number bounds."""
    names = result.protocol.get("bounds samples of")
    if names is None:
        return ""
    if not names:
        return "holds for the samples of no sampler here"
    verb = "-log p of" if result.kind == "exact" else "holds for"
    few = "" if "ancestral" in names else "; for ancestral in T steps: --steps T"
    has_steps = "steps" in str(result.protocol.get("time"))
    return f"{verb} samples of {', '.join(names)}{'' if has_steps or result.kind == 'exact' else few}"


def _both(result: Result) -> list[str]:
    """The two intervals by their names, and the other perplexity."""
    half, draws = (half_width(h) for h in (result.half, result.draws_half))
    if result.undetermined:
        return []
    lines = [f"    ± {half} over the population of texts, ± {draws} over draws of these texts"]
    if result.between is None:
        lines = [f"    ± {half} over the population of texts and draws"]
    if result.kind == "exact":
        lines = [f"    ± {half} over the population of texts; for these texts it is exact"]
    per_sequence = result.per_sequence
    if per_sequence is not None:
        mean = perplexity(per_sequence.value, per_sequence.half, result.per, result.kind)
        lines.append(f"    mean perplexity per sequence {mean} (above: corpus)")
    return lines


def write(folder: Path, result: Result, terminal: Terminal) -> Path:
    """Write a result into a run; one that is there under its name, and is fuller or of other choices,
    is renamed before."""
    file = folder / result.file_name
    with contextlib.suppress(InputError):  # nothing there, or nothing that is a result
        before = Result.from_json(file)
        fewer = result.kind != "exact" and before.draws > result.draws
        fuller = fewer or before.sequences > result.sequences
        own_file = folder / before.file_name
        if own_file == file and fuller:
            own_file = file.with_name(f"{file.stem}-of-{before.sequences}.json")
        if own_file != file and not own_file.exists():
            os.replace(file, own_file)
            terminal.note(f"the {'fuller' if fuller else 'other'} result that was there is now {path(own_file)}")
    result.save(file)
    return file


def _freedom(result: Result) -> str:
    return "" if result.freedom is None else f" and has {result.freedom}"


# ---------------------------------------------------------------------------------------------------- samples
Table = tuple[str, list[list[str]]]  # its title, and its rows, the header first
CURVES = {
    "frontier": "over temperature and top-p",
    "guidance": "against the strength of guidance",
    "calls": "against network evaluations",
}
BESIDE = 3  # columns of a printed table beside real text


def aligned(rows: list[list[str]], gap: int = 2) -> list[str]:
    """Rows as lines: names on the left, numbers aligned on the right."""
    return columns(rows, "<" + ">" * (len(rows[0]) - 1), indent=2, gap=gap)


def describe_samples(record: SamplesRecord) -> list[str]:
    """The lines that `zellige evaluate --generate` prints."""
    points, real = record.points, record.real
    lines = [of_model(record.about)] if record.about else []
    lines += headline(record)
    if len(points) == 1:
        (point,) = points
        lines.append(f"{counted(point.samples, 'sample')}{_drawn(point)}")
        if point.expected_calls is not None:
            lines.append(f"  of each {point.expected_calls:.1f} network evaluations are expected")
        if point.leaps:
            lines.append(f"  {describe_leaps(point.leaps)}")
        sets = [point, *([real] if real else [])]
        rows = [["", "samples", *([_name(real)] if real else [])]]
        rows += [["images, n", *(count(samples.samples) for samples in sets)]] if record.of_images else []
        rows += [[metric.label, *(shown(samples, metric.name) for samples in sets)] for metric in record.measures]
        lines += ["", *aligned(rows, 3)]
    else:
        lines.append(f"{counted(points[0].samples, 'sample')} at each point")
        for title, rows in tables(record):
            shared, rows, first = without_shared(rows, len(rows[0]) - len(metrics_of(record)))
            lines += ["", f"  {'; '.join(filter(None, [title, shared]))}", *beside(rows, first)]
    lines += table_of_cheats(record)
    spaced = False
    for head, text in _protocol(record):
        paragraph = textwrap.wrap(
            text, 80, initial_indent=f"  {head:<10}", subsequent_indent=" " * 12, break_on_hyphens=False
        )
        lines += [*([] if spaced else [""]), *paragraph]
        spaced = True
    return lines


def without_shared(rows: list[list[str]], first: int) -> tuple[str, list[list[str]], int]:
    """What all sets share, as words; the rows without these columns; how many of the first columns are left."""
    sets = [row for row in rows[1:] if row[1]]  # real text has no steps
    same = [i for i in range(1, first) if len({row[i] for row in sets}) == 1 and len(sets) > 1]
    text = ", ".join(f"{rows[0][i]} {sets[0][i]}" for i in same)
    return text, [[cell for i, cell in enumerate(row) if i not in same] for row in rows], first - len(same)


def metrics_of(record: SamplesRecord) -> list[Metric]:
    """The metrics that have a column in `tables`; the columns before them say how a set was sampled."""
    return [m for m in METRICS.all().values() if m.column and any(m.name in p.measures for p in record.points)]


def tables(record: SamplesRecord) -> list[Table]:
    """A table for each kind of curves, or one of all points where there are none."""
    points, real, images = record.points, record.real, record.of_images
    metrics = metrics_of(record)
    curve_sets = {title: curves_of(points, by) for by, title in CURVES.items()}
    groups = {title: [p for points in curve.values() for p in points] for title, curve in curve_sets.items() if curve}
    guided = any(point.way.guidance is not None for point in points)
    heads = ["sampler", "steps", "calls", "temp.", "top-p", *["guidance"] * guided, *(["n"] if images else [])]
    heads += [metric.column for metric in metrics]
    titled_tables = list[Table]()
    for title, group in (groups or {"": [*points]}).items():
        rows = [heads]
        for point in group:
            way = point.way
            steps, calls = ("-" if x is None else f"{x:.4g}" for x in (way.steps, point.calls))
            how = [way.name or "samples", steps, calls, f"{way.temperature:g}", f"{way.top_p:g}"]
            how += ["-" if way.guidance is None else f"{way.guidance:g}"] * guided
            how += [count(point.samples)] if images else []
            rows.append([*how, *(shown(point, metric.name) for metric in metrics)])
        if real:
            how = [_name(real), "", "", "", "", *[""] * guided, *([count(real.samples)] if images else [])]
            rows.append([*how, *(shown(real, metric.name) for metric in metrics)])
        titled_tables.append((title, rows))
    return titled_tables


def _name(samples: ScoredSet) -> str:
    return samples.name or "samples"


def _drawn(point: ScoredSet) -> str:
    """Settings by which a set was sampled; "" where its samples are from a file."""
    way = point.way
    if not way.sampler:
        return ""
    options = "".join(f", {name} {value}" for name, value in way.options.items())
    calls = f" ({point.calls:.1f} evaluations each)" if point.calls is not None else ""
    heat = f"temperature {way.temperature:g}, top-p {way.top_p:g}"
    heat += "" if way.guidance is None else f", guidance {way.guidance:g}"
    return f": {way.sampler}{options}, {counted(way.steps or 0, 'step')}{calls}, {heat}"


def _protocol(record: SamplesRecord) -> list[tuple[str, str]]:
    """The protocol as paragraphs, each with its head."""
    protocol, judge, seed = record.protocol, record.protocol.judge, record.seed
    draws = "; ".join(filter(None, [protocol.draws, protocol.class_]))
    families_of_n = dict.fromkeys(metric.family for metric in record.measures if metric.biased)
    biased = f"; biased in n, so compare at equal n: {', '.join(families_of_n)}" if families_of_n else ""
    interval = ("± is", f"95%, {record.interval}{biased}")
    given = [("given", protocol.given)] if protocol.given else []
    if record.of_images:
        return [*_protocol_of_images(record, draws), interval]
    if judge is None:
        how = f"{protocol.name}: {draws}; {grouped(protocol.definitions)}; seed {seed}"
        return [*given, ("protocol", how), interval]
    text = (
        f"{judge.judge}: {parameters(judge.parameters)}, {judge.network}, tokenizer {judge.tokenizer} "
        f"({count(judge.vocabulary)}); samples {protocol.judged}; first token {judge.first}; EOS counted: "
        f"{judge.eos}; context {count(judge.context)}, longer texts {judge.long}"
    )
    cut = sum(point.cut or 0 for point in record.points)
    paragraphs = [("judge", text + (f" ({count(cut)} of the samples)" if cut else ""))]
    if (distances := protocol.compared) is not None:
        sizes = f"{count(distances.texts)} texts on either side, {distances.features}"
        paragraphs.append(("distances", f"{sizes}; of real text from other real text"))
    families = ", ".join(dict.fromkeys(metric.family for metric in record.measures if metric.of_tokens))
    how = f"{protocol.name}: {draws}; {families} on {protocol.measured_on}; seed {seed}"
    return [*paragraphs, *given, ("protocol", how), interval]


def _protocol_of_images(record: SamplesRecord, draws: str) -> list[tuple[str, str]]:
    protocol, features = record.protocol, record.protocol.features
    assert features is not None
    identity = f"{count(features.features)} of {features.name}, sha256 {features.sha256[:8]}; {features.resizing}"
    choices = grouped(protocol.definitions)
    against = f"against {protocol.reference}, all as {protocol.images}"
    how = f"{protocol.name}: {against}; {protocol.library}; {choices}; {draws}; seed {record.seed}"
    return [("features", identity), ("protocol", how)]


def shown(samples: ScoredSet, name: str) -> str:
    """A metric of a set as its row of METRICS prints it; "-" where the set has none. ValueError:
    there is no such row."""
    metric = find(name)
    return metric.text(samples.measures[name]) if name in samples.measures else "-"


def headline(record: SamplesRecord) -> list[str]:
    """Perplexity at the entropy of real text, above all else, or why it is unknown;
    nothing where there is no real text."""
    if record.real is None or not record.of_texts or record.protocol.given:
        return []
    if (at := record.matched) is None:
        if record.curve:
            return ["", "at the entropy of real text: unknown, no two temperatures lie about it", ""]
        return ["", "at the entropy of real text: unknown; --frontier draws what it takes", ""]
    metric = find("perplexity")
    places = metric.places(at.perplexity.value)
    return [
        "",
        f"at the entropy of real text, {at.entropy:.3f} nats (temperature {at.temperature:.2f}):",
        f"  perplexity {metric.text(at.perplexity)}, that of real text {at.real:.{places}f}",
        f"  {at.gap.text()} nats/token above real text",
        "",
    ]


def of_cheats(record: SamplesRecord) -> list[Table]:
    """The table of degenerate samplers, or none: a row for each metric, real text first;
    * is no worse than real text."""
    if not record.cheats:
        return []
    sets, real = [record.points[0], *record.cheats], [record.real] if record.real else []
    rows = [["", *map(_name, [*real, *sets])]]
    for metric in record.measures:
        marks = ["*" if metric.name in (samples.fools or ()) else " " for samples in sets]
        cells = [shown(samples, metric.name) + mark for samples, mark in zip(sets, marks)]
        rows.append([metric.label, *(shown(samples, metric.name) for samples in real), *cells])
    return [("what fools what: * is no worse than real text", rows)]


def table_of_cheats(record: SamplesRecord) -> list[str]:
    """The same table as lines, a few columns at a time, real text in each."""
    lines = []
    for title, rows in of_cheats(record):
        lines += ["", title]
        first = 2 if record.real else 1
        for at in range(first, len(rows[0]), BESIDE):
            part = [[*row[:first], *row[at : at + BESIDE]] for row in rows]
            lines += ["", *columns(part, "<" + ">" * (len(part[0]) - 1), indent=2)]
    return lines
