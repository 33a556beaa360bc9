"""Predictions: the output of a network in the one form that bounds and samplers need.

It is the ratio, for a noisy x_t, at each position and for every s <= t:

    ratio(s)[y] = P(x_s = y, the other positions as in x_t) / P(x_t)          (*, K)

A parameterization (`Mean`, `LeaveOneOut`, `Score`, ...) computes it from the output of a network. Everything else
follows:

    reverse kernel     p(x_s | x_t)          = q(x_t | x_s) ratio(s)[x_s]
    concrete score     p_t(y) / p_t(x_t)     = ratio(t)[y]
    reverse rate       Rhat(x_t, y)          = R_t(y, x_t) ratio(t)[y],   y != x_t
    clean posterior    p(x_0 | x_t)          = reverse kernel at s = CLEAN

Shapes (*): (B, L) for all positions, (N,) for N of them; times broadcast to (*).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.waiting import fixed
from . import maths
from .process import Process
from .schedule import CLEAN, as_time


@runtime_checkable
class Prediction(Protocol):
    """Prediction at noisy states x_t (*) and times t; `ratio(s)` is that of the module, (*, K)."""

    @property
    def process(self) -> Process: ...
    @property
    def x_t(self) -> Tensor: ...
    @property
    def t(self) -> Tensor: ...
    def ratio(self, s: Tensor | float) -> Tensor: ...


@dataclass(frozen=True)
class Mean:
    """Clean posterior mu = p(x_0 | x_t), (*, K), as in tauLDR, MDLM, MD4, RADD and BD3-LM.

    ratio(s) = [mu / q(x_t | x_0 = .)] Q_{0,s}. mu must be 0 unless x_0 is a clean state with q(x_t | x_0) > 0;
    `restricted`, `subs` and `truth` ensure this.
    """

    process: Process
    mu: Tensor
    x_t: Tensor
    t: Tensor

    def ratio(self, s):
        q = self.process.likelihood(self.x_t, CLEAN, self.t)
        possible = q > 0
        weight = torch.where(possible, self.mu / torch.where(possible, q, 1.0), 0.0)  # two wheres: else nan gradients
        return self.process.push(weight, CLEAN, s)  # tauLDR proposition 1, its sum over x_0


@dataclass(frozen=True)
class LeaveOneOut:
    """mu = p(x_0 | the other positions of x_t), (*, K), as in D3PM (eq. 4), UDLM and Duo.

    ratio(s) = mu Q_{0,s} / (mu Q_{0,t})[x_t]. It equals `Mean` where q(x_t | x_0) is the same for all x_0, such as at a
    mask if the schedule has one alpha for all states.
    """

    process: Process
    mu: Tensor
    x_t: Tensor
    t: Tensor

    def ratio(self, s):
        mu = self.mu.to(self.process.prior)
        now = self.process.push(mu, CLEAN, self.t)  # D3PM eq. 4, without its q(x_t | x_s)
        p_x_t = now.gather(-1, self.x_t[..., None])
        possible, then = p_x_t > 0, now if s is self.t else self.process.push(mu, CLEAN, s)
        return torch.where(possible, then / torch.where(possible, p_x_t, 1.0), 0.0)


@dataclass(frozen=True)
class Substituted(LeaveOneOut):
    """mu (*, K) in place of x_0 in q(x_s | x_t, x_0), as in MDLM without SUBS.

    The same as `LeaveOneOut`, except at s = CLEAN: there p(x_0 | x_t) is mu itself, restricted to tokens and
    normalised. So mu may have probability on the mask, and the last step may change a visible token.
    """


@dataclass(frozen=True)
class Score:
    """Concrete score v = p_t(.) / p_t(x_t), (*, K), as in SEDD.

    ratio(s) = v Q_{s,t}^{-1}, SEDD's `staggered score`. The loss determines v only where R_t(y, x_t) > 0. The reverse
    kernel sums to one but may be negative; `kernel` clips it. Q_{s,t}^{-1} amplifies errors of v where
    alpha_t / alpha_s is small (first steps with uniform noise).

    At PRIOR Q_{s,t} has no inverse, and the score of the prior carries no information. There v is the score at t = 1,
    and `reverse` computes the step from its clean posterior.
    """

    process: Process
    v: Tensor
    x_t: Tensor
    t: Tensor

    def ratio(self, s):
        return self.process.unpush(self.v.to(self.process.prior), s, _before_prior(self.t))


def _before_prior(t: Tensor) -> Tensor:
    """Return times t (*), with 1 in place of PRIOR."""
    return torch.where(t.isposinf(), 1.0, t)


@dataclass(frozen=True)
class Tilted:
    """Product of powers of predictions, times a weight of each state, for guidance.

    ratio(s) = prod_k ratio_k(s)^{a_k} w. With w_y = P(c | y, the other positions of x_t) / P(c | x_t) it is the
    prediction given c, exact at s = t. The reverse kernel need not sum to one, and `kernel` normalises it; reverse
    rates are not normalised.

    Args:
        parts: predictions for the same x_t and t, none of them a `Score` (`combined` makes a `Score` of scores).
        powers: the power a_k of each prediction.
        weight: w (*, K), 1 at x_t; None: 1 everywhere.
    """

    parts: tuple[Prediction, ...]
    powers: tuple[float, ...] = (1.0,)
    weight: Tensor | None = None

    @property
    def process(self) -> Process:
        return self.parts[0].process

    @property
    def x_t(self) -> Tensor:
        return self.parts[0].x_t

    @property
    def t(self) -> Tensor:
        return self.parts[0].t

    def ratio(self, s):
        ratio = maths.product([part.ratio(s) for part in self.parts], self.powers)
        return ratio if self.weight is None else ratio * self.weight


@dataclass(frozen=True)
class DataScore:
    """Concrete score of the data, v = p(.) / p(x), (*, K), at texts x (*) without noise, as in CSM.

    It is no `Prediction`, since it has no noise process.
    """

    v: Tensor
    x: Tensor


# ---------------------------------------------------------------------------------- quantities computed from a ratio
def reverse(pred: Prediction, s: Tensor | float) -> Tensor:
    """Reverse kernel p(x_s | x_t), (*, K): a distribution for Mean and LeaveOneOut; see `kernel` for the others."""
    ratio = pred.ratio(s)
    if isinstance(pred, Score):  # positions may differ in their times
        start = pred.t.isposinf()
        if fixed() or bool(start.any()):
            ratio = torch.where(start[..., None], _at_prior(pred).ratio(s), ratio)
    return pred.process.likelihood(pred.x_t, s, pred.t) * ratio  # D3PM eq. 4


def _at_prior(pred: Score) -> Mean:
    """Clean posterior of a score at PRIOR, computed from v as the score at t = 1."""
    process, end = pred.process, _before_prior(pred.t)
    ratio = process.unpush(pred.v.to(process.prior), CLEAN, end)
    clean = process.likelihood(pred.x_t, CLEAN, end) * ratio
    return restricted(process, maths.normalise(clean.clamp_min(0.0)), pred.x_t, pred.t)


def kernel(pred: Prediction, s: Tensor | float) -> Tensor:
    """Distribution of x_s from which a sampler samples, (*, K): `reverse`, made a distribution where it is none.

    - Score and Tilted: clipped at zero and normalised; at s = CLEAN also restricted to the clean states, since a score
      may leave probability on the mask (SEDD's denoising step).
    - Substituted, at s = CLEAN: mu itself (MDLM section 3.2.3).
    - LeaveOneOut, where mu gives x_t no probability (a softmax rounds to 0): proportional to q(x_t | x_s).
    """
    p = reverse(pred, s)
    if isinstance(pred, Mean):
        return p
    possible = pred.process.clean | (as_time(s, p.device).to(p.device) > CLEAN)[..., None]
    if isinstance(pred, Substituted):
        last = maths.normalise(torch.where(pred.process.clean, pred.mu.to(p), 0.0))
        return torch.where(possible.all(-1, keepdim=True), p, last)
    if isinstance(pred, LeaveOneOut):
        q = torch.where(possible, pred.process.likelihood(pred.x_t, s, pred.t), 0.0)
        return torch.where(p.sum(-1, keepdim=True) > 0, p, maths.normalise(q))
    return maths.normalise(torch.where(possible, p.clamp_min(0.0), 0.0))


def total_score(pred: Score) -> Tensor:
    """Sum M = sum_y v_y over the tokens y, of a score at masks: (*) float64."""
    mask = pred.process.mask_id
    # not the sum of all minus the mask's 1, which may be far larger than M
    before, behind = pred.v[..., :mask], pred.v[..., mask + 1 :]
    return before.sum(-1, dtype=torch.float64) + behind.sum(-1, dtype=torch.float64)


def revealed_probability(pred: Score, s: Tensor) -> Tensor:
    """P(a mask at t is a token at s), (*) float64: the sum of `kernel` over the tokens, without computing `kernel`.

    With absorbing noise and one alpha for all states, the token is then y with probability v_y / M.
    """
    alpha_t, alpha_s = (pred.process.schedule.alpha(time)[..., 0] for time in (pred.t, s))
    p = (total_score(pred) * (alpha_s - alpha_t) / alpha_t).clamp_max(1.0)  # the staggered score, clipped at the mask
    return torch.where(s == CLEAN, 1.0, torch.where(pred.t.isposinf(), alpha_s, p))


def score(pred: Prediction) -> Tensor:
    """Concrete score p_t(.) / p_t(x_t), (*, K)."""
    return pred.ratio(pred.t)


def given_others(pred: Prediction) -> Tensor:
    """P(x_t at a position | x_t at the others), (*, K): the normalised `score`; mu Q_{0,t} for a LeaveOneOut."""
    if isinstance(pred, LeaveOneOut):
        return pred.process.push(pred.mu.to(pred.process.prior), CLEAN, pred.t)
    return maths.normalise(score(pred).double().clamp_min(0.0))


def reverse_rate(pred: Prediction) -> Tensor:
    """Reverse rate Rhat_t(x_t, .), (*, K), 0 at x_t itself; t in the open interval (0, 1)."""
    return pred.process.rate_into(pred.x_t, pred.t) * score(pred)  # tauLDR proposition 1


def posterior(pred: Prediction) -> Tensor:
    """Clean posterior p(x_0 | x_t), (*, K)."""
    return pred.mu if isinstance(pred, Mean) else kernel(pred, CLEAN)


# ---------------------------------------------------------------------------------- conversions
def as_mean(pred: Prediction) -> Mean:
    """Convert a prediction to the mean parameterization, p(x_0 | x_t)."""
    return restricted(pred.process, reverse(pred, CLEAN), pred.x_t, pred.t)


def as_leave_one_out(pred: Prediction) -> LeaveOneOut:
    """Convert a prediction to p(x_0 | the other positions): ratio(CLEAN), normalised."""
    return LeaveOneOut(pred.process, maths.normalise(pred.ratio(CLEAN)), pred.x_t, pred.t)


def as_score(pred: Prediction) -> Score:
    """Convert a prediction to a concrete score."""
    return Score(pred.process, score(pred), pred.x_t, pred.t)


def truth(process: Process, x_0: Tensor, x_t: Tensor, t: Tensor) -> Mean:
    """Oracle prediction given x_0 (*); the target of every bound."""
    possible = process.likelihood(x_t, CLEAN, t) > 0
    return Mean(process, torch.where(possible, process.one_hot(x_0), 0.0), x_t, t)


def score_given(process: Process, x_0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
    """`score` of `truth`, q(. | x_0) / q(x_t | x_0), (*, K), from one row of Q_{0,t}; 0 where x_t is impossible."""
    distribution = process.marginal(x_0, t)
    q_x_t = distribution.gather(-1, x_t[..., None])
    return distribution * torch.where(q_x_t > 0, 1 / q_x_t, 0.0)


# ---------------------------------------------------------------------------------- products and weights
def combined(parts: Sequence[Prediction], powers: Sequence[float]) -> Prediction:
    """Product of powers of predictions for the same x_t and t.

    Predictions of different kinds are first converted to a `Mean`. The product is a `Score` for scores. For a `Mean` or
    `LeaveOneOut` under absorbing noise it is the normalised product of the distributions, so that the noise alone
    determines when a token is revealed. Otherwise it is a `Tilted`.
    """
    first, kinds = _with_noise(parts[0]), {type(part) for part in parts}
    if len(kinds) > 1:
        parts = [Mean(part.process, posterior(part), part.x_t, part.t) for part in parts]
        first = parts[0]
    if isinstance(first, Score):
        return replace(first, v=maths.product([part.v for part in parts if isinstance(part, Score)], powers))
    if isinstance(first, Mean | LeaveOneOut) and first.process.mask is not None:
        mu = maths.product([part.mu for part in parts if isinstance(part, Mean | LeaveOneOut)], powers)
        return replace(first, mu=maths.normalise(mu))
    return Tilted(tuple(parts), tuple(powers))


def tilted(pred: Prediction, weight: Tensor) -> Prediction:
    """Multiply the ratios of a prediction by `weight` (*, K), 1 at x_t: a `Score` for a score, else a `Tilted`."""
    if isinstance(pred, Score):
        return replace(pred, v=pred.v.double() * weight)
    return Tilted((_with_noise(pred),), weight=weight)


def _with_noise(pred: Prediction) -> Prediction:
    """Return the prediction; InputError for a Substituted, whose last step does not follow from its ratio."""
    if isinstance(pred, Substituted):
        raise InputError("a model without carry-over or zero masking cannot be guided; leave guidance out")
    return pred


# ---------------------------------------------------------------------------------- the support of a mean
def restricted(process: Process, mu: Tensor, x_t: Tensor, t: Tensor) -> Mean:
    """Restrict a distribution mu (*, K) to the clean states that x_t can come from, and normalise it: a `Mean`.

    Where mu is 0 on all of them, they are equally likely: a float32 softmax may round a visible token's probability
    to 0.
    """
    possible = (process.likelihood(x_t, CLEAN, t) > 0) & process.clean
    mu = torch.where(possible, mu.to(process.prior), 0.0)
    return Mean(process, maths.normalise(torch.where(mu.sum(-1, keepdim=True) > 0, mu, possible.to(mu))), x_t, t)


def subs(process: Process, logits: Tensor, x_t: Tensor, t: Tensor) -> Mean:
    """`restricted` from logits (*, K): the mask has probability 0, and visible tokens stay.

    With masking noise it is MDLM's SUBS (arXiv 2406.07524, section 3.2.3).
    """
    possible = (process.likelihood(x_t, CLEAN, t) > 0) & process.clean
    return Mean(process, logits.masked_fill(~possible, -torch.inf).softmax(-1), x_t, t)  # MDLM section 3.2.3
