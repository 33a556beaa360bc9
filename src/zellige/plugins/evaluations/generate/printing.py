"""Printed samples: a column or a row for each point, beside real text, and the protocol."""

from zellige.cli.common import of_model
from zellige.evaluation.metrics import METRICS, Metric, find, grouped
from zellige.samplers.tau_leaping import describe_leaps
from zellige.show.numbers import beside, columns, count, counted, paragraph, parameters

from .sample_sets import ScoredSet, curves_of
from .samples import SamplesRecord

Table = tuple[str, list[list[str]]]  # its title, and its rows, the header first
CURVES = {
    "frontier": "over temperature and top-p",
    "guidance": "against the strength of guidance",
    "calls": "against network evaluations",
}
BESIDE = 3  # columns of a printed table beside real text


def describe_samples(record: SamplesRecord) -> list[str]:
    """The lines that `zellige evaluate --generate` prints."""
    points, real = record.points, record.real
    lines = [of_model(record.about)] if record.about else []
    lines += headline(record)
    candidates = record.about.get("best_of") or 1
    chosen = f", each the likeliest of {candidates:,}" if candidates > 1 else ""
    if len(points) == 1:
        (point,) = points
        lines.append(f"{counted(point.samples, 'sample')}{chosen}{_drawn(point)}")
        if point.expected_calls is not None:
            lines.append(f"  of each {point.expected_calls:.1f} network evaluations are expected")
        if point.leaps:
            lines.append(f"  {describe_leaps(point.leaps)}")
        sets = [point, *([real] if real else [])]
        rows = [["", "samples", *([_name(real)] if real else [])]]
        rows += [["images, n", *(count(samples.samples) for samples in sets)]] if record.of_images else []
        rows += [[metric.label, *(shown(samples, metric.name) for samples in sets)] for metric in record.measures]
        lines += ["", *columns(rows, "<" + ">" * (len(rows[0]) - 1), indent=2, gap=3)]
    else:
        lines.append(f"{counted(points[0].samples, 'sample')} at each point{chosen}")
        for title, rows in tables(record):
            shared, rows, first = without_shared(rows, len(rows[0]) - len(metrics_of(record)))
            lines += ["", f"  {'; '.join(filter(None, [title, shared]))}", *beside(rows, first)]
    lines += table_of_cheats(record)
    lines.append("")
    for head, text in _protocol(record):
        lines += paragraph(head, text, break_on_hyphens=False)
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
    piece = " of each piece" if (judge.eos, judge.long) == ("first", "chunks") else ""
    text = (
        f"{judge.judge}: {parameters(judge.parameters)}, {judge.network}, tokenizer {judge.tokenizer} "
        f"({count(judge.vocabulary)}); samples {protocol.judged}; first token {judge.first}; EOS counted: "
        f"{judge.eos}{piece}; context {count(judge.context)}, longer texts {judge.long}"
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
