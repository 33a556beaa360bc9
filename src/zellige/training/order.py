"""Which rows and which random numbers an optimizer step gets: functions of the seed and of the step, nothing else.

So there is no state to save, and a run that goes on from a step sees what the unbroken run would have seen. A step is
computed in parts, `accumulate` of them on each device; of n, part p takes the rows p, p + n, p + 2n, ... of the step and their
random numbers, which count and have no state (`core.random.Counter`). Any number of devices therefore computes the step that one
device computes in as many parts, or at once; and as times and numbers of masks are spread evenly over the rows of each part, all
parts have the same work.
"""

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler

from ..core.random import Counter, Randomness, mix


class BatchSampler(Sampler[list[int]]):
    """The batch sampler: the rows of each part of each step, an endless pass over the data, shuffled anew each epoch.

    Args:
        rows: how many rows there are; a batch may span two epochs, so that any number will do.
        batch: rows of one step, over all its parts.
        start, steps: the first step (from 0) and where to end.
        accumulate, rank, world: parts on each device; which device, of how many.
    """

    def __init__(
        self,
        rows: int,
        seed: int,
        batch: int,
        start: int,
        steps: int,
        accumulate: int = 1,
        rank: int = 0,
        world: int = 1,
    ):
        self.rows, self.seed, self.batch, self.start, self.steps = rows, seed, batch, start, steps
        self.accumulate, self.rank, self.world = accumulate, rank, world

    def __len__(self) -> int:
        return max(self.steps - self.start, 0) * self.accumulate

    def __iter__(self) -> Iterator[list[int]]:
        parts = self.accumulate * self.world
        epoch, order = -1, torch.empty(0)
        for step in range(self.start, self.steps):
            for micro in range(self.accumulate):
                part, chosen = micro * self.world + self.rank, []
                for position in range(step * self.batch + part, (step + 1) * self.batch, parts):
                    if position // self.rows != epoch:
                        epoch = position // self.rows
                        order = self.order(epoch)
                    chosen.append(int(order[position % self.rows]))
                yield chosen

    def order(self, epoch: int) -> torch.Tensor:
        """The shuffled rows of one epoch."""
        return torch.randperm(self.rows, generator=torch.Generator().manual_seed(mix(self.seed, 3, epoch)))


class StepSeeds:
    """The random numbers of the parts of the steps, on one device."""

    def __init__(self, seed: int, parts: int, device: torch.device):
        self.seed, self.parts, self.device = seed, parts, device

    def seed_part(self, step: int, part: int) -> Randomness:
        """Return the randomness of one part of a step; dropout's, which is the global one, is seeded too."""
        seed = mix(self.seed, 1, step, part)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed formats the stack for each kind of device: 1 ms
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        # tensors, so that a compiled step is compiled once; made by filling, which no device waits for
        at, here = (torch.full((), number, device=self.device) for number in (step, part))
        return Counter(mix(self.seed, 2), at, here, self.parts)
