"""P2: each step chooses anew which tokens stay; revealed ones may be masked again (Peng et al. 2025, arXiv 2502.03540).

A step evaluates the network at all positions and samples a token x_i for each mask. Every position gets a score from
p_i, the network's distribution at position i (the paper's self-planning, in which the network judges itself):

    a mask           log p_i(x_i)          of the token that was sampled
    a token          c log p_i(x_i)        of the revealed token, c the `strictness`

The positions with the lowest scores are masks after the step: floor(n s) of the n positions that are not given, at time
s, which falls evenly from 1 to 0. The others keep their tokens, or get the sampled ones. With c = 0 no token is masked
again; the larger c, the more are. (The paper calls it eta. The published code scores a revealed token by another sample
from p_i.)

**These are not samples of the model**, whatever the number of steps. The choice looks at the sampled tokens: an
unlikely one is dropped and sampled again. So likely tokens are favoured, as with a temperature below 1. This holds even
with the exact network, one token a step and independent positions. The score of a revealed token is the network's
output at a position that it sees, for which it was not trained.

Works with absorbing noise and a network of p(x_0 | x_t). A network with a time input gets the time at which the noise
has, on average, as many masks as there are now.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from ..base.requests import declared, option
from ..core import maths, random
from ..core.positions import positions
from ..core.prediction import posterior
from ..methods.diffusion import Diffusion
from .guide import truncated_as
from .pairing import STEPS, Distribution, count_of_steps
from .predict import as_masks, free, hidden_at, reads_tokens
from .sampler import Exactness, Sampler


@declared
class P2(Sampler):
    """Path planning: each step masks the least likely tokens again, whether new or revealed before."""

    strictness: float = option(
        "how readily revealed tokens are masked again: 0 never, larger values more", default=1.0, minimum=0
    )

    name: ClassVar[str] = "p2"
    label: ClassVar[str] = "Keep the likeliest"
    sentence: ClassVar[str] = "Each step keeps the likeliest tokens and draws the others again."
    exactness: ClassVar[Exactness] = "heuristic"
    samples_from: ClassVar[str] = "its own path"
    claim: ClassVar[str] = "not the model's distribution"
    needs: ClassVar[str] = "absorbing, p(x_0 | x_t)"
    calls: ClassVar[str] = "steps"
    revises: ClassVar[bool] = True

    @classmethod
    def reason_against(cls, method):
        return reads_tokens(method)

    def distribution(self, method, steps):
        return Distribution(self.name, "its own path, likely tokens first")

    def times(self, method: Diffusion, steps: int | None) -> Tensor:
        """Fractions of masks, from 1 to 0."""
        return torch.linspace(1, 0, count_of_steps(steps, STEPS) + 1, dtype=torch.float64)

    def expected_calls(self, method: Diffusion, times: Tensor, free: int) -> float:
        return float((number(free, times[1:]) > 0).sum() + 1) if free else 0.0

    def step(self, method: Diffusion, state, t, s, generator=None):
        masks, own = free(method, state), ~state.fixed
        mask = method.process.mask_id
        left = number(own.sum(-1), s.reshape(-1))  # (B,), masks after the step
        at = own & (masks | (left > 0)[:, None])  # in the end no token is judged
        rows = at.any(-1)
        if not rows.any():
            random.discard(masks.shape, generator)
            return state
        h, time = hidden_at(method, state, at)  # (N, D), (B, L)
        pred = as_masks(method, h, time[at])
        drawn = random.categorical(posterior(truncated_as(method, pred)).double()[masks[at]], generator, masks)
        x = positions(masks).put(state.x, drawn)  # (B, L), every mask drawn
        probability = maths.normalise(posterior(pred).double()).gather(-1, x[at][:, None])[:, 0]
        log_p = torch.zeros_like(at, dtype=torch.float64).masked_scatter(at, probability.clamp_min(1e-300).log())
        stays = self.stays(log_p, masks, state.fixed, left)
        return replace(state, x=torch.where(stays, x, mask), calls=state.calls + rows)

    def stays(self, log_p: Tensor, masks: Tensor, fixed: Tensor, left: Tensor) -> Tensor:
        """Positions (B, L) bool that are no masks after a step, ties from the left.

        Args:
            log_p: (B, L) of the tokens, drawn or standing; rounded, since a network's rounding makes no difference.
            masks, fixed: (B, L) bool, positions that were masks, and those that are given.
            left: (B,) number of masks after the step.
        """
        again = self.strictness * log_p if self.strictness else torch.inf
        score = torch.where(masks, log_p, again).round(decimals=5).masked_fill(fixed, torch.inf)
        best_first = score.argsort(dim=-1, descending=True, stable=True)
        return fixed | (best_first.argsort(-1) < (score.shape[-1] - left)[:, None])


def number(free: Tensor | int, s: Tensor) -> Tensor:
    """Number of masks at time s among `free` positions."""
    return (free * s + 1e-9).floor().long()
