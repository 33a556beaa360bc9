"""Images in one memory-mapped file of the cache, in the size and the levels asked for: they are read once, block by block.

A folder `images/KEY` of the cache holds pixels.bin (uint8, a row an image, the splits one after another), labels.npy (-1 where an
image has none) and meta.json. Like that of tokens it is whole, or it is not there.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from ..errors import InputError
from .array_source import Raw
from .folder import folder_key, read_whole, write_meta, written_aside
from .sums import Sums

Block = tuple[np.ndarray, Iterable[int]]  # (n, H, W) or (n, H, W, colours) uint8, and their labels


class Meta(TypedDict):
    """meta.json: the shape of an image, which rows each split has, and the sha256 of pixels.bin."""

    shape: list[int]
    splits: dict[str, list[int]]
    sha256: str


def read_pixels(folder: Path, sums: Sums | None = None) -> dict[str, Any] | None:
    """What stands in a finished folder; None if there is none. InputError: one of its files is not what was written."""

    def sizes(meta: Any) -> dict[str, int]:
        return {"pixels.bin": math.prod(meta["shape"]) * max(stop for _, stop in meta["splits"].values())}

    return read_whole(folder, Meta, "pixels.bin", sizes, sums)


def write_pixels(folder: Path, splits: Mapping[str, Iterable[Block]], of: str) -> dict[str, Any]:
    """Write the blocks of each split, all of one shape, into `folder`; returns its meta data."""
    with written_aside(folder, read_pixels, "images") as aside:
        shape, labels, rows, digest = None, [], {}, hashlib.sha256()
        with (aside / "pixels.bin").open("wb") as out:
            for split, blocks in splits.items():
                first = len(labels)
                for images, classes in blocks:
                    shape = shape or images.shape[1:]
                    if images.shape[1:] != shape:
                        raise InputError(f"{of} has images of {shape} and of {images.shape[1:]}; give one `data.size`")
                    stored = np.ascontiguousarray(images, np.uint8).data
                    out.write(stored)
                    digest.update(stored)
                    labels += map(int, classes)
                rows[split] = [first, len(labels)]
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
    """The images that `made_by` (JSON) names, from the cache; made by `splits` where they are not there, or were damaged.

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
    every = np.memmap(folder / "pixels.bin", np.uint8, "r").reshape(-1, *shape)
    classes = np.load(folder / "labels.npy")
    return Raw(
        {split: every[first:stop] for split, (first, stop) in rows.items()}, levels, cut=True,
        classes={split: classes[first:stop] for split, (first, stop) in rows.items()} if labels else {},
        pixels=folder / "pixels.bin", **more,
    )  # fmt: skip
