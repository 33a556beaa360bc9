"""Texts as a judge read them: the tokens that are counted, the nats of each text, and what is said of one text at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..errors import InputError
from .judge import Judge
from .sample_quality import unigram_entropies


@dataclass(frozen=True)
class Judged:
    """N texts, judged.

    Attributes:
        rows: the tokens of each that entropy and n-grams are of: the model's own, or else the judge's.
        nats, tokens: (N,) of each by the judge, and how many of its tokens that is about.
        cut: how many are longer than the judge's context.
    """

    rows: Sequence[Sequence[int]]
    nats: Tensor
    tokens: Tensor
    cut: int

    @property
    def rates(self) -> np.ndarray:
        """(N,) nats per token of each; NaN where no token was judged."""
        tokens = self.tokens.double().numpy()
        return np.where(tokens > 0, self.nats.double().numpy() / np.maximum(tokens, 1), np.nan)

    @property
    def entropies(self) -> np.ndarray:
        """(N,) the unigram entropy of each, nats; NaN where there is no token."""
        return unigram_entropies(self.rows)


def judged(
    texts: Sequence[str], rows: Sequence[Sequence[int]] | None, judge: Judge, own: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Judged:  # fmt: skip
    """Texts as the judge reads them, tokenized again; or, if `own`, their own tokens, which must be its own too."""
    if own and rows is None:
        raise InputError("these samples come without tokens; leave out `tokens` own")
    read = rows if own and rows is not None else judge.encode(texts)
    nats, tokens = judge.nats_of(read, progress)
    return Judged(rows if rows is not None else read, nats, tokens, judge.cut(read) if judge.long == "cut" else 0)
