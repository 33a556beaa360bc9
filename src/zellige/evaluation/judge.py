"""A causal language model that judges texts: -log p of each, token by token. `Judge("gpt2-large").nats(texts)`.

Any causal model of `transformers`, from a folder or the hub (its own code is never run), or a Zellige model that is exact from
left to right (ar). Four choices change the number, and are part of its protocol (`Judge.about`):

    first   given: the first token of a text is read and not judged (SEDD, MDLM, BD3-LM, Duo: there is nothing before it);
            judged: BOS stands before it, or what the model itself begins a text with, and every token counts
    eos     first: the first EOS of a text counts, what comes after it too, but no further EOS (MDLM and what follows it);
            all: every token counts
    long    cut: of a text longer than the context its beginning alone is judged; chunks: it is judged in pieces of the context,
            each of which begins anew
    tokens  texts are tokenized by the judge's own tokenizer. A model's samples are decoded first, and what comes back may be
            other tokens: a sample need not be spelt as the tokenizer would spell it. `nats_of` judges tokens as they are.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from . import language_model

GPT2 = "gpt2-large"
LOGITS = 2**28  # of one call at most: 1 GB in float32
CHOICES = {"first": ("given", "judged"), "eos": ("first", "all"), "long": ("cut", "chunks")}

Progress = Callable[[int, int], None]


class Judge:
    """A causal model as a judge of texts.

    Args:
        path: a folder (transformers, or a run or saved folder of Zellige's ar), a name on the hub, or a `Model` of ar.
        first, eos, long: see the module.
        context: tokens of a text that are judged at once; the model's own length if None, and at most.
        device: of a model that is read here.

    Raises:
        InputError: nothing there, and no hub within reach; not causal; no token to begin with where `first` is "judged".
    """

    def __init__(
        self,
        path: Any = GPT2,
        *,
        first: str = "given",
        eos: str = "first",
        long: str = "cut",
        context: int | None = None,
        device: torch.device | str = "cpu",
    ):
        for name, value in (("first", first), ("eos", eos), ("long", long)):
            if value not in CHOICES[name]:
                raise InputError(f"`{name}` is '{value}'; it must be {' or '.join(CHOICES[name])}")
        self.inner = language_model.causal_model(path, device)
        self.first, self.eos, self.long = first, eos, long
        if first == "judged" and not self.inner.begins:
            raise InputError(f"judge '{self.inner.name}' has no token that begins a text; use `first` given")
        if context is not None and not 2 <= context <= self.inner.context:
            raise InputError(f"`context` is {context:,}; this judge takes 2 to {self.inner.context:,} tokens")
        self.context = context or self.inner.context

    @cached_property
    def about(self) -> dict[str, Any]:
        """Everything that was chosen, for the protocol, and the sha256 of the judge's weights and of its tokenizer."""
        inner = self.inner
        return {
            "judge": inner.name, "kind": inner.kind, "parameters": inner.parameters, "tokenizer": inner.tokenizer_name,
            "vocabulary": inner.vocabulary, "network": "float32", "context": self.context, "first": self.first,
            "eos": self.eos if inner.end is not None else "none", "long": self.long,
            "weights_sha256": inner.weights_sha256, "tokenizer_sha256": inner.tokenizer_sha256,
        }  # fmt: skip

    # ------------------------------------------------------------------------------------------------ texts
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Each text in the judge's tokens, without any that begin or end it."""
        return self.inner.encode(texts)

    def nats(self, texts: Sequence[str], progress: Progress | None = None) -> tuple[Tensor, Tensor]:
        """-log p of each text in nats (N,) float64, and how many of its tokens were judged (N,) long."""
        return self.nats_of(self.encode(texts), progress)

    # ------------------------------------------------------------------------------------------------ tokens
    @torch.no_grad()
    def nats_of(self, rows: Sequence[Sequence[int]], progress: Progress | None = None) -> tuple[Tensor, Tensor]:
        """The same of rows of the judge's own tokens, as they are. InputError where one is not in its vocabulary."""
        largest, V = max((max(row) for row in rows if row), default=0), self.inner.vocabulary
        if largest >= V:
            raise InputError(f"token {largest:,} is not in the judge's vocabulary of {V:,}; leave out `tokens` own")
        pieces, of = self._pieces(rows)
        nats = torch.zeros(len(rows), dtype=torch.float64)
        judged = torch.zeros(len(rows), dtype=torch.long)
        done = 0
        for group in self._batches(pieces):
            tokens, real = _padded([pieces[i] for i in group])
            counts = real & self._counted(tokens)
            token_nats = self.inner.nats(tokens, real, self.first == "judged")  # (B, T), of each token
            where = torch.tensor([of[i] for i in group])
            nats.index_add_(0, where, torch.where(counts, token_nats, 0.0).sum(-1))
            judged.index_add_(0, where, counts.sum(-1))
            done += len(group)
            if progress:
                progress(done, len(pieces))
        return nats, judged

    @torch.no_grad()
    def features(self, texts: Sequence[str], progress: Progress | None = None) -> Tensor:
        """(N, D) the last hidden state after the last token of each text, cut one short of the context: what MAUVE compares."""
        rows = [row[: self.context - 1] for row in self.encode(texts)]
        if any(not row for row in rows):
            raise InputError("a text without tokens has no features; leave out `mauve`, or the empty texts")
        vectors: dict[int, Tensor] = {}
        for group in self._batches(rows):
            tokens, real = _padded([rows[i] for i in group])
            states = self.inner.states(tokens, real)
            last = real.sum(-1) - 1
            vectors |= zip(group, states[torch.arange(len(group)), last].float().cpu())
            if progress:
                progress(len(vectors), len(rows))
        return torch.stack([vectors[i] for i in range(len(rows))])

    @torch.no_grad()
    def means(self, texts: Sequence[str]) -> Tensor:
        """(N, D) the mean over each text's tokens of the last hidden states, cut one short of the context; zeros of no tokens."""
        rows = [row[: self.context - 1] for row in self.encode(texts)]
        vectors: dict[int, Tensor] = {}
        for group in self._batches([row or [0] for row in rows]):
            tokens, real = _padded([rows[i] or [0] for i in group])
            states = self.inner.states(tokens, real).float().cpu()
            weights = real.float() / real.sum(-1, keepdim=True)
            vectors |= zip(group, torch.einsum("btd,bt->bd", states, weights))
        return torch.stack([vectors[i] if rows[i] else torch.zeros_like(vectors[i]) for i in range(len(rows))])

    def draw(self, count: int, length: int, seed: int = 0) -> list[str]:
        """Texts of its own, of `length` tokens, or as many as it takes at once; text i has the stream of (seed, i)."""
        return self.inner.draw(count, min(length, self.context - 1), seed)

    def cut(self, rows: Sequence[Sequence[int]]) -> int:
        """How many of these rows are longer than the context."""
        return sum(len(row) > self.context for row in rows)

    def _pieces(self, rows: Sequence[Sequence[int]]) -> tuple[list[Sequence[int]], list[int]]:
        """What is read at once, and the row each piece is of."""
        pieces, of = [], []
        for number, row in enumerate(rows):
            end = len(row) if self.long == "chunks" else self.context
            for at in range(0, min(len(row), end), self.context):
                pieces.append(row[at : at + self.context])
                of.append(number)
        return pieces, of

    def _batches(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        """Rows of about the same length together, so many that their logits have room."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        batches: list[list[int]] = []
        for i in order:
            room = max(1, LOGITS // (self.inner.vocabulary * max(len(rows[i]), 1)))
            if batches and len(batches[-1]) < room:
                batches[-1].append(i)
            else:
                batches.append([i])
        return batches

    def _counted(self, tokens: Tensor) -> Tensor:
        """(B, T) bool, which tokens count."""
        counted = torch.ones_like(tokens, dtype=torch.bool)
        if self.first == "given":
            counted[:, 0] = False
        if self.eos == "first" and self.inner.end is not None:
            end = tokens == self.inner.end
            counted &= ~end | (end.cumsum(-1) == 1)
        return counted


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Rows as (B, T) tokens, filled up with 0 on the right, and where they are (B, T) bool."""
    T = max(len(row) for row in rows)
    tokens = torch.tensor([[*row, *[0] * (T - len(row))] for row in rows])
    return tokens, torch.arange(T) < torch.tensor([[len(row)] for row in rows])
