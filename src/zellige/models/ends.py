"""Where documents end: a model learns it, or is given it.

A document is followed by the token that ends it, repeated up to a multiple of `data.fill` tokens, which count. A model
that writes from left to right needs one such token to learn where a text ends; one of blocks needs whole blocks, and
one that reads a row at once the whole row: `fill_for`. A model with less is given the lengths of its documents in
training. It carries how often each occurred, and its samples first draw one.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..core.random import Streams, categorical, mix
from ..data import Corpus
from ..data.tokenizer_base import Tokenizer
from ..methods.method import Method

if TYPE_CHECKING:
    from .model import Model


def fill_for(method: Any, block: int, length: int, pack: str) -> int:
    """Multiple of tokens to which documents are filled up, so that a method learns where they end.

    Args:
        method: a method, or its class.
        block: length of its blocks; 0: it reads a row of `length` tokens at once.
        pack: as `data.pack`. A whole row holds one document, so for rows of several the lengths are given: 0.
    """
    if method.parameterization in ("next", "insertion"):
        return 0
    return block if 0 < block < length else 0 if pack == "packed" else length


def learns_ends(method: Method, about: Mapping[str, Any], length: int) -> bool:
    """Return whether a model of these documents, in rows of `length` tokens, predicts where they end.

    about: that of the corpus.
    """
    if method.parameterization == "insertion":
        return True
    fill, end = about.get("fill", 0), about["end"]
    has_end = end != "space" and (fill > 0 or end != "none")  # a space ends no document, since it stands within them
    return has_end and (fill >= length or max(fill, 1) % (method.block or length) == 0)


def lengths_given(method: Method, corpus: Corpus) -> dict[str, int]:
    """How many documents of training have each length in tokens, where the model does not learn where they end;
    else {}."""
    rows = corpus.train
    if rows.documents is None or learns_ends(method, corpus.about, rows.length):
        return {}
    counts = np.bincount(np.diff(rows.documents))
    return {str(length): int(count) for length, count in enumerate(counts) if length and count}


def trained_on_documents(model: object) -> bool:
    """Return whether the model was trained on documents: the token that ends a document then ends a text."""
    data = getattr(getattr(model, "config", None), "data", None)
    return getattr(data, "pack", "wrap") != "wrap"


def end_token(tokenizer: Tokenizer, documents: bool = False) -> int | None:
    """The token that ends a text; None where there is none.

    No character does; but a line end ends a text that has a row to itself, such as a molecule, and the text of a model
    trained on `documents`.
    """
    token = tokenizer.separator
    ends = tokenizer.unit == "token" or tokenizer.shape
    return token if ends or (documents and token is not None and tokenizer.decode([token]) != " ") else None


def counts_of_lengths(model: "Model") -> dict[str, int]:
    """What `lengths_given` said of the training of a model."""
    data = (getattr(model, "about", None) or {}).get("data")
    return dict(data.get("lengths") or {}) if isinstance(data, Mapping) else {}


def drawn_lengths(
    counts: Mapping[str, int], seeds: Sequence[tuple[int, int]], begun: "Sequence[int] | torch.Tensor", most: int
) -> tuple[int, ...]:
    """A length for each sample, drawn by how often it occurred among those that are longer than what has begun.

    Args:
        seeds: (seed, number) of each sample, of which alone its length is a function.
        begun: tokens of its prompt.
        most: the length where none is longer than that.
    """
    sizes = torch.tensor([*map(int, counts), most])
    weights = torch.tensor([*counts.values(), 0]).double().expand(len(seeds), -1)
    weights = weights * (sizes > torch.as_tensor(begun)[:, None])
    weights[:, -1] = (weights.sum(-1) == 0).double()
    streams = Streams([mix(*pair, "length") for pair in seeds], torch.device("cpu"))
    return tuple(sizes[categorical(weights, streams)].tolist())
