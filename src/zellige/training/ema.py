"""The moving average of the weights: what is evaluated, sampled and kept."""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


class EMA:
    """An exponential moving average of the trained parameters of a module.

    The decay of step n is min(decay, (1 + n) / (10 + n)), so that the first steps do not drag the initial weights
    along; without `warmup` it is `decay` from the first. With decay 0 there is no average, and `swapped` changes
    nothing.
    """

    def __init__(self, module: nn.Module, decay: float, warmup: bool = True):
        self.decay, self.warmup = decay, warmup
        parameters = module.named_parameters(remove_duplicate=False) if decay else ()  # a tied one by each of its names
        self.live = {name: p for name, p in parameters if p.requires_grad}
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
        weights = {name: _local(p).detach().clone() for name, p in self.live.items()}  # before anything changes
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
    """Part of a parameter that this process holds: all of it, or its shard."""
    return p.to_local() if isinstance(p, DTensor) else p


def _like(p: Tensor, local: Tensor) -> Tensor:
    if not isinstance(p, DTensor):
        return local
    return DTensor.from_local(local, p.device_mesh, p.placements, shape=p.shape, stride=p.stride())
