"""Pieces of text to tokens: gathered to batches, which the tokenizer encodes while the next are read and the last are written.

The `tokenizers` library encodes a batch on all cores and lets go of the interpreter meanwhile. What is held is a few batches,
however long the corpus.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .readers import Piece
from .tokenizer_base import Tokenizer

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
    """The pieces, each short enough for one call, and cut where no tokenizer joins: before a space that follows a letter."""
    rest, size = "", 0
    for text, ends in pieces:
        size += len(text)
        text = rest + text
        if ends or size < BATCH:
            rest = "" if ends else text
        else:  # what follows the last safe cut is kept for the next piece
            at = _cut(text, max(0, len(text) - CHUNK), len(text))
            text, rest = text[:at], text[at:]
        if ends or size >= BATCH:
            yield from _split(text, ends)
        size = len(rest) if size >= BATCH else size
    if rest:
        yield from _split(rest, False)


def _split(text: str, ends: bool) -> Iterator[Piece]:
    begin = 0
    while len(text) - begin > CHUNK:
        at = _cut(text, begin + CHUNK // 2, begin + CHUNK)
        yield text[begin:at], False
        begin = at
    yield text[begin:], ends


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
