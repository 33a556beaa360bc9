"""D3PM: Structured denoising diffusion models in discrete state-spaces (Austin et al. 2021, arXiv 2107.03006).

Its two kernels for unordered tokens, in discrete time t = i/T, i = 1..T. Both are mixtures, never K x K:

    q(x_i | x_{i-1})  keep with probability 1 - beta_i, else draw uniformly, or absorb into the mask    (section 3.1)
    q(x_i | x_0)      the same with alpha_i = prod_{j <= i} (1 - beta_j)                                (eq. 3)
    network           p~(x_0 | x_t) = softmax(logits)                                                   (section 3.3)
    reverse kernel    p(x_s | x_t) ~ sum_{x_0} q(x_s, x_t | x_0) p~(x_0 | x_t)                          (eq. 4)
                      = q(x_t | x_s) (p~ Q_{0,s})[x_s] / (p~ Q_{0,t})[x_t]
    L_vb              KL(q(x_T | x_0) || prior) + sum_i KL(q(x_s | x_t, x_0) || p(x_s | x_t)), s = (i - 1)/T    (eq. 1)
    loss              L_vb + lambda E_t [ -log p~(x_0 | x_t) ], lambda is `auxiliary`                   (eq. 5)

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| absorbing, uniform | beta_i: linear, cosine, mutual information | LeaveOneOut or Mean | L_vb + lambda CE | ancestral |

Where it leaks. Eq. 4 is `LeaveOneOut`: p~ is called p(x_0 | x_t), but it stands where the law of x_0 given the *other*
positions of x_t belongs, and that is what L_vb makes of it. `prediction = "mean"` is the mixture sum_{x_0} q(x_s | x_t, x_0)
p~(x_0 | x_t), where p~ is what its name says. At a mask the two agree. Under uniform noise the second term of eq. 5 pulls a
LeaveOneOut elsewhere than the first. The published code puts lambda beside *one* step's KL: its lambda is lambda T here.

L_0 is -log of the kernel to CLEAN, q(x_1 | x_0) in it, as in the paper's text model; its image model takes p~ itself for
p(x_0 | x_1) (`last = "image"`): a Mean at t = 1/T, in the bound and in the sampler. The mask is never predicted: p~ has no
mass on it. The mutual-information schedule of uniform noise takes x_0 to be uniform; the published one asks the data.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError, unknown
from ..masked import at_masks, reveal, without_mask
from ..maths import xlogy
from ..method import Method
from ..prediction import LeaveOneOut, Mean
from ..process import absorbing, uniform
from ..schedule import TABLES, Tabulated, table

NOISE = {"absorbing": absorbing, "uniform": uniform}
CHOICES = {
    "process": tuple(NOISE),
    "schedule": TABLES,
    "prediction": ("leave-one-out", "mean"),
    "last": ("text", "image"),
}


class D3PM(Method):
    """Discrete time, uniform or absorbing noise; see the module for the equations."""

    name = "d3pm"
    variants = (
        {},
        {"process": "uniform"},
        {"process": "uniform", "prediction": "mean"},
        {"process": "uniform", "last": "image"},
    )
    predicts = "leave_one_out"

    @dataclass(frozen=True)
    class Config:
        """D3PM's own choices."""

        process: str = "absorbing"
        """absorbing or uniform"""
        schedule: str = "mutual-information"
        """beta_i: linear, cosine (the paper's for uniform) or mutual-information (1/(T - i + 1) for absorbing)"""
        steps: int = 1000
        """T; samplers may take a number of steps that divides it"""
        prediction: str = "leave-one-out"
        """the network's softmax is p(x_0 | the other positions), eq. 4: leave-one-out; or p(x_0 | x_t): mean"""
        last: str = "text"
        """the step to clean tokens: eq. 4 like the others (text), or the softmax itself (image)"""
        auxiliary: float = 0.01
        """lambda, the weight of the cross-entropy beside the bound"""

    def __init__(self, network: Any, vocabulary: int, shape: tuple[int, ...], config: Config | None = None):
        config = config or self.Config()
        for field, choices in CHOICES.items():
            if getattr(config, field) not in choices:
                raise unknown(field, getattr(config, field), choices, "tessella train d3pm --help")
        if config.steps < 1:
            raise InputError(f"--steps is {config.steps}; it must be 1 or more")
        if config.auxiliary < 0:
            raise InputError(f"--auxiliary is {config.auxiliary:g}; it must be 0 or more")
        K, noise = self.states(vocabulary, config), NOISE[config.process]
        process = noise(K, Tabulated(table(config.schedule, config.steps, K, noise is absorbing)))
        super().__init__(network, vocabulary, shape, config, process, True, config.steps)
        self.predicts, self.loss_is_bound = config.prediction.replace("-", "_"), config.auxiliary == 0

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + (config.process == "absorbing")

    def network_time(self, t):
        return (1000 * t).float()

    def read(self, logits, x_t, t):
        logits = logits if self.process.mask is None else without_mask(self, logits)
        if self.predicts == "mean":
            return Mean(self.process, logits.softmax(-1), x_t, t)
        return LeaveOneOut(self.process, self._of_others(logits, x_t, t).softmax(-1), x_t, t)

    def _of_others(self, logits: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Logits of p(x_0 | the other positions): those of p(x_0 | x_t) less log q(x_t | x_0), a constant but at x_0 = x_t."""
        if self.process.mask is not None or (self.predicts != "mean" and self.config.last == "text"):
            return logits
        is_mean = ((t * self.steps).round() == 1) | (self.predicts == "mean")
        alpha = self.process.schedule.alpha(t)[..., 0]
        is_mean &= alpha < 1  # a given token has no noise, and no others to be told apart from
        own = torch.where(is_mean, torch.log1p(self.process.K * alpha / (1 - alpha)), 0.0).to(logits)
        return logits.scatter_add(-1, x_t[..., None], -own[..., None])

    # ---------------------------------------------------------------------------------- the closed forms
    def step(self, batch, x_t, t, s):
        if self.process.mask is None:
            return super().step(batch, x_t, t, s)
        return at_masks(self, batch, x_t, t[:, None], reveal(self.process.schedule, t, s))

    def loss(self, batch, generator=None):
        T, weight = self.steps, self.config.auxiliary
        if weight == 0:
            return self.bound(batch, generator)
        _, t, s = self._draw_step(batch, generator)
        x_t = self.corrupt(batch, t[:, None], generator)
        if self.process.mask is not None:
            return at_masks(self, batch, x_t, t[:, None], T * reveal(self.process.schedule, t, s) + weight)

        def hybrid(logits, x_0, x_t, t, s):
            return T * self.cost(logits, x_0, x_t, t, s) + weight * F.cross_entropy(logits, x_0, reduction="none")

        return self._cost(batch, x_t, t, s, hybrid) + self._prior(batch, generator)

    def cost(self, logits, x_0, x_t, t, s=None):
        """Of uniform noise. With Q_{0,s} = alpha_s I + w 1 1', Q_{s,t} = a I + u 1 1', n_0 = q(x_t | x_0), n = (mu Q_{0,t})[x_t]

            n_0 q(y | x_t, x_0) = u w + a w [y = x_t] + alpha_s u [y = x_0] + a alpha_s [y = x_t = x_0]
            KL = sum_y q(y | x_t, x_0) log( (alpha_s [y = x_0] + w) / (alpha_s mu_y + w) ) + log(n / n_0)

        so that of all states only sum_y log(1 + mu_y alpha_s / w) is asked.
        """
        if s is None or self.process.mask is not None:
            return super().cost(logits, x_0, x_t, t, s)
        logits, K, same = self._of_others(logits, x_t, t), self.process.K, x_t == x_0
        alpha_t, alpha_s = (self.process.schedule.alpha(u)[..., 0] for u in (t, s))
        a, w = alpha_t / alpha_s, (1 - alpha_s) / K
        u, odds = (1 - a) / K, torch.where(w > 0, alpha_s / torch.where(w > 0, w, 1.0), 0.0)
        log_mu = logits.log_softmax(-1)
        every = (log_mu.exp() * odds[:, None].to(logits)).log1p().sum(-1).double()
        mu_t, mu_0 = log_mu.gather(-1, torch.stack([x_t, x_0], -1)).double().exp().unbind(-1)
        n, n_0 = alpha_t * mu_t + (1 - alpha_t) / K, alpha_t * same + (1 - alpha_t) / K
        at_x_t = xlogy(a * w, (alpha_s * same + w) / (alpha_s * mu_t + w))
        at_x_0 = xlogy(alpha_s * (u + a * same), (alpha_s + w) / (alpha_s * mu_0 + w))
        return (u * w * (odds.log1p() - every) + at_x_t + at_x_0 + xlogy(n_0, n / n_0)) / n_0
