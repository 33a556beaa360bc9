"""Data of one shape: images, music, puzzles, molecules, arrays. Read (images.py, symbols.py), cut, made small, flattened.

Images are made smaller by area: a new pixel is the mean of the old ones under it, each weighted by the area that lies there,
rounded half up; all in whole numbers, so that the same file gives the same levels everywhere (28 -> 14 is the mean of 2 x 2).
Then v of 256 becomes floor(v levels / 256): bins of equal width.
"""

import hashlib
import math
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError
from . import catalogue, images, symbols
from .array_source import Raw, cut_splits, tell
from .catalogue import DATASETS
from .levels import Levels

if TYPE_CHECKING:
    from .corpus import Corpus, Data
    from .text_source import Progress
    from .tokenizer_base import Tokenizer

READERS = {
    "digits": images.digits,
    "mnist": images.mnist,
    "binarized-mnist": images.binarized,
    "fashion-mnist": images.mnist,
    "cifar10": images.cifar,
    "jsb-chorales": symbols.chorales,
    "sudoku": symbols.sudoku,
    "qm9": symbols.molecules,
    "dna": symbols.dna,
    "array": images.read_arrays,
}


def prepare_arrays(
    data: "Data", length: int | None, tokenizer: "Tokenizer | None", progress: "Progress | None"
) -> "Corpus":
    """Read `data` into rows of its own shape: what `prepare` does for data that is not text."""
    from .cache import dtype_for
    from .corpus import Corpus, count_rows, describe_tokenizer
    from .rows import Rows
    from .tokenizer import require_same

    entry = DATASETS[data.name]
    cache = catalogue.cache_folder(data.cache)
    raw = READERS[data.name](data, lambda where: catalogue.fetch(*where, cache, progress))
    splits = raw.splits if raw.cut else cut_splits(raw.splits, data, entry)
    if raw.kind == "image":
        splits, own, protocol = _images(splits, raw, data)
    else:
        if data.name == "array":
            refuse(data, "levels", "images")
            refuse(data, "size", "images")
        own, protocol = raw.tokenizer, raw.about.get("protocol", "")
    own = own or Levels(raw.size, raw.shape, raw.kind, raw.unit, raw.ordered, raw.labels)
    places = math.prod(own.shape)
    if tokenizer is not None:
        require_same(tokenizer, own)
    if length not in (None, places):
        shape = " x ".join(map(str, own.shape))
        of = f"{shape} = {places:,}" if len(own.shape) > 1 else f"{places:,} places"
        raise InputError(f"--net.length is {length:,}, the rows of {data.name} have {of}; leave it out")
    ready, dtype = {}, dtype_for(own.size)
    for name, rows in splits.items():
        if not len(rows):
            raise InputError(f"{tell(data)} has no row for the {name} split; set --data.validation and --data.test")
        narrow = rows if isinstance(rows, np.memmap) else rows.astype(dtype, copy=False)
        ready[name] = Rows(
            np.ascontiguousarray(narrow).reshape(-1), places,
            characters=raw.characters(rows) if raw.characters else None, clues=raw.clues.get(name),
        )  # fmt: skip
    for name, other in entry.same.items():
        if name not in ready and other in ready:
            ready[name] = ready[other]
    about = {"name": data.name, "what": entry.what, "licence": entry.licence} | raw.about
    about.setdefault("sha256", hashlib.sha256(b"".join(r.tobytes() for r in raw.splits.values())).hexdigest())
    about |= {
        "splits": {name: count_rows(rows) for name, rows in ready.items()},
        "tokenizer": describe_tokenizer(own),
        "kind": own.kind,
        "shape": [*own.shape],
        "levels": own.size,
        "protocol": protocol,
        "pack": "rows",
        "separator": "none",
        "length": places,
        "dtype": dtype,
    }
    return Corpus(own, ready, about)


def refuse(data: "Data", option: str, of: str) -> None:
    """InputError if `data` names an option that is for arrays of another kind."""
    if getattr(data, option):
        raise InputError(f"--data.{option} is for {of}, and --data.kind is {data.kind or 'grid'}; leave it out")


# ---------------------------------------------------------------------------------------------------- images
def _images(splits: dict[str, np.ndarray], raw: Raw, data: "Data") -> tuple[dict[str, np.ndarray], Levels, str]:
    """Resized and quantised; their tokenizer; and how they were made."""
    height, width, *colours = raw.shape
    levels, changes = data.levels or raw.levels or raw.size, [raw.about.get("protocol", "")]
    if levels < 2 or levels > raw.size:
        raise InputError(f"--data.levels is {data.levels}; {data.name} has {raw.size:,}, give 2 to {raw.size:,}")
    if data.size:
        least = min(height, width)
        if data.size < 1 or data.size > least:
            raise InputError(f"--data.size is {data.size}; the images are {height} x {width}, give 1 to {least}")
        if (height, width) != (data.size, data.size):
            splits = {name: smaller(x, data.size) for name, x in splits.items()}
            changes.append(f"{height} x {width} to {data.size} x {data.size} by area means")
            height = width = data.size
    if levels != raw.size:
        splits = {name: quantised(x, raw.size, levels) for name, x in splits.items()}
        changes.append(f"{raw.size} to {levels} levels in equal bins")
    own = Levels(levels, (height, width, *colours), "image", "dim", ordered=True)
    return splits, own, ", ".join(filter(None, changes))


def quantised(x: np.ndarray, size: int, levels: int) -> np.ndarray:
    """v of `size` values to floor(v levels / size)."""
    return (np.arange(size) * levels // size).astype(x.dtype)[x]


def smaller(x: np.ndarray, size: int) -> np.ndarray:
    """Images (N, H, W, ...) of whole numbers to (N, size, size, ...): means by area, rounded half up, exactly."""
    _, height, width, *_ = x.shape
    rows, columns = overlap(height, size), overlap(width, size)
    area = height * width  # of a new pixel, in units of 1 / size^2
    out = np.empty((len(x), size, size, *x.shape[3:]), x.dtype)
    for first in range(0, len(x), 1024):  # whole numbers below 2^53: exact in floating point
        part = np.moveaxis(x[first : first + 1024].astype(np.float64), (1, 2), (-2, -1))
        sums = (rows @ part @ columns.T).astype(np.int64)
        out[first : first + 1024] = np.moveaxis((2 * sums + area) // (2 * area), (-2, -1), (1, 2))
    return out


def overlap(old: int, new: int) -> np.ndarray:
    """(new, old): how much of old pixel j lies in new pixel i, in units of 1 / new of an old pixel. Rows sum to `old`."""
    begin, end = np.arange(new)[:, None] * old, np.arange(1, new + 1)[:, None] * old
    j = np.arange(old) * new
    return np.clip(np.minimum(end, j + new) - np.maximum(begin, j), 0, None).astype(np.float64)
