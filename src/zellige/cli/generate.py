"""`zellige evaluate MODEL --generate`: samples of text or images, judged; along temperature and top-p, or network calls."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..data import Data
from ..errors import InputError
from ..show.numbers import byte_size
from ..show.progress import Bar
from ..show.record import json_record
from ..show.terminal import Terminal
from . import generate_files as files
from . import options
from .common import Document, OfRun, command_options, load, note_change, typed_data
from .generate_files import classes_of, draw, told_classes, ways_of
from .sampler_options import SamplerOptions

if TYPE_CHECKING:
    from ..evaluation.image_features import Features
    from ..evaluation.judge import Judge, Judged
    from ..evaluation.sweep import Cheat, Set


OF_TEXT = ("judge", "tokens", "first", "eos", "long", "context", "mauve", "cheats", "distances", "no-distances")
FEATURES, IMAGE_FEATURES = "judge", "inception"


@command_options
class Generate(OfRun):
    judge: str = "gpt2-large"
    """the judge: a causal model of transformers, a folder or a hub id; or a run of ar"""
    tokens: Literal["retokenized", "own"] = "retokenized"
    """what it reads: the samples' texts, tokenized again, or their own tokens, if they are its own too"""
    first: Literal["given", "judged"] = "given"
    """the first token of a text: read only, or judged after BOS"""
    eos: Literal["first", "all"] = "first"
    """which EOS of a text count"""
    long: Literal["cut", "chunks"] = "cut"
    """a text longer than the judge's context: its beginning only, or in pieces"""
    context: int | None = None
    """tokens that are judged at once; the judge's own length if not given"""
    count: int = 256
    """samples, at each point of a curve"""
    steps: int | None = None
    """steps of the sampler: T of a model of T steps, else 64"""
    sampler: str | None = None
    """zellige list samplers; the method's own if not given"""
    options: Annotated[SamplerOptions, tyro.conf.arg(name="")] = field(default_factory=SamplerOptions)
    temperature: float = 1.0
    """of the clean posterior"""
    top_p: float = 1.0
    """keep the likeliest tokens that hold this share"""
    length: int | None = None
    """tokens of a sample; the model's length if not given"""
    classes: Annotated[tuple[str, ...], tyro.conf.arg(name="class")] = ()
    """of a model with classes: what its samples are told, one after another, by name or number, or all; none if not given"""
    frontier: bool = False
    """perplexity against entropy, over the usual temperatures and top-p"""
    temperatures: tuple[float, ...] = ()
    """the frontier at these temperatures: 0.7 0.8 0.9 1"""
    top_ps: tuple[float, ...] = ()
    """the frontier at these top-p: 0.8 0.9 0.95"""
    calls: tuple[int, ...] = ()
    """quality against network calls, at so many steps: 8 16 32 64 128"""
    samplers: tuple[str, ...] = ()
    """with --calls: of these samplers; the model's own, first_hitting, confidence, remasking if not given"""
    samples: str | None = None
    """draw nothing, judge these: JSON lines with the field text, or one text a line"""
    reference: str = "test"
    """real text to stand beside: a split of the data, a file of texts, or none; of images the split to compare with"""
    data: Data = field(default_factory=Data)
    """another data set than the run's own, or where that lies"""
    features: str | None = None
    """whose features are compared; of images (FID) inception, the file of its weights, or a folder of --train-features; of texts
    (energy distance, MMD) judge, ngrams, or a model: a run, a folder or a hub id"""
    distances: bool = True
    """distances to real text, beside those of other real text, and memorisation; --no-distances leaves them out"""
    cheats: bool = False
    """the same measures of cheats: repeated and copied text, unigrams, cold samples, the judge's own"""
    mauve: bool = False
    """MAUVE too, on the judge's features, against the real text"""
    batch: int | None = None
    """samples drawn at once"""
    out: str | None = None
    """the folder for generate.jsonl (the samples), generate-JUDGE.json, .md and figures; that of the run if not given"""


@dataclass(frozen=True)
class Beside:
    """Real texts.

    Attributes:
        real: as many as there are samples; `name`, what they are called.
        pool: two for each sample, where there are so many, for the distances.
        training: the split that the model was trained on; None where it is not at hand.
    """

    real: "Set | None" = None
    name: str = ""
    pool: "Set | None" = None
    training: Any = None


def generate(words: Sequence[str], terminal: Terminal, began: float, write: bool = True) -> Document | None:
    """`zellige evaluate MODEL --generate`"""
    words = [word for word in words if word != "--generate"]
    flags = options.given(words, Generate)
    chosen = options.parse(
        Generate, words, "evaluate --generate", about="Samples, judged: perplexity beside entropy.", most=1
    )
    _check(chosen)
    folder = _folder(chosen) if write else None
    model = load(terminal, chosen.run, "evaluate", chosen) if chosen.run else None
    data = None if model is None else typed_data(chosen, words, model.config.data)
    from ..evaluation import metrics, sweep
    from ..evaluation.distances import LEAST
    from ..evaluation.judge import Judge
    from ..evaluation.text_features import embedder
    from ..show import kinds

    if chosen.mauve:
        metrics.mauve_package()
    if model is not None and not (kind := kinds.of(model.tokenizer)).running:
        if kind.name != "image":
            raise InputError(f"--generate judges texts and images, and this model makes {kind.many}; leave it out")
        return generate_images(chosen, data, flags, model, folder, terminal, began)
    ways = ways_of(chosen, model)
    classes_of(chosen, model)  # an unknown one is the first thing said
    sets: list[Set] = sweep.read_samples(chosen.samples, model) if chosen.samples else []
    with terminal.waiting("loading the judge"):
        judge = Judge(
            chosen.judge, first=chosen.first, eos=chosen.eos, long=chosen.long, context=chosen.context,
            device=_device(chosen, model),
        )  # fmt: skip
    if chosen.tokens == "own" and model is not None and not judge.inner.same(model.tokenizer):
        raise InputError(f"judge '{judge.inner.name}' has other tokens than the model; leave out --tokens own")
    number = len(sets[0].texts) if sets else chosen.count
    beside = _real(chosen, model, data, flags, number, terminal)
    for flag in ("mauve", "features"):
        if getattr(chosen, flag) and beside.real is None:
            raise InputError(
                f"--{flag} compares with real text, and there is none; give --reference FILE or --data.name"
            )
    embed = None
    if chosen.distances and beside.pool is not None:
        if len(beside.pool.texts) < 2 * LEAST or number < LEAST:
            terminal.note(f"no distances: they need {LEAST} samples and {2 * LEAST} real texts or more")
        else:
            embed = embedder(chosen.features or FEATURES, judge)
    if chosen.mauve and number < 1000:
        terminal.note("MAUVE of fewer than a thousand texts says little")
    sets = sets or draw(chosen, model, ways, folder, terminal)
    more = cheats(chosen, model, judge, beside, sets[0].way, number, terminal) if chosen.cheats else []
    result = measured(chosen, judge, sets, more, beside, embed, terminal)
    document = files.as_document(chosen, files.arguments(chosen, data), model, judge, result, time.monotonic() - began)
    files.publish(terminal, folder, document, chosen, bool(ways))
    return document


def _check(chosen: Generate) -> None:
    """What does not go together."""
    if not (chosen.run or chosen.samples):
        raise InputError("--generate needs a run, or --samples FILE; e.g. zellige evaluate runs/demo --generate")
    if chosen.count < 2:
        raise InputError(f"--count is {chosen.count}; it must be 2 or more: an interval needs two")
    drawing = [f for f in ("frontier", "temperatures", "top_ps", "calls", "samplers", "classes") if getattr(chosen, f)]
    if chosen.samples and drawing:
        flag = f"--{drawing[0].replace('classes', 'class').replace('_', '-')}"
        raise InputError(f"{flag} says how samples are drawn, and --samples gives them; leave one of the two out")
    if chosen.cheats and not chosen.run:
        raise InputError("--cheats are made of a run's training text; give the run too")
    if chosen.samplers and not chosen.calls:
        raise InputError("--samplers goes with --calls; e.g. --calls 8 16 32 64, or --sampler for a single one")


def _folder(chosen: Generate) -> Path | None:
    """Where the files go; None: nowhere. InputError where nothing can be written."""
    from ..files import writable

    if chosen.out is not None:
        folder = Path(chosen.out)
        if folder.is_file():
            raise InputError(f"'{chosen.out}' is a file; --out needs a folder")
        if not folder.absolute().parent.is_dir():
            raise InputError(f"no folder '{folder.parent}' for --out {chosen.out}; make it first")
    else:
        folder = Path(chosen.run)
        if not chosen.run or not (folder / "checkpoints").is_dir():
            return None
    writable((folder if folder.is_dir() else folder.parent) / files.NAME)
    return folder


def _device(chosen: Generate, model: Any) -> Any:
    """Where the judge works: beside the model."""
    import torch

    if model is not None:
        return next(model.method.parameters()).device
    return "cuda" if chosen.device == "cuda" or (chosen.device == "auto" and torch.cuda.is_available()) else "cpu"


def _real(chosen: Generate, model: Any, data: Data | None, flags: set[str], number: int, terminal: Terminal) -> Beside:
    """Real texts, as many as there are samples of a set and twice as many for distances, and the training set."""
    from ..evaluation import sweep

    if chosen.reference == "none" and not chosen.cheats:
        return Beside()
    if Path(chosen.reference).is_file():
        one = sweep.read_samples(chosen.reference, model)[0]
        return Beside(one, chosen.reference, one, _training(model, None, chosen) if model is not None else None)
    if model is None:
        if "--reference" in flags:
            raise InputError(
                f"no file at '{chosen.reference}'; without a run --reference needs a file of texts, or none"
            )
        return Beside()
    from ..evaluation.corpus import beside_training, corpus_of

    try:
        with Bar(terminal, "read", 1, as_text=byte_size) as bar:
            corpus = corpus_of(model, data, progress=lambda done, total: bar.update(done, total=total))
        note_change(terminal, {"sha256": corpus.about.get("sha256")} | beside_training(model, corpus))
        training = _training(model, corpus if data is None else None, chosen)
        if chosen.reference == "none":
            return Beside(training=training)
        real, pool = (sweep.real_texts(corpus, chosen.reference, n) for n in (number, 2 * number))
        return Beside(real, f"{corpus.about['name']} {chosen.reference}", pool, training)
    except InputError as absent:
        if data is not None or "--reference" in flags:
            raise
        terminal.note(f"no real text to stand beside: {absent}")
        return Beside()


def _training(model: Any, corpus: Any, chosen: Generate) -> Any:
    """The rows that the model was trained on; None where they are not wanted, or not at hand."""
    from ..evaluation.corpus import corpus_of

    if not (chosen.distances or chosen.cheats):
        return None
    try:
        return (corpus or corpus_of(model)).split("train")
    except InputError:
        return None


def cheats(
    chosen: Any, model: Any, judge: "Judge", beside: Beside, way: Any, count: int, terminal: Terminal
) -> "list[Cheat]":
    """Every cheat that can be made here; a note says which cannot."""
    from ..evaluation import sweep as made

    if beside.training is None:
        raise InputError("--cheats are made of the training text, and it is not at hand; leave them out")
    every = made.of_training(model.tokenizer, beside.training, count, chosen.seed)
    with Bar(terminal, "cold", 1, "steps") as bar:
        show = lambda done, total: bar.update(done, total=total)  # noqa: E731
        every.append(made.cold(model, way, count, chosen.seed, chosen.length, show))
    texts = beside.real.texts if beside.real is not None else every[-2].samples.texts
    length = round(sum(map(len, judge.encode(texts))) / len(texts))
    try:
        with terminal.waiting("the judge writes"):
            every.append(made.judges_own(model.tokenizer, judge, count, length, chosen.seed))
    except InputError as absent:
        terminal.note(str(absent))
    return every


def measured(
    chosen: Any, judge: "Judge", sets: "list[Set]", more: "list[Cheat]", beside: Beside, embed: Any, terminal: Terminal
) -> dict[str, Any]:  # fmt: skip
    """{points, real, cheats, matched, compared} as the document's result has them."""
    from ..evaluation import sweep
    from ..evaluation.judge import judged
    from ..evaluation.sweep import fooled
    from ..evaluation.text_features import RealText

    own = lambda one: chosen.tokens == "own" and one.rows is not None  # noqa: E731
    tested = [*sets, *(cheat.samples for cheat in more)]
    every = [*tested, *(one for one in (beside.real, beside.pool) if one is not None)]
    readings: list[Judged] = []
    with Bar(terminal, "judge", 1, "texts") as bar:
        for i, one in enumerate(every):
            show = lambda done, total, i=i: bar.update(i * total + done, total=len(every) * total)  # noqa: E731
            readings.append(judged(one.texts, one.rows, judge, own(one), show))
    real, pool = beside.real, beside.pool
    beside_real = readings[len(tested)] if real is not None else None
    features = judge.features(real.texts) if chosen.mauve and real is not None else None
    scored = []
    for one, reading in zip(every, readings[: len(tested) + (real is not None)]):
        against = features if one is not real else None
        scored.append(sweep.score_samples(one, judge, own=own(one), against=against, seed=chosen.seed, reading=reading))
    compared = None
    if pool is not None and embed is not None:
        with terminal.waiting("comparing"):
            text = RealText(pool.texts, readings[-1], embed[0], max(len(one.texts) for one in tested))
            for one, point, reading in zip(tested, scored, readings):
                _add(point, text.distances(text.view(one.texts, reading)))
            _add(scored[len(tested)], text.floor)
        compared = {"texts": text.size} | embed[1]
    if chosen.distances and beside.training is not None:
        _add_memorisation(
            scored, readings, model_rows=[one.rows for one in every], training=beside.training, terminal=terminal
        )
    reals = scored[len(tested)] if real is not None else None
    curve = [
        (p["way"]["temperature"], r)
        for p, r in zip(scored, readings[: len(sets)])
        if any(p is q for q in sweep.curves_of(scored[: len(sets)], "frontier").get("temperature", ()))
    ]
    at = sweep.matched([t for t, _ in curve], [r for _, r in curve], beside_real) if beside_real and curve else None
    of_cheats = [
        {"name": cheat.name} | point
        | ({"fools": fooled(_numbers(point), _numbers(reals))} if reals is not None else {})
        for cheat, point in zip(more, scored[len(sets) :])
    ]  # fmt: skip
    return {
        "points": scored[: len(sets)], "real": None if reals is None else {"name": beside.name} | reals,
        "cheats": of_cheats, "compared": compared,
        "matched": None if at is None else at.to_dict(), "curve": bool(curve),
    }  # fmt: skip


def _add(point: dict[str, Any], numbers: dict[str, Any]) -> None:
    from ..evaluation.metrics import as_json

    point["measures"] |= as_json(numbers)


def _add_memorisation(
    scored: list[dict[str, Any]], readings: "list[Judged]", model_rows: list[Any], training: Any, terminal: Terminal
) -> None:
    """Of all sets in one pass over the training set; of those in the model's tokens."""
    from ..evaluation.memorisation import longest
    from ..evaluation.metrics import measure

    rows = [[*each] if each is not None else [] for each, _ in zip(model_rows, scored)]
    with Bar(terminal, "search", 1, "rows") as bar:
        runs = longest(
            [row for each in rows for row in each], training, lambda done, total: bar.update(done, total=total)
        )
    at = 0
    for point, each in zip(scored, rows):
        if each:
            _add(point, measure(runs=runs[at : at + len(each)]))
        at += len(each)


def _numbers(point: dict[str, Any]) -> dict[str, Any]:
    from ..evaluation.sweep import measure_of

    return {name: measure_of(point, name) for name in point["measures"]}


def generate_images(
    chosen: Any, data: Data | None, flags: set[str], model: Any, folder: Path | None, terminal: Terminal, began: float
) -> Document:
    """The command, of a model that makes images; `chosen` are its options, `flags` those given, `data` None for the run's own."""
    wrong = next((name for name in OF_TEXT if f"--{name}" in flags), None)
    if wrong is not None:
        raise InputError(f"--{wrong} is about texts, and this model makes images; leave it out")
    from ..evaluation import image_quality, sweep
    from ..evaluation.image_features import features_of

    ways, classes = ways_of(chosen, model), classes_of(chosen, model)
    sets: list[Set] = sweep.read_samples(chosen.samples, model) if chosen.samples else []
    device = next(model.method.parameters()).device
    with terminal.waiting("loading the features"):
        features = features_of(chosen.features or IMAGE_FEATURES, device)
    number = min((len(one.texts) for one in sets), default=chosen.count)
    reference, floor = real_images(chosen.reference, model, data, number, classes, terminal)
    image_quality.check_enough(number, len(reference[1]), features.width)
    sets = sets or draw(chosen, model, ways, folder, terminal)
    points, real = _scored_images(model, features, sets, reference[1], floor, chosen.seed, terminal)
    arguments = {name: value for name, value in files.arguments(chosen, data).items() if name not in OF_TEXT}
    document = _image_document(chosen, arguments, model, features, points, real, reference, time.monotonic() - began)
    files.publish(terminal, folder, document, chosen, bool(ways))
    return document


def real_images(
    split: str, model: Any, data: Any, number: int, classes: list[int], terminal: Terminal
) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """The reference, and as many real images of another split as there are samples, to stand beside: names and rows.

    Where the samples are told classes, both are images of these.
    """
    from ..data.rows import evenly_spaced
    from ..evaluation.corpus import asked_of_classes, beside_training, corpus_of
    from ..models.model import class_names

    if split == "none":
        raise InputError("FID compares with real images; give --reference train or test")
    with Bar(terminal, "read", 1, as_text=byte_size) as bar:
        corpus = corpus_of(model, data, progress=lambda done, total: bar.update(done, total=total))
    note_change(terminal, {"sha256": corpus.about.get("sha256")} | beside_training(model, corpus))
    name, other = corpus.about["name"], "train" if split != "train" else "test"

    def of_classes(part: str, most: int | None = None) -> tuple[str, Any]:
        rows, _ = asked_of_classes(model, corpus, part, unconditional=not classes)
        if not classes:
            return f"{name} {part}", rows.array(most)
        if rows.labels is None:
            raise InputError(
                f"the samples have classes, and {name} comes without; give --data.labels, or leave out --class"
            )
        some = "" if len(set(classes)) == len(class_names(model)) else " of these classes"
        import numpy as np

        return f"{name} {part}{some}", evenly_spaced(rows.array()[np.isin(rows.labels, classes)], most)

    return of_classes(split), of_classes(other, number)


def _scored_images(
    model: Any, features: "Features", sets: "list[Set]", reference: Any, floor: tuple[str, Any], seed: int, terminal: Terminal
) -> tuple[list[dict[str, Any]], dict[str, Any]]:  # fmt: skip
    """Each set, and the real images that stand beside, as JSON has it."""
    from ..evaluation import metrics, sweep
    from ..show import kinds

    kind: Any = kinds.of(model.tokenizer)
    beside = sweep.Set(sweep.Way(), [], floor[1].tolist())
    with Bar(terminal, "look", 1, "images") as bar:
        every, done = len(reference) + sum(len(one.rows or ()) for one in [*sets, beside]), 0
        seen = []
        for rows in (reference, *(one.rows for one in sets), floor[1]):
            rows = sweep.checked_images(rows, model.tokenizer)
            show = lambda n, _, done=done: bar.update(done + n, total=every)  # noqa: E731
            seen.append(features.views(kind.pixels(rows), show))
            done += len(rows)
    with terminal.waiting("comparing"):
        measured = [metrics.measure_images(views, seen[0], seed) for views in seen[1:]]
    points = [sweep.image_point(one, measures) for one, measures in zip([*sets, beside], measured)]
    return points[:-1], {"name": floor[0]} | points[-1]


def _image_document(
    chosen: Any, arguments: Document, model: Any, features: "Features", points: list[dict], real: dict,
    reference: tuple[str, Any], seconds: float,
) -> dict[str, Any]:  # fmt: skip
    """The result as JSON."""
    from ..evaluation import image_quality, metrics, sweep
    from ..models.model import identity

    about = identity(model)
    protocol = {
        "name": image_quality.PROTOCOL, "features": features.about, "library": image_quality.library(),
        "reference": f"{reference[0]}, {len(reference[1]):,} images", "images": model.tokenizer.describe(),
        **told_classes(chosen, model), "draws": sweep.DRAWS if not chosen.samples else f"samples of {chosen.samples}",
        "network": model.method.precision, "weights": about["weights"],
        **metrics.definitions(points[0]["measures"]), "streams": "sample i of every set has the stream of (seed, i)",
    }  # fmt: skip
    result = {"points": points, "real": real, "about": about | {"length": int(model.method.shape[0])}}
    return json_record(
        "evaluate", arguments, result,
        interval={"level": 0.95, "method": metrics.intervals(points[0]["measures"])}, unit="FID", kind="samples",
        protocol=protocol, seed=chosen.seed, seconds=seconds,
    )  # fmt: skip
