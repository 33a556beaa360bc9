"""A folder of .png and .jpg files, and a data set of images of the Hugging Face hub: decoded once, file by file, into
the cache.

Subfolders train, validation and test, or train_64x64 and valid_64x64, are the splits; where there are none the files
are cut in an order that is a hash of their paths. The folder in which a file lies there, the first one below the split,
is its class.

Pixels are taken as they are stored, and exactly: 8 bits grey or RGB, no colour profile, no turning by EXIF. What would
have to be decided (transparency that shows, 16 bits, CMYK, grey among colours) is refused with what to do.

ImageNet at 32 x 32 and 64 x 64 is read here too. There are two, whose images are not the same:

`imagenet64` is that of Chrabaszcz, Loshchilov and Hutter (2017): batches in .npz, read in pieces.
train_data_batch_1.npz ... _10.npz and val_data.npz hold `data` (N, 3 S S) uint8, colour by colour, and `labels`, 1 to
1000. They have to be fetched from image-net.org by whoever may. The classes are called by these numbers, or as a
map_clsloc.txt beside the batches calls them.

`imagenet64-oord` is that of van den Oord et al. (2016), on which densities are reported (TFDS's downsampled_imagenet):
the folders train_64x64, of 1,281,149 images, and valid_64x64, of 49,999, without classes.
"""

import hashlib
import os
import re
import struct
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.arguments import is_number
from ..base.errors import InputError
from . import file_names, unpack
from .array_source import Context, Raw, cut_splits
from .catalogue import DATASETS, SPLITS
from .images import image_column, label_column, on_hub
from .pixels import Block, cached, levels_of, quantised, sides, smaller
from .text_source import Report, load_hub

if TYPE_CHECKING:
    from .corpus import Data


SEEN_THROUGH = {"LA": "L", "La": "L", "PA": "P", "RGBA": "RGB", "RGBa": "RGB"}  # with it: taken where it hides nothing
TOGETHER = 64  # files decoded at once: what is in memory
MODES = {"1": "grey", "L": "grey", "P": "rgb", "RGB": "rgb"}  # Pillow's, of 8 bits and less without transparency


def read_images(data: "Data", context: Context, shape: tuple[int, ...] = ()) -> Raw:
    """The images of the folder `data.path`, or of a data set of the hub; of a published one all have this shape."""
    levels = levels_of(data, 256)
    if on_hub(data):
        return _from_hub(data, context.cache, levels)
    if not data.path:
        raise InputError("`data.name` images needs a folder of .png and .jpg files; give it by `data.path`")
    folder = Path(data.path).expanduser()
    if not folder.is_dir():
        raise InputError(f"'{data.path}' is no folder; give one that holds .png and .jpg files, or a Hugging Face id")
    splits, depth = _splits(folder, data)
    names, labels = _classes(folder, splits, depth, data)
    all_files = [path for files in splits.values() for path in files]
    report = unpack.read_twice(all_files, context.progress)
    paths = "".join(f"{split} {path.relative_to(folder)}\n" for split, files in splits.items() for path in files)
    made_by = {
        "files": unpack.digest_files(all_files, report),
        "paths": hashlib.sha256(paths.encode(errors="surrogateescape")).hexdigest(),
        "size": str(data.size),
        "colours": data.colours,
        "levels": levels,
    }

    def blocks(split: str) -> Iterator[Block]:
        pixels, mode = _decode(all_files[0], data.colours)
        if shape and pixels.shape != shape:
            size, other_size = (" x ".join(map(str, s)) for s in (pixels.shape, shape))
            raise InputError(
                f"'{all_files[0]}' is {size}, and the images of {data.name} are {other_size}; give the published ones"
            )
        like = _First(f"'{all_files[0]}'", mode, data.colours, pixels.shape)
        return _decoded(splits[split], labels[split], like, data.size, levels, report)

    about = {
        "sha256": made_by["files"],
        "files": [str(path) for path in all_files][:100],
        "protocol": _protocol(data, levels),
    }
    if left_out := file_names.left_out(data.path, all_files):
        about["left_out"] = left_out
    raw = cached(
        context.cache,
        made_by,
        lambda: {split: blocks(split) for split in splits},
        f"'{data.path}'",
        levels,
        data.labels,
        names=names,
        about=about,
    )
    if context.progress:  # all of it, also where a cache made the second reading needless
        total = sum(path.stat().st_size for path in all_files)
        context.progress(total, total)
    return raw


def _protocol(data: "Data", levels: int) -> str:
    """Description of the preprocessing of the images."""
    sides = str(data.size).replace("x", " x ") if isinstance(data.size, str) else f"{data.size} x {data.size}"
    steps = [f"to {sides} by area means"] if data.size else []
    steps += [f"in {data.colours}"] if data.colours else []
    steps += [f"256 to {levels} levels in equal bins"] if levels != 256 else []
    return ", ".join(steps)


# ---------------------------------------------------------------------------------------------------- which files
def _splits(folder: Path, data: "Data") -> tuple[dict[str, list[Path]], int]:
    """The files of each split: of subfolders that say it, or cut by shares;
    and how many folders deep that of a class lies."""
    files = [path for path in file_names.visible(folder) if path.suffix.lower() in file_names.IMAGES]
    if not files:
        raise InputError(f"no .png or .jpg file in folder '{data.path}'; give one that holds images")
    folders: dict[str, list[Path]] = {}
    for path in files:
        top, *inside = path.relative_to(folder).parts
        if inside and (split := file_names.folder_split(top)):  # what lies beside the folders of splits is not read
            folders.setdefault(split, []).append(path)
    if folders and "train" not in folders and sum(map(len, folders.values())) == len(files):
        names = " and ".join(split for split in SPLITS if split in folders)
        raise InputError(f"'{data.path}' holds {names} and no train; give the folder that holds train, too")
    if "train" not in folders:
        folders = {"all": sorted(files, key=lambda path: hashlib.sha256(bytes(path.relative_to(folder))).digest())}
    return cut_splits(folders, data, DATASETS[data.name]), int("train" in folders)  # pyright: ignore


def _classes(
    folder: Path, splits: dict[str, list[Path]], depth: int, data: "Data"
) -> tuple[tuple[str, ...], dict[str, list[int]]]:
    """The names of the classes, in order, and the label of each file; -1 where it lies in no folder of a class."""
    by_split = {
        split: [next(iter(path.relative_to(folder).parts[depth:-1]), "") for path in files]
        for split, files in splits.items()
    }
    names = tuple(sorted({*by_split["train"]} - {""}))
    number = {name: i for i, name in enumerate(names)}
    for split, files in splits.items() if data.labels else ():
        for name, path in zip(by_split[split], files):
            if not name:
                raise InputError(f"'{path}' lies in no folder that is its class; give CLASS/x.png, or no `data.labels`")
            if name not in number:
                raise InputError(f"'{path}' is of a class without training images; there are {', '.join(names)}")
    return names, {split: [number.get(name, -1) for name in of] for split, of in by_split.items()}


# ---------------------------------------------------------------------------------------------------- decoding
def _decoded(
    files: Sequence[Path], labels: Sequence[int], like: "_First", size: int | str, levels: int, report: Report
) -> Iterator[Block]:
    """The files in blocks, decoded by several threads; no more than a block is in memory."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for begin in range(0, len(files), TOGETHER):
            batch = files[begin : begin + TOGETHER]
            images = list(pool.map(partial(_fitted, like=like, size=size, levels=levels), batch))
            report(sum(path.stat().st_size for path in batch))
            yield np.stack(images), labels[begin : begin + TOGETHER]


@dataclass(frozen=True)
class _First:
    """The first image, whose colours and size all others must have, unless others are asked for."""

    of: str
    colours: str
    asked: str
    shape: tuple[int, ...]


def _fitted(path: Path, like: _First, size: int | str, levels: int) -> np.ndarray:
    """The pixels of a file, (H, W) or (H, W, 3), in the size and levels that are asked for."""
    pixels, mode = _decode(path, like.asked)
    return _alike(pixels, mode, f"'{path}'", like, size, levels)


def _alike(pixels: np.ndarray, own: str, of: str, like: _First, size: int | str, levels: int) -> np.ndarray:
    if not like.asked and own != like.colours:
        raise InputError(
            f"{of} is {own} and {like.of} is {like.colours}; give `data.colours` rgb or `data.colours` grey"
        )
    height, width = pixels.shape[:2]
    if not size and (height, width) != like.shape[:2]:
        like_size = " x ".join(map(str, like.shape[:2]))
        raise InputError(f"{of} is {height} x {width} and {like.of} is {like_size}; give `data.size`, e.g. 32 or 48x36")
    return quantised(smaller(pixels[None], *sides(size, height, width, f"{of} is")), 256, levels)[0]


def _decode(path: Path, colours: str) -> tuple[np.ndarray, str]:
    """The pixels of a file, (H, W) or (H, W, 3) uint8, in `colours` or its own; and which its own are."""
    from PIL import Image, UnidentifiedImageError

    try:
        with path.open("rb") as file:
            head = file.read(26)
        if head[:8] == b"\x89PNG\r\n\x1a\n" and head[24:25] == b"\x10":  # Pillow would cut the lower half off, unsaid
            raise InputError(f"'{path}' has 16 bits a colour; save it with 8")
        with Image.open(path, formats=("PNG", "JPEG")) as image:
            return _pixels(image, colours, f"'{path}'")
    except InputError:
        raise
    except UnidentifiedImageError:
        raise InputError(f"'{path}' is no PNG or JPEG image; take it out of the folder, or copy it again") from None
    except Image.DecompressionBombError:
        raise InputError(f"'{path}' has too many pixels to be read safely; make it smaller") from None
    except (OSError, SyntaxError, ValueError, EOFError, struct.error) as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise
        raise InputError(f"'{path}' is damaged ({problem}); copy it again") from None


def _pixels(image: Any, colours: str, of: str) -> tuple[np.ndarray, str]:
    """The same of an image of Pillow."""
    if image.mode in SEEN_THROUGH or "transparency" in image.info:
        mode = MODES[SEEN_THROUGH.get(image.mode) or image.mode]
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema() != (255, 255):
            raise InputError(f"{of} has an alpha channel; flatten it on a background first, and save it without")
        image = image.convert("L" if mode == "grey" else "RGB")  # of three equal colours L is that level
    if image.mode not in MODES:
        bits = "16 bits or more a colour" if image.mode[0] in "IF" else f"the colours {image.mode}"
        raise InputError(f"{of} has {bits}; save it with 8 bits, as RGB or grey")
    mode = MODES[image.mode]
    return np.asarray(image.convert({"rgb": "RGB", "grey": "L"}[colours or mode])), mode


# ---------------------------------------------------------------------------------------------------- the hub
def _from_hub(data: "Data", cache: Path, levels: int) -> Raw:
    """Image by image, as from files; the splits as published, and cut where one is missing."""
    dataset = load_hub(data, (str(data.path), None, {}), cache)
    splits = {file_names.NAMES[split]: rows for split, rows in dataset.items() if split in file_names.NAMES}
    if "train" not in splits:
        raise InputError(f"'{data.path}' has no train split ({', '.join(dataset)}); give another id")
    numbers = cut_splits({split: np.arange(len(rows)) for split, rows in splits.items()}, data, DATASETS[data.name])
    source = {split: splits.get(split, splits["train"]) for split in SPLITS}
    column = image_column(data, splits["train"])
    label, names = label_column(data, splits["train"]) if data.labels else ("", ())
    begins = f"train image 0 of '{data.path}'"
    pixels, mode = _hub_pixels(splits["train"][0][column], data, begins)
    like = _First(begins, mode, data.colours, pixels.shape)

    def blocks(split: str) -> Iterator[Block]:
        rows = source[split]
        for begin in range(0, len(numbers[split]), TOGETHER):
            batch = [int(i) for i in numbers[split][begin : begin + TOGETHER]]
            images = []
            for i in batch:
                of = f"{split} image {i} of '{data.path}'"
                pixels, mode = _hub_pixels(rows[i][column], data, of)
                images.append(_alike(pixels, mode, of, like, data.size, levels))
            yield np.stack(images), [int(rows[i][label]) if label else -1 for i in batch]

    prints = [[split, len(rows), getattr(rows, "_fingerprint", "")] for split, rows in dataset.items()]
    made_by = {
        "hub": data.path,
        "fingerprints": prints,
        "chosen": {split: [len(c), int(c[0])] for split, c in numbers.items()},
        "size": str(data.size),
        "colours": data.colours,
        "levels": levels,
        "label": label,
    }
    about = {"hub": data.path, "fingerprints": prints, "protocol": _protocol(data, levels)}
    about["sha256"] = hashlib.sha256(repr(prints).encode()).hexdigest()
    splits_of = lambda: {split: blocks(split) for split in numbers}  # noqa: E731
    return cached(cache, made_by, splits_of, f"'{data.path}'", levels, data.labels, names=names, about=about)


def _hub_pixels(value: Any, data: "Data", of: str) -> tuple[np.ndarray, str]:
    """The pixels of an entry of the hub: an image of Pillow, or an array."""
    if hasattr(value, "mode"):
        return _pixels(value, data.colours, of)
    from PIL import Image

    return _pixels(Image.fromarray(np.asarray(value, np.uint8)), data.colours, of)


CLASSES = 1000
ROWS_TOGETHER = 4096  # images in memory at once


def read_imagenet(data: "Data", context: Context) -> Raw:
    """The published batches in the folder `data.path`."""
    side, levels = int(data.name.removeprefix("imagenet")), levels_of(data, 256)
    splits = _files(data)
    all_files = [path for files in splits.values() for path in files]
    report = unpack.read_twice(all_files, context.progress)
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
    about = {"sha256": sums, "files": [str(path) for path in all_files], "protocol": ", ".join(changes)}
    return cached(
        context.cache,
        made_by,
        lambda: {split: blocks(split) for split in splits},
        f"'{data.path}'",
        levels,
        data.labels,
        names=_names(Path(data.path or "").expanduser()),
        about=about,
    )


def read_downsampled(data: "Data", context: Context) -> Raw:
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
    return read_images(data, context, (side, side, 3))


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
    """Names of the classes in map_clsloc.txt, if it exists (`n02119789 1 kit_fox`); else the published numbers."""
    lines = next((path.read_text("utf-8").split("\n") for path in sorted(folder.rglob("map_clsloc.txt"))), [])
    by_number = {int(words[1]): words[2] for words in map(str.split, lines) if len(words) > 2 and is_number(words[1])}
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
    """The shape of an array of a .npz, and its rows in pieces of ROWS_TOGETHER; nothing is unpickled."""
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
            for begin in range(0, shape[0], ROWS_TOGETHER):
                count = min(ROWS_TOGETHER, shape[0] - begin) * width
                raw = file.read(count * dtype.itemsize)
                if len(raw) < count * dtype.itemsize:
                    raise EOFError("it ends too early")
                yield np.frombuffer(raw, dtype).reshape(-1, *shape[1:])

    return shape, pieces()
