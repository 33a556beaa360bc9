"""Samples drawn in several ways, each set judged: quality against diversity (the frontier), and against network
evaluations.

A `Way` says how a set is drawn. Along a frontier only temperature or top-p differs, along a curve of calls only the
number of steps; which sets belong to which is read off the ways themselves, so that sets read from a file fall into the
same curves. All sets are drawn with the same seeds, text i of every set with the same stream of random numbers.

Along the temperatures both perplexity and entropy change, so neither is a number of the model; the perplexity at the
entropy of real text is (`match_entropy`). Between the two temperatures whose entropies lie on either side of that of
real text, log perplexity is taken as linear in entropy. Outside all of them there is no such number. Its interval is
the jackknife's over samples and real texts; sample i is left out of all temperatures at once, since it has the same
random numbers in each.
"""

import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Required, TypedDict, get_type_hints

import numpy as np
import torch

from zellige import samplers
from zellige.base.arguments import from_text
from zellige.base.errors import InputError, check_counts, unknown
from zellige.base.requests import Progress, choices_of
from zellige.base.schema import read_lines, read_text, shown
from zellige.data.corpus import Corpus
from zellige.data.given import GivenRows
from zellige.data.tokenizer_base import Tokenizer
from zellige.evaluation import metrics
from zellige.evaluation.interval import Number, from_jackknife
from zellige.models.decoding import Decoding
from zellige.models.ends import end_token, trained_on_documents
from zellige.models.model import Model, fingerprint
from zellige.samplers import choose_sampler
from zellige.samplers.choice import PLAIN
from zellige.samplers.growing import Redrawn
from zellige.samplers.pairing import admissible, of_length
from zellige.samplers.tau_leaping import Leap, LeapSummary
from zellige.sampling.sample import Sample
from zellige.sampling.trajectory import Frame

from .judge import Judge, JudgeReading, read_texts

MATCHED_INTERVAL = "at matched entropy: jackknife over samples, the same of every temperature, and real texts"


@dataclass(frozen=True)
class Matched:
    """Value of samples at the entropy of real text.

    Attributes:
        entropy: of real text, nats.
        temperature: where the samples have it, by interpolation.
        perplexity, real: corpus-level, of samples there and of real text.
        gap: log of one over the other, nats per token: 0 is as likely as real text, below 0 likelier.
    """

    entropy: float
    temperature: float
    perplexity: Number
    real: float
    gap: Number


def match_entropy(temperatures: Sequence[float], sets: Sequence[JudgeReading], real: JudgeReading) -> Matched | None:
    """Of sets of as many samples at these temperatures; None where the entropy of real text is not between theirs."""
    equal = len({len(reading.rows) for reading in sets}) == 1
    if len(sets) < 2 or not equal or len(sets[0].rows) < 2 or len(real.rows) < 2:
        return None
    curve = np.array([_means(reading) for reading in sets])  # (T, 2): entropy, log perplexity
    target, level = _means(real)
    order = np.argsort(curve[:, 0], kind="stable")
    above = int(np.searchsorted(curve[order, 0], target))
    if above == 0 or above == len(order):
        return None
    ends = order[above - 1 : above + 1]
    pair = [_without(sets[i]) for i in ends]
    value, share = _between(curve[ends[0]], curve[ends[1]], target)
    without_sample = _between(pair[0], pair[1], target)[0]
    without_real = _without(real)
    jackknife_values = _between(curve[ends[0]], curve[ends[1]], without_real[:, 0])[0]
    log = from_jackknife(value, without_sample, jackknife_values)
    low, high = (temperatures[i] for i in ends)
    return Matched(
        float(target),
        float(low + share * (high - low)),
        Number(*map(_exp, (log.value, log.low, log.high))),
        math.exp(level),
        from_jackknife(value - level, without_sample, jackknife_values - without_real[:, 1]),
    )


def _sums(reading: JudgeReading) -> np.ndarray:
    """(N, 4) of each text: its entropy, whether it has one, its nats, its tokens."""
    entropies = metrics.entropies(reading.rows)
    return np.stack(
        [
            np.nan_to_num(entropies),
            ~np.isnan(entropies),
            reading.nats.double().numpy(),
            reading.tokens.double().numpy(),
        ],
        1,
    )


def _ratios(sums: np.ndarray) -> np.ndarray:
    return np.stack([sums[..., 0] / sums[..., 1], sums[..., 2] / sums[..., 3]], -1)


def _means(reading: JudgeReading) -> np.ndarray:
    """(2,) the mean entropy, and log of the corpus-level perplexity."""
    return _ratios(_sums(reading).sum(0))


def _without(reading: JudgeReading) -> np.ndarray:
    """(N, 2) the same without each text."""
    sums = _sums(reading)
    return _ratios(sums.sum(0) - sums)


def _between(low: np.ndarray, high: np.ndarray, entropy: np.ndarray | float) -> tuple[Any, Any]:
    """log perplexity at an entropy on the line through two points (.., 2), and how far along it is."""
    share = (entropy - low[..., 0]) / (high[..., 0] - low[..., 0])
    return low[..., 1] + share * (high[..., 1] - low[..., 1]), share


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


PROTOCOL = "zellige-generation-1"
TEMPERATURES = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1)
TOP_PS = (0.8, 0.9, 0.95)
SAMPLERS = ("first_hitting", "confidence", "remasking")  # beside the model's own, where it admits them
DRAWS = "each categorical draw in float64 by inverse CDF (53 random bits), no Gumbel noise"


@dataclass(frozen=True)
class Way:
    """Settings by which a set of samples is drawn; empty where they are not known (samples from elsewhere)."""

    sampler: str = ""
    steps: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)
    guidance: float | None = None

    @property
    def name(self) -> str:
        """The sampler with its options: "confidence entropy_bound=0.1"."""
        return " ".join([self.sampler, *(f"{name}={value}" for name, value in self.options.items())])

    @property
    def choices(self) -> dict[str, Any]:
        """The way as arguments of `zellige.sample`; no other option of the sampler than these is given."""
        settings = {name: getattr(self, name) for name in ("steps", "temperature", "top_p", "guidance")}
        return settings | {"sampler": self.sampler or None, "top_k": None, "options": None} | self.options

    @property
    def curve(self) -> str:
        """The sampler with its options, numbers left out: along a curve these differ, as the number of steps does."""
        named = {name: f"={value}" if isinstance(value, str | bool) else "" for name, value in self.options.items()}
        return " ".join([self.sampler, *(f"{name}{value}" for name, value in named.items())])


@dataclass(frozen=True)
class Set:
    """Samples, and how they were drawn.

    Attributes:
        texts: (N,).
        rows: tokens of each, the model's own; or None: then those of whoever counts them.
        calls: network evaluations of each, where they are known.
        expected_calls: how many they are in expectation, where that is known.
        classes: the class of each, where classes were asked for.
        seconds: that sampling took, where that is known.
        leaps: of tau-leaping, what its steps came to.
        ended: whether a token ended each, of a sampler that writes left to right until one does.
    """

    way: Way
    texts: list[str]
    rows: list[list[int]] | None = None
    calls: list[int] | None = None
    seed: int | None = None
    expected_calls: float | None = None
    classes: list[str | None] | None = None
    seconds: float = 0.0
    leaps: tuple[Leap, ...] | None = None
    ended: list[bool] | None = None


@dataclass(frozen=True, kw_only=True)
class ScoredSet:
    """A set of samples, with every metric that it was measured by.

    Attributes:
        name: of real text or of a degenerate sampler; "" of the model's samples.
        samples: their number, and `samples_sha256` of their texts, or of the tokens of images.
        tokens: in all, those that entropy and n-grams are of.
        judged, cut: of texts, the tokens that the judge counted, and how many samples are longer than its context.
        calls, expected_calls: network evaluations of a sample, mean, where they are known.
        measures: the metrics by name (`metrics.METRICS`).
        example: of texts, the first of them.
        leaps: of tau-leaping, what fraction of the positions jumped, was clipped and was rejected in each step.
        fools: of a degenerate sampler, the metrics that show it no worse than real text.
    """

    way: Way
    samples: int
    samples_sha256: str
    tokens: int
    measures: dict[str, Number]
    name: str | None = None
    judged: int | None = None
    cut: int | None = None
    calls: float | None = None
    expected_calls: float | None = None
    example: str | None = None
    fools: tuple[str, ...] | None = None
    leaps: tuple[Leap, ...] | None = None

    def also(self, measures: Mapping[str, Number]) -> "ScoredSet":
        """The same set with more metrics. ValueError: one of them has no row in the table."""
        for name in measures:
            metrics.find(name)
        return replace(self, measures={**self.measures, **measures})


# ------------------------------------------------------------------------------------------------------------- which ways
def with_sampler(model: Model, way: Way, length: int | None = None) -> Way:
    """The same way with the sampler's name and the number of steps that it will make; in blocks, in each block.

    Raises InputError: no such sampler, or not for this model, or an option that it does not take.
    """
    method = model.method
    sampler = choose_sampler(way.sampler or None, method, way.temperature, way.top_p, way.options)
    times = sampler.times(of_length(method, length or int(method.shape[0])), way.steps)
    return replace(way, sampler=sampler.name, steps=sampler.steps_of(times))


def along(base: Way, temperatures: Sequence[float] = (), top_ps: Sequence[float] = ()) -> list[Way]:
    """The frontier through `base`: other temperatures without top-p, and other top-p at temperature 1."""
    return [replace(base, temperature=t, top_p=1.0) for t in temperatures] + [
        replace(base, temperature=1.0, top_p=p) for p in top_ps
    ]


def sampler_of(text: str) -> tuple[str, dict[str, Any]]:
    """A sampler and its options: "confidence:entropy_bound=0.1" is ("confidence", {"entropy_bound": 0.1}).

    Raises InputError: no such sampler, or options that are not written so.
    """
    name, _, choices = text.partition(":")
    sampler = samplers.find(name)
    kinds, known = get_type_hints(sampler), samplers.options_of(sampler)
    written = dict(choices_of(name, choices, "confidence:threshold=0.9"))
    for key in written:
        if key not in known and name != "blockwise":  # whose other options are of the sampler inside
            raise unknown("option", key, [*known], "zellige list samplers")
    return name, {
        key: from_text(value, kinds.get(key, str), key, where=f" in '{text}'") for key, value in written.items()
    }


def by_name(text: str, base: Way, usual: Mapping[str, Any] | None = None) -> Way:
    """The way with the sampler of such a text and its options, or the `usual` ones where it has none."""
    name, options = sampler_of(text)
    options = options or usual or {}
    plain = {key: float(options[key]) for key in PLAIN if key in options}
    rest = {key: value for key, value in options.items() if key not in PLAIN}
    return replace(base, sampler=name, options=rest, **plain)


def calls(model: Model, base: Way, steps: Sequence[int], names: Sequence[str] = ()) -> list[Way]:
    """The samplers, each with these numbers of steps; the model's own and the usual others if no names are given.

    In blocks the steps are shared out among them; of a model of T steps T is the largest. A sampler
    whose options decide how many steps it makes (`confidence:entropy_bound=0.1`) makes these, whatever `steps` are.
    """
    check_counts(calls=min(steps, default=1))
    method = model.method
    default = base.sampler or method.sampler
    usual = [default, *(n for n in SAMPLERS if n != default and samplers.find(n).reason_against(method) is None)]
    blocks = max(1, int(method.shape[0]) // method.block) if method.block > 1 else 1
    ways = []
    for name in names or usual:
        way = by_name(name, base, base.options if name == default else None)
        ways += [replace(way, steps=admissible(method, max(1, round(n / blocks)))) for n in steps]
    return ways


def different(ways: Iterable[Way]) -> list[Way]:
    """Each once, in order."""
    unique: list[Way] = []
    for way in ways:
        if way not in unique:
            unique.append(way)
    return unique


# ------------------------------------------------------------------------------------------------------------- samples
def draw_samples(
    model: Model,
    way: Way,
    count: int,
    seed: int = 0,
    length: int | None = None,
    batch: int | None = None,
    progress: Progress | None = None,
    classes: Sequence[int] = (),
    fixed: np.ndarray | None = None,
    decoding: Decoding | None = None,
) -> Set:
    """`count` samples drawn that way, of these classes in turn; `progress` is called with (steps done, in all).

    fixed: (N, L) given tokens, -1 where one is free; the first row has the first samples.
    decoding: what the way leaves open, such as `symmetries` and `around`.
    """
    method = model.method
    L, K = length or int(method.shape[0]), getattr(method.process, "K", method.vocabulary)
    batch = batch or max(1, min(count, 2**14 // L, 2**26 // (L * K)))
    decoding = decoding or Decoding()
    choices: dict[str, Any] = {field.name: getattr(decoding, field.name) for field in fields(Decoding)} | way.choices
    choices["count"] = 1 if classes else count
    choices["classes"] = [classes[i % len(classes)] for i in range(count)] if classes else ()
    request = Sample.of(**choices, seed=seed, length=length, batch=batch, defaults=False, fixed=fixed)

    def report_frame(frame: Frame) -> None:
        if progress:
            progress(frame.first * frame.steps + len(frame.x) * frame.step, frame.count * max(frame.steps, 1))

    samples = request.run(model, report_frame)
    return Set(
        way,
        samples.texts,
        samples.tokens,
        samples.calls,
        seed,
        samples.expected_calls,
        samples.classes if classes else None,
        samples.seconds,
        tuple(summary.leaps) if isinstance(summary := samples.summary, LeapSummary) else None,
        summary.ended if isinstance(summary, Redrawn) and fixed is None and _ends(model, way) else None,
    )


def _ends(model: Model, way: Way) -> bool:
    """Whether a way to draw writes left to right until a token ends the text."""
    if not (way.sampler and samplers.find(way.sampler).grows):
        return False
    end = way.options.get("end", end_token(model.tokenizer, trained_on_documents(model)))
    return end is not None and end >= 0


def samples_as_lines(sets: Iterable[Set]) -> str:
    """Sets as JSON lines: one object a sample, with its text, its tokens and how it was drawn."""
    lines = []
    for group in sets:
        for i, text in enumerate(group.texts):
            sample = {
                "text": text,
                "tokens": group.rows[i] if group.rows else None,
                "calls": group.calls[i] if group.calls else None,
                "seed": group.seed,
                "number": i,
                "expected_calls": group.expected_calls,
            }
            sample |= {"class": group.classes[i]} if group.classes else {}
            sample |= {"ended": group.ended[i]} if group.ended else {}
            lines.append(json.dumps(sample | asdict(group.way), ensure_ascii=False) + "\n")
    return "".join(lines)


SampleLine: Any = TypedDict(  # a line of a file of samples, with the settings of its `Way`
    "SampleLine",
    {
        "text": Required[str], "tokens": list[int] | None, "calls": int | None, "seed": int | None,
        "expected_calls": float | None, "class": str | int | None, "ended": bool | None,
        **{name: kind | None for name, kind in get_type_hints(Way).items()},  # pyright: ignore[reportGeneralTypeIssues]
    },
    total=False,
)  # fmt: skip


def _within(sample: Mapping[str, Any], where: str, size: float) -> dict[str, Any]:
    """The same line; InputError where its numbers are not possible. size: of the vocabulary."""
    for name, numbers, end in (("tokens", sample.get("tokens"), size), ("calls", [sample.get("calls")], math.inf)):
        if wrong := [n for n in numbers or () if n is not None and not 0 <= n < end]:
            most = "or more" if end == math.inf else f"to {end - 1:,}"
            raise InputError(f"{where}: {name} has {wrong[0]:,}; it must be 0 {most}")
    return {**sample}


def read_samples(path: str | Path, model: Model | None = None) -> list[Set]:
    """Samples from a file: JSON lines with `text` (of `samples_as_lines` or `zellige sample --out x.jsonl`), or one
    text a line.

    Args:
        model: whose tokenizer makes tokens of texts that come without.

    Raises:
        InputError: no file, no text in it, or a line that is damaged.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no file at '{path}'; give texts, one a line, or JSON lines with the field text")
    if path.suffix == ".jsonl":
        lines = read_lines(path, SampleLine, "give one object a line, with the field text")
        size = math.inf if model is None else model.tokenizer.size
        samples = [_within(sample, f"line {number:,} of '{shown(path)}'", size) for number, sample in lines]
    else:
        lines = io.StringIO(read_text(path, "give texts, one a line"))  # of which only "\n" ends one
        samples = [{"text": line.removesuffix("\n")} for line in lines]
    groups: dict[str, list[dict[str, Any]]] = {}
    for sample in samples:
        way = {name: sample[name] for name in Way.__dataclass_fields__ if sample.get(name) is not None}
        groups.setdefault(json.dumps(way, sort_keys=True), []).append(sample)
    if not groups:
        raise InputError(f"'{path}' holds no text; give one a line")
    sets = []
    for way, group in groups.items():
        texts = [sample["text"] for sample in group]
        rows: Any = [sample.get("tokens") for sample in group]
        if any(row is None for row in rows):
            rows = (
                None if model is None else [model.tokenizer.encode(t, f"text {i + 1:,}") for i, t in enumerate(texts)]
            )
        sets.append(
            Set(
                Way(**json.loads(way)),
                texts,
                rows,
                _of_all(group, "calls"),
                group[0].get("seed"),
                group[0].get("expected_calls"),
                classes=_of_all(group, "class"),
                ended=_of_all(group, "ended"),
            )
        )
    return sets


def _of_all(samples: Sequence[Mapping[str, Any]], name: str) -> Any:
    """An entry of each sample; None where one lacks it."""
    values = [sample.get(name) for sample in samples]
    return None if None in values else values


def real_texts(corpus: Corpus, split: str, count: int, length: int | None = None) -> Set:
    """Real texts: `count` rows of a split, evenly spaced, or fewer where it has fewer; their first `length` tokens.

    Where a part of each is given (`data.given`), they are whole all the same.
    """
    rows = corpus.split(split)
    if isinstance(rows, GivenRows) or length:
        tokens = [row[row >= 0][:length].tolist() for row in rows.array(count)]
        return Set(Way(), [corpus.tokenizer.decode(row) for row in tokens], tokens)
    n = min(count, len(rows))
    batch = rows.collate([rows[i * len(rows) // n] for i in range(n)])
    masks = batch.mask if batch.mask is not None else torch.ones_like(batch.tokens, dtype=torch.bool)
    tokens = [row[mask].tolist() for row, mask in zip(batch.tokens, masks)]
    return Set(Way(), [corpus.tokenizer.decode(row) for row in tokens], tokens)


# ------------------------------------------------------------------------------------------------------------- judged
def score_samples(
    samples: Set,
    judge: Judge,
    *,
    own: bool = False,
    against: torch.Tensor | None = None,
    seed: int = 0,
    reading: JudgeReading | None = None,
) -> ScoredSet:
    """A set of texts with every metric of the set alone; `text_features.RealText` has those that need real text.

    Args:
        own: the judge reads the samples' own tokens, which must be its own too; else their texts, tokenized again.
        against: features of real texts, for MAUVE.
        reading: the judge's reading of these texts, where there is one.
    """
    reading = reading or read_texts(samples.texts, samples.rows, judge, own)
    measures = metrics.measure(rows=reading.rows, nats=reading.nats, tokens=reading.tokens)
    if samples.ended is not None and samples.rows is not None:
        lengths = [len(row) if ended else math.nan for row, ended in zip(samples.rows, samples.ended, strict=True)]
        measures |= metrics.measure(lengths=np.array(lengths))
    if against is not None:
        measures |= metrics.measure(features=judge.features(samples.texts), real_features=against, seed=seed)
    return ScoredSet(
        way=samples.way,
        samples=len(samples.texts),
        samples_sha256=fingerprint(samples.texts),
        tokens=sum(map(len, reading.rows)),
        judged=int(reading.tokens.sum()),
        cut=reading.cut,
        calls=sum(samples.calls) / len(samples.calls) if samples.calls else None,
        expected_calls=samples.expected_calls,
        measures=measures,
        example=samples.texts[0],
        leaps=samples.leaps,
    )


def checked_images(rows: Sequence[Sequence[int]] | np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """Rows of levels (N, L) as an array. InputError where one is no image of this tokenizer:
    samples of another model."""
    wrong = next((row for row in rows if len(row) != math.prod(tokenizer.shape)), None)
    if wrong is not None:
        raise InputError(
            f"a sample has {len(wrong):,} tokens, this model makes {tokenizer.describe()}; give its own samples"
        )
    images = np.asarray(rows)
    if images.min() < 0 or images.max() >= tokenizer.size:
        raise InputError(f"a sample has levels outside 0 to {tokenizer.size - 1:,}; give the samples of this model")
    return images


def score_rows(samples: Set, measures: dict[str, Number]) -> ScoredSet:
    """A set of images, or of other rows of symbols, with its metrics."""
    rows = samples.rows or []
    return ScoredSet(
        way=samples.way,
        samples=len(rows),
        samples_sha256=fingerprint(torch.tensor(rows or ())),
        tokens=sum(map(len, rows)),
        calls=sum(samples.calls) / len(samples.calls) if samples.calls else None,
        expected_calls=samples.expected_calls,
        measures=measures,
        leaps=samples.leaps,
    )


# ------------------------------------------------------------------------------------------------------------- curves
def curves_of(points: Sequence[ScoredSet], by: str) -> dict[str, list[ScoredSet]]:
    """The curves through the first point: "frontier" gives {"temperature": ..., "top-p": ...}, "calls" one for each
    sampler, "guidance" one.

    Points of a curve are in the order of what varies; a curve of a frontier has two points or more.
    """
    base = points[0].way
    if by == "frontier":
        alike = [p for p in points if replace(p.way, temperature=base.temperature, top_p=base.top_p) == base]
        hot = sorted((p for p in alike if p.way.top_p == 1.0), key=lambda p: p.way.temperature)
        cut = sorted((p for p in alike if p.way.temperature == 1.0), key=lambda p: p.way.top_p)
        return {name: curve for name, curve in (("temperature", hot), ("top-p", cut)) if len(curve) > 1}
    if by == "guidance":
        alike = [p for p in points if p.way.guidance is not None and replace(p.way, guidance=base.guidance) == base]
        return {base.curve: sorted(alike, key=lambda p: p.way.guidance or 0.0)} if len(alike) > 1 else {}
    plain = base.temperature, base.top_p, base.guidance
    alike = [p for p in points if (p.way.temperature, p.way.top_p, p.way.guidance) == plain and p.calls]
    names = dict.fromkeys(p.way.curve for p in alike)
    curves = {n: sorted((p for p in alike if p.way.curve == n), key=lambda p: p.calls or 0.0) for n in names}
    return curves if len(alike) > 1 else {}
