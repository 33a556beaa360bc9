"""From a choice of data to a corpus of rows: cleaned, split, tokenized, packed and cached."""

import dataclasses
import math
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.arguments import checked
from ..base.errors import InputError, at_least, not_installed, quoted, some
from ..base.requests import Progress
from . import catalogue, readers
from .catalogue import DATASETS
from .corpus import (
    NO_SEPARATOR,
    PACKS,
    Corpus,
    Data,
    OwnData,
    count_rows,
    describe_tokenizer,
    document_layout,
    fill_of,
    require_rows,
)
from .remote import installed
from .remote_files import is_remote
from .sums import Sums
from .text_source import Contents, TextSource, boundaries, open_source

if TYPE_CHECKING:
    import numpy as np

    from .rows import Rows
    from .tokenizer_base import Tokenizer

LIST, SHORT = 100, 20  # lines of a list at least; characters of its lines at most, in the mean


@checked
def prepare(
    data: Data,
    length: int | None = None,
    *,
    tokenizer: "Tokenizer | None" = None,
    progress: Progress | None = None,
    ends: int = 0,
) -> Corpus:
    """Read, split, tokenize and pack `data` into rows of `length` tokens.

    The tokens are kept in the cache, under a hash of what made them; the second time this only opens them.

    length: data that is not text has one of its own, and any other is an error; a text is cut into rows of it.
    tokenizer: that of a trained model, in place of the one that `data` names (to judge a model on another corpus).
    ends: what documents are filled up to where `data.fill` is not given, as a model needs it to learn where they end.
    progress(done, total) is called now and then, in bytes of the files (documents, of a hub's data set).

    Raises InputError where the source is missing, empty, too short, not text or not the tokenizer's.
    """
    _check(data)
    if length is not None:
        at_least("length", length, 1)
    if data.given:
        from . import given

        if given.Given.of(data.given).kind == "field" and length is not None:
            return given.prepare_pairs(data, length, tokenizer, ends)
        whole = prepare(data.replaced(given=""), length, tokenizer=tokenizer, progress=progress, ends=ends)
        return given.with_given(whole, data.given)
    if DATASETS[data.name].shaped:
        from . import arrays

        return arrays.prepare_arrays(data, length, tokenizer, progress)
    from .mix import prepare_mix

    _check_pack(data)
    if length is None:
        raise InputError("text is cut into rows; give prepare their length")
    if tokenizer is not None and tokenizer.shape:
        raise InputError(
            f"the run was trained on {tokenizer.describe()}, and this data is text; give data of that form"
        )
    if data.mix:
        return prepare_mix(data, length, tokenizer, progress, prepare, ends)
    if data.name == "tokens":
        from . import tokens as own

        return own.prepare_tokens(data, length, tokenizer, ends)
    from . import cache as store
    from . import tokenizer as tk
    from . import tokenizer_by_name
    from .folder import folder_key

    cache = catalogue.cache_folder(data.cache)
    spec = data.tokenizer or DATASETS[data.name].tokenizer
    learnt = tokenizer is None and tokenizer_by_name.is_learnt(spec)
    if tokenizer is None and not learnt:
        spec = {"bert-base-uncased": "google-bert/bert-base-uncased"}.get(spec, spec)
        tokenizer = tokenizer_by_name.named_tokenizer(
            spec, lambda address, checksum: catalogue.fetch(address, checksum, cache, progress)
        )
    sums = Sums(cache)
    source = open_source(data, cache, raw=tokenizer.raw if tokenizer else False, progress=progress, sums=sums)
    source.count_passes(2 + (source.cut is not None or learnt) + (learnt and spec != "characters"))
    folder = cache / "tokens" / folder_key(tokens_key(data, source, tokenizer.fingerprint if tokenizer else spec))
    meta, notes = None, ()
    try:
        meta = store.read_meta(folder, sums)
    except InputError as problem:
        notes = (f"{problem}; the tokens were made again from the text",)
    sums.keep()

    def rows(meta: dict[str, Any], folder: Path) -> "dict[str, Rows]":
        return _rows(meta, folder, data, length, tokenizer or tk.load(folder), source, ends)

    if meta is None:
        alphabet = learnt and tokenizer_by_name.subword_size(spec) is None
        contents = source.scan(alphabet) if source.cut is not None or learnt else Contents({})
        cuts = boundaries(source, contents.parts) if source.cut is not None else {}
        if tokenizer is None:
            size = tokenizer_by_name.entries(spec, contents.characters, contents.spaces)
            train = (text for text, _ in store.chunks(source.splits(cuts)[0][1]))
            subwords = tokenizer_by_name.train_subwords
            tokenizer = subwords(spec, size, train) if size else tk.Characters(contents.symbols)
        meta = store.write_tokens(
            folder, source.splits(cuts), tokenizer, documents=source.documents, of=source.tell, check=rows
        )
    tokenizer = tokenizer or tk.load(folder)
    labels, names = _document_labels(source, meta, data.labels_by) if data.labels else ({}, [])
    ready = _rows(meta, folder, data, length, tokenizer, source, ends, labels)
    if progress:
        progress(source.total, source.total)
    about = source.about | {
        "splits": {name: count_rows(r) for name, r in ready.items()},
        "tokenizer": describe_tokenizer(tokenizer),
        "pack": data.pack,
        "fill": 0 if data.pack == "wrap" else fill_of(data, tokenizer, ends),
        **_separator(tokenizer, source),
        "length": length,
        "dtype": meta["dtype"],
        "tokens_sha256": meta["sha256"],
    }
    about |= {"classes": names} if names else {}
    if source.sequences:
        sequences = sum(of.get("texts", 0) for of in meta["splits"].values())
        about["read"] = [
            *about.get("read", []),
            f"{sequences:,} sequence{'s' if sequences != 1 else ''} of FASTA, without headers",
        ]
    if source.divided:
        documents = sum(of.get("texts", 0) for of in meta["splits"].values())
        about["read"] = [*about.get("read", []), f"{documents:,} documents, {source.divided}"]
    return Corpus(tokenizer, ready, about, (*notes, *_short_lines(source, meta)))


def _short_lines(source: TextSource, meta: dict[str, Any]) -> tuple[str, ...]:
    """A note on a text of the user's that is a list: it has many lines, and they are short."""
    if source.data.name != "text" or source.documents or source.several or not source.files:
        return ()
    lines, characters = (sum(of.get(name, 0) for of in meta["splits"].values()) for name in ("lines", "characters"))
    if lines < LIST or characters > (SHORT + 1) * lines:
        return ()
    each = characters / lines - 1
    return (f"{lines:,} lines of about {each:.0f} characters; `data.pack` document makes each a text of its own",)


READING = 4  # raise it where the same files and choices are read to other tokens
RESOLVED = (
    "path",
    "mix",
    "field",
    "tokenizer",
    "pack",
    "documents",
    "validation",
    "test",
)  # in the key by what they come to
OF_ROWS = ("fill", "crop", "labels", "labels_by", "given", "cache")  # change no token of a text
OF_PAIRS = ("path", "tokenizer", "fill")  # read with `data.given` field; there each pair is a document


def tokens_key(data: Data, source: TextSource, tokenizer: str) -> dict[str, Any]:
    """All that decides the tokens of a text: every choice of the data but those that change no token, or are here
    otherwise: the files' contents and kinds, how they are read, where the splits are cut, and the tokenizer."""
    names = [option.name for option in dataclasses.fields(Data) if option.name not in (*RESOLVED, *OF_ROWS)]
    return {
        "reading": READING,
        "data": {name: getattr(data, name) for name in names},
        "source": source.identity(),
        "form": dataclasses.asdict(source.form),
        "documents": source.documents,
        "cut": source.cut,
        "tokenizer": tokenizer,
    }


def _check(data: Data) -> None:
    for name in ("path", "mix", "tokenizer", "cache"):
        if any(sign == "\0" or "\ud800" <= sign <= "\udfff" for sign in getattr(data, name) or ""):
            raise InputError(f"`data.{name}` is {quoted(getattr(data, name))}; it must be UTF-8, without a NUL")
    entry = DATASETS[data.name]
    for option in reversed(dataclasses.fields(Data)):  # `labels_by` before `labels`, which it sets
        anywhere = option.name in ("name", "validation", "test", "given", "cache")
        given = getattr(data, option.name) not in (option.default, 0)  # fill 0 is what data without documents has
        if given and not anywhere and option.name not in entry.reads:
            if option.name == "path":
                raise InputError(
                    f"`data.path` has no effect on {data.name}; to read your own files give `data.name` text"
                )
            reads = ", ".join(f"`data.{name}`" for name in entry.reads)
            raise InputError(f"`data.{option.name}` has no effect on {data.name}, which reads {reads}; leave it out")
        of_pairs = anywhere or option.name in OF_PAIRS or getattr(data, option.name) == "document"
        if given and data.given == "field" and not of_pairs:
            raise InputError(f"`data.{option.name}` has no effect beside `data.given` field; leave it out")
    conflict = next((name for name in ("path", "labels") if data.mix and getattr(data, name)), None)
    conflict = conflict or next(
        (n for n in ("validation", "test") if data.mix and isinstance(getattr(data, n), str)), None
    )
    if conflict:
        raise InputError(f"`data.{conflict}` is of one corpus, and `data.mix` names several; leave one of them out")
    if data.path and isinstance(data, OwnData):
        raise InputError(f"`data.path` '{data.path}' has no effect beside data that is handed over; leave it out")
    if data.pack not in PACKS:
        raise InputError(f"`data.pack` is '{data.pack}'; it must be wrap, document or packed")
    for option in ("fill", "vocabulary", "levels", "size", "augment"):
        if isinstance(value := getattr(data, option), int) and value < 0:
            raise InputError(f"`data.{option}` is {value}; it must be 0 or more")
    if isinstance(data.size, str):
        from .pixels import check_size

        check_size(data.size)
    if is_remote(data.path or "") and (entry.shaped or data.name == "tokens"):
        raise InputError(
            f"`data.path` is '{data.path}', and {data.name} is not read from a remote store, text alone is; copy the "
            "files here"
        )
    if data.fill and data.pack == "wrap" and data.given != "field":
        raise InputError(
            "`data.fill` ends documents, and `data.pack` wrap has none; use `data.pack` packed or document"
        )
    if data.crop and (data.pack != "wrap" or data.mix):
        conflict = "`data.mix`" if data.mix else f"`data.pack` {data.pack}"
        raise InputError(
            f"`data.crop` takes rows anywhere in one running text, and not beside {conflict}; leave it out"
        )
    if data.name == "text" and not (data.path or data.mix or isinstance(data, OwnData)):
        raise InputError("`data.name` text needs a file; give it by `data.path`")
    if data.kind not in ("", "image", "grid"):
        raise InputError(f"`data.kind` is '{data.kind}'; it must be image or grid")
    if entry.hub and not entry.files and not data.path and not installed("datasets"):
        raise not_installed(f"`data.name` {data.name}", "datasets", "data")
    for name, value in (("validation", data.validation), ("test", data.test)):
        if isinstance(value, str):
            if data.name != "text":
                raise InputError(f"`data.{name}` is '{value}'; for {data.name} it must be a share or a whole number")
        elif value is not None and not (0 <= value <= 1 or (1 < value < math.inf and value == int(value))):
            raise InputError(f"`data.{name}` is {value}; it must be a share below 1 or a whole number")


def _rows(
    meta: dict[str, Any],
    folder: Path,
    data: Data,
    length: int,
    tokenizer: "Tokenizer",
    source: TextSource,
    ends: int,
    labels: "Mapping[str, np.ndarray] | None" = None,
) -> "dict[str, Rows]":
    import numpy as np

    from .cache import count_characters, open_tokens
    from .losses import Losses, together
    from .rows import Rows

    starts = None if data.pack == "wrap" else np.load(folder / "documents.npy", mmap_mode="r")
    tokens_of, ready, tokens = open_tokens(folder, meta), {}, {}
    losses = {split: Losses.from_dict(of["losses"]) for split, of in meta["splits"].items()}
    kinds = together((of_split, 1) for of_split in losses.values()).kinds  # one unit for all splits
    for split, of in meta["splits"].items():
        start, stop = of["documents"]
        tokens[split] = of["stop"] - of["start"]
        ready[split] = Rows(
            tokens_of,
            length,
            start=of["start"],
            stop=of["stop"],
            characters=of["characters"],
            labels=(labels or {}).get(split),
            losses=dataclasses.replace(losses[split], kinds=kinds),
            **({} if starts is None else document_layout(data, np.asarray(starts[start : stop + 1]), tokenizer, ends)),
        )
        if starts is None and not kinds:  # exactly: less the characters of the tail that fills no row
            tail = ready[split].tail()
            tail = tail[tail != tokenizer.separator] if tokenizer.unit == "token" else tail
            ready[split].characters = of["characters"] - count_characters(tokenizer.decode(tail), tail, tokenizer)
    if not any(tokens.values()):
        raise InputError(f"{source.tell} holds no characters; give a file with text, or `data.name` pydocs")
    require_rows({split: len(r) for split, r in ready.items()}, tokens, length, source.tell)
    for split, copy_of in source.entry.same.items():
        if split not in ready and copy_of in ready:
            ready[split] = ready[copy_of]
    return ready


def _separator(tokenizer: "Tokenizer", source: TextSource) -> dict[str, str]:
    """Entries of `about`, as in NO_SEPARATOR."""
    files = len(source.about.get("files", [])) > 1
    separates = "documents" if source.documents else "texts" if source.several else "files" if files else ""
    if tokenizer.separator is None or not separates:
        return NO_SEPARATOR
    token = tokenizer.decode([tokenizer.separator])
    name = {"\n": "newline", " ": "space"}.get(token, token)
    where = "after each document" if source.documents else f"between {separates}"
    return {"separator": f"{name} {where}", "end": "space" if token == " " else "token", "separates": separates}


def _check_pack(data: Data) -> None:
    """InputError where a row may hold several documents, and so has no class."""
    if data.labels and data.pack != "document":
        raise InputError(
            f"`data.labels` is with `data.pack` {data.pack}; a row must be one document: `data.pack` document"
        )


def _document_labels(source: TextSource, meta: dict[str, Any], label: str) -> "tuple[dict[str, np.ndarray], list[str]]":
    """The label of each document, by split, and what the classes are called: the catalogue's names, or the values
    themselves.

    label: the column of the labels; that of the data set, if it is "".
    """
    import numpy as np

    entry = source.entry
    label = label or entry.label
    order = sorted(source.parts, key=lambda part: part != source.whole)  # as the documents were written
    values = list(
        chain.from_iterable(readers.read_labels(p, source.form, label) for o in order for p in source.files[o])
    )
    ranges = {split: of["documents"] for split, of in meta["splits"].items()}
    if len(values) != max(stop for _, stop in ranges.values()):
        raise InputError(f"{source.tell} has {len(values):,} labels and another number of documents; give one for each")
    start, stop = ranges.get("train", (0, len(values)))
    labels_found = {*values[start:stop]}
    numbers = [str(i + 1) for i in range(len(entry.classes))]  # published ones count from 1
    numbers = numbers or sorted(
        labels_found, key=lambda value: (len(value), value) if all(map(str.isdecimal, labels_found)) else value
    )
    number = {value: i for i, value in enumerate(numbers)}
    wrong = next((value for value in values if value not in number), None)
    if wrong is not None:
        raise InputError(
            f"{source.tell} has the label {quoted(wrong)}, which no training text has; there are {some(numbers)}"
        )
    labels = np.array([number[value] for value in values], np.int64)
    return {split: labels[start:stop] for split, (start, stop) in ranges.items()}, list(entry.classes or numbers)
