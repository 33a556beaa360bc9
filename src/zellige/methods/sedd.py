"""SEDD: Discrete diffusion modeling by estimating the ratios of the data distribution (Lou et al. 2024, arXiv
2310.16834).

    q(x_t | x_0)     absorbing or uniform, alpha = exp(-sigma), sigma loglinear or geometric         (sections 3.3, 5.1)
    network          the concrete score v_y = p_t(y) / p_t(x_t), v = exp(network), given sigma        (section 3)
    scale_by_sigma   absorbing: v = exp(network) / ((e^sigma - 1) V), nearly right for a network near 0 (published)
    bound            E_t sum_y R_t(y, x_t) [ v_y - u_y + u_y log(u_y / v_y) ], u the score given x_0  (theorem 3.6)

For the two processes the sum is, per unit of time and position,

    absorbing, at a mask    -alpha'/(1 - alpha) [ -log(v_{x_0} / M) + m - 1 - log m ],
                            M = sum_y v_y,  m = (e^sigma - 1) M
    uniform                 beta/K sum_{y != x_t} u_y [ e^{d_y} - 1 - d_y ],  d = log v - log u        `uniform_bound`

The first is MDLM's weighted cross-entropy, of the distribution v / M, plus a term that is 0 only if M has its true
value, 1/(e^sigma - 1).

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| absorbing, uniform | loglinear, geometric | Score | continuous | analytic (= ancestral), euler |

Differences from the paper.

**The bound.** `loss` is the paper's, the diffusion term alone. `bound` adds the endpoint terms: prior and, for
geometric noise, which starts at alpha = exp(-sigma_min) < 1, reconstruction. In both, absorbing noise reveals one token
at a time, by the clean posterior that follows from the score at t = 1 and at t = 0. Uniform noise denoises all tokens
in one last step.

**Clipping.** A v > 0 need not be the score of a distribution. Sampling then clips negative probabilities (see `Score`).
If the last step clips the probability of x_0, the bound is infinite.

**Time and precision.** Published times start at 1e-3, here at 0. Under uniform noise and at small sigma, the published
form loses its digits in float32; the one above does not.

**Infilling** is exact for absorbing noise. It is approximate for uniform noise: the network does not know which
positions are given.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from ..base.errors import InputError
from ..base.requests import declared, option
from ..core.curves import schedule_of
from ..core.prediction import score, truth
from ..core.process import absorbing, uniform
from . import diffusion
from .diffusion import per_position
from .score import Scored


class SEDD(Scored):
    """Score entropy for absorbing or uniform noise; see the module for the equations."""

    name = "sedd"
    system, paper, noise = "SEDD", "2310.16834", "absorbing, uniform"
    published_end = 1e-5
    time_input = "sigma"
    choices: ClassVar = {
        "process": ("absorbing", "uniform"),
        "schedule": ("loglinear", "geometric"),
        "loss": ("score-entropy", "squared"),
    }
    variants = (
        {},
        {"process": "uniform"},
        {"schedule": "geometric"},
        {"process": "uniform", "schedule": "geometric"},
    )

    @declared
    class Config:
        """SEDD's options."""

        process: str = option("absorbing or uniform", default="absorbing")
        schedule: str = option("sigma(t): loglinear or geometric", default="loglinear")
        scale_by_sigma: bool | None = option(
            "divide the network's scores by (e^sigma - 1) V; absorbing only, where it is the default", default=None
        )
        sigma_min: float | None = option("geometric: sigma at t = 0, 1e-4 by default", default=None)
        sigma_max: float | None = option("geometric: sigma at t = 1, 20 by default", default=None)
        alpha_1: float | None = option("loglinear: alpha at t = 1, its eps: above 0, 1e-3 by default", default=None)
        loss: str = option(
            "training loss: score-entropy, or squared, the squared error of the scores (an ablation of the paper)",
            default="score-entropy",
        )

    def __init__(
        self, network: nn.Module | None, vocabulary: int, shape: tuple[int, ...], config: Config | None = None
    ):
        config = self.checked(config)
        absorbs, schedule = config.process == "absorbing", schedule_of(config)
        if config.scale_by_sigma and not absorbs:
            raise InputError(
                "`scale_by_sigma` needs `process` absorbing; the scores of uniform noise have no such scale"
            )
        process = (absorbing if absorbs else uniform)(self.states(vocabulary, config), schedule)
        super().__init__(network, vocabulary, shape, config, process, timed=True, scaled=config.scale_by_sigma)

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + (config.process == "absorbing")

    def loss(self, batch, generator=None):
        if self.config.loss == "score-entropy":
            return super().loss(batch, generator)
        t = self.draw_times(batch, generator)
        return diffusion.summed(self, self.squared, batch, self.corrupt(batch, per_position(t), generator), t)

    def squared(self, logits: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Squared error of the score, sum_y R_t(y, x_t) (v_y - u_y)^2 / 2: (N,) per unit of time.

        Like the score entropy, its expectation is smallest where v is the mean of u, the true score. Shapes: logits
        (N, K), x_0, x_t and t (N,).
        """
        v, u = score(self.read(logits, x_t, t)), score(truth(self.process, x_0, x_t, t))  # (N, K) each
        rates = self.process.rate_into(x_t, t)  # (N, K): R_t(y, x_t)
        squares = torch.where(rates > 0, v - u, 0.0).square()
        return (rates * squares).sum(-1) / 2  # SEDD appendix D.1; the factor is ours
