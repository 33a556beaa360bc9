"""RADD: Your absorbing discrete diffusion secretly models the conditional distributions of clean data (Ou et al. 2024,
arXiv 2406.03736).

    score            p_t(y) / p_t(x_t) = alpha/(1 - alpha) p_0(y | the tokens of x_t) at a mask            (theorem 1)
    network          c(x_t) = p_0(. | the tokens of x_t), which does not see the time; alpha loglinear       (eq. 3.3)

Four losses, one expectation (theorem 2, eq. 3.7, in this order) when alpha runs from exactly 1 to exactly 0. With the
sums over the masks of x_t, R the rate -alpha'/alpha and v = alpha/(1 - alpha) c

    t-DSE            E_t sum R [ sum_y v_y - a log v_{x_0} + a (log a - 1) ],  a = alpha/(1 - alpha)
    t-DCE            E_t sum -alpha'/(1 - alpha) -log c_{x_0}
    lambda-DCE       E_lambda (1/lambda) sum -log c_{x_0},  each token masked with probability lambda, uniform in [0, 1]
    k-DCE            E_k (L/k) sum -log c_{x_0},  exactly k tokens masked, k uniform in 1..L: any-order autoregression

In a given order the likelihood is exact: -log p(x) = sum_l -log c(x_order(l) | the tokens before) (`estimators`).

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| absorbing | loglinear | Mean, time-free | t-DSE, t-DCE, lambda-DCE, k-DCE | ancestral, euler, any-order, fixed order |

Differences from the paper: the published t-DCE is taken of the log score, so it carries -R a log a for each mask;
without it the four losses agree. alpha ends at eps, not 0, so here the cost at the ends of the schedule is added to
t-DSE and t-DCE; the other two have no schedule. The default is k-DCE, which has the least variance: exactly k tokens
are masked, and k is spread evenly over the batch. Layer norms have a bias, as published (there all biases start at 1,
here at 0).
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..base.requests import declared, option
from ..core import random
from ..core.batch import Batch
from ..core.curves import SCHEDULES, ScheduleChoice, schedule_of
from ..nn.network import build_network
from . import diffusion
from .absorbing import Masked
from .diffusion import Diffusion


class RADD(Masked):
    """Masked diffusion without time, trained by any of the paper's losses; see the module for the equations."""

    name = "radd"
    system, paper, noise = "RADD", "2406.03736", "absorbing"
    published_end = 1e-5
    published_fills = False
    choices: ClassVar = {"loss": ("k-dce", "lambda-dce", "t-dce", "t-dse"), "schedule": SCHEDULES}
    variants = ({}, {"loss": "lambda-dce"}, {"loss": "t-dce"}, {"loss": "t-dse"})

    @declared
    class Config(ScheduleChoice):
        """RADD's options."""

        loss: str = option(
            "loss: k-dce, lambda-dce, t-dce or t-dse; all have the same expectation, the first has the least variance",
            default="k-dce",
        )

    def __init__(
        self,
        network: nn.Module | None,
        vocabulary: int,
        shape: tuple[int, ...],
        config: Config | None = None,
        **more: Any,
    ):
        config = self.checked(config)
        super().__init__(network, vocabulary, shape, config, schedule_of(config), timed=False, **more)

    @classmethod
    def timed(cls, config):
        return False

    @classmethod
    def build_network(cls, net, vocabulary, config):
        return build_network(net, cls.states(vocabulary, config), bias=True)

    # ---------------------------------------------------------------------------------- the losses, given their draws
    def t_dse(self, batch: Batch, x_t: Tensor, t: Tensor) -> Tensor:
        """The denoising score entropy at times t (B,), (B,) nats per unit of time:
        the generic bound at these scores."""
        return Diffusion.continuous_bound(self, batch, x_t, t)  # RADD eq. 3.7

    def t_dce(self, batch: Batch, x_t: Tensor, t: Tensor) -> Tensor:
        """The weighted cross-entropy at times t (B,), (B,) nats per unit of time."""
        return self.continuous_bound(batch, x_t, t)  # RADD eq. 3.7

    def lambda_dce(self, batch: Batch, x_t: Tensor, masked: Tensor) -> Tensor:
        """1 / lambda times the cross-entropy where each token is masked with probability lambda = `masked` (B,):
        (B,) nats."""
        return self.cross_entropy(batch, x_t, None, 1 / masked)  # RADD eq. 3.7

    def k_dce(self, batch: Batch, x_t: Tensor, k: Tensor) -> Tensor:
        """n / k times the cross-entropy where exactly k (B,) of the n positions that count are masked: (B,) nats."""
        n = x_t.shape[1] if batch.mask is None else batch.mask.sum(-1)
        return self.cross_entropy(batch, x_t, None, n / k.double())  # RADD eq. 3.7

    def loss(self, batch, generator=None):
        kind = self.config.loss
        if kind == "k-dce":
            _, _, k, x_t = self.mask_exactly_k(batch, generator)
            return self.k_dce(batch, x_t, k[:, 0])
        u = 1 - random.stratified(len(batch), generator, batch.tokens.device)  # in (0, 1]
        if kind == "lambda-dce":
            masks = random.bernoulli(u[:, None].expand(batch.tokens.shape), generator)
            masks = masks if batch.mask is None else masks & batch.mask
            return self.lambda_dce(batch, torch.where(masks, self.mask, batch.tokens), u)
        of = self.t_dce if kind == "t-dce" else self.t_dse
        ends = diffusion.last_jump(self, batch, generator) + self.prior_term(batch)
        return of(batch, self.corrupt(batch, u[:, None], generator), u) + ends
