"""`Data` says which corpus, `prepare` makes it ready: read, split, tokenized, packed."""

import os
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..base.arguments import checked, refuse_path
from ..base.errors import InputError, quoted, unknown
from ..base.requests import check_fields, option
from .catalogue import DATASETS, SPLITS
from .file_names import data_of
from .own_values import are_texts, by_split, integers, largest_token
from .remote_files import is_remote

if TYPE_CHECKING:
    import numpy as np

    from .rows import Rows
    from .tokenizer_base import Tokenizer

PACKS = ("wrap", "document", "packed")


@partial(checked, prefix="data.")
@dataclass(frozen=True)
class Local:
    """Where the files of a known data set are."""

    path: str | None = option(
        "folder with the files of the data set (default: download); for a suite with a subfolder for each set: "
        "wikitext-2, lambada, ag_news",
        default=None,
    )
    cache: str | None = option("folder for downloads (default: ZELLIGE_CACHE, else ~/.cache/zellige)", default=None)


@partial(check_fields, prefix="data.")
@dataclass(frozen=True)
class Data:
    """The corpus on which a model is trained or evaluated."""

    name: str = option(
        "data set (zellige list data); or what your own files hold: text, images, tokens or array "
        "(integers), table (rows of categories). With a path alone, the files decide.",
        default="pydocs",
    )
    path: str | None = option(
        "your own file, folder or glob; for text also a remote one, s3://bucket/*.jsonl.zst. With the "
        "name of a data set: local copies of its files.",
        default=None,
    )
    mix: str | None = option(
        "for text: several data sets or paths and their fractions of the training sequences: web/=0.7,books.jsonl=0.3.",
        default=None,
    )
    field: str | None = option(
        "field of a .jsonl, or column of a .csv, that holds the text; several are joined by + (default: "
        "text, else the field with the longest texts).",
        default=None,
    )
    tokenizer: str = option(
        "characters, bytes, bpe:4096, sentencepiece:4096, gpt2, a tokenizer.json, a folder of vocabulary "
        "files, a hub id, selfies (molecules) or auto: subwords, or characters for a short text (default:"
        " the data set's own; auto for your texts).",
        default="",
    )
    pack: Literal["wrap", "document", "packed"] = option(
        "how documents become sequences: wrap cuts one stream of all documents; document makes one padded"
        " sequence of each; packed puts in as many as fit, which do not see each other. Documents longer "
        "than a sequence are cut into pieces.",
        default="wrap",
    )
    documents: Literal["", "line", "blank", "file"] = option(
        "what a document of plain text is: a line, a part between blank lines (blank), or a file. "
        "<|endoftext|> always ends one (default: the first of these that the text has: <|endoftext|>, ten"
        " files or more, blank lines, lines; with `data.pack` wrap only <|endoftext|>).",
        default="",
    )
    fill: int | None = option(
        "pad each document with end-of-document tokens to a multiple of this many tokens. The model learns to predict "
        "them, and so where a text ends. 0: one such token, and methods without blocks read the length as an input "
        "(default: the block of bd3lm; for methods without blocks the sequence, if it holds one document; 0 for ar and "
        "flexmdm).",
        default=None,
        minimum=0,
    )
    validation: float | str | None = option(
        "size of the validation split, if the data comes without one: a fraction, or from 1 up a number "
        "of characters (of documents for .jsonl, .csv, or if `data.pack` is not wrap); for text also the "
        "path of the split's files (default: 0.05 for most).",
        default=None,
    )
    test: float | str | None = option("the same for the test split, the end of the text.", default=None)
    vocabulary: int = option(
        "for tokens and array: number of different tokens, if there is no tokenizer.", default=0, minimum=0
    )
    levels: int = option(
        "for images: number of grey values, in equal bins; 0: as many as the images have.", default=0, minimum=0
    )
    size: int | str = option(
        "size of an image in pixels, 32 or 48x36 (height x width), averaged over areas; steps of a "
        "chorale (128); side of a Sudoku (4, 9); 0: as they are.",
        default=0,
    )
    kind: Literal["", "image", "grid"] = option(
        "for array: image (ordered values) or grid (symbols without an order; the default).", default=""
    )
    colours: Literal["", "rgb", "grey"] = option(
        "for images: rgb or grey (default: as the files are, which must then be alike).", default=""
    )
    labels: bool = option(
        "train with the class of each example, so that zellige sample --class can ask for one: the topic "
        "of ag_news, the field label of your own files. A sequence is then one document.",
        default=False,
    )
    labels_by: str = option(
        "column that holds the class (implies `data.labels`); for molecules also rings or heteroatoms, "
        "which are counted; for nouns a part: head (the default), accessory, glasses, body, background. "
        "rings:5 makes 5 classes of a number: 0, 1, 2, 3, and 4 or more; for fractional numbers 5 quantiles.",
        default="",
    )
    flip: bool = option("for images: mirror each one left to right, half of the time.", default=False)
    reverse_complement: bool = option(
        "for dna: train on the other strand, read backwards, half of the time.", default=False
    )
    crop: bool = option(
        "for running text (`data.pack` wrap): training sequences begin at any token, not only where the "
        "one before ends.",
        default=False,
    )
    augment: int = option("for sudoku: random symmetric copies to add for each training grid.", default=0, minimum=0)
    given: str = option(
        "part of each sequence that is given: never noised, and not in the loss, which becomes "
        "conditional. prefix:32, suffix:32, spans:0.5, field (the prompt of a .jsonl with prompt and "
        "answer) or puzzle (the filled cells of a Sudoku).",
        default="",
    )
    cache: str | None = option(
        "folder for downloads and tokens (default: ZELLIGE_CACHE, else ~/.cache/zellige).", default=None
    )

    def __post_init__(self) -> None:
        """A column of classes asks for them, and a row of text that has a class is one document."""
        reads = DATASETS[self.name].reads if self.name in DATASETS else ()
        if self.labels_by and "labels_by" in reads:
            object.__setattr__(self, "labels", True)
        if self.labels and self.pack == "wrap" and {"pack", "labels"} <= {*reads}:
            object.__setattr__(self, "pack", "document")

    @property
    def remote(self) -> str | None:
        """The first of its texts that lies in a store elsewhere; None: all are files here, or known by their name."""
        places = (
            place for text in (self.path, self.mix, self.validation, self.test) for place in str(text or "").split(",")
        )
        return next((place.strip() for place in places if is_remote(place.strip())), None)

    def replaced(self, **changes: Any) -> "Data":
        """The same data with other fields."""
        return replace(self, **changes)

    @staticmethod
    @checked
    def of(
        values: Any,
        vocabulary: int = 0,
        *,
        labels: Any = None,
        field: str | None = None,
        tokenizer: str = "",
        pack: Literal["wrap", "document", "packed"] = "wrap",
        fill: int | None = None,
        validation: float | None = None,
        test: float | None = None,
        levels: int = 0,
        size: int | str = 0,
        kind: Literal["", "image", "grid"] = "",
        flip: bool = False,
        cache: str | None = None,
    ) -> "Data":
        """Own texts, or own integers, as they are in memory.

        A list of texts: `Data.of(["a text", "another"], tokenizer="bytes")`. One stream, or each a document
        (`pack="document"`, `"packed"`). A data set of the `datasets` library is its column `field`.
        Integers, a tensor or array: (N, L), one sequence a row, or (N,), one stream to be cut into rows. With more
        axes, or a `kind`, they are rows of that shape: `Data.of(images, 8, kind="image")`. A list of sequences of
        different length are documents: `Data.of(proteins, 20, pack="packed")`.
        A dict of these by split, {"train": ..., "validation": ..., "test": ...}, is taken as it is split.

        The values stay out of the configuration: a run that is resumed is given them again.

        Args:
            vocabulary: of integers, the number of different tokens; by default the largest and one.
            labels: of an array (N,) the class of each row, 0, 1, ...; by split as the values are.
            field: the column, where it is not `text` or the only one.

        Raises:
            InputError: neither texts nor integers; no such split, no such column.
        """
        splits = by_split(values, field)
        more: dict[str, Any] = {"tokenizer": tokenizer, "pack": pack, "fill": fill, "validation": validation}
        more |= {"test": test, "levels": levels, "size": size, "kind": kind, "flip": flip, "cache": cache}
        if (texts := [are_texts(values_of) for values_of in splits.values()]) and any(texts):
            if not all(texts):
                raise InputError(
                    "some splits of the data are texts, and others are none; give a list of texts for each"
                )
            if labels is not None or vocabulary:
                option = "labels" if labels is not None else "vocabulary"
                raise InputError(f"`{option}` goes with integers, and the data is texts; leave it out")
            return OwnData(splits, name="text", **more)
        splits = {split: integers(values_of) for split, values_of in splits.items()}
        has_shape = (
            bool(kind) or any(getattr(values_of, "ndim", 0) > 2 for values_of in splits.values()) or labels is not None
        )
        more |= {"vocabulary": vocabulary or largest_token(splits.values()) + 1, "labels": labels is not None}
        return OwnData(splits, labels, name="array" if has_shape else "tokens", **more)


class OwnData(Data):
    """Data whose values by split ("all": they have none), and the classes of whose rows, are handed over (`Data.of`).
    They are no fields: nothing that reads the fields sees them, so that it equals the Data of the run's configuration,
    which holds none."""

    def __init__(self, values: dict[str, Any], classes: Any = None, **choices: Any):
        super().__init__(**choices)
        self.values, self.classes = values, classes

    def replaced(self, **changes: Any) -> "OwnData":
        choices = {field.name: getattr(self, field.name) for field in fields(Data)}
        return OwnData(self.values, self.classes, **(choices | changes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Data) and astuple(self) == astuple(other)

    __hash__ = Data.__hash__


def as_data(data: object) -> Data:
    """Convert user data to a Data: a Data, the name of a data set, a path, or values as `Data.of` takes them.

    A name is one of `zellige list data`; any other text with a dot or a slash in it, or that is there, is a path: what
    lies there says which data set it is (`file_names.data_of`).
    """
    if isinstance(data, Data):
        return data
    if isinstance(data, os.PathLike):
        path = os.fspath(data)
        return Data(data_of(path), path=path)
    if not isinstance(data, str):
        return Data.of(data)
    refuse_path("data", data)
    exists = Path(data).exists()
    if not exists and ("\n" in data or data.count(" ") > 2):
        raise InputError(f"`data` is {quoted(data)}, and no file is called so; give texts in a list: data=[...]")
    return Data(data_of(data), path=data) if data not in DATASETS and (exists or {*"./*"} & {*data}) else Data(data)


def as_packed(data: Data, like: Data) -> Data:
    """The same text, its rows made as those of another one (`Data.pack`); other data, and pairs, as they are."""
    return replace(data, pack=like.pack) if data.name == like.name == "text" and data.given != "field" else data


@dataclass(frozen=True)
class Corpus:
    """A corpus ready to be trained on: `train`, `validation`, `test` are Rows; `about` goes into the run's
    configuration.

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
            raise unknown("split", name, SPLITS)
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


# Entries of `Corpus.about`: what separates texts, in words; a "token", a "space" or "none"; "documents", "texts" or
# "files"
NO_SEPARATOR = {"separator": "none", "end": "none", "separates": ""}


def fill_of(data: Data, tokenizer: "Tokenizer", ends: int) -> int:
    """The multiple of tokens that documents are filled up to: `data.fill`; where it is not given `ends`, if the
    tokenizer has a token that ends documents and stands in none of them."""
    if data.fill is not None:
        return data.fill
    return 0 if tokenizer.separator is None or tokenizer.decode([tokenizer.separator]) == " " else ends


def document_layout(data: Data, starts: "np.ndarray", tokenizer: "Tokenizer", ends: int) -> dict[str, Any]:
    """Layout of the documents that begin at `starts` (D + 1,) in `Rows`."""
    if data.fill and tokenizer.separator is None:
        raise InputError(
            f"`data.fill` needs a token that ends documents, and '{tokenizer.name}' has none; leave it out"
        )
    of = {"packed": data.pack == "packed", "fill": max(fill_of(data, tokenizer, ends), 1)}
    return {"documents": starts, "padding": tokenizer.separator or 0, **of}


def require_rows(rows: dict[str, int], tokens: dict[str, int], length: int, tell: str) -> None:
    for split, count in rows.items():
        if count == 0 and not tokens[split]:
            raise InputError(
                f"{tell} is too short for a {split} split; set `data.validation` and `data.test`, or give more"
            )
        if count == 0:
            least = min(tokens.values())
            hint = f"try `net.length` {1 << (least.bit_length() - 1)}" if least >= 8 else "give a longer text"
            gives = f"{tell} gives {tokens[split]:,} tokens for the {split} split"
            raise InputError(f"{gives}; length {length:,} needs at least {length:,} ({hint})")


def count_rows(rows: "Rows") -> dict[str, int | None]:
    """Description of a split in `about`."""
    counts = {"rows": len(rows), "tokens": rows.tokens_total, "characters": rows.characters, "left_out": rows.left_out}
    return counts if rows.documents is None else counts | {"documents": rows.texts, "cut": rows.cut}


def describe_tokenizer(tokenizer: "Tokenizer") -> dict[str, Any]:
    names = ("name", "size", "unit", "fingerprint")
    return {name: getattr(tokenizer, name) for name in names} | {"what": tokenizer.describe()}
