"""Music as rows of (steps, voices) pitches, from the files in which it is published; a step is a sixteenth."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zellige.base.errors import InputError
from zellige.base.schema import parse
from zellige.data import own_arrays, unpack
from zellige.data.array_source import Context, Raw, locate_files, sums
from zellige.data.pixels import whole_size

from .notes import SILENT, Notes

if TYPE_CHECKING:
    from zellige.data.corpus import Data

NOTES = 129  # states of a melody of Lakh: MIDI's notes and silence
STEPS, HOP = 128, 16  # sixteenths in a row: eight bars of 4/4; and in a bar


def chorales(data: "Data", context: Context) -> Raw:
    """Bach's chorales as four pitches a sixteenth, cut into rows of `data.size` sixteenths.

    Level 0 is silence, level 1 the lowest pitch of the file: silence counts as the lowest level, so that they are
    ordered. Training rows that are longer than a bar begin at every bar of a piece and overlap, the others follow each
    other; what fills no row is left out.
    """
    steps = whole_size(data) or STEPS
    files, about = locate_files(data, context)
    path = next(iter(files.values()))
    try:
        entries = parse(unpack.read_bytes(path).decode(), f"'{path}'", "give Jsb16thSeparated.json")
        pieces = {split: [_piece(p) for p in entries[split]] for split in ("train", "valid", "test")}
    except InputError:
        raise
    except (ValueError, KeyError, TypeError) as problem:
        raise InputError(
            f"'{path}' does not hold four-voice chorales ({problem}); give Jsb16thSeparated.json"
        ) from None
    pitches = np.unique(np.concatenate([np.zeros(0, int), *(p.ravel() for group in pieces.values() for p in group)]))
    if pitches.max(initial=SILENT) == SILENT:
        raise InputError(f"'{path}' holds no note; give Jsb16thSeparated.json")
    longest = max(len(p) for group in pieces.values() for p in group)
    if not 1 <= steps <= longest:
        raise InputError(f"`data.size` is {steps}; it is the steps of a row, give 1 to {longest}")
    low, high = int(pitches[pitches != SILENT].min()), int(pitches.max())
    hops = {split: min(HOP, steps) if split == "train" else steps for split in pieces}
    splits = {
        {"valid": "validation"}.get(split, split): np.stack(
            [level(p[start : start + steps], low) for p in group for start in range(0, len(p) - steps + 1, hops[split])]
        )
        for split, group in pieces.items()
        if any(len(p) >= steps for p in group)
    }
    bars = ", in training one from each bar, else end to end" if steps > HOP else ", end to end"
    about["protocol"] = f"rows of {steps} sixteenths{bars}; silence is the lowest level"
    ends = sum(_tail(len(p), steps, hops[split]) for split in pieces for p in pieces[split])
    if ends:
        total = sum(len(p) for group in pieces.values() for p in group)
        about["left_out"] = [f"{ends:,} of {total:,} sixteenths, the ends of pieces, which fill no row"]
    tokenizer = Notes(high - low + 2, (steps, 4), ordered=True, labels=[SILENT, *range(low, high + 1)])
    return Raw(splits, tokenizer.size, tokenizer=tokenizer, about=about)


def pianoroll(data: "Data", context: Context) -> Raw:
    """Melodies of Lakh's pianorolls as tauLDR's authors publish them: a folder with train.npy and test.npy.

    Each is (N, 256) whole numbers below 129, a pitch a sixteenth; the states are shuffled, so they have no order. With
    descramble_key.txt beside them, the pitch of each of the 129 states, notes are shown and written as such; 128 is
    silence.
    """
    files = own_arrays.local_arrays(data)
    if not {"train", "test"} <= files.keys():
        raise InputError(
            "the data set lakh-pianoroll needs a folder with train.npy and test.npy; give it by `data.path`"
        )
    splits = {split: own_arrays.load_arrays(path)[0]["all"] for split, path in files.items()}
    for split, rows in splits.items():
        if rows.ndim != 2 or not np.issubdtype(rows.dtype, np.integer) or not rows.size:
            raise InputError(
                f"'{files[split]}' has shape {rows.shape} and type {rows.dtype}; give whole numbers, (N, sixteenths)"
            )
        if (low := int(rows.min())) < 0 or (high := int(rows.max())) >= NOTES:
            raise InputError(f"'{files[split]}' holds {low if low < 0 else high:,}; states are 0 to {NOTES - 1}")
    if len(lengths := {rows.shape[1] for rows in splits.values()}) > 1:
        raise InputError(f"'{data.path}' has melodies of {min(lengths)} and {max(lengths)} sixteenths; give one length")
    protocol = "a melody a row, a pitch a sixteenth, 128 notes and silence as shuffled states"
    tokenizer = Notes(NOTES, (lengths.pop(), 1), labels=_pitches(Path(str(data.path)) / "descramble_key.txt"))
    rows_of = {split: rows[..., None] for split, rows in splits.items()}
    return Raw(rows_of, NOTES, tokenizer=tokenizer, about=sums(files) | {"protocol": protocol})


def _pitches(key: Path) -> list[int]:
    """The pitch of each state of a pianoroll, SILENT for 128; [] without the file of the key."""
    if not key.is_file():
        return []
    try:
        pitches = [int(float(word)) for word in key.read_text(encoding="utf-8").split()]
    except (ValueError, UnicodeDecodeError):
        pitches = []
    if sorted(pitches) != [*range(NOTES)]:
        raise InputError(f"'{key}' is no order of the pitches 0 to {NOTES - 1}; remove it, or give the published one")
    return [SILENT if pitch == NOTES - 1 else pitch for pitch in pitches]


def _piece(pitches: list) -> np.ndarray:
    """A piece (steps, 4). ValueError for what is no pitch."""
    piece = np.array(pitches).reshape(-1, 4)
    if piece.size and (piece.dtype.kind != "i" or piece.min() < SILENT or piece.max() > 127):
        raise ValueError(f"a pitch is a whole number up to 127, {SILENT} is silence")
    return piece.astype(int)


def _tail(length: int, steps: int, hop: int) -> int:
    """Fraction of a piece that is in none of its sequences, which begin at every `hop`."""
    return length if length < steps else (length - steps) % hop


def level(pitches: np.ndarray, low: int) -> np.ndarray:
    """MIDI pitches to levels: `low` is 1, a rest is 0."""
    return np.where(pitches == SILENT, 0, pitches - low + 1).astype(np.uint8)
