"""What training changes of a batch before the method sees it: some rows lose their class, some images are mirrored.

Both are functions of the seed, the step and the row's place in it, so that a run that goes on sees what the unbroken one would
have seen, on however many devices.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ..core import random
from ..core.batch import Batch
from ..core.random import Counter, mix


@dataclass(frozen=True)
class Augmentation:
    """The changes of a run.

    Attributes:
        seed, parts: of the run; into how many parts a step is cut.
        label_dropout: the share of rows whose class becomes none (-1), as classifier-free guidance needs it (Ho & Salimans 2022).
        flip: the shape of an image, of which each is mirrored left to right with probability 1/2; None: none is.
    """

    seed: int
    parts: int
    label_dropout: float = 0.0
    flip: Sequence[int] | None = None

    def __call__(self, batch: Batch, step: int, part: int) -> Batch:
        """The part of a step as the method gets it."""
        if batch.condition is not None and self.label_dropout:
            drawn = self._uniform("labels", step, part, batch) < self.label_dropout
            batch = replace(batch, condition=batch.condition.masked_fill(drawn, -1))
        if self.flip is not None:
            drawn = self._uniform("flip", step, part, batch) < 0.5
            mirrored = batch.tokens.view(len(batch), *self.flip).flip(2).view_as(batch.tokens)
            batch = replace(batch, tokens=torch.where(drawn[:, None], mirrored, batch.tokens))
        return batch

    def _uniform(self, what: str, step: int, part: int, batch: Batch) -> torch.Tensor:
        """(B,) in [0, 1): those of this part among the whole step's, each change with a stream of its own."""
        draws = Counter(mix(self.seed, what), step, part, self.parts)
        return random.uniform((len(batch),), draws, batch.tokens.device)
