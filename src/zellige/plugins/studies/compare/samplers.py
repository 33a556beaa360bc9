"""`zellige compare RUN --samplers`: one model and its samplers; quality against network evaluations and against time.

    result = CompareSamplers(("ancestral", "confidence", "klass"), steps=(4, 16, 64)).run("runs/demo")

Every sampler draws as many samples at each number of steps. What stands for quality depends on the data:

    puzzles                  the fraction of held-out ones that are solved, filled in without search
    enumerable data          total variation from the data's own distribution
    molecules                the fraction of the samples that are valid and unlike those before them
    text, images, music      energy distance to held-out data

A sampler that collapses does not win by any of these: copies of one good sample are counted once, or are far from the
data. What a sample looks like by itself (its entropy; cells of a puzzle that are right) stands beside them. Where the
sampler chooses positions deterministically, -log p of held-out data is exact under its own distribution, parallel steps
included (`samplers.replay`), and no sample is needed.

No point beats another unless it costs as little and is as good, and one of the two is better: `unbeaten`. The two costs
are the mean number of network evaluations of a sample, and the time that a sample took. measured.json keeps every point
as soon as it is measured, so that the same command goes on after an interruption; samplers.json, .md and .svg are made
of all.
"""

import json
import math
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from zellige import __version__, samplers
from zellige.base import files
from zellige.base.errors import InputError
from zellige.base.requests import Request
from zellige.base.schema import entries_of, read_json, shown, structure
from zellige.core.batch import Batch
from zellige.data import Corpus
from zellige.data.rows import evenly_spaced
from zellige.evaluation import metrics
from zellige.evaluation.corpus import corpus_of
from zellige.evaluation.distances import LEAST
from zellige.evaluation.interval import Number, Proportion, mean
from zellige.evaluation.likelihood import number_of_tokens
from zellige.evaluation.result import summarize
from zellige.models import model as models
from zellige.plugins.evaluations.generate import sample_sets
from zellige.plugins.evaluations.generate.sample_sets import Set, Way
from zellige.plugins.evaluations.generate.text_features import hashed_ngrams, in_units_of
from zellige.plugins.kinds.molecules.smiles import is_molecule
from zellige.plugins.kinds.molecules.task import MOLECULES
from zellige.plugins.kinds.puzzles.task import PUZZLES
from zellige.samplers.confidence import NetworkChooses
from zellige.samplers.replay import Replayed, no_order, weigh
from zellige.show import kinds
from zellige.show.numbers import as_markdown, columns, count, counted, duration, percent, scaled
from zellige.show.progress import Bar
from zellige.show.record import Figure, Record, as_file
from zellige.show.terminal import Terminal
from zellige.training import lock

from .entrant import visible
from .measure import padded_rows
from .record import COSTS, SamplerFindings, SamplerPoint
from .reference import Enumerated, enumerated

PROTOCOL = "zellige-samplers-1"
MEASURED, NAME = "measured.json", "samplers"
AGAIN = "remove it to measure again"
TEXTS = 64  # samples of text, images and music
WIDTH = 100


# ---------------------------------------------------------------------------------------------------- the record
@dataclass(frozen=True, kw_only=True)
class SamplersComparison(Record):
    """A finished comparison of samplers; `print` it for the table."""

    command: ClassVar = "compare"
    advice: ClassVar = "give a samplers.json that zellige compare wrote"
    kind: ClassVar = "samples"
    interval: ClassVar = {"level": 0.95}
    findings: SamplerFindings
    protocol: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    seconds: float | None = None

    def __str__(self) -> str:
        return "\n".join(table_lines(self.findings))

    def figures(self) -> list[Figure]:
        found = self.findings
        return [
            Figure(f"{point.name}, {point.way.steps} steps: {name}", number.value, number.half, name, "samples")
            for point in found.points
            for name, number in point.measures.items()
        ]

    @property
    def unit(self) -> str:
        return self.findings.quality

    def content(self) -> dict[str, Any]:
        return entries_of(self.findings) | {"about": self.about}

    @classmethod
    def values(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        result = document["result"]
        return {**document, "findings": result, "about": result["about"]}


# ---------------------------------------------------------------------------------------------------- no other beats it
def unbeaten(costs: Sequence[float], values: Sequence[float], higher: bool) -> list[bool]:
    """Whether no other point costs as little and is as good, and is better in one of the two (Pareto); NaN is beaten.

    >>> unbeaten([1, 2, 3, 3], [0.5, 0.4, 0.4, 0.1], higher=False)
    [True, True, False, True]
    """
    cost, loss = np.asarray(costs, float), np.asarray(values, float) * (-1 if higher else 1)
    as_good = (cost[:, None] <= cost) & (loss[:, None] <= loss)
    better = (cost[:, None] < cost) | (loss[:, None] < loss)
    beaten = (as_good & better).any(0) | np.isnan(loss)
    return [not one for one in beaten.tolist()]


def clearly_beaten(costs: Sequence[float], numbers: Sequence[Number], higher: bool) -> list[bool]:
    """Say of each point whether another costs as little and the whole interval of its value is better."""
    cost = np.asarray(costs, float)
    low, high = (np.array([getattr(number, end) for number in numbers], float) for end in ("low", "high"))
    apart = low[:, None] > high if higher else high[:, None] < low
    return np.any((cost[:, None] <= cost) & apart, axis=0).tolist()


def marked(points: Sequence[SamplerPoint], quality: str, higher: bool) -> tuple[SamplerPoint, ...]:
    """The points with the costs in which no other beats them."""
    numbers = [point.measures[quality] for point in points]
    first: dict[str, list[bool]] = {}
    near: dict[str, list[bool]] = {}
    for kind in COSTS:
        costs = [point.cost(kind) for point in points]
        first[kind] = unbeaten(costs, [number.value for number in numbers], higher)
        near[kind] = [not beaten for beaten in clearly_beaten(costs, numbers, higher)]
    return tuple(
        replace(
            point,
            unbeaten=tuple(kind for kind in COSTS if first[kind][i]),
            close=tuple(kind for kind in COSTS if near[kind][i] and not first[kind][i]),
        )
        for i, point in enumerate(points)
    )


# ---------------------------------------------------------------------------------------------------- quality
@dataclass(frozen=True)
class Quality:
    """How the samples of a model are judged.

    Attributes:
        kind, quality, beside, higher, real: as in `SamplerFindings`.
        count: samples; fixed: (count, L) given tokens, -1 where one is free, or None.
        measure: the measures of a set of samples, by name.
        definition: for the protocol.
    """

    kind: str
    quality: str
    beside: str
    higher: bool
    count: int
    measure: Callable[[Set], dict[str, Number]]
    definition: str
    fixed: np.ndarray | None = None
    real: dict[str, Number] = field(default_factory=dict)


def quality_of(model: models.Model, corpus: Corpus, samples: int = 0) -> Quality:
    """How samples of this model are judged by this data.

    Args:
        samples: how many; 0: as many as the kind of data has by default.
    """
    test = corpus.test
    if getattr(test, "clues", None) is not None:
        return _puzzles(test, samples or PUZZLES)
    if (distribution := enumerated(corpus)) is not None:
        return _enumerable(Enumerated(*distribution, corpus, ""), samples)
    if kinds.of(model.tokenizer).name == "smiles":
        return _molecules(samples or MOLECULES)
    return _distance(model, corpus, samples or TEXTS)


def _puzzles(rows: Any, most: int) -> Quality:
    indices = evenly_spaced(np.arange(len(rows)), min(most, len(rows)))
    clues, solutions = rows.clues[indices], rows.array()[indices]
    free = clues < 0

    def measure(samples: Set) -> dict[str, Number]:
        right = np.array(samples.rows) == solutions
        return {
            "solved": Proportion(int(right.all(-1).sum()), len(right)).number,
            "cells right": mean((right & free).sum(-1) / free.sum(-1)),
        }

    given = f"{float((~free).sum(-1).mean()):.1f} of {clues.shape[1]} cells given"
    definition = f"held-out puzzles filled in without search, {given}; cells right: of those that are not given"
    return Quality("puzzles", "solved", "cells right", True, len(indices), measure, definition, clues)


def _enumerable(judge: Enumerated, samples: int) -> Quality:
    number, real = samples or judge.count, judge.reference(samples or judge.count)

    def measure(samples: Set) -> dict[str, Number]:
        score = judge.score(padded_rows(samples.rows or []))
        inside = round((score.inside or 0.0) * len(samples.texts))
        return {
            "total variation": Number(score.value, score.low, score.high),
            "inside": Proportion(inside, len(samples.texts)).number,
            "reached": Number(score.reached or 0.0, -math.inf, math.inf),
        }

    definition = f"from {judge.name}; inside: samples that it has; reached: probability of those that occur"
    expected = {"total variation": Number(real.value, *real.band)}
    return Quality("enumerable", "total variation", "inside", False, number, measure, definition, real=expected)


def _molecules(number: int) -> Quality:
    def measure(samples: Set) -> dict[str, Number]:
        valid = [text for text in samples.texts if is_molecule(text)]
        return {
            "valid and different": Proportion(len({*valid}), len(samples.texts)).number,
            "valid": Proportion(len(valid), len(samples.texts)).number,
        } | metrics.measure(rows=samples.rows or [])

    definition = "valid SMILES, each text counted once"
    return Quality("molecules", "valid and different", "entropy", True, number, measure, definition)


def _distance(model: models.Model, corpus: Corpus, number: int) -> Quality:
    """Energy distance to as many held-out rows; as many others are the floor."""
    if number < LEAST:
        raise InputError(f"`samples` is {number}; it must be {LEAST} or more, for a distance to real data")
    pool = sample_sets.real_texts(corpus, "test", 2 * number)
    number = min(number, len(pool.texts) // 2)
    if number < LEAST:
        raise InputError(f"{len(pool.texts)} held-out sequences are too few for distances; use data with more")
    ordered = model.tokenizer.ordered
    floor, held_out = (
        Set(pool.way, pool.texts[i : 2 * number : 2], (pool.rows or [])[i : 2 * number : 2]) for i in (0, 1)
    )

    def vectors(samples: Set) -> np.ndarray:
        return np.array(samples.rows, float) if ordered else hashed_ngrams(samples.texts)

    units = in_units_of(vectors(floor))
    real_vectors = units(vectors(held_out))

    def measure(samples: Set) -> dict[str, Number]:
        return metrics.measure(rows=samples.rows or [], vectors=units(vectors(samples)), real_vectors=real_vectors)

    features = "the values themselves" if ordered else "hashed runs of 2 to 4 bytes"
    definition = f"to {number:,} held-out sequences, features: {features}; real: of other held-out ones"
    return Quality("data", "energy distance", "entropy", False, number, measure, definition, real=measure(floor))


@torch.no_grad()
def exact_nats(model: models.Model, texts: Batch | None, way: Way, batch: int) -> Number | None:
    """-log p of texts in nats per token under the sampler's own distribution; None where it is not exact.

    It is where the positions of a step follow from the tokens before it: most confident first and its rules, `klass`, a
    fixed order.
    """
    method = model.method
    sampler = samplers.choose_sampler(way.sampler, method, way.temperature, way.top_p, way.options)
    chooses = isinstance(sampler, NetworkChooses | samplers.FixedOrder)
    if texts is None or not chooses or sampler.truncates() or method.exact or no_order(method):
        return None
    path = Replayed(sampler, sampler.distribution(method, way.steps), way.steps)
    parts = [texts.take(rows) for rows in torch.arange(len(texts)).split(batch)]
    nats = torch.cat([-weigh(method, part, path).log_w.sum(-1).cpu() for part in parts])
    result = summarize(nats, number_of_tokens(texts), "nats/token", "exact")
    return Number(result.value, result.low, result.high)


# ---------------------------------------------------------------------------------------------------- the work
def compare_samplers(
    request: Request[Any], model: models.Model, folder: Path, terminal: Terminal
) -> SamplersComparison:
    """Do what a request of a comparison of samplers asks (`request.CompareSamplers`)."""
    asked: Any = request
    began = time.monotonic()
    check_folder(folder)
    if model.config.data.given:
        raise InputError(
            "the model continues given parts of its data, and here whole samples are drawn; "
            "use zellige evaluate RUN --generate --calls"
        )
    ways = ways_of(model, asked.samplers, asked.steps)
    with terminal.waiting("reading"):
        corpus = corpus_of(model, asked.data)
        judge = quality_of(model, corpus, asked.samples)
        texts = held_out(model, corpus, asked.limit)
    about, key = models.identity(model), _key(model, corpus, asked, judge)
    length = int(model.method.shape[0])
    size = asked.batch or max(1, min(judge.count, 2**14 // length))
    key |= {"batch": size}
    terminal.say(
        f"{counted(len({way.curve for way in ways}), 'sampler')}, {counted(len(ways), 'point')} of "
        f"{counted(judge.count, 'sample')} each; at most {count(judge.count * sum(w.steps or 1 for w in ways))} "
        "network evaluations"
    )
    with lock.hold(folder, "compared"):
        points = _measure_all(model, ways, judge, texts, asked.seed, size, key, folder / MEASURED, terminal)
        findings = SamplerFindings(
            data=corpus.about["name"],
            kind=judge.kind,
            quality=judge.quality,
            beside=judge.beside,
            higher=judge.higher,
            points=marked(points, judge.quality, judge.higher),
            real=judge.real,
        )
        protocol = {
            "name": PROTOCOL,
            "samples": f"{judge.count} at each point; {sample_sets.PROTOCOL}: sample i has the stream of (seed, i)",
            "quality": f"{judge.quality}: {judge.definition}",
            "exact": "-log p of held-out sequences under the sampler's own distribution"
            + ("" if texts is None else f", {len(texts)} of them"),
            "time": f"of sampling alone, wall clock, batches of {size}, {counted(torch.get_num_threads(), 'thread')}",
            "network": model.method.precision,
            "weights": about["weights"],
            "device": next(model.method.parameters()).device.type,
            "data sha256": corpus.about.get("sha256"),
        }
        record = SamplersComparison(
            findings=findings,
            protocol=protocol,
            about=about | {"length": length},
            seed=asked.seed,
            seconds=time.monotonic() - began,
        ).made_by(request)
        with terminal.waiting("drawing"):
            _write(record, folder)
    return record


def ways_of(model: models.Model, names: Sequence[str], steps: Sequence[int]) -> list[Way]:
    """The points to measure: each sampler with each number of steps, or once where its number of steps is its own."""
    ways = sample_sets.calls(model, Way(), steps, names or supported(model.method))
    return sample_sets.different(sample_sets.with_sampler(model, way) for way in ways)


def supported(method: Any) -> list[str]:
    """Every sampler that a method supports; of a network of blocks `blockwise` with each that a block supports."""
    able = [name for name, cls in samplers.SAMPLERS.items() if cls.reason_against(method) is None]
    if "blockwise" not in able:
        return able
    able.remove("blockwise")
    if not 0 < method.block < method.shape[0]:
        return able
    block = samplers.of_length(method, method.block)
    inside = [
        name for name, cls in samplers.SAMPLERS.items() if name != "blockwise" and cls.reason_against(block) is None
    ]
    return able + [f"blockwise:block_sampler={name}" for name in inside]


def held_out(model: models.Model, corpus: Corpus, limit: int) -> Batch | None:
    """`limit` sequences of the test split, evenly spaced; None for 0,
    or where rows are packed from several documents."""
    rows = corpus.test
    if not limit:
        return None
    indices = evenly_spaced(np.arange(len(rows)), min(limit, len(rows)))
    texts = rows.collate([rows[int(i)] for i in indices])
    return None if texts.segments is not None else texts.to(next(model.method.parameters()).device)


def _key(model: models.Model, corpus: Corpus, request: Any, judge: Quality) -> dict[str, Any]:
    """All that a point depends on beside the sampler: where it is the same, the point is not measured again."""
    data = corpus.about.get("tokens_sha256") or corpus.about.get("sha256")
    return {
        "zellige": __version__,
        "model": models.fingerprint(model.method),
        "data": data,
        "samples": judge.count,
        "seed": request.seed,
        "limit": request.limit,
        "precision": model.method.precision,
        "device": next(model.method.parameters()).device.type,
    }


def _measure_all(
    model: models.Model, ways: Sequence[Way], judge: Quality, texts: Batch | None, seed: int, batch: int,
    key: dict[str, Any], file: Path, terminal: Terminal,
) -> list[SamplerPoint]:  # fmt: skip
    """Every point: read from the file where it was measured before, else measured, and written at once."""
    entries = read_json(file, dict, AGAIN).get("points", []) if file.is_file() else []
    keys = [json.loads(json.dumps(key | {"way": asdict(way)})) for way in ways]
    points: dict[int, SamplerPoint] = {}
    for i, wanted in enumerate(keys):
        entry = next((e for e in entries if isinstance(e, dict) and e.get("key") == wanted), None)
        if entry is not None:
            points[i] = structure(entry.get("point"), SamplerPoint, f"'{shown(file)}'", "point", AGAIN, strict=False)
    if points:
        terminal.say(f"{counted(len(points), 'point')} measured before")
    new = [(i, way) for i, way in enumerate(ways) if i not in points]
    if new:  # the first evaluations of a process are slow
        sample_sets.draw_samples(model, new[0][1], 1, seed, batch=1)
    total, before = judge.count * sum(way.steps or 1 for _, way in new), 0
    with Bar(terminal, "sample", max(total, 1), "steps") as bar:
        for i, way in new:
            show = lambda done, _, way=way, before=before: bar.update(before + done, f"{way.name} {way.steps}")  # noqa: E731
            points[i] = measure_point(model, way, judge, texts, seed, batch, show)
            before += judge.count * (way.steps or 1)
            entries.append({"key": keys[i], "point": entries_of(points[i])})
            files.write_file(file, as_file({"points": entries}))
    return [points[i] for i in range(len(ways))]


def measure_point(
    model: models.Model,
    way: Way,
    judge: Quality,
    texts: Batch | None,
    seed: int,
    batch: int,
    progress: Callable[[int, int], None],
) -> SamplerPoint:
    """Draw the samples of one point, and measure them."""
    drawn = sample_sets.draw_samples(model, way, judge.count, seed, batch=batch, progress=progress, fixed=judge.fixed)
    return SamplerPoint(
        way=way,
        samples=len(drawn.texts),
        calls=float(np.mean(drawn.calls or [math.nan])),
        seconds=drawn.seconds,
        tokens=sum(map(len, drawn.rows or [])),
        measures=judge.measure(drawn),
        exact=exact_nats(model, texts, way, batch),
        example=drawn.texts[0],
    )


# ---------------------------------------------------------------------------------------------------- files
def check_folder(folder: Path) -> None:
    """InputError unless a comparison of samplers may be written there."""
    if folder.is_file():
        raise InputError(f"'{shown(folder)}' is a file; give `out` a folder")
    ours = {MEASURED, *(f"{NAME}.{end}" for end in ("json", "md", "svg"))}
    if any(path.name not in ours for path in visible(folder)):
        raise InputError(
            f"'{shown(folder)}' holds something that is not a comparison of samplers; choose another `out`"
        )


def written(folder: Path) -> list[Path]:
    """The files of a comparison."""
    return [folder / f"{NAME}.{end}" for end in ("json", "md", "svg")]


def _write(record: SamplersComparison, folder: Path) -> None:
    from zellige.plugins.report.palette import as_svg

    from .samplers_figure import samplers_figure

    plain, page, figure = written(folder)
    files.write_file(plain, as_file(record.to_dict()))
    files.write_file(page, markdown(record))
    files.write_file(figure, as_svg(samplers_figure(record.findings)))


# ---------------------------------------------------------------------------------------------------- the table
def measure_text(name: str, number: Number | None) -> str:
    """A measure as it is printed; `-` for none."""
    if number is None or math.isnan(number.value):
        return "-"
    if name in metrics.METRICS:
        return number.text(metrics.find(name).places(number.value))
    if name in ("nats/token", "total variation"):
        return number.text(3)
    if not math.isfinite(number.half):
        return percent(number.value)
    if name == "cells right":
        return f"{percent(number.value)} ± {100 * number.half:.1f}"
    return f"{percent(number.value)} ({100 * number.low:.0f} to {100 * number.high:.0f})"


def marks(point: SamplerPoint) -> str:
    """`*` where no other point beats it, `~` where one does within the intervals, `.`: for evaluations,
    then for time."""
    return "".join("*" if kind in point.unbeaten else "~" if kind in point.close else "." for kind in COSTS)


def cells(found: SamplerFindings) -> list[list[str]]:
    """The head of the table, and its rows; the last is held-out data."""
    exact = any(point.exact is not None for point in found.points)
    table = [["sampler", "steps", "NFE", found.quality, found.beside, *["nats/token"] * exact, "samples/s", "best"]]
    for point in found.points:
        shown_exact = [measure_text("nats/token", point.exact)] * exact
        table.append(
            [
                point.name,
                count(point.way.steps or 0),
                f"{point.calls:.1f}",
                measure_text(found.quality, point.measures[found.quality]),
                measure_text(found.beside, point.measures[found.beside]),
                *shown_exact,
                scaled(point.per_second),
                marks(point),
            ]
        )
    if found.real:
        numbers = [measure_text(name, found.real.get(name)) for name in (found.quality, found.beside)]
        table.append(["held-out data", "", "", *numbers, *[""] * exact, "", ""])
    return table


def unbeaten_lines(found: SamplerFindings) -> list[str]:
    """The points that no other beats, by name, least cost first: a line for each cost."""
    lines = []
    for kind in COSTS:
        points = sorted((p for p in found.points if kind in p.unbeaten), key=lambda p: p.cost(kind))
        names = ", ".join(
            f"{p.name} {p.way.steps} "
            + (f"({p.calls:.1f})" if kind == COSTS[0] else f"({scaled(p.per_second)} a second)")
            for p in points
        )
        lines.append(f"no other beats, by {'network evaluations' if kind == COSTS[0] else 'time'}: {names or 'none'}")
    return lines


def notes(found: SamplerFindings) -> list[str]:
    """The lines under the table."""
    first = found.points[0]
    better = "more" if found.higher else "less"
    lines = [
        f"{counted(first.samples, 'sample')} at each point, 95% intervals; {better} {found.quality} is better",
        "NFE: network evaluations of a sample, mean; best, by NFE and by time: * no other point beats it, ~ one does, "
        "but within the intervals, . one does",
    ]
    if any(point.exact is not None for point in found.points):
        lines.append("nats/token: exact -log p of held-out data under the sampler's own distribution")
    return lines


def table_lines(found: SamplerFindings) -> list[str]:
    """The table of at most 100 columns, what no other beats, and notes."""
    table = cells(found)
    align = "<" + ">" * (len(table[0]) - 2) + "<"
    wide = max(len(line) for line in columns(table, align))
    if wide > WIDTH:
        longest = max(len(row[0]) for row in table) - (wide - WIDTH)
        table = [[row[0] if len(row[0]) <= longest else f"{row[0][: max(longest, 2) - 1]}…", *row[1:]] for row in table]
    lines = columns(table, align)
    for note in [*unbeaten_lines(found), *notes(found)]:
        lines += textwrap.wrap(note, WIDTH, subsequent_indent="    ")
    return lines


def markdown(record: SamplersComparison) -> str:
    """The table, the figure and the protocol."""
    found = record.findings
    model = f"{record.about['method']}, {record.about['parameters']:,} parameters"
    parts = [f"# Samplers of {model}, on {found.data}", as_markdown(cells(found))]
    parts += ["\n".join(f"- {line}" for line in [*unbeaten_lines(found), *notes(found)])]
    parts += [f"![quality against network evaluations and time]({NAME}.svg)"]
    parts += ["\n".join(f"- {name}: {value}" for name, value in record.protocol.items())]
    parts += [f"Measured in {duration(record.seconds or 0.0)}, seed {record.seed}."]
    return "\n\n".join(parts) + "\n"
