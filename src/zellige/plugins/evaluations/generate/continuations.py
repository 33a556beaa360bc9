"""Real texts of which a part is given, and what a model writes in the place of the rest (`prompt_tokens`).

Each text has as many samples as are asked for, text by text. Samples of one text depend on each other, so a set of
samples is measured in parts: part k has the k-th sample of every text. A metric of the set is the mean over its parts,
and its interval is as wide as theirs are on average. That is never too narrow: the standard deviation of a mean is at
most the mean of the standard deviations, however its terms depend on each other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zellige.base.errors import InputError
from zellige.data import Corpus
from zellige.data.given import Given
from zellige.data.rows import Rows, evenly_spaced
from zellige.evaluation import metrics
from zellige.evaluation.interval import Number
from zellige.models.model import fingerprint

from .sample_sets import ScoredSet, Set, Way


@dataclass(frozen=True)
class Continuations:
    """Real texts that are continued, and their samples.

    Attributes:
        name: of the data and its split.
        part: what is given of each text, in words.
        texts: (N, L) their tokens.
        given: (N, L) bool, the given positions.
        per_text: samples of each text.
        decode: tokens as a text.
    """

    name: str
    part: str
    texts: np.ndarray
    given: np.ndarray
    per_text: int
    decode: Callable[[Any], str]

    @property
    def fixed(self) -> np.ndarray:
        """(N, L) the given tokens, -1 where one is free."""
        return np.where(self.given, self.texts, -1)

    @property
    def count(self) -> int:
        """The number of samples in a set."""
        return len(self.texts) * self.per_text

    def __str__(self) -> str:
        sets = f"; {self.per_text} samples of each, metrics and intervals are means over sets of one sample of each"
        return f"{self.part} of {len(self.texts):,} sequences of {self.name}{sets if self.per_text > 1 else ''}"

    def real(self) -> Set:
        """The real texts themselves."""
        rows = self.texts.tolist()
        return Set(Way(), [self.decode(row) for row in rows], rows)

    def parts(self, samples: Set) -> list[Set]:
        """One set for each number of a sample among those of its text.

        Raises:
            InputError: samples from a file that are not so many.
        """
        if len(samples.texts) != self.count:
            raise InputError(
                f"there are {len(samples.texts):,} samples, and {self.per_text} of each of {len(self.texts):,} texts "
                f"are {self.count:,}; give the samples that were drawn with the same options"
            )
        columns = {name: getattr(samples, name) for name in ("texts", "rows", "calls", "classes")}
        return [
            replace(samples, **{name: value and value[k :: self.per_text] for name, value in columns.items()})
            for k in range(self.per_text)
        ]

    def measures(self, rows: Sequence[Sequence[int]]) -> dict[str, Number]:
        """Compare what stands at the free positions of one sample of each text with what the text has there."""
        return metrics.measure(written_rows=self._free(rows), true_rows=self._free(self.texts))

    def floor(self) -> dict[str, Number]:
        """The same of real text: the rest of each text in the place of that of the next one; nothing of one text."""
        return self.measures(np.roll(self.texts, 1, axis=0).tolist()) if len(self.texts) > 1 else {}

    def _free(self, rows: Sequence[Sequence[int]] | np.ndarray) -> list[list[int]]:
        """The tokens at the free positions; a sample that ended early has fewer."""
        free = ~self.given
        return [np.asarray(row)[at[: len(row)]].tolist() for row, at in zip(rows, free)]


def merged(samples: Set, parts: Sequence[ScoredSet]) -> ScoredSet:
    """The measured parts of a set as one."""
    first, calls = parts[0], samples.calls
    return replace(
        first,
        samples=len(samples.texts),
        samples_sha256=fingerprint(samples.texts) if len(parts) > 1 else first.samples_sha256,
        tokens=sum(part.tokens for part in parts),
        calls=sum(calls) / len(calls) if calls else None,
        judged=None if first.judged is None else sum(part.judged or 0 for part in parts),
        cut=None if first.cut is None else sum(part.cut or 0 for part in parts),
        measures={name: mean_over_parts([part.measures[name] for part in parts]) for name in first.measures},
    )


def mean_over_parts(numbers: Sequence[Number]) -> Number:
    """The mean of numbers that may depend on each other, with an interval as wide as theirs on average.

    >>> mean_over_parts([Number(1.0, 0.5, 1.5), Number(2.0, 1.9, 2.3)])
    Number(value=1.5, low=1.2, high=1.9)
    """
    value, low, high = (
        sum(getattr(number, end) for number in numbers) / len(numbers) for end in ("value", "low", "high")
    )
    return Number(value, low, high)


# ---------------------------------------------------------------------------------------------------- what is given
def given_parts(prompt_tokens: int | None, suffix_tokens: int | None, trained: str) -> tuple[Given, ...]:
    """The parts that are given: those asked for, or else the one that the model was trained with (`data.given`).

    >>> given_parts(50, None, ""), given_parts(0, None, "prefix:3"), given_parts(None, None, "prefix:3")
    ((Given(kind='prefix', amount=50),), (), (Given(kind='prefix', amount=3),))
    """
    if prompt_tokens is None and suffix_tokens is None:
        return (Given.of(trained),) if trained and trained != "field" else ()
    amounts: Mapping[str, int] = {"prefix": prompt_tokens or 0, "suffix": suffix_tokens or 0}
    return tuple(Given(kind, amount) for kind, amount in amounts.items() if amount)


def continuations(
    corpus: Corpus, split: str, parts: Sequence[Given], count: int, per_text: int, length: int
) -> Continuations:
    """`count` texts of a split, evenly spaced among those that have `length` tokens or more, the first `length` of
    each.

    Raises:
        InputError: no text is as long, or nothing of it would be free.
    """
    rows = corpus.split(split)
    taken = sum(part.amount for part in parts if part.kind != "spans")
    if taken >= length:
        raise InputError(f"{taken:,} tokens are given, and a text has {length:,}; give fewer")
    long = np.flatnonzero(document_sizes(rows) >= length)
    if not len(long):
        raise InputError(f"no text of {corpus.about['name']} {split} has {length:,} tokens; set a smaller `length`")
    indices = evenly_spaced(long, count)
    texts = np.concatenate([rows.between(i, i + 1) for i in indices.tolist()])[:, :length]
    given = np.stack([np.any([part.at(length, i) for part in parts], axis=0) for i in indices.tolist()])
    described = " and ".join(part.describe() for part in parts)
    return Continuations(f"{corpus.about['name']} {split}", described, texts, given, per_text, corpus.tokenizer.decode)


def document_sizes(rows: Rows) -> np.ndarray:
    """(D,) tokens of each document, or of each row of a stream."""
    if rows.documents is None:
        return np.full(rows.texts, rows.length)
    return np.minimum(np.diff(rows.documents), rows.length)
