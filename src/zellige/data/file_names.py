"""What names of files say: which files a path means, which form each has, and which split it is."""

import difflib
import glob
import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from ..errors import InputError, nearest
from .remote_files import RemoteFile, find_remote, is_remote

File = PurePath | RemoteFile  # what has a name

PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
ROWS = (".jsonl", ".csv", ".parquet", ".arrow")
IMAGES = (".png", ".jpg", ".jpeg")
TOKENS = (".npy", ".bin", ".ds")
KINDS = (".txt", ".text", ".md", ".rst", ".tokens", ".raw", *ROWS)


def find_files(path: str) -> list[Any]:
    """The files that `path` (a file, a folder or a glob) names, in order: Path; where it has a scheme RemoteFile."""
    if is_remote(path):
        return find_remote(path, lambda name: kind(name) in KINDS and not name.name.startswith("."))
    place = Path(path).expanduser()
    if place.is_file():
        return [place]
    if place.is_dir():
        files = [f for f in place.rglob("*") if f.is_file() and not f.name.startswith(".") and kind(f) in KINDS]
        if not files:
            raise InputError(
                f"no text in folder '{path}' (.txt .md .jsonl .csv .parquet, also .gz .xz .zst .zip); give a file or a glob"
            )
        return sorted(files)
    files = [Path(f) for f in glob.glob(str(place), recursive=True) if Path(f).is_file()]
    if files:
        return sorted(files)
    missing = "no file at" if not glob.has_magic(path) else "no file matches"
    names = sorted(f.name for f in place.parent.iterdir()) if place.parent.is_dir() else []
    near = nearest(place.name, names) or next(iter(difflib.get_close_matches(place.name, names, 1, 0.3)), None)
    if near:
        raise InputError(f"{missing} '{path}'; nearest in that folder: '{near}'")
    folder = place.parent if place.parent.is_dir() else None
    raise InputError(
        f"{missing} '{path}'; " + (f"'{folder}' holds no such name" if folder else "there is no such folder")
    )


def others(path: str | None, files: list[Path]) -> list[Path]:
    """The files of the folder `path` that are not among those that are read."""
    folder = Path(path or "").expanduser()
    there = folder.rglob("*") if path and not is_remote(path) and folder.is_dir() else ()
    return sorted({f for f in there if f.is_file() and not f.name.startswith(".")} - {*files})


def kind(path: File) -> str:
    """The suffix that says how to read it: '.jsonl' for 'a.jsonl.gz'."""
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
        return suffixes[-1] if suffixes and suffixes[-1] in KINDS else ".txt"
    return suffixes[-1] if suffixes else ""


def only_images(folder: Path) -> bool:
    """Whether it is a folder that holds images, and no text."""
    names = [f.suffix.lower() for f in folder.rglob("*")] if folder.is_dir() else []
    return any(name in IMAGES for name in names) and not any(name in KINDS for name in names)


def is_documents(path: File) -> bool:
    """Whether the file gives documents (`ROWS`) and not one running text."""
    return kind(path) in ROWS


def require_columns(field: str | None, files: Sequence[File]) -> None:
    """InputError where a field is asked for of files that have none."""
    text_file = next((path for path in files if not is_documents(path)), None)
    if field and text_file:
        raise InputError(f"`data.field` has no effect on '{text_file}', which is plain text; leave it out")


NAMES = {
    "train": "train", "training": "train", "valid": "validation", "validation": "validation", "val": "validation",
    "dev": "validation", "test": "test",
}  # fmt: skip

_FOLDER = re.compile(rf"({'|'.join(NAMES)})(?:[._-]?\d+x\d+)?")


def folder_split(name: str) -> str | None:
    """The split that the name of a folder says: `train`, `Val`, and with a size, `valid_64x64`.

    >>> folder_split("valid_64x64"), folder_split("trains")
    ('validation', None)
    """
    match = _FOLDER.fullmatch(name.lower())
    return NAMES[match[1]] if match else None


def split_of(path: File) -> str | None:
    """The split that a published file's name tells: 'wiki.valid.tokens' -> validation."""
    words = set(re.split(r"[^a-z]+", path.name.lower()))
    splits = {NAMES[w] for w in words & set(NAMES)}
    return splits.pop() if len(splits) == 1 else None


def own_splits(folder: Path, files: list[Any]) -> dict[str, list[Any]]:
    """One's own files by split, where their names or their subfolders say it; {} where they do not.

    train.txt, my.valid.jsonl, test-00000-of-00004.parquet, train/a.txt; "train journey.txt" is a text like any other. There must
    be a train split and another.
    """
    splits: dict[str, list[Any]] = {}
    for file in files:
        if isinstance(file, RemoteFile):
            inside = file.inside
        else:
            inside = file.relative_to(folder).parts[:-1] if file.is_relative_to(folder) else ()
        stem = file.name.partition(kind(file))[0] if kind(file) else file.name
        named = re.fullmatch(rf"(?:\S*[._-])?({'|'.join(NAMES)})(?:[._-]?\d\S*)?", stem.lower())
        split = next(filter(None, map(folder_split, inside)), named and NAMES[named[1]])
        if split:
            splits.setdefault(split, []).append(file)
    return (
        {name: splits[name] for name in ("train", "validation", "test") if name in splits}
        if ("train" in splits and len(splits) > 1)
        else {}
    )
