"""Several corpora as one, mixed by weights: `web/=0.7,books.jsonl=0.3`.

A weight is a share of the training rows. Every BLOCK rows of training hold each source its share exactly (to the
nearest row), in an order of their own; which source, and which row of it, is a function of the seed and of the row's
number alone (`training/order.py`). Validation and test are pooled: each row of each source counts once, whatever its
weight.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..base.errors import InputError, quoted
from ..base.requests import Progress
from . import catalogue, tokenizer_by_name
from .catalogue import DATASETS, SPLITS
from .corpus import Corpus, Data, as_data, count_rows, describe_tokenizer, fill_of
from .file_names import find_files, is_documents
from .losses import together
from .rows import Rows

if TYPE_CHECKING:
    from .tokenizer_base import Tokenizer

BLOCK = 10_000  # rows of training in which the shares are exact: the least share is one of these


class Pool(Rows):
    """The rows of several sources one after another. shares: how many of BLOCK rows of training each gives."""

    def __init__(self, parts: Sequence[Rows], shares: Sequence[int]):
        self.parts, self.shares = parts, shares
        self.length, self.padding, self.clues, self.labels = parts[0].length, parts[0].padding, None, None
        self.ends = np.cumsum([len(source) for source in parts])
        self._text_ends = np.cumsum([source.texts for source in parts])
        self._count, self.texts = int(self.ends[-1]), int(self._text_ends[-1])
        self.tokens_total, self.cut, self.left_out = (
            sum(getattr(source, name) for source in parts) for name in ("tokens_total", "cut", "left_out")
        )
        self.losses = together((source.losses, source.tokens_total) for source in parts)
        characters = [source.characters for source in parts if source.characters is not None]
        self.characters = sum(characters) if len(characters) == len(parts) else None
        starts = [source.documents for source in parts if source.documents is not None]
        sizes = [np.diff(begin) for begin in starts]
        self.documents = np.cumsum(np.concatenate([[0], *sizes])) if starts else None

    @property
    def sources(self) -> list[tuple[int, int]]:
        return [(len(source), share) for source, share in zip(self.parts, self.shares)]

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if not -self._count <= index < self._count:
            raise IndexError(f"row {index} of {self._count}")
        index %= self._count
        number = int(np.searchsorted(self.ends, index, "right"))
        return self.parts[number][index - int(self.ends[number]) + len(self.parts[number])]

    def _texts(self, chosen: np.ndarray) -> np.ndarray:
        tokens = np.full((len(chosen), self.length), -1, np.int64)
        of = np.searchsorted(self._text_ends, chosen, "right")
        for i, source in enumerate(self.parts):
            tokens[of == i] = source._texts(chosen[of == i] - int(self._text_ends[i]) + source.texts)
        return tokens

    def tail(self) -> np.ndarray:
        return np.concatenate([source.tail() for source in self.parts])


def parse_mix(text: str) -> dict[str, float]:
    """The sources of `data.mix` and their weights, which sum to 1.

    >>> parse_mix("web/*.jsonl=7,books=3")
    {'web/*.jsonl': 0.7, 'books': 0.3}
    """
    weights: dict[str, float] = {}
    for entry in text.split(","):
        name, _, number = entry.rpartition("=")
        try:
            weight = float(number.encode("ascii"))  # not the digits of other scripts
        except ValueError:
            weight = math.nan
        if not name.strip() or "," not in text or not 0 < weight < math.inf:  # one source is no mixture
            raise InputError(
                f"`data.mix` is {quoted(text)}; write NAME=WEIGHT,NAME=WEIGHT of two or more data sets or paths, "
                "e.g. web/=0.7,books.jsonl=0.3"
            )
        if name.strip() in weights:
            raise InputError(f"`data.mix` names '{name.strip()}' twice; add the two weights")
        weights[name.strip()] = weight
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def block_shares(weights: dict[str, float]) -> list[int]:
    """Number of each source's sequences in a block of BLOCK, by largest remainders."""
    exact = [weight * BLOCK for weight in weights.values()]
    shares = [math.floor(share + 1e-9) for share in exact]
    order = sorted(range(len(exact)), key=lambda i: shares[i] - exact[i])
    for i in order[: BLOCK - sum(shares)]:
        shares[i] += 1
    few = next((name for name, share in zip(weights, shares) if not share), None)
    if few is not None:
        raise InputError(
            f"`data.mix` gives '{few}' {weights[few]:.2g} of the rows; the least is 1 in {BLOCK:,}, leave it out"
        )
    return shares


def prepare_mix(
    data: Data,
    length: int,
    tokenizer: "Tokenizer | None",
    progress: "Progress | None",
    prepare: Callable[..., Corpus],
    ends: int = 0,
) -> Corpus:
    """Each source as `prepare` makes it alone, in the same tokens, put together: what that does for one corpus."""
    weights = parse_mix(data.mix or "")
    shares = block_shares(weights)
    if tokenizer is None:
        if not data.tokenizer or tokenizer_by_name.is_learnt(data.tokenizer):
            raise InputError(
                "`data.mix` needs one tokenizer for all sources, learnt on none; give `data.tokenizer`, e.g. gpt2 or "
                "bytes"
            )
        cache = catalogue.cache_folder(data.cache)
        tokenizer = tokenizer_by_name.named_tokenizer(
            data.tokenizer, lambda address, checksum: catalogue.fetch(address, checksum, cache, progress)
        )
    corpora = {
        name: prepare(_source(name, data), length, tokenizer=tokenizer, progress=progress, ends=ends)
        for name in weights
    }
    for corpus in corpora.values():
        corpus.split("train")  # or it says that there is none
    pools = {}
    for split in SPLITS:
        parts = {name: corpus.rows[split] for name, corpus in corpora.items() if split in corpus.rows}
        if parts:
            pools[split] = Pool([*parts.values()], shares if len(parts) == len(corpora) else [1] * len(parts))
    abouts = {name: corpus.about for name, corpus in corpora.items()}
    about: dict[str, Any] = {
        "name": "text",
        "what": f"{len(corpora)} sources, mixed by weights",
        "licence": "; ".join(dict.fromkeys(about["licence"] for about in abouts.values())),
        "files": [file for about in abouts.values() for file in about.get("files", [])][:100],
        "mix": {
            name: {
                "share": share / BLOCK,
                "name": about["name"],
                "splits": about["splits"],
                "sha256": about.get("sha256"),
            }
            for (name, about), share in zip(abouts.items(), shares)
        },
        "sha256": _digest([[about.get("sha256"), share] for about, share in zip(abouts.values(), shares)]),
        "splits": {name: count_rows(rows) for name, rows in pools.items()},
        "tokenizer": describe_tokenizer(tokenizer),
        "pack": data.pack,
        "fill": 0 if data.pack == "wrap" else fill_of(data, tokenizer, ends),
        "separator": " or ".join(dict.fromkeys(about["separator"] for about in abouts.values())),
        "end": next(about["end"] for about in abouts.values()),
        "separates": "documents" if any(about["separates"] == "documents" for about in abouts.values()) else "",
        "length": length,
        "tokens_sha256": _digest([about.get("tokens_sha256", about.get("sha256")) for about in abouts.values()]),
    }
    return Corpus(tokenizer, pools, about, tuple(note for corpus in corpora.values() for note in corpus.notes))


def _source(name: str, data: Data) -> Data:
    """The Data of one source: what the mixture says of all, as far as it means something to this one."""
    source = as_data(name)
    if DATASETS[source.name].shaped:
        raise InputError(f"`data.mix` is of texts and tokens, and '{name}' is neither; leave it out")
    field = data.field if source.name == "text" and is_documents(find_files(source.path or "")[0]) else None
    documents = data.documents if source.name == "text" else ""
    is_named = source.name in ("text", "tokens", "pydocs")
    shares = {"validation": data.validation, "test": data.test} if is_named else {}
    return dataclasses.replace(
        source, field=field, pack=data.pack, documents=documents, fill=data.fill, cache=data.cache, **shares
    )


def _digest(what: object) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
