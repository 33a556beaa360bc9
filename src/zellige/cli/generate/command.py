"""`zellige evaluate MODEL --generate`: samples of text, judged; along temperature and top-p, and against network calls."""

import time
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ...data import Data
from ...errors import InputError
from ...show.numbers import byte_size
from ...show.progress import Bar
from ...show.terminal import Terminal
from .. import options
from ..common import Document, OfRun, command_options, load, note_change, typed_data
from ..sampler_options import SamplerOptions
from . import files
from .beside import FEATURES, Beside, cheats, measured
from .classes import classes_of
from .draw import draw, ways_of
from .images import generate_images

if TYPE_CHECKING:
    from ...evaluation.sweep import Set


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
    from ...evaluation import metrics, sweep
    from ...evaluation.distances import LEAST
    from ...evaluation.judge import Judge
    from ...evaluation.text_features import embedder
    from ...show import kinds

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
    from ...files import writable

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
    from ...evaluation import sweep

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
    from ...evaluation.corpus import beside_training, corpus_of

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
    from ...evaluation.corpus import corpus_of

    if not (chosen.distances or chosen.cheats):
        return None
    try:
        return (corpus or corpus_of(model)).split("train")
    except InputError:
        return None
