"""Confidence-based unmasking: the most confident predictions come first (MaskGIT, arXiv 2202.04200).

The network is evaluated at all masks, and the k most confident are sampled. **Not a sample of the model's distribution** at any
number of steps: that is an average over orders, and here the network chooses the order. One token a step samples from the
distribution of that order. It has no error with the exact network, whose conditional distributions agree in every order; with a
trained network it is another distribution. Several tokens at once are sampled independently, which costs least where the
network is confident: in few steps the texts often look better. Confidence is measured on the model's clean posterior p before
truncation, each in [0, 1]:

    probability    max p
    margin         max p minus the second largest     (Kim et al. 2025, arXiv 2502.06768)
    entropy        1 - H(p) / log V

It works with absorbing noise and every prediction. A time-conditioned network gets the time at which as many masks are
expected.
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
from .guide import untruncated
from .pairing import STEPS, Distribution, absorbs
from .predict import expected_time, fill, free, predict_at
from .sampler import Sampler

Measure = Literal["probability", "margin", "entropy"]


@declared
class Confidence(Sampler):
    """Most confident masks first, ties from the left: equally many in each step, or all above a threshold."""

    confidence: Measure = option("probability, margin or entropy", default="probability")
    threshold: float | None = option(
        "reveal all masks of at least this confidence in each step, and at least one (default: equally many in each step)",
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
        return Distribution("its own order, most confident first")

    def times(self, method: Diffusion, steps: int | None) -> Tensor:
        """A counter of the steps left; with a threshold as many as tokens, most of which evaluate nothing."""
        (length,) = method.shape
        steps = length if self.threshold is not None else STEPS if steps is None else steps
        if steps < 1:
            raise InputError(f"`steps` is {steps}; it must be 1 or more")
        return torch.arange(min(steps, length), -1, -1, dtype=torch.float64)

    def step(self, method: Diffusion, state, t, s, generator=None):
        masks = free(method, state)
        pred = predict_at(method, state, masks, expected_time(method, state))
        if pred is None:
            random.discard(masks.shape, generator)
            return state
        sure = torch.full(masks.shape, -1.0, dtype=torch.float64, device=masks.device)
        measure = self._measure(posterior(untruncated(pred))).double()
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
        """Confidence of a distribution, (N, K) -> (N,)."""
        if self.confidence == "entropy":
            return 1 + maths.xlogy(p, p).sum(-1) / math.log(max(p.shape[-1] - 1, 2))
        largest, second = p.topk(2, -1).values.unbind(-1)  # MaskGIT; Kim et al. 2025 for the margin
        return largest if self.confidence == "probability" else largest - second
