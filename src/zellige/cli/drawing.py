"""`zellige sample` and `zellige infill`: their options, how samples are drawn, shown and written."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..base.errors import InputError, either
from ..base.processes import this_process, threads_for
from ..base.requests import declared, inline, option
from ..base.trust import refuse_remote
from ..data import Local
from ..sampling.infill import Infill
from ..sampling.request import Sampling
from ..sampling.sample import Sample, share
from ..show.numbers import byte_size, counted, path
from ..show.progress import Bar
from ..show.style import Mark
from ..show.terminal import Terminal
from . import options
from .common import OfModel, SamplerOptions, load, loading, note_change, put_json, with_sampler, writable

if TYPE_CHECKING:
    from ..methods.method import Method
    from ..models.model import Model
    from ..samplers import Distribution
    from ..sampling.samples import Samples
    from ..sampling.trajectory import Frame
    from ..show.kinds import Modality

R = TypeVar("R", bound=Sampling)


@declared
class Drawing(OfModel):
    """Options of `zellige sample` and `zellige infill` beside their requests."""

    request: Sampling = inline(default=Sampling())
    watch: bool = option("show the tokens as they appear", default=False)
    frames: str | None = option(
        "folder for a PNG of each step (images, music, grids), with the first --batch samples", default=None
    )
    out: str | None = option(
        "file to write: .jsonl, .txt, .png, .mid, .gif or .mp4; .jsonl has text, tokens, seed, calls, prompt and "
        "class; .gif and .mp4 show the sampling trajectory",
        default=None,
    )
    options: SamplerOptions = inline(default=SamplerOptions())

    @property
    def sampler_options(self) -> dict[str, Any]:
        """The options of the sampler that are typed."""
        return {name: value for name, value in dataclasses.asdict(self.options).items() if value is not None}


@declared
class SampleOptions(Drawing):
    shown = "prompt count steps sampler length temperature top-p top-k best-of class guidance seed watch out device"

    request: Sample = inline(default=Sample())


@declared
class InfillOptions(Drawing):
    usage = 'RUN "a text with ____" [options]'
    shown = "count steps sampler temperature top-p best-of class seed watch mark mask-token example keep data.path out device"

    text: str = option(
        "text with gaps: each _ is one missing token (a character or a subword); for a puzzle its cells: 53..7....",
        default="",
        argument="TEXT",
    )
    request: Infill = inline(default=Infill())
    example: int = option(
        "example of the test data to complete, by number (images, music, grids)", default=0, minimum=0
    )
    keep: str | None = option(
        "part of --example to keep: top, bottom, left, right; music: first (half), soprano, alto, tenor, "
        "bass (default: the clues of a puzzle, else the first that the data has)",
        default=None,
    )
    data: Local = option("where the run's data set is", default=Local())
    mark: Literal["color", "brackets", "none"] = option(
        "how the filled-in text is marked: color, brackets or none; color needs a terminal with colors", default="color"
    )


def draw(
    chosen: "SampleOptions | InfillOptions",
    command: str,
    terminal: Terminal,
    began: float,
    ask: "Callable[[Model, Modality], tuple[Sample | Infill, PartialRow | None]]",
) -> int:
    """Draw samples, show and write them.

    Args:
        ask: the request for a model and the kind of its rows; and where a part of a row is given, the row.
    """
    out = _out(chosen.out)
    with terminal.one_note():
        model = load(terminal, chosen.run, command, chosen)
        from ..sampling.samples import gather
        from ..show import kinds
        from ..show.kinds.modality import FILMS

        kind = kinds.of(model.tokenizer)
        film = FilmFile(out) if out is not None and out.suffix in FILMS else None
        if out is not None and film is None:
            kind.refuse(out.suffix)
        frame_files = None if chosen.frames is None else FrameFiles(frames_folder(chosen.frames, kind))
        request, row = ask(model, kind)
        seen = chosen.watch or film is not None or frame_files is not None
        if seen and isinstance(request, Sample) and request.best_of is None:
            request = replace(request, best_of=1)  # one sees the sample itself
        request = _with_defaults(request, model, terminal)
        if model.method.precision == "int8":
            terminal.note("int8 weights: another model; zellige evaluate --precision int8 bounds it")
        free = isinstance(request, Sample)  # nothing but a prompt is given
        if chosen.watch and frame_files is None and film is None:
            request = replace(request, batch=1)
        process = this_process()
        is_shared = process.world > 1 and free and frame_files is None and film is None and not chosen.watch
        if process.rank and not is_shared:  # work that several processes do not share is the first one's
            return 0
        own_request = share(process, request) if is_shared and isinstance(request, Sample) else request
        masked_text = request.masked_texts(model)[0] if isinstance(request, Infill) and kind.running else None
        if own_request is not None:
            _note(own_request, model, terminal)
        if kind.colours and not (terminal.out_hues if out is None else terminal.hues or not chosen.watch):
            terminal.note(f"{kind.many} are shown where there are colours; --out x.png writes them")
    writers = [writer.see for writer in (frame_files, film) if writer is not None]
    candidates = request.best_of or 1
    rows = min(request.count * max(len(request.labels or ()), 1) * candidates, request.batch)
    with threads_for(_operations(model.method, rows, candidates > 1)):
        length = None if masked_text is None else masked_text.length(model)
        samples = None if own_request is None else _seen(own_request, model, chosen, command, length, writers, terminal)
    if is_shared:
        samples = gather(process, samples)
        if process.rank:
            return 0
    assert samples is not None
    labels = [label for label in samples.classes if label is not None]
    panels = Panels(kind, samples.tokens, row, labels)
    files: list[Path] = []
    if film is not None:
        files = film.close()
    elif out is not None:
        files = panels.write(out, samples.made_by(request))
    elif masked_text is not None:
        pieces = [masked_text.pieces(tokens, model.tokenizer) for tokens in samples.tokens]
        show_filled(terminal, pieces, getattr(chosen, "mark", ""))
    else:
        panels.show(terminal, samples.texts)
    for verdict in panels.verdicts:
        terminal.result(verdict)
    terminal.say(str(samples))
    if samples.distribution is not None:
        terminal.say(f"sampled from: {described(samples.distribution, model.method.precision)}")
    if files:
        terminal.say(f"written  {' '.join(map(path, files))}")
    if frame_files is not None:
        terminal.say(f"written  {counted(len(frame_files.files), 'frame')} in {path(frame_files.folder)}")
    request = replace(request, batch=chosen.request.batch)  # --watch draws one at a time
    _write_json(samples.made_by(request, loading(chosen)), panels, terminal, began)
    return 0


def _note(request: "Sample | Infill", model: "Model", terminal: Terminal) -> None:
    """Lines about what the samples of a request will be; an InputError comes before them."""
    from ..data import chat
    from ..models.ends import counts_of_lengths
    from ..sampling.masked_text import approximate

    prompt, chats = None, False
    if isinstance(request, Sample):
        prompt, chats = request.prompt, request.chat
        trajectory = request.trajectory(model, request.best_of or 1)
        trajectory.frames()
        if trajectory.lengths:
            sizes = sorted(map(int, counts_of_lengths(model)))
            terminal.note(
                f"lengths are drawn from those of the training's documents, {sizes[0]:,} to {sizes[-1]:,} tokens, as "
                "this model does not learn where a text ends; `length` sets one"
            )
    if (note := approximate(model)) and (prompt or not isinstance(request, Sample)):
        terminal.note(note)
    if prompt and chats:
        if note := chat.note(model.tokenizer):
            terminal.note(note)
    elif prompt:
        _note_blank(model, str(prompt), terminal)


def _operations(method: "Method", rows: int, bounds: bool) -> int:
    """Operations of a network evaluation of so many rows, about; `bounds`: those of bounds count, which read whole rows."""
    length = int(method.shape[0])
    positions = rows * (method.block if 0 < method.block < length and not bounds else length)
    return 2 * method.parameter_count * positions


def _write_json(samples: "Samples", panels: "Panels", terminal: Terminal, began: float) -> None:
    """The record as JSON where --json asks for it; what concerns the display alone is no part of it."""
    document = samples.to_dict()
    document["result"] |= panels.record()
    put_json(terminal, document | {"seconds": time.monotonic() - began})


def _with_defaults(request: R, model: "Model", terminal: Terminal) -> R:
    """The request with the model's defaults for what is not typed, which a line names."""
    if not request.defaults:
        return request
    complete = request.with_defaults(model)
    own_decoding, decoding = request.decoding(), complete.decoding()
    more = [
        f"--{n.replace('_', '-')} {v}"
        for n, v in request.advised(model).items()
        if n not in own_decoding and decoding.get(n) == v
    ]
    if more:
        terminal.note(f"with the model's defaults {' '.join(more)} (--no-defaults ignores them)")
    return complete


def _note_blank(model: "Model", prompt: str, terminal: Terminal) -> None:
    """A line where the blank at the end of a prompt is left to the next token."""
    from ..sampling.tokens import before_word

    if before_word(model.tokenizer, prompt) != prompt:
        terminal.note(
            f"the blank at the end of the prompt is left to the next token: tokens of {model.tokenizer.name} begin "
            "with it"
        )


def described(distribution: "Distribution", precision: str) -> str:
    """The distribution of the samples of a model in a precision, and the command that bounds their likelihood."""
    if distribution.number is None:
        return f"{distribution.text}; no bound on its likelihood"
    choices = {**distribution.number} | ({"precision": precision} if precision == "int8" else {})
    words = [f"--{name} {value}" for name, value in choices.items()]
    return f"{distribution.text}; {' '.join(['zellige evaluate', *words])} bounds its likelihood"


def _seen(
    request: "Sample | Infill",
    model: "Model",
    chosen: Drawing,
    command: str,
    length: int | None,
    writers: "list[Callable[[Frame], None]]",
    terminal: Terminal,
) -> "Samples":
    """Draw the samples, each frame shown on the terminal, or counted in a bar, and handed to the writers."""
    from .viewer import Viewer

    if chosen.watch:
        brackets = getattr(chosen, "mark", "") == "brackets"
        with contextlib.closing(Viewer(terminal, length, brackets=brackets)) as viewer:
            return request.run(model, each(*writers, viewer))
    with Bar(terminal, command, 1, "steps") as bar:

        def count_step(frame: "Frame") -> None:
            total = -(-frame.count // request.batch) * max(frame.steps, 1)
            bar.update(frame.first // request.batch * frame.steps + frame.step, total=total)

        return request.run(model, each(*writers, count_step))


def each(*functions: "Callable[[Frame], None]") -> "Callable[[Frame], None]":
    """A function that hands a frame to each of these."""

    def see(frame: "Frame") -> None:
        for function in functions:
            function(frame)

    return see


def show_filled(terminal: Terminal, texts: "list[list[tuple[str, bool]]]", mark: str) -> None:
    """Texts on stdout in pieces, (text, whether it was filled in), the filled ones marked."""
    for pieces in texts:
        if mark == "brackets":
            pieces = [(f"[{text}]" if new else text, new) for text, new in pieces]
        if mark == "none" or not (terminal.out_tty or terminal.out_styled):
            terminal.data("".join(text for text, _ in pieces))
            continue
        lines: list[list[tuple[str, Mark]]] = [[]]
        for text, new in pieces:
            look: Mark = "new" if new else "shown"
            first, *rest = text.split("\n")
            lines[-1].append((first, look))
            for line in rest:
                lines.append([(line, look)])
        terminal.picture(lines)


def _out(name: str | None) -> Path | None:
    """The file of --out, whose ending says the format."""
    if name is None:
        return None
    from ..show.film import require_film
    from ..show.kinds import suffixes
    from ..show.kinds.modality import FILMS

    suffixes_known, suffix = [*suffixes(), *FILMS], Path(name).suffix
    if suffix not in suffixes_known:
        raise InputError(f"--out {name} has an unknown ending; use {either(suffixes_known)}")
    if suffix in FILMS:
        require_film(suffix, f"`out` x{suffix}")
    return writable(name, "--out")


@dataclass(frozen=True)
class PartialRow:
    """The given part of a row: `fixed` (L,) tokens, -1 where they are sampled, and the whole row where it is known."""

    fixed: Any
    truth: Any = None


class Panels:
    """The samples, beside the given part and the true row where there are such."""

    def __init__(
        self, kind: "Modality", rows: list[list[int]], row: PartialRow | None, labels: list[str] | None = None
    ):
        """labels: the class of each sample, where there are classes."""
        self.kind, self.drawn, self.row = kind, rows, row
        self.rows, self.captions, self.verdicts = rows, labels or [], []
        if row is not None:
            names = ["filled"] if len(rows) == 1 else [f"filled {i + 1}" for i in range(len(rows))]
            names = labels or names
            truths = [] if row.truth is None else [row.truth.tolist()]
            self.rows = [row.fixed.tolist(), *rows, *truths]
            self.captions = ["given", *names, *["truth"] * len(truths)]
            verdicts = [(name, kind.verdict(tokens, row.truth)) for name, tokens in zip(names, rows)]
            self.verdicts = [f"{name}: {verdict}" for name, verdict in verdicts if verdict]
        elif any(kind.verdict(tokens) for tokens in rows):
            self.verdicts = [f"valid: {int(kind.valid(rows).sum())} of {len(rows)}"]

    @property
    def fixed(self) -> Any:
        """(L,) bool, the given tokens; None where none is."""
        return None if self.row is None else self.row.fixed >= 0

    def record(self) -> dict[str, Any]:
        """The entries of --json for a partly given row: {given, truth, verdicts}."""
        if self.row is None:
            return {}
        truth = None if self.row.truth is None else self.row.truth.tolist()
        return {"given": self.row.fixed.tolist(), "truth": truth, "verdicts": self.verdicts}

    def show(self, terminal: Terminal, texts: list[str]) -> None:
        """Show the rows on stdout. Without colours images are numbers, for a program that reads them in a pipe."""
        if self.kind.running or (self.kind.colours and not terminal.out_hues):
            for text in texts if self.kind.running or not terminal.out_tty else ():
                terminal.data(text)
        else:
            terminal.picture(self.kind.lines(self.rows, self.captions, self.fixed))

    def write(self, out: Path, samples: "Samples") -> list[Path]:
        """Write a file, or several; a picture shows the given part and the true row too,
        other formats the samples alone."""
        if out.suffix == ".png" and self.row is None and len(set(self.captions)) > 1:
            from ..base.files import write_file

            write_file(out, self.kind.sheet(self.rows, self.captions))
            return [out]
        if out.suffix == ".png":
            return self.kind.save(out, self.rows, self.fixed, self.captions if self.row is not None else ())
        if out.suffix == ".jsonl" or self.kind.running:
            samples.save(out)
            return [out]
        return self.kind.save(out, self.drawn)


MOST = 200  # pictures in a folder, evenly spaced, of more steps than that


def pictured(frame: "Frame", most: int) -> bool:
    """Return whether a frame is among `most` evenly spaced ones of the first batch, or its last one."""
    interval = -(-frame.steps // most) or 1
    return frame.first == 0 and (frame.step % interval == 0 or frame.step == frame.steps)


class FrameFiles:
    """Frames of the first batch as step-0000.png, step-0001.png, ..., all its samples in each;
    `files` are the written ones."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.files: list[Path] = []

    def see(self, frame: "Frame") -> None:
        """Write a frame."""
        from ..base.files import make, write_file
        from ..show import kinds

        if pictured(frame, MOST):
            file = self.folder / f"step-{frame.step:0{max(4, len(str(frame.steps)))}}.png"
            rows = frame.x.cpu().masked_fill(frame.masked.cpu(), -1)
            make(self.folder)
            write_file(file, kinds.of(frame.tokenizer).png(rows))
            if file not in self.files:  # samples that are drawn again go through the steps once more
                self.files.append(file)


class FilmFile:
    """Frames of the first batch as a film, all of its samples in each picture; `close` writes it."""

    def __init__(self, file: Path):
        self.file = file
        self.steps: dict[int, tuple[str, Any]] = {}
        self.frame: Frame | None = None

    def see(self, frame: "Frame") -> None:
        """Keep a frame."""
        from ..show.film import FRAMES

        if pictured(frame, FRAMES):
            rows = frame.x.masked_fill(frame.masked, -1).cpu().numpy()
            self.steps[frame.step], self.frame = (f"step {frame.step} of {frame.steps}", rows), frame

    def close(self) -> list[Path]:
        """Write the film."""
        from ..base.files import write_file
        from ..show import film, kinds

        assert self.frame is not None
        kind, given_positions = kinds.of(self.frame.tokenizer), self.frame.fixed.cpu().numpy()
        write_file(self.file, film.film(kind, [*self.steps.values()], self.file.suffix, given_positions))
        return [self.file]


def frames_folder(name: str, kind: "Modality") -> Path:
    """The folder of --frames. InputError where such rows make no pictures, where nothing can be written,
    or some are there."""
    from ..base.files import writable

    if ".png" not in kind.suffixes:
        raise InputError(f"--frames writes pictures, and this model makes {kind.many}; use --watch, or --out x.jsonl")
    folder = Path(name)
    if folder.is_file():
        raise InputError(f"'{name}' is a file; --frames needs a folder")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"no folder '{folder.parent}' for --frames {name}; make it first")
    if any(folder.glob("step-*.png")):
        raise InputError(f"'{name}' has frames in it; give --frames another folder")
    writable((folder if folder.is_dir() else folder.parent) / "step-0000.png")
    return folder


def sample(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige sample RUN`"""
    about = """Sample from a model. RUN: its folder, the name of an included one, or a hub id.
example
  zellige sample stories --prompt "Once upon a time" --length 200"""
    arguments = options.parse(with_sampler(SampleOptions, words), words, "sample", terminal, about=about)
    request = replace(arguments.request, options=arguments.sampler_options)
    return draw(arguments, "sample", terminal, began, lambda model, kind: (request, None))


def infill(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige infill RUN [TEXT]`"""
    about = 'Fill gaps (each _ is one token): zellige infill stories-mdlm "a big_ and a_ cat"'
    arguments = options.parse(with_sampler(InfillOptions, words), words, "infill", terminal, about=about)
    flags = options.typed(InfillOptions, words).keys() & {"--example", "--keep", "--data.path", "--data.cache"}
    if arguments.text and flags:
        raise InputError(f"{min(flags)} is for a row of the data, and a text is given; leave one of them out")
    return draw(
        arguments, "infill", terminal, began, lambda model, kind: _infill(arguments, flags, model, kind, terminal)
    )


def _infill(
    chosen: InfillOptions, flags: set[str], model: "Model", kind: "Modality", terminal: Terminal
) -> "tuple[Infill, PartialRow | None]":
    """The request to fill the text that was typed, or a part of a row of the test split."""
    request = replace(chosen.request, options=chosen.sampler_options)
    if kind.running and (flags or not chosen.text):
        reason = f"{min(flags)} is for images, music and grids" if flags else "infill needs a text with gaps"
        raise InputError(f'{reason}; e.g. zellige infill {chosen.run} "the ____ of the ________"')
    if kind.running:
        tokenizer = model.tokenizer
        sign = request.mask_token
        if getattr(kind, "symbols", ()):
            terminal.note(f"each {sign} is one SELFIES symbol: an atom with its bond, a branch, a ring, or the end")
        elif tokenizer.unit == "token":
            has_space = tokenizer.decode(tokenizer.encode(" a")).startswith(" ")
            before = f" with the space before it (had{sign} sons)" if has_space else ""
            terminal.note(f"each {sign} is one token, a word or a piece of one{before}")
        request = replace(request, text=chosen.text)
        request.masked_texts(model)  # what is wrong with the text is said first
        return request, None
    row = _of_a_row(chosen, model, kind, terminal) if not chosen.text else PartialRow(kind.read(chosen.text))
    if (row.fixed >= 0).all():
        raise InputError("nothing to fill: all of it is given; leave some of it free")
    return replace(request, fixed=row.fixed), row


def _of_a_row(chosen: InfillOptions, model: "Model", kind: "Modality", terminal: Terminal) -> PartialRow:
    """A part of --example, by --keep or as the data's own puzzle."""
    from ..evaluation.corpus import beside_training, corpus_of

    if chosen.keep is not None:  # needs no data
        kind.kept(chosen.keep)
    data_fields = {name: value for name, value in asdict(chosen.data).items() if value is not None}
    data = replace(model.config.data, **data_fields) if data_fields else None
    if data is not None and chosen.data.path is None and data.remote:
        refuse_remote(data.remote, f"the config of '{chosen.run}'")
    with Bar(terminal, "read", 1, as_text=byte_size) as bar:
        corpus = corpus_of(model, data, progress=lambda done, total: bar.update(done, total=total))
    note_change(terminal, {"sha256": corpus.about.get("sha256")} | beside_training(model, corpus))
    rows = corpus.test
    if chosen.example >= len(rows):
        raise InputError(
            f"--example is {chosen.example:,}; the test split has {len(rows):,}, give 0 to {len(rows) - 1:,}"
        )
    row = rows[chosen.example]["tokens"].numpy()
    if rows.clues is not None and chosen.keep is None:  # a puzzle of its own
        return PartialRow(rows.clues[chosen.example], row)
    return PartialRow(kind.given(row, chosen.keep), row)
