"""Memorisation: the length of the longest run of each text that stands, token by token, in the training set.

The training set is read once, a chunk of rows at a time, and only the texts are held. A window is looked up by its
64-bit hash, sum_i code(token i) B^i, with a random code for each token; of any window it is a difference of two sums.
Two different windows share one with probability 2^-64, some 1e-6 in all for 1e5 windows and 1e8 tokens. In a chunk, the
windows of 2, 4, 8 ... tokens that stand in no text are left out, and then each text looks for one token more than it
has found before; where it finds them, for its longest run, by bisection.

The interval of the mean over texts is Student's t over the texts; the training set is fixed.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from zellige.base.requests import Progress
from zellige.data.rows import Rows

CHUNK = 2**20  # tokens of the training set at once
BASE = 0x9E3779B97F4A7C15  # odd


def longest(rows: Sequence[Sequence[int]], training: Rows | np.ndarray, progress: Progress | None = None) -> np.ndarray:
    """(N,) the tokens of the longest run of each row that stands within a row of the training set.

    Args:
        training: a split, as `data.rows.Rows`, or rows (M, L) with -1 where there is padding.

    >>> longest([[7, 1, 2, 3, 9], [8]], np.array([[0, 1, 2, 3], [4, 5, 6, 7]])).tolist()
    [3, 0]
    """
    texts = _Texts(rows)
    total, count = len(training) if isinstance(training, np.ndarray) else training.texts, 0
    for chunk in _chunks(training):
        texts.mark(chunk)
        count += len(chunk)
        if progress:
            progress(count, total)
    return texts.longest


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
    """The windows of sequences that lie one after another.

    Args:
        codes: (N,) uint64, of the tokens.
        room: (N,) tokens from each one to the end of its sequence.
    """

    def __init__(self, codes: np.ndarray, room: np.ndarray):
        powers, self.inverse = (np.cumprod(np.full(len(codes), b, np.uint64)) for b in (BASE, pow(BASE, -1, 2**64)))
        self.sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(codes * powers)])
        self.room = room

    def of(self, k: int, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of these positions that begin a window of k tokens, and its hashes."""
        at = at[self.room[at] >= k]
        return at, (self.sums[at + k] - self.sums[at]) * self.inverse[at]


class _Texts:
    """Texts, and the length of the longest run of each (N,) that was found so far."""

    def __init__(self, rows: Sequence[Sequence[int]]):
        lengths = [len(row) for row in rows]
        tokens = np.concatenate([np.zeros(0, np.int64), *(np.asarray(row, np.int64) for row in rows)])
        self.row, self.longest = np.repeat(np.arange(len(rows)), lengths), np.zeros(len(rows), int)
        self.codes = np.random.default_rng(0).integers(0, 2**64, int(tokens.max(initial=0)) + 1, dtype=np.uint64)
        self.windows = _Windows(self.codes[tokens], np.repeat(np.cumsum(lengths), lengths) - np.arange(len(tokens)))
        self.all: dict[int, np.ndarray] = {}  # the sorted hashes of the windows of 2, 4, 8 ... tokens

    def mark(self, chunk: np.ndarray) -> None:
        """Look for runs in these rows (m, L)."""
        known, L = (chunk >= 0) & (chunk < len(self.codes)), chunk.shape[1]  # a token that no text has ends a run
        ends = np.minimum.accumulate(np.where(known, L, np.arange(L))[:, ::-1], 1)[:, ::-1]
        windows = _Windows(self.codes[np.where(known, chunk, 0)].ravel(), (ends - np.arange(L)).ravel())
        at = [np.flatnonzero(windows.room)]  # [j]: where windows of 2^j tokens begin that a text may have
        while len(at[-1]):
            k = 2 ** len(at)
            if k not in self.all:
                self.all[k] = np.sort(self.windows.of(k, np.arange(len(self.row)))[1])
            places, hashes = windows.of(k, at[-1])
            at.append(places[_among(hashes, self.all[k])])
        for low in np.unique(self.longest).tolist():
            self._settle(self.longest == low, low, 2 ** (len(at) - 1) - 1, low + 1, windows, at)

    def _settle(
        self, texts: np.ndarray, low: int, high: int, k: int, windows: _Windows, at: Sequence[np.ndarray]
    ) -> None:
        """Set the longest run of these texts (N,) bool, which has `low` to `high` tokens; k is tried first."""
        if low >= high or not texts.any():
            self.longest[texts] = low
            return
        sought = np.sort(windows.of(k, at[k.bit_length() - 1])[1])
        places, hashes = self.windows.of(k, np.flatnonzero(texts[self.row]))
        hit = np.zeros_like(texts)
        hit[self.row[places[_among(hashes, sought)]]] = True
        for part, least, most in ((hit, k, high), (texts & ~hit, low, k - 1)):
            self._settle(part, least, most, (least + most + 1) // 2, windows, at)


def _among(values: np.ndarray, pool: np.ndarray) -> np.ndarray:
    """Whether each value is in the sorted pool."""
    if not len(pool):
        return np.zeros(len(values), bool)
    return pool[np.searchsorted(pool, values).clip(max=len(pool) - 1)] == values
