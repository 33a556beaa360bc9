"""What `zellige sample` and `zellige infill` share: their options, how samples are drawn, shown and written."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ..errors import InputError
from ..launched import this_process
from ..show.numbers import counted, path
from ..show.progress import Bar
from ..show.style import Mark
from ..show.terminal import Terminal
from ..waiting import threads_for
from .common import OfRun, load, writable, write_json
from .frames import FilmFile, FrameFiles, frames_folder
from .panels import Panels, PartialRow
from .sampler_options import SamplerOptions

if TYPE_CHECKING:
    from ..models.frames import Drawn, Frame
    from ..models.infill import Gaps
    from ..samplers import Law
    from ..show.kinds import Modality


@dataclass(frozen=True)
class Drawing(OfRun):
    count: int = 1
    """how many texts; with --class of each"""
    classes: Annotated[tuple[str, ...], tyro.conf.arg(name="class")] = ()
    """of a model that was trained with --data.labels: the class of the texts, by name or number; or several"""
    steps: int | None = None
    """number of sampling steps: fewer are faster, more follow the model more closely; default: the model's own, else T of a model
    of T steps, else 64"""
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


def _law(way: dict[str, Any], model: Any) -> "Law":
    """Whose law the texts were drawn from, and which number bounds it."""
    from ..models.defaults import PLAIN
    from ..samplers import choose_sampler, law_of

    options = {name: value for name, value in way.items() if name not in PLAIN}
    sampler = choose_sampler(way.get("sampler"), model.method, way.get("temperature"), way.get("top_p"), options)
    return law_of(sampler, model.method, way.get("steps"))


def described(law: "Law") -> str:
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
