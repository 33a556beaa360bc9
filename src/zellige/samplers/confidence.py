"""Confidence-based unmasking: what the network is surest of comes first (MaskGIT, arXiv 2202.04200).

The network is asked at all masks; the k surest are drawn. **Not a sample of the model's distribution** at any number of steps:
that is an average over orders, and here the network chooses the order as the text appears. One token a step is a draw from the
distribution of that order: no error with the exact network, whose conditional distributions agree in every order; with a
trained one, some other distribution. Several at once are drawn independently, which does least harm where they are sure: in few
steps the texts often look better. How sure, from the model's own clean posterior p, before any guidance, each in [0, 1]:

    probability    max p
    margin         max p minus the second largest     (Kim et al. 2025, arXiv 2502.06768)
    entropy        1 - H(p) / log V

For absorbing noise and every prediction. A network that sees the time is told the one at which as many masks are expected.
"""

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..core import maths, random
from ..core.prediction import posterior
from ..errors import InputError
from ..methods.diffusion import Diffusion
from ..requests import declared, option
from .ask import ask, expected_time, fill, free
from .guide import unguided
from .pairing import STEPS, Distribution, absorbs
from .sampler import Sampler

Measure = Literal["probability", "margin", "entropy"]


@declared
class Confidence(Sampler):
    """The surest masks first, of equally sure ones the leftmost: equally many in each step, or all that are sure enough."""

    confidence: Measure = option("probability, margin or entropy", default="probability")
    threshold: float | None = option(
        "each step reveals all masks that are at least so sure, and one at least; the masks left are divided equally among the "
        "steps left if not given",
        default=None,
        minimum=0,
        maximum=1,
    )

    name: ClassVar[str] = "confidence"
    error: ClassVar[str] = "not the model's distribution"
    order: ClassVar[str] = "-"
    needs: ClassVar[str] = "absorbing"
    calls: ClassVar[str] = "steps"

    @classmethod
    def refuse(cls, method):
        return absorbs(method)

    def distribution(self, method, steps):
        return Distribution("an order of its own, most confident first")

    def times(self, method: Diffusion, steps: int | None) -> Tensor:
        """A counter of the steps left; with a threshold as many as tokens, most of which ask nothing."""
        (length,) = method.shape
        steps = length if self.threshold is not None else STEPS if steps is None else steps
        if steps < 1:
            raise InputError(f"`steps` is {steps}; it must be 1 or more")
        return torch.arange(min(steps, length), -1, -1, dtype=torch.float64)

    def step(self, method: Diffusion, state, t, s, generator=None):
        masks = free(method, state)
        pred = ask(method, state, masks, expected_time(method, state))
        if pred is None:
            random.discard(masks.shape, generator)
            return state
        sure = torch.full(masks.shape, -1.0, dtype=torch.float64, device=masks.device)
        measure = self._measure(posterior(unguided(pred))).double()
        sure[masks] = measure.round(decimals=5)  # equal but for the network's rounding: a tie
        if self.threshold is None:
            k = (masks.sum(-1) / t.reshape(-1)).ceil()
        else:
            k = (sure >= self.threshold).sum(-1).clamp_min(1)
        rank = torch.argsort(sure, dim=-1, descending=True, stable=True).argsort(-1)
        at = masks & (rank < k[:, None])
        distribution = posterior(pred)[at[masks]]
        return fill(state, at, random.categorical(distribution, generator, at), masks.any(-1))

    def _measure(self, p: Tensor) -> Tensor:
        """How sure, (N, K) -> (N,)."""
        if self.confidence == "entropy":
            return 1 + maths.xlogy(p, p).sum(-1) / math.log(max(p.shape[-1] - 1, 2))
        largest, second = p.topk(2, -1).values.unbind(-1)  # MaskGIT; Kim et al. 2025 for the margin
        return largest if self.confidence == "probability" else largest - second
