"""Uniform noise from the largest entry of a vector with Gaussian noise (Duo, arXiv 2506.10892): alpha for a Gaussian
noise level gamma.

Take a one-hot vector of K entries under Gaussian noise of log signal-to-noise ratio -gamma:

    w = a x_0 + (1 - a^2)^(1/2) e,    a^2 = 1 / (1 + exp(gamma)),    e ~ N(0, I)

Its largest entry is that of x_0 with probability p, and that of each other token with equal probability. So the token
of the largest entry has uniform noise with

    alpha = (K p - 1) / (K - 1),    p = int phi(z - r) Phi(z)^(K-1) dz,    r = exp(-gamma / 2)

phi and Phi are the density and distribution function of N(0, 1). For one e and all gamma the token follows a
deterministic path: it is x_0 while r > max_{j != x_0} e_j - e_{x_0}, and then the j of that maximum. At whatever r this
happens, all j are equally likely.
"""

import math

import torch
from torch import Tensor

from ..base.errors import InputError
from . import random
from .random import Randomness
from .schedule import Schedule

REACH, NODES = 10.0, 401  # trapezoid rule on z - r from -10 to 10; phi has probability 1e-23 beyond
CELLS = 4096  # in the table of the schedule


def top_probability(gamma: Tensor, K: int) -> tuple[Tensor, Tensor]:
    """Probability p that x_0 has the largest of K entries, and its slope in gamma, at gamma (*): (*) float64 each."""
    u = torch.linspace(-REACH, REACH, NODES, dtype=torch.float64, device=gamma.device)
    r = (-gamma.double() / 2).exp()[..., None]
    density = (-u.square() / 2).exp() * (2 * REACH / (NODES - 1) / math.sqrt(2 * math.pi))
    weight = density * ((K - 1) * torch.special.log_ndtr(u + r)).exp()
    return weight.sum(-1), -r[..., 0] / 2 * (u * weight).sum(-1)  # d phi(z - r) / dr = (z - r) phi(z - r)


def uniform_alpha(gamma: Tensor, K: int) -> tuple[Tensor, Tensor]:
    """alpha of the uniform noise on K tokens, and its slope in gamma, at gamma (*): (*) float64 each."""
    p, slope = top_probability(gamma, K)
    return (K * p - 1) / (K - 1), K / (K - 1) * slope


def tokens_at(x_0: Tensor, gamma: Tensor, noise: Tensor) -> Tensor:
    """Token of the largest entry, for x_0 (*), gamma (*) and standard normal `noise` e (*, K): (*) long."""
    a = torch.sigmoid(-gamma)[..., None].to(noise)
    w = (1 - a).sqrt() * noise
    return w.scatter_add(-1, x_0[..., None], a.sqrt().expand(w.shape).gather(-1, x_0[..., None])).argmax(-1)


def leaves(x_0: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Largest r at which the path of each token has left x_0 (*), under `noise` (*, K), and its new token: (*) each."""
    others = noise.scatter(-1, x_0[..., None], -math.inf).max(-1)
    return others.values - noise.gather(-1, x_0[..., None])[..., 0], others.indices


def on_path(
    x_0: Tensor, alpha_t: Tensor, alpha_s: Tensor, K: int, generator: Randomness = None
) -> tuple[Tensor, Tensor]:
    """Sample x_t and x_s (*) on one path from x_0 (*), at alpha_t and alpha_s >= alpha_t, which broadcast to (*).

    They are distributed as `tokens_at` at two levels of one noise, but no noise is sampled. With
    p = alpha + (1 - alpha) / K, both are x_0 with probability p_t, only x_s with p_s - p_t, and neither with 1 - p_s.
    """
    p_t, p_s = (((1 + (K - 1) * alpha.double()) / K).expand(x_0.shape) for alpha in (alpha_t, alpha_s))
    left = random.categorical(torch.stack((p_t, p_s - p_t, 1 - p_s), -1).clamp_min(0.0), generator)
    even = torch.full((K - 1,), 1 / (K - 1), dtype=torch.float64, device=x_0.device)
    other = (x_0 + 1 + random.replace(torch.zeros_like(x_0), 1.0, even, generator)) % K
    return torch.where(left > 0, other, x_0), torch.where(left > 1, other, x_0)


class Gaussian(Schedule):
    """Schedule of uniform noise on K tokens: gamma is linear in t, from `gamma_0` at t = 0 to `gamma_1` at t = 1.

    alpha is interpolated by cubics from its values and slopes at 4,097 times.
    """

    table: Tensor

    def __init__(self, K: int, gamma_0: float, gamma_1: float):
        if not gamma_0 < gamma_1:
            raise InputError(f"gamma runs from {gamma_0} to {gamma_1}; it must increase")
        gamma = torch.linspace(gamma_0, gamma_1, CELLS + 1, dtype=torch.float64)
        alpha, slope = uniform_alpha(gamma, K)
        super().__init__(max(float(alpha[-1]), 0.0), min(float(alpha[0]), 1.0))
        self.register_buffer("table", torch.stack((alpha, slope * (gamma_1 - gamma_0) / CELLS), -1), persistent=False)

    def _cubic(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return alpha and its slope in t, at times t (*): (*, 1) each."""
        place = t.to(self.table) * CELLS
        cell = place.floor().clamp(0, CELLS - 1)
        h, cell = (place - cell)[..., None], cell.long()
        (a, da), (b, db) = self.table[cell].split(1, -1), self.table[cell + 1].split(1, -1)
        third, fourth = 3 * (b - a) - 2 * da - db, 2 * (a - b) + da + db
        return a + h * (da + h * (third + h * fourth)), CELLS * (da + h * (2 * third + 3 * h * fourth))

    def _alpha(self, t):
        return self._cubic(t)[0]

    def _slope(self, t):
        return self._cubic(t)[1]

    def _inverse(self, alpha):
        return self._halved(alpha)
