"""A package beside Zellige that brings one of everything: the tests install it as a user would."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from zellige.base.requests import declared, option
from zellige.core import random
from zellige.core.curves import Linear
from zellige.core.prediction import posterior
from zellige.core.schedule import Schedule
from zellige.data.catalogue import Source
from zellige.evaluation.metrics import Metric
from zellige.methods.absorbing import Masked
from zellige.samplers.predict import expected_time, free, redraw
from zellige.samplers.sampler import Sampler


class Plain(Masked):
    """Masked diffusion trained on the cross-entropy without its weight."""

    name = "plain"
    loss_is_bound = False

    @dataclass(frozen=True)
    class Config:
        """No options."""

    def __init__(self, network, vocabulary, shape, config=None):
        super().__init__(network, vocabulary, shape, config or self.Config(), Linear(), timed=False)

    @classmethod
    def timed(cls, config):
        return False

    def loss(self, batch, generator=None):
        t = 1 - random.stratified(len(batch), generator)
        return self.cross_entropy(batch, self.corrupt(batch, t[:, None], generator), t[:, None])


@declared
class Backwards(Sampler):
    """One masked position after another, from the last to the first."""

    keep: int = option("positions at the beginning that are sampled first, in their order", default=0, minimum=0)

    name: ClassVar[str] = "backwards"
    needs: ClassVar[str] = "absorbing"
    calls: ClassVar[str] = "one per token"

    @classmethod
    def reason_against(cls, method):
        return None if method.process is not None and method.process.mask is not None else "needs absorbing noise"

    def times(self, method, steps):
        return torch.arange(method.shape[0], -1, -1, dtype=torch.float64)

    def step(self, method, state, t, s, generator=None):
        masked, place = free(method, state), torch.arange(state.x.shape[1])
        rank = torch.where(place < self.keep, -place + 10**6, place)
        at = masked & (torch.where(masked, rank, -1) == torch.where(masked, rank, -1).amax(-1, keepdim=True))
        return redraw(method, state, at, expected_time(method, state), posterior, generator)


class Squared(Schedule):
    """alpha = (1 - t)^2."""

    def _shape(self, t):
        return ((1 - t) ** 2)[..., None]

    def _shape_slope(self, t):
        return (-2 * (1 - t))[..., None]

    def _shape_inverse(self, y):
        return 1 - y.sqrt()


LETTERS = Source(
    "the alphabet again and again", "4 kB", "90% / 5% / 5% in order", "none", "nothing",
    files={"all": (Path(__file__).with_name("letters.txt").as_uri(), None)},
)  # fmt: skip


def _first(rows):
    return torch.tensor([float(row[0]) for row in rows]).double().numpy()


FIRST = Metric("first token", _first, ("rows",), None, definition="id of the first token, mean")


def count(words: Sequence[str], terminal, began: float) -> int:
    """`zellige count WORD ...`"""
    terminal.result(f"{len(words)} words")
    return 0
