"""tauLDR: A continuous time framework for discrete denoising models (Campbell et al. 2022, arXiv 2205.14987).

Continuous-time Markov chains, each position by itself, R_t = beta_t R:

    q(x_t | x_0)     exp(R (sigma_t - 0)): uniform, Gaussian target, birth-death (`rates`), or absorbing
    network          mu = p(x_0 | x_t), softmax(logits) on the support {x_0: q(x_t | x_0) > 0}
    reverse rate     Rhat_t(x, y) = R_t(y, x) v_y,   v_y = sum_{x_0} mu(x_0) q(y | x_0) / q(x | x_0)      (propositions 1, 3)
    L_CT             E [ sum_y Rhat_t(x, y) - Z(x) log Rhat_t(x~, x) ] + C                                (proposition 2)

with x ~ q_t, Z(x) the rate at which the noise leaves x, and x~ the sequence after that jump. With u the score given x_0 and C
kept, it is E_q of the generic bound, sum_y R_t(y, x) [ v_y - u_y + u_y log(u_y / v_y) ]. Three draws of it (`objective`):

    generic     all of it at x ~ q_t
    two-pass    sum R (v - u) at x ~ q_t,  w sum R u log(u / v) at x~ ~ psi_t
    one-pass    2/(1 + 1/w) times all of it at x or at x~, by the toss of a coin               one network call
    w           q_t(x~)/psi_t(x~), psi_t the law of x~ given x_0; position by position 1/w is

        sum_i sum_y R(y, x~_i) u_i(x~)_y / (Z(x~) - z(x~_i) + z(y)),   z the exit rates of one position, and + 1 where Z(x~) = 0

`loss` adds `auxiliary` times the mean over positions of -log softmax(logits)[x_0], at the input of the first network call.

| process | schedule | prediction | objective | sampler |
|---|---|---|---|---|
| any continuous-time chain | linear sigma; base (growth^t - 1) | Mean (or LeaveOneOut) | continuous + CE | tau-leaping |

Where it leaks. The published value drops C and may be negative; here C is kept, draw by draw, so `loss` is in nats; its gradient
is the same. The published one-pass form takes the first sum at x~ without w: biased. With w it is right, but near t = 0 a w of
about 1/t is drawn with probability t, and training is lost in that noise where sequences are short; the coin bounds the weight
by 2 (the balance heuristic of Veach & Guibas 1995). Published times start at 0.01. Here the schedule itself starts at
`min_time`, and `bound` adds the jump from there to clean tokens, and the prior's term, which the published value lacks. Without
that jump the bound of a mean would be infinite but for absorbing noise: as t goes to 0, v_y is some mu over t. With it the bound
is dearer the later it starts, by the square of the noise there (positions jump independently): hence 0.001. For the same reason
a mean must be sharp to within t; `prediction` leave-one-out multiplies in what the noise alone says of x_0. The published
sequence network is fed times.long(), which is 0: blind to time; here it is told 1000 t. A given position of an infilling is no
clean one for a network told one time: approximate, but for absorbing noise.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import maths, rates
from ..chains import CTMC, afford
from ..errors import InputError
from ..masked import without_mask
from ..maths import Randomness
from ..method import Batch, Method
from ..prediction import LeaveOneOut, Mean
from ..process import Process, absorbing, uniform
from ..schedule import CLEAN, Exponential, LinearSigma

ORDERED = ("gaussian", "birth-death")
ONLY = {"growth": ORDERED, "rate_sigma": ("gaussian",), "target_sigma": ("gaussian",)}
SLOWEST = 7.0  # e^-7 of the slowest mode is left at t = 1, unless `base` says otherwise
PART = 1 << 17  # numbers in one table of `weight`


class TauLDR(Method):
    """A CTMC of any rates, the network read as p(x_0 | x_t); see the module for the equations."""

    name = "tauldr"
    choices: ClassVar = {
        "process": ("uniform", "gaussian", "birth-death", "absorbing"),
        "objective": ("two-pass", "one-pass", "generic"),
        "prediction": ("mean", "leave-one-out"),
    }
    loss_is_bound = False
    variants = (
        {},
        {"prediction": "leave-one-out"},
        {"process": "gaussian"},
        {"process": "birth-death"},
        {"process": "absorbing"},
    )

    leave: Tensor

    @dataclass(frozen=True)
    class Config:
        """tauLDR's own choices."""

        process: str = "uniform"
        """uniform or absorbing; gaussian or birth-death for ordered tokens"""
        base: float | None = None
        """the rate between two states (uniform; the paper's 0.03 for 129) or into the mask (absorbing), or of sigma(t) = base
        (growth^t - 1); by default what leaves e^-7 of the slowest mode at t = 1"""
        growth: float | None = None
        """of sigma(t), gaussian and birth-death: by default the paper's 100"""
        rate_sigma: float | None = None
        """gaussian: how many states a jump goes; by default the paper's 6 for 256 states in proportion, at least 1"""
        target_sigma: float | None = None
        """gaussian: width of the stationary law in states; by default the paper's 512 for 256 states in proportion"""
        min_time: float = 0.001
        """where on the curve of sigma t = 0 lies; from there a last jump leads to clean tokens"""
        objective: str = "one-pass"
        """how the bound is drawn in training: one-pass, generic, or two-pass with two network calls"""
        auxiliary: float = 0.001
        """weight of the mean cross-entropy beside the bound"""
        prediction: str = "mean"
        """the network's softmax is p(x_0 | x_t): mean; or p(x_0 | the other positions): leave-one-out"""

    def __init__(self, network: Any, vocabulary: int, shape: tuple[int, ...], config: Config | None = None):
        config = self.checked(config)
        _check(config)
        process = _process(config, self.states(vocabulary, config))
        super().__init__(network, vocabulary, shape, config, process, timed=True)
        self.predicts = config.prediction.replace("-", "_")
        leave = -process.R.diagonal() if isinstance(process, CTMC) else 1 - process.prior
        self.register_buffer("leave", leave, persistent=False)  # z, the exit rates of the states, of unit beta

    @classmethod
    def states(cls, vocabulary, config):
        return vocabulary + (config.process == "absorbing")

    @classmethod
    def needs_order(cls, config):
        return f"--process {config.process}" if config.process in ORDERED else None

    def network_time(self, t):
        return (1000 * t).float()

    def read(self, logits, x_t, t):
        if self.predicts == "mean":
            return Mean(self.process, self._mean(logits, self._likelihood(x_t, t)), x_t, t, supported=True)
        return LeaveOneOut(self.process, self._others(logits), x_t, t)

    def _others(self, logits: Tensor) -> Tensor:
        """p(x_0 | the other positions): float64, so that no state is impossible."""
        logits = logits if self.process.mask is None else without_mask(self, logits)
        return logits.to(self.process.prior.dtype).softmax(-1)

    def _likelihood(self, x_t: Tensor, t: Tensor) -> Tensor:
        """q(x_t | x_0 = .), zero where x_0 is no clean state: (*) -> (*, K)."""
        q = self.process.likelihood(x_t, CLEAN, t)
        return q if self.process.mask is None else q.masked_fill(~self.process.clean, 0.0)

    def _mean(self, logits: Tensor, q: Tensor) -> Tensor:
        """The softmax on the support."""
        return logits.masked_fill(q == 0, -torch.inf).softmax(-1)

    # ---------------------------------------------------------------------------------- the bound, and its two parts
    def _moment(self, logits: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """R_t(., x_t), the score u given x_0 and the network's v: (N, K) each."""
        if self.predicts == "mean":
            q = self._likelihood(x_t, t)
            v = self.process.push(self._mean(logits, q) / q.masked_fill(q == 0, 1.0), CLEAN, t)
        else:
            v = self.process.push(self._others(logits), CLEAN, t)
            v = v / v.gather(-1, x_t[:, None])
        return self.process.rate_into(x_t, t), self._given(x_0, x_t, t), v

    def _given(self, x_0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """The score given x_0, q(. | x_0) / q(x_t | x_0): (N, K); 0 where x_t is impossible."""
        law = self.process.law(x_0, t)
        here = law.gather(-1, x_t[:, None])
        return law * torch.where(here > 0, 1 / here, 0.0)

    def cost(self, logits, x_0, x_t, t, s=None):
        if s is not None:
            return super().cost(logits, x_0, x_t, t, s)
        into, u, v = self._moment(logits, x_0, x_t, t)
        return _leaving(into, u, v) + _signal(into, u, v)

    def leaving(self, logits: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """sum_y R (v - u), (N,): how much faster the model leaves x_t than the truth does; proposition 2's first term."""
        return _leaving(*self._moment(logits, x_0, x_t, t))

    def signal(self, logits: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """sum_y R u log(u / v), (N,): proposition 2's second term, summed over all jumps that lead to x_t."""
        return _signal(*self._moment(logits, x_0, x_t, t))

    def cross_entropy(self, logits: Tensor, x_0: Tensor) -> Tensor:
        """-log softmax(logits)[x_0], (N,)."""
        logits = logits if self.process.mask is None else without_mask(self, logits)
        return F.cross_entropy(logits, x_0, reduction="none")

    # ---------------------------------------------------------------------------------- one jump of the noise
    def jump(self, batch: Batch, x_t: Tensor, t: Tensor, generator: Randomness = None) -> Tensor:
        """x~ (B, L): x_t after the next jump of the noise at times t (B,), at one position; x_t itself if none can jump."""
        leave = self.leave[x_t] * _counted(batch)
        stuck = leave.sum(-1, keepdim=True) == 0
        place = maths.categorical(torch.where(stuck, 1.0, leave), generator)[:, None]
        law = self.process.rate_from(x_t.gather(-1, place), t[:, None])[:, 0]
        value = maths.categorical(torch.where(stuck, 1.0, law), generator)[:, None]
        return torch.where(stuck, x_t, x_t.scatter(-1, place, value))

    def weight(self, batch: Batch, x: Tensor, t: Tensor) -> Tensor:
        """w = q_t(x)/psi_t(x) given x_0, for x (B, L) after a jump: (B,)."""
        psi = self.after(batch, x, t)
        return torch.where(psi > 0, 1 / psi, 1.0)  # 0 where x is no jump's end

    @torch.no_grad()
    def after(self, batch: Batch, x: Tensor, t: Tensor) -> Tensor:
        """1/w = psi_t(x)/q_t(x) given x_0, how much likelier x (B, L) is after one more jump: (B,)."""
        counted = _counted(batch)
        leave = self.leave[x] * counted
        total, at = leave.sum(-1), counted & self.process.movable(x)  # elsewhere nothing leads into x
        row = at.nonzero()[:, 0]
        x_0, here, time, others = batch.tokens[at], x[at], t[row], total[row] - leave[at]
        share = []
        for i in torch.arange(len(row), device=x.device).split(max(1, PART // self.process.K)):
            into, u = self.process.rate_into(here[i], time[i]), self._given(x_0[i], here[i], time[i])
            before = others[i, None] + self.leave  # Z of the sequence that jumps from each state to here
            flow = torch.where(into > 0, into * u / before, 0.0).sum(-1)
            share.append(flow / self.process.schedule.beta(time[i])[:, 0])
        return (total == 0).double().index_add(0, row, torch.cat(share) if share else others)

    # ---------------------------------------------------------------------------------- what training minimises
    def loss(self, batch, generator=None):
        t = 1 - maths.stratified(len(batch), generator, batch.tokens.device)  # in (0, 1]
        x_t = self.corrupt(batch, t[:, None], generator)
        beside = self.config.auxiliary / _counted(batch).sum(-1).clamp_min(1)  # of one position's cross-entropy
        if self.config.objective == "generic":
            return self._weighted(self.cost, batch, x_t, t, torch.ones_like(t), beside)
        jumped = self.jump(batch, x_t, t, generator)
        if self.config.objective == "one-pass":
            x = torch.where(maths.bernoulli(torch.full_like(t, 0.5), generator)[:, None], jumped, x_t)
            return self._weighted(self.cost, batch, x, t, 2 / (1 + self.after(batch, x, t)), beside)
        first = self._weighted(self.leaving, batch, x_t, t, torch.ones_like(t), beside)
        return first + self._weighted(self.signal, batch, jumped, t, self.weight(batch, jumped, t), torch.zeros_like(t))

    def _weighted(self, f, batch: Batch, x: Tensor, t: Tensor, *weights: Tensor) -> Tensor:
        """Weights (B,) times f and the cross-entropy, summed over the positions of x (B, L): (B,)."""

        def each(logits: Tensor, x_0: Tensor, x: Tensor, t: Tensor, weights: Tensor) -> Tensor:
            return weights[:, 0] * f(logits, x_0, x, t) + weights[:, 1] * self.cross_entropy(logits, x_0)

        return self._cost(batch, x, t, torch.stack(weights, -1), each)


def _leaving(into: Tensor, u: Tensor, v: Tensor) -> Tensor:
    return (into * (v - u)).sum(-1)


def _signal(into: Tensor, u: Tensor, v: Tensor) -> Tensor:
    flow = into * u
    return (maths.xlogy(flow, u) - maths.xlogy(flow, v)).sum(-1)


def _counted(batch: Batch) -> Tensor:
    return torch.ones_like(batch.tokens, dtype=torch.bool) if batch.mask is None else batch.mask


def _process(config: TauLDR.Config, K: int) -> Process:
    if config.process in ORDERED:
        afford(K)
        R, law = rates.birth_death(K) if config.process == "birth-death" else rates.gaussian(K, *_sigmas(config, K))
        slow, growth = rates.gap(R, law), config.growth or 100.0
        base = SLOWEST / (growth - 1) if config.base is None else config.base * slow
        return CTMC(
            R / slow, law, Exponential(base, growth, config.min_time)
        )  # alpha is what is left of the slowest mode
    noise, unit = (uniform, K) if config.process == "uniform" else (absorbing, 1)
    total = SLOWEST if config.base is None else config.base * unit
    return noise(K, LinearSigma(total * config.min_time, total))


def _sigmas(config: TauLDR.Config, K: int) -> tuple[float, float]:
    given = config.rate_sigma, config.target_sigma
    return max(1.0, 6 * K / 256) if given[0] is None else given[0], 2.0 * K if given[1] is None else given[1]


def _check(config: TauLDR.Config) -> None:
    for field, where in ONLY.items():
        if getattr(config, field) is not None and config.process not in where:
            raise InputError(f"--{field.replace('_', '-')} needs --process {' or '.join(where)}; drop it")
    if config.base is not None and not config.base > 0:
        raise InputError(f"--base is {config.base:g}; it must be above 0")
    if config.growth is not None and not config.growth > 1:
        raise InputError(f"--growth is {config.growth:g}; it must be above 1")
    if not 0 <= config.min_time < 1:
        raise InputError(f"--min-time is {config.min_time:g}; it must be 0 or more, and below 1")
    if config.auxiliary < 0:
        raise InputError(f"--auxiliary is {config.auxiliary:g}; it must be 0 or more")
