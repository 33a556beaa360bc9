"""Ancestral sampling: x_s ~ p(x_s | x_t), the reverse kernel of the T-step model.

One kernel with many names: MDLM's ddpm, MD4's ancestral, SEDD's analytic, RADD's Tweedie, D3PM's step.

**Choose, then ask.** For an absorbing process, whether a mask is revealed between t and s does not depend on the network:
it has probability (alpha_s - alpha_t)/(1 - alpha_t), and what it becomes is drawn from the clean posterior. So the
positions are drawn first; the network is called only for rows in which something moves, and its head is computed only at
those positions. The law is that of the plain kernel; the cost is at most one call for each revealed position, which is what
the caches of MDLM and RADD save, and here it needs no cache and holds for networks that see the time.

Where the schedule gives each token its own alpha (GenMD4), token k is revealed with probability u_k: choose with the largest u_k,
ask, and accept the drawn k with probability u_k / max u (thinning).
"""

import math
from typing import ClassVar

import torch
from torch import Tensor

from .. import guide, maths
from ..method import Method
from ..prediction import kernel, posterior
from ..process import Mixture
from ..schedule import CLEAN
from .sampler import clean_where_fixed, fill, start


class Ancestral:
    """The reverse kernel on a grid of times.

    Args:
        grid: "uniform" in t, or "cosine", t = cos(pi/2 (1 - u)), which spends its steps where t is near 1 (MD4, section 4.2).
        temperature, top_p: act on the clean posterior (see `guide`).
        choose: choose-then-ask where it is exact; False always asks at every position.
    """

    error: ClassVar[str] = "none"
    order: ClassVar[str] = "1"
    needs: ClassVar[str] = "reverse kernel: not csm"
    calls: ClassVar[str] = "up to steps"

    def __init__(self, grid: str = "uniform", temperature: float = 1.0, top_p: float = 1.0, choose: bool = True):
        if grid not in ("uniform", "cosine"):
            raise ValueError(f"unknown grid '{grid}'; uniform or cosine")
        self.grid, self.temperature, self.top_p, self.choose = grid, temperature, top_p, choose

    def times(self, method: Method, steps: int | None) -> Tensor:
        """steps + 1 times from the start of the process to CLEAN: `steps` draws, the last of them of clean tokens."""
        if steps is None or steps < 1:
            raise ValueError(f"steps is {steps}; it must be 1 or more")
        u = torch.linspace(1.0, 0.0, steps + 1, dtype=torch.float64)
        times = u if self.grid == "uniform" else torch.sin(math.pi / 2 * u)
        times[0], times[-1] = method.process.start, CLEAN
        return times

    def init(self, method, shape, *, fixed=None, generator=None):
        return start(method, shape, fixed, generator)

    def step(self, method, state, t, s, generator=None):
        process = method.process
        if self.choose and isinstance(process, Mixture) and process.mask is not None and method.predicts != "score":
            return self._choose_then_ask(method, state, t, s, generator)
        t, s = clean_where_fixed(state, t), clean_where_fixed(state, s)
        pred = guide.guided(method.predict(state.x, t, context=state.context), self.temperature, self.top_p)
        x = maths.categorical(kernel(pred, s), generator)
        everything = torch.ones_like(state.calls, dtype=torch.bool)
        return fill(state, ~state.fixed, x[~state.fixed], everything)

    def _choose_then_ask(self, method, state, t, s, generator):
        schedule = method.process.schedule
        alpha_t, alpha_s = schedule.alpha(t), schedule.alpha(s)
        reveal = (alpha_s - alpha_t) / (1 - alpha_t)  # (1,), (B, 1, 1), or one for each token
        movable = method.process.movable(state.x) & ~state.fixed
        chosen = movable & maths.bernoulli(reveal.amax(-1).expand(state.x.shape), generator)
        asked = chosen.any(-1)
        if not asked.any():
            for _ in range(1 if reveal.shape[-1] == 1 else 2):  # the draws below, which other rows may make
                maths.discard(chosen.shape, generator)
            return state
        rows = asked.nonzero()[:, 0]
        pred = method.predict(state.x[rows], clean_where_fixed(state, t)[rows], at=chosen[rows], context=state.context)
        x = maths.categorical(posterior(guide.guided(pred, self.temperature, self.top_p)), generator, chosen)
        if reveal.shape[-1] > 1:
            relative = (reveal / reveal.amax(-1, keepdim=True)).expand(*chosen.shape, -1)[chosen]
            keep = maths.bernoulli(relative.gather(-1, x[:, None])[:, 0], generator, chosen)
            chosen, x = chosen.masked_scatter(chosen, keep), x[keep]
        return fill(state, chosen, x, asked)
