"""The learning rate of a step: a linear warm-up, then constant, down a half cosine, or with the root of the step."""

import math
from typing import Any


def learning_rate(train: Any, step: int) -> float:
    """Return the rate of step `step` (from 0). train: a Train, or anything with its rate, warmup, decay and steps."""
    warm = min(1.0, (step + 1) / train.warmup) if train.warmup else 1.0
    if train.decay == "constant":
        return train.rate * warm
    if train.decay == "inverse-sqrt":  # the published code's rsqrt_normalized_decay
        start = max(train.warmup, 1)
        return train.rate * warm * math.sqrt(start / max(step + 1, start))
    share = min(max(step - train.warmup, 0) / max(train.steps - train.warmup, 1), 1.0)
    return train.rate * warm * (1 + math.cos(math.pi * share)) / 2
