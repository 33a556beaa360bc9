"""What was drawn, as it is shown or written, and beside it what was given and the truth where there are such."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..show.terminal import Terminal

if TYPE_CHECKING:
    from ..show.kinds import Modality


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
