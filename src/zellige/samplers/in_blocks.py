"""Shared part of samplers that write a text in blocks: the sampler inside each block."""

import functools
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.requests import declared, option
from ..core.random import Randomness
from ..core.schedule import as_time
from ..methods.method import Method
from .captured import captured
from .pairing import of_length
from .sampler import Exactness, Sampler, State, find


@declared
class InBlocks(Sampler):
    """A sampler whose `inner` sampler writes each block of a text."""

    block_sampler: str | Sampler = option(
        "sampler that fills each block; you can also give its options",
        default="ancestral",
    )

    exactness: ClassVar[Exactness] = "inner"
    samples_from: ClassVar[str] = "T steps"
    claim: ClassVar[str] = "as exact as the block sampler"
    needs: ClassVar[str] = "absorbing"
    calls: ClassVar[str] = "inner, per block"

    def __post_init__(self):
        super().__post_init__()
        if getattr(self.inner, "carries", False):
            raise InputError("`estimate` 'carried' carries nothing from block to block; leave it out")

    @functools.cached_property
    def inner(self) -> Sampler:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Sampler inside a block."""
        return find(self.block_sampler)() if isinstance(self.block_sampler, str) else self.block_sampler

    def times_of_blocks(self, method: Method, sizes: Sequence[int], steps: int | None) -> Tensor:
        """Times (steps of all blocks + 1, 3) of blocks of these lengths, from left to right: blocks left, and the inner
        sampler's times from and to; then zeros."""
        grids = {size: self.inner.times(of_length(method, size), steps).double().cpu() for size in {*sizes}}
        rows = []
        for left, size in zip(range(len(sizes), 0, -1), sizes, strict=True):
            grid = grids[size]
            rows.append(torch.stack((torch.full_like(grid[1:], left), grid[:-1], grid[1:]), -1))
        return torch.cat((*rows, torch.zeros(1, 3)))

    def step_inside(self, method: Method, inner: State, t: Tensor, generator: Randomness = None) -> State:
        """Step of the inner sampler in a block, by a line t (3,) of `times`, which is on the CPU."""
        begin, end = (as_time(float(time), inner.x.device) for time in t[1:])
        return captured(self.inner.step, method)(self.inner.truncated(method), inner, begin, end, generator)

    def steps_of(self, times):
        """The steps of one block. Each line of `times` is a step, and begins with the number of blocks that are left."""
        return int((times[:-1, 0] == times[0, 0]).sum())
