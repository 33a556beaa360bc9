"""Judge samples of a model: text by a causal language model and beside real text, images by FID and its kin.

`request.EvaluateSamples` is the request, `SamplesRecord` what it returns. The sets of samples and the curves through
them are those of `sample_sets.py`, the degenerate samplers those of `degenerate.py`, the metrics those of `metrics.py`.
"""

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch

from zellige.base.errors import InputError
from zellige.base.schema import entries_named, entries_of
from zellige.data.catalogue import SPLITS
from zellige.data.given import Given
from zellige.data.rows import evenly_spaced
from zellige.evaluation import image_quality, metrics
from zellige.evaluation.corpus import beside_training, corpus_of, data_change_note, rows_with_classes
from zellige.evaluation.distances import LEAST
from zellige.models.class_names import WITHOUT_CLASS, class_names, find_classes
from zellige.models.model import identity, which_weights
from zellige.show import kinds
from zellige.show.numbers import byte_size
from zellige.show.progress import Bar
from zellige.show.record import Figure, Record
from zellige.show.terminal import Terminal

from . import sample_sets
from .continuations import Continuations, continuations, given_parts, merged
from .degenerate import COLD, fooled_metrics, judges_own, of_training
from .image_features import Features, FeaturesIdentity, features_of
from .judge import Judge, JudgeIdentity, JudgeReading, read_texts
from .memorisation import longest
from .options import SamplesRequest
from .sample_sets import Matched, ScoredSet, Set, Way
from .text_features import Embed, RealText, embedder

if TYPE_CHECKING:
    from zellige.data import Corpus, Rows
    from zellige.models.model import Model

Request = SamplesRequest[Any]
FEATURES, IMAGE_FEATURES = "judge", "inception"  # that are compared where none are named
# fields of the request that are about texts
OF_TEXT = ("judge", "tokens", "first", "eos", "long", "context", "mauve", "cheats", "distances")
FEW = 1000  # texts below which MAUVE says little
STREAMS = "sample i of every set has the stream of (seed, i)"


# ---------------------------------------------------------------------------------------------------- the record
@dataclass(frozen=True)
class Compared:
    """Sides of the distances to real text: so many texts on either, by these features."""

    texts: int
    features: str
    weights_sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class SamplesProtocol:
    """All that was done.

    Attributes:
        name: of the protocol, with its version.
        draws: how tokens are drawn, or the file that the samples are from.
        network, weights: precision of the model, and which weights; None without a model.
        streams: of random numbers.
        definitions: of the metrics, by family.
        class_: of a model with classes, those that its samples were drawn for.
        given: of which real texts a part was given, and which part.
        judge, judged, measured_on, compared: of texts, the judge, what it reads, which tokens are counted, and the
            distances.
        features, library, reference, images: of images.
    """

    SPELT: ClassVar = {"class_": "class", "measured_on": "measured on"}
    name: str
    draws: str
    streams: str = STREAMS
    network: str | None = None
    weights: str | None = None
    definitions: Mapping[str, str] = field(default_factory=dict)
    class_: str | None = None
    given: str | None = None
    judge: JudgeIdentity | None = None
    judged: str | None = None
    measured_on: str | None = None
    compared: Compared | None = None
    features: FeaturesIdentity | None = None
    library: str | None = None
    reference: str | None = None
    images: str | None = None


_UNITS = {"images": "FID", "continuations": "Hellinger distance"}


@dataclass(frozen=True, kw_only=True)
class SamplesRecord(Record):
    """Judged samples.

    Attributes:
        points: the model's sets of samples, the one that was asked for first.
        real: as much real text, or as many real images.
        cheats: of texts, degenerate samplers by the same metrics.
        matched: of texts, perplexity at the entropy of real text, where the temperatures lie on either side of it.
        curve: of texts, whether there are several temperatures.
        about: the model; {} without one.
    """

    advice: ClassVar = "give a JSON file that it wrote"
    kind: ClassVar = "samples"
    points: tuple[ScoredSet, ...]
    protocol: SamplesProtocol
    real: ScoredSet | None = None
    cheats: tuple[ScoredSet, ...] | None = None
    matched: Matched | None = None
    curve: bool | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    seconds: float | None = None

    @property
    def of_images(self) -> bool:
        return self.protocol.features is not None

    @property
    def of_texts(self) -> bool:
        return self.protocol.judge is not None

    @property
    def arguments(self) -> dict[str, Any] | None:
        """As of every record; of what is no text without the options that are about texts."""
        arguments = super().arguments
        if arguments is None or self.of_texts:
            return arguments
        return {name: value for name, value in arguments.items() if name not in OF_TEXT}

    @property
    def judge(self) -> str:
        """The name of who judged: the last part of the judge's path, or "images", "continuations" or what a kind's
        own metrics judge, such as "molecules"."""
        if self.protocol.judge is not None:
            return Path(self.protocol.judge.judge).name
        if self.of_images:
            return "images"
        return "continuations" if self.protocol.given else next(m.subject for m in self.measures if m.subject)

    @property
    def measures(self) -> list[metrics.Metric]:
        """The rows of the metrics that the samples were measured by."""
        return [metrics.find(name) for name in self.points[0].measures]

    @property
    def interval(self) -> str:
        """Methods of the intervals."""
        intervals = metrics.intervals(self.points[0].measures)
        return f"{intervals}; {sample_sets.MATCHED_INTERVAL}" if self.matched is not None else intervals

    def figures(self) -> list[Figure]:
        figures = list[Figure]()
        for point in self.points:
            way = point.way
            title = f"{way.sampler or 'samples'}, {way.steps} steps, {way.temperature:g}, {way.top_p:g}: "
            for name, number in point.measures.items():
                half = number.half if math.isfinite(number.half) else math.inf
                figures.append(Figure(title * (len(self.points) > 1) + name, number.value, half, name, "samples"))
        return figures

    @property
    def unit(self) -> str:
        return "perplexity per token of the judge" if self.of_texts else _UNITS.get(self.judge, "fraction")

    def common(self) -> dict[str, Any]:
        """The definitions stand beside the other entries of the protocol."""
        common = super().common()
        protocol = common["protocol"]
        interval = {"level": 0.95, "method": self.interval}
        return common | {"interval": interval, "protocol": protocol | protocol.pop("definitions")}

    def content(self) -> dict[str, Any]:
        return super().content() | {"compared": entries_of(self.protocol.compared)}

    @classmethod
    def values(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        protocol, names = document["protocol"], entries_named(SamplesProtocol)
        definitions = {name: value for name, value in protocol.items() if name not in names}
        return super().values(document) | {"protocol": {**protocol, "definitions": definitions}}


# ---------------------------------------------------------------------------------------------------- what is drawn
def class_numbers(request: Request, model: "Model | None") -> list[int]:
    """The numbers of the classes asked for, `all` of them if that is none's name; [] where none is asked for."""
    if not request.classes or model is None:
        return []
    names = class_names(model)
    all_of_them = request.classes == ("all",) and names and "all" not in names
    return [*range(len(names))] if all_of_them else find_classes(model, request.classes).tolist()


def class_text(request: Request, model: "Model | None") -> str | None:
    """The classes that samples are drawn for, as the protocol states them; None of a model without classes."""
    if model is None or request.samples or not (names := class_names(model)):
        return None
    classes = [names[i] for i in class_numbers(request, model)]
    text = "all in turn" if classes == names else f"{', '.join(classes)}{' in turn' if len(classes) > 1 else ''}"
    return f"given the class, {text}" if classes else WITHOUT_CLASS


def ways_of(request: Request, model: "Model | None") -> list[Way]:
    """Every way to draw that is asked for, the plain one first; none where the samples come from a file."""
    if model is None or request.samples:
        return []
    options = {} if request.top_k is None else {"top_k": request.top_k}
    base = Way(
        request.sampler or "",
        request.steps,
        request.temperature,
        request.top_p,
        {**options, **(request.options or {})},
        request.guidances[0] if request.guidances and request.guidance is None else request.guidance,
    )
    base = sample_sets.with_sampler(model, base, request.length)
    usual = request.frontier and not (request.temperatures or request.top_ps)
    temperatures = sample_sets.TEMPERATURES if usual else request.temperatures
    ways = [base, *sample_sets.along(base, temperatures, sample_sets.TOP_PS if usual else request.top_ps)]
    ways += [replace(base, guidance=float(strength)) for strength in request.guidances]
    if request.calls:
        ways += sample_sets.calls(model, base, request.calls, request.samplers)
    return sample_sets.different(sample_sets.with_sampler(model, way, request.length) for way in ways)


def draw_sets(
    request: Request, model: "Model", ways: Sequence[Way], terminal: Terminal, continued: Continuations | None = None
) -> list[Set]:
    """A set of samples for each way, handed on to `keep`."""
    count, fixed = (request.count, None) if continued is None else (continued.count, continued.fixed)
    sets, classes = list[Set](), class_numbers(request, model)
    with Bar(terminal, "sample", 1, "steps") as bar:
        before, total = 0, count * sum(way.steps or 1 for way in ways)
        for way in ways:
            work = count * (way.steps or 1)  # a sampler in blocks may take other steps than it was asked for
            show = lambda done, of, before=before, work=work: bar.update(before + work * done // of, total=total)  # noqa: E731
            sets.append(
                sample_sets.draw_samples(
                    model, way, count, request.seed, request.length, request.batch, show, classes, fixed, request
                )
            )
            before += work
    if request.keep is not None:
        request.keep(sets)
    return sets


def parts_given(request: Request, model: "Model | None") -> tuple[Given, ...]:
    """Which parts of real texts are given; () where samples are free.

    Raises:
        InputError: options that do not go with given parts, or that need them.
    """
    trained = "" if model is None else model.config.data.given
    parts = given_parts(request.prompt_tokens, request.suffix_tokens, trained)
    if not parts:
        if request.samples_per_text > 1:
            raise InputError("`samples_per_text` is of texts of which a part is given; set `prompt_tokens`, or `count`")
        return ()
    if model is None:
        raise InputError("a part of real texts is given in the model's tokens; name the run too")
    for name, why in (("classes", "is for free samples"), ("cheats", "are whole texts")):
        if getattr(request, name):
            raise InputError(f"`{name}` {why}, and here a part of real texts is given; leave one of the two out")
    if request.differs("reference") and request.reference not in SPLITS:
        raise InputError(f"`reference` is '{request.reference}'; parts of the data are given, so name a split of it")
    return parts


def continued_texts(
    request: Request, model: "Model", corpus: "Corpus", parts: Sequence[Given], sets: Sequence[Set]
) -> Continuations:
    """The texts whose parts are given: `count` of them, or those of the samples that were read."""
    count = len(sets[0].texts) // request.samples_per_text if sets else request.count
    length = request.length or int(model.method.shape[0])
    return continuations(corpus, request.reference, parts, count, request.samples_per_text, length)


# ---------------------------------------------------------------------------------------------------- all of it
def evaluate_samples(request: Request, model: "Model | None") -> SamplesRecord:
    """Draw the samples of a request, or read them, and judge them.

    Raises:
        InputError: options that do not go with the model, a judge or data that are not there, too few samples.
    """
    began, terminal = time.monotonic(), request.terminal or Terminal(quiet=True)
    if model is None and not request.samples:
        raise InputError("there is no model and no file of samples; give one of the two")
    if request.mauve:
        metrics.mauve_package()
    kind = None if model is None else kinds.of(model.tokenizer)
    of_texts = any(map(request.differs, OF_TEXT))
    if model is not None and kind is not None and kind.measured and not of_texts and not parts_given(request, model):
        return _evaluate_kind(request, model, kind, terminal, began)
    if model is None or kind is None or kind.running:
        return _Texts(request, model, terminal).record(began)
    if name := next((name for name in OF_TEXT if request.differs(name)), None):
        spelling = f"{name}=False" if getattr(request, name) is False else name
        raise InputError(f"`{spelling}` is about texts, and this model makes {kind.many}; leave it out")
    parts = parts_given(request, model)
    if kind.name != "image":
        if not parts:
            raise InputError(
                f"free samples of {kind.many} have no metric here; give a part of real ones by `prompt_tokens`, and "
                "what is written is compared with the true rest"
            )
        return _evaluate_rows(request, model, parts, terminal, began)
    if parts:
        raise InputError(
            "images are judged as free samples; leave `prompt_tokens` and `suffix_tokens` out, or set them to 0"
        )
    return _evaluate_images(request, model, terminal, began)


def _read_corpus(model: "Model", data: Any, terminal: Terminal) -> "Corpus":
    """The data, and a note where it is not what the model was trained on."""
    with Bar(terminal, "read", 1, as_text=byte_size) as bar:
        corpus = corpus_of(model, data, progress=lambda done, total: bar.update(done, total=total))
    if note := data_change_note({"sha256": corpus.about.get("sha256")} | beside_training(model, corpus)):
        terminal.note(note)
    return corpus


# ---------------------------------------------------------------------------------------------------- texts
@dataclass(frozen=True)
class RealTexts:
    """Real texts to stand beside.

    Attributes:
        real: as many as there are samples; `name`, as they are printed.
        pool: two for each sample, where there are so many, for the distances.
        training: the split that the model was trained on; None where it is not at hand.
        continued: where a part of real texts is given: these texts, which are `real` too.
    """

    real: Set | None = None
    name: str = ""
    pool: Set | None = None
    training: "Rows | None" = None
    continued: Continuations | None = None


class _Texts:
    """The work on texts: what one step needs of another."""

    def __init__(self, request: Request, model: "Model | None", terminal: Terminal):
        """Read and check all that can be before anything is drawn."""
        self.request, self.model, self.terminal = request, model, terminal
        self.ways = ways_of(request, model)
        class_numbers(request, model)  # an unknown one is the first error
        self.read = sample_sets.read_samples(request.samples, model) if request.samples else []
        device = request.device if model is None else next(model.method.parameters()).device
        with terminal.waiting("loading the judge"):
            self.judge = Judge(
                request.judge,
                first=request.first,
                eos=request.eos,
                long=request.long,
                context=request.context,
                device=device,
            )
        if request.tokens == "own" and model is not None and not self.judge.inner.same(model.tokenizer):
            raise InputError(f"judge '{self.judge.inner.name}' has other tokens than the model; leave out `tokens` own")
        self.given = parts_given(request, model)
        self.number = len(self.read[0].texts) // request.samples_per_text if self.read else request.count
        self.beside = self._real()
        for name in ("mauve", "features"):
            if getattr(request, name) and self.beside.real is None:
                raise InputError(
                    f"`{name}` compares with real text, and there is none; give `reference` FILE or `data.name`"
                )
        self.embed, self.embedding = self._embedder()
        if request.mauve and self.number < FEW:
            terminal.note("MAUVE of fewer than a thousand texts says little")

    def _embedder(self) -> tuple[Embed | None, dict[str, str]]:
        """Texts as vectors, where distances are wanted and there are texts enough."""
        if not self.request.distances or self.beside.pool is None:
            return None, {}
        if len(self.beside.pool.texts) < 2 * LEAST or self.number < LEAST:
            self.terminal.note(f"no distances: they need {LEAST} samples and {2 * LEAST} real texts or more")
            return None, {}
        return embedder(self.request.features or FEATURES, self.judge)

    def _real(self) -> RealTexts:
        """Real texts, as many as there are samples of a set and twice as many for distances, and the training set."""
        request, model = self.request, self.model
        reference = request.reference
        if reference == "none" and not request.cheats:
            return RealTexts()
        if Path(reference).is_file():
            (texts, *_) = sample_sets.read_samples(reference, model)
            return RealTexts(texts, reference, texts, None if model is None else self._training(model))
        if model is None:
            if request.differs("reference"):
                raise InputError(f"no file at '{reference}'; without a run `reference` needs a file of texts, or none")
            return RealTexts()
        try:
            corpus = _read_corpus(model, request.data, self.terminal)
            training = self._training(model, corpus if request.data is None else None)
            if self.given:
                continued = continued_texts(request, model, corpus, self.given, self.read)
                pool = sample_sets.real_texts(corpus, reference, 2 * self.number, request.length)
                return RealTexts(continued.real(), continued.name, pool, training, continued)
            if reference == "none":
                return RealTexts(training=training)
            real, pool = (sample_sets.real_texts(corpus, reference, n) for n in (self.number, 2 * self.number))
            return RealTexts(real, f"{corpus.about['name']} {reference}", pool, training)
        except InputError as absent:
            if request.data is not None or request.differs("reference") or self.given:
                raise
            self.terminal.note(f"no real text to compare with: {absent}")
            return RealTexts()

    def _training(self, model: "Model", corpus: "Corpus | None" = None) -> "Rows | None":
        """The rows that the model was trained on; None where they are not wanted, or not at hand."""
        if not (self.request.distances or self.request.cheats):
            return None
        try:
            return (corpus or corpus_of(model)).split("train")
        except InputError:
            return None

    def record(self, began: float) -> SamplesRecord:
        """Draw, judge, compare."""
        request, model, beside = self.request, self.model, self.beside
        sets, continued = self.read, beside.continued
        if not sets and model is not None:
            sets = draw_sets(request, model, self.ways, self.terminal, continued)
        degenerate = self._degenerate(model, sets[0].way) if request.cheats and model is not None else {}
        k = request.samples_per_text
        parts = sets if continued is None else [part for samples in sets for part in continued.parts(samples)]
        candidates = [*parts, *degenerate.values()]
        texts = [*candidates, *(samples for samples in (beside.real, beside.pool) if samples is not None)]
        readings = self._read(texts)
        real_reading = readings[len(candidates)] if beside.real is not None else None
        scores = self._scored(texts[: len(candidates) + (beside.real is not None)], readings)
        distances = self._compare(candidates, scores, readings)
        if request.distances and beside.training is not None:
            self._memorisation(texts, scores, beside.training)
        real = scores[len(candidates)] if beside.real is not None else None
        if continued is not None and real is not None:
            scores[: len(parts)] = [score.also(continued.measures(p.rows or [])) for score, p in zip(scores, parts)]
            real = real.also(continued.floor())
        points = [merged(samples, scores[i * k : (i + 1) * k]) for i, samples in enumerate(sets)]
        hot = sample_sets.curves_of(points, "frontier").get("temperature", ())
        curve = [(p.way.temperature, r) for p, r in zip(points, readings[::k]) if any(p is q for q in hot)]
        at = None
        if real_reading is not None and curve:
            at = sample_sets.match_entropy([t for t, _ in curve], [r for _, r in curve], real_reading)
        cheats = scores[len(parts) : len(candidates)]
        record = _record(
            request, model, points, None if real is None else _named(real, beside.name), began, name=sample_sets.PROTOCOL,
            class_=class_text(request, model), judge=self.judge.about, compared=distances,
            given=None if continued is None else str(continued),
            judged="the samples' own tokens" if request.tokens == "own" else "decoded, then tokenized by the judge's tokenizer",
            measured_on="the model's tokens" if model else "the judge's tokens, where samples come without",
        )  # fmt: skip
        named_cheats = tuple(_named(p, name, real) for name, p in zip(degenerate, cheats))
        return replace(record, matched=at, curve=bool(curve), cheats=named_cheats)

    def _degenerate(self, model: "Model", way: Way) -> dict[str, Set]:
        """The samples of every degenerate sampler that can be made here, by name; a note names one that cannot."""
        request, terminal, training = self.request, self.terminal, self.beside.training
        if training is None:
            raise InputError("`cheats` are made of the training text, and it is not at hand; leave them out")
        samplers = of_training(model.tokenizer, training, self.number, request.seed)
        with Bar(terminal, "cold", 1, "steps") as bar:
            show = lambda done, total: bar.update(done, total=total)  # noqa: E731
            way = replace(way, temperature=COLD)
            samplers["cold"] = sample_sets.draw_samples(
                model, way, self.number, request.seed, request.length, progress=show
            )
        texts = self.beside.real.texts if self.beside.real is not None else samplers["copied"].texts
        length = round(sum(map(len, self.judge.encode(texts))) / len(texts))
        try:
            with terminal.waiting("the judge writes"):
                samplers["judge's own"] = judges_own(model.tokenizer, self.judge, self.number, length, request.seed)
        except InputError as absent:
            terminal.note(str(absent))
        return samplers

    def _read(self, sets: Sequence[Set]) -> list[JudgeReading]:
        readings = list[JudgeReading]()
        with Bar(self.terminal, "judge", 1, "texts") as bar:
            for i, samples in enumerate(sets):
                show = lambda done, total, i=i: bar.update(i * total + done, total=len(sets) * total)  # noqa: E731
                own = self.request.tokens == "own" and samples.rows is not None
                readings.append(read_texts(samples.texts, samples.rows, self.judge, own, show))
        return readings

    def _scored(self, sets: Sequence[Set], readings: Sequence[JudgeReading]) -> list[ScoredSet]:
        """Each set by the metrics that need no real text, and by MAUVE."""
        real = self.beside.real
        features = self.judge.features(real.texts) if self.request.mauve and real is not None else None
        return [
            sample_sets.score_samples(
                samples,
                self.judge,
                against=features if samples is not real else None,
                seed=self.request.seed,
                reading=reading,
            )
            for samples, reading in zip(sets, readings)
        ]

    def _compare(self, candidates: list[Set], scores: list[ScoredSet], readings: list[JudgeReading]) -> Compared | None:
        """Add the distances to real text; of real text those to other real text."""
        if self.beside.pool is None or self.embed is None:
            return None
        with self.terminal.waiting("comparing"):
            most = max(len(samples.texts) for samples in candidates)
            real = RealText(self.beside.pool.texts, readings[-1], self.embed, most)
            for i, (samples, reading) in enumerate(zip(candidates, readings)):
                scores[i] = scores[i].also(real.distances(real.view(samples.texts, reading)))
            scores[len(candidates)] = scores[len(candidates)].also(real.floor)
        return Compared(real.size, **self.embedding)

    def _memorisation(self, sets: Sequence[Set], scores: list[ScoredSet], training: "Rows") -> None:
        """Add it to all sets in the model's tokens, in one pass over the training set."""
        rows = [samples.rows or [] for samples, _ in zip(sets, scores)]
        with Bar(self.terminal, "search", 1, "rows") as bar:
            runs = longest([*itertools.chain(*rows)], training, lambda done, total: bar.update(done, total=total))
        first = 0
        for i, number in enumerate(map(len, rows)):
            if number:
                scores[i] = scores[i].also(metrics.measure(runs=runs[first : first + number]))
            first += number


def _record(
    request: Request,
    model: "Model | None",
    points: Sequence[ScoredSet],
    real: ScoredSet | None,
    began: float,
    length: int | None = None,
    definitions: Mapping[str, str] | None = None,
    **protocol: Any,
) -> SamplesRecord:
    """The record of measured sets; `protocol` has what was done with them, beside how they were drawn."""
    about = {} if model is None else identity(model)
    if model is not None:
        protocol |= {"network": model.method.precision, "weights": which_weights(model)}
        about["length"] = length or request.length or int(model.method.shape[0])
        more = {"symmetries": request.symmetries, "best_of": request.best_of}
        about |= {name: value for name, value in more.items() if value is not None}
    full_protocol = SamplesProtocol(
        draws=f"samples of {request.samples}" if request.samples else sample_sets.DRAWS,
        definitions={**metrics.definitions(points[0].measures), **(definitions or {})},
        **protocol,
    )
    return SamplesRecord(
        points=tuple(points),
        real=real,
        protocol=full_protocol,
        about=about,
        seed=request.seed,
        seconds=time.monotonic() - began,
    )


def _named(samples: ScoredSet, name: str, real: ScoredSet | None = None) -> ScoredSet:
    """A set with its name, and with the metrics that it fools beside real text."""
    fools = None if real is None else fooled_metrics(samples.measures, real.measures)
    return replace(samples, name=name, fools=fools)


# ---------------------------------------------------------------------------------------------------- music, grids
def _evaluate_rows(
    request: Request, model: "Model", parts: Sequence[Given], terminal: Terminal, began: float
) -> SamplesRecord:
    """Rows of symbols that continue real ones: what was written against the true rest."""
    ways = ways_of(request, model)
    sets = sample_sets.read_samples(request.samples, model) if request.samples else []
    continued = continued_texts(request, model, _read_corpus(model, request.data, terminal), parts, sets)
    if not sets:
        sets = draw_sets(request, model, ways, terminal, continued)
    points = [
        merged(
            samples,
            [sample_sets.score_rows(part, continued.measures(part.rows or [])) for part in continued.parts(samples)],
        )
        for samples in sets
    ]
    real = sample_sets.score_rows(continued.real(), continued.floor())
    return _record(
        request,
        model,
        points,
        _named(real, f"another of {continued.name}"),
        began,
        continued.texts.shape[1],
        name=sample_sets.PROTOCOL,
        given=str(continued),
    )


# ---------------------------------------------------------------------------------------------------- other kinds
def _evaluate_kind(
    request: Request, model: "Model", kind: kinds.Modality, terminal: Terminal, began: float
) -> SamplesRecord:
    """Free samples of a kind of data with metrics of its own, and as many held-out ones."""
    ways, classes = ways_of(request, model), class_numbers(request, model)
    sets = sample_sets.read_samples(request.samples, model) if request.samples else []
    corpus = _read_corpus(model, request.data, terminal)
    labels_by, names = model.config.data.labels_by, class_names(model)
    training_texts = cache(lambda: {*kind.values(corpus.train.array())})
    real = None if request.reference == "none" else sample_sets.real_texts(corpus, request.reference, request.count)
    if not sets:
        sets = draw_sets(request, model, ways, terminal)

    def scored(samples: Set) -> ScoredSet:
        rows = samples.rows or []
        known = kind.known(rows, labels_by, names)
        known |= {"training_texts": training_texts()} if "texts" in known else {}
        known |= {"asked": np.resize(classes, len(rows))} if classes else {}
        return sample_sets.score_rows(samples, metrics.measure(**known))

    beside = None if real is None else _named(scored(real), f"{corpus.about['name']} {request.reference}")
    points = [scored(samples) for samples in sets]
    return _record(
        request,
        model,
        points,
        beside,
        began,
        int(model.method.shape[0]),
        {"property": f"{labels_by}, of the valid ones"} if labels_by else None,
        name=sample_sets.PROTOCOL,
        class_=class_text(request, model),
    )


# ---------------------------------------------------------------------------------------------------- images
@dataclass(frozen=True)
class RealImages:
    """Real images: what they are called, their rows (N, L), and the names of their classes where samples have some."""

    name: str
    rows: np.ndarray
    classes: list[str | None] | None = None


def real_images(
    split: str, model: "Model", data: Any, number: int, classes: Sequence[int], terminal: Terminal
) -> tuple[RealImages, RealImages]:
    """The reference, and as many real images of another split as there are samples, to stand beside.

    Where samples are drawn for classes, both are images of these.
    """
    if split == "none":
        raise InputError("FID compares with real images; give `reference` train or test")
    corpus = _read_corpus(model, data, terminal)
    name, floor = corpus.about["name"], "train" if split != "train" else "test"

    def of_classes(part: str, most: int | None = None) -> RealImages:
        rows, _ = rows_with_classes(model, corpus, part, unconditional=not classes)
        if not classes:
            return RealImages(f"{name} {part}", rows.array(most))
        if rows.labels is None:
            raise InputError(
                f"the samples have classes, and {name} comes without; give `data.labels`, or leave out `classes`"
            )
        names, of_these = class_names(model), np.isin(rows.labels, classes)
        suffix = "" if len(set(classes)) == len(names) else " of these classes"
        labels = evenly_spaced(rows.labels[of_these], most)
        images = evenly_spaced(rows.array()[of_these], most)
        return RealImages(f"{name} {part}{suffix}", images, [names[label] for label in labels])

    return of_classes(split), of_classes(floor, number)


def _evaluate_images(request: Request, model: "Model", terminal: Terminal, began: float) -> SamplesRecord:
    ways, classes = ways_of(request, model), class_numbers(request, model)
    sets = sample_sets.read_samples(request.samples, model) if request.samples else []
    if names := [name for samples in sets for name in samples.classes or () if name is not None]:
        classes = find_classes(model, [*dict.fromkeys(names)]).tolist()
    with terminal.waiting("loading the features"):
        features = features_of(request.features or IMAGE_FEATURES, next(model.method.parameters()).device)
    number = min((len(samples.texts) for samples in sets), default=request.count)
    reference, floor = real_images(request.reference, model, request.data, number, classes, terminal)
    image_quality.check_enough(number, len(reference.rows), features.width)
    if not sets:
        sets = draw_sets(request, model, ways, terminal)
    beside = Set(Way(), [], floor.rows.tolist(), classes=floor.classes)
    *points, real = _score_images(model, features, [*sets, beside], reference.rows, request.seed, terminal)
    return _record(
        request, model, points, _named(real, floor.name), began, int(model.method.shape[0]), name=image_quality.PROTOCOL,
        features=features.about, library=image_quality.library(), images=model.tokenizer.describe(),
        reference=f"{reference.name}, {len(reference.rows):,} images", class_=class_text(request, model),
    )  # fmt: skip


def _score_images(
    model: "Model", features: Features, sets: Sequence[Set], reference: np.ndarray, seed: int, terminal: Terminal
) -> list[ScoredSet]:
    """Each set by every metric of images."""
    kind, seen = cast(Any, kinds.of(model.tokenizer)), (features.about.config or {}).get("classes", ())
    columns = {name: column for column, name in enumerate(seen)}
    with Bar(terminal, "look", 1, "images") as bar:
        total, count = len(reference) + sum(len(samples.rows or ()) for samples in sets), 0
        views = []
        for rows in (reference, *(samples.rows for samples in sets)):
            images = sample_sets.checked_images(() if rows is None else rows, model.tokenizer)
            show = lambda n, _, count=count: bar.update(count + n, total=total)  # noqa: E731
            views.append(features.views(kind.pixels(images), show))
            count += len(images)
    for i, samples in enumerate(sets, 1):
        if samples.classes and columns.keys() >= {*samples.classes}:
            views[i] = replace(views[i], asked=torch.tensor([columns[name] for name in samples.classes]))
    with terminal.waiting("comparing"):
        return [
            sample_sets.score_rows(samples, metrics.measure_images(view, views[0], seed))
            for samples, view in zip(sets, views[1:])
        ]
