"""Shared part of samplers that write a text in blocks: the sampler inside each block."""

import functools
from typing import ClassVar

from ..base.errors import InputError
from ..base.requests import declared, option
from .sampler import Exactness, Sampler, find


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

    def steps_of(self, times):
        """The steps of one block. Each line of `times` is a step, and begins with the number of blocks that are left."""
        return int((times[:-1, 0] == times[0, 0]).sum())
