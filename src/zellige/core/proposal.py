"""Proposal distribution of the times at which a bound is sampled, with the weights that keep the estimate unbiased.

The terms of a bound differ by orders of magnitude along time: without a mask those near clean tokens are the largest.
If times have the density q instead of the uniform one, a term has the weight 1/q. The variance of one sample is
smallest if q is proportional to the root mean square of the term (Cauchy-Schwarz). A pilot estimates this
(`evaluation.pilot`).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

SMALLEST = 2.0**-10  # width of the bins at both ends of continuous time
PARTS = 8  # parts of a bin
EVEN = 0.1  # uniform part of a proposal: no weight is more than 1 / EVEN times that of the uniform density


@dataclass(frozen=True)
class Proposal:
    """Density of times that is constant in each bin.

    Attributes:
        edges: the rising edges of the bins, from 0 to 1 in continuous time, from 0 to n for the steps 0 .. n - 1.
        probabilities: the probability of each bin; they sum to 1.
    """

    edges: tuple[float, ...]
    probabilities: tuple[float, ...]

    @classmethod
    def even(cls, size: float) -> Self:
        """Return the uniform density on [0, size)."""
        return cls((0, size), (1.0,))

    @classmethod
    def proportional(cls, edges: Sequence[float], sizes: Sequence[float], whole: bool = False) -> Self:
        """Return a density that is proportional to the root mean square of the terms in each bin.

        A pilot with few samples misses rare large terms (near clean tokens most are 0). So a density is at least a
        quarter of that of a neighbouring bin. Densities are then smoothed over three bins and interpolated in PARTS of
        each bin, both geometrically, and mixed with the fraction EVEN of the uniform density. If all sizes are 0, or
        one is not finite, the result is uniform.

        Args:
            edges: the edges of the bins.
            sizes: for each bin, the root mean square of the term times the width of the bin.
            whole: True if the edges are numbers of steps.
        """
        size, width = (torch.tensor(x, dtype=torch.float64) for x in (sizes, _widths(edges)))
        if not bool(size.isfinite().all()) or float(size.max()) <= 0:
            return cls.even(edges[-1])
        height = (size / size.max()).clamp_min(2.0**-40).log2() - width.log2()
        bin_number = torch.arange(len(height))
        height = (height - 2 * (bin_number[:, None] - bin_number).abs()).amax(1)
        smooth = height.clone()
        smooth[1:-1] = (height[:-2] + 2 * height[1:-1] + height[2:]) / 4
        fine, density = [float(edges[0])], []
        for k, (low, high) in enumerate(itertools.pairwise(edges)):
            parts = min(PARTS, int(high - low)) if whole else PARTS
            for i in range(parts):
                end = low + (high - low) * (i + 1) / parts
                fine.append(float(round(end) if whole else end))
                density.append(_between(smooth.tolist(), k + (i + 0.5) / parts - 0.5))
        width = torch.tensor(_widths(fine), dtype=torch.float64)
        share = width * torch.tensor(density, dtype=torch.float64).exp2()
        share = EVEN * width / width.sum() + (1 - EVEN) * share / share.sum()
        return cls(tuple(fine), tuple(share.tolist()))

    def times(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Map uniform u in [0, 1) to times in [edges[0], edges[-1]) and their weights, 1 / density: (*) each."""
        _, time, weight = self._draw(u)
        return time, weight

    def steps(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Map uniform u in [0, 1) to steps (*) long and their weights, 1 / probability: (*)."""
        k, time, weight = self._draw(u)
        edges = torch.tensor(self.edges, dtype=torch.long, device=u.device)
        return time.floor().long().clamp(edges[k], edges[k + 1] - 1), weight

    def _draw(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        edges, p = (torch.tensor(x, dtype=torch.float64, device=u.device) for x in (self.edges, self.probabilities))
        above = p.cumsum(0)
        k = torch.searchsorted(above, u * above[-1], right=True).clamp_max(len(p) - 1)
        low, width = edges[k], edges.diff()[k]
        inside = ((u * above[-1] - above[k] + p[k]) / p[k]).clamp(0.0, 1 - 2.0**-53)
        return k, torch.minimum(low + inside * width, edges[k + 1].nextafter(low)), width / p[k]


def _widths(edges: Sequence[float]) -> list[float]:
    return [high - low for low, high in itertools.pairwise(edges)]


def _between(values: Sequence[float], at: float) -> float:
    """Interpolate values at 0, 1, 2, ... linearly; constant beyond them."""
    at = min(max(at, 0.0), len(values) - 1.0)
    k = min(int(at), len(values) - 2) if len(values) > 1 else 0
    return values[k] if len(values) == 1 else values[k] + (at - k) * (values[k + 1] - values[k])


def octaves(steps: int = 0) -> tuple[float, ...]:
    """Edges of bins that double in width from both ends to the middle, for `steps` steps, or for [0, 1] if it is 0."""
    if not steps:
        below = [0.0, *itertools.takewhile(lambda x: x < 0.5, (SMALLEST * 2**k for k in itertools.count()))]
        return (*below, 0.5, *(1 - x for x in reversed(below)))
    below = list(itertools.takewhile(lambda n: 2 * n < steps, (2**k - 1 for k in itertools.count())))
    middle = [steps // 2] if below[-1] < steps // 2 < steps - below[-1] else []
    return tuple(float(n) for n in dict.fromkeys((*below, *middle, *(steps - n for n in reversed(below)))))
