"""Data of one shape: images, music, puzzles, molecules, arrays. Read (`Source.reader`), cut, made small, flattened."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import InputError
from ..base.plugins import named
from ..base.requests import Progress
from .array_source import Context, Raw, cut_splits, tell
from .catalogue import DATASETS, cache_folder
from .levels import Levels
from .losses import Losses
from .pixels import levels_of, quantised, sides, smaller

if TYPE_CHECKING:
    from .corpus import Corpus, Data
    from .tokenizer_base import Tokenizer


def prepare_arrays(
    data: "Data", length: int | None, tokenizer: "Tokenizer | None", progress: "Progress | None"
) -> "Corpus":
    """Read `data` into rows of its own shape: what `prepare` does for data that is not text."""
    from .cache import dtype_for
    from .corpus import NO_SEPARATOR, Corpus, count_rows, describe_tokenizer
    from .rows import Rows
    from .token_files import Shards, TokenFile
    from .tokenizer import require_same

    entry = DATASETS[data.name]
    raw = named(entry.reader)(data, Context(cache_folder(data.cache), length, tokenizer, progress))
    splits = raw.splits if raw.cut else cut_splits(raw.splits, data, entry)
    classes = raw.classes if raw.cut else cut_splits(raw.classes, data, entry)
    names = checked_classes(data, raw.names or entry.classes, splits, classes) if data.labels else ()
    if raw.kind == "image" and raw.tokenizer is None:
        splits, levels, protocol = _images(splits, raw, data)
    else:
        if data.name == "array":
            refuse(data, "levels", "images")
            refuse(data, "size", "images")
            refuse(data, "flip", "images")
        levels, protocol = raw.tokenizer, raw.about.get("protocol", "")
    levels = levels or Levels(raw.size, raw.shape, raw.kind, raw.unit, raw.ordered, raw.labels)
    places = math.prod(levels.shape)
    if tokenizer is not None:
        require_same(tokenizer, levels)
    if length not in (None, places):
        shape = " x ".join(map(str, levels.shape))
        of = f"{shape} = {places:,}" if len(levels.shape) > 1 else f"{places:,} places"
        raise InputError(f"`net.length` is {length:,}, the rows of {data.name} have {of}; leave it out")
    ready, dtype, start = {}, dtype_for(levels.size), 0
    for name, rows in splits.items():
        if not len(rows):
            raise InputError(f"{tell(data)} has no row for the {name} split; set `data.validation` and `data.test`")
        more: dict[str, Any] = {"labels": classes.get(name)}
        if raw.pixels:  # opened again by whoever reads it
            file = TokenFile(raw.pixels, "uint8", raw.pixels.stat().st_size)
            more |= {"start": start, "stop": start + rows.size}
            ready[name], start = Rows(Shards([file]), places, **more), start + rows.size
            continue
        ready[name] = Rows(
            flat(rows, dtype) if isinstance(rows, np.ndarray) else rows,
            places,
            characters=raw.characters(rows) if raw.characters else None,
            clues=raw.clues.get(name),
            losses=Losses(levels.loses or ()),
            **more,
        )
    for name, copy_of in entry.same.items():
        if name not in ready and copy_of in ready:
            ready[name] = ready[copy_of]
    about = {"name": data.name, "what": entry.what, "licence": entry.licence} | raw.about
    if "sha256" not in about:
        about["sha256"] = _digest(raw.splits.values())
    about |= {
        "splits": {name: count_rows(rows) for name, rows in ready.items()},
        "tokenizer": describe_tokenizer(levels),
        "kind": levels.kind,
        "shape": [*levels.shape],
        "levels": levels.size,
        "protocol": protocol,
        "pack": "rows",
        **NO_SEPARATOR,
        "length": places,
        "dtype": dtype,
    }
    about |= {"classes": [*names]} if names else {}
    return Corpus(levels, ready, about)


def flat(rows: np.ndarray, dtype: str) -> np.ndarray:
    """(N, *shape) -> (N L,) in this type; a file stays as it is."""
    narrow = rows if isinstance(rows, np.memmap) else rows.astype(dtype, copy=False)
    return np.ascontiguousarray(narrow).reshape(-1)


def _digest(arrays: Iterable[np.ndarray]) -> str:
    """The sha256 of their bytes, one after another."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def refuse(data: "Data", option: str, of: str) -> None:
    """InputError if `data` names an option that is for arrays of another kind."""
    if getattr(data, option):
        raise InputError(f"`data.{option}` is for {of}, and `data.kind` is {data.kind or 'grid'}; leave it out")


# ---------------------------------------------------------------------------------------------------- images
def _images(splits: dict[str, np.ndarray], raw: Raw, data: "Data") -> tuple[dict[str, np.ndarray], Levels, str]:
    """Resized and quantised; their tokenizer; and how they were made."""
    height, width, *colours = raw.shape
    protocol = raw.about.get("protocol", "")
    if raw.pixels:
        return splits, Levels(raw.size, raw.shape, "image", "dim", ordered=True), protocol
    levels, changes = raw.levels if raw.levels and not data.levels else levels_of(data, raw.size), [protocol]
    new = sides(data.size, height, width)
    if new != (height, width):
        splits = {name: smaller(x, *new) for name, x in splits.items()}
        changes.append(f"{height} x {width} to {new[0]} x {new[1]} by area means")
        height, width = new
    if levels != raw.size:
        splits = {name: quantised(x, raw.size, levels) for name, x in splits.items()}
        changes.append(f"{raw.size} to {levels} levels in equal bins")
    kind = Levels(levels, (height, width, *colours), "image", "dim", ordered=True)
    return splits, kind, ", ".join(filter(None, changes))


# ---------------------------------------------------------------------------------------------------- labels
def checked_classes(
    data: "Data", names: Sequence[str], splits: Mapping[str, Any], classes: Mapping[str, np.ndarray]
) -> tuple[str, ...]:
    """Names of the classes: `names`, or their numbers; InputError for a label that is missing or unknown."""
    missing = next((split for split in splits if split not in classes), None)
    if missing is not None:
        raise InputError(f"{tell(data)} has no labels of its {missing} split; leave out `data.labels`")
    if not names:
        names = [str(i) for i in range(int(np.max(classes["train"], initial=0)) + 1)]
    for split, rows in splits.items():
        labels = classes[split]
        if labels.ndim != 1 or len(labels) != len(rows) or not np.issubdtype(labels.dtype, np.integer):
            has = f"{labels.dtype} labels of shape {labels.shape} for the {len(rows):,} rows"
            raise InputError(f"{tell(data)} has {has} of its {split} split; give a whole number for each row")
        wrong = labels[(labels < 0) | (labels >= len(names))]
        if len(wrong):
            raise InputError(
                f"{tell(data)} has the label {int(wrong[0]):,} in its {split} split; labels are 0 to {len(names) - 1:,}"
            )
    return tuple(names)
