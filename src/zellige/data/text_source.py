"""A source opened: its files found or fetched, its pieces read as often as wanted, its splits cut."""

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ..base.errors import InputError, not_installed, quoted
from ..base.requests import Progress
from ..base.schema import sha256
from . import catalogue, file_names, readers, remote, unpack
from .catalogue import DATASETS, SPLITS, Source, own_split
from .corpus import Data, OwnData
from .readers import Format, Piece
from .records import is_conversation
from .remote_files import RemoteFile
from .sums import Sums

Report = Callable[[int], None]


class Contents(NamedTuple):
    """Contents of a source: the characters (or documents) of each part; of all of it the characters, the spaces (a line
    end is one, too) and, where they were asked for, the different characters in order."""

    parts: dict[str, int]
    characters: int = 0
    spaces: int = 0
    symbols: str = ""


class TextSource:
    """A source whose files are found: its parts ("all", or the splits as published), read as often as wanted."""

    def __init__(self, data: Data, entry: Source, progress: Progress | None, sums: Sums | None = None):
        self.data, self.entry, self.progress, self.sums = data, entry, progress, sums
        self.tell = f"'{data.path}'" if data.path else data.name
        self.parts: dict[str, Callable[[Report], Iterator[Piece]]] = {}
        self.files: dict[str, list[Any]] = {}  # of the parts, where they are files
        self.form = Format()
        self.documents = self.several = False  # whether there are documents; several texts in memory, or in one file
        self.sequences = False  # whether all texts are sequences of FASTA
        self.divided = ""  # into documents: how, of plain text
        self.total = self._done = 0
        self._passes = 1
        self.identity: Callable[[], Any] = lambda: (
            None
        )  # what is read, as JSON; how it is read: `form`, `documents`, `cut`
        self.about: dict[str, Any] = {"name": data.name, "what": entry.what, "licence": entry.licence}

    @property
    def whole(self) -> str | None:
        """The part that other splits are cut off the end of: all of it,
        or one's own train split where another is missing."""
        incomplete = self.data.name == "text" and "train" in self.parts and not {*SPLITS} <= self.parts.keys()
        return "all" if "all" in self.parts else "train" if incomplete else None

    @property
    def cut(self) -> list[float] | None:
        """Parts cut off the end of `whole` as validation and test; None if all splits exist."""
        for split in self.parts.keys() - {"all", "train"} if self.whole else ("validation", "test"):
            own_split(True, getattr(self.data, split), split, self.tell)
        if self.whole is None:
            return None
        shares = {"validation": self.data.validation, "test": self.data.test}
        shares = {name: getattr(self.entry, name) if share is None else share for name, share in shares.items()}
        return [0.0 if name in self.parts else float(share) for name, share in shares.items()]

    def count_passes(self, passes: int) -> None:
        self._passes = passes

    def report(self, count: int) -> None:
        before, self._done = self._done, self._done + count
        step = max(1, self._passes * self.total // 500)
        if self.progress and self._done // step > before // step:
            self.progress(min(self._done // self._passes, self.total), self.total)

    def scan(self, alphabet: bool) -> Contents:
        """Go through all of it; `alphabet` asks for its symbols."""
        parts, symbols, characters, spaces = dict.fromkeys(self.parts, 0), set(), 0, 0
        for split, pieces in self.parts.items():
            for text, ends in pieces(self.report):
                parts[split] += ends if self.documents else len(text)
                characters += len(text)
                spaces += text.count(" ") + text.count("\n")
                if alphabet:
                    symbols.update(text)
        if not any(parts.values()):
            raise InputError(f"{self.tell} holds no characters; give a file with text, or `data.name` pydocs")
        if alphabet and (self.documents or self.several):
            symbols.add("\n")  # documents of characters need something between them
        return Contents(parts, characters, spaces, "".join(sorted(symbols)))

    def splits(self, ends: dict[str, int]) -> list[tuple[str, Iterator[Piece]]]:
        """(split, its pieces) in order; to be read in order, since a cut source is read once."""
        if not ends:
            return [(split, pieces(self.report)) for split, pieces in self.parts.items()]
        pieces = _Peekable(self.parts[self.whole or "all"](self.report))
        cut = [(split, pieces.until(end, self.documents)) for split, end in ends.items()]
        return cut + [
            (split, read_split(self.report)) for split, read_split in self.parts.items() if split != self.whole
        ]


class _Peekable:
    """Pieces dealt out up to a number of characters or documents, counted from the start."""

    def __init__(self, pieces: Iterator[Piece]):
        self.pieces, self.done = pieces, 0

    def until(self, end: int, documents: bool) -> Iterator[Piece]:
        while self.done < end:
            piece = next(self.pieces, None)
            if piece is None:
                return
            text, ends = piece
            take = len(text) if documents else min(len(text), end - self.done)
            self.done += ends if documents else take
            if take < len(text):
                self.pieces = chain([(text[take:], ends)], self.pieces)
                ends = False
            yield text[:take], ends


def boundaries(source: TextSource, counts: dict[str, int]) -> dict[str, int]:
    """End of each split: training, then validation, then test."""
    total, (validation, test) = counts[source.whole or "all"], source.cut or (0, 0)
    test = test if test >= 1 else test * total
    validation = validation if validation >= 1 else validation * total
    ends = {"train": round(total - validation - test), "validation": round(total - test), "test": total}
    if ends["train"] < 1:
        unit = "documents" if source.documents else "characters"
        raise InputError(
            f"{source.tell} has {total:,} {unit}, validation and test take {round(validation + test):,}; "
            "set `data.validation` and `data.test` lower"
        )
    return {name: end for name, end in ends.items() if {"validation": validation, "test": test}.get(name, 1) > 0}


def open_source(data: Data, cache: Path, raw: bool, progress: Progress | None, sums: Sums | None = None) -> TextSource:
    entry = DATASETS[data.name]
    source = TextSource(data, entry, progress, sums)
    fields = tuple(data.field.split("+")) if data.field else () if data.name == "text" else entry.fields
    documents = data.documents or ("" if data.pack == "wrap" else "line")
    source.form = form = Format(fields, entry.columns if not data.field else (), documents, raw)
    if data.name == "pydocs":
        _from_pydocs(source, form)
    elif isinstance(data, OwnData):
        _from_texts(source, data.values, bool(form.documents), raw)
    elif data.path:
        _from_files(source, _sort_files(data, entry), form)
    elif entry.files:
        downloads = {split: [catalogue.fetch(*where, cache, progress)] for split, where in entry.files.items()}
        source.about["addresses"] = {split: where[0] for split, where in entry.files.items()}
        _from_files(source, downloads, form)
    else:
        _from_hub(source, form, cache)
    return source


def _from_texts(source: TextSource, texts: Mapping[str, Sequence[str]], documents: bool, raw: bool) -> None:
    """Fill in a source that reads these texts: each a document,
    or one stream with what ends a document between them."""
    source.tell, source.documents = "the list of texts", documents
    source.several = max(map(len, texts.values()), default=0) > 1
    source.total = sum(len(text) for value in texts.values() for text in value)
    digest = hashlib.sha256()
    for split, value in texts.items():
        for text in (f"{split} {len(value)}", *value):
            try:
                digest.update(f"{len(text)} {text}".encode())
            except UnicodeEncodeError:
                raise InputError(f"{quoted(text[:20])} holds half of a surrogate pair; give texts of Unicode") from None
    source.about["sha256"] = digest.hexdigest()
    source.identity = lambda: source.about["sha256"]

    def pieces(value: Sequence[str]) -> Iterator[tuple[str, bool]]:
        for text in value:
            source.report(len(text))
            if text:
                yield (text.encode().decode("latin-1") if raw else text), True

    source.parts = {split: (lambda report, value=value: pieces(value)) for split, value in texts.items()}


def _from_pydocs(source: TextSource, form: Format) -> None:
    paragraphs = catalogue.pydocs()
    text = " ".join(paragraphs)
    sha = hashlib.sha256(text.encode()).hexdigest()
    source.total, source.documents = len(text), bool(form.documents)
    source.identity = lambda: sha
    source.about["sha256"] = sha

    def pieces(report: Report) -> Iterator[Piece]:
        for paragraph in paragraphs if form.documents else [text]:  # a-z and space: the same as bytes
            report(len(paragraph))
            yield paragraph, True

    source.parts = {"all": pieces}


def _sort_files(data: Data, entry: Source) -> dict[str, list[Any]]:
    """The files of `data.path` by split; "all" where the text is to be cut."""
    is_text = data.name == "text"
    files = _of_fields(data, file_names.find_files(data.path or "", unnamed=is_text))
    if is_text:
        paths = {"validation": data.validation, "test": data.test}
        paths = {
            split: _of_fields(data, file_names.find_files(path, unnamed=True))
            for split, path in paths.items()
            if isinstance(path, str)
        }
        if paths:
            return {"train": files} | paths
        return file_names.own_splits(Path(data.path or "").expanduser(), files) or {"all": files}
    if entry.cut:
        return {"all": files}
    sorted_files: dict[str, list[Any]] = {
        split: [f for f in files if file_names.split_of(f) == split] for split in SPLITS
    }
    sorted_files = {split: found for split, found in sorted_files.items() if found}
    if not sorted_files:
        raise InputError(
            f"'{data.path}' does not say which split of {data.name} it is; name it train, valid or test, or use "
            "`data.name` text"
        )
    return sorted_files


def _of_fields(data: Data, files: list[Any]) -> list[Any]:
    """Beside a field, of a folder those files that have fields, if any has; the others are named as left out."""
    if not data.field or not Path(data.path or "").expanduser().is_dir():
        return files
    return [f for f in files if file_names.is_documents(f, data.field.split("+"))] or files


def _from_files(source: TextSource, files: dict[str, list[Any]], form: Format) -> None:
    all_files = list(chain.from_iterable(files.values()))
    file_names.refuse_other_json(source.data.path, all_files, form.fields)
    file_names.require_columns(source.data.field, all_files)
    with_records = {f for f in all_files if file_names.is_documents(f, form.fields)}
    if source.data.labels:
        file_names.require_label(source.data.labels_by or source.entry.label, all_files, form.fields)
    source.total = sum(unpack.size_of(f) for f in all_files)
    if source.total == 0:
        raise InputError(f"{source.tell} holds no characters; give a file with text, or `data.name` pydocs")

    form = _with_documents(source, [f for f in all_files if f not in with_records], form)
    form = _with_column(source, [f for f in all_files if f in with_records], form)
    source.documents = bool(form.documents or with_records)
    fasta = [file_names.kind(f) in file_names.FASTA for f in all_files]
    source.several, source.sequences = any(fasta), all(fasta)

    def part(paths: list[Any]) -> Callable[[Report], Iterator[Piece]]:
        return lambda report: chain.from_iterable(readers.read_pieces(path, form, report) for path in paths)

    def identity() -> Any:
        of = source.sums.of if source.sums else sha256
        sums = {split: unpack.digest_files(paths, source.report, of) for split, paths in files.items()}
        remote = any(isinstance(f, RemoteFile) for f in all_files)
        source.about["states" if remote else "sha256"] = sums.get("all", sums)
        return sums, {split: [file_names.kind(path) for path in paths] for split, paths in files.items()}

    source.parts = {split: part(paths) for split, paths in files.items()}
    source.files, source.form = files, form
    if source.data.name == "text" and "train" in files:
        source.about["taken"] = _taken(source)
    source.identity = identity
    source.about["files"] = [str(f) for f in all_files][:100]
    if len({file_names.kind(f) for f in all_files}) > 1:
        source.about["read"] = [
            f"{len(all_files):,} files: {file_names.suffixes(all_files)}",
            *source.about.get("read", []),
        ]
    if source.data.name == "text" and "all" in files:
        named = file_names.named_splits(Path(source.data.path or "").expanduser(), all_files)
        if named:
            source.about["read"] = [
                *source.about.get("read", []),
                f"{file_names.named(named)}: named as splits, but most of the text is not; read as text like the "
                "others",
            ]
    if left_out := file_names.left_out(source.data.path, all_files):
        source.about["left_out"] = left_out


def _with_documents(source: TextSource, files: list[Any], form: Format) -> Format:
    """The form with what a document of these files is, which have no records."""
    data = source.data
    plain = [f for f in files if file_names.kind(f) not in file_names.FASTA]
    if data.documents and not plain:
        raise InputError(
            f"`data.documents` has no effect on {source.tell}, which has documents of its own; leave it out"
        )
    if data.name != "text" or not plain:
        return form if files else replace(form, documents="")
    documents = data.documents or readers.documents_of(plain, bool(form.documents))
    source.divided = readers.DIVIDED.get(documents, "")
    if documents in ("blank", "file") and not data.documents:
        source.divided += "; `data.documents` line makes each line one"
    return replace(form, documents=documents)


def _with_column(source: TextSource, files: list[Any], form: Format) -> Format:
    """The form with the column of `files`, of records, that holds the text, where none is named.
    No remote file is opened."""
    table_file = next((f for f in files if not isinstance(f, RemoteFile)), None)
    if table_file is None or source.data.name != "text" or form.fields:
        return form
    column = readers.text_column(table_file, form)
    if column is None:
        first = readers.first_record(table_file)
        if "text" not in first and is_conversation(first):
            source.about["read"] = ["each conversation, or prompt with its answer, as one text"]
        return form
    name, alternatives = column
    listing = ", ".join(column_name for column_name in alternatives if column_name != name)
    source.about["read"] = [f"column '{name}', the one with the longest texts; by `data.field` another ({listing})"]
    return replace(form, fields=(name,))


def _taken(source: TextSource) -> str:
    """Description of the user's splits and of the others."""
    user_splits, cut = ", ".join(source.parts), source.cut or []
    noun = "documents" if source.documents else "characters"
    remaining = [
        f"{split} is the last {share:.0%} of train"
        if share < 1
        else f"{split} is the last {share:,.0f} {noun} of train"
        for split, share in zip(("validation", "test"), cut)
        if share
    ]
    return "; ".join([f"splits of your own: {user_splits}", *remaining])


def load_hub(data: Data, hub: tuple[str, str | None, dict[str, str]], cache: Path) -> dict[str, Any]:
    """A data set of the Hugging Face hub: the rows of each split; of all that are published where `hub` names none."""
    try:
        import datasets  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise not_installed(f"`data.name` {data.name}", "datasets", "data") from None
    if not sys.stderr.isatty():  # its own bars are welcome on a terminal only
        getattr(datasets, "disable_progress_bars", lambda: None)()
    name, configuration, names = hub
    with remote.hub_silence() as silence:
        try:
            if not names:
                dataset: Any = datasets.load_dataset(name, configuration, cache_dir=str(cache / "hub"))
                return dict(dataset)
            return {
                split: datasets.load_dataset(name, configuration, split=hub_split, cache_dir=str(cache / "hub"))
                for split, hub_split in names.items()
            }
        except Exception as problem:
            if silence:
                sentence = f"'{name}' is not on this machine, and the Hugging Face hub cannot be reached ({silence})"
                raise remote.Unreachable(f"{sentence}; give local copies by `data.path`", silence) from None
            reason = (str(problem).splitlines() or [type(problem).__name__])[0][:120]
            raise InputError(f"cannot get '{name}' from the hub ({reason}); give local copies by `data.path`") from None


def _from_hub(source: TextSource, form: Format, cache: Path) -> None:
    entry, lines = source.entry, source.entry.lines and not form.documents  # a row a line of one text; or a document
    assert entry.hub is not None
    dataset, (name, configuration, _) = load_hub(source.data, entry.hub, cache), entry.hub
    for rows in dataset.values():
        missing = next((column for column in form.fields if len(rows) and column not in rows[0]), None)
        if missing is not None:
            columns = ", ".join(rows[0])
            raise InputError(f"field '{missing}' is not in '{name}' (fields: {columns}); give one by `data.field`")
    source.documents, source.form = not lines, replace(form, documents="")
    source.total = sum(len(rows) for rows in dataset.values())
    source.about |= {"hub": name, "configuration": configuration}

    def part(rows: Any) -> Callable[[Report], Iterator[Piece]]:
        def pieces(report: Report) -> Iterator[Piece]:
            for number, row in enumerate(rows, 1):
                text = " ".join(row[name] for name in form.fields)
                if lines:  # the hub empties the blank ones
                    text = text if text.endswith("\n") else text + " \n"
                report(1)
                if lines or text.strip():
                    yield (text.encode().decode("latin-1") if form.raw else text), not lines or number == len(rows)

        return pieces

    source.parts = {split: part(rows) for split, rows in dataset.items()}
    prints = [[split, len(rows), getattr(rows, "_fingerprint", "")] for split, rows in dataset.items()]
    source.about["fingerprints"] = prints
    source.identity = lambda: [name, configuration, prints]
