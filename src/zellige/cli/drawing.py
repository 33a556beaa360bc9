"""`zellige sample` and `zellige infill`: their options, how samples are drawn, shown and written."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..errors import InputError
from ..launched import this_process
from ..show.numbers import byte_size, counted, path
from ..show.progress import Bar
from ..show.style import Mark
from ..show.terminal import Terminal
from ..trust import refuse_remote
from ..waiting import threads_for
from . import options
from .common import OfRun, Where, command_options, load, note_change, writable, write_json
from .sampler_options import SamplerOptions

if TYPE_CHECKING:
    from ..models.frames import Drawn, Frame
    from ..models.infill import Gaps
    from ..samplers import Distribution
    from ..show.kinds import Modality


@dataclass(frozen=True)
class Drawing(OfRun):
    count: int = 1
    """how many texts; with --class of each"""
    classes: Annotated[tuple[str, ...], tyro.conf.arg(name="class")] = ()
    """of a model that was trained with --data.labels: the class of the texts, by name or number; or several"""
    steps: int | None = None
    """number of sampling steps: fewer are faster, more follow the model more closely; default: the model's own, else T of a
    model of T steps, else 64"""
    sampler: str | None = None
    """how tokens are drawn, step by step (zellige list samplers); default: the method's own, ancestral for most"""
    options: Annotated[SamplerOptions, tyro.conf.arg(name="")] = field(default_factory=SamplerOptions)
    seed: int = 0
    """start of the random numbers; a text depends on it and on its own number alone"""
    temperature: float | None = None
    """below 1 favours likely tokens, 0 takes the likeliest; default: the model's own, else 1"""
    top_p: float | None = None
    """keep the likeliest tokens that hold this share of the probability; default: the model's own, else 1, all"""
    defaults: bool = True
    """sample as the model says (its generation_config.json) where you do not; --no-defaults: the model's own distribution"""
    batch: int = 16
    """texts at once"""
    watch: bool = False
    """show the tokens appear"""
    frames: str | None = None
    """a folder: how images (music, grids) appear, as a PNG a step with the first --batch of them"""
    out: str | None = None
    """a file: .jsonl (text, tokens, seed, calls, prompt, class), .txt, .png, .mid for music; .gif or .mp4: how it came about"""


def draw(
    chosen: Any,
    command: str,
    terminal: Terminal,
    began: float,
    give: "Callable[[Any, Modality], Gaps | PartialRow | None]",
) -> int:
    """Draw, show, write.

    Args:
        give: what is given of each text, by the model and the kind of its rows; None: nothing but a prompt.
    """
    out = _out(chosen.out)
    model = load(terminal, chosen.run, command, chosen)
    from ..models.frames import gather_texts, share
    from ..models.infill import Gaps, approximate, filled
    from ..models.watch import before_word, watch
    from ..show import kinds
    from ..show.film import FILMS

    kind = kinds.of(model.tokenizer)
    film = FilmFile(out) if out is not None and out.suffix in FILMS else None
    if out is not None and film is None:
        kind.refuse(out.suffix)
    frame_files = None if chosen.frames is None else FrameFiles(frames_folder(chosen.frames, kind))
    how = {
        "count": chosen.count, "seed": chosen.seed, "classes": chosen.classes or None, "defaults": False,
        "batch": 1 if chosen.watch and frame_files is None and film is None else chosen.batch,
    }  # fmt: skip
    way = _way(chosen, model, terminal)
    how |= way
    start = give(model, kind)
    prompt = chosen.text or None if start is not None else chosen.prompt
    more = {"length": chosen.length, "prompt": prompt} if start is None else {"fixed": start.fixed}
    gaps = start if isinstance(start, Gaps) else None
    if gaps is not None:
        more["alone"] = True
    here = this_process()
    shared = here.world > 1 and start is None and frame_files is None and film is None and not chosen.watch
    if here.rank and not shared:  # of what several processes do not do together the first one does all
        return 0
    ours = share(here, chosen.count, chosen.seed, chosen.classes) if shared else {}
    frames = () if ours is None else watch(model, **more, **how | ours)
    if (note := approximate(model)) and (prompt or start is not None):
        terminal.note(note)
    if prompt and start is None and before_word(model.tokenizer, prompt) != prompt:
        terminal.note(
            f"the blank at the end of the prompt is left to the next token: tokens of {model.tokenizer.name} begin with it"
        )
    if kind.colours and not (terminal.out_hues if out is None else terminal.hues or not chosen.watch):
        terminal.note(f"{kind.many} are shown where there are colours; --out x.png writes them")
    if frame_files is not None:
        frames = frame_files.write(frames)
    if film is not None:
        frames = film.write(frames)
    with threads_for(model.method, min(chosen.count * max(len(chosen.classes), 1), how["batch"])):
        drawn = _see(frames, chosen, command, None if gaps is None else len(gaps.fixed), terminal)
    if shared:
        drawn = gather_texts(here, None if ours is None else drawn)
        if here.rank:
            return 0
    if gaps is not None:
        pieces = [gaps.pieces(row, model.tokenizer) for row in drawn.tokens]
        drawn = filled(gaps, drawn, model.tokenizer)
    lines: list[dict[str, Any]] = [
        {"text": text, "tokens": tokens, "seed": chosen.seed, "calls": calls, "prompt": prompt}
        | ({} if label is None else {"class": label})
        for text, tokens, calls, label in zip(drawn.texts, drawn.tokens, drawn.calls, drawn.classes)
    ]
    labels = [label for label in drawn.classes if label is not None]
    panels = Panels(kind, drawn.tokens, start if isinstance(start, PartialRow) else None, labels)
    if film is not None:
        files = film.close()
    elif out is not None:
        files = panels.write(out, lines)
    elif gaps is not None:
        files = show_filled(terminal, pieces, chosen.mark)
    else:
        files = panels.show(terminal, drawn.texts)
    for verdict in panels.verdicts:
        terminal.result(verdict)
    terminal.say(str(drawn))
    law = None
    if not prompt and start is None and chosen.length is None:
        law = _law(way, model)
        terminal.say(f"law      {described(law)}")
    if files:
        terminal.say(f"written  {' '.join(map(path, files))}")
    if frame_files is not None:
        terminal.say(f"written  {counted(len(frame_files.files), 'frame')} in {path(frame_files.folder)}")
    arguments = {f.name: getattr(chosen, f.name) for f in dataclasses.fields(chosen) if f.name != "options"}
    arguments |= dataclasses.asdict(chosen.options) | way
    result = {
        "samples": lines,
        "steps": drawn.steps,
        "expected_calls": drawn.expected_calls,
        "sampling_seconds": drawn.seconds,
    } | panels.record()
    protocol = None if law is None else {"law": law.of, "bounded by": law.number}
    write_json(terminal, command, arguments, result, began, protocol=protocol, seed=chosen.seed)
    return 0


def _way(chosen: Any, model: Any, terminal: Terminal) -> dict[str, Any]:
    """Sampler, steps and options: what was typed, and for the rest the model's own defaults, which a line names."""
    from ..models.defaults import PLAIN, with_defaults

    typed = {name: getattr(chosen, name) for name in PLAIN} | dataclasses.asdict(chosen.options)
    typed = {name: value for name, value in typed.items() if value is not None}
    if not chosen.defaults:
        return typed
    way = with_defaults(model, typed)
    if more := {name: value for name, value in way.items() if name not in typed}:
        typed_so = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in more.items())
        terminal.note(f"sampled by the model's defaults: {typed_so}; --no-defaults leaves them out")
    return way


def _law(way: dict[str, Any], model: Any) -> "Distribution":
    """Whose law the texts were drawn from, and which number bounds it."""
    from ..models.defaults import PLAIN
    from ..samplers import choose_sampler, distribution_of

    options = {name: value for name, value in way.items() if name not in PLAIN}
    sampler = choose_sampler(way.get("sampler"), model.method, way.get("temperature"), way.get("top_p"), options)
    return distribution_of(sampler, model.method, way.get("steps"))


def described(law: "Distribution") -> str:
    """Whose law it is, and the command that bounds it."""
    if law.number is None:
        return f"{law.of}: no number bounds it"
    words = [f"--{name} {value}" for name, value in law.number.items()]
    return f"{law.of}: {' '.join(['zellige evaluate', *words])} bounds it"


def _see(frames: Any, chosen: Any, command: str, length: int | None, terminal: Terminal) -> "Drawn":
    """Run through the frames, shown one by one or as a bar."""
    from ..models.frames import collect
    from .viewer import Viewer

    if chosen.watch:
        viewer = Viewer(terminal, length, brackets=getattr(chosen, "mark", "") == "brackets")
        try:
            return collect(frames, viewer)
        finally:
            viewer.close()
    with Bar(terminal, command, 1, "steps") as bar:

        def see(frame: "Frame") -> None:
            total = -(-frame.count // chosen.batch) * max(frame.steps, 1)
            bar.update(frame.first // chosen.batch * frame.steps + frame.step, total=total)

        return collect(frames, see)


def show_filled(terminal: Terminal, texts: "list[list[tuple[str, bool]]]", mark: str) -> list[Path]:
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
    return []


def _out(name: str | None) -> Path | None:
    """The file of --out, whose ending says the format."""
    if name is None:
        return None
    from ..show.film import FILMS, require_film
    from ..show.kinds import suffixes

    known, suffix = [*suffixes(), *FILMS], Path(name).suffix
    if suffix not in known:
        raise InputError(f"--out {name} has an unknown ending; use {', '.join(known[:-1])} or {known[-1]}")
    if suffix in FILMS:
        require_film(suffix, f"`out` x{suffix}")
    return writable(name, "--out")


@dataclass(frozen=True)
class PartialRow:
    """What is given of a row: `fixed` (L,) tokens, -1 where they are drawn, and the row itself where it is known."""

    fixed: Any
    truth: Any = None


class Panels:
    """What was drawn, and beside it what was given and the truth where there are such."""

    def __init__(
        self, kind: "Modality", rows: list[list[int]], row: PartialRow | None, labels: list[str] | None = None
    ):
        """labels: the class of each row that was drawn, where there are classes."""
        self.kind, self.drawn, self.row = kind, rows, row
        self.rows, self.captions, self.verdicts = rows, labels or [], []
        if row is not None:
            names = ["filled"] if len(rows) == 1 else [f"filled {i + 1}" for i in range(len(rows))]
            names = labels or names
            known = [] if row.truth is None else [row.truth.tolist()]
            self.rows = [row.fixed.tolist(), *rows, *known]
            self.captions = ["given", *names, *["truth"] * len(known)]
            verdicts = [(name, kind.verdict(tokens, row.truth)) for name, tokens in zip(names, rows)]
            self.verdicts = [f"{name}: {verdict}" for name, verdict in verdicts if verdict]
        elif any(judged := [kind.verdict(tokens) for tokens in rows]):
            self.verdicts = [f"valid: {judged.count('valid')} of {len(judged)}"]

    @property
    def fixed(self) -> Any:
        """Which tokens were given, (L,) bool; None where nothing was."""
        return None if self.row is None else self.row.fixed >= 0

    def record(self) -> dict[str, Any]:
        """For --json: {given, truth, verdicts}, of what was given in part."""
        if self.row is None:
            return {}
        truth = None if self.row.truth is None else self.row.truth.tolist()
        return {"given": self.row.fixed.tolist(), "truth": truth, "verdicts": self.verdicts}

    def show(self, terminal: Terminal, texts: list[str]) -> list[Path]:
        """On stdout. Where there are no colours, images are numbers, for whoever reads them in a pipe."""
        if self.kind.running or (self.kind.colours and not terminal.out_hues):
            for text in texts if self.kind.running or not terminal.out_tty else ():
                terminal.data(text)
        else:
            terminal.picture(self.kind.lines(self.rows, self.captions, self.fixed))
        return []

    def write(self, out: Path, lines: list[dict[str, Any]]) -> list[Path]:
        """Into a file, or several; a picture has what was given and the truth in it, other formats what was drawn."""
        from ..files import write_file

        if out.suffix == ".jsonl":
            write_file(out, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
            return [out]
        if out.suffix == ".png" and self.row is None and len(set(self.captions)) > 1:
            write_file(out, self.kind.sheet(self.rows, self.captions))
            return [out]
        if out.suffix == ".png":
            return self.kind.save(out, self.rows, self.fixed, self.captions if self.row is not None else ())
        if self.kind.running:
            write_file(out, "".join(f"{line['text']}\n" for line in lines))
            return [out]
        return self.kind.save(out, self.drawn)


MOST = 200  # pictures in a folder, evenly spaced, of more steps than that


class FrameFiles:
    """Frames of the first batch as step-0000.png, step-0001.png, ..., all of its samples in each; `files` are those written."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.files: list[Path] = []

    def write(self, frames: "Iterable[Frame]") -> "Iterator[Frame]":
        """Hand the frames on, each when it is written."""
        from ..files import make, write_file
        from ..show import kinds

        for frame in frames:
            every = -(-frame.steps // MOST) or 1
            if frame.first == 0 and (frame.step % every == 0 or frame.step == frame.steps):
                file = self.folder / f"step-{frame.step:0{max(4, len(str(frame.steps)))}}.png"
                rows = frame.x.cpu().masked_fill(frame.masked.cpu(), -1)
                make(self.folder)
                write_file(file, kinds.of(frame.tokenizer).png(rows))
                if file not in self.files:  # samples that are drawn again go through the steps once more
                    self.files.append(file)
            yield frame


class FilmFile:
    """Frames of the first batch as a film, all of its samples in each picture; `close` writes it."""

    def __init__(self, file: Path):
        self.file = file
        self.steps: dict[int, tuple[str, Any]] = {}
        self.frame: Frame | None = None

    def write(self, frames: "Iterable[Frame]") -> "Iterator[Frame]":
        """Hand the frames on, and keep what is in them."""
        from ..show.film import FRAMES

        for frame in frames:
            every = -(-frame.steps // FRAMES) or 1
            if frame.first == 0 and (frame.step % every == 0 or frame.step == frame.steps):
                rows = frame.x.masked_fill(frame.masked, -1).cpu().numpy()
                self.steps[frame.step], self.frame = (f"step {frame.step} of {frame.steps}", rows), frame
            yield frame

    def close(self) -> list[Path]:
        """Write the film."""
        from ..files import write_file
        from ..show import film, kinds

        assert self.frame is not None
        kind, fixed = kinds.of(self.frame.tokenizer), self.frame.fixed.cpu().numpy()
        write_file(self.file, film.film(kind, [*self.steps.values()], self.file.suffix, fixed))
        return [self.file]


def frames_folder(name: str, kind: "Modality") -> Path:
    """The folder of --frames. InputError where such rows make no pictures, where nothing can be written, or some are there."""
    from ..files import writable

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


@command_options
class Sample(Drawing):
    prompt: str | None = None
    """what each text begins with"""
    length: int | None = None
    """tokens of a text; the model's length if not given, and more with --block-sampler"""


def sample(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige sample RUN`"""
    chosen = options.parse(Sample, words, "sample", about="Draw texts, images, music, grids.", most=1)
    return draw(chosen, "sample", terminal, began, lambda model, kind: None)


@command_options
class Infill(Drawing):
    text: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TEXT")] = ""
    """the text with its gaps: each _ is one missing token, a character or a subword; of a grid the puzzle: 53..7...."""
    example: int = 0
    """images, music, grids: the row of the test split of which a part is given"""
    keep: str | None = None
    """that part: top, bottom, left, right; first (half), soprano, alto, tenor, bass; a puzzle has its own"""
    data: Where = field(default_factory=Where)
    """where the data set of the run lies"""
    mask_token: str = "_"
    """what marks one missing token"""
    mark: Literal["color", "brackets", "none"] = "color"
    """how what was filled in is told from what was given: by color, on a terminal that has it; [brackets]; none"""


def infill(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige infill RUN [TEXT]`"""
    about = 'Fill the gaps of a text: zellige infill runs/demo "the ____ of the ________"'
    chosen = options.parse(Infill, words, "infill", about=about, most=2)
    flags = options.given(words, Infill) & {"--example", "--keep", "--data.path", "--data.cache"}
    if chosen.text and flags:
        raise InputError(f"{min(flags)} is for a row of the data, and a text is given; leave one of them out")
    return draw(chosen, "infill", terminal, began, lambda model, kind: _start(chosen, flags, model, kind, terminal))


def _start(chosen: Infill, flags: set[str], model: Any, kind: "Modality", terminal: Terminal) -> "Gaps | PartialRow":
    """What stays of the text that was typed, or of a row of the test split."""
    if kind.running and (flags or not chosen.text):
        refused = f"{min(flags)} is for images, music and grids" if flags else "infill needs a text with gaps"
        raise InputError(f'{refused}; e.g. zellige infill {chosen.run} "the ____ of the ________"')
    if kind.running:
        from ..models.infill import gaps

        tokenizer = model.tokenizer
        if tokenizer.unit == "token":
            sign, spaced = chosen.mask_token, tokenizer.decode(tokenizer.encode(" a")).startswith(" ")
            before = f", with the space before it: had{sign} sons" if spaced else ""
            terminal.note(f"each {sign} is one token of {tokenizer.name}, a word or a piece of one{before}")
        return gaps(tokenizer, chosen.text, int(model.method.shape[0]), chosen.mask_token)
    row = _of_a_row(chosen, model, kind, terminal) if not chosen.text else PartialRow(kind.read(chosen.text))
    if (row.fixed >= 0).all():
        raise InputError("nothing to fill: all of it is given; leave some of it free")
    return row


def _of_a_row(chosen: Infill, model: Any, kind: "Modality", terminal: Terminal) -> PartialRow:
    """A part of --example, by --keep or as the data's own puzzle."""
    from ..evaluation.corpus import beside_training, corpus_of

    moved = {name: value for name, value in asdict(chosen.data).items() if value is not None}
    data = replace(model.config.data, **moved) if moved else None
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
