"""Files to pieces of text: plain, .jsonl, .csv, .parquet and .arrow, also in .gz, .bz2, .xz, .zst and .zip; in constant memory.

A piece is (text, ends): part of a document and whether the document ends with it. Plain text comes in blocks of about
a megabyte; .jsonl, .csv, .parquet and .arrow give one document a row. With `raw` the text is the bytes, one
latin-1 character each.
"""

import codecs
import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from ..errors import InputError, nearest
from ..schema import parse
from .file_names import is_documents, kind
from .unpack import BLOCK, Readable, arrow_library, opened

Piece = tuple[str, bool]
csv.field_size_limit(1 << 30)


@dataclass(frozen=True)
class Format:
    """How to read the files: the text's columns, a .csv's header where it has none, lines as documents, bytes as text."""

    fields: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    lines: bool = False
    raw: bool = False


def read_pieces(path: Readable, form: Format, report: Callable[[int], None] = lambda count: None) -> Iterator[Piece]:
    """The pieces of one file; report(bytes read since) is called as it goes."""
    with opened(path, report) as file:
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


def read_labels(path: Readable, form: Format, label: str) -> Iterator[str]:
    """The column `label` beside each text that `read_pieces` gives."""
    if not is_documents(path):
        raise InputError(
            f"'{path}' is text without a column '{label}'; give .jsonl, .csv or .parquet, or no `data.labels`"
        )
    with opened(path, lambda count: None) as file:
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


def _not_text(path: Readable, byte: int, at: int) -> InputError:
    return InputError(f"'{path}' is not UTF-8 (byte 0x{byte:02x} at {at:,}); convert it, or use `data.tokenizer` bytes")


def _text(path: Readable, file: IO[bytes], raw: bool) -> Iterator[str]:
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


def _json_lines(path: Readable, file: IO[bytes]) -> Iterator[tuple[int, dict]]:
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


def _csv_rows(path: Readable, file: IO[bytes], columns: tuple[str, ...]) -> Iterator[tuple[int, dict]]:
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


def _columns(path: Readable, file: IO[bytes], fields: tuple[str, ...]) -> Iterator[tuple[int, dict]]:
    """The rows of a .parquet or .arrow, with the columns asked for if they are all there, else with all of them."""
    arrow = arrow_library(path)
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


def _documents(records: Iterator[tuple[int, dict]], path: Readable, form: Format) -> Iterator[Piece]:
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
