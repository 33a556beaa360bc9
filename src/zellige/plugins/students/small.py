"""Train a small network in one process, without a run on disk: what goes with a model (a classifier, a causal head)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from zellige.base.errors import InputError
from zellige.base.requests import Progress
from zellige.core.batch import Batch
from zellige.core.random import mix
from zellige.data.corpus import Corpus
from zellige.data.rows import Rows
from zellige.nn.precision import products

WARM_UP = 0.05  # of the steps


@dataclass(frozen=True)
class FitOptions:
    """Training of a small network.

    Attributes:
        batch: rows of a step; each row is seen once before any is seen again.
        lr: peak learning rate.
        seed: of the order and the noise.
        progress: called with (steps done, steps in all).
        precision: of matrix products; the weights stay as they are.
    """

    steps: int
    batch: int
    lr: float
    seed: int = 0
    progress: Progress | None = None
    precision: str = "float32"


def held_out(corpus: Corpus, *splits: str) -> Rows:
    """The rows of the first of the splits that there is. InputError: there is none, and so nothing to judge by."""
    name = next((name for name in splits if name in corpus.rows), None)
    if name is None:
        raise InputError(
            f"'{corpus.about['name']}' has no {' or '.join(splits)} split to judge by, only {', '.join(corpus.rows)}; "
            "set `data.validation` above 0"
        )
    return corpus.split(name)


def fit(
    network: nn.Module,
    rows: Rows,
    loss_of: Callable[[Batch, torch.Generator], Tensor],
    options: FitOptions,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    clip: float | None = None,
) -> None:
    """Minimise a loss over the rows of a data set by AdamW, with a warm-up, then along a cosine to 0.

    Args:
        loss_of: the loss, a scalar, of a batch on the CPU and a generator for its noise.
        clip: the largest norm of a gradient.
    """
    steps, batch = options.steps, options.batch
    optimizer = torch.optim.AdamW(network.parameters(), options.lr, betas=betas)
    warm = max(1, int(WARM_UP * steps))
    rate = lambda step: min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * step / steps)))  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    generator, order = (
        torch.Generator().manual_seed(mix(options.seed, "noise") % 2**63),
        torch.empty(0, dtype=torch.long),
    )
    device = next(network.parameters()).device
    network.train()
    for step in range(steps):
        while len(order) < batch:
            order = torch.cat((order, torch.randperm(len(rows), generator=generator)))
        rows_of_step, order = order[:batch], order[batch:]
        with products(device, options.precision):
            loss = loss_of(rows.collate([rows[int(i)] for i in rows_of_step]), generator)
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(network.parameters(), clip)
        optimizer.step()
        schedule.step()
        if options.progress:
            options.progress(step + 1, steps)
    network.eval().requires_grad_(False)
