"""Samples on the page as their kind shows them: running text to copy, else a picture."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from ..models.infill import approximate
from ..models.watch import watch
from ..schema import read_lines
from ..show.kinds import Modality, of
from ..show.numbers import count
from . import page

STILLS = (0, 0.25, 0.5, 0.75, 1)  # of the way: what is seen in print, and without scripts


class ValidationSample(TypedDict):
    """A line of samples/step-000500.jsonl."""

    text: str
    tokens: list[int]


def validation_samples(folder: Path, model: Any, most: int = 4) -> str:
    """What was drawn at the first and at the last validation, side by side. InputError where a file of them is damaged."""
    files = sorted((folder / "samples").glob("step-*[0-9].jsonl"), key=lambda p: int(p.stem.rpartition("-")[2]))
    columns: dict[str, list[dict[str, Any]]] = {}
    for path in dict.fromkeys(files[:1] + files[-1:]):
        rows = [row for _, row in read_lines(path, ValidationSample, "copy the run again, or remove the file")]
        columns[f"step {count(int(path.stem.rpartition('-')[2]))}"] = rows[:most]
    if not columns:
        return page.html_note("no samples yet: they are drawn at each validation")
    kind = None if model is None else of(model.tokenizer)
    if kind is None or kind.running:
        return page.html_samples(columns)
    labels = {name: ", ".join(row["class"] for row in rows if row.get("class")) for name, rows in columns.items()}
    named = {name: f"{name}, classes {labels[name]}" if labels[name] else name for name in columns}
    return page.html_pictures(
        {named[name]: kind.png([row["tokens"] for row in rows]) for name, rows in columns.items()}
    )


def stills(kind: Modality, frames: Sequence[Any]) -> str:
    """The first sample at five of its steps, one picture."""
    at = [round((len(frames) - 1) * part) for part in STILLS]
    captions = [f"step {frames[k].step}" for k in at]
    return page.html_picture(kind.png([frames[k].x[0].tolist() for k in at], None, captions), ", ".join(captions))


def infilled(
    model: Any, rows: Any, steps: int, seed: int, most: int, passed: Callable[[int], None] = lambda rows: None
) -> str:
    """Rows of the data of which a part was given, filled in by the model, beside the truth; at most so many are drawn.

    passed: called with the rows that the network was asked about.
    """
    kind = of(model.tokenizer)
    across = kind.name != "roll"  # a roll is as wide as the page
    each = 2 if across and most > 1 else 1
    count = min(len(rows), max(1, most // each)) if across else 1
    chosen = np.linspace(0, len(rows) - 1, count).astype(int).tolist()
    truth = np.stack([rows[i]["tokens"].numpy() for i in chosen])
    fixed = np.stack([kind.given(row) if rows.clues is None else rows.clues[i] for i, row in zip(chosen, truth)])
    frames = []
    for frame in watch(model, fixed=fixed, count=each * len(fixed), steps=steps, seed=seed, defaults=False):
        passed(len(frame.x))
        frames += [frame] if frame.step == frame.steps else []
    drawn = np.concatenate([kind.rows(f.x) for f in frames]).reshape(len(fixed), each, -1)
    shown = np.concatenate([fixed[:, None], drawn, truth[:, None]], 1).reshape(-1, truth.shape[-1])
    is_fixed = np.repeat(fixed >= 0, each + 2, 0)
    captions = ["given", *["filled"] * each, "truth"]
    text = f"{', '.join(captions[:-1])} and {captions[-1]}, {'from left to right' if across else 'from above'}."
    verdicts = [kind.verdict(row) for row in drawn.reshape(-1, truth.shape[-1])]
    if any(verdicts):
        valid = sum(verdict.startswith("valid") for verdict in verdicts)
        text += f" {valid} of {len(verdicts)} are valid; what stands twice in a row, a column or a box is shaded."
    if note := approximate(model):
        text += f" {note[:1].upper()}{note[1:]}."
    return page.html_picture(kind.png(shown, is_fixed, captions), text, "A part given, the rest filled in")
