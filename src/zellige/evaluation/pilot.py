"""A pilot: a few network evaluations in each part of time, which say how the times of an evaluation are best drawn.

Its noise has seeds of its own, so that the proposal is independent of the draws of the estimate, which is therefore
unbiased for these very texts, whatever the pilot found.
"""

import itertools
import math
from dataclasses import replace
from typing import Any

import torch

from ..core.proposal import Proposal, octaves
from ..core.random import mix
from ..data.rows import Rows
from .likelihood import Likelihood

EACH = 4  # draws in each bin
MEANS = (
    "root mean squares of the drawn term in each bin of time, by a pilot with seeds of its own; times are drawn in "
    "proportion to their density, interpolated, and a tenth evenly, and each term has the weight of 1 over the "
    "probability"
)


def pilot_edges(likelihood: Likelihood) -> tuple[float, ...]:
    """Edges of the bins of time in which the pilot evaluates the network; () where there is nothing to choose."""
    if not likelihood.importance:
        return ()
    steps = len(likelihood.drawn_steps) if likelihood.T else 0
    return () if likelihood.T and steps < 2 else tuple(octaves(steps) if likelihood.T else octaves())


@torch.no_grad()
def pilot(
    likelihood: Likelihood, rows: Rows, chosen: list[int], seed: int, device: torch.device
) -> dict[str, Any] | None:
    """Root mean square, in each bin of time, of the term whose times are drawn, over EACH draws; None without a choice.

    {"edges": of the bins, "sizes": times the bins' widths, in nats}, with what they mean, for the protocol; see
    `proposal_of`. Sizes are rounded to a quarter of an octave, so that the rounding of a network changes no draw.
    """
    edges = pilot_edges(likelihood)
    if not edges:
        return None
    pairs, N, sizes = list(itertools.pairwise(edges)), len(chosen), []
    for k, (low, high) in enumerate(pairs):
        places = [chosen[(k + len(pairs) * j) * N // (len(pairs) * EACH)] for j in range(EACH)]
        batch = rows.collate([rows[i] for i in places]).to(device)
        generator = torch.Generator().manual_seed(mix(seed, "pilot", k))
        value = replace(likelihood, proposal=Proposal((low, high), (1.0,))).between(batch, generator)
        sizes.append(_rounded(float(value.double().square().mean().sqrt())))
    return {"edges": list(edges), "sizes": sizes, "draws": EACH * len(pairs), "means": MEANS}


def proposal_of(found: dict[str, Any] | None, likelihood: Likelihood) -> Proposal | None:
    """The proposal that a pilot makes."""
    return None if found is None else Proposal.proportional(found["edges"], found["sizes"], whole=likelihood.T > 0)


def _rounded(size: float) -> float:
    return 2 ** (round(4 * math.log2(size)) / 4) if 0 < size < math.inf else size
