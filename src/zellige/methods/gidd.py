"""GIDD: Generalized interpolating discrete diffusion (von Rütte et al. 2025, arXiv 2503.04482).

    q(x_t | x_0)     alpha_t x_0 + beta_t pi_t,  alpha_t = (1 - t) / C_t,  beta_t pi_t = (t m + c_t u) / C_t
                     m the mask, u uniform on the V tokens, c_t = B (t (1 - t))^{gamma/2}, C_t = 1 + c_t,
                     B = 2^gamma p_u / (1 - p_u), so the weight of u at t = 1/2 is p_u                    (`Hybrid`)
    transitions      Q_{s,t} = a I + 1 (beta_t pi_t - a beta_s pi_s)^T, a = alpha_t / alpha_s, 1 a column of ones
                                                                                                        (`Drifting`)
    rates            R_t = -b I + 1 rho_t^T, b = -alpha'/alpha, rho_t = (beta_t pi_t)' + b beta_t pi_t
                     = [m + c_t (gamma/(2t) + 1 - gamma) u] / (C_t (1 - t))
    network          mu, a distribution of tokens (never the mask), takes the place of x_0 in the posterior;
                     the network is conditioned on t itself
    bound            per unit of time, z = x_t, q_mu = alpha_t mu + beta_t pi_t, D(p, q) = p/q - log(p/q) - 1

        w_t [ KL(q(. | x_0) || q_mu) + D(q(z | x_0), q_mu(z)) ],   w_t = rho_t(z) / q(z | x_0)

    loss weights     none: w_t
                     clip: w_t, at most 2
                     dynamic: 2 at a mask, 1 at a wrong token, (B / V) e^{-lambda/2} (at most 2) at the right token,
                     lambda = log (1 - t)/t
                     dynamic-published: as dynamic, with (B / (V + 1)) e^{gamma/2 sigmoid(-t)} (the authors' code)

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| masks and random tokens | its own | LeaveOneOut | continuous; weighted | ancestral |

Differences from the paper: alpha is exactly 1 at t = 0 and 0 at t = 1. So the prior and reconstruction terms are 0, and
the bound is the integral over all of [0, 1]. The authors' code leaves out 1e-4 at both ends of time (`t_eps`). Here
only the losses with other weights than w_t leave it out; the bound does not. gamma is at most 2: above, rates would be
negative.
"""

import functools
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..base.requests import declared, option
from ..core import maths, random
from ..core.prediction import LeaveOneOut
from ..core.process import Process
from ..core.schedule import BISECTIONS, CLEAN, PRIOR, Schedule
from .diffusion import Diffusion, per_position, summed

T_EPS = 1e-4  # the losses with other weights sample t at this distance from both ends
MAX_WEIGHT = 2.0


class Hybrid(Schedule):
    """Schedule alpha_t = (1 - u) / (1 + c_u), where u is t.

    If `alpha_0` is below 1 or `alpha_1` above 0, u runs evenly from where alpha is `alpha_0` to where it is `alpha_1`.

    Args:
        p_uniform: p_u, the weight of uniform noise at u = 1/2.
        gamma: the power in c_u.
    """

    def __init__(self, p_uniform: float = 0.1, gamma: float = 1.0):
        super().__init__(0.0)
        self.gamma, self.B = gamma, 2**gamma * p_uniform / (1 - p_uniform)

    @property
    def ends(self) -> tuple[float, float]:
        """u at t = 0 and at t = 1."""
        return _reached(self.alpha_0, self.B, self.gamma), _reached(self.alpha_1, self.B, self.gamma)

    def place(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
        """Return u, c_u and dc_u/du at times t (*) in [0, 1], (*, 1) each, and du/dt."""
        low, high = self.ends
        u = (low + (high - low) * t)[..., None]
        within = (u * (1 - u)).clamp_min(0.0)
        inside = within > 0
        slope = self.B * self.gamma / 2 * torch.where(inside, within, 1.0) ** (self.gamma / 2 - 1) * (1 - 2 * u)
        return u, self.B * within ** (self.gamma / 2), torch.where(inside, slope, 0.0), high - low

    def _alpha(self, t):
        u, c, _, _ = self.place(t)
        return (1 - u) / (1 + c)

    def _slope(self, t):
        u, c, slope, pace = self.place(t)
        return -pace * (1 + c + (1 - u) * slope) / (1 + c) ** 2

    def _inverse(self, alpha):
        return self._halved(alpha)


@functools.cache
def _reached(alpha: float, B: float, gamma: float) -> float:
    """Find the u at which (1 - u) / (1 + c_u) is alpha, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        above = (1 - middle) / (1 + B * (middle * (1 - middle)) ** (gamma / 2)) > alpha
        low, high = (middle, high) if above else (low, middle)
    return 0.0 if alpha == 1.0 else 1.0 if alpha == 0.0 else (low + high) / 2


class Drifting(Process):
    """Noise of a `Hybrid` schedule, whose distribution pi_t changes with time.

    Q_{s,t} = a I + 1 (n_t - a n_s)^T, n_t = beta_t pi_t. Clean data never contains the mask. The mask does not absorb:
    it may become a token again.
    """

    schedule: Hybrid

    def __init__(self, K: int, schedule: Hybrid, mask: int | None = None):
        mask = K - 1 if mask is None else mask
        prior = torch.zeros(K, dtype=torch.float64).index_fill(0, torch.tensor(mask), 1.0)
        super().__init__(prior, schedule, clean=prior == 0)
        self.blank = mask

    def noise(self, t: Tensor | float) -> Tensor:
        """Noise n_t = beta_t pi_t, (*) -> (*, K): 0 at CLEAN, the mask at PRIOR."""
        t = self.as_time(t).to(self.prior)
        u, c, _, _ = self.schedule.place(t.clamp(0.0, 1.0))
        inside = (u * self.prior + c / (self.K - 1) * self.clean) / (1 + c)
        return torch.where(t.isinf()[..., None], self.prior * (t == PRIOR)[..., None], inside)

    def _added(self, s: Tensor | float, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return a (*, 1), and n_t - a n_s (*, K), the noise that a step from s to t adds."""
        a = self._keep(s, t)
        return a, self.noise(t) - a * self.noise(s)

    def _rates(self, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return b (*, 1) and rho_t (*, K)."""
        t = self.as_time(t).to(self.prior)
        u, c, _, pace = self.schedule.place(t)
        # c' (1 - u) + c without a difference of large numbers
        tokens = c * (self.schedule.gamma / 2 / u + 1 - self.schedule.gamma) / (self.K - 1)
        rho = pace * (self.prior + tokens * self.clean) / ((1 + c) * (1 - u))
        return self.schedule.beta(t).to(self.prior), rho

    def matrix(self, s, t):
        a, added = self._added(s, t)
        return torch.diag_embed(a.expand(added.shape)) + added[..., None, :]

    def rate(self, t):
        b, rho = self._rates(t)
        return rho[..., None, :] - torch.diag_embed(b.expand(rho.shape))

    def push(self, v, s, t):
        a, added = self._added(s, t)
        return a * v + v.sum(-1, keepdim=True) * added

    def unpush(self, v, s, t):
        a, added = self._added(s, t)
        return (v - v.sum(-1, keepdim=True) * added) / a

    def likelihood(self, x_t, s, t):
        a, added = self._added(s, t)
        column = added.expand(*x_t.shape, self.K).gather(-1, x_t[..., None]).expand(*x_t.shape, self.K)
        return column.scatter_add(-1, x_t[..., None], a.expand(*x_t.shape, 1))

    def rate_into(self, x_t, t):
        _, rho = self._rates(t)
        column = rho.expand(*x_t.shape, self.K).gather(-1, x_t[..., None]).expand(*x_t.shape, self.K)
        return column.scatter(-1, x_t[..., None], 0.0)

    def rate_from(self, x_t, t):
        _, rho = self._rates(t)
        return rho.expand(*x_t.shape, self.K).scatter(-1, x_t[..., None], 0.0)

    def sample(self, x_0, t, generator=None):
        if random.enumerates(generator):
            return super().sample(x_0, t, generator)
        n, alpha = self.noise(torch.as_tensor(t).expand(x_0.shape)), self.schedule.alpha(self.as_time(t))[..., 0]
        masked, rest = n[..., self.blank], 1 - n[..., self.blank]
        tokens = self.clean.to(self.prior) / (self.K - 1)
        x = random.replace(x_0, 1 - alpha / torch.where(rest > 0, rest, 1.0), tokens, generator)
        return torch.where(random.bernoulli(masked, generator), self.blank, x)


class GIDD(Diffusion):
    """Diffusion with masks and random tokens, so a visible token may be wrong; see the module for the equations."""

    name = "gidd"
    system, paper, noise = "GIDD", "2503.04482", "masks and random tokens"
    parameterization = "leave_one_out"
    choices: ClassVar = {"weights": ("none", "clip", "dynamic", "dynamic-published")}
    published_end = T_EPS
    variants = ({}, {"p_uniform": 0.3, "gamma": 2.0}, {"diffusion_steps": 4})
    process: Drifting

    @declared
    class Config:
        """GIDD's options."""

        p_uniform: float = option(
            "fraction of random tokens at t = 1/2; 0: masks alone", default=0.1, minimum=0, below=1
        )
        gamma: float = option(
            "power of the random tokens' noise, at most 2",
            default=1.0,
            above=0,
            maximum=2,
            why="rates are negative beyond",
        )
        weights: str = option("loss weights: none, clip, dynamic or dynamic-published", default="none")
        diffusion_steps: int = option(
            "T of discrete time, with its T-step bound; 0: continuous time", default=0, minimum=0
        )

    def __init__(
        self, network: nn.Module | None, vocabulary: int, shape: tuple[int, ...], config: Config | None = None
    ):
        config = self.checked(config)
        process = Drifting(vocabulary + 1, Hybrid(config.p_uniform, config.gamma))
        super().__init__(network, vocabulary, shape, config, process, timed=True, steps=config.diffusion_steps)
        self.loss_is_bound = config.weights == "none"

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + 1

    def network_time(self, t: Tensor) -> Tensor:
        """Return t itself, as in the authors' code."""
        return t.float()

    def read(self, logits, x_t, t):
        return LeaveOneOut(self.process, self.process.without_mask(logits).softmax(-1), x_t, t)

    def weight(self, x_0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Weight of the bound, w_t = rho_t(x_t) / q(x_t | x_0), per unit of time: (*) -> (*)."""
        _, rho = self.process._rates(t)
        here = self.process.marginal(x_0, t).gather(-1, x_t[..., None])[..., 0]
        return rho.gather(-1, x_t[..., None])[..., 0] / here

    def loss_weight(self, x_0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Weight of the loss, by the option `weights`: (*) -> (*)."""
        if self.config.weights == "none":
            return self.weight(x_0, x_t, t)
        if self.config.weights == "clip":
            return self.weight(x_0, x_t, t).clamp_max(MAX_WEIGHT)
        B, gamma, K = self.process.schedule.B, self.process.schedule.gamma, self.process.K
        if self.config.weights == "dynamic":
            right = B / (K - 1) * (t / (1 - t)) ** 0.5  # e^{-lambda/2}
        else:
            right = B / K * (gamma / 2 * torch.sigmoid(-t)).exp()
        other = torch.where(x_t == self.process.blank, 2.0, 1.0).to(t)
        return torch.where(x_t == x_0, right, other).clamp_max(MAX_WEIGHT)

    def divergence(self, logits: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """KL(q(. | x_0) || q_mu) + D(q(x_t | x_0), q_mu(x_t)) from logits (*, K): (*) nats."""
        mu = self.read(logits, x_t, t).mu.to(self.process.prior)  # (*, K)
        q, q_mu = self.process.marginal(x_0, t), self.process.push(mu, CLEAN, t)  # (*, K) each
        here, here_mu = (distribution.gather(-1, x_t[..., None])[..., 0] for distribution in (q, q_mu))
        return maths.kl(q, q_mu) + maths.score_entropy(torch.ones_like(here), here / here_mu)  # p/q - log(p/q) - 1

    def weighted(self, weight: Tensor, logits: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """The divergence times a weight (*), 0 where that is 0, though the divergence may be infinite there: (*) nats."""
        logits = torch.where(weight[..., None] > 0, logits, 0.0)
        return weight * self.divergence(logits, x_0, x_t, t)

    def cost(self, logits, x_0, x_t, t, s=None):
        if s is not None:
            return super().cost(logits, x_0, x_t, t, s)
        return self.weighted(self.weight(x_0, x_t, t), logits, x_0, x_t, t)

    def loss(self, batch, generator=None):
        if self.config.weights == "none" or self.steps:
            return super().loss(batch, generator)
        t = T_EPS + (1 - 2 * T_EPS) * self.draw_times(batch, generator)
        x_t = self.corrupt(batch, per_position(t), generator)
        return summed(self, lambda logits, *at: self.weighted(self.loss_weight(*at), logits, *at), batch, x_t, t)
