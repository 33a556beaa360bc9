"""Images as published, and arrays: MNIST's idx files, CIFAR's binary files, scikit-learn's digits, .npy and .npz.

Nothing is unpickled: CIFAR-10 is read from its binary version, and an array of objects is refused.
"""

import re
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from . import readers
from .array_source import Fetch, Raw, locate_files, sums
from .catalogue import cache_folder
from .text_source import load_hub

if TYPE_CHECKING:
    from .corpus import Data

ARRAYS = (".npy", ".npz")


def local_arrays(data: "Data") -> dict[str, Path]:
    """The .npy and .npz files that `data.path` names, by split ("all": one file); {} if it names other files."""
    if not data.path:
        return {}
    path = Path(data.path).expanduser()
    files = sorted(p for p in path.iterdir() if p.suffix in ARRAYS) if path.is_dir() else [path]
    if not all(p.suffix in ARRAYS for p in files):
        return {}
    if len(files) == 1:
        return {"all": readers.find_files(str(files[0]))[0]}
    splits = {readers.split_of(p): p for p in reversed(files)}
    return {str(split): splits[split] for split in ("train", "validation", "test") if split in splits}


def copies(data: "Data", fetch: Fetch) -> Raw | None:
    """The images from arrays or from the hub, where --data.path names such; else None, and the published files are read."""
    if local_arrays(data):
        return read_arrays(data, fetch)
    return read_hub(data) if on_hub(data) else None


# ---------------------------------------------------------------------------------------------------- MNIST
def mnist(data: "Data", fetch: Fetch) -> Raw:
    """MNIST and Fashion-MNIST, from the idx files, from arrays or from the hub."""
    if elsewhere := copies(data, fetch):
        return elsewhere
    files, about = locate_files(data, fetch)
    return Raw({split: idx(path) for split, path in files.items()}, 256, about=about)


def binarized(data: "Data", fetch: Fetch) -> Raw:
    """MNIST in black and white: a pixel is white from 128 up. Larochelle's drawn ones, where --data.path has his .amat files."""
    folder = Path(data.path or "").expanduser()
    drawn = sorted(folder.glob("*.amat")) if data.path and folder.is_dir() else []
    if drawn:
        files = {str(readers.split_of(p)): p for p in drawn}
        splits = {split: amat(files[split]) for split in ("train", "validation", "test") if split in files}
        return Raw(splits, 2, about=sums(files) | {"protocol": "binarised by one fixed draw (Larochelle)"})
    raw = mnist(data, fetch)
    return Raw(raw.splits, raw.size, levels=2, about=raw.about)


def idx(path: Path) -> np.ndarray:
    """An idx file of bytes: 0 0 8 and the number of axes, their lengths (big-endian, 4 bytes each), the bytes."""
    raw = readers.read_bytes(path)
    axes = raw[3] if len(raw) > 3 else 0
    if raw[:3] != b"\0\0\x08" or not axes or len(raw) < 4 + 4 * axes:
        raise InputError(f"'{path}' is not an idx file of bytes; give the published one")
    shape = tuple(np.frombuffer(raw, ">u4", axes, 4).tolist())
    if len(raw) != 4 + 4 * axes + np.prod(shape, dtype=np.int64):
        raise InputError(f"'{path}' does not hold the {' x '.join(map(str, shape))} bytes it announces; copy it again")
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def amat(path: Path) -> np.ndarray:
    """Larochelle's text: a line an image, 784 times 0 or 1 with spaces between."""
    raw = np.frombuffer(b"".join(readers.read_bytes(path).split()), np.uint8) - ord("0")
    if raw.size % 784 or (raw.size and raw.max() > 1):
        raise InputError(f"'{path}' does not hold lines of 784 zeros and ones; give the published .amat files")
    return raw.reshape(-1, 28, 28)


# ---------------------------------------------------------------------------------------------------- CIFAR-10, digits
def cifar(data: "Data", fetch: Fetch) -> Raw:
    """CIFAR-10's binary version: a label and 3 x 32 x 32 bytes an image, colour by colour."""
    if elsewhere := copies(data, fetch):
        return elsewhere
    files, about = locate_files(data, fetch)
    names = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(files["all"], "r:*") as archive:
            for member in archive:
                if member.isfile() and member.name.endswith(".bin"):
                    members[member.name.rpartition("/")[2]] = archive.extractfile(member).read()  # pyright: ignore
    except (tarfile.TarError, EOFError, OSError) as problem:
        raise InputError(f"'{files['all']}' is damaged ({problem}); give cifar-10-binary.tar.gz") from None
    missing = next(
        (n for group in names.values() for n in group if len(members.get(n, b"")) % 3073 or n not in members), ""
    )
    if missing:
        raise InputError(f"'{files['all']}' holds no whole '{missing}'; give cifar-10-binary.tar.gz")
    splits = {split: b"".join(members[n] for n in group) for split, group in names.items()}
    return Raw({split: cifar_images(raw) for split, raw in splits.items()}, 256, about=about)


def cifar_images(raw: bytes) -> np.ndarray:
    """(N, 32, 32, 3) of records of 3073 bytes: the label, then red, green and blue."""
    images = np.frombuffer(raw, np.uint8).reshape(-1, 3073)[:, 1:].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))


def on_hub(data: "Data") -> bool:
    """Whether `data.path` is no path but a Hugging Face id: `ylecun/mnist`."""
    name = data.path or ""
    return re.fullmatch(r"[\w.-]+/[\w.-]+", name) is not None and not Path(name).parent.is_dir()


def read_hub(data: "Data") -> Raw:
    """The images of a data set of the Hugging Face hub, by its splits."""
    published = {split: split for split in ("train", "test")}
    loaded, splits = load_hub(data, (str(data.path), None, published), cache_folder(data.cache)), {}
    for split, rows in loaded.items():
        column = next((name for name in ("image", "img") if name in rows.column_names), None)
        if column is None:
            raise InputError(f"'{data.path}' has no column of images ({', '.join(rows.column_names)}); give another id")
        splits[split] = np.stack([np.asarray(image, np.uint8) for image in rows[column]])
    return checked_arrays(data, splits, {"hub": data.path})


def digits(data: "Data", fetch: Fetch) -> Raw:
    """scikit-learn's 1,797 digits of 8 x 8, levels 0 to 16, in the order of the writers."""
    from sklearn.datasets import load_digits

    images = load_digits()["images"]  # pyright: ignore
    return Raw({"all": images.astype(np.uint8)}, 17)


# ---------------------------------------------------------------------------------------------------- arrays
def read_arrays(data: "Data", fetch: Fetch) -> Raw:
    """Whole numbers from .npy and .npz: one row an entry of the first axis. For `array`, --data.kind says what they are."""
    files = local_arrays(data)
    splits = {"all": np.asarray(own)} if (own := getattr(data, "_tokens", None)) is not None else {}
    if not files and not splits:
        raise InputError(f"--data.name {data.name} needs a .npy or .npz file; give it by --data.path")
    for split, path in files.items():
        for name, rows in load_arrays(path).items():
            splits[split if name == "all" else name] = rows
    return checked_arrays(data, splits, sums(files) if files else {})


def checked_arrays(data: "Data", splits: dict[str, np.ndarray], about: dict[str, Any]) -> Raw:
    """Arrays as they were found, after a look at them: whole numbers, of one shape, in their range."""
    tell = f"'{data.path}'" if data.path else "the array"
    shapes = {x.shape[1:] for x in splits.values()}
    first = next(iter(splits.values()))
    if any(not np.issubdtype(x.dtype, np.integer) for x in splits.values()) or first.ndim < 2 or not first.size:
        raise InputError(f"{tell} has shape {first.shape} and type {first.dtype}; give whole numbers, (N, ...)")
    if len(shapes) > 1:
        raise InputError(f"{tell} has rows of different shapes ({', '.join(map(str, sorted(shapes)))}); give one shape")
    image = data.name != "array" or data.kind == "image"
    if image and first.ndim not in (3, 4):
        raise InputError(
            f"{tell} has rows of shape {first.shape[1:]}; images are (height, width) or (height, width, colours)"
        )
    low, high = min(int(x.min()) for x in splits.values()), max(int(x.max()) for x in splits.values())
    size = 256 if data.name != "array" else data.vocabulary or high + 1
    if low < 0 or high >= size:
        allowed = f"from 0 to {size - 1:,}" if data.vocabulary or data.name != "array" else "0 or more"
        raise InputError(f"{tell} holds {low if low < 0 else high:,}; entries must be {allowed}")
    return Raw(splits, size, about=about) if image else Raw(splits, size, "grid", "cell", False, about=about)


KEYS = {
    "train": "train", "x_train": "train", "X_train": "train", "validation": "validation", "valid": "validation",
    "val": "validation", "x_validation": "validation", "x_valid": "validation", "x_val": "validation", "X_val": "validation",
    "test": "test", "x_test": "test", "X_test": "test", "x": "all", "X": "all",
}  # fmt: skip


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a .npy (mapped into memory) or a .npz, by split: "all", or train, validation, test by their keys."""
    try:
        if path.suffix == ".npy":
            return {"all": np.load(path, mmap_mode="r", allow_pickle=False)}
        with np.load(path, allow_pickle=False) as archive:
            names = {KEYS[name]: name for name in archive.files if name in KEYS}
            if not names and len(archive.files) == 1:
                names = {"all": archive.files[0]}
            if not names:
                raise InputError(
                    f"'{path}' has arrays {', '.join(archive.files)}; name them train, validation and test"
                )
            return {split: archive[name] for split, name in names.items()}
    except InputError:
        raise
    except (ValueError, OSError, EOFError, KeyError, AttributeError, zipfile.BadZipFile) as problem:
        if "object" in str(problem).lower():
            raise InputError(
                f"'{path}' holds objects, which are pickled; refused: save it as an array of integers"
            ) from None
        raise InputError(f"'{path}' is not a .npy or .npz file ({problem}); save it by numpy") from None
