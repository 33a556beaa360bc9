"""Music, molecules and DNA: rows of symbols, from the files in which they are published."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import InputError
from ..base.schema import parse
from . import own_arrays, readers, unpack
from .array_source import Context, Raw, encoded, lines_format, locate_files, read_lines, sums
from .catalogue import cache_folder
from .levels import SILENT
from .pixels import whole_size
from .properties import COUNTED, Property
from .selfies import Selfies, translated
from .tokenizer import Characters

if TYPE_CHECKING:
    from .corpus import Data

NOTES = 129  # states of a melody of Lakh: MIDI's notes and silence
STEPS, HOP = 128, 16  # sixteenths in a row: eight bars of 4/4; and in a bar


# ---------------------------------------------------------------------------------------------------- music
def chorales(data: "Data", context: Context) -> Raw:
    """Bach's chorales as four pitches a sixteenth, cut into rows of `data.size` sixteenths.

    Level 0 is silence, level 1 the lowest pitch of the file: silence counts as the lowest level, so that they are
    ordered. Training rows begin at every bar of a piece and overlap, the others follow each other; what fills no row is
    left out.
    """
    steps = whole_size(data) or STEPS
    files, about = locate_files(data, context)
    path = next(iter(files.values()))
    try:
        entries = parse(unpack.read_bytes(path).decode(), f"'{path}'", "give Jsb16thSeparated.json")
        pieces = {
            split: [np.array(p, np.int64).reshape(-1, 4) for p in entries[split]]
            for split in ("train", "valid", "test")
        }
    except InputError:
        raise
    except (ValueError, KeyError, TypeError) as problem:
        raise InputError(
            f"'{path}' does not hold four-voice chorales ({problem}); give Jsb16thSeparated.json"
        ) from None
    longest = max(len(p) for group in pieces.values() for p in group)
    if not 1 <= steps <= longest:
        raise InputError(f"`data.size` is {steps}; it is the steps of a row, give 1 to {longest}")
    pitches = np.unique(np.concatenate([p.ravel() for group in pieces.values() for p in group]))
    low, high = int(pitches[pitches != SILENT].min()), int(pitches.max())
    splits = {
        {"valid": "validation"}.get(split, split): np.stack(
            [
                level(p[start : start + steps], low)
                for p in group
                for start in range(0, len(p) - steps + 1, HOP if split == "train" else steps)
            ]
        )
        for split, group in pieces.items()
        if any(len(p) >= steps for p in group)
    }
    protocol = (
        f"rows of {steps} sixteenths, in training one from each bar, else end to end; silence is the lowest level"
    )
    about |= {"protocol": protocol}
    ends = sum(_tail(len(p), steps, HOP if split == "train" else steps) for split in pieces for p in pieces[split])
    if ends:
        total = sum(len(p) for group in pieces.values() for p in group)
        about["left_out"] = [f"{ends:,} of {total:,} sixteenths, the ends of pieces, which fill no row"]
    return Raw(splits, high - low + 2, "roll", "note", True, labels=[SILENT, *range(low, high + 1)], about=about)


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
    return Raw(
        {split: rows[..., None] for split, rows in splits.items()},
        NOTES,
        "roll",
        "note",
        False,
        labels=_pitches(Path(str(data.path)) / "descramble_key.txt"),
        about=sums(files) | {"protocol": protocol},
    )


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


def _tail(length: int, steps: int, hop: int) -> int:
    """Fraction of a piece that is in none of its sequences, which begin at every `hop`."""
    return length if length < steps else (length - steps) % hop


def level(pitches: np.ndarray, low: int) -> np.ndarray:
    """MIDI pitches to levels: `low` is 1, a rest is 0."""
    return np.where(pitches == SILENT, 0, pitches - low + 1).astype(np.uint8)


# ---------------------------------------------------------------------------------------------------- texts of one length
def molecules(data: "Data", context: Context) -> Raw:
    """Molecules, one per row, padded with line ends that count: the distribution is that of whole molecules.

    They are read as SMILES, a token a character, or with `data.tokenizer` selfies as SELFIES, a token a symbol.
    """
    lines, about = read_lines(data, context)
    labels, names = _molecule_classes(data, context, lines) if data.labels else (None, ())
    trained = context.tokenizer.name if context.tokenizer else ""
    cut_by = data.tokenizer or (trained if trained == "selfies" else "characters")  # as the model that reads it
    if cut_by not in ("characters", "selfies"):
        raise InputError(
            f"`data.tokenizer` is '{data.tokenizer}'; molecules are cut into characters or selfies, give one of these"
        )
    order = np.random.default_rng(0).permutation(len(lines))  # the file goes from small to large
    if cut_by == "selfies":
        (order, tokenizer, rows), count = _selfies(data, lines, order, about), None
    else:
        length = max(map(len, lines)) + 1
        tokenizer = Characters("".join({*"".join(lines), "\n"}), "smiles", (length,))
        rows = encoded(tokenizer, "".join(lines[i].ljust(length, "\n") for i in order))
        ends = int(tokenizer.separator or 0)
        count = lambda x: int((x != ends).sum()) + len(x)  # noqa: E731  (a molecule's characters and its end)
    about["protocol"] = (
        f"one molecule a row of {tokenizer.shape[0]}, ended and filled up with line ends, which are modelled; shuffled"
    )
    return Raw(
        {"all": rows}, tokenizer.size, "smiles", "char", False, tokenizer=tokenizer, characters=count, about=about,
        classes={} if labels is None else {"all": labels[order]}, names=names,
    )  # fmt: skip


def _selfies(
    data: "Data", lines: list[str], order: np.ndarray, about: dict[str, Any]
) -> tuple[np.ndarray, Selfies, np.ndarray]:
    """Molecules as symbols: their order without those that SELFIES cannot write, tokenizer, rows."""
    symbols = translated(lines, cache_folder(data.cache))
    kept = order[[bool(symbols[i]) for i in order]]
    if not len(kept):
        raise InputError(f"SELFIES can write no molecule of '{data.path}'; give SMILES, or leave out `data.tokenizer`")
    if len(kept) < len(order):
        about["left_out"] = [f"{len(order) - len(kept):,} of {len(order):,} molecules, which SELFIES cannot write"]
    tokenizer = Selfies({symbol for i in kept for symbol in symbols[i]}, (max(map(len, symbols)) + 1,))
    number = {symbol: i for i, symbol in enumerate(tokenizer.symbols)}
    rows = np.full((len(kept), *tokenizer.shape), tokenizer.separator, np.uint16)
    for row, i in zip(rows, kept):
        row[: len(symbols[i])] = [number[symbol] for symbol in symbols[i]]
    return kept, tokenizer, rows


def _molecule_classes(data: "Data", context: Context, lines: list[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each molecule by `data.labels_by`, and the names of the classes."""
    if not data.labels_by:
        raise InputError(
            f"`data.labels` of molecules needs a property; say which: `data.labels_by` {', '.join(COUNTED)} or a column"
        )
    of = Property.of(data.labels_by)
    if of.name not in COUNTED:
        files, form = locate_files(data, context)[0].values(), lines_format(data)
        values = [value for path in files for value in readers.read_labels(path, form, of.name)]
        if len(values) != len(lines):
            raise InputError(
                f"`data.labels_by` {of.name} has {len(values):,} values for {len(lines):,} molecules; give one for each"
            )
        return of.classes(values)
    counts = [of.counted(line) for line in lines]
    if None in counts:
        wrong = lines[counts.index(None)]
        raise InputError(
            f"'{wrong}' is no SMILES of one molecule, so its {of.name} cannot be counted; take it out of the file"
        )
    return of.classes([*map(str, counts)])
