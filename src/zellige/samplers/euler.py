"""Euler sampling: the reverse rate held constant for a step (tau-leaping of single jumps; SEDD, eq. 17; RADD, appendix
D.3).

    p(x_s = y | x_t) = (t - s) Rhat_t(x_t, y),  y != x_t;    p(x_s = x_t | x_t) = 1 - (t - s) sum_y Rhat_t(x_t, y)

at each position. A negative entry is clipped at zero and the others are normalised. The error is of order 1 in 1/steps,
as that of `ancestral`, which integrates the known part of the rate exactly; for loglinear absorbing noise the two
differ in the first and the last step only. Works with every prediction, in continuous time.

Two steps use the reverse kernel, because they have no finite rate: the first, from the prior or t = 1, and the last, to
clean tokens. For absorbing noise with one alpha the network is evaluated only where a mask is revealed (see
`ancestral`).
"""

from typing import ClassVar

import torch
from torch import Tensor

from ..base.requests import declared, option
from ..core.prediction import Prediction, Score, kernel, posterior, revealed_probability, reverse_rate, total_score
from ..methods.diffusion import Diffusion
from .grid import OnGrid
from .pairing import NEAR_CONTINUOUS, can_choose_first, not_absorbing, rateless, scores_masks
from .predict import CHOOSE, choose_then_predict, expected_evaluations, free, predict_then_choose, redraw
from .sampler import Exactness


@declared
class Euler(OnGrid):
    """One step 1 + (t - s) R, on a grid of times."""

    choose: bool = option(**CHOOSE, default=True)

    name: ClassVar[str] = "euler"
    label: ClassVar[str] = "A few positions each step, by Euler"
    sentence: ClassVar[str] = "A first-order approximation; it needs more steps for the same quality."
    exactness: ClassVar[Exactness] = "limit"
    samples_from: ClassVar[str] = "near continuous time"
    claim: ClassVar[str] = "exact in the limit of many steps"
    convergence: ClassVar[int | None] = 1
    needs: ClassVar[str] = "a rate: not d3pm"
    calls: ClassVar[str] = "up to steps"
    reconstructs: ClassVar[bool] = True

    @classmethod
    def reason_against(cls, method):
        return rateless(method)

    def distribution(self, method, steps):
        return NEAR_CONTINUOUS

    def step(self, method: Diffusion, state, t, s, generator=None):
        if self.choose and can_choose_first(method) and not_absorbing(method, one=True) is None:
            return choose_then_predict(method, state, _reveal(method, t, s), t, posterior, generator)
        if self.choose and scores_masks(method):
            return predict_then_choose(method, state, s, t, stepped_mask, stepped, generator)
        at = free(method, state)
        later = s.expand(at.shape)[at]
        return redraw(method, state, at, t, lambda pred: stepped(pred, later), generator)

    def expected_calls(self, method: Diffusion, times, free):
        if not (self.choose and can_choose_first(method)) or not_absorbing(method, one=True) is not None:
            return None
        return expected_evaluations(_reveal(method, times[:-1], times[1:])[:, 0], free)


def stepped(pred: Prediction, s: Tensor) -> Tensor:
    """Weights (*, K) from which a step from pred.t to s (*) is sampled; not normalised where an entry was clipped."""
    t, jump = pred.t, _jump(pred.t, s)
    if bool(jump.all()):
        return kernel(pred, s)
    move = (t - s).masked_fill(jump, 0.0)[..., None] * reverse_rate(pred)
    stay = 1 - move.sum(-1, keepdim=True)  # SEDD eq. 17
    p = move.scatter(-1, pred.x_t[..., None], stay).clamp_min(0.0)
    return torch.where(jump[..., None], kernel(pred, s), p) if bool(jump.any()) else p


def stepped_mask(pred: Score, s: Tensor) -> Tensor:
    """P(a mask is revealed in a step to s), (*): total weight of the tokens in `stepped`."""
    rate = pred.process.schedule.beta(pred.t)[..., 0] * total_score(pred)  # SEDD eq. 17
    return torch.where(_jump(pred.t, s), revealed_probability(pred, s), ((pred.t - s) * rate).clamp_max(1.0))


def _jump(t: Tensor, s: Tensor) -> Tensor:
    return (t >= 1) | s.isinf()


def _reveal(method: Diffusion, t: Tensor, s: Tensor) -> Tensor:
    """P(a mask is revealed), the total of its rates times the step: (*, 1)."""
    schedule = method.process.schedule
    rate = (t - s)[..., None] * schedule.weight(t)
    return torch.where(_jump(t, s)[..., None], schedule.reveal_probability(t, s), rate.clamp_max(1.0))
