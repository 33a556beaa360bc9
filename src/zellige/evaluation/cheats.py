"""Cheats: samples that nobody would call good and that some measure does; beside each measure they show what it does not see.

    repeated     the beginning of a training text, an eighth of it, eight times over, another in each sample
    one text     the same training text as every sample
    unigrams     tokens drawn one by one with the frequencies of the training set
    copied       training texts, each once
    cold         the model's own samples at temperature 0.5
    judge's own  what the judge itself writes

A cheat fools a measure where the measure shows it no worse than real text: beyond it, or with intervals that meet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ..core.random import categorical, mix
from ..errors import InputError
from .judge import Judge
from .sample_quality import AS_REAL, HIGHER, LOWER, Number, better
from .sweep import Progress, Set, Way, draw_samples

COLD = 0.5
TIMES = 8
FREQUENCIES = 10_000  # training rows that unigrams are counted in, at most


@dataclass(frozen=True)
class Cheat:
    """What it is called, and its samples."""

    name: str
    samples: Set


def of_training(tokenizer: Any, training: Any, count: int, seed: int = 0) -> list[Cheat]:
    """The cheats that need the training set alone: repeated, one text, unigrams, copied; `count` samples of each."""
    copied = [row[row >= 0] for row in training.array(count)]
    copied = [copied[i % len(copied)] for i in range(count)]
    many = np.bincount((seen := training.array(FREQUENCIES))[seen >= 0], minlength=tokenizer.size)
    streams = [torch.Generator().manual_seed(mix(seed, "unigrams", i)) for i in range(count)]
    law = torch.from_numpy(many).double()
    rows = {
        "repeated": [np.resize(row[: max(1, len(row) // TIMES)], len(row)) for row in copied],
        "one text": [copied[count // 2]] * count,
        "unigrams": [categorical(law.expand(len(row), -1), g).numpy() for row, g in zip(copied, streams)],
        "copied": copied,
    }
    return [Cheat(name, _as_set(tokenizer, [row.tolist() for row in each])) for name, each in rows.items()]


def cold(model: Any, way: Way, count: int, seed: int, length: int | None, progress: Progress | None = None) -> Cheat:
    """The model's own samples, drawn as `way` says but at temperature 0.5."""
    return Cheat("cold", draw_samples(model, replace(way, temperature=COLD), count, seed, length, progress=progress))


def judges_own(tokenizer: Any, judge: Judge, count: int, length: int, seed: int = 0) -> Cheat:
    """What the judge writes, in texts of so many of its tokens. InputError: it writes what the model's tokens cannot spell."""
    texts = judge.draw(count, length, seed)
    try:
        rows = [tokenizer.encode(text, f"text {i + 1:,} of the judge") for i, text in enumerate(texts)]
    except InputError as unknown:
        raise InputError(f"the judge's own samples are no texts of this model: {unknown}") from None
    return Cheat("judge's own", Set(Way(), texts, rows))


def fooled(measures: dict[str, Number], real: dict[str, Number]) -> list[str]:
    """The measures by which these samples are no worse than real text; as good, where it is to be as real text's is."""
    fooled = []
    for name, number in measures.items():
        if name in real:
            floor, direction = real[name], better(name)
            above, below = number.high >= floor.low, number.low <= floor.high
            if {HIGHER: above, LOWER: below, AS_REAL: above and below}[direction]:
                fooled.append(name)
    return fooled


def _as_set(tokenizer: Any, rows: Sequence[list[int]]) -> Set:
    return Set(Way(), [tokenizer.decode(row) for row in rows], [*rows])
