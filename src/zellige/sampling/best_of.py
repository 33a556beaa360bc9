"""Best of N (`Decoding.best_of`): of N candidates of each sample the one that the model itself finds likeliest.

The candidates of sample k are the samples N k, ..., N k + N - 1 of the same seed. Each is scored by its bound on -log p(x),
given the tokens that were given, divided by the number of the others, the end token included: the mean of DRAWS draws, with the
same random numbers for all candidates. A text that has ended comes before one that has not, since a text that repeats itself
for ever is likely, token by token.

A sampler that writes from left to right does not see the text after a gap (`Growing.ahead`). There the bound counts this text
too: the candidate is chosen that makes itself and the text after it likeliest.

The likeliest candidate has fewer errors than one sample, and fewer rare words: as at a lower temperature, the distribution is
no longer the model's.
"""

import time
from dataclasses import replace

import torch
from torch import Tensor

from ..base.errors import InputError
from ..core.batch import Batch
from ..methods.method import device_of
from ..models.model import Model
from ..samplers.growing import Redrawn
from ..samplers.pairing import of_length
from ..samplers.sampler import HIDDEN, Sampler
from ..samplers.smc import Smc
from .samples import Samples
from .trajectory import Trajectory

DRAWS = 4


def check_choice(model: Model, sampler: Sampler) -> None:
    """InputError where there is nothing to choose by, or the sampler chooses already."""
    if not model.method.bounded:
        raise InputError(f"`best_of` compares bounds, and this {model.method.name} has none; leave it out, or give 1")
    if isinstance(sampler, Smc):
        raise InputError(
            "`best_of` chooses among samples, and sampler 'smc' weighs its own particles; leave `best_of` out"
        )


def best_of(number: int, trajectory: Trajectory, candidates: Samples) -> Samples:
    """Of each `number` candidates in turn the likeliest; its cost is that of all of them and of their bounds."""
    began = time.perf_counter()
    method, total = trajectory.model.method, len(candidates.tokens)
    draws = 1 if method.exact else DRAWS
    ended = has_ended(trajectory, candidates)
    rank = [
        (trajectory.end is not None and not ended[k], nats_per_token(trajectory, k, row, ended[k], draws))
        for k, row in enumerate(candidates.tokens)
    ]
    groups = [range(first, first + number) for first in range(0, total, number)]
    chosen = candidates.take([min(group, key=rank.__getitem__) for group in groups])
    pieces = [len(windows(trajectory, k, row, ended[k])) for k, row in enumerate(candidates.tokens)]
    more = [draws * method.passes * count for count in pieces]
    expected, distribution = candidates.expected_calls, candidates.distribution
    if trajectory.end is not None and trajectory.length > method.window:
        expected = None  # where a text ends is drawn, and with it how many windows it has
    return replace(
        chosen,
        calls=[sum(candidates.calls[k] + more[k] for k in group) for group in groups],
        expected_calls=None if expected is None else number * (expected + sum(more) / total),
        seconds=candidates.seconds + time.perf_counter() - began,
        distribution=distribution and distribution.changed(f"best of {number}", f"the likeliest of {number:,}"),
    )


def has_ended(trajectory: Trajectory, samples: Samples) -> list[bool]:
    """Whether a drawn token ended each text. A text whose length was drawn, or that was stopped, has not ended so."""
    if isinstance(samples.summary, Redrawn):
        return samples.summary.ended
    return [not trajectory.lengths and len(row) < trajectory.length for row in samples.tokens]


def windows(trajectory: Trajectory, number: int, tokens: list[int], ended: bool) -> list[tuple[Tensor, Tensor]]:
    """The parts of a finished sample that the network reads at once, those with a token that was not given: the tokens,
    and which were not given."""
    of, method = trajectory, trajectory.model.method
    row = torch.tensor([*tokens, of.end] if ended and of.end is not None else tokens)
    given = torch.full_like(row, -1) if of.fixed is None else of.fixed[number * len(of.fixed) // of.count, : len(row)]
    row, given = row[given != HIDDEN], given[given != HIDDEN]
    free = given < 0
    if of.sampler.grows:
        free = free.long().cummax(0).values.bool()
    elif method.parameterization == "insertion":  # which moves given tokens
        free = torch.ones_like(free)
    parts = zip(row.split(method.window), free.split(method.window))
    return [(x, counted) for x, counted in parts if counted.any()]


@torch.no_grad()
def nats_per_token(trajectory: Trajectory, number: int, tokens: list[int], ended: bool, draws: int) -> float:
    """Bound on -log p of a finished sample for each token that was not given, the mean of so many draws.

    Of a text longer than the network's window each window is scored alone.
    """
    of, method = trajectory, of_length(trajectory.model.method, trajectory.length)
    label = None if of.condition is None else of.condition[number : number + 1]
    nats, size = 0.0, 0
    for x, counted in windows(of, number, tokens, ended):
        batch = Batch(x[None], counted[None], condition=label).take(torch.zeros(draws, dtype=torch.long))
        nats += float(method.bound(batch.to(device_of(method)), torch.Generator().manual_seed(0)).double().mean())
        size += int(counted.sum())
    return nats / max(size, 1)
