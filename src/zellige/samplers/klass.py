"""KLASS: reveal the tokens whose distribution has settled (KL-adaptive stability sampling, arXiv 2511.05664).

Every step evaluates the network at all masks. A mask is stable if its distribution p has changed little in each of the
last n evaluations, and its confidence is high:

    KL(p now || p one evaluation ago) < kl,  n times in a row,  and  max p >= threshold

A step reveals all stable masks; if there is none, the most confident mask, ties from the left. So a stable token is
revealed after n + 1 evaluations at the earliest.

With an exact network and one token at a time the samples are exact. Which masks a step reveals involves no random
choice. So the sampler's own likelihood of a text can be computed exactly (`replay`).
"""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from ..base.requests import TOKENS, declared, option
from ..core import maths
from ..methods.diffusion import Diffusion
from .confidence import NetworkChooses, confidence_at
from .pairing import Distribution
from .sampler import start_distribution


@declared
class Klass(NetworkChooses):
    """All masks whose distribution is stable and confident at once; the most confident one if there are none.

    `state.memory` is (B, L, K + 1): each mask's distribution at the last evaluation, and how many times in a row it was
    stable.
    """

    threshold: float = option("reveal stable masks of at least this confidence", default=0.9, minimum=0, maximum=1)
    kl: float = option(
        "a mask is stable if its distribution changes by less than this KL divergence, in nats", default=0.01, above=0
    )
    history: int = option("evaluations in a row in which a mask must be stable", default=2, minimum=1, maximum=TOKENS)

    name: ClassVar[str] = "klass"
    label: ClassVar[str] = "All confident positions at once"
    sentence: ClassVar[str] = "Each step writes every position whose distribution is confident and stable."
    samples_from: ClassVar[str] = "its own order"
    calls: ClassVar[str] = "≤ one per token"

    def distribution(self, method, steps):
        return Distribution(self.name, "its own order, settled tokens first")

    def times(self, method: Diffusion, steps: int | None) -> Tensor:
        """A counter of the steps left, as many as tokens, most of which may evaluate nothing."""
        return torch.arange(method.shape[0], -1, -1, dtype=torch.float64)

    def init(self, method: Diffusion, shape, *, fixed=None, generator=None):
        state = super().init(method, shape, fixed=fixed, generator=generator)
        memory = torch.zeros(*shape, len(start_distribution(method)) + 1, dtype=torch.float64, device=state.x.device)
        return replace(state, memory=memory)

    def choose(self, state, masks, p, t):
        before, times = state.memory[masks].split((p.shape[-1], 1), -1)
        change = maths.kl(p, before)[:, None]  # infinite at the first evaluation, before which p is zero
        times = torch.where(change < self.kl, times + 1, 0.0)  # (N, 1): evaluations in a row
        confidence = confidence_at(masks, p)
        stable = torch.zeros_like(masks).masked_scatter(masks, times[:, 0] >= self.history)
        settled = stable & (confidence >= self.threshold)  # (B, L)
        first = torch.zeros_like(masks).scatter(1, confidence.argmax(-1, keepdim=True), True)
        at = masks & torch.where(settled.any(-1, keepdim=True), settled, first)
        return at, state.memory.masked_scatter(masks[..., None], torch.cat((p, times), -1))
