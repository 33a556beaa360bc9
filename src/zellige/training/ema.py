"""The moving average of the weights: what is evaluated, sampled and kept; and the learning rate of a step."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn


class EMA:
    """An exponential moving average of the trained parameters of a module.

    The decay of step n is min(decay, (1 + n) / (10 + n)), so that the first steps do not drag the initial weights
    along; without `warmup` it is `decay` from the first. With decay 0 there is no average, and `swapped` changes
    nothing.
    """

    def __init__(self, module: nn.Module, decay: float, warmup: bool = True):
        self.decay, self.warmup = decay, warmup
        self.live = {name: p for name, p in module.named_parameters() if p.requires_grad} if decay else {}
        self.average = {name: _local(p).detach().clone() for name, p in self.live.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move the average towards the weights that step `step` (from 1) has left."""
        if self.live:
            weight = 1 - (min(self.decay, (1 + step) / (10 + step)) if self.warmup else self.decay)
            now = [_local(p) for p in self.live.values()]
            torch._foreach_lerp_(list(self.average.values()), now, weight)

    @contextlib.contextmanager
    def swapped(self) -> Iterator[None]:
        """The average in the module's place; the weights come back bit for bit, however the block is left."""
        weights = {
            name: _local(p).detach().clone() for name, p in self.live.items()
        }  # all of it before anything changes
        try:
            self._put(self.average)
            yield
        finally:
            self._put(weights)

    def state(self) -> dict[str, Tensor]:
        """The average by parameter; sharded where the parameters are."""
        return {name: _like(p, self.average[name]) for name, p in self.live.items()}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take an average that `state` gave."""
        for name in self.live:
            self.average[name].copy_(_local(state[name]))

    @torch.no_grad()
    def _put(self, tensors: Mapping[str, Tensor]) -> None:
        for name, p in self.live.items():
            _local(p).copy_(tensors[name])


def _local(p: Tensor) -> Tensor:
    """Part of a parameter that this process holds: all of it, or its shard (a DTensor's)."""
    return p.to_local() if hasattr(p, "to_local") else p  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]


def _like(p: Tensor, local: Tensor) -> Tensor:
    if not hasattr(p, "to_local"):
        return local
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(local, p.device_mesh, p.placements, shape=p.shape, stride=p.stride())  # pyright: ignore


def learning_rate(train: Any, step: int) -> float:
    """Return the rate of step `step` (from 0). train: a Train, or anything with its lr, warmup, decay and steps."""
    warm = min(1.0, (step + 1) / train.warmup) if train.warmup else 1.0
    if train.decay == "constant":
        return train.lr * warm
    if train.decay == "inverse-sqrt":  # the published code's rsqrt_normalized_decay
        start = max(train.warmup, 1)
        return train.lr * warm * math.sqrt(start / max(step + 1, start))
    share = min(max(step - train.warmup, 0) / max(train.steps - train.warmup, 1), 1.0)
    return train.lr * warm * (1 + math.cos(math.pi * share)) / 2
