"""Rows of tokens for a DataLoader: a window on memory-mapped files, cut as the packing says."""

import copy
from bisect import bisect_left, insort

import numpy as np
import torch
from torch.utils.data import Dataset

from ..core.batch import Batch
from .losses import LOSSLESS, Losses
from .token_files import Shards


class Rows(Dataset):
    """A split, as rows of `length` tokens. Map-style, without a random state; workers open the files themselves.

    pack "wrap": one stream cut into rows, the tail that fills no row is left out.
    pack "document": one document a row.
    pack "packed": as many whole documents a row as fit (`best_fit`).

    A document longer than a row is cut into pieces of `length`, each a document of its own from then on. A row of
    documents is filled up with `padding`; the mask is False there. Segments (0, 1, ... the documents, the last the
    padding) keep documents and padding out of each other's sight.

    source: files as one stream, or an array already in memory, (N,) or (N, length).
    documents: (D + 1,) starts of the documents within source and the end of the last. fill: documents are filled up to
    a multiple of so many tokens; these count.
    characters: of the whole split; scaled to what the rows hold. losses: what the tokens do not tell of the text.

    clues: (N, L) what of each row stands in its puzzle, -1 where a cell is free.
    labels: the class of each row, or of each document, of which a row then has one; None: they have none.

    Attributes:
        tokens_total: tokens that count (mask True), all rows together.
        characters: characters of the text they spell; None where tokens spell no text, or not the one that was read
            (`losses`).
        texts: how many documents there are, the pieces of longer ones each counted; of a stream, rows.
        cut: how many documents are longer than a row.
        left_out: tokens that fill no row.
    """

    def __init__(
        self,
        source: np.ndarray | Shards,
        length: int,
        *,
        start: int = 0,
        stop: int | None = None,
        documents: np.ndarray | None = None,
        packed: bool = False,
        fill: int = 1,
        padding: int = 0,
        characters: int | None = None,
        clues: np.ndarray | None = None,
        labels: np.ndarray | None = None,
        losses: Losses = LOSSLESS,
    ):
        self.length, self.padding, self.documents, self.clues = length, padding, documents, clues
        self._stride = length  # of a stream, from the beginning of a row to that of the next
        self._tokens = source.reshape(-1) if isinstance(source, np.ndarray) else source
        self._start = start
        self._stop = stop if stop is not None else self._tokens.size
        total, self.cut, self.left_out = self._stop - start, 0, 0
        if documents is None:
            self._count = self.texts = total // length
            self.tokens_total, self.left_out = self._count * length, total % length
        else:
            self.cut = int((np.diff(documents) > length).sum())
            if labels is not None:  # each piece of a document has its class
                labels = np.repeat(labels, np.maximum(-(-np.diff(documents) // length), 1))
            self.documents = piece_starts(documents, length)
            sizes = np.diff(self.documents)
            self.texts = len(sizes)
            self._sizes = np.minimum(-(-sizes // fill) * fill, length)
            self.tokens_total = int(self._sizes.sum())
            single = np.arange(self.texts), np.arange(self.texts + 1)
            self._order, self._first = best_fit(self._sizes, length) if packed else single
            self._count = len(self._first) - 1
        self.labels = labels
        share = (total - self.left_out) / max(total, 1)
        self.losses = losses
        self.characters = round(characters * share) if characters is not None and losses.lossless else None

    def __len__(self) -> int:
        return self._count

    @property
    def redrawn(self) -> bool:
        """Whether rows differ each epoch: row i of epoch e is then at the index i + e N, of N rows."""
        return False

    @property
    def sources(self) -> list[tuple[int, int]]:
        """(rows, share in training) of each source that is mixed into these rows, one after another."""
        return [(self._count, 1)]

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """{"tokens": (L,) long}, of documents {"mask": (L,) bool, "segments": (L,) long}, of labels {"condition":
        () long}."""
        if not -self._count <= index < self._count:
            raise IndexError(f"row {index} of {self._count}")
        index %= self._count
        condition = {} if self.labels is None else {"condition": torch.tensor(int(self.labels[index]))}
        if self.documents is None:
            begin = self._start + index * self._stride
            return {"tokens": torch.from_numpy(self._tokens[begin : begin + self.length].astype(np.int64)), **condition}
        texts = [self._document(i) for i in self._order[self._first[index] : self._first[index + 1]]]
        sizes = [len(text) for text in texts]
        tokens = np.concatenate([*texts, np.full(self.length - sum(sizes), self.padding)])
        segments = np.repeat(np.arange(len(sizes) + 1), [*sizes, self.length - sum(sizes)])
        mask = torch.arange(self.length) < sum(sizes)
        return {"tokens": torch.from_numpy(tokens), "mask": mask, "segments": torch.from_numpy(segments), **condition}

    def crops(self) -> "Rows":
        """Of a stream, a row from each token on, all that fit: they overlap,
        and training draws each once before any again."""
        rows = copy.copy(self)
        rows._stride, rows._count = 1, self._stop - self._start - self.length + 1
        rows.tokens_total = rows._count * (self.tokens_total // max(self._count, 1))
        return rows

    def unlabelled(self) -> "Rows":
        """The same rows, without their classes."""
        rows = copy.copy(self)
        rows.labels = None
        return rows

    def _document(self, i: int) -> np.ndarray:
        """The tokens of a document as it stands in its row, int64."""
        assert self.documents is not None
        begin, end, size = int(self.documents[i]), int(self.documents[i + 1]), int(self._sizes[i])
        text = self._tokens[begin : min(end, begin + size)].astype(np.int64)
        return np.pad(text, (0, size - len(text)), constant_values=self.padding)

    @staticmethod
    def collate(rows: list[dict[str, torch.Tensor]]) -> Batch:
        """Rows to a Batch: tokens (B, L) long; mask and segments (B, L), condition (B,), or None."""
        return Batch(**{name: torch.stack([row[name] for row in rows]) for name in rows[0]})

    def array(self, most: int | None = None) -> np.ndarray:
        """All rows at once, (N, L) int64, or at most so many, evenly spaced: for n-grams and counts.

        Of documents each has a row of its own, however they are packed, with -1 where there is padding.
        """
        return self._texts(evenly_spaced(np.arange(self.texts), most))

    def between(self, first: int, last: int) -> np.ndarray:
        """The rows first .. last - 1 as `array` has them, for one pass over a split that need not fit in memory."""
        return self._texts(np.arange(first, min(last, self.texts)))

    def _texts(self, chosen: np.ndarray) -> np.ndarray:
        """(n, L) int64, rows of the stream or documents."""
        tokens = np.full((len(chosen), self.length), -1, np.int64)
        for row, i in zip(tokens, chosen.tolist()):
            if self.documents is None:
                begin = self._start + i * self.length
                row[:] = self._tokens[begin : begin + self.length]
            else:
                row[: self._sizes[i]] = self._document(i)
        return tokens

    def tail(self) -> np.ndarray:
        """The tokens that fill no row (pack "wrap")."""
        return self._tokens[self._start + self._count * self.length : self._stop]


def evenly_spaced(rows: np.ndarray, most: int | None) -> np.ndarray:
    """At most so many of the rows, evenly spaced; None: all."""
    return rows if most is None or len(rows) <= most else rows[np.arange(most) * len(rows) // most]


def piece_starts(documents: np.ndarray, length: int) -> np.ndarray:
    """Starts of pieces of at most `length`, and the end of the last, of documents that begin at `documents` (D + 1,).

    >>> piece_starts(np.array([0, 3, 10, 14]), 4).tolist()
    [0, 3, 7, 10, 14]
    """
    count = np.maximum(-(-np.diff(documents) // length), 1)  # of each document
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return np.append(np.repeat(documents[:-1], count) + length * within, documents[-1])


def best_fit(sizes: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Assign documents of these sizes (D,) to sequences: best-fit decreasing (Ding et al. 2024, arXiv 2404.10830).

    The longest comes first; each goes to the fullest row that has room for it. Returns the documents (D,) in the order
    of their rows, and where each row begins among them, (N + 1,).
    """
    row_of, count = np.empty(len(sizes), np.int64), 0
    rows: list[list[int]] = [[] for _ in range(length + 1)]  # by how much room they have
    rooms: list[int] = []  # that some row has, smallest first
    for i in np.argsort(-sizes, kind="stable"):
        size = int(sizes[i])
        at = bisect_left(rooms, size)
        if at < len(rooms):
            room = rooms[at]
            row = rows[room].pop()
            if not rows[room]:
                del rooms[at]
        else:
            room, row, count = length, count, count + 1
        row_of[i], left = row, room - size
        if left and not rows[left]:
            insort(rooms, left)
        rows[left].append(row)
    order = np.argsort(row_of, kind="stable")
    return order, np.searchsorted(row_of[order], np.arange(count + 1))


def collate(rows: list[dict[str, torch.Tensor]]) -> Batch:
    """`Rows.collate` as a function of the module, for a DataLoader."""
    return Rows.collate(rows)
