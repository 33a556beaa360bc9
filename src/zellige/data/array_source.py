"""Data set of one shape before it is cut, resized and flattened; where its files are; how it is cut."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import InputError
from ..base.requests import Progress
from . import file_names, readers, unpack
from .catalogue import DATASETS, SPLITS, Source, fetch, own_split

if TYPE_CHECKING:
    from .corpus import Data
    from .tokenizer_base import Tokenizer


@dataclass(frozen=True)
class Context:
    """What a reader may need beside the `Data`.

    Attributes:
        cache: folder of downloads and of what was made of them.
        length: of a row, where the run says it.
        tokenizer: of the model that the data is read for, where there is one already.
        progress: called with (bytes done, in all).
    """

    cache: Path
    length: int | None = None
    tokenizer: "Tokenizer | None" = None
    progress: Progress | None = None

    def fetch(self, where: tuple[str, str | None]) -> Path:
        """The downloaded file of an address with its checksum."""
        return fetch(*where, self.cache, self.progress)


@dataclass(frozen=True)
class Raw:
    """A data set as it was found.

    Attributes:
        splits: (N, *shape) whole numbers below `size`, "all" is still to be cut. What is cut may be made where it is read: not an
            array, but with a length, a `size` and slices of its tokens in a line.
        levels: the levels of images where `data.levels` is not given; 0 as many as they have.
        tokenizer: where it is not `Levels` of this kind, unit, order and labels.
        characters: of some rows, where a position is a character.
        clues: split -> (N, L) puzzle of each row, -1 where a cell is free.
        classes: split -> (N,) the label of each row, 0, 1, ..., where `data.labels` asks for them.
        names: what the classes are called; the catalogue's names, or the numbers, if it is empty.
        cut: the splits are as `data` asks for already.
        pixels: the file of the cache that the images lie in, the splits one after another, in the size and the levels
            that `data` asks for; None: they are in memory, and as they were found.
        about: where it came from ("sha256", "files", "addresses") and what was done ("protocol").
    """

    splits: dict[str, np.ndarray]
    size: int
    kind: str = "image"
    unit: str = "dim"
    ordered: bool = True
    labels: Sequence[int] = ()
    levels: int = 0
    tokenizer: Any = None
    characters: Callable[[np.ndarray], int] | None = None
    clues: dict[str, np.ndarray] = field(default_factory=dict)
    classes: dict[str, np.ndarray] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    cut: bool = False
    pixels: Path | None = None
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one row."""
        return next(iter(self.splits.values())).shape[1:]


def locate_files(
    data: "Data", context: Context, files_of_entry: dict[str, tuple[str, str | None]] | None = None
) -> tuple[dict[str, Path], dict[str, Any]]:
    """The published files by split, downloaded or from the folder (the file) `data.path`, and what is known of them.

    files_of_entry: others than the catalogue's `files`: its labels.
    """
    files_of_entry = DATASETS[data.name].files if files_of_entry is None else files_of_entry
    if not data.path:
        if not files_of_entry:
            raise InputError(f"the data set {data.name} needs a file; give it by `data.path`")
        files = {split: context.fetch(where) for split, where in files_of_entry.items()}
        return files, {"addresses": {split: where[0] for split, where in files_of_entry.items()}} | sums(files)
    path = Path(data.path).expanduser()
    if not path.is_dir():
        files = {"all": file_names.find_files(data.path)[0]}
        return files, sums(files)
    if not files_of_entry:
        raise InputError(f"'{data.path}' is a folder; the data set {data.name} needs a file of it")
    files = {}
    for split, (address, _) in files_of_entry.items():
        name = address.rpartition("/")[2]
        candidates = (path / n for n in (name, f"{name}.xz", name.removesuffix(".gz")) if (path / n).is_file())
        file = next(candidates, None)
        if file is None:
            raise InputError(f"no '{name}' in folder '{data.path}'; give the folder that holds the published files")
        files[split] = file
    return files, sums(files)


def read_lines(data: "Data", context: Context) -> tuple[list[str], dict[str, Any]]:
    """The texts of a .csv's column (or of `data.field`), or the lines of a plain file; and what is known of the files."""
    files, about = locate_files(data, context)
    file_names.require_columns(data.field, [*files.values()])
    form = lines_format(data)
    lines = [text.strip() for path in files.values() for text, _ in readers.read_pieces(path, form)]
    if not lines:
        raise InputError(f"'{data.path}' holds no rows; give a .csv with the column {form.fields[0]}")
    return lines, about


def lines_format(data: "Data") -> readers.Format:
    """Where the texts of `read_lines` stand."""
    return readers.Format((data.field,) if data.field else DATASETS[data.name].fields, documents="line")


def encoded(tokenizer: "Tokenizer", text: str) -> np.ndarray:
    """(N, *shape) the tokens of texts that each fill a row, one after another."""
    return tokenizer.encode_pieces([text])[0].astype(np.uint8).reshape(-1, *tokenizer.shape)


def sums(files: dict[str, Path]) -> dict[str, Any]:
    """The checksum of the files, and where they are."""
    digest = {split: unpack.digest_files([path], lambda count: None) for split, path in files.items()}
    return {"sha256": digest.get("all", digest), "files": [str(path) for path in files.values()]}


def tell(data: "Data") -> str:
    return f"'{data.path}'" if data.path else data.name


def least_rows(share: float) -> int:
    """The fewest rows of which a share comes to one.

    >>> least_rows(0.05), least_rows(0.1)
    (11, 6)
    """
    rows = int(0.5 / share)
    return rows if round(rows * share) else rows + 1


def cut_splits(splits: dict[str, np.ndarray], data: "Data", entry: Source) -> dict[str, np.ndarray]:
    """Train, validation and test: what is published stays; what is missing is cut off the end, in order.

    "all" gives validation and test; a train split without a validation split gives that.
    """
    splits = dict(splits)
    shares: dict[str, Any] = {"validation": data.validation, "test": data.test}
    shares = {name: getattr(entry, name) if share is None else share for name, share in shares.items()}
    for name in ("test", "validation"):
        own_split(name in splits, getattr(data, name), name, tell(data))
        source = "all" if "all" in splits else "train"
        if name in splits or source not in splits or (source == "train" and name == "test"):
            continue
        rows = splits[source]
        total = sum(map(len, splits.values())) if source == "all" else len(rows)  # shares are of the whole
        take = round(shares[name] if shares[name] >= 1 else shares[name] * total)
        if take >= len(rows):
            raise InputError(
                f"{tell(data)} has {total:,} rows, the {name} split would take {take:,}; "
                "set `data.validation` and `data.test` lower"
            )
        if not take and shares[name] and name == "validation":
            raise InputError(
                f"{tell(data)} has {total:,} rows, and {shares[name]:g} of them for the validation split is none; "
                f"give {least_rows(shares[name])} or more, or `data.validation` 1"
            )
        if take:
            splits[source], splits[name] = rows[:-take], rows[-take:]
    if "all" in splits:
        splits["train"] = splits.pop("all")
    return {name: splits[name] for name in SPLITS if name in splits}
