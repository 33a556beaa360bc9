"""Any-order sampling: tokens one after another in a random order (ARDM, arXiv 2110.02037; RADD, arXiv 2406.03736,
section 3.3).

A network for masked tokens without a time input is an any-order autoregressive model. Its distribution is

    p(x) = E over orders of prod_l p(x_order(l) | the tokens before)

Each step reveals one position, drawn uniformly, so the samples have this distribution without error. It is that of the
continuous-time model, of `first_hitting`, and of `ancestral` with infinitely many steps. With `per_step` above 1, the
tokens of a step are sampled independently given the others, which is not exact. Works with absorbing noise with one
alpha for all tokens, and every prediction.
"""

from typing import ClassVar

import torch
from torch import Tensor

from ..base.requests import PER_STEP, declared, option
from ..base.waiting import at_most
from ..core.prediction import posterior
from ..core.random import Randomness
from ..methods.diffusion import Diffusion
from .pairing import Distribution, continuous_distribution, not_absorbing
from .predict import expected_time, free, pick, redraw
from .sampler import Exactness, Sampler


@declared
class AnyOrder(Sampler):
    """One token per step, or several, at positions drawn uniformly; exact with one."""

    per_step: int = option(**PER_STEP, default=1)

    name: ClassVar[str] = "any_order"
    label: ClassVar[str] = "One position at a time, in random order"
    sentence: ClassVar[str] = "As many network evaluations as positions, or several positions a step."
    exactness: ClassVar[Exactness] = "exact"
    samples_from: ClassVar[str] = "continuous time"
    claim: ClassVar[str] = "exact (all orders)"
    needs: ClassVar[str] = "absorbing, time-free"
    calls: ClassVar[str] = "one per token"

    @classmethod
    def reason_against(cls, method):
        reason = "needs a network without time conditioning" if method.time_conditioned else None
        return not_absorbing(method, one=True) or reason

    def distribution(self, method, steps):
        return (
            continuous_distribution(method)
            if self.per_step == 1
            else Distribution(
                f"any order, {self.per_step} at once", f"{self.per_step} tokens of a random order at once"
            )
        )

    def has_fixed_shape(self, method, shape):
        return True

    def times(self, method: Diffusion, steps: int | None) -> Tensor:
        """A counter of the steps left, whatever `steps` is."""
        (length,) = method.shape
        return torch.arange(-(-length // self.per_step), -1, -1, dtype=torch.float64)

    def step(self, method: Diffusion, state, t, s, generator=None):
        at = self._choose(free(method, state), generator)
        time = expected_time(method, state)
        with at_most(self.per_step * len(at)):
            return redraw(method, state, at, time, posterior, generator)  # RADD section 3.3

    def _choose(self, masked: Tensor, generator: Randomness) -> Tensor:
        """Select `per_step` of the masked positions (B, L), without replacement."""
        return pick(torch.where(masked, 0.0, -torch.inf).double(), self.per_step, generator)
