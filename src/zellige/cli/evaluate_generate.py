"""`zellige evaluate MODEL --generate`: samples, judged; along temperature and top-p, and against network calls."""

import dataclasses
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..data import Data
from ..errors import InputError
from ..show.numbers import byte_size, path
from ..show.progress import Bar
from ..show.record import as_file, json_record
from ..show.terminal import Terminal
from . import options
from .common import Device, Run, load, note_change, put_json
from .sample import Options

if TYPE_CHECKING:
    from ..evaluation.judge import Judge
    from ..evaluation.sweep import Set, Way

DRAWN = (  # choices that make the samples, and those that make of them the numbers
    "count", "sampler", "steps", "temperature", "top_p", "length", "frontier", "temperatures", "top_ps", "calls", "samplers",
    "seed",
)  # fmt: skip
READ = ("samples", "tokens", "first", "eos", "long", "context", "reference", "mauve")
NAME = "generate"  # of the files: generate.jsonl, generate-JUDGE.json, .md, -frontier.svg, -calls.svg


@dataclass(frozen=True)
class Generate:
    run: Run = ""
    """a run, a saved folder or a hub id"""
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
    """steps of the sampler: 64, in discrete time the nearest divisor of T"""
    sampler: str | None = None
    """zellige list samplers; the method's own if not given"""
    options: Annotated[Options, tyro.conf.arg(name="")] = field(default_factory=Options)
    temperature: float = 1.0
    """of the clean posterior"""
    top_p: float = 1.0
    """keep the likeliest tokens that hold this share"""
    length: int | None = None
    """tokens of a sample; the model's length if not given"""
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
    """real text to stand beside: a split of the data, a file of texts, or none"""
    data: Data = field(default_factory=Data)
    """another data set than the run's own"""
    mauve: bool = False
    """MAUVE too, on the judge's features, against the real text"""
    seed: int = 0
    batch: int | None = None
    """samples drawn at once"""
    out: str | None = None
    """the folder for generate.jsonl (the samples), generate-JUDGE.json, .md and figures; that of the run if not given"""
    method: str | None = None
    """file.py:Class of a run with an own method"""
    device: Device = "auto"


def run(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige evaluate MODEL --generate`"""
    words = [word for word in words if word != "--generate"]
    given = options.given(words)
    chosen = options.parse(
        Generate, words, "evaluate --generate", about="Samples, judged: perplexity beside entropy.", most=1
    )
    _check(chosen)
    folder = _folder(chosen)
    model = load(terminal, chosen.run, "evaluate", chosen.method, chosen.device) if chosen.run else None
    from ..evaluation import sample_quality, sweep
    from ..evaluation.judge import Judge
    from ..show import kinds

    if chosen.mauve:
        sample_quality.mauve_package()
    if model is not None and not (kind := kinds.of(model.tokenizer)).running:
        raise InputError(f"--generate judges texts, and this model makes {kind.many}; leave it out")
    ways = _ways(chosen, model) if model is not None and not chosen.samples else []
    sets: list[Set] = sweep.read_samples(chosen.samples, model) if chosen.samples else []
    with terminal.waiting("loading the judge"):
        judge = Judge(
            chosen.judge, first=chosen.first, eos=chosen.eos, long=chosen.long, context=chosen.context,
            device=_device(chosen, model),
        )  # fmt: skip
    if chosen.tokens == "own" and model is not None and not judge.inner.same(model.tokenizer):
        raise InputError(f"judge '{judge.inner.name}' has other tokens than the model; leave out --tokens own")
    number = len(sets[0].texts) if sets else chosen.count
    real, name = _real(chosen, model, given, number, terminal)
    if chosen.mauve and real is None:
        raise InputError("--mauve compares with real text, and there is none; give --reference FILE or --data.name")
    if chosen.mauve and number < 1000:
        terminal.note("MAUVE of fewer than a thousand texts says little")
    with Bar(terminal, "sample", 1, "steps") as bar:
        before, every = 0, chosen.count * sum(way.steps or 1 for way in ways)
        for way in ways:
            told = lambda done, _, before=before: bar.update(before + done, total=every)  # noqa: E731
            sets.append(sweep.draw_samples(model, way, chosen.count, chosen.seed, chosen.length, chosen.batch, told))
            before += chosen.count * (way.steps or 1)
    if folder is not None and ways:  # before they are judged, which may take longer
        from ..files import make, write_file

        make(folder)
        write_file(folder / f"{NAME}{_others(chosen, DRAWN)}.jsonl", sweep.samples_as_lines(sets))
    points, about = _judged(chosen, judge, sets, real, terminal)
    plain = _record(chosen, model, judge, points, None if about is None else {"name": name} | about, began)
    from .evaluate_generate_print import describe

    lines = describe(plain)
    for line in lines:
        terminal.result(line)
    if folder is not None:
        for line in _write(folder, plain, lines, chosen, bool(ways)):
            terminal.result(line)
    put_json(terminal, plain)
    return 0


def _check(chosen: Generate) -> None:
    """What does not go together."""
    if not (chosen.run or chosen.samples):
        raise InputError("--generate needs a run, or --samples FILE; e.g. zellige evaluate runs/demo --generate")
    if chosen.count < 2:
        raise InputError(f"--count is {chosen.count}; it must be 2 or more: an interval needs two")
    drawing = [f for f in ("frontier", "temperatures", "top_ps", "calls", "samplers") if getattr(chosen, f)]
    if chosen.samples and drawing:
        flag = f"--{drawing[0].replace('_', '-')}"
        raise InputError(f"{flag} says how samples are drawn, and --samples gives them; leave one of the two out")
    if chosen.samplers and not chosen.calls:
        raise InputError("--samplers goes with --calls; e.g. --calls 8 16 32 64, or --sampler for a single one")


def _folder(chosen: Generate) -> Path | None:
    """Where the files go; None: nowhere. InputError where nothing can be written."""
    from .. import files

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
    files.writable((folder if folder.is_dir() else folder.parent) / NAME)
    return folder


def _device(chosen: Generate, model: Any) -> Any:
    """Where the judge works: beside the model."""
    import torch

    if model is not None:
        return next(model.method.parameters()).device
    return "cuda" if chosen.device == "cuda" or (chosen.device == "auto" and torch.cuda.is_available()) else "cpu"


def _ways(chosen: Generate, model: Any) -> "list[Way]":
    """Every way to draw that was asked for; the plain one first."""
    from ..evaluation import sweep

    own = {name: value for name, value in dataclasses.asdict(chosen.options).items() if value is not None}
    base = sweep.Way(chosen.sampler or "", chosen.steps, chosen.temperature, chosen.top_p, own)
    base = sweep.settled(model, base, chosen.length)
    usual = chosen.frontier and not (chosen.temperatures or chosen.top_ps)
    temperatures = sweep.TEMPERATURES if usual else chosen.temperatures
    ways = [base, *sweep.along(base, temperatures, sweep.TOP_PS if usual else chosen.top_ps)]
    if chosen.calls:
        ways += sweep.calls(model, base, chosen.calls, chosen.samplers)
    return sweep.different(sweep.settled(model, way, chosen.length) for way in ways)


def _real(chosen: Generate, model: Any, given: set[str], number: int, terminal: Terminal) -> "tuple[Set | None, str]":
    """Real texts, as many as there are samples of a set, and what they are called."""
    from ..evaluation import sweep

    if chosen.reference == "none":
        return None, ""
    if Path(chosen.reference).is_file():
        return sweep.read_samples(chosen.reference, model)[0], chosen.reference
    if model is None:
        if "--reference" in given:
            raise InputError(
                f"no file at '{chosen.reference}'; without a run --reference needs a file of texts, or none"
            )
        return None, ""
    from ..evaluation.corpus import beside_training, corpus_of

    data = chosen.data if any(flag.startswith("--data.") for flag in given) else None
    try:
        with Bar(terminal, "read", 1, as_text=byte_size) as bar:
            corpus = corpus_of(model, data, progress=lambda done, total: bar.update(done, total=total))
        note_change(terminal, {"sha256": corpus.about.get("sha256")} | beside_training(model, corpus))
        return sweep.real_texts(corpus, chosen.reference, number), f"{corpus.about['name']} {chosen.reference}"
    except InputError as absent:
        if data is not None or "--reference" in given:
            raise
        terminal.note(f"no real text to stand beside: {absent}")
        return None, ""


def _judged(
    chosen: Generate, judge: "Judge", sets: "list[Set]", real: "Set | None", terminal: Terminal
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Each set, and the real text, as JSON has it."""
    from ..evaluation import sweep

    features = judge.features(real.texts) if chosen.mauve and real is not None else None
    every = [*sets, real] if real is not None else sets
    found = []
    with Bar(terminal, "judge", 1, "texts") as bar:
        for i, one in enumerate(every):
            told = lambda done, total, i=i: bar.update(i * total + done, total=len(every) * total)  # noqa: E731
            own = chosen.tokens == "own" and one.rows is not None
            against = features if one is not real else None
            found.append(sweep.score_samples(one, judge, own=own, against=against, seed=chosen.seed, progress=told))
    return (found[:-1], found[-1]) if real is not None else (found, None)


def _record(
    chosen: Generate, model: Any, judge: "Judge", points: list[dict], real: dict | None, began: float
) -> dict[str, Any]:
    """The result as JSON."""
    from ..evaluation import sample_quality, sweep
    from ..models.model import identity

    whose = "the model's tokens" if model is not None else "the judge's tokens, where samples come without"
    protocol = {
        "name": sweep.PROTOCOL, "judge": judge.about,
        "judged": "the samples' own tokens" if chosen.tokens == "own" else "decoded, then tokenized by the judge's tokenizer",
        "draws": sweep.DRAWS if not chosen.samples else f"samples of {chosen.samples}",
        "network": None if model is None else str(next(model.method.parameters()).dtype).removeprefix("torch."),
        "weights": None if model is None else identity(model)["weights"], "perplexity": "corpus: exp(all nats / all tokens)",
        "perplexity per sequence": "mean over samples of exp(nats / tokens)", "entropy": sweep.ENTROPY,
        "distinct-n": "different n-grams / n-grams, over all samples", "seq-rep-4": "1 - distinct-4 within a sample, mean",
        "measured on": whose, "streams": "sample i of every set has the stream of (seed, i)",
    }  # fmt: skip
    said = sample_quality.INTERVAL + (f"; {sample_quality.INTERVAL_MAUVE}" if chosen.mauve else "")
    about: dict[str, Any] = {}
    if model is not None:
        about = identity(model) | {"length": chosen.length or int(model.method.shape[0])}
    return json_record(
        "evaluate", {"mode": NAME} | dataclasses.asdict(chosen), {"points": points, "real": real, "about": about},
        interval={"level": 0.95, "method": said}, unit="perplexity per token of the judge", kind="samples",
        protocol=protocol, seed=chosen.seed, seconds=time.monotonic() - began,
    )  # fmt: skip


def _others(chosen: Generate, names: tuple[str, ...]) -> str:
    """What the files' names in a run say of these choices, those that are not the default's; in a folder of one's own nothing."""
    from .evaluate_print import choices

    if chosen.out is not None:
        return ""
    values = {name: getattr(chosen, name) for name in names}
    values = {name: value for name, value in values.items() if value != getattr(Generate, name)}
    if "count" in names:
        values |= dataclasses.asdict(chosen.options)
    if "samples" in values:
        values["samples"] = Path(values["samples"]).stem
    return choices(**values)


def _write(folder: Path, plain: dict[str, Any], lines: list[str], chosen: Generate, drawn: bool) -> list[str]:
    """The JSON, the table and the figures; the lines that say so."""
    from ..files import make, write_file
    from ..report import sweep as figures
    from .evaluate_generate_print import tables

    points, real = plain["result"]["points"], plain["result"]["real"]
    judge = Path(plain["protocol"]["judge"]["judge"]).name
    stem = f"{NAME}-{judge}{_others(chosen, DRAWN + READ)}"
    make(folder)
    written = [folder / f"{stem}.json"]
    write_file(written[0], as_file(plain))
    if len(points) > 1:
        body = [f"# {chosen.run or chosen.samples}", ""]
        for title, (head, *rows) in tables(plain):
            body += [
                *([f"## {title}", ""] if title else []),
                *(f"| {' | '.join(r)} |" for r in (head, ["---"] * len(head), *rows)),
                "",
            ]
        write_file(folder / f"{stem}.md", "\n".join([*body, "```text", *lines, "```"]) + "\n")
        written.append(folder / f"{stem}.md")
    for by in ("frontier", "calls"):
        figure = figures.sweep_figure(points, real, by, judge)
        if figure is not None:
            written.append(folder / f"{stem}-{by}.svg")
            drawn_as = io.StringIO()
            figure.savefig(drawn_as, format="svg", metadata={"Date": None})
            write_file(written[-1], drawn_as.getvalue())
    out = [f"  written   {'   '.join(map(path, written))}"]
    if drawn:
        kept = path(folder / f"{NAME}{_others(chosen, DRAWN)}.jsonl")
        out.append(f"  again     zellige evaluate {path(chosen.run)} --generate --samples {kept} --judge ...")
    return out
