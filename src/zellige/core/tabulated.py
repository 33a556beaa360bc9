"""Discrete time: a schedule that is a table of alpha at the times i/T."""

import torch
from torch import Tensor

from .schedule import Schedule


def on_grid(t: Tensor, T: int) -> Tensor:
    """i of times i/T, (*) -> (*) long. Raises ValueError for any other time."""
    i = (t * T).round()
    if not torch.compiler.is_compiling() and ((t * T - i).abs() > 1e-6 * T).any():
        raise ValueError(f"a time is not on the grid of T = {T} steps; it must be i/{T}")
    return i.long()


class Tabulated(Schedule):
    """alpha at the times i/T, i = 0..T, for discrete time (D3PM): there is no rate, and no other time between CLEAN and PRIOR.

    Args:
        alpha: (T + 1,) decreasing from alpha[0] = 1, e.g. the cumulative products of 1 - beta_i.

    Raises:
        ValueError: alpha is not such a table; a time is not on the grid; a rate is asked for.
    """

    table: Tensor

    def __init__(self, alpha: Tensor):
        alpha = alpha.double()
        if alpha.ndim != 1 or len(alpha) < 2 or alpha[0] != 1.0 or not (alpha.diff() < 0).all() or alpha[-1] < 0:
            raise ValueError("a table of alpha must decrease from 1 at i = 0 and stay at 0 or more")
        super().__init__(float(alpha[-1]))
        self.T = len(alpha) - 1
        self.register_buffer("table", alpha, persistent=False)

    def _alpha(self, t):
        return self.table.take(on_grid(t, self.T))[..., None]  # also of one time (), without asking what it is

    def alpha(self, t):
        t = self.as_time(t)
        inside = ~t.isinf()
        value = self._alpha(torch.where(inside, t, 0.0))
        return torch.where(inside[..., None], value, (t < 0).to(value)[..., None])

    def _slope(self, t):
        raise ValueError("a tabulated schedule has discrete time: it has no rate; use the bound of steps")

    def inverse(self, alpha):
        raise ValueError("a tabulated schedule has discrete time: not every alpha is one of its values")

    def extra_repr(self) -> str:
        return f"T={self.T}"
