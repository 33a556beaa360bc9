"""The tokens of a corpus in memory-mapped shards, keyed by a hash of what made them.

A folder `tokens/KEY` of the cache holds the tokens (all splits one after another: tokens.bin, or where they are more
than SHARD bytes tokens-00000-of-00064.bin and so on, read as one array), documents.npy (where documents begin, if there
are any), tokenizer.json and meta.json. It is written aside, synced and renamed: it is whole, or it is not there.

Pieces of text are gathered to batches, which the tokenizer encodes while the next are read and the last are written:
the `tokenizers` library encodes a batch on all cores and lets go of the interpreter meanwhile. What is held is a few
batches, however long the corpus.
"""

import hashlib
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypedDict

import numpy as np

from .folder import read_whole, write_meta, written_aside
from .losses import SAMPLED, Comparison
from .readers import Piece
from .sums import Sums
from .token_files import Shards, TokenFile
from .tokenizer_base import Tokenizer

SHARD = 1 << 28  # bytes of one file


def dtype_for(size: int) -> str:
    """The narrowest unsigned type that holds the tokens 0..size-1."""
    return "uint8" if size <= 1 << 8 else "uint16" if size <= 1 << 16 else "uint32"


class Meta(TypedDict):
    """meta.json: how many tokens of which type there are, in which shards, where each split lies, and the sha256 of
    them all.

    shards: the tokens of each. files: the sha256 of each file.
    """

    tokens: int
    dtype: Literal["uint8", "uint16", "uint32"]
    sha256: str
    splits: dict[str, Any]
    shards: list[int]
    files: dict[str, str]


def shard_names(count: int) -> list[str]:
    """File names of so many shards.

    >>> shard_names(1), shard_names(64)[-1]
    (['tokens.bin'], 'tokens-00063-of-00064.bin')
    """
    return ["tokens.bin"] if count == 1 else [f"tokens-{i:05d}-of-{count:05d}.bin" for i in range(count)]


def _shards(meta: dict[str, Any]) -> dict[str, int]:
    """The names of the shards, and how many tokens each has."""
    return dict(zip(shard_names(len(meta["shards"])), meta["shards"]))


def open_tokens(folder: Path, meta: dict[str, Any]) -> Shards:
    """All tokens, as one array."""
    return Shards([TokenFile(folder / name, meta["dtype"], size) for name, size in _shards(meta).items()])


def read_meta(folder: Path, sums: Sums | None = None) -> dict[str, Any] | None:
    """Metadata of a finished folder; None if there is none.

    Raises InputError: one of its files is missing, or is not what was written (`read_whole`).
    """

    def sizes(meta: dict[str, Any]) -> dict[str, int]:
        return {name: size * np.dtype(meta["dtype"]).itemsize for name, size in _shards(meta).items()}

    return read_whole(folder, Meta, sizes, sums)


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
    with written_aside(folder, read_meta, "tokens") as aside:
        store = _Writer(aside, dtype_for(tokenizer.size))
        try:
            starts, ranges, comparison = array("q"), {}, None
            for split, pieces in splits:
                start, start_count = store.written, len(starts)
                comparison = Comparison(tokenizer, SAMPLED if split == "train" else 1, comparison)
                encoded = encode(tokenizer, pieces, of)
                characters, texts, lines = _write_split(store, starts, encoded, tokenizer, documents, comparison)
                ranges[split] = {
                    "start": start,
                    "stop": store.written,
                    "characters": characters,
                    "documents": [start_count, len(starts)],
                    "texts": texts,
                    "losses": comparison.losses.to_dict(),
                    "lines": lines,
                }
        finally:
            store.close()
        if documents:
            np.save(aside / "documents.npy", np.append(np.array(starts, np.int64), store.written))
        tokenizer.save(aside)
        meta = {
            "tokens": store.written,
            "dtype": store.dtype,
            "shards": store.sizes,
            "sha256": store.digest.hexdigest(),
            "splits": ranges,
        }
        write_meta(aside, meta, store.name_shards())
        check(meta, aside)
    return meta


def _write_split(
    store: "_Writer",
    starts: array,
    batches: Iterable[tuple[list[Piece], list[np.ndarray]]],
    tokenizer: Tokenizer,
    documents: bool,
    comparison: Comparison,
) -> tuple[int, int, int]:
    """Write the tokens of a split, with what ends documents, and where these begin into `starts`; return how many
    characters it has, and how many texts (files, documents, sequences) and lines end in it."""
    separator, characters, texts, lines = tokenizer.separator, 0, 0, 0
    end = np.array([] if separator is None else [separator], np.uint32)
    between = inside = False  # whether a file of running text has ended before; whether the document goes on
    for chunks, tokens_of_batch in batches:
        comparison.add(chunks, tokens_of_batch)
        parts, at = [], store.written
        for (text, ends), tokens in zip(chunks, tokens_of_batch):
            prefix = [end] if between and len(tokens) else []
            if documents and not inside:
                starts.append(at)
            suffix = [end] if ends and documents else []
            for piece in (*prefix, tokens, *suffix):
                parts.append(piece)
                at += len(piece)
            characters += count_characters(text, tokens, tokenizer)
            if tokenizer.unit != "token":  # a newline is a character, an end-of-text token is none
                characters += len(end) * (len(prefix) + len(suffix))
            between, inside = ends and not documents, not ends
            texts += ends
            lines += text.count("\n") + (ends and text[-1:] != "\n")
        store.append(parts)
    return characters, texts, lines


class _Writer:
    """Tokens appended to shards, each of SHARD bytes but the last, and their sums."""

    def __init__(self, folder: Path, dtype: str):
        self.folder, self.dtype = folder, dtype
        self.room = max(SHARD // np.dtype(dtype).itemsize, 1)  # tokens of one shard
        self.sizes: list[int] = []
        self.digest = hashlib.sha256()
        self._sums: list[Any] = []
        self._file: BinaryIO | None = None
        self._begin()

    @property
    def written(self) -> int:
        return sum(self.sizes)

    def _begin(self) -> None:
        self.close()
        self._file = self._path(len(self.sizes)).open("wb")
        self.sizes.append(0)
        self._sums.append(hashlib.sha256())

    def _path(self, i: int) -> Path:
        return self.folder / f"tokens-{i:05d}.part"

    def append(self, parts: list[np.ndarray]) -> None:
        tokens = np.concatenate([np.empty(0, self.dtype), *parts], dtype=self.dtype, casting="unsafe")
        self.digest.update(tokens.data)
        while len(tokens):
            if self.sizes[-1] == self.room:
                self._begin()
            now, tokens = np.split(tokens, [self.room - self.sizes[-1]])
            assert self._file is not None
            self._file.write(now.data)
            self._sums[-1].update(now.data)
            self.sizes[-1] += len(now)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def name_shards(self) -> dict[str, str]:
        """Give the shards their names, now that their number is known; name -> sha256."""
        names = shard_names(len(self.sizes))
        for i, name in enumerate(names):
            self._path(i).rename(self.folder / name)
        return dict(zip(names, (digest.hexdigest() for digest in self._sums)))


def count_characters(text: str, tokens: np.ndarray, tokenizer: Tokenizer) -> int:
    """Characters of a piece; of bytes, those that do not continue a UTF-8 character."""
    return int(np.count_nonzero((tokens & 0xC0) != 0x80)) if tokenizer.raw else len(text)


BATCH = 1 << 20  # characters encoded at once: bounds the memory that the tokenizer takes
CHUNK = 1 << 12  # characters of one text that a subword tokenizer is given: 2^16 take it 1.1 times as long
AHEAD = 2  # batches in the tokenizer's hands: one is encoded while the integers of another are gathered


def encode(tokenizer: Tokenizer, pieces: Iterable[Piece], of: str) -> Iterator[tuple[list[Piece], list[np.ndarray]]]:
    """The pieces again, cut into chunks, a batch at a time and in order, with the tokens of each chunk."""
    waiting: deque = deque()
    with ThreadPoolExecutor(AHEAD) as pool:
        try:
            for batch in batches(chunks(pieces)):
                waiting.append((batch, pool.submit(tokenizer.encode_pieces, [text for text, _ in batch], of)))
                if len(waiting) > AHEAD:
                    batch, tokens = waiting.popleft()
                    yield batch, tokens.result()
            while waiting:
                batch, tokens = waiting.popleft()
                yield batch, tokens.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def batches(chunks: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Chunks in lists of at least BATCH characters, but the last."""
    batch, size = [], 0
    for chunk in chunks:
        batch.append(chunk)
        size += len(chunk[0])
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def chunks(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The pieces, each short enough for one call, and cut where no tokenizer joins:
    before a space that follows a letter."""
    waiting, size = [], 0
    for text, ends in pieces:
        waiting.append(text)
        size += len(text)
        if not ends and size < BATCH:
            continue
        text = "".join(waiting)  # what follows the last safe cut is kept for the next piece
        at = len(text) if ends else _cut(text, max(0, len(text) - CHUNK), len(text))
        yield from _split(text[:at], ends)
        waiting = [text[at:]]
        size = len(text) - at if size >= BATCH else size
    if any(waiting):
        yield from _split("".join(waiting), False)


def _split(text: str, ends: bool) -> Iterator[Piece]:
    begin = 0
    while len(text) - begin > CHUNK:
        at = _cut(text, begin + CHUNK // 2, begin + CHUNK)
        yield text[begin:at], False
        begin = at
    yield text[begin:], ends


def _cut(text: str, low: int, high: int) -> int:
    """The last index in (low, high] before a space that follows a letter: no pre-tokenizer joins across it."""
    at = high
    while at > low:
        at = max(text.rfind(" ", low, at), text.rfind("\n", low, at))
        if at <= low:
            return high  # no space for long (Chinese, DNA): cut anyway
        if not text[at - 1].isspace():
            return at
    return high
