"""The family that reads its network as the concrete score p_t(y) / p_t(x_t) = exp(network): SEDD, and BD3-LM with a
score inside.

See `methods.sedd` for the equations.
"""

import math
from typing import Any

import torch
from torch import Tensor

from ..base.waiting import fixed
from ..core.prediction import Score
from .diffusion import Diffusion, per_position
from .uniform import uniform_bound

LARGEST = 87.0  # log score: e^88.8 is no float32, and a kernel of infinite scores no distribution


class Scored(Diffusion):
    """A concrete-score network under absorbing or uniform noise; `loss` is the diffusion term alone.

    Args:
        scaled: divide the scores by (e^sigma - 1) V, so that a network near 0 is near those of absorbing noise; None:
            under absorbing noise.
    The others are those of `Method`.
    """

    parameterization = "score"
    loss_is_bound = False

    def __init__(self, *args: Any, scaled: bool | None = None, **more: Any):
        super().__init__(*args, **more)
        self.scaled = self.process.mask is not None if scaled is None else scaled

    def read(self, logits, x_t, t):
        score = self._score(logits, x_t, t.clamp(0.0, 1.0))
        end = ((t < 0) | (t > 1)) & t.isfinite()
        if self.process.mask is not None and (fixed() or bool(end.any())):
            # the clean posterior is that of t = 0 or 1, and so a distribution's score
            total = self.process.without_mask(logits).double().logsumexp(-1, keepdim=True)
            odds = self.process.schedule.odds(torch.where(end, t, 0.5))
            score = torch.where(end[..., None], odds * (logits.double() - total).exp(), score)
        return Score(self.process, score.scatter(-1, x_t[..., None], 1.0), x_t, t)

    def _score(self, logits: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """The score (*, K) that logits say within [0, 1], but at x_t itself."""
        if self.scaled:
            odds = self.process.schedule.odds(t)
            odds = torch.where(odds.isfinite(), odds, 1.0)  # a given token: no noise, so no score
            logits = logits + (odds.log() - math.log(self.vocabulary)).to(logits)
        # uniform noise un-pushes scores, which magnifies what is lost in them; a mask's are summed and drawn from
        logits = logits if self.process.mask is not None else logits.double()
        return logits.clamp_max(LARGEST).exp()  # SEDD section 3

    def cost(self, logits, x_0, x_t, t, s=None):
        if s is not None:
            return super().cost(logits, x_0, x_t, t, s)
        if self.process.mask is None:
            return uniform_bound(self.process, logits, x_0, x_t, t)
        schedule, mask_is_last = self.process.schedule, self.process.mask == self.vocabulary
        logits = logits[:, : self.vocabulary] if mask_is_last else self.process.without_mask(logits)
        total = logits.logsumexp(-1).double()
        scale = -math.log(self.vocabulary) if self.scaled else -schedule.odds(t)[:, 0].log()
        log_m, cross_entropy = total + scale, total - logits.gather(-1, x_0[:, None])[:, 0].double()
        value = schedule.weight(t)[:, 0] * (cross_entropy + log_m.expm1() - log_m)  # SEDD theorem 3.6, at a mask
        return torch.where(x_t == self.process.mask, value, 0.0)

    def loss(self, batch, generator=None):
        t = self.draw_times(batch, generator)
        return self.continuous_bound(batch, self.corrupt(batch, per_position(t), generator), t)  # SEDD theorem 3.6
