"""The test sets of the literature as texts, and as rows of tokens cut as a protocol says.

A set is a published data set (`catalogue.DATASETS`) read as running text or as documents; from the network, from the
hub, or from local copies: a folder with a subfolder for each set (`wikitext-2/test.txt`, `lambada/lambada_test.jsonl`,
`ag_news/test.csv`).
"""

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zellige.base.errors import InputError, not_installed
from zellige.data import catalogue, file_names, remote
from zellige.data.catalogue import DATASETS
from zellige.data.corpus import Data
from zellige.data.detokenize import DETOKENIZERS
from zellige.data.losses import Comparison
from zellige.data.rows import Rows
from zellige.data.text_source import open_source
from zellige.data.tokenizer_base import Tokenizer

RUNNING = ("wikitext2", "wikitext103", "ptb")  # one text, of lines
TEST_ONLY = ("lm1b", "lambada", "ag_news")  # what the literature judges on their test split
ZERO_SHOT = ("ptb", "wikitext2", "wikitext103", "lm1b", "lambada", "ag_news", "pubmed", "arxiv")
BATCH = 1000  # documents tokenized at once


@dataclass(frozen=True)
class Texts:
    """The texts of a set: its documents, and what is known of where they are from."""

    documents: list[str]
    about: dict[str, Any]


def folder_of_sets(root: str) -> Path:
    """A folder of local copies. InputError: there is none."""
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise InputError(f"no folder at '{root}'; give one with a subfolder for each set, e.g. wikitext-2, lambada")
    return folder


def folder_of(root: str, name: str) -> str:
    """The folder of a set in a folder of sets, by its name with or without dashes."""
    letters = lambda text: re.sub(r"[^a-z0-9]", "", text.lower())  # noqa: E731
    for inside in sorted(folder_of_sets(root).iterdir()):
        if inside.is_dir() and letters(inside.name) == letters(name):
            return str(inside)
    raise InputError(f"no folder '{name}' in '{root}'; put local copies there, or leave out `data.path` to fetch it")


def read_texts(
    name: str, split: str, *, detokenize: bool, lines: bool, path: str | None = None, cache: str | None = None
) -> Texts:
    """The documents of a set.

    Args:
        split: "test" or "validation"; of sets that the literature judges on test (`TEST_ONLY`) it is test.
        lines: of running text, each line is a document; else all of it is one.
        path: a folder with local copies, or a file.

    Raises:
        InputError: the set cannot be had: no such file, no network, an extra is missing.
    """
    split = "test" if name in TEST_ONLY else split
    running = name in RUNNING
    if path is not None:
        file_names.find_files(path)
    data = Data(name, path=path, cache=cache, pack="wrap" if running else "document")
    if path is None and DATASETS[name].hub and not remote.installed("datasets"):
        raise not_installed(name, "datasets", "data", ", or give local copies by `data.path`")
    source = open_source(data, catalogue.cache_folder(cache), raw=False, progress=None)
    if split not in source.parts:
        have = ", ".join(source.parts)
        raise InputError(f"'{path or name}' has no {split} split, only {have}; give that of the literature")
    source.parts = {split: source.parts[split]}
    source.identity()
    pieces = source.parts[split](source.report)
    texts = _lines(name, "".join(text for text, _ in pieces)) if running else list(_joined(pieces))
    unknown = "<unk>" in texts[0] or any("<unk>" in text for text in texts) if texts else False
    if detokenize and name in DETOKENIZERS:
        texts = [DETOKENIZERS[name](text) if text else text for text in texts]
    if running and not lines:
        texts = [("\n" if name == "ptb" else "").join(text or "\n" for text in texts)]
    if not any(texts):
        raise InputError(f"'{path or name}' holds no text; give the published files")
    about = source.about | {"split": split, "documents": len(texts)}
    if unknown and name.startswith("wikitext"):
        about["note"] = "the tokenised form, whose rare words are <unk>; the literature judges the raw form"
    return Texts(texts, about)


def _joined(pieces: Iterable[tuple[str, bool]]) -> Iterator[str]:
    """Documents from pieces of them."""
    buffer: list[str] = []
    for text, ends in pieces:
        buffer.append(text)
        if ends:
            yield "".join(buffer)
            buffer = []
    if buffer:
        yield "".join(buffer)


def _lines(name: str, text: str) -> list[str]:
    """The lines of running text as the hub's data sets have them: WikiText's with their ends, the blank ones empty."""
    lines = [*io.StringIO(text)]  # only "\n" ends one
    if name == "ptb":
        return [line.strip() for line in lines if line.strip()]
    return [line if line.strip() else "" for line in lines]


# ---------------------------------------------------------------------------------------------------- rows of tokens
class FixedFirst(Rows):
    """Rows whose first token is given: never noised, never counted."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.tokens_total -= len(self)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = super().__getitem__(index)
        mask = row.get("mask", torch.ones(self.length, dtype=torch.bool)).clone()
        mask[0] = False
        return row | {"mask": mask}


def begin_token(tokenizer: Tokenizer) -> int | None:
    """The token that begins a text: [CLS], <s>, or the one that ends it."""
    inner = getattr(tokenizer, "inner", None)
    candidates = (
        [inner.token_to_id(word) for word in ("[CLS]", "<s>", "<|begin_of_text|>")] if inner is not None else []
    )
    return next((token for token in candidates if token is not None), tokenizer.separator)


def cut_rows(
    documents: list[str], tokenizer: Tokenizer, length: int, *, pack: str, eos: bool, begin: str, end: bool, name: str
) -> Rows:
    """Documents as rows of `length` tokens, as a protocol says (`protocol.Protocol`).

    Raises:
        InputError: a character that is not in the vocabulary, too little text, no token that ends a text.
    """
    separator, begin_id = tokenizer.separator, begin_token(tokenizer)
    if separator is None or begin_id is None:
        raise InputError(
            f"a suite ends texts with a token, and '{tokenizer.name}' has none; use `data.name` for one data set"
        )
    whole, comparison = list[np.ndarray](), Comparison(tokenizer)
    for at in range(0, len(documents), BATCH):
        batch = [text.encode().decode("latin-1") if tokenizer.raw else text for text in documents[at : at + BATCH]]
        encoded = tokenizer.encode_pieces(batch, name)
        comparison.add([(text, True) for text in batch], encoded)
        for tokens in encoded:
            whole.append(np.append(tokens, [separator] * eos).astype(np.int64))
    head, tail = ([begin_id] if begin != "none" else []), [separator] * end
    inside = length - len(head) - len(tail)
    kind = FixedFirst if begin == "given" else Rows
    longer = [len(text) - inside for text in whole if len(text) > inside] if pack == "document" else []
    if pack == "document":
        whole = [np.array([*head, *text[:inside], *tail], np.int64) for text in whole if len(text)]
        starts = np.cumsum([0, *map(len, whole)])
        rows = kind(np.concatenate(whole), length, documents=starts, padding=separator)
    else:
        stream = np.concatenate(whole)
        n = len(stream) // inside
        sides = [np.full((n, len(side)), side, np.int64) for side in (head, tail)]
        rows = kind(np.concatenate([sides[0], stream[: n * inside].reshape(n, inside), sides[1]], 1), length)
    if len(rows) < 2:
        raise InputError(f"{name} gives {len(rows)} rows of {length:,} tokens; an interval needs two")
    rows.losses = comparison.losses
    rows.cut, rows.left_out = len(longer), sum(longer) if pack == "document" else len(stream) - n * inside
    return rows
