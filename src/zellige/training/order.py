"""Which rows and which random numbers an optimizer step gets: functions of the seed and of the step, nothing else.

So there is no state to save, and a run that goes on from a step sees what the unbroken run would have seen. A step is
computed in parts, `accumulate` of them on each device; of n, part p takes the rows p, p + n, p + 2n, ... of the step
and their random numbers, which count and have no state (`core.random.Counter`). Any number of devices therefore
computes the step that one device computes in as many parts, or at once; and as times and numbers of masks are spread
evenly over the rows of each part, all parts have the same work.

What training changes of a batch before the method sees it (`augment`: some rows lose their class, some images are
mirrored) is a function of the seed, the step and the row's place in it, too.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count

import torch
from torch.utils.data import Sampler

from ..core import random
from ..core.batch import Batch
from ..core.random import Counter, Independent, Middle, Randomness, mix

LARGE = 1 << 20  # rows of a source whose order is not kept (8 bytes each) but computed, row by row
ROUNDS = 6  # of the Feistel network: four already look random to who may ask both ways (Luby and Rackoff 1988)


def permuted(n: int, rows: int, key: int) -> int:
    """The n-th of `rows` in an order that `key` names: all rows once, in any number of rows without memory.

    A Feistel network over the least square that holds them, each round a hash, gone through again until it ends within
    the rows (the generalized Feistel cipher of Black and Rogaway 2002, Ciphers with arbitrary finite domains).
    """
    side = math.isqrt(rows - 1) + 1
    while True:
        high, low = divmod(n, side)
        for part in range(ROUNDS):
            high, low = low, (high + mix(key, part, low)) % side
        if (n := high * side + low) < rows:
            return n


class Order:
    """The endless order of the rows: which row is the n-th, a function of the seed and of n alone.

    The rows of a source are shuffled anew each epoch; of more than `LARGE` in an order that takes no memory. Of several
    sources (`data.mix`) each block of rows, as long as all shares together, holds each source as often as its share
    says, shuffled too: so the draws of a source before a block are counted without going through them, and each source
    has epochs of its own.

    Args:
        sources: (rows, share) of each; their rows stand one after another. One source has the share 1.
    """

    def __init__(self, sources: Sequence[tuple[int, int]], seed: int):
        self.sources, self.seed, self.block = sources, seed, sum(share for _, share in sources)
        self.first = [0, *accumulate(rows for rows, _ in sources)]
        self.shuffled: dict[int, tuple[int, torch.Tensor]] = {}  # by source: an epoch and its order
        self.places: tuple[int, list[tuple[int, int]]] = (-1, [(0, 0)])

    def draw(self, n: int) -> tuple[int, int]:
        """The n-th row, and the epoch of its source."""
        block, place = divmod(n, self.block)
        if len(self.sources) > 1 and self.places[0] != block:
            self.places = block, self._places(block)
        source, draw = self.places[1][place]
        rows, share = self.sources[source]
        epoch, at = divmod(block * share + draw, rows)
        stream = (3, epoch, *((source,) if len(self.sources) > 1 else ()))
        if rows > LARGE:
            return self.first[source] + permuted(at, rows, mix(self.seed, *stream)), epoch
        if self.shuffled.get(source, (-1,))[0] != epoch:
            self.shuffled[source] = epoch, self._shuffle(rows, *stream)
        return self.first[source] + int(self.shuffled[source][1][at]), epoch

    def _places(self, block: int) -> list[tuple[int, int]]:
        """Of each place of a block its source, and how many of that source stand before it in the block."""
        sources_in_turn = [source for source, (_, share) in enumerate(self.sources) for _ in range(share)]
        draws = [count() for _ in self.sources]
        return [
            (sources_in_turn[i], next(draws[sources_in_turn[i]])) for i in self._shuffle(self.block, 4, block).tolist()
        ]

    def _shuffle(self, rows: int, *stream: int) -> torch.Tensor:
        return torch.randperm(rows, generator=torch.Generator().manual_seed(mix(self.seed, *stream)))


def epochs(sources: Sequence[tuple[int, int]], rows: int) -> list[float]:
    """Number of passes over each source after so many rows of training."""
    block = sum(share for _, share in sources)
    return [rows * share / (block * weight) for weight, share in sources]


class BatchSampler(Sampler[list[int]]):
    """The batch sampler: the rows of each part of each step, an endless pass over the data, shuffled anew each epoch.

    Args:
        rows: how many rows there are, or the `sources` of `Order`; a batch may span two epochs, so that any number will
            do.
        batch: rows of one step, over all its parts.
        start, steps: the first step (from 0) and where to end.
        accumulate, rank, world: parts on each device; which device, of how many.
        redrawn: of N rows of one source, the index of a row in epoch e is row + e N, as rows take it that differ each
            epoch.
    """

    def __init__(
        self,
        rows: int | Sequence[tuple[int, int]],
        seed: int,
        batch: int,
        start: int,
        steps: int,
        accumulate: int = 1,
        rank: int = 0,
        world: int = 1,
        redrawn: bool = False,
    ):
        self.order = Order([(rows, 1)] if isinstance(rows, int) else rows, seed)
        self.redrawn = redrawn
        self.batch, self.start, self.steps = batch, start, steps
        self.accumulate, self.rank, self.world = accumulate, rank, world

    def __len__(self) -> int:
        return max(self.steps - self.start, 0) * self.accumulate

    def __iter__(self) -> Iterator[list[int]]:
        parts = self.accumulate * self.world
        for step in range(self.start, self.steps):
            for micro in range(self.accumulate):
                part = micro * self.world + self.rank
                yield [self._index(n) for n in range(step * self.batch + part, (step + 1) * self.batch, parts)]

    def _index(self, n: int) -> int:
        row, epoch = self.order.draw(n)
        return row + epoch * self.order.first[-1] if self.redrawn else row


class StepSeeds:
    """The random numbers of the parts of the steps, on one device; `times` as `Train` has them."""

    def __init__(self, seed: int, parts: int, device: torch.device, times: str = "stratified"):
        self.seed, self.parts, self.device = seed, parts, device
        self.noise = mix(seed, 2)
        self.kind = {"stratified": Counter, "independent": Independent, "middle": Middle}[times]

    def seed_part(self, step: int, part: int) -> Randomness:
        """Return the randomness of one part of a step; dropout's, which is the global one, is seeded too."""
        seed = mix(self.seed, 1, step, part)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed formats the stack for each kind of device: 1 ms
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        # tensors, so that a compiled step is compiled once; made by filling, which no device waits for
        at, number = torch.full((), step, device=self.device), torch.full((), part, device=self.device)
        return self.kind(self.noise, at, number, self.parts)


@dataclass(frozen=True)
class Augmentation:
    """The changes of a run.

    Attributes:
        seed, parts: of the run; into how many parts a step is cut.
        label_dropout: the share of rows whose class becomes none (-1), as classifier-free guidance needs it (Ho &
            Salimans 2022).
        given_dropout: the share of rows that have no given part: their mask is True everywhere. Rows have no padding.
        flip: the shape of an image, of which each is mirrored left to right with probability 1/2; None: none is.
        complement: of DNA, the token of the base on the other strand, for each token: with probability 1/2 a row is
            that strand, read backwards; empty: none is.
    """

    seed: int
    parts: int
    label_dropout: float = 0.0
    flip: Sequence[int] | None = None
    complement: Sequence[int] = ()
    given_dropout: float = 0.0

    def __call__(self, batch: Batch, step: int, part: int) -> Batch:
        """The part of a step as the method gets it."""
        if batch.condition is not None and self.label_dropout:
            is_dropped = self._uniform("labels", step, part, batch) < self.label_dropout
            batch = replace(batch, condition=batch.condition.masked_fill(is_dropped, -1))
        if batch.mask is not None and self.given_dropout:
            is_whole = self._uniform("given", step, part, batch) < self.given_dropout
            batch = replace(batch, mask=batch.mask | is_whole[:, None])
        if self.flip is not None:
            is_flipped = self._uniform("flip", step, part, batch) < 0.5
            flipped_tokens = batch.tokens.view(len(batch), *self.flip).flip(2).view_as(batch.tokens)
            batch = replace(batch, tokens=torch.where(is_flipped[:, None], flipped_tokens, batch.tokens))
        if self.complement:
            is_other = self._uniform("strand", step, part, batch) < 0.5
            other = torch.tensor(self.complement, device=batch.tokens.device)[batch.tokens].flip(1)
            batch = replace(batch, tokens=torch.where(is_other[:, None], other, batch.tokens))
        return batch

    def _uniform(self, what: str, step: int, part: int, batch: Batch) -> torch.Tensor:
        """(B,) in [0, 1): those of this part among the whole step's, each change with a stream of its own."""
        draws = Counter(mix(self.seed, what), step, part, self.parts)
        return random.uniform((len(batch),), draws, batch.tokens.device)
