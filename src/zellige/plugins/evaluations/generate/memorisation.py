"""Memorisation: the length of the longest run of each text that stands, token by token, in the training set.

The training set is read once, a chunk of rows at a time, and only the texts are held: for each length k the 64-bit
hashes of their windows of k tokens. In a chunk, the windows whose first k - 1 tokens stand in a text are looked up for
k, until none is left; so a chunk costs about as many look-ups a token as a common run has tokens. A hash is a
polynomial in random 64-bit numbers, one for each token: two different windows share one with probability 2^-64, some
1e-6 in all for 1e5 windows and 1e8 tokens.

The interval of the mean over texts is Student's t over the texts; the training set is fixed.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from zellige.base.requests import Progress
from zellige.data.rows import Rows

CHUNK = 2**20  # tokens of the training set at once
BASE = np.uint64(0x9E3779B97F4A7C15)  # odd


def longest(rows: Sequence[Sequence[int]], training: Rows | np.ndarray, progress: Progress | None = None) -> np.ndarray:
    """(N,) the tokens of the longest run of each row that stands within a row of the training set.

    Args:
        training: a split, as `data.rows.Rows`, or rows (M, L) with -1 where there is padding.

    >>> longest([[7, 1, 2, 3, 9], [8]], np.array([[0, 1, 2, 3], [4, 5, 6, 7]])).tolist()
    [3, 0]
    """
    texts = _Windows(rows)
    total, count = len(training) if isinstance(training, np.ndarray) else training.texts, 0
    for chunk in _chunks(training):
        texts.mark(chunk)
        count += len(chunk)
        if progress:
            progress(count, total)
    return texts.longest()


def _chunks(training: Rows | np.ndarray) -> Iterator[np.ndarray]:
    """Rows (m, L), a chunk at a time, -1 where there is padding; of documents each a row of its own."""
    L = training.shape[1] if isinstance(training, np.ndarray) else training.length
    size = max(1, CHUNK // L)
    if isinstance(training, np.ndarray):
        yield from (training[at : at + size] for at in range(0, len(training), size))
        return
    for at in range(0, training.texts, size):
        yield training.between(at, at + size)


class _Windows:
    """The windows of texts, by their length k: sorted 64-bit hashes, and which of them stand in the training set."""

    def __init__(self, rows: Sequence[Sequence[int]]):
        self.row = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        self.tokens = np.concatenate([np.asarray(row, np.int64) for row in rows]) if len(rows) else np.zeros(0, int)
        self.count = len(rows)
        self.codes = np.random.default_rng(0).integers(
            0, 2**64, int(self.tokens.max(initial=0)) + 1, dtype=np.uint64, endpoint=False
        )
        self.starts, self.hashes = np.arange(len(self.tokens)), np.zeros(len(self.tokens), np.uint64)
        self.levels: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # of each k: hashes, their windows, seen

    def level(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The sorted hashes of the windows of k tokens, and whether each was seen."""
        while len(self.levels) < k:
            step = len(self.levels)
            inside = self.starts + step < len(self.tokens)
            inside[inside] = self.row[self.starts[inside] + step] == self.row[self.starts[inside]]
            self.starts, self.hashes = self.starts[inside], self.hashes[inside]
            self.hashes = self.hashes * BASE + self.codes[self.tokens[self.starts + step]]
            order = np.argsort(self.hashes)
            self.levels.append((self.hashes[order], self.row[self.starts[order]], np.zeros(len(order), bool)))
        hashes, _, hits = self.levels[k - 1]
        return hashes, hits

    def mark(self, chunk: np.ndarray) -> None:
        """Look up every window of these rows (m, L)."""
        in_alphabet = (chunk >= 0) & (chunk < len(self.codes))  # a token that no text has ends a run
        tokens, L = chunk.reshape(-1), chunk.shape[1]
        at = np.flatnonzero(in_alphabet)
        hashes, k, in_alphabet = np.zeros(len(at), np.uint64), 0, in_alphabet.reshape(-1)
        while len(at):
            ends = at + k
            inside = at % L + k < L
            inside[inside] = in_alphabet[ends[inside]]
            at, hashes = at[inside], hashes[inside]
            hashes = hashes * BASE + self.codes[tokens[at + k]]
            k += 1
            sought, hits = self.level(k)
            if not len(sought):
                return
            low = np.searchsorted(sought, hashes)
            hit = sought[low.clip(max=len(sought) - 1)] == hashes
            hits[low[hit]] = True  # the first of equal ones; `longest` spreads it
            at, hashes = at[hit], hashes[hit]

    def longest(self) -> np.ndarray:
        """(N,) the longest window of each row that was seen."""
        out = np.zeros(self.count, int)
        for k, (hashes, row, hits) in enumerate(self.levels, 1):
            first = np.searchsorted(hashes, hashes)
            out[row[hits[first]]] = k
        return out
