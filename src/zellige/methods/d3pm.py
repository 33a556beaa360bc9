"""D3PM: Structured denoising diffusion models in discrete state-spaces (Austin et al. 2021, arXiv 2107.03006).

Discrete time t = i/T, i = 1..T, any matrices Q_1..Q_T (`d3pm_transitions` has those of the paper, `d3pm_noise` their
names):

    q(x_i | x_{i-1})  a row of Q_i                                                                        (eq. 2)
    q(x_i | x_0)      a row of Q_1 .. Q_i                                                               (eq. 3)
    network           p~(x_0 | x_t) = softmax(logits)                                                   (section 3.3)
    reverse kernel    p(x_s | x_t) in proportion to sum_{x_0} q(x_s, x_t | x_0) p~(x_0 | x_t)           (eq. 4)
                      = q(x_t | x_s) (p~ Q_{0,s})[x_s] / (p~ Q_{0,t})[x_t]
    L_vb              KL(q(x_T | x_0) || prior) + sum_i KL(q(x_s | x_t, x_0) || p(x_s | x_t)), s = (i - 1)/T    (eq. 1)
    loss              L_vb + lambda E_t [ -log p~(x_0 | x_t) ], lambda is `auxiliary`                   (eq. 5)

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| any chain Q_1..Q_T | beta_i: linear, cosine, mutual information | LeaveOneOut or Mean | L_vb + lambda CE | ancestral |

Differences from the paper. The paper writes the network's output as p~(x_0 | x_t), a prediction from all positions. But
eq. 4 multiplies it by the noise of the position itself. So eq. 4 is right only if the prediction leaves that position out,
and training with L_vb makes it so: a `LeaveOneOut`. With `prediction` mean the output is p(x_0 | x_t) as the paper writes
it, and the kernel is sum_{x_0} q(x_s | x_t, x_0) p~(x_0 | x_t). At a masked position the two are the same. Elsewhere the
two terms of eq. 5 have different minima: L_vb at the leave-one-out prediction, the cross-entropy at p(x_0 | x_t). p~ has no
probability on the mask. `docs/theory/differences.md` explains the scale of lambda.

The last step. L_0 = -log p(x_0 | x_1) with the kernel of eq. 4, as in the paper's text model. The paper's image model
takes p(x_0 | x_1) = p~(x_0 | x_1) instead; `last` image does the same, in the bound and in the sampler. The image code also
adds an eps inside every logarithm; `log_eps` adds it to the loss, and never to a sampler.
"""

import copy
from dataclasses import replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base.errors import InputError, either
from ..base.requests import declared, option
from ..core import maths
from ..core.prediction import LeaveOneOut, as_leave_one_out, restricted
from ..core.process import Process
from ..core.schedule import CLEAN, PRIOR
from ..nn.logistic import near
from . import diffusion, uniform
from .absorbing import Absorbing
from .d3pm_noise import NOISES, SCALINGS, STRENGTHS, WEIGHTS, noise_of
from .d3pm_rows import RowTables, rows_of
from .d3pm_transitions import TABLES


class D3PM(Absorbing):
    """Discrete time, any transition matrices; see the module for the equations."""

    name = "d3pm"
    system, paper, noise = "D3PM", "2107.03006", "any chain Q_1..Q_T"
    choices: ClassVar = {
        "process": NOISES,
        "schedule": ("paper", "auto", *TABLES),
        "prediction": ("leave-one-out", "mean"),
        "last": ("text", "image"),
        "head": ("logits", "residual", "logistic"),
        "auxiliary_at": ("masks", "all"),
        "scaling": SCALINGS,
        "strength": STRENGTHS,
        "neighbour_weights": WEIGHTS,
    }
    of_levels: ClassVar = {
        "process": [name for name, noise in NOISES.items() if noise.ordered],
        "head": ("logistic",),
        "levels": (True,),
    }
    variants = (
        {},
        {"process": "uniform"},
        {"process": "uniform", "prediction": "mean", "schedule": "linear-to-one"},
        {"process": "uniform", "last": "image", "schedule": "even"},
        {"process": "absorbing-uniform"},
        {"process": "middle"},
        {"process": "gaussian"},
        {"process": "gaussian", "head": "logistic", "last": "image"},
        {"process": "middle", "head": "residual", "last": "image"},
        {"process": "gaussian", "prediction": "mean"},
        {"process": "band"},
        {"process": "nearest", "neighbours": 1},
        {"process": "nearest", "neighbours": 2, "scaling": "sinkhorn"},
        {"process": "absorbing-nearest", "neighbours": 2, "neighbour_weights": "rank"},
    )
    parameterization = "leave_one_out"

    @declared
    class Config:
        """D3PM's options."""

        process: str = option(f"kind of noise; {either([*NOISES])}", default="absorbing")
        schedule: str = option(
            "schedule of beta_i; paper, auto, linear, linear-to-one, cosine, even or mutual-information",
            default="paper",
        )
        diffusion_steps: int = option("T of discrete time; samples and bounds may take fewer", default=1000, minimum=1)
        prediction: str = option(
            "what the softmax predicts: leave-one-out or mean; the clean token from the other positions, or from all "
            "of them",
            default="leave-one-out",
        )
        last: str = option(
            "the step to clean tokens: like the others, by eq. 4 (text), or the softmax itself (image)", default="text"
        )
        auxiliary: float = option(
            "lambda, the weight of the cross-entropy that is added to the bound", default=0.01, minimum=0
        )
        head: str = option("what the network gives: logits, residual or logistic", default="logits")
        width: int = option(
            "largest jump of band and gaussian, in values; 0: a quarter of all values for band, no limit for gaussian",
            default=0,
            minimum=0,
        )
        neighbours: int = option("for nearest: number of neighbours of each token", default=5, minimum=1)
        neighbour_weights: str = option(
            "for nearest: the neighbours are equally likely (equal), or less likely with their rank (rank)",
            default="equal",
        )
        mask_rate: float = option(
            "for absorbing-nearest: rate of turning into the mask; all neighbours together have a rate of about 1",
            default=4.0,
        )
        embedding: str = option(
            "for nearest: .npy file (V, d) with a vector for each token, needed whenever the model is loaded; without "
            "it, ordered tokens are near if their values are",
            default="",
        )
        scaling: str = option(
            "for nearest: how the graph of neighbours becomes a step: exponential, sinkhorn or expm",
            default="exponential",
        )
        mask_proportion: float = option(
            "for absorbing-uniform: fraction of the noise that is the mask; the rest is random tokens (BERT: 0.89)",
            default=0.9,
        )
        auxiliary_at: str = option(
            "where absorbing noise adds the cross-entropy: at the masks, or at all positions, as the published code "
            "does",
            default="masks",
        )
        log_eps: float = option(
            "for `last` image: added inside every logarithm of L_vb, as in the published image code (1e-6); the "
            "result is then no bound",
            default=0.0,
            minimum=0,
        )
        levels: bool = option(
            "let a U-Net read pixel values as numbers from -1 to 1 with any noise, as the published image code does; "
            "by default it does so only if the noise or the head uses their order",
            default=False,
        )

        strength: str = option(
            "strength of gaussian noise: paper, or matched to that of 256 values for every number of values",
            default="paper",
        )
        matrix: str = option(
            "for matrix: .npy or .csv file (V, V) of probabilities, from row to column; needed whenever the model is "
            "loaded",
            default="",
        )
        unigrams: str = option(
            "for mutual-information: .npy file, or a line for each token, of how often each of the V tokens occurs in "
            "the training data; without it all are taken to be equally frequent; needed whenever the model is loaded",
            default="",
        )

    def __init__(
        self, network: nn.Module | None, vocabulary: int, shape: tuple[int, ...], config: Config | None = None
    ):
        config = self.checked(config)
        if config.log_eps and (config.last, config.prediction) != ("image", "leave-one-out"):
            raise InputError(
                "`log_eps` is of the published image code; it needs `last` image and `prediction` leave-one-out"
            )
        if config.head != "logits" and NOISES[config.process].mask:
            raise InputError(f"`head` {config.head} has no place for a mask; use `process` middle, or `head` logits")
        process = noise_of(config, vocabulary)
        super().__init__(network, vocabulary, shape, config, process, timed=True, steps=config.diffusion_steps)
        self.parameterization, self.approximate = config.prediction.replace("-", "_"), config.log_eps > 0
        self.loss_is_bound = config.auxiliary == 0 and not self.approximate

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + NOISES[cls.checked(config).process].mask

    @classmethod
    def needs_order(cls, config):
        if NOISES[cls.checked(config).process].embedded and not config.embedding:
            return f"`process` {config.process} without `embedding`"
        return super().needs_order(config)

    # ---------------------------------------------------------------------------------- what the network says
    def read(self, logits, x_t, t):
        mu = self._clean(logits, x_t).softmax(-1)  # D3PM section 3.3
        if self.parameterization == "mean":
            return restricted(self.process, mu, x_t, t)
        if self.config.last == "image" and bool((is_mean := self._says_mean(t)).any()):
            mu = torch.where(is_mean[..., None], as_leave_one_out(restricted(self.process, mu, x_t, t)).mu, mu)
        return LeaveOneOut(self.process, mu, x_t, t)  # D3PM eq. 4

    def _clean(self, outputs: Tensor, x_t: Tensor) -> Tensor:
        """Logits (*, K) of p~(x_0 | x_t) from the head's output."""
        if self.config.head == "logistic":
            return near(outputs, x_t, self.process.K)
        if self.config.head == "residual":
            return outputs + self.process.one_hot(x_t).to(outputs)
        return self.process.without_mask(outputs)

    def _says_mean(self, t: Tensor) -> Tensor:
        """Times at which p~ parameterizes p(x_0 | x_t), (*) bool: all of them, or t = 1/T alone (`last`)."""
        last_step = (t * self.steps).round() == 1
        return last_step & (self.config.last == "image") | (self.parameterization == "mean")

    # ---------------------------------------------------------------------------------- the closed forms
    def discrete_bound(self, batch, x_t, t, s, scale=1, auxiliary=0.0, rows=None):
        """The bound of the step from t to s, `scale` times, and `auxiliary` times the cross-entropy: (B,) nats."""
        if self.process.mask is not None and not self.config.log_eps:
            weight, at = scale * self.reveal_probability(t, s), None
            if auxiliary and self.config.auxiliary_at == "all":
                at = batch.counted
                weight = torch.where(x_t == self.process.mask, weight[:, None], 0.0) + auxiliary
            else:
                weight = weight + auxiliary
            return self.cross_entropy(batch, x_t, t[:, None], weight, at=at)  # D3PM eq. 5, at masks

        rows = rows or self._rows(t, s)

        def each(logits, x_0, x_t, t, s, row):
            if rows is not None:
                return rows.loss(self._clean(logits, x_t), x_0, x_t, row, scale, auxiliary)
            ce = F.cross_entropy(self._clean(logits, x_t), x_0, reduction="none") if auxiliary else 0.0
            return scale * self.cost(logits, x_0, x_t, t, s) + auxiliary * ce  # D3PM eq. 5

        at = batch.counted if self.config.log_eps else None
        return diffusion.summed(self, each, batch, x_t, t, s, torch.arange(len(t), device=t.device), at=at)

    def _rows(self, t: Tensor, s: Tensor) -> RowTables | None:
        """Tables of each example's step, if they save time."""
        return None if self.config.log_eps else rows_of(self.process, self.network, t, s, self._says_mean(t))

    @property
    def start_time(self):
        return 1.0 if self.config.log_eps else self.process.start_time  # L_T is then a term of its own, of masks too

    def prior_term(self, batch, generator=None):
        if not self.config.log_eps:
            return super().prior_term(batch, generator)
        return (image_prior(self.process, batch.tokens, self.config.log_eps) * batch.counted).sum(-1)

    def _may_cost(self, x_t):
        return super()._may_cost(x_t) | (self.config.log_eps > 0)  # an eps in the logarithm of a token that is certain

    def as_published(self):
        if self.parameterization == "mean":
            raise InputError("the published bound of d3pm reads its network by eq. 4, and this one says p(x_0 | x_t)")
        copied = copy.copy(self)
        eps = self.config.log_eps or 1e-6  # that of the image code
        copied.config = replace(self.config, last="image", log_eps=eps)
        return copied

    def loss(self, batch, generator=None):
        if self.config.auxiliary == 0:
            return super().loss(batch, generator)
        _, t, s = diffusion.draw_step(self, batch, generator)
        rows = self._rows(t, s)
        if rows is None:
            x_t = self.corrupt(batch, t[:, None], generator)
        else:
            x_t = rows.sample(batch.tokens, batch.counted, generator)
        value = self.discrete_bound(batch, x_t, t, s, self.steps, self.config.auxiliary, rows)  # D3PM eq. 5
        return value if self.start_time == PRIOR else value + self.prior_term(batch, generator)

    def cost(self, logits, x_0, x_t, t, s=None):
        if s is not None and self.config.log_eps:
            return image_step(self.process, self._clean(logits, x_t), x_0, x_t, t, s, self.config.log_eps)
        if s is None or self.config.process != "uniform":
            return super().cost(logits, x_0, x_t, t, s)
        leave_one_out = uniform.as_others(self.process, self._clean(logits, x_t), x_t, t, self._says_mean(t))
        return uniform.uniform_step(self.process, leave_one_out, x_0, x_t, t, s)  # D3PM eq. 1, a term of the sum


def image_step(process: Process, logits: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor, s: Tensor, eps: float) -> Tensor:
    """L_t of the step from t to s, at s = CLEAN L_0, as the published image code has them, with eps inside every
    logarithm.

        L_t    KL(q || p), each in proportion to (q(x_t | x_s) + eps) (distribution of x_s + eps), of x_0 and of p~;
               eq. 4
        L_0    -log p~(x_0 | x_1), the softmax as it is: with an eps there is no x_0 that x_1 cannot come from
        L_T    sum of q(x_T | x_0) [ log(q(x_T | x_0) + eps) - log(prior + eps) ], by `image_prior`

    The code has eps = 1e-6. As eps falls to 0 the first becomes the KL of the two posteriors and the last that of L_T,
    while L_0 stays what it is: -log p~ restricted to where x_1 can come from, and -log of the probability that p~ has
    there. Numbers to compare with published ones, and no bounds.

    Args:
        logits: (N, K) of p~; the others are (N,).

    Returns:
        (N,) nats.
    """
    log_mu = logits.log_softmax(-1).to(process.prior)
    likely = process.likelihood(x_t, s, t) + eps
    q, p = (
        maths.normalise(likely * (process.push(distribution, CLEAN, s) + eps))
        for distribution in (process.one_hot(x_0), log_mu.exp())
    )
    last = -log_mu.gather(-1, x_0[:, None])[:, 0]
    return torch.where(s == CLEAN, last, maths.kl(q, p))  # D3PM eq. 1, a term of the sum


def image_prior(process: Process, x_0: Tensor, eps: float) -> Tensor:
    """L_T at each position, x_0 (*): (*) nats."""
    q = process.marginal(x_0, 1.0)
    return (maths.xlogy(q, q + eps) - maths.xlogy(q, process.prior + eps)).sum(-1)  # D3PM eq. 1, its first term
