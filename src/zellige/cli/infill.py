"""`zellige infill`: fill the gaps of a text, or of a row of the data, and keep the rest."""

from collections.abc import Sequence
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..errors import InputError
from ..show.numbers import byte_size
from ..show.progress import Bar
from ..show.terminal import Terminal
from ..trust import refuse_remote
from . import options
from .common import Where, command_options, note_change
from .drawing import Drawing, draw
from .panels import PartialRow

if TYPE_CHECKING:
    from ..models.infill import Gaps
    from ..show.kinds import Modality


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
