"""`zellige sample` and `zellige infill`: what is drawn, how, and how it is shown."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..errors import InputError
from ..show.numbers import byte_size, path
from ..show.progress import Bar
from ..show.style import Mark
from ..show.terminal import Terminal
from . import options
from .common import Device, Run, load, note_change, writable, write_json

if TYPE_CHECKING:
    from ..models.frames import Drawn, Frame
    from ..models.infill import Gaps
    from ..show.kinds import Modality


@dataclass(frozen=True)
class Options:
    """Those of one sampler or another; a sampler's own default stands where none is given."""

    block_sampler: str | None = None
    """write block after block, text of any --length, with this sampler inside; its options are given as always"""
    stride: int | None = None
    """blockwise: tokens of a block, where the network has none of its own"""
    window: int | None = None
    """blockwise, left_to_right: how many tokens the network sees at most; its own length if not given"""
    end: int | None = None
    """blockwise, left_to_right: the token that ends a text, the tokenizer's if it has one; -1: none"""
    entropy: float | None = None
    """blockwise, left_to_right: end where the last 256 tokens repeat themselves, in nats per token"""
    redraw: int | None = None
    """blockwise, left_to_right: draw a text that --entropy would end again instead, at most so often (9 in BD3-LM's code)"""
    top_k: int | None = None
    """left_to_right: keep so many of the likeliest tokens"""
    grid: str | None = None
    """ancestral, euler, tau_leaping: uniform, cosine or log-snr"""
    argmax: str | None = None
    """ancestral, tau_leaping: the likeliest state instead of a draw: last (in the step to clean tokens) or every (ancestral)"""
    per_step: int | None = None
    """any_order, fixed_order: tokens a step"""
    order: str | None = None
    """fixed_order: forward, backward, or positions such as 2,0,1"""
    confidence: str | None = None
    """confidence: probability, margin or entropy"""
    threshold: float | None = None
    """confidence: reveal all that are so sure"""
    remasking: str | None = None
    """remasking: cap, rescale, conf or loop"""
    eta: float | None = None
    """remasking: how much"""
    t_on: float | None = None
    """remasking, loop: where it begins"""
    t_off: float | None = None
    """remasking, loop: where it ends"""
    alpha_on: float | None = None
    """remasking, loop: the share of tokens within it"""
    jumps: str | None = None
    """tau_leaping: sum (ordered tokens), one or auto"""
    corrector: int | None = None
    """tau_leaping: corrector steps after each step"""
    corrector_step: float | None = None
    """tau_leaping: their size, in steps of the grid"""
    corrector_from: float | None = None
    """tau_leaping: the time from which on they are made"""

    def __post_init__(self):
        """The samplers check all other ranges themselves."""
        if self.per_step is not None and self.per_step < 1:
            raise InputError(f"--per-step is {self.per_step}; it must be 1 or more")


@dataclass(frozen=True)
class Drawing:
    run: Run = ""
    """a run, a saved folder or a hub id"""
    count: int = 1
    """how many texts"""
    steps: int | None = None
    """steps of the sampler: 64, in discrete time the nearest divisor of T"""
    sampler: str | None = None
    """zellige list samplers; the method's own if not given, ancestral for most"""
    options: Annotated[Options, tyro.conf.arg(name="")] = field(default_factory=Options)
    seed: int = 0
    """a text depends on it and on its own number alone"""
    temperature: float = 1.0
    """of the clean posterior; 0 takes the likeliest"""
    top_p: float = 1.0
    """keep the likeliest tokens that hold this share"""
    batch: int = 16
    """texts at once"""
    watch: bool = False
    """show the tokens appear"""
    out: str | None = None
    """a file: .jsonl (text, tokens, seed, calls, prompt), .txt, .png, or .mid for music"""
    method: str | None = None
    """file.py:Class of a run with an own method"""
    device: Device = "auto"


@dataclass(frozen=True)
class Sample(Drawing):
    prompt: str | None = None
    """what each text begins with"""
    length: int | None = None
    """tokens of a text; the model's length if not given, and more with --block-sampler"""


@dataclass(frozen=True)
class Infill(Drawing):
    text: Annotated[str, tyro.conf.Positional] = ""
    """the text with its gaps: each _ is one missing character; of a grid the puzzle: 53..7...."""
    example: int = 0
    """images, music, grids: the row of the test split of which a part is given"""
    keep: str | None = None
    """that part: top, bottom, left, right; first (half), soprano, alto, tenor, bass; a puzzle has its own"""
    mask_token: str | None = None
    """what marks one missing token, where tokens are not characters"""
    mark: Literal["color", "brackets", "none"] = "color"
    """how what was filled in is told from what was given: by color, on a terminal that has it; [brackets]; none"""


@dataclass(frozen=True)
class Given:
    """What is kept of a row: `fixed` (L,) tokens, -1 where they are drawn, and the row itself where it is known."""

    fixed: Any
    truth: Any = None


def sample(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige sample RUN`"""
    chosen = options.parse(Sample, words, "sample", about="Draw texts, images, music, grids.", most=1)
    return _draw(chosen, "sample", terminal, began, lambda model, kind: None)


def infill(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige infill RUN [TEXT]`"""
    about = 'Fill the gaps of a text and keep the rest: zellige infill runs/demo "the ____ of the ________"'
    chosen = options.parse(Infill, words, "infill", about=about, most=2)
    flags = options.given(words) & {"--example", "--keep"}
    if chosen.text and flags:
        raise InputError(f"{min(flags)} is for a row of the data, and a text is given; leave one of them out")
    return _draw(chosen, "infill", terminal, began, lambda model, kind: _given(chosen, flags, model, kind, terminal))


def _given(chosen: Infill, flags: set[str], model: Any, kind: "Modality", terminal: Terminal) -> "Gaps | Given":
    """What stays of the text that was typed, or of a row of the test split."""
    if kind.running and (flags or not chosen.text):
        refused = f"{min(flags)} is for images, music and grids" if flags else "infill needs a text with gaps"
        raise InputError(f'{refused}; e.g. zellige infill {chosen.run} "the ____ of the ________"')
    if kind.running:
        from ..models.infill import gaps

        return gaps(model.tokenizer, chosen.text, int(model.method.shape[0]), chosen.mask_token)
    given = _of_a_row(chosen, model, kind, terminal) if not chosen.text else Given(kind.read(chosen.text))
    if (given.fixed >= 0).all():
        raise InputError("nothing to fill: all of it is given; leave some of it free")
    return given


def _of_a_row(chosen: Infill, model: Any, kind: "Modality", terminal: Terminal) -> Given:
    """A part of --example, by --keep or as the data's own puzzle."""
    from ..evaluation.corpus import beside_training, corpus_of

    with Bar(terminal, "read", 1, as_text=byte_size) as bar:
        corpus = corpus_of(model, progress=lambda done, total: bar.update(done, total=total))
    note_change(terminal, {"sha256": corpus.about.get("sha256")} | beside_training(model, corpus))
    rows = corpus.test
    if chosen.example >= len(rows):
        raise InputError(
            f"--example is {chosen.example:,}; the test split has {len(rows):,}, give 0 to {len(rows) - 1:,}"
        )
    row = rows[chosen.example]["tokens"].numpy()
    if rows.clues is not None and chosen.keep is None:  # a puzzle of its own
        return Given(rows.clues[chosen.example], row)
    return Given(kind.given(row, chosen.keep), row)


def _draw(
    chosen: Any, command: str, terminal: Terminal, began: float, give: "Callable[[Any, Modality], Gaps | Given | None]"
) -> int:
    out = _out(chosen.out)
    model = load(terminal, chosen.run, command, chosen.method, chosen.device)
    from ..models.infill import Gaps, approximate, filled
    from ..models.watch import watch
    from ..show import kinds

    kind = kinds.of(model.tokenizer)
    if out is not None:
        kind.refuse(out.suffix)
    how = {
        "count": chosen.count, "steps": chosen.steps, "sampler": chosen.sampler, "seed": chosen.seed,
        "temperature": chosen.temperature, "top_p": chosen.top_p, "batch": 1 if chosen.watch else chosen.batch,
    }  # fmt: skip
    how |= {name: value for name, value in dataclasses.asdict(chosen.options).items() if value is not None}
    given = give(model, kind)
    prompt = chosen.text or None if given is not None else chosen.prompt
    more = {"length": chosen.length, "prompt": prompt} if given is None else {"fixed": given.fixed}
    gaps = given if isinstance(given, Gaps) else None
    if gaps is not None:
        more["alone"] = True
    frames = watch(model, **more, **how)
    if (said := approximate(model)) and (prompt or given is not None):
        terminal.note(said)
    if kind.colours and not (terminal.out_hues if out is None else terminal.hues or not chosen.watch):
        terminal.note(f"{kind.many} are shown where there are colours; --out x.png writes them")
    drawn = _see(frames, chosen, command, None if gaps is None else len(gaps.fixed), terminal)
    if gaps is not None:
        pieces = [gaps.pieces(row, model.tokenizer) for row in drawn.tokens]
        drawn = filled(gaps, drawn, model.tokenizer)
    lines: list[dict[str, Any]] = [
        {"text": text, "tokens": tokens, "seed": chosen.seed, "calls": calls, "prompt": prompt}
        for text, tokens, calls in zip(drawn.texts, drawn.tokens, drawn.calls)
    ]
    panels = Panels(kind, drawn.tokens, given if isinstance(given, Given) else None)
    if out is not None:
        files = panels.write(out, lines)
    elif gaps is not None:
        files = _show_filled(terminal, pieces, chosen.mark)
    else:
        files = panels.show(terminal, drawn.texts)
    for verdict in panels.verdicts:
        terminal.result(verdict)
    terminal.say(str(drawn))
    if files:
        terminal.say(f"written  {' '.join(map(path, files))}")
    arguments = {f.name: getattr(chosen, f.name) for f in dataclasses.fields(chosen) if f.name != "options"}
    arguments |= dataclasses.asdict(chosen.options)
    result = {
        "samples": lines,
        "steps": drawn.steps,
        "expected_calls": drawn.expected_calls,
        "sampling_seconds": drawn.seconds,
    } | panels.record()
    write_json(terminal, command, arguments, result, began, seed=chosen.seed)
    return 0


def _show_filled(terminal: Terminal, texts: "list[list[tuple[str, bool]]]", mark: str) -> list[Path]:
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
    from ..show.kinds import suffixes

    known = suffixes()
    if Path(name).suffix not in known:
        raise InputError(f"--out {name} has an unknown ending; use {', '.join(known[:-1])} or {known[-1]}")
    return writable(name, "--out")


class Panels:
    """What was drawn, and beside it what was given and the truth where there are such."""

    def __init__(self, kind: "Modality", rows: list[list[int]], given: Given | None):
        self.kind, self.drawn, self.given = kind, rows, given
        self.rows, self.captions, self.verdicts = rows, [], []
        if given is not None:
            names = ["filled"] if len(rows) == 1 else [f"filled {i + 1}" for i in range(len(rows))]
            known = [] if given.truth is None else [given.truth.tolist()]
            self.rows = [given.fixed.tolist(), *rows, *known]
            self.captions = ["given", *names, *["truth"] * len(known)]
            said = [(name, kind.verdict(row, given.truth)) for name, row in zip(names, rows)]
            self.verdicts = [f"{name}: {verdict}" for name, verdict in said if verdict]

    @property
    def kept(self) -> Any:
        return None if self.given is None else self.given.fixed >= 0

    def record(self) -> dict[str, Any]:
        """For --json: {given, truth, verdicts}, of what was given in part."""
        if self.given is None:
            return {}
        truth = None if self.given.truth is None else self.given.truth.tolist()
        return {"given": self.given.fixed.tolist(), "truth": truth, "verdicts": self.verdicts}

    def show(self, terminal: Terminal, texts: list[str]) -> list[Path]:
        """On stdout. Where there are no colours, images are numbers, for whoever reads them in a pipe."""
        if self.kind.running or (self.kind.colours and not terminal.out_hues):
            for text in texts if self.kind.running or not terminal.out_tty else ():
                terminal.data(text)
        else:
            terminal.picture(self.kind.lines(self.rows, self.captions, self.kept))
        return []

    def write(self, out: Path, lines: list[dict[str, Any]]) -> list[Path]:
        """Into a file, or several; a picture has what was given and the truth in it, other formats what was drawn."""
        from ..files import write_file

        if out.suffix == ".jsonl":
            write_file(out, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
            return [out]
        if out.suffix == ".png":
            return self.kind.save(out, self.rows, self.kept, self.captions)
        if self.kind.running:
            write_file(out, "".join(f"{line['text']}\n" for line in lines))
            return [out]
        return self.kind.save(out, self.drawn)


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
    batches = -(-chosen.count // chosen.batch)
    with Bar(terminal, command, batches, "steps") as bar:

        def see(frame: "Frame") -> None:
            total = batches * max(frame.steps, 1)
            bar.update(frame.first // chosen.batch * frame.steps + frame.step, total=total)

        return collect(frames, see)
