"""Best of N (`Decoding.best_of`): of N candidates of each sample the one that the model itself finds likeliest.

The candidates of sample k are the samples N k, ..., N k + N - 1 of the same seed. Each is scored by its bound on -log p(x)
given the tokens that were given, divided by the length, the end token included: the mean of DRAWS draws, with the same random
numbers for all candidates. A text that has ended comes before one that has not, since a text that repeats itself for ever is
likely, token by token.

A sampler that writes from left to right does not see what is given right of a gap (`Growing.ahead`). There the bound counts
these tokens too. So the candidate stays after which they are likely; of very many, the likeliest filling.

The likeliest candidate has fewer errors than one sample, and fewer rare words: as at a lower temperature, the distribution is
no longer the model's.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from ..base.errors import InputError
from ..core.batch import Batch
from ..models.model import Model
from ..samplers.pairing import of_length
from ..samplers.sampler import HIDDEN
from .samples import Samples
from .trajectory import Trajectory

DRAWS = 4


def check_bounded(model: Model) -> None:
    """InputError where the model has no bound to choose by."""
    if not model.method.bounded:
        raise InputError(f"`best_of` compares bounds, and {model.method.name} defines none; leave it out")


def best_of(number: int, trajectory: Trajectory, candidates: Samples) -> Samples:
    """Of each `number` candidates in turn the likeliest; its cost is that of all of them and of their bounds."""
    began = time.perf_counter()
    method, size = trajectory.model.method, range(number)
    draws = 1 if method.exact else DRAWS
    rank = [
        (trajectory.end is not None and len(row) == trajectory.length, nats_per_token(trajectory, k, row, draws))
        for k, row in enumerate(candidates.tokens)
    ]
    groups = [[first + j for j in size] for first in range(0, len(rank), number)]
    chosen = candidates.take([min(group, key=rank.__getitem__) for group in groups])
    more = number * draws * method.passes
    expected, distribution = candidates.expected_calls, candidates.distribution
    return replace(
        chosen,
        calls=[sum(candidates.calls[k] for k in group) + more for group in groups],
        expected_calls=None if expected is None else number * expected + more,
        seconds=candidates.seconds + time.perf_counter() - began,
        distribution=distribution and distribution.changed(f"best of {number}", f"the likeliest of {number:,}"),
    )


@torch.no_grad()
def nats_per_token(trajectory: Trajectory, number: int, tokens: Sequence[int], draws: int) -> float:
    """Bound on -log p of a finished sample for each of its tokens, the mean of so many draws."""
    of, model = trajectory, trajectory.model
    method, end = of_length(model.method, of.length), of.end
    row = torch.tensor([*tokens, end] if end is not None and len(tokens) < of.length else [*tokens])
    given = torch.full_like(row, -1) if of.fixed is None else of.fixed[number * len(of.fixed) // of.count, : len(row)]
    row, given = row[given != HIDDEN], given[given != HIDDEN]
    free = given < 0
    free = free.long().cummax(0).values.bool() if of.sampler.grows else free
    free = None if method.parameterization == "insertion" else free[None]  # it moves given tokens
    label = None if of.condition is None else of.condition[number]
    batch = Batch(row[None], free, condition=None if label is None else label[None])
    device = next((p.device for p in method.parameters()), row.device)
    batch = batch.take(torch.zeros(draws, dtype=torch.long)).to(device)
    return float(method.bound(batch, torch.Generator().manual_seed(0)).double().mean()) / len(row)
