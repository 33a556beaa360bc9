"""A pilot: a few network evaluations in each part of time, to choose the distribution of the times of an evaluation.

Its noise has its own seeds, so the proposal is independent of the draws of the estimate. The estimate is therefore
unbiased for any proposal.
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
    """Edges of the bins of time in which the pilot evaluates the network; () if there is nothing to choose."""
    if not likelihood.importance:
        return ()
    steps = len(likelihood.drawn_steps) if likelihood.T else 0
    return () if likelihood.T and steps < 2 else tuple(octaves(steps) if likelihood.T else octaves())


@torch.no_grad()
def pilot(
    likelihood: Likelihood, rows: Rows, chosen: list[int], seed: int, device: torch.device
) -> dict[str, Any] | None:
    """Root mean square of the drawn term in each bin of time, over EACH draws; None if there is nothing to choose.

    {"edges": of the bins, "sizes": root mean squares times the widths of the bins, in nats} and their meaning, for the
    protocol; see `proposal_of`. Sizes are rounded to a quarter of an octave, so rounding in the network changes no draw.
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
    """Proposal from the sizes of a pilot."""
    return None if found is None else Proposal.proportional(found["edges"], found["sizes"], whole=likelihood.T > 0)


def _rounded(size: float) -> float:
    return 2 ** (round(4 * math.log2(size)) / 4) if 0 < size < math.inf else size
