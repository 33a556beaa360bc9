"""The tokens of a corpus in one memory-mapped file, keyed by a hash of what made it.

A folder `tokens/KEY` of the cache holds tokens.bin (all splits one after another), documents.npy (where documents begin,
if there are any), tokenizer.json and meta.json. It is written aside, synced and renamed: it is whole, or it is not there.
"""

import hashlib
import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np

from ..errors import InputError
from .folder import read_whole, write_meta, written_aside
from .readers import Piece
from .tokenizer import load
from .tokenizer_base import Tokenizer

BATCH = 1 << 20  # characters encoded at once: bounds the memory that the tokenizer takes
CHUNK = 1 << 16  # characters of one call of a subword tokenizer


def dtype_for(size: int) -> str:
    """The narrowest unsigned type that holds the tokens 0..size-1."""
    return "uint8" if size <= 1 << 8 else "uint16" if size <= 1 << 16 else "uint32"


class Meta(TypedDict):
    """meta.json: how many tokens of which type there are, where each split lies, and the sha256 of tokens.bin."""

    tokens: int
    dtype: Literal["uint8", "uint16", "uint32"]
    sha256: str
    splits: dict[str, Any]


def read_meta(folder: Path) -> dict[str, Any] | None:
    """What stands in a finished folder; None if there is none, or if one of its files is not what was written."""
    meta = read_whole(folder, Meta, "tokens.bin", lambda meta: meta["tokens"] * np.dtype(meta["dtype"]).itemsize)
    try:
        if meta is not None and "tokenizer.json" not in meta.get("files", {}):
            load(folder)  # of a folder without its sum
    except (OSError, InputError):
        return None
    return meta


def write_tokens(
    folder: Path,
    splits: Iterable[tuple[str, Iterator[Piece]]],
    tokenizer: Tokenizer,
    *,
    documents: bool,
    of: str,
    check: Callable[[dict[str, Any], Path], object],
) -> dict[str, Any]:
    """Encode the pieces of each split into `folder`; returns its meta data.

    documents: the source gives documents (each is followed by the separator) and not running text (where the separator
    stands between files only). check(meta, folder aside) may refuse; then nothing is left behind.
    """
    with written_aside(folder, read_meta, "tokens") as aside, (aside / "tokens.bin").open("wb") as out:
        encoder = _Encoder(tokenizer, out, documents, of)
        ranges: dict[str, Any] = {}
        for split, pieces in splits:
            start, first, characters = encoder.written, len(encoder.starts), encoder.characters
            encoder.fresh = True
            for text, ends in pieces:
                encoder.add(text, ends)
            encoder.flush(last=True)
            ranges[split] = {
                "start": start,
                "stop": encoder.written,
                "characters": encoder.characters - characters,
                "documents": [first, len(encoder.starts)],
            }
        _sync(out)
        if documents:
            np.save(aside / "documents.npy", np.append(np.array(encoder.starts, np.int64), encoder.written))
        sha256 = encoder.digest.hexdigest()
        meta = {"tokens": encoder.written, "dtype": encoder.dtype, "sha256": sha256, "splits": ranges}
        tokenizer.save(aside)
        out.close()
        write_meta(aside, meta, "tokens.bin")
        check(meta, aside)
    return meta


class _Encoder:
    """Gathers pieces to batches, encodes them, appends the tokens to a file and counts."""

    def __init__(self, tokenizer: Tokenizer, out: Any, documents: bool, of: str):
        self.tokenizer, self.out, self.documents, self.of = tokenizer, out, documents, of
        self.dtype = dtype_for(tokenizer.size)
        self.written = self.characters = 0
        self.digest = hashlib.sha256()
        self.starts = array("q")
        self.fresh = True  # the next text begins a split: no separator before it
        self._between = False  # a file of running text has ended
        self._inside = False  # the document goes on
        self._pending: list[Piece] = []
        self._size = 0

    def add(self, text: str, ends: bool) -> None:
        if self._pending and not self._pending[-1][1]:
            self._pending[-1] = (self._pending[-1][0] + text, ends)
        else:
            self._pending.append((text, ends))
        self._size += len(text)
        if self._size >= BATCH:
            self.flush(last=False)

    def flush(self, last: bool) -> None:
        pieces, rest = self._pending, ""
        if pieces and not pieces[-1][1] and not last:  # keep what follows the last safe cut for the next batch
            text = pieces[-1][0]
            at = _cut(text, max(0, len(text) - CHUNK), len(text))
            pieces[-1], rest = (text[:at], False), text[at:]
        chunks: list[Piece] = []
        for text, ends in pieces:
            while len(text) > CHUNK:
                at = _cut(text, CHUNK // 2, CHUNK)
                chunks.append((text[:at], False))
                text = text[at:]
            chunks.append((text, ends))
        self._write(chunks)
        self._pending = [(rest, False)] if rest else []
        self._size = len(rest)

    def _write(self, chunks: list[Piece]) -> None:
        encoded = self.tokenizer.encode_pieces([text for text, _ in chunks], self.of)
        separator = self.tokenizer.separator
        inside = self._inside
        for (text, ends), tokens in zip(chunks, encoded):
            if self._between and not self.fresh and separator is not None and len(tokens):
                self._separate(separator)
            if self.documents and not inside:
                self.starts.append(self.written)
            self._between, self.fresh = False, False
            self._append(tokens)
            self.characters += count_characters(text, tokens, self.tokenizer)
            if ends and self.documents and separator is not None:
                self._separate(separator)
            self._between = ends and not self.documents
            inside = not ends
        self._inside = inside

    def _separate(self, separator: int) -> None:
        self._append(np.array([separator]))
        self.characters += self.tokenizer.unit != "token"  # a newline is a character, an end-of-text token is none

    def _append(self, tokens: np.ndarray) -> None:
        stored = np.ascontiguousarray(tokens, dtype=self.dtype).data
        self.out.write(stored)
        self.digest.update(stored)
        self.written += len(tokens)


def count_characters(text: str, tokens: np.ndarray, tokenizer: Tokenizer) -> int:
    """Characters of a piece; of bytes, those that do not continue a UTF-8 character."""
    return int(np.count_nonzero((tokens & 0xC0) != 0x80)) if tokenizer.raw else len(text)


def _cut(text: str, low: int, high: int) -> int:
    """The last place in (low, high] before a space that follows a letter: no pre-tokenizer joins across it."""
    at = high
    while at > low:
        at = max(text.rfind(" ", low, at), text.rfind("\n", low, at))
        if at <= low:
            return high  # no space for long (Chinese, DNA): cut anyway
        if not text[at - 1].isspace():
            return at
    return high


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
