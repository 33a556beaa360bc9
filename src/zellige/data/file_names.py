"""Which files a path means, which form each has, and which split it is: by their names, and where these do not say, by
how they begin."""

import codecs
import difflib
import glob
import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

from ..base.errors import InputError, nearest, some
from .records import FORMS, is_known
from .remote_files import RemoteFile, find_remote, is_remote
from .unpack import BLOCK, opened, size_of

File = PurePath | RemoteFile  # what has a name

PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
ROWS = (".jsonl", ".csv", ".tsv", ".parquet", ".arrow")
FASTA = (".fasta", ".fa", ".fas", ".fna", ".ffn", ".faa", ".frn")
IMAGES = (".png", ".jpg", ".jpeg")
TOKENS = (".npy", ".bin", ".ds")
KINDS = (".txt", ".text", ".md", ".rst", ".tokens", ".raw", *ROWS, *FASTA)


def data_of(path: str) -> str:
    """The data set that a path alone means: `array` (.npy, .npz), `tokens` (.bin, .ds), `images` for a folder of them,
    or `text`.

    Raises:
        InputError: a folder holds images and text.
    """
    place = Path(path).expanduser()
    if place.suffix in (".npy", ".npz"):
        return "array"
    if place.suffix in (".bin", ".ds"):
        return "tokens"
    if not path or is_remote(path) or not place.is_dir():
        return "text"
    files = visible(place)
    images = sum(file.suffix.lower() in IMAGES for file in files)
    texts = [file for file in files if images and _holds_text(file)]
    if texts and images:
        counts = [f"{n:,} {noun}{'s' if n > 1 else ''}" for n, noun in ((images, "image"), (len(texts), "text file"))]
        raise InputError(
            f"'{path}' holds {' and '.join(counts)}, e.g. '{texts[0].relative_to(place)}'; "
            "choose one by `data.name` images or `data.name` text"
        )
    return "images" if images else "text"


def visible(folder: Path) -> list[Path]:
    """All files below a folder, in order, but those whose name, or the name of a folder that they are in, begins with a
    dot, and the bookkeeping of `datasets.save_to_disk`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    files = [path for path in files if not any(name.startswith(".") for name in path.relative_to(folder).parts)]
    saved = {path.parent: names for path in files if path.name == STATE and (names := _rows_of(path))}
    of_dict = {folder.parent for folder in saved}  # data sets by split
    return [
        path
        for path in files
        if path.name in saved.get(path.parent, (path.name,))
        and not (path.name == DATASET_DICT and path.parent in of_dict)
    ]


STATE, DATASET_DICT = (
    "state.json",
    "dataset_dict.json",
)  # of a folder of `datasets.save_to_disk`; of one of several splits


def _rows_of(state: Path) -> set[str]:
    """The files that hold the rows of a data set, by its state.json; none where that is another file."""
    try:
        return {entry["filename"] for entry in json.loads(state.read_text(encoding="utf-8"))["_data_files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def find_files(path: str, unnamed: bool = False) -> list[Any]:
    """The files that `path` (a file, a folder or a glob) names, in order: Path; where it has a scheme RemoteFile.

    Of a folder these are the files whose names are of text (`KINDS`). unnamed: also any other that begins as UTF-8
    text; of a remote folder none is opened, and names alone decide.
    """
    if is_remote(path):
        return find_remote(path, lambda name: kind(name) in KINDS and not name.name.startswith("."))
    place = Path(path).expanduser()
    if place.is_file():
        return [place]
    if place.is_dir():
        found_files = visible(place)
        files = [f for f in found_files if (_holds_text(f) if unnamed else kind(f) in KINDS)]
        if files:
            return files
        raise InputError(_no_text(path, found_files, unnamed))
    files = [Path(f) for f in glob.glob(str(place), recursive=True) if Path(f).is_file()]
    if files:
        return sorted(files)
    missing = "no file at" if not glob.has_magic(path) else "no file matches"
    there = place.parent.iterdir() if place.parent.is_dir() else ()
    names = sorted(f.name for f in there if f.is_dir() or kind(f) in KINDS)
    near = nearest(place.name, names) or next(iter(difflib.get_close_matches(place.name, names, 1, 0.3)), None)
    if near:
        raise InputError(f"{missing} '{path}'; nearest in that folder: '{near}'")
    folder = place.parent if place.parent.is_dir() else None
    raise InputError(
        f"{missing} '{path}'; " + (f"'{folder}' holds no such name" if folder else "there is no such folder")
    )


def _holds_text(path: Path) -> bool:
    """Return whether a file of a folder is text: by its name, or by its first bytes, unpacked."""
    compressed = path.suffix.lower() in PACKED
    suffix = "".join(path.suffixes[-2:-1] if compressed else path.suffixes[-1:]).lower()
    if suffix in (*KINDS, *IMAGES) or path.suffix.lower() == ".zst":  # which not every installation can open
        return suffix not in IMAGES
    try:
        with opened(path, lambda count: None) as file:
            begin = file.read(MOST)
    except (InputError, OSError):  # damaged, several files in one .zip, not readable: left out, and named
        return False
    return bool(begin) and is_text(begin)


def _no_text(path: str, files: list[Path], unnamed: bool) -> str:
    if not files:
        return f"folder '{path}' is empty; give a file, a folder or a glob"
    if not unnamed:
        return (
            f"no text in folder '{path}' (.txt .md .jsonl .csv .parquet, also .gz .xz .zst .zip); give a file or a glob"
        )
    return f"no text in folder '{path}', which holds {named(files)}; give UTF-8 text, or .png and .jpg images"


def named(files: Sequence[Path], most: int = 3) -> str:
    """Number of files and the names of the first of them.

    >>> named([Path("a.pdf")]), named([Path("a.pdf"), Path("b.zip")], 1)
    ('1 file, a.pdf', '2 files, e.g. a.pdf')
    """
    names = ", ".join(file.name for file in files[:most])
    return f"{len(files):,} file{'s' if len(files) > 1 else ''}, {'e.g. ' if len(files) > most else ''}{names}"


def left_out(path: str | None, files: Sequence[Any]) -> list[str]:
    """Of the folder `path`, a phrase about the files that are not among those that are read;
    [] where there are none."""
    folder = Path(path or "").expanduser()
    candidates = visible(folder) if path and not is_remote(path) and folder.is_dir() else []
    ignored = sorted({*candidates} - {*files})
    return [named(ignored)] if ignored else []


def suffixes(files: Sequence[File]) -> str:
    """Number of files of each suffix, the most frequent first.

    >>> suffixes([Path("a.py"), Path("b.py"), Path("LICENSE")])
    '2 .py, 1 without a suffix'
    """
    counts = Counter(kind(file) or "without a suffix" for file in files).most_common()
    return some((f"{n:,} {suffix}" for suffix, n in counts), 6)


def kind(path: File) -> str:
    """The suffix that says how to read it: '.jsonl' for 'a.jsonl.gz', and for 'c4-train.json.gz', which has a row a
    line.

    >>> kind(Path("c4-train.00000-of-01024.json.gz")), kind(Path("notes.xz"))
    ('.jsonl', '.txt')
    """
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
        if suffixes and suffixes[-1] == ".json":
            return ".jsonl"
        return suffixes[-1] if suffixes and suffixes[-1] in KINDS else ".txt"
    return suffixes[-1] if suffixes else ""


def is_documents(path: File, fields: Sequence[str] = ()) -> bool:
    """Return whether the file contains documents and not one running text: by its name, or as a .json that holds
    records.

    These are objects, in a list or one a line, whose fields are known (`records.is_known`), or are `fields`.
    """
    if kind(path) != ".json":
        return kind(path) in ROWS
    if not isinstance(path, Path):
        return True  # nothing is opened in a remote store
    record = _first_record(path)
    return record is not None and (is_known(record) or (bool(fields) and {*fields} <= {*record}))


def _first_record(path: Path) -> dict[str, Any] | None:
    """The first object of a .json that holds a list of them, or one a line; None for any other."""
    with opened(path, lambda count: None) as file:
        text = file.read(BLOCK).decode("utf-8-sig", "replace").lstrip()
    is_list = text.startswith("[")
    text = text.removeprefix("[").lstrip()
    try:
        record, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    more = text[end:].lstrip()[:1]
    return record if isinstance(record, dict) and (is_list or more == "{") else None


def refuse_other_json(path: str | None, files: Sequence[File], fields: Sequence[str] = ()) -> None:
    """InputError where `path` is itself a .json, and no records are read from it:
    its braces and quotes would be learnt."""
    alone = next((f for f in files if kind(f) == ".json" and not is_documents(f, fields)), None)
    if alone is not None and isinstance(alone, Path) and len(files) == 1 and Path(path or "").expanduser() == alone:
        record = _first_record(alone)
        has = "holds no list of records" if record is None else f"holds records of {', '.join(record)}"
        use = (
            f"name the one with the text by `data.field`, or give {FORMS}"
            if record
            else f"give a list of objects with {FORMS}"
        )
        raise InputError(f"'{alone}' {has}; {use}")


def require_columns(field: str | None, files: Sequence[File]) -> None:
    """InputError where a field is asked for of files that have none."""
    text_file = next((path for path in files if not is_documents(path, (field or "").split("+"))), None)
    if field and text_file:
        raise InputError(f"`data.field` has no effect on '{text_file}', which is plain text; leave it out")


def require_label(label: str, files: Sequence[File], fields: Sequence[str]) -> None:
    """InputError where the column of the classes is asked for of files that have none. fields: as `is_documents`."""
    text_file = next((path for path in files if not is_documents(path, fields)), None)
    if text_file:
        raise InputError(
            f"'{text_file}' is text without a column '{label}'; give .jsonl, .csv or .parquet, or no `data.labels`"
        )


NAMES = {
    "train": "train",
    "training": "train",
    "valid": "validation",
    "validation": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}

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

    train.txt, my.valid.jsonl, test-00000-of-00004.parquet, train/a.txt; "train journey.txt" is a text like any other,
    and so are train.py and test.py. There must be a train split and another, and they must be nearly all of the text.
    """
    splits = _named_splits(folder, files)
    found = [*chain.from_iterable(splits.values())]
    by_folder = any(_split_folder(folder, file) for file in found)
    if len(splits) < 2 or "train" not in splits:
        return {}
    whole = by_folder or sum(map(size_of, found)) >= NEARLY_ALL * sum(map(size_of, files))
    return splits if whole else {}


NEARLY_ALL = 0.9  # of the bytes


def named_splits(folder: Path, files: list[Any]) -> list[Any]:
    """The files whose names say a split, where `own_splits` takes them for texts like any other,
    as they are too few."""
    splits = _named_splits(folder, files)
    return [] if len(splits) < 2 or own_splits(folder, files) else [*chain.from_iterable(splits.values())]


def _named_splits(folder: Path, files: list[Any]) -> dict[str, list[Any]]:
    splits: dict[str, list[Any]] = {}
    for file in files:
        stem = file.name.partition(kind(file))[0] if kind(file) else file.name
        match = re.fullmatch(rf"(?:\S*[._-])?({'|'.join(NAMES)})(?:[._-]?\d\S*)?", stem.lower())
        by_name = NAMES[match[1]] if match and kind(file) in (*KINDS, *TOKENS) else None
        split = _split_folder(folder, file) or by_name
        if split:
            splits.setdefault(split, []).append(file)
    return {name: splits[name] for name in ("train", "validation", "test") if name in splits}


def _split_folder(folder: Path, file: Any) -> str | None:
    """The split that a folder between the two says."""
    if isinstance(file, RemoteFile):
        inside = file.inside
    else:
        inside = file.relative_to(folder).parts[:-1] if file.is_relative_to(folder) else ()
    return next(filter(None, map(folder_split, inside)), None)


IMAGE = "an image"
MOST = 1 << 16  # bytes of a beginning

_FORMS = {
    rb"PK(\x03\x04|\x05\x06)": "a zip archive", rb"\x1f\x8b\x08[\x00-\x1f]": "packed with gzip",
    rb"\xfd7zXZ\x00": "packed with xz", rb"BZh[1-9]1AY&SY": "packed with bzip2", rb"\x28\xb5\x2f\xfd": "packed with zstd",
    rb"7z\xbc\xaf\x27\x1c": "a 7z archive", rb"\x7fELF": "a program", rb"MZ\x90\x00": "a program",
    rb"\x89PNG": IMAGE, rb"\xff\xd8\xff[\xdb-\xfe]": IMAGE, rb"GIF8[79]a": IMAGE,
    rb"RIFF.{4}WEBP": IMAGE, rb"%PDF-": "a document", rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "a document",
    rb"PAR1": "a parquet file", rb"ARROW1": "an arrow file", rb"\x89HDF": "an HDF5 file", rb"SQLite format": "a database",
    rb"\x80[\x02-\x05][\x95}\](c]": "a pickle", rb".{8}\{\"": "a safetensors file",
}  # fmt: skip


def form_of(begin: bytes) -> str:
    """Return the form of a file by its first bytes, e.g. IMAGE; "" where it is none of those known."""
    return next((form for pattern, form in _FORMS.items() if re.match(pattern, begin, re.S)), "")


def is_text(begin: bytes) -> bool:
    """Return True where the first `MOST` bytes of a file, or all of a shorter one, are UTF-8 without a NUL, and no PDF.

    >>> is_text("Käse".encode()), is_text("Käse".encode("latin-1")), is_text("text".encode("utf-16"))
    (True, False, False)
    """
    if b"\0" in begin or begin.startswith(b"%PDF-"):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(begin, final=len(begin) < MOST)
    except UnicodeDecodeError:
        return False
    return True
