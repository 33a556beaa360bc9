"""`Data` says which corpus, `prepare` makes it ready: read, split, tokenized, packed."""

import dataclasses
import importlib.util
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..arguments import checked
from ..errors import InputError, at_least, quoted, unknown
from . import sources
from .opened import Opened, Progress, boundaries, open_source
from .sources import DATASETS, SPLITS

if TYPE_CHECKING:
    from .rows import Rows
    from .tokenizer import Tokenizer

REBUILT = "the tokens in the cache were damaged; they were made again from the text"
PACKS = ("wrap", "document", "packed")


@partial(checked, prefix="--data.")
@dataclass(frozen=True)
class Data:
    """Which corpus a model is trained or judged on.

    Attributes:
        name: a name of `zellige list data`; `text` for your own files, `tokens` and `array` for your own integers.
        path: for `text` and `tokens`, a file, a folder or a glob; beside a published name, local copies of its files.
        field: the field of a .jsonl, or the column of a .csv, that holds the text (several joined by +).
        tokenizer: characters, bytes, bpe:4096, gpt2, a tokenizer.json, a folder of vocabulary files or a hub id; empty
            for the data set's own.
        pack: `wrap` cuts one stream into rows; `document` puts one document (a line of plain text) in each, padded; `packed`
            as many as fit, which do not see each other. Documents longer than a row are cut into pieces.
        fill: of documents, fill each up with the token that ends it to a multiple of so many tokens; these count, so that the
            model learns where a text ends: the --block of bd3lm, the --net.length of methods without blocks. 0: it ends once.
        validation: what the validation split takes of a text that comes unsplit: a share, or from 1 up a number of
            characters (of documents, for .jsonl, .csv and other packs than wrap). 0.05 if the data set says nothing else. For
            `text` also a path like the first one, of the texts that it is.
        test: the same for the test split, which is the end of the text.
        vocabulary: for `tokens` and `array`, the number of different tokens.
        levels: of images, so many grey values in equal bins; 0 as many as they have.
        size: pixels a side of an image (means over areas), steps of a chorale (128), side of a sudoku (4, 9); 0 as they are.
        kind: for `array`, `image` (ordered levels) or `grid` (symbols without an order, the default).
        augment: for sudoku, random symmetric copies added for each training grid.
        cache: folder for downloads and tokens; ZELLIGE_CACHE or ~/.cache/zellige if not given.
    """

    name: str = "pydocs"
    path: str | None = None
    field: str | None = None
    tokenizer: str = ""
    pack: Literal["wrap", "document", "packed"] = "wrap"
    fill: int = 0
    validation: float | str | None = None
    test: float | str | None = None
    vocabulary: int = 0
    levels: int = 0
    size: int = 0
    kind: Literal["", "image", "grid"] = ""
    augment: int = 0
    cache: str | None = None

    @staticmethod
    @checked
    def of(tokens: Any, vocabulary: int, **choices: Any) -> "Data":
        """Own integers, a tensor or array: (N, L), one sequence a row, or (N,), one stream to be cut into rows.

        With more axes, or a `kind`, they are rows of that shape: `Data.of(images, 8, kind="image")`. A list of sequences of
        different length are documents: `Data.of(proteins, 20, pack="packed")`.
        The integers stay out of the configuration: a run that is resumed is given them again.
        """
        name = "array" if choices.get("kind") or getattr(tokens, "ndim", 0) > 2 else "tokens"
        data = Data(name=name, vocabulary=int(vocabulary), **choices)
        object.__setattr__(data, "_tokens", tokens)  # not a field: nothing that reads the fields sees it
        return data


@dataclass(frozen=True)
class Corpus:
    """A corpus ready to be trained on: `train`, `validation`, `test` are Rows; `about` goes into the run's configuration.

    notes: what happened that one should know of, sentences.
    """

    tokenizer: "Tokenizer"
    rows: "dict[str, Rows]"
    about: dict[str, Any]
    notes: tuple[str, ...] = ()

    def split(self, name: str) -> "Rows":
        """The rows of one split; InputError if the data set has no such split."""
        if name in self.rows:
            return self.rows[name]
        if name not in SPLITS:
            raise unknown("split", name, SPLITS, "train, validation, test")
        raise InputError(
            f"'{self.about['name']}' has no {name} split, only {', '.join(self.rows)}; use another data set"
        )

    @property
    def train(self) -> "Rows":
        return self.split("train")

    @property
    def validation(self) -> "Rows":
        return self.split("validation")

    @property
    def test(self) -> "Rows":
        return self.split("test")


@checked
def prepare(
    data: Data, length: int | None = None, *, tokenizer: "Tokenizer | None" = None, progress: Progress | None = None
) -> Corpus:
    """Read, split, tokenize and pack `data` into rows of `length` tokens.

    The tokens are kept in the cache, under a hash of what made them; the second time this only opens them.

    length: data that is not text has one of its own, and any other is an error; a text is cut into rows of it.
    tokenizer: that of a trained model, in place of the one that `data` names (to judge a model on another corpus).
    progress(done, total) is called now and then, in bytes of the files (documents, of a hub's data set).

    Raises InputError where the source is missing, empty, too short, not text or not the tokenizer's.
    """
    _check(data)
    if length is not None:
        at_least("length", length, 1)
    if DATASETS[data.name].shaped:
        from . import arrays

        return arrays.prepare(data, length, tokenizer, progress)
    if length is None:
        raise InputError("text is cut into rows; give prepare their length")
    if tokenizer is not None and tokenizer.shape:
        raise InputError(
            f"the run was trained on {tokenizer.describe()}, and this data is text; give data of that form"
        )
    if hasattr(data, "_tokens") or data.name == "tokens":
        from . import own

        return own.prepare(data, length, tokenizer)
    from . import named, store
    from . import tokenizer as tk

    cache = sources.cache_folder(data.cache)
    spec = data.tokenizer or DATASETS[data.name].tokenizer
    learnt = tokenizer is None and (spec == "characters" or named.bpe_size(spec) is not None)
    if tokenizer is None and not learnt:
        spec = {"bert-base-uncased": "google-bert/bert-base-uncased"}.get(spec, spec)
        tokenizer = named.build(spec, lambda address, checksum: sources.fetch(address, checksum, cache, progress))
    source = open_source(data, cache, raw=tokenizer.raw if tokenizer else False, progress=progress)
    source.count_passes(2 + (source.cut is not None or learnt) + (learnt and spec != "characters"))
    made_by = {
        "source": source.identity(),
        "tokenizer": tokenizer.fingerprint if tokenizer else spec,
        "cut": source.cut,
        "documents": source.documents,
    }
    folder = cache / "tokens" / store.key(made_by)
    meta = store.read_meta(folder)
    notes = (REBUILT,) if meta is None and folder.exists() else ()

    def rows(meta: dict[str, Any], folder: Path) -> "dict[str, Rows]":
        return _rows(meta, folder, data, length, tokenizer or tk.load(folder), source)

    if meta is None:
        counts, symbols = source.scan(spec == "characters") if source.cut is not None or learnt else ({}, "")
        ends = boundaries(source, counts) if source.cut is not None else {}
        if tokenizer is None and symbols:
            tokenizer = tk.Characters(symbols)
        elif tokenizer is None:
            tokenizer = named.train_bpe(named.bpe_size(spec) or 0, (text for text, _ in source.splits(ends)[0][1]))
        meta = store.write(
            folder, source.splits(ends), tokenizer, documents=source.documents, of=source.tell, check=rows
        )
    tokenizer = tokenizer or tk.load(folder)
    ready = rows(meta, folder)
    if progress:
        progress(source.total, source.total)
    about = source.about | {
        "splits": {name: count_rows(r) for name, r in ready.items()},
        "tokenizer": describe_tokenizer(tokenizer),
        "pack": data.pack,
        "fill": data.fill,
        "separator": _separator(tokenizer, source.documents, source.about.get("files", [])),
        "length": length,
        "dtype": meta["dtype"],
        "tokens_sha256": meta["sha256"],
    }
    return Corpus(tokenizer, ready, about, notes)


def _installed(name: str) -> bool:
    if name in sys.modules:
        return sys.modules[name] is not None  # None: it is forbidden
    return importlib.util.find_spec(name) is not None


def _check(data: Data) -> None:
    for name in ("path", "tokenizer", "cache"):
        if any(sign == "\0" or "\ud800" <= sign <= "\udfff" for sign in getattr(data, name) or ""):
            raise InputError(f"--data.{name} is {quoted(getattr(data, name))}; it must be UTF-8, without a NUL")
    if data.name not in DATASETS:
        raise unknown("data set", data.name, DATASETS, "zellige list data")
    entry = DATASETS[data.name]
    for option in dataclasses.fields(Data):
        anywhere = option.name in ("name", "validation", "test", "cache")
        if not anywhere and option.name not in entry.reads and getattr(data, option.name) != option.default:
            reads = ", ".join(f"--data.{name}" for name in entry.reads)
            raise InputError(f"--data.{option.name} has no effect on {data.name}, which reads {reads}; leave it out")
    if data.path and hasattr(data, "_tokens"):
        raise InputError(f"--data.path '{data.path}' has no effect beside tokens that are handed over; leave it out")
    if data.pack not in PACKS:
        raise InputError(f"--data.pack is '{data.pack}'; it must be wrap, document or packed")
    for option in ("fill", "vocabulary", "levels", "size", "augment"):
        if (value := getattr(data, option)) < 0:
            raise InputError(f"--data.{option} is {value}; it must be 0 or more")
    if data.fill and data.pack == "wrap":
        raise InputError(
            "--data.fill ends documents, and --data.pack wrap has none; use --data.pack packed or document"
        )
    if data.name == "text" and not data.path:
        raise InputError("--data.name text needs a file; give it by --data.path")
    if data.kind not in ("", "image", "grid"):
        raise InputError(f"--data.kind is '{data.kind}'; it must be image or grid")
    if entry.hub and not entry.files and not data.path and not _installed("datasets"):
        raise InputError(f"--data.name {data.name} needs 'datasets'; pip install datasets")
    for name, value in (("validation", data.validation), ("test", data.test)):
        if isinstance(value, str):
            if data.name != "text":
                raise InputError(f"--data.{name} is '{value}'; for {data.name} it must be a share or a whole number")
        elif value is not None and (value < 0 or (value > 1 and value != int(value))):
            raise InputError(f"--data.{name} is {value}; it must be a share below 1 or a whole number")


def _rows(
    meta: dict[str, Any], folder: Path, data: Data, length: int, tokenizer: "Tokenizer", source: Opened
) -> "dict[str, Rows]":
    import numpy as np

    from .rows import Rows
    from .store import count_characters

    starts = None if data.pack == "wrap" else np.load(folder / "documents.npy", mmap_mode="r")
    ready, tokens = {}, {}
    for split, of in meta["splits"].items():
        first, last = of["documents"]
        tokens[split] = of["stop"] - of["start"]
        ready[split] = Rows(
            folder / "tokens.bin",
            length,
            dtype=meta["dtype"],
            start=of["start"],
            stop=of["stop"],
            characters=of["characters"],
            **({} if starts is None else documents(data, np.asarray(starts[first : last + 1]), tokenizer)),
        )
        if starts is None:  # exactly: less the characters of the tail that fills no row
            tail = ready[split].tail()
            tail = tail[tail != tokenizer.separator] if tokenizer.unit == "token" else tail
            ready[split].characters = of["characters"] - count_characters(tokenizer.decode(tail), tail, tokenizer)
    if not any(tokens.values()):
        raise InputError(f"{source.tell} holds no characters; give a file with text, or --data.name pydocs")
    require_rows({split: len(r) for split, r in ready.items()}, tokens, length, source.tell)
    for split, other in source.entry.same.items():
        if split not in ready and other in ready:
            ready[split] = ready[other]
    return ready


def documents(data: Data, starts: Any, tokenizer: "Tokenizer") -> dict[str, Any]:
    """How `Rows` lays out the documents that begin at `starts` (D + 1,)."""
    if data.fill and tokenizer.separator is None:
        raise InputError(
            f"--data.fill needs a token that ends documents, and '{tokenizer.name}' has none; leave it out"
        )
    of = {"packed": data.pack == "packed", "fill": max(data.fill, 1)}
    return {"documents": starts, "padding": tokenizer.separator or 0, **of}


def require_rows(rows: dict[str, int], tokens: dict[str, int], length: int, tell: str) -> None:
    for split, count in rows.items():
        if count == 0 and not tokens[split]:
            raise InputError(
                f"{tell} is too short for a {split} split; set --data.validation and --data.test, or give more"
            )
        if count == 0:
            least = min(tokens.values())
            hint = f"try --net.length {1 << (least.bit_length() - 1)}" if least >= 8 else "give a longer text"
            gives = f"{tell} gives {tokens[split]:,} tokens for the {split} split"
            raise InputError(f"{gives}; length {length:,} needs at least {length:,} ({hint})")


def count_rows(rows: "Rows") -> dict[str, int | None]:
    """What `about` says of a split."""
    found = {"rows": len(rows), "tokens": rows.tokens_total, "characters": rows.characters, "left_out": rows.left_out}
    return found if rows.documents is None else found | {"documents": rows.texts, "cut": rows.cut}


def describe_tokenizer(tokenizer: "Tokenizer") -> dict[str, Any]:
    names = ("name", "size", "unit", "fingerprint")
    return {name: getattr(tokenizer, name) for name in names} | {"what": tokenizer.describe()}


def _separator(tokenizer: "Tokenizer", documents: bool, files: list[str]) -> str:
    if tokenizer.separator is None or not (documents or len(files) > 1):
        return "none"
    name = tokenizer.decode([tokenizer.separator])
    name = {"\n": "newline", " ": "space"}.get(name, name)
    return f"{name} after each document" if documents else f"{name} between files"
