"""Images made smaller by area, and in fewer levels: all in whole numbers, so that the same file gives the same levels everywhere.

A new pixel is the mean of the old ones under it, each weighted by the area that lies there, rounded half up (28 -> 14 is the
mean of 2 x 2). Then v of 256 becomes floor(v levels / 256): bins of equal width.
"""

import functools
import re
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError

if TYPE_CHECKING:
    from .corpus import Data


def sides(size: int | str, height: int, width: int, of: str = "the images are") -> tuple[int, int]:
    """Height and width that `data.size` asks of images of `height` x `width`: 32, or 48x36; 0: as they are."""
    if size == 0:
        return height, width
    words = re.fullmatch(r"(\d+)x(\d+)", str(size))
    new = (int(words[1]), int(words[2])) if words else (int(size), int(size))
    most = f"{height}x{width}" if words else min(height, width)
    if not (1 <= new[0] <= height and 1 <= new[1] <= width):
        raise InputError(
            f"`data.size` is {size}; {of} {height} x {width}, give {'at most' if words else '1 to'} {most}"
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
    """Images (N, H, W, ...) of whole numbers to (N, new_height, new_width, ...): means by area, rounded half up, exactly."""
    _, height, width, *_ = x.shape
    if (height, width) == (new_height, new_width):
        return x
    rows, columns = overlap(height, new_height), overlap(width, new_width)
    area = height * width  # of a new pixel, in units of 1 / (new_height new_width)
    out = np.empty((len(x), new_height, new_width, *x.shape[3:]), x.dtype)
    for first in range(0, len(x), 1024):  # whole numbers below 2^53: exact in floating point
        part = np.moveaxis(x[first : first + 1024].astype(np.float64), (1, 2), (-2, -1))
        sums = (rows @ part @ columns.T).astype(np.int64)
        out[first : first + 1024] = np.moveaxis((2 * sums + area) // (2 * area), (-2, -1), (1, 2))
    return out


@functools.lru_cache(64)
def overlap(old: int, new: int) -> np.ndarray:
    """(new, old): how much of old pixel j lies in new pixel i, in units of 1 / new of an old pixel. Rows sum to `old`."""
    begin, end = np.arange(new)[:, None] * old, np.arange(1, new + 1)[:, None] * old
    j = np.arange(old) * new
    return np.clip(np.minimum(end, j + new) - np.maximum(begin, j), 0, None).astype(np.float64)
