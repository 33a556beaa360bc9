"""Files to pieces of text: plain, .jsonl, .csv, .parquet and .arrow, also in .gz, .bz2, .xz, .zst and .zip; in constant memory.

A piece is (text, ends): part of a document and whether the document ends with it. Plain text comes in blocks of about
a megabyte; .jsonl, .csv, .parquet and .arrow give one document a row. With `raw` the text is the bytes, one
latin-1 character each.
"""

import bz2
import codecs
import csv
import difflib
import glob
import gzip
import hashlib
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..errors import InputError, nearest
from ..schema import parse

Piece = tuple[str, bool]
BLOCK = 1 << 20
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
ROWS = (".jsonl", ".csv", ".parquet", ".arrow")
KINDS = (".txt", ".text", ".md", ".rst", ".tokens", ".raw", *ROWS)
csv.field_size_limit(1 << 30)


def find_files(path: str) -> list[Path]:
    """The files that `path` (a file, a folder or a glob) names, in order of their names."""
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
    there = folder.rglob("*") if path and folder.is_dir() else ()
    return sorted({f for f in there if f.is_file() and not f.name.startswith(".")} - {*files})


def kind(path: Path) -> str:
    """The suffix that says how to read it: '.jsonl' for 'a.jsonl.gz'."""
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
        return suffixes[-1] if suffixes and suffixes[-1] in KINDS else ".txt"
    return suffixes[-1] if suffixes else ""


def is_documents(path: Path) -> bool:
    """Whether the file gives documents (`ROWS`) and not one running text."""
    return kind(path) in ROWS


def require_columns(field: str | None, files: list[Path]) -> None:
    """InputError where a field is asked for of files that have none."""
    text_file = next((path for path in files if not is_documents(path)), None)
    if field and text_file:
        raise InputError(f"`data.field` has no effect on '{text_file}', which is plain text; leave it out")


NAMES = {
    "train": "train", "training": "train", "valid": "validation", "validation": "validation", "val": "validation",
    "dev": "validation", "test": "test",
}  # fmt: skip


def split_of(path: Path) -> str | None:
    """The split that a published file's name tells: 'wiki.valid.tokens' -> validation."""
    words = set(re.split(r"[^a-z]+", path.name.lower()))
    splits = {NAMES[w] for w in words & set(NAMES)}
    return splits.pop() if len(splits) == 1 else None


def own_splits(folder: Path, files: list[Path]) -> dict[str, list[Path]]:
    """One's own files by split, where their names or their subfolders say it; {} where they do not.

    train.txt, my.valid.jsonl, test-00000-of-00004.parquet, train/a.txt; "train journey.txt" is a text like any other. There must
    be a train split and another.
    """
    splits: dict[str, list[Path]] = {}
    for file in files:
        inside = file.relative_to(folder).parts[:-1] if file.is_relative_to(folder) else ()
        stem = file.name.partition(kind(file))[0] if kind(file) else file.name
        named = re.fullmatch(rf"(?:\S*[._-])?({'|'.join(NAMES)})(?:[._-]?\d\S*)?", stem.lower())
        word = next((part.lower() for part in inside if part.lower() in NAMES), named and named[1])
        if word:
            splits.setdefault(NAMES[word], []).append(file)
    return (
        {name: splits[name] for name in ("train", "validation", "test") if name in splits}
        if ("train" in splits and len(splits) > 1)
        else {}
    )


class _Counted(io.RawIOBase):
    """A file that reports how many of its bytes have been read (for the progress of compressed files)."""

    def __init__(self, inner: IO[bytes], report: Callable[[int], None]):
        self.inner, self.report = inner, report

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.inner.seek(offset, whence)

    def tell(self) -> int:
        return self.inner.tell()

    def readinto(self, buffer) -> int:
        block = self.inner.read(len(buffer))
        buffer[: len(block)] = block
        self.report(len(block))
        return len(block)

    def close(self) -> None:
        self.inner.close()
        super().close()


def digest_files(files: list[Path], report: Callable[[int], None]) -> str:
    """sha256 of one file as it stands on disk, or of the list of the files' sums and names."""
    sums = []
    for path in files:
        one = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                one.update(block)
                report(len(block))
        sums.append(one.hexdigest())
    if len(sums) == 1:
        return sums[0]
    return hashlib.sha256("".join(f"{s}  {p.name}\n" for s, p in zip(sums, files)).encode()).hexdigest()


def _open(path: Path, report: Callable[[int], None]) -> IO[bytes]:
    file = io.BufferedReader(_Counted(path.open("rb"), report), BLOCK)  # pyright: ignore[reportArgumentType]
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return gzip.open(file, "rb")  # pyright: ignore[reportReturnType]
    if suffix == ".bz2":
        return bz2.open(file, "rb")
    if suffix == ".xz":
        return lzma.open(file, "rb")
    if suffix == ".zst":
        packed = _arrow(path).CompressedInputStream(file, "zstd")
        return io.BufferedReader(packed, BLOCK)  # pyright: ignore[reportReturnType]
    if suffix == ".zip":
        archive = zipfile.ZipFile(file)
        inside = [m for m in archive.infolist() if not m.is_dir() and not re.search(r"(^|/)(\.|__MACOSX/)", m.filename)]
        if len(inside) != 1:
            raise InputError(
                f"'{path}' holds {len(inside):,} files, a .zip is read with one; unpack it, give the folder"
            )
        return archive.open(inside[0])
    return file


@dataclass(frozen=True)
class Format:
    """How to read the files: the text's columns, a .csv's header where it has none, lines as documents, bytes as text."""

    fields: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    lines: bool = False
    raw: bool = False


def read_pieces(path: Path, form: Format, report: Callable[[int], None] = lambda count: None) -> Iterator[Piece]:
    """The pieces of one file; report(bytes read since) is called as it goes."""
    with _opened(path, report) as file:
        if kind(path) == ".jsonl":
            yield from _documents(_json_lines(path, file), path, form)
        elif kind(path) == ".csv":
            yield from _documents(_csv_rows(path, file, form.columns), path, form)
        elif kind(path) in (".parquet", ".arrow"):
            yield from _documents(_columns(path, file, form.fields), path, form)
        elif form.lines:
            yield from _lines(_text(path, file, form.raw))
        else:
            yield from _ended(_text(path, file, form.raw))


def read_labels(path: Path, form: Format, label: str) -> Iterator[str]:
    """The column `label` beside each text that `read_pieces` gives."""
    if not is_documents(path):
        raise InputError(
            f"'{path}' is text without a column '{label}'; give .jsonl, .csv or .parquet, or no `data.labels`"
        )
    with _opened(path, lambda count: None) as file:
        records = (
            _json_lines(path, file) if kind(path) == ".jsonl"
            else _csv_rows(path, file, form.columns) if kind(path) == ".csv"
            else _columns(path, file, (label, *form.fields) if form.fields else (label, "text"))
        )  # fmt: skip
        fields = form.fields
        for number, record in records:
            fields = fields or _guess(record)
            if label not in record:
                names = ", ".join(record)
                raise InputError(
                    f"no column '{label}' in line {number:,} of '{path}' ({names}); leave out `data.labels`"
                )
            if " ".join(record[name] for name in fields):
                yield str(record[label])


def read_bytes(path: Path) -> bytes:
    """All bytes of a file, unpacked."""
    with _opened(path, lambda count: None) as file:
        return file.read()


@contextmanager
def _opened(path: Path, report: Callable[[int], None]) -> Iterator[IO[bytes]]:
    try:
        with _open(path, report) as file:
            yield file
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, gzip.BadGzipFile) as problem:
        raise InputError(f"'{path}' is damaged ({problem}); copy or download it again") from None
    except (PermissionError, IsADirectoryError) as problem:
        raise InputError(f"'{path}' cannot be read ({problem.strerror}); give a readable file") from None
    except OSError as problem:
        if problem.errno is not None:  # of the disk, and not of what is on it
            raise
        raise InputError(f"'{path}' is damaged ({problem}); copy or download it again") from None


def _not_text(path: Path, byte: int, at: int) -> InputError:
    return InputError(f"'{path}' is not UTF-8 (byte 0x{byte:02x} at {at:,}); convert it, or use `data.tokenizer` bytes")


def _text(path: Path, file: IO[bytes], raw: bool) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("latin-1" if raw else "utf-8")()
    start = 0  # of the block, in the unpacked file
    while True:
        held = len(decoder.getstate()[0])  # bytes of a character that the block before began
        block = file.read(BLOCK)
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as problem:
            raise _not_text(path, problem.object[problem.start], start - held + problem.start) from None
        if start == 0 and not raw:
            text = text.removeprefix("\ufeff")
        start += len(block)
        if text:
            yield text
        if not block:
            return


def _ended(blocks: Iterator[str]) -> Iterator[Piece]:
    before = None
    for text in blocks:
        if before is not None:
            yield before, False
        before = text
    if before is not None:
        yield before, True


def _lines(blocks: Iterator[str]) -> Iterator[Piece]:
    rest = ""
    for text in blocks:
        *whole, rest = (rest + text).split("\n")
        for line in whole:
            if line.strip():
                yield line.rstrip("\r"), True
    if rest.strip():
        yield rest.rstrip("\r"), True


def _json_lines(path: Path, file: IO[bytes]) -> Iterator[tuple[int, dict]]:
    at = 0
    for number, line in enumerate(file, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as problem:
            raise _not_text(path, line[problem.start], at + problem.start) from None
        at += len(line)
        if not text.strip():
            continue
        record = parse(text, f"line {number:,} of '{path}'", "one object a line")
        if not isinstance(record, dict):
            raise InputError(f"line {number:,} of '{path}' is not an object; one object a line, e.g. {{\"text\": ...}}")
        yield number, record


def _csv_rows(path: Path, file: IO[bytes], columns: tuple[str, ...]) -> Iterator[tuple[int, dict]]:
    def lines() -> Iterator[str]:
        at = 0
        for line in file:
            try:
                yield line.decode("utf-8-sig" if at == 0 else "utf-8")
            except UnicodeDecodeError as problem:
                raise _not_text(path, line[problem.start], at + problem.start) from None
            at += len(line)

    rows = csv.reader(lines())
    header = columns or tuple(next(rows, ()))
    for row in rows:
        if row:
            yield 1 if not columns else rows.line_num, dict(zip(header, row))


def _columns(path: Path, file: IO[bytes], fields: tuple[str, ...]) -> Iterator[tuple[int, dict]]:
    """The rows of a .parquet or .arrow, with the columns asked for if they are all there, else with all of them."""
    arrow = _arrow(path)
    try:
        if kind(path) == ".parquet":
            from pyarrow import parquet  # pyright: ignore[reportMissingImports]

            table = parquet.ParquetFile(file)
            names = table.schema_arrow.names
            wanted = fields or _guess(dict.fromkeys(names))
            batches = table.iter_batches(1024, columns=[*wanted] if {*wanted} <= {*names} else None)
        else:
            head = file.read(6)
            file.seek(0)
            table = arrow.ipc.open_file(file) if head == b"ARROW1" else arrow.ipc.open_stream(file)
            batches = (table.get_batch(i) for i in range(table.num_record_batches)) if head == b"ARROW1" else table
        number = 0
        for batch in batches:
            for record in batch.to_pylist():
                number += 1
                yield number, record
    except (arrow.ArrowException, OSError) as problem:
        reason = (str(problem).splitlines() or [""])[0][:120].rstrip(".")
        raise InputError(f"'{path}' is damaged ({reason}); copy or download it again") from None


def _arrow(path: Path) -> Any:
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.ipc  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError(f"'{path}' needs 'pyarrow' to be read; pip install pyarrow") from None
    return pyarrow


def _documents(records: Iterator[tuple[int, dict]], path: Path, form: Format) -> Iterator[Piece]:
    fields = form.fields
    for number, record in records:
        fields = fields or _guess(record)
        missing = next((name for name in fields if name not in record), None)
        if missing is not None:
            texts = [name for name, value in record.items() if isinstance(value, str)]
            use = nearest(missing, texts) or next(iter(texts), "text")
            raise InputError(
                f"field '{missing}' is not in line {number:,} of '{path}' (fields: {', '.join(record)}); use `data.field` {use}"
            )
        values = [record[name] for name in fields]
        if not all(isinstance(value, str) for value in values):
            raise InputError(f"field '{fields[0]}' in line {number:,} of '{path}' is not a text; use `data.field`")
        text = " ".join(values)
        try:
            text.encode()
        except UnicodeEncodeError:  # JSON may hold half a surrogate pair
            text = re.sub("[\ud800-\udfff]", "\ufffd", text)
        if text:
            yield (text.encode().decode("latin-1") if form.raw else text), True


def _guess(record: dict) -> tuple[str, ...]:
    return tuple(record) if len(record) == 1 else ("text",)
