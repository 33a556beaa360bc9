"""D3PM: Structured denoising diffusion models in discrete state-spaces (Austin et al. 2021, arXiv 2107.03006).

Discrete time t = i/T, i = 1..T, any matrices Q_1..Q_T (`transitions` has those of the paper):

    q(x_i | x_{i-1})  a row of Q_i                                                                      (section 3.1)
    q(x_i | x_0)      a row of Q_1 .. Q_i                                                               (eq. 3)
    network           p~(x_0 | x_t) = softmax(logits)                                                   (section 3.3)
    reverse kernel    p(x_s | x_t) ~ sum_{x_0} q(x_s, x_t | x_0) p~(x_0 | x_t)                          (eq. 4)
                      = q(x_t | x_s) (p~ Q_{0,s})[x_s] / (p~ Q_{0,t})[x_t]
    L_vb              KL(q(x_T | x_0) || prior) + sum_i KL(q(x_s | x_t, x_0) || p(x_s | x_t)), s = (i - 1)/T    (eq. 1)
    loss              L_vb + lambda E_t [ -log p~(x_0 | x_t) ], lambda is `auxiliary`                   (eq. 5)

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| any chain Q_1..Q_T | beta_i: linear, cosine, mutual information | LeaveOneOut or Mean | L_vb + lambda CE | ancestral |

Uniform noise, and noise that absorbs into the mask or the middle level, are mixtures, never K x K: keep with probability
1 - beta_i, else draw from the prior. Gaussian and band noise are chains of K x K matrices, that of nearest neighbours a matrix
exponential: one matrix for each time, not for each position. For levels the head may give the mean and scale of a logistic
law instead of K logits, two numbers a position (appendix A.8).

Where it leaks. Eq. 4 is `LeaveOneOut`: p~ is called p(x_0 | x_t), but it stands where the law of x_0 given the *other*
positions of x_t belongs, and that is what L_vb makes of it. `prediction = "mean"` is the mixture sum_{x_0} q(x_s | x_t, x_0)
p~(x_0 | x_t), where p~ is what its name says. At a mask the two agree. Under other noise the second term of eq. 5 pulls a
LeaveOneOut elsewhere than the first. The published code puts lambda beside *one* step's KL: its lambda is lambda T here.

L_0 is -log of the kernel to CLEAN, q(x_1 | x_0) in it, as in the paper's text model; its image model takes p~ itself for
p(x_0 | x_1) (`last = "image"`): a Mean at t = 1/T, in the bound and in the sampler. The mask is never predicted: p~ has no
mass on it. The mutual-information schedules take x_0 to be uniform; the published ones ask the data. The betas of `gaussian`
are the paper's on many levels; on few, where those would hardly reach the next one, they are larger (`transitions.strengths`).
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import transitions
from ..chains import afford
from ..errors import InputError
from ..masked import at_masks, reveal, without_mask
from ..maths import xlogy
from ..method import Method
from ..prediction import LeaveOneOut, Mean, as_leave_one_out
from ..process import Mixture, Process, absorbing, uniform
from ..schedule import PRIOR, Tabulated
from ..transitions import TABLES, table

FLOOR = 1e-6  # of a logistic law is uniform, so that it excludes no level; the published code adds it inside its logs


class D3PM(Method):
    """Discrete time, any transition matrices; see the module for the equations."""

    name = "d3pm"
    choices: ClassVar = {
        "process": ("absorbing", "uniform", "middle", "gaussian", "band", "nearest"),
        "schedule": ("auto", *TABLES),
        "prediction": ("leave-one-out", "mean"),
        "last": ("text", "image"),
        "head": ("logits", "logistic"),
    }
    variants = (
        {},
        {"process": "uniform"},
        {"process": "uniform", "prediction": "mean"},
        {"process": "uniform", "last": "image"},
        {"process": "middle"},
        {"process": "gaussian"},
        {"process": "gaussian", "head": "logistic", "last": "image"},
        {"process": "gaussian", "prediction": "mean"},
        {"process": "band"},
        {"process": "nearest", "neighbours": 1},
    )
    predicts = "leave_one_out"

    @dataclass(frozen=True)
    class Config:
        """D3PM's own choices."""

        process: str = "absorbing"
        """absorbing (a mask), uniform, nearest (in an embedding); of ordered tokens gaussian, band, middle (absorbing into it)"""
        schedule: str = "auto"
        """beta_i: linear, cosine or mutual-information (1/(T - i + 1) for absorbing); auto is linear for gaussian and band"""
        steps: int = 1000
        """T; samplers may take a number of steps that divides it"""
        prediction: str = "leave-one-out"
        """the network's softmax is p(x_0 | the other positions), eq. 4: leave-one-out; or p(x_0 | x_t): mean"""
        last: str = "text"
        """the step to clean tokens: eq. 4 like the others (text), or the softmax itself (image)"""
        auxiliary: float = 0.01
        """lambda, the weight of the cross-entropy beside the bound"""
        head: str = "logits"
        """the network gives K logits; or, of ordered tokens, the mean and scale of a logistic law over the levels: logistic"""
        width: int = 0
        """the farthest jump of band and gaussian, in levels; 0 is a quarter of them for band, no limit for gaussian"""
        neighbours: int = 5
        """of nearest: how many tokens are near to each"""
        embedding: str = ""
        """of nearest: a .npy file (V, d), read again whenever the model is; without it ordered tokens are near as levels are"""

    def __init__(self, network: Any, vocabulary: int, shape: tuple[int, ...], config: Config | None = None):
        config = self.checked(config)
        if config.steps < 1:
            raise InputError(f"--steps is {config.steps}; it must be 1 or more")
        if config.auxiliary < 0:
            raise InputError(f"--auxiliary is {config.auxiliary:g}; it must be 0 or more")
        if config.head == "logistic" and config.process == "absorbing":
            raise InputError("--head logistic has no place for a mask; use --process middle, or --head logits")
        super().__init__(network, vocabulary, shape, config, _noise(config, vocabulary), True, config.steps)
        self.predicts, self.loss_is_bound = config.prediction.replace("-", "_"), config.auxiliary == 0

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + (config.process == "absorbing")

    @classmethod
    def outputs(cls, vocabulary, config):
        return 2 if config.head == "logistic" else cls.states(vocabulary, config)

    @classmethod
    def needs_order(cls, config):
        if config.process in ("middle", "gaussian", "band"):
            return f"--process {config.process}"
        if config.process == "nearest" and not config.embedding:
            return "--process nearest without --embedding"
        return "--head logistic" if config.head == "logistic" else None

    def network_time(self, t):
        return (1000 * t).float()

    # ---------------------------------------------------------------------------------- what the network says
    def read(self, logits, x_t, t):
        mu = self._clean(logits, x_t).softmax(-1)
        mean = Mean(self.process, mu, x_t, t)
        if self.predicts == "mean":
            return mean
        if self.config.last == "image" and bool((first := self._first(t)).any()):
            mu = torch.where(first[..., None], as_leave_one_out(mean).mu, mu)
        return LeaveOneOut(self.process, mu, x_t, t)

    def _clean(self, outputs: Tensor, x_t: Tensor) -> Tensor:
        """Logits (*, K) of p~(x_0 | x_t) from what the head gives."""
        if self.config.head == "logits":
            return outputs if self.process.mask is None else without_mask(self, outputs)
        K, (shift, log_scale) = self.process.K, outputs.unbind(-1)
        logits = logistic(torch.tanh(2 * x_t.to(shift) / (K - 1) - 1 + shift), log_scale, K).log_softmax(-1)
        return torch.logaddexp(logits, torch.full_like(logits, math.log(FLOOR / K)))

    def _first(self, t: Tensor) -> Tensor:
        return (t * self.steps).round() == 1

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
            ce = F.cross_entropy(self._clean(logits, x_t), x_0, reduction="none")
            return T * self.cost(logits, x_0, x_t, t, s) + weight * ce

        value = self._cost(batch, x_t, t, s, hybrid)
        return value if self.process.start == PRIOR else value + self._prior(batch, generator)

    def cost(self, logits, x_0, x_t, t, s=None):
        """Of uniform noise. With Q_{0,s} = alpha_s I + w 1 1', Q_{s,t} = a I + u 1 1', n_0 = q(x_t | x_0), n = (mu Q_{0,t})[x_t]

            n_0 q(y | x_t, x_0) = u w + a w [y = x_t] + alpha_s u [y = x_0] + a alpha_s [y = x_t = x_0]
            KL = sum_y q(y | x_t, x_0) log( (alpha_s [y = x_0] + w) / (alpha_s mu_y + w) ) + log(n / n_0)

        so that of all states only sum_y log(1 + mu_y alpha_s / w) is asked.
        """
        if s is None or self.config.process != "uniform":
            return super().cost(logits, x_0, x_t, t, s)
        logits, K, same = self._of_others(self._clean(logits, x_t), x_t, t), self.process.K, x_t == x_0
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

    def _of_others(self, logits: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Logits of p(x_0 | the other positions) under uniform noise, where they are not these: those of p(x_0 | x_t) less
        log q(x_t | x_0), a constant but at x_0 = x_t."""
        is_mean = self._first(t) & (self.config.last == "image") | (self.predicts == "mean")
        alpha = self.process.schedule.alpha(t)[..., 0]
        is_mean &= alpha < 1  # a given token has no noise, and no others to be told apart from
        own = torch.where(is_mean, torch.log1p(self.process.K * alpha / (1 - alpha)), 0.0).to(logits)
        return logits.scatter_add(-1, x_t[..., None], -own[..., None])


def logistic(mean: Tensor, log_scale: Tensor, K: int) -> Tensor:
    """Logits of a logistic law cut into K bins round the levels -1..1 and renormalised (appendix A.8): (*), (*) -> (*, K).

    sigma(b) - sigma(a) = sigma(b) sigma(-a) (1 - e^{a - b}) for the bin from a to b; all are as wide, so the last factor goes.
    """
    inverse = torch.exp(2 - log_scale.clamp_min(-7))[..., None]
    centre = torch.linspace(-1, 1, K, dtype=mean.dtype, device=mean.device) - mean[..., None]
    half = 1 / (K - 1)
    return F.logsigmoid(inverse * (centre + half)) + F.logsigmoid(inverse * (half - centre))


def _noise(config: D3PM.Config, V: int) -> Process:
    """The process of a choice, for V tokens."""
    kind, T = config.process, config.steps
    ordinal = kind in ("gaussian", "band")
    schedule = ("linear" if ordinal else "mutual-information") if config.schedule == "auto" else config.schedule
    if ordinal:
        if schedule == "mutual-information":
            raise InputError(f"--schedule mutual-information is not for --process {kind}; use linear or cosine")
        return transitions.levels(kind, V, T, schedule, config.width)
    if kind == "nearest":
        afford(V)
        places = torch.arange(V)[:, None] if not config.embedding else transitions.read_embedding(config.embedding, V)
        return transitions.graph(places, config.neighbours, T, schedule)
    K = D3PM.states(V, config)
    alpha = Tabulated(table(schedule, T, K, kind != "uniform"))
    if kind == "middle":
        return Mixture(F.one_hot(torch.tensor(K // 2), K).double(), alpha)
    return absorbing(K, alpha) if kind == "absorbing" else uniform(K, alpha)
