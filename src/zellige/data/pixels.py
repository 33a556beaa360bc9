"""Images in one memory-mapped file of the cache, in the size and the levels asked for: they are read once, block by
block.

A folder `images/KEY` of the cache holds pixels.bin (uint8, a row an image, the splits one after another), labels.npy
(-1 where an image has none) and meta.json. Like that of tokens it is whole, or it is not there.

Images are made smaller by area, and in fewer levels, in whole numbers, so that the same file gives the same levels
everywhere. A new pixel is the mean of the old ones under it, each weighted by the area that lies there, rounded half up
(28 -> 14 is the mean of 2 x 2). Then v of 256 becomes floor(v levels / 256): bins of equal width.
"""

import functools
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from ..base.errors import InputError
from .array_source import Raw
from .folder import folder_key, read_whole, write_meta, written_aside
from .sums import Sums

if TYPE_CHECKING:
    from .corpus import Data


Block = tuple[np.ndarray, Iterable[int]]  # (n, H, W) or (n, H, W, colours) uint8, and their labels


class Meta(TypedDict):
    """meta.json: the shape of an image, which rows each split has, and the sha256 of pixels.bin and of each file."""

    shape: list[int]
    splits: dict[str, list[int]]
    sha256: str
    files: dict[str, str]


def read_pixels(folder: Path, sums: Sums | None = None) -> dict[str, Any] | None:
    """Contents of a finished folder; None if there is none. InputError if one of its files was changed."""

    def sizes(meta: dict[str, Any]) -> dict[str, int]:
        return {"pixels.bin": math.prod(meta["shape"]) * max(stop for _, stop in meta["splits"].values())}

    return read_whole(folder, Meta, sizes, sums)


def write_pixels(folder: Path, splits: Mapping[str, Iterable[Block]], of: str) -> dict[str, Any]:
    """Write the blocks of each split, all of one shape, into `folder`; returns its meta data."""
    with written_aside(folder, read_pixels, "images") as aside:
        shape, labels, rows, digest = None, [], {}, hashlib.sha256()
        with (aside / "pixels.bin").open("wb") as out:
            for split, blocks in splits.items():
                start = len(labels)
                for images, classes in blocks:
                    shape = shape or images.shape[1:]
                    if images.shape[1:] != shape:
                        raise InputError(f"{of} has images of {shape} and of {images.shape[1:]}; give one `data.size`")
                    buffer = np.ascontiguousarray(images, np.uint8).data
                    out.write(buffer)
                    digest.update(buffer)
                    labels += map(int, classes)
                rows[split] = [start, len(labels)]
        np.save(aside / "labels.npy", np.array(labels, np.int64))
        meta = {"shape": list(shape or ()), "splits": rows, "sha256": digest.hexdigest()}
        return write_meta(aside, meta, {"pixels.bin": meta["sha256"]})


def cached(
    cache: Path,
    made_by: dict[str, Any],
    splits: Callable[[], Mapping[str, Iterable[Block]]],
    of: str,
    levels: int,
    labels: bool,
    **more: Any,
) -> Raw:
    """The images that `made_by` (JSON) names, from the cache; made by `splits` where they are not there, or were
    damaged.

    of: the source, in an error. labels: whether its classes are asked for. more: `names` and `about`.
    """
    folder, sums = cache / "images" / folder_key(made_by), Sums(cache)
    try:
        meta = read_pixels(folder, sums)
        sums.keep()
    except InputError:
        meta = None
    meta = write_pixels(folder, splits(), of) if meta is None else meta
    shape, rows = tuple(meta["shape"]), meta["splits"]
    pixels = np.memmap(folder / "pixels.bin", np.uint8, "r").reshape(-1, *shape)
    classes = np.load(folder / "labels.npy")
    return Raw(
        {split: pixels[start:stop] for split, (start, stop) in rows.items()},
        levels,
        cut=True,
        classes={split: classes[start:stop] for split, (start, stop) in rows.items()} if labels else {},
        pixels=folder / "pixels.bin",
        **more,
    )


def sides(size: int | str, height: int, width: int, of: str = "the images are") -> tuple[int, int]:
    """Height and width that `data.size` asks of images of `height` x `width`: 32, or 48x36; 0: as they are."""
    if size == 0:
        return height, width
    words = re.fullmatch(r"(\d+)x(\d+)", str(size))
    new = (int(words[1]), int(words[2])) if words else (int(size), int(size))
    limit = f"{height}x{width}" if words else min(height, width)
    if not (1 <= new[0] <= height and 1 <= new[1] <= width):
        raise InputError(
            f"`data.size` is {size}; {of} {height} x {width}, give {'at most' if words else '1 to'} {limit}"
        )
    return new


def whole_size(data: "Data") -> int:
    """`data.size` of what is no image: one whole number."""
    if isinstance(data.size, str):
        raise InputError(
            f"`data.size` is {data.size}; a height and a width are for images, {data.name} takes one number"
        )
    return data.size


def check_size(size: int | str) -> None:
    """InputError where it is neither a whole number nor two: 48x36."""
    if isinstance(size, str) and not re.fullmatch(r"[1-9][0-9]{0,4}x[1-9][0-9]{0,4}", size):
        raise InputError(f"`data.size` is '{size}'; it must be a whole number, or height x width: 48x36")


def levels_of(data: "Data", most: int) -> int:
    """`data.levels` of images that have so many, or all of them."""
    if data.levels and not 2 <= data.levels <= most:
        raise InputError(f"`data.levels` is {data.levels}; {data.name} has {most:,}, give 2 to {most:,}")
    return data.levels or most


def quantised(x: np.ndarray, size: int, levels: int) -> np.ndarray:
    """v of `size` values to floor(v levels / size)."""
    return x if levels == size else (np.arange(size) * levels // size).astype(x.dtype)[x]


def smaller(x: np.ndarray, new_height: int, new_width: int) -> np.ndarray:
    """Images (N, H, W, ...) of whole numbers to (N, new_height, new_width, ...): means by area, rounded half up,
    exactly."""
    _, height, width, *_ = x.shape
    if (height, width) == (new_height, new_width):
        return x
    rows, columns = overlap(height, new_height), overlap(width, new_width)
    area = height * width  # of a new pixel, in units of 1 / (new_height new_width)
    out = np.empty((len(x), new_height, new_width, *x.shape[3:]), x.dtype)
    for start in range(0, len(x), 1024):  # whole numbers below 2^53: exact in floating point
        batch = np.moveaxis(x[start : start + 1024].astype(np.float64), (1, 2), (-2, -1))
        sums = (rows @ batch @ columns.T).astype(np.int64)
        out[start : start + 1024] = np.moveaxis((2 * sums + area) // (2 * area), (-2, -1), (1, 2))
    return out


@functools.lru_cache(64)
def overlap(old: int, new: int) -> np.ndarray:
    """(new, old): how much of old pixel j lies in new pixel i, in units of 1 / new of an old pixel.
    Rows sum to `old`."""
    begin, end = np.arange(new)[:, None] * old, np.arange(1, new + 1)[:, None] * old
    j = np.arange(old) * new
    return np.clip(np.minimum(end, j + new) - np.maximum(begin, j), 0, None).astype(np.float64)
