"""Clipped times: t uniform in an interval of [0, 1] in training, and the search for the interval whose loss varies least.

Of block diffusion (Arriola et al. 2025, arXiv 2503.09573, section 5): extreme times make much of the variance of the gradient and
teach little. The search (section 5.3) tries each interval on the same rows with the same random numbers.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..core import random
from ..core.random import Randomness

WIDTHS, STEP = (0.5, 0.6, 0.7, 0.8, 0.9), 0.05  # of the intervals that are searched


def intervals() -> list[tuple[float, float]]:
    """The candidates of the search: all of [0, 1], and intervals of several widths, a step apart."""
    candidates = [(0.0, 1.0)]
    for width in WIDTHS:
        candidates += [(i * STEP, i * STEP + width) for i in range(round((1 - width) / STEP) + 1)]
    return candidates


@torch.no_grad()
def search(
    loss: Callable[[Tensor, Randomness], Tensor], interval: Tensor, generator: Randomness = None
) -> tuple[Tensor, float]:
    """The interval (2,) whose loss varies least over the rows and what is drawn, and that variance.

    Args:
        loss: of each row (B,), from an interval (2,) and what to draw from.
        interval: (2,) the one so far, which stays where no variance is a number.
    """
    seed = int(random.uniform((1,), generator) * 2**53)
    best, least = interval.clone(), torch.inf
    for ends in map(interval.new_tensor, intervals()):
        variance = float(loss(ends, torch.Generator().manual_seed(seed)).var())
        if variance < least:  # BD3-LM section 5.3
            least, best = variance, ends
    return best, least
