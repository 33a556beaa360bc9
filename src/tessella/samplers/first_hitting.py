"""First-hitting sampling of absorbing processes: no error at any number of steps (Zheng et al. 2024, arXiv 2409.02908).

The times at which masks are revealed do not depend on the network. With n masks left at time t the next is revealed when
1 - alpha has fallen by the factor U^(1/n), U uniform, at a position drawn uniformly. So each step reveals one token, at its
exact time: the law is that of the continuous-time model, as with infinitely many ancestral steps.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from .. import guide, maths
from ..errors import InputError
from ..method import Method
from ..prediction import posterior
from ..process import Mixture
from .sampler import State, clean_where_fixed, fill, start


class FirstHitting:
    """One token at a time, at its exact time; as many steps as tokens. `state.memory` is 1 - alpha of each row."""

    error: ClassVar[str] = "none at any number"
    order: ClassVar[str] = "-"
    needs: ClassVar[str] = "absorbing, one schedule"
    calls: ClassVar[str] = "one per token"

    def __init__(self, temperature: float = 1.0, top_p: float = 1.0):
        self.temperature, self.top_p = temperature, top_p

    def times(self, method: Method, steps: int | None) -> Tensor:
        """A counter from L to 0, whatever `steps` says: each step reveals one token of each row."""
        (length,) = method.shape
        return torch.arange(length, -1, -1, dtype=torch.float64)

    def init(self, method, shape, *, fixed=None, generator=None):
        process = method.process
        if not isinstance(process, Mixture) or process.mask is None or method.predicts == "score":
            raise InputError(
                f"sampler 'first_hitting' needs absorbing noise and a mean; with {method.name} use ancestral"
            )
        if process.schedule.alpha(0.5).shape[-1] > 1:
            raise InputError(
                f"sampler 'first_hitting' needs one alpha for all tokens; with {method.name} use ancestral"
            )
        state = start(method, shape, fixed, generator)
        return replace(state, memory=torch.ones(shape[0], dtype=torch.float64, device=state.x.device))

    def step(self, method, state: State, t, s, generator=None):
        movable = method.process.movable(state.x) & ~state.fixed
        n = movable.sum(-1)
        asked = n > 0
        u = 1 - maths.uniform((len(n),), generator, n.device)  # in (0, 1]
        masked = torch.where(asked, state.memory * u ** (1 / n.clamp_min(1)), state.memory)
        where = maths.categorical(torch.where(asked[:, None], movable.double(), 1.0), generator)
        chosen = torch.zeros_like(movable).scatter(-1, where[:, None], asked[:, None])
        rows = asked.nonzero()[:, 0]
        if len(rows) == 0:
            return state
        time = clean_where_fixed(state, method.process.schedule.inverse(1 - masked)[:, None])
        pred = method.predict(state.x[rows], time[rows], at=chosen[rows], context=state.context)
        x = maths.categorical(posterior(guide.guided(pred, self.temperature, self.top_p)), generator, chosen)
        return replace(fill(state, chosen, x, asked), memory=masked)
