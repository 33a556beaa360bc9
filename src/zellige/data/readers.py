"""Files to pieces of text: plain, FASTA, .jsonl, .json, .csv, .tsv, .parquet and .arrow, also in .gz, .bz2, .xz, .zst
and .zip; in constant memory, but for a list in a .json.

A piece is (text, ends): part of a document and whether the document ends with it. Plain text comes in blocks of about
a megabyte, or as documents, which `<|endoftext|>` ends; .jsonl, .csv, .tsv, .parquet, .arrow and a .json with a list of
records give one document a record, FASTA one a sequence. A conversation, or a prompt with its answer, is one text
(`records`). With `raw` the text is the bytes, one latin-1 character each.
"""

import codecs
import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import IO, Any

from ..base.errors import InputError, nearest
from ..base.schema import parse
from . import records
from .file_names import FASTA, IMAGE, form_of, is_documents, kind, require_label
from .unpack import BLOCK, Readable, arrow_library, of_rows, opened

MARK = "<|endoftext|>"  # ends a document in a file
Piece = tuple[str, bool]
LINE = 1 << 26  # characters, or bytes, of a line that is held as a whole, at most
csv.field_size_limit(LINE)
LIST = 1 << 30  # bytes of a list in a .json, at most
LOOKED_AT = 200  # rows by which a column is chosen
LINES = 10_000  # of a sequence, given at once
TAIL = 1 << 12  # characters of a long document that wait for the next block, as what ends it may begin in them
SEARCHED = 1 << 24  # bytes of a file that are searched for a mark
GAPS, OF_BLOCK = 5, 50  # blank lines that divide documents, at least; lines between two of them, at most in the mean
OF_FILES = 10  # files from which each is a document

_END = r"<\|endoftext\|>[\r\n]*"  # line ends before it are stripped: looked for here, a run of n took n^2
SIGNS = {  # what ends a document of plain text, beside the end of a file
    "mark": re.compile(_END),
    "file": re.compile(_END),
    "line": re.compile(rf"{_END}|\n"),
    "blank": re.compile(rf"{_END}|\n(?:[ \t\r]*\n)+"),
}
DIVIDED = {
    "mark": f"divided by {MARK}",
    "file": "a file each",
    "line": "a line each",
    "blank": "divided by blank lines",
}


@dataclass(frozen=True)
class Format:
    """Format of the files: the text's columns, whether a .csv has a header, what is a document of plain text (a key of
    `SIGNS`; "" where it is one running text), bytes as text."""

    fields: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    documents: str = ""
    raw: bool = False


def read_pieces(path: Readable, form: Format, report: Callable[[int], None] = lambda count: None) -> Iterator[Piece]:
    """The pieces of one file; report(bytes read since) is called as it goes."""
    with opened(path, report) as file:
        if is_documents(path, form.fields):
            yield from _documents(_records(path, file, form), path, form)
        elif kind(path) in FASTA:
            yield from _sequences(path, _text(path, file, form.raw))
        elif form.documents:
            yield from _divided(path, _text(path, file, form.raw), form.documents)
        else:
            yield from _ended(_text(path, file, form.raw))


def _records(path: Readable, file: IO[bytes], form: Format) -> Iterator[tuple[int, dict]]:
    """The rows of a file that has columns, each with the number of its line."""
    if kind(path) in (".jsonl", ".json"):
        return _json_records(path, file)
    if kind(path) in (".csv", ".tsv"):
        return _csv_rows(path, file, form.columns)
    return _columns(path, file, form.fields)


def read_records(path: Readable) -> Iterator[tuple[str, dict]]:
    """The records of a file, each with what to call it in an error: "line 3 of 'chat.jsonl'"."""
    with opened(path, lambda count: None) as file:
        for number, record in _records(path, file, Format(fields=("",))):  # no such column: all of them
            yield _where(path, number), record


def first_record(path: Readable) -> dict:
    """The first record of a file; {} where it holds none, or is a running text."""
    if not is_documents(path):
        return {}
    return next((record for _, record in read_records(path)), {})


def _where(path: Readable, number: int) -> str:
    return f"{'record' if kind(path) == '.json' else 'line'} {number:,} of '{path}'"


def _columns_at(path: Readable, number: int) -> str:
    """Where the names of a record's columns stand."""
    return f"the header of '{path}'" if kind(path) in (".csv", ".tsv") else _where(path, number)


def read_labels(path: Readable, form: Format, label: str) -> Iterator[str]:
    """The column `label` beside each text that `read_pieces` gives."""
    require_label(label, [path], form.fields)
    with opened(path, lambda count: None) as file:
        fields = form.fields
        for number, record in _records(path, file, replace(form, fields=(label, *(fields or ("text",))))):
            if label not in record:
                names = ", ".join(record)
                where = _columns_at(path, number)
                raise InputError(f"no column '{label}' in {where} ({names}); leave out `data.labels`")
            fields = fields or _guess(record)
            if _text_of(record, fields, path, number):
                yield _label_of(record[label], label, _where(path, number))


def _label_of(value: Any, label: str, where: str) -> str:
    """A class as a word; a whole number is one however it is written."""
    if value in (None, "") or value != value or isinstance(value, (list, dict)):
        raise InputError(f"{where} has no label; write a word or a number as its '{label}', or leave the text out")
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def text_column(path: Readable, form: Format) -> tuple[str, tuple[str, ...]] | None:
    """The column with the longest texts, by the mean of the first `LOOKED_AT` rows, and all columns.

    None where there is nothing to choose: there is a column `text`, a conversation, or one column alone.
    """
    with opened(path, lambda count: None) as file:
        rows = [record for _, record in islice(_records(path, file, form), LOOKED_AT)]
    names = tuple(dict.fromkeys(name for record in rows for name in record))
    if not rows or len(names) == 1 or "text" in names or records.is_conversation(rows[0]):
        return None
    lengths = {name: sum(len(value) for record in rows if isinstance(value := record.get(name), str)) for name in names}
    longest = max(names, key=lengths.__getitem__)
    if not lengths[longest]:
        raise InputError(f"no column of '{path}' holds text ({', '.join(names)}); give a file that has one")
    return longest, names


def _not_text(path: Readable, byte: int, at: int) -> InputError:
    with opened(path, lambda count: None) as file:
        form = form_of(file.read(4096))
    if form == IMAGE:
        return InputError(f"'{path}' is an image, and no text; a folder of .png and .jpg files is `data.name` images")
    if form:
        return InputError(f"'{path}' is {form}, and no text; save it as plain text, or use `data.tokenizer` bytes")
    return InputError(f"'{path}' is not UTF-8 (byte 0x{byte:02x} at {at:,}); convert it, or use `data.tokenizer` bytes")


def _text(path: Readable, file: IO[bytes], raw: bool) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("latin-1" if raw else "utf-8")()
    start = 0  # of the block, in the unpacked file
    while True:
        pending = len(decoder.getstate()[0])  # bytes of a character that the block before began
        block = file.read(BLOCK)
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as problem:
            raise _not_text(path, problem.object[problem.start], start - pending + problem.start) from None
        if start == 0 and not raw:
            if block.startswith(b"%PDF-"):  # many of them begin as UTF-8
                raise _not_text(path, block[0], 0)
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


def _divided(path: Readable, blocks: Iterator[str], documents: str) -> Iterator[Piece]:
    """The documents of a text without the line ends around them; blank ones are left out. A long one comes in parts."""
    pending, begun = "", False  # a part of the document has been given
    number, size = 1, 0  # of the lines, where they are documents
    for text in blocks:
        *whole, pending = SIGNS[documents].split(pending + text)
        for document in whole:
            if document.strip() or begun:
                yield (document if begun else document.lstrip("\r\n")).rstrip("\r\n"), True
            begun = False
        number, size = number + len(whole), (0 if whole else size) + len(text)
        if documents == "line":
            _refuse_long(path, number, size)
        if len(pending) > max(BLOCK, 2 * TAIL):
            part, pending = pending[:-TAIL], pending[-TAIL:]
            yield part if begun else part.lstrip("\r\n"), False
            begun = True
    if pending.strip() or begun:
        yield (pending if begun else pending.lstrip("\r\n")).rstrip("\r\n"), True


def documents_of(files: Sequence[Readable], wanted: bool) -> str:
    """What a document of plain files is, where their contents make it plain: a key of `SIGNS`.

    Args:
        wanted: whether there must be documents; else "" where no mark divides them, of one running text.
    """
    here = [path for path in files if isinstance(path, Path)]  # a remote file is not opened for it
    if any(map(_holds_mark, here[:LOOKED_AT])):
        return "mark"
    if not wanted or len(here) >= OF_FILES:
        return "file" if wanted else ""
    lines = gaps = 0
    for path in here:
        with opened(path, lambda count: None) as file:
            begin = file.read(BLOCK).decode("utf-8", "replace")
        blocks = [block for block in SIGNS["blank"].split(begin) if block.strip()]
        gaps += len(blocks) - 1
        lines += sum(bool(line.strip()) for line in begin.split("\n"))
    return "blank" if gaps >= GAPS and lines <= OF_BLOCK * gaps else "line"


def _holds_mark(path: Path) -> bool:
    """Return whether the mark is among the first bytes of a file."""
    mark, tail = MARK.encode(), b""
    with opened(path, lambda count: None) as file:
        for _ in range(SEARCHED // BLOCK):
            block = file.read(BLOCK)
            if mark in tail + block:
                return True
            if not block:
                return False
            tail = block[-len(mark) :]
    return False


def _refuse_long(path: Readable, number: int, size: int) -> None:
    """InputError for a line that is too long to be held as a whole."""
    if size > LINE:
        raise InputError(
            f"line {number:,} of '{path}' is longer than {LINE:,} characters, the most of a line; break it into several"
        )


def _byte_lines(path: Readable, file: IO[bytes], line: bytes = b"") -> Iterator[tuple[int, bytes]]:
    """The lines of a file, numbered from 1; `line`: the first, if it has been read."""
    number = 1
    while line := line or file.readline(LINE + 1):
        _refuse_long(path, number, len(line))
        yield number, line
        number, line = number + 1, b""


def _sequences(path: Readable, blocks: Iterator[str]) -> Iterator[Piece]:
    """The sequences of a FASTA file: what stands between two headers (`>...`) in one line;
    comments (`;...`) are left out."""
    buffer: list[str] = []
    header = False
    for line, _ in _divided(path, blocks, "line"):
        if line.startswith(">"):
            if buffer:
                yield "".join(buffer), True
            buffer, header = [], True
        elif not line.startswith(";"):
            if not header:
                raise InputError(
                    f"'{path}' does not begin with a header (>...), as FASTA does; give it the suffix .txt if it is "
                    "other text"
                )
            buffer.append("".join(line.split()))
            if len(buffer) == LINES:  # a chromosome is not held as a whole
                yield "".join(buffer[:-1]), False
                buffer = buffer[-1:]
    if buffer:
        yield "".join(buffer), True


def _json_records(path: Readable, file: IO[bytes]) -> Iterator[tuple[int, dict]]:
    """The objects of a file that has one a line, or all in a list."""
    begin = file.readline(LINE + 1)
    if begin.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
        yield from _json_list(path, begin + file.read(LIST + 1 - len(begin)))
        return
    at = 0
    for number, line in _byte_lines(path, file, begin):
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


def _json_list(path: Readable, content: bytes) -> Iterator[tuple[int, dict]]:
    """The objects of a list."""
    if len(content) > LIST:
        raise InputError(f"'{path}' is a list of more than {LIST:,} bytes; write one object a line (.jsonl)")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise _not_text(path, content[problem.start], problem.start) from None
    for number, record in enumerate(parse(text, f"'{path}'", "a list of objects, or one object a line"), 1):
        if not isinstance(record, dict):
            raise InputError(
                f"record {number:,} of '{path}' is not an object; give a list of objects, {{\"text\": ...}}"
            )
        yield number, record


def _csv_rows(path: Readable, file: IO[bytes], columns: tuple[str, ...]) -> Iterator[tuple[int, dict]]:
    usual = "\t" if kind(path) == ".tsv" else ","

    def lines() -> Iterator[str]:
        at = 0
        for _, line in _byte_lines(path, file):
            try:
                yield line.decode("utf-8-sig" if at == 0 else "utf-8")
            except UnicodeDecodeError as problem:
                raise _not_text(path, line[problem.start], at + problem.start) from None
            at += len(line)

    line_iterator = lines()
    head = next(line_iterator, "")
    header = re.sub(r'"[^"]*"', "", head)
    sign = usual if columns else max(",;\t", key=lambda sign: (header.count(sign), sign == usual))
    rows = csv.reader(chain([head], line_iterator), delimiter=sign)
    with of_rows(path):
        header = columns or tuple(next(rows, ()))
        for row in rows:
            if any(row[len(header) :]):
                raise InputError(
                    f"line {rows.line_num:,} of '{path}' has {len(row)} cells for {len(header)} "
                    f"column{'s' if len(header) != 1 else ''}; put a text that holds {sign!r} in quotation marks"
                )
            if row:
                yield rows.line_num, dict(zip_longest(header, row[: len(header)]))


def _columns(path: Readable, file: IO[bytes], fields: tuple[str, ...]) -> Iterator[tuple[int, dict]]:
    """The rows of a .parquet or .arrow, with the columns asked for if they are all there, else with all of them."""
    arrow = arrow_library(path)
    try:
        if kind(path) == ".parquet":
            from pyarrow import parquet  # pyright: ignore[reportMissingImports]

            table = parquet.ParquetFile(file)
            names = table.schema_arrow.names
            names_wanted = fields or ("text",)
            batches = table.iter_batches(1024, columns=[*names_wanted] if {*names_wanted} <= {*names} else None)
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


def _documents(rows: Iterator[tuple[int, dict]], path: Readable, form: Format) -> Iterator[Piece]:
    fields = form.fields
    for number, record in rows:
        fields = fields or _guess(record)
        text = _text_of(record, fields, path, number)
        try:
            text.encode()
        except UnicodeEncodeError:  # JSON may hold half a surrogate pair
            text = re.sub("[\ud800-\udfff]", "\ufffd", text)
        if text:
            yield (text.encode().decode("latin-1") if form.raw else text), True


def _guess(record: dict) -> tuple[str, ...]:
    """The field that holds the text, `text` or the only one; () where that is a conversation."""
    if "text" not in record and records.is_conversation(record):
        return ()
    return tuple(record) if len(record) == 1 else ("text",)


def _text_of(record: dict, fields: tuple[str, ...], path: Readable, number: int) -> str:
    """The text of a record: its `fields`, its conversation where there are none."""
    if not fields:
        from . import chat  # it needs NumPy, and this file is read by every command

        return chat.written(records.conversation(record, _where(path, number)))
    missing = next((name for name in fields if name not in record), None)
    if missing is not None:
        texts = [name for name, value in record.items() if isinstance(value, str)]
        use = nearest(missing, texts) or next(iter(texts), "text")
        where = _columns_at(path, number)
        raise InputError(f"field '{missing}' is not in {where} (fields: {', '.join(record)}); use `data.field` {use}")
    wrong = next((name for name in fields if not isinstance(record[name], str)), None)
    if wrong is not None:
        raise InputError(f"field '{wrong}' in {_where(path, number)} is not a text; use `data.field`")
    return " ".join(record[name] for name in fields)
