"""One's own arrays: .npy and .npz, whole numbers, a row an entry of the first axis, labels beside them.
Nothing is unpickled."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import InputError
from . import file_names
from .array_source import Context, Raw, sums
from .corpus import Data, OwnData
from .own_values import by_split

ARRAYS = (".npy", ".npz")
SPLIT_KEYS = {
    "train": "train", "x_train": "train", "X_train": "train", "validation": "validation", "valid": "validation",
    "val": "validation", "x_validation": "validation", "x_valid": "validation", "x_val": "validation", "X_val": "validation",
    "test": "test", "x_test": "test", "X_test": "test", "x": "all", "X": "all",
}  # fmt: skip
LABEL_KEYS = {"y": "all", "Y": "all", "labels": "all", "label": "all"} | {
    form.format(name): split
    for name, split in file_names.NAMES.items()
    for form in ("y_{}", "Y_{}", "{}_labels", "labels_{}")
}
NAME_KEYS = ("class_names", "classes")


def local_arrays(data: Data) -> dict[str, Path]:
    """The .npy and .npz files that `data.path` names, by split ("all": one file); {} if it names other files."""
    if not data.path:
        return {}
    path = Path(data.path).expanduser()
    files = sorted(p for p in path.iterdir() if p.suffix in ARRAYS) if path.is_dir() else [path]
    if not all(p.suffix in ARRAYS for p in files):
        return {}
    if len(files) == 1:
        return {"all": file_names.find_files(str(files[0]))[0]}
    splits = {file_names.split_of(p): p for p in reversed(files)}
    return {str(split): splits[split] for split in ("train", "validation", "test") if split in splits}


def read_arrays(data: Data, context: Context) -> Raw:
    """Whole numbers from .npy and .npz. For `array`, `data.kind` says what they are."""
    files = local_arrays(data)
    splits, labels, names = {}, {}, []
    if isinstance(data, OwnData):
        splits |= {split: np.asarray(part_array) for split, part_array in data.values.items()}
        by = {} if data.classes is None else by_split(data.classes)
        labels |= {split: np.asarray(of_split) for split, of_split in by.items()}
    if not files and not splits:
        raise InputError(f"the data set {data.name} needs a .npy or .npz file; give it by `data.path`")
    for split, path in files.items():
        rows, classes, names = load_arrays(path)
        splits |= {split if name == "all" else name: array for name, array in rows.items()}
        labels |= {split if name == "all" else name: array for name, array in classes.items()}
    about = sums(files) if files else {}
    return checked_arrays(data, splits, about, labels if data.labels else {}, names)


def checked_arrays(
    data: Data, splits: dict[str, np.ndarray], about: dict[str, Any], labels: dict[str, Any], names: Sequence[str] = ()
) -> Raw:
    """Arrays as they were found, after a look at them: whole numbers, of one shape, in their range."""
    tell = f"'{data.path}'" if data.path else "the array"
    shapes = {x.shape[1:] for x in splits.values()}
    reference = next(iter(splits.values()))
    if any(not np.issubdtype(x.dtype, np.integer) for x in splits.values()) or reference.ndim < 2 or not reference.size:
        raise InputError(f"{tell} has shape {reference.shape} and type {reference.dtype}; give whole numbers, (N, ...)")
    if len(shapes) > 1:
        raise InputError(f"{tell} has rows of different shapes ({', '.join(map(str, sorted(shapes)))}); give one shape")
    image = data.name != "array" or data.kind == "image"
    if image and reference.ndim not in (3, 4):
        raise InputError(
            f"{tell} has rows of shape {reference.shape[1:]}; images are (height, width) or (height, width, colours)"
        )
    low, high = min(int(x.min()) for x in splits.values()), max(int(x.max()) for x in splits.values())
    size = 256 if data.name != "array" else data.vocabulary or high + 1
    if low < 0 or high >= size:
        span = f"from 0 to {size - 1:,}" if data.vocabulary or data.name != "array" else "0 or more"
        raise InputError(f"{tell} holds {low if low < 0 else high:,}; entries must be {span}")
    more: dict[str, Any] = {"about": about, "classes": labels, "names": tuple(names)}
    return Raw(splits, size, **more) if image else Raw(splits, size, "grid", "cell", False, **more)


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], list[str]]:
    """The arrays of a .npy (mapped into memory) or a .npz by split: "all", or train, validation, test by their keys;
    the labels (y, labels, y_train ...) in the same way; and the names of the classes (class_names)."""
    try:
        if path.suffix == ".npy":
            return {"all": np.load(path, mmap_mode="r", allow_pickle=False)}, {}, []
        with np.load(path, allow_pickle=False) as archive:
            rows = {SPLIT_KEYS[name]: name for name in archive.files if name in SPLIT_KEYS}
            labels = {LABEL_KEYS[name]: archive[name] for name in archive.files if name in LABEL_KEYS}
            names = next((archive[name].tolist() for name in NAME_KEYS if name in archive.files), [])
            if not rows and len(archive.files) == 1:
                rows = {"all": archive.files[0]}
            if not rows:
                raise InputError(
                    f"'{path}' has arrays {', '.join(archive.files)}; name them train, validation and test"
                )
            return {split: archive[name] for split, name in rows.items()}, labels, [str(name) for name in names]
    except InputError:
        raise
    except (ValueError, OSError, EOFError, KeyError, AttributeError, zipfile.BadZipFile) as problem:
        if "object" in str(problem).lower():
            raise InputError(
                f"'{path}' holds objects, which are pickled; refused: save it as an array of integers"
            ) from None
        raise InputError(f"'{path}' is not a .npy or .npz file ({problem}); save it by numpy") from None
