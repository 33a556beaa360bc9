"""ImageNet at 32 x 32 and 64 x 64, of which there are two, whose images are not the same.

`imagenet64` is that of Chrabaszcz, Loshchilov and Hutter (2017): batches in .npz, read in pieces. train_data_batch_1.npz ...
_10.npz and val_data.npz hold `data` (N, 3 S S) uint8, colour by colour, and `labels`, 1 to 1000. They have to be fetched from
image-net.org by whoever may. The classes are called by these numbers, or as a map_clsloc.txt beside the batches calls them.

`imagenet64-oord` is that of van den Oord et al. (2016), on which densities are reported (TFDS's downsampled_imagenet): the
folders train_64x64, of 1,281,149 images, and valid_64x64, of 49,999, without classes.
"""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from . import catalogue, image_files, unpack
from .array_source import Raw
from .pixels import Block, cached
from .resize import levels_of, quantised, sides, smaller
from .text_source import Progress

if TYPE_CHECKING:
    from .corpus import Data

CLASSES = 1000
TOGETHER = 4096  # images in memory at once


def read_imagenet(data: "Data", progress: Progress | None) -> Raw:
    """The published batches in the folder `data.path`."""
    side, levels = int(data.name.removeprefix("imagenet")), levels_of(data, 256)
    splits = _files(data)
    every = [path for files in splits.values() for path in files]
    report = unpack.read_twice(every, progress)
    height, width = sides(data.size, side, side)
    sums = {split: unpack.digest_files(files, report) for split, files in splits.items()}
    made_by = {"imagenet": sums, "size": [height, width], "levels": levels}

    def blocks(split: str) -> Iterator[Block]:
        for path in splits[split]:
            for images, labels in batches(path, side):
                yield quantised(smaller(images, height, width), 256, levels), labels
            report(path.stat().st_size)

    changes = [f"{side} x {side} to {height} x {width} by area means"] if (height, width) != (side, side) else []
    changes += [f"256 to {levels} levels in equal bins"] if levels != 256 else []
    about = {"sha256": sums, "files": [str(path) for path in every], "protocol": ", ".join(changes)}
    return cached(
        catalogue.cache_folder(data.cache), made_by, lambda: {split: blocks(split) for split in splits},
        f"'{data.path}'", levels, data.labels, names=_names(Path(data.path or "").expanduser()), about=about,
    )  # fmt: skip


def read_downsampled(data: "Data", progress: Progress | None) -> Raw:
    """The two published folders of .png files in the folder `data.path`."""
    side = int(data.name.removeprefix("imagenet").removesuffix("-oord"))
    names = [f"{split}_{side}x{side}" for split in ("train", "valid")]
    if not data.path:
        raise InputError(
            f"`data.name` {data.name} needs the published folders {names[0]} and {names[1]} (van den Oord's, from "
            "image-net.org); give the folder that holds them by `data.path`"
        )
    missing = next((name for name in names if not (Path(data.path).expanduser() / name).is_dir()), None)
    if missing:
        raise InputError(f"no folder '{missing}' in '{data.path}'; give the one that holds {names[0]} and {names[1]}")
    return image_files.read_images(data, progress, (side, side, 3))


def _files(data: "Data") -> dict[str, list[Path]]:
    """The batches of the two splits, in their order."""
    if not data.path:
        raise InputError(
            f"`data.name` {data.name} needs the published batches (train_data_batch_1.npz ... and val_data.npz, "
            "from image-net.org); give their folder by `data.path`"
        )
    number = lambda path: int(re.findall(r"\d+", path.stem)[-1])  # noqa: E731
    folder = Path(data.path).expanduser()
    train = sorted(folder.rglob("train_data_batch_*[0-9].npz"), key=number)
    validation = sorted(folder.rglob("val_data.npz"))
    for name, files in (("train_data_batch_1.npz", train), ("val_data.npz", validation)):
        if not files:
            raise InputError(
                f"no '{name}' in folder '{data.path}'; give the folder that holds the published .npz batches"
            )
    return {"train": train, "validation": validation[:1]}


def _names(folder: Path) -> tuple[str, ...]:
    """What map_clsloc.txt calls each class, where it is there (`n02119789 1 kit_fox`); else the published numbers."""
    lines = next((path.read_text("utf-8").split("\n") for path in sorted(folder.rglob("map_clsloc.txt"))), [])
    by_number = {int(words[1]): words[2] for words in map(str.split, lines) if len(words) > 2 and words[1].isdigit()}
    return tuple(by_number.get(i, str(i)) for i in range(1, CLASSES + 1))


def batches(path: Path, side: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The images (n, side, side, 3) and the labels (n,) from 0 of a batch file, some thousands at a time."""
    try:
        with zipfile.ZipFile(path) as archive:
            (count, width), images = _array(archive, "data", path)
            (labelled,), labels = _array(archive, "labels", path)
            if width != 3 * side * side or labelled != count:
                raise InputError(
                    f"'{path}' holds {count:,} images of {width:,} numbers and {labelled:,} labels; "
                    f"imagenet{side} has {3 * side * side:,} numbers and a label for each"
                )
            for x, y in zip(images, labels):
                if x.dtype != np.uint8:
                    raise InputError(f"'{path}' holds {x.dtype} and not bytes; give the published batches")
                wrong = y[(y < 1) | (y > CLASSES)]
                if len(wrong):
                    raise InputError(f"'{path}' holds the label {int(wrong[0]):,}; labels are 1 to {CLASSES:,}")
                yield x.reshape(-1, 3, side, side).transpose(0, 2, 3, 1), y.astype(np.int64) - 1
    except InputError:
        raise
    except (zipfile.BadZipFile, ValueError, EOFError, KeyError, OSError) as problem:
        raise InputError(f"'{path}' is damaged ({problem}); copy it again") from None


def _array(archive: zipfile.ZipFile, name: str, path: Path) -> tuple[tuple[int, ...], Iterator[np.ndarray]]:
    """The shape of an array of a .npz, and its rows in pieces of TOGETHER; nothing is unpickled."""
    if f"{name}.npy" not in archive.namelist():
        names = ", ".join(n.removesuffix(".npy") for n in archive.namelist())
        raise InputError(f"'{path}' has no array '{name}' ({names}); give the published batches")
    file = archive.open(f"{name}.npy")
    version = np.lib.format.read_magic(file)
    header: Any = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(file)
    if fortran or dtype.hasobject or len(shape) != {"data": 2, "labels": 1}[name]:
        raise InputError(f"'{path}' holds '{name}' as {shape} {dtype}; give the published batches")

    def pieces() -> Iterator[np.ndarray]:
        width = int(np.prod(shape[1:], dtype=np.int64))
        with file:
            for first in range(0, shape[0], TOGETHER):
                count = min(TOGETHER, shape[0] - first) * width
                raw = file.read(count * dtype.itemsize)
                if len(raw) < count * dtype.itemsize:
                    raise EOFError("it ends too early")
                yield np.frombuffer(raw, dtype).reshape(-1, *shape[1:])

    return shape, pieces()
