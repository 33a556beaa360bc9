"""Images as published: MNIST's idx files, CIFAR's binary files, scikit-learn's digits, and those of the Hugging Face
hub.

Nothing is unpickled: CIFAR is read from its binary version, the archive or what is in it.
"""

import re
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import InputError
from . import file_names, unpack
from .array_source import Context, Raw, locate_files, sums
from .catalogue import DATASETS, cache_folder
from .own_arrays import checked_arrays, local_arrays, read_arrays
from .text_source import load_hub

if TYPE_CHECKING:
    from .corpus import Data


def copies(data: "Data", context: Context) -> Raw | None:
    """The images from arrays or from the hub, where `data.path` names such; else None,
    and the published files are read."""
    if local_arrays(data):
        return read_arrays(data, context)
    return read_hub(data) if on_hub(data) else None


# ---------------------------------------------------------------------------------------------------- MNIST
def mnist(data: "Data", context: Context) -> Raw:
    """MNIST and Fashion-MNIST, from the idx files, from arrays or from the hub."""
    if elsewhere := copies(data, context):
        return elsewhere
    files, about = locate_files(data, context)
    classes = {}
    if data.labels:
        labels, label_sums = locate_files(data, context, DATASETS[data.name].labels)
        classes, about = {split: idx(path) for split, path in labels.items()}, about | {"labels": label_sums["sha256"]}
    return Raw({split: idx(path) for split, path in files.items()}, 256, about=about, classes=classes)


def binarized(data: "Data", context: Context) -> Raw:
    """MNIST in black and white, drawn once: of level v with probability v / 255 white (Salakhutdinov and Murray, 2008).

    Larochelle's draw, on which the numbers of the literature are, where `data.path` has his .amat files, packed or not;
    else one of our own, of the same distribution. Arrays of zeros and ones are taken as they are.
    """
    folder = Path(data.path or "").expanduser()
    amat_files = sorted(folder.glob("*.amat*")) if data.path and folder.is_dir() else []
    if amat_files:
        files = {str(file_names.split_of(p)): p for p in amat_files}
        if data.labels:
            raise InputError(f"the .amat files in '{data.path}' have no labels; leave out `data.labels`")
        splits = {split: amat(files[split]) for split in ("train", "validation", "test") if split in files}
        return Raw(splits, 2, about=sums(files) | {"protocol": "binarised by one fixed draw (Larochelle)"})
    raw = mnist(data, context)
    splits = {name: _drawn(pixels, i) for i, (name, pixels) in enumerate(sorted(raw.splits.items()))}
    about = raw.about | {"protocol": "binarised by one fixed draw (Zellige's)"}
    return replace(raw, splits=splits, size=2, about=about)


def _drawn(pixels: np.ndarray, seed: int) -> np.ndarray:
    if pixels.max(initial=0) <= 1:
        return pixels
    return (255 * np.random.default_rng([seed, 0]).random(pixels.shape, np.float32) < pixels).astype(np.uint8)


def idx(path: Path) -> np.ndarray:
    """An idx file of bytes: 0 0 8 and the number of axes, their lengths (big-endian, 4 bytes each), the bytes."""
    raw = unpack.read_bytes(path)
    axes = raw[3] if len(raw) > 3 else 0
    if raw[:3] != b"\0\0\x08" or not axes or len(raw) < 4 + 4 * axes:
        raise InputError(f"'{path}' is not an idx file of bytes; give the published one")
    shape = tuple(np.frombuffer(raw, ">u4", axes, 4).tolist())
    if len(raw) != 4 + 4 * axes + np.prod(shape, dtype=np.int64):
        raise InputError(f"'{path}' does not hold the {' x '.join(map(str, shape))} bytes it announces; copy it again")
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def amat(path: Path) -> np.ndarray:
    """Larochelle's text: a line an image, 784 times 0 or 1 with spaces between."""
    raw = np.frombuffer(b"".join(unpack.read_bytes(path).split()), np.uint8) - ord("0")
    if raw.size % 784 or (raw.size and raw.max() > 1):
        raise InputError(f"'{path}' does not hold lines of 784 zeros and ones; give the published .amat files")
    return raw.reshape(-1, 28, 28)


# ---------------------------------------------------------------------------------------------------- CIFAR, digits
_ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar.html"
CIFAR = {  # which files of the binary version are which split; the label bytes of a record; where the names stand
    "cifar10": ([f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"], 1, "batches.meta.txt"),
    "cifar100": (["train.bin"], ["test.bin"], 2, "fine_label_names.txt"),
}


def cifar(data: "Data", context: Context) -> Raw:
    """CIFAR's binary versions, the archive or the folder in it.

    An image is one label byte, of CIFAR-100 two (the coarse one and the fine one), and 3 x 32 x 32 bytes, colour by
    colour.
    """
    if elsewhere := copies(data, context):
        return elsewhere
    train, test, labels, class_file = CIFAR[data.name]
    archive_name = DATASETS[data.name].files["all"][0].rpartition("/")[2]
    if folder := extracted(data, [*train, *test], archive_name):
        files = {name: folder / name for name in [*train, *test]}
        all_sources, about = files | {class_file: folder / class_file}, sums(files)
        members = {name: path.read_bytes() for name, path in all_sources.items() if path.is_file()}
        source = folder
    else:
        files_, about = locate_files(data, context)
        source = files_["all"]
        members = unpacked(source, class_file, archive_name)
    whole = lambda name: name in members and len(members[name]) % (labels + 3072) == 0  # noqa: E731
    missing = next((name for name in [*train, *test] if not whole(name)), "")
    if missing:
        raise InputError(f"'{source}' holds no whole '{missing}'; give {archive_name}")
    records = {"train": b"".join(members[n] for n in train), "test": b"".join(members[n] for n in test)}
    classes = {split: cifar_labels(raw, labels) for split, raw in records.items()} if data.labels else {}
    splits = {split: cifar_images(raw, labels) for split, raw in records.items()}
    names = tuple(members.get(class_file, b"").decode("utf-8", "replace").split())
    return Raw(splits, 256, about=about, classes=classes, names=names)


def extracted(data: "Data", names: list[str], archive: str) -> Path | None:
    """The folder that an archive was extracted to: `data.path`, or one in it; None where there is none.

    InputError where it is the version for Python, which is pickled, or where a file is missing.
    """
    source_path = Path(data.path or "").expanduser()
    if not data.path or not source_path.is_dir() or (source_path / archive).is_file():
        return None
    folders = [source_path, *sorted(path for path in source_path.iterdir() if path.is_dir())]
    folder = max(folders, key=lambda folder: sum((folder / name).is_file() for name in names))
    missing = [name for name in names if not (folder / name).is_file()]
    if not missing:
        return folder
    python_folder = next((f for f in folders for name in names if (f / name.removesuffix(".bin")).is_file()), None)
    if len(missing) == len(names) and python_folder:
        raise InputError(
            f"'{python_folder}' is the version for Python, which is pickled and is not opened; "
            f"give {archive} ({_ADDRESS}), or the folder that is in it"
        )
    if len(missing) < len(names):
        raise InputError(f"'{folder}' lacks '{missing[0]}' of {len(names)} files; extract {archive} again")
    return None


def unpacked(file: Path, listed: str, archive_name: str) -> dict[str, bytes]:
    """The .bin files of an archive by their names, and that of the names of the classes."""
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(file, "r:*") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if member.isfile() and (name.endswith(".bin") or name == listed):
                    members[name] = archive.extractfile(member).read()  # pyright: ignore[reportOptionalMemberAccess]
    except (tarfile.TarError, EOFError, OSError) as problem:
        raise InputError(f"'{file}' is damaged ({problem}); give {archive_name}") from None
    return members


def cifar_images(raw: bytes, labels: int = 1) -> np.ndarray:
    """(N, 32, 32, 3) of records of so many label bytes, then red, green and blue."""
    images = np.frombuffer(raw, np.uint8).reshape(-1, labels + 3072)[:, labels:].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))


def cifar_labels(raw: bytes, labels: int = 1) -> np.ndarray:
    """(N,) the last label byte of each record: of CIFAR-100 the fine one."""
    return np.frombuffer(raw, np.uint8).reshape(-1, labels + 3072)[:, labels - 1]


def on_hub(data: "Data") -> bool:
    """Return whether `data.path` is a Hugging Face id instead of a path: `ylecun/mnist`."""
    name = data.path or ""
    return re.fullmatch(r"[\w.-]+/[\w.-]+", name) is not None and not Path(name).parent.is_dir()


def read_hub(data: "Data") -> Raw:
    """The images of a data set of the Hugging Face hub, by its splits."""
    split_names = {split: split for split in ("train", "test")}
    dataset = load_hub(data, (str(data.path), None, split_names), cache_folder(data.cache))
    splits, classes, names = {}, {}, ()
    for split, rows in dataset.items():
        splits[split] = np.stack([np.asarray(image, np.uint8) for image in rows[image_column(data, rows)]])
        if data.labels:
            column, names = label_column(data, rows)
            classes[split] = np.asarray(rows[column])
    return checked_arrays(data, splits, {"hub": data.path}, classes, names)


def image_column(data: "Data", rows: Any) -> str:
    """The column of images of a data set of the hub."""
    column = next((name for name in ("image", "img") if name in rows.column_names), None)
    if column is None:
        raise InputError(f"'{data.path}' has no column of images ({', '.join(rows.column_names)}); give another id")
    return column


def label_column(data: "Data", rows: Any) -> tuple[str, tuple[str, ...]]:
    """The column of labels of a data set of the hub, and what the classes are called, if it says that."""
    column = next((name for name in ("label", "labels", "fine_label") if name in rows.column_names), None)
    if column is None:
        columns = ", ".join(rows.column_names)
        raise InputError(f"'{data.path}' has no column of labels ({columns}); leave out `data.labels`")
    feature = (getattr(rows, "features", None) or {}).get(column)
    return column, tuple(getattr(feature, "names", None) or ())


def digits(data: "Data", context: Context) -> Raw:
    """scikit-learn's 1,797 digits of 8 x 8, levels 0 to 16, in the order of the writers."""
    from sklearn.datasets import load_digits

    sklearn_digits = load_digits()
    images, labels = sklearn_digits["images"], sklearn_digits["target"]  # pyright: ignore
    return Raw({"all": images.astype(np.uint8)}, 17, classes={"all": labels} if data.labels else {})
