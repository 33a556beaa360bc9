"""Degenerate samplers: they write samples that nobody would call good and that some metric does.

Beside each metric they show what it does not see:

    repeated     the beginning of a training text, an eighth of it, eight times over, another in each sample
    one text     the same training text as every sample
    unigrams     tokens drawn one by one with the frequencies of the training set
    copied       training texts, each once
    cold         the model's own samples at temperature 0.5
    judge's own  what the judge itself writes

One fools a measure where the measure shows it no worse than real text: better, or with intervals that overlap.
"""

from collections.abc import Mapping

import numpy as np
import torch

from zellige.base.errors import InputError
from zellige.core.random import categorical, mix
from zellige.data.rows import Rows
from zellige.data.tokenizer_base import Tokenizer
from zellige.evaluation import metrics
from zellige.evaluation.interval import Number

from .judge import Judge
from .sample_sets import Set, Way

COLD = 0.5
TIMES = 8
FREQUENCIES = 10_000  # training rows that unigrams are counted in, at most


def of_training(tokenizer: Tokenizer, training: Rows, count: int, seed: int) -> dict[str, Set]:
    """The degenerate samplers that need the training set alone, by name: repeated, one text, unigrams, copied;
    `count` samples of each."""
    training_rows = [row[row >= 0] for row in training.array(count)]
    training_rows = [training_rows[i % len(training_rows)] for i in range(count)]
    many = np.bincount((rows_counted := training.array(FREQUENCIES))[rows_counted >= 0], minlength=tokenizer.size)
    streams = [torch.Generator().manual_seed(mix(seed, "unigrams", i)) for i in range(count)]
    frequencies = torch.from_numpy(many).double()
    rows = {
        "repeated": [np.resize(row[: max(1, len(row) // TIMES)], len(row)) for row in training_rows],
        "one text": [training_rows[count // 2]] * count,
        "unigrams": [
            categorical(frequencies.expand(len(row), -1), g).numpy() for row, g in zip(training_rows, streams)
        ],
        "copied": training_rows,
    }
    tokens = {name: [row.tolist() for row in texts] for name, texts in rows.items()}
    return {name: Set(Way(), [tokenizer.decode(row) for row in texts], texts) for name, texts in tokens.items()}


def judges_own(tokenizer: Tokenizer, judge: Judge, count: int, length: int, seed: int) -> Set:
    """Samples of the judge, each of so many of its tokens. InputError: the model's tokens cannot spell one of them."""
    texts = judge.draw(count, length, seed)
    try:
        rows = [tokenizer.encode(text, f"text {i + 1:,} of the judge") for i, text in enumerate(texts)]
    except InputError as unknown:
        raise InputError(f"the judge's own samples are no texts of this model: {unknown}") from None
    return Set(Way(), texts, rows)


def fooled_metrics(measures: Mapping[str, Number], real: Mapping[str, Number]) -> tuple[str, ...]:
    """The metrics by which these samples are no worse than real text; as good, where it is to be as real text's is."""
    names = list[str]()
    for name, number in measures.items():
        if name in real:
            floor, higher = real[name], metrics.find(name).higher
            above, below = number.high >= floor.low, number.low <= floor.high
            if {True: above, False: below, None: above and below}[higher]:
                names.append(name)
    return tuple(names)
