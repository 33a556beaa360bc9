"""Processes: the same checks for every method."""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from zellige.core.curves import SCHEDULES, Exponential, Polynomial, named
from zellige.core.prediction import reverse_rate
from zellige.core.process import Process
from zellige.core.schedule import CLEAN, PRIOR
from zellige.exact import enumeration

from .check import INSIDE, TIMES, L, Largest, above, data_distribution, marginal, numbers, processes, reachable, shared

PROCESS = "process: absorbing (also alpha per token), uniform, drifting, chains"


@shared("process.semigroup")
def steps_compose():
    worst = Largest()
    for (name, P), (s, t, u) in itertools.product(processes().items(), itertools.combinations(TIMES, 3)):
        worst.see(P.matrix(s, u), P.matrix(s, t) @ P.matrix(t, u), f"{name}, times {s}, {t}, {u}")
        worst.see(P.matrix(s, u).sum(-1), 1.0, f"{name}, rows of Q({s}, {u})")
    yield worst.row(PROCESS, "semigroup  Q(s,u) = Q(s,t) Q(t,u), with jumps")


@shared("process.distribution")
def q_is_a_distribution_that_keeps_the_prior():
    least, stationary, balance, where = 1.0, Largest(), Largest(), ""
    for (name, P), (s, t) in itertools.product(processes().items(), itertools.combinations(TIMES, 2)):
        Q = P.matrix(s, t)
        if float(Q.min()) < least:
            least, where = float(Q.min()), f"{name}, {s} to {t}"
        if "drifting" in name:  # its distribution changes with time
            continue
        stationary.see(P.prior @ Q, P.prior, f"{name}, {s} to {t}")
        if name != "CTMC, one way":
            balance.see(P.prior[:, None] * Q, (P.prior[:, None] * Q).T, f"{name}, {s} to {t}")
    yield above(PROCESS, "Q is not negative, smallest entry", least, 0.0, "≥ 0", where)
    yield stationary.row(PROCESS, "the prior is stationary  prior Q = prior")
    yield balance.row(PROCESS, "detailed balance, but one way round a circle")


def _derivative(f: Callable[[Tensor], Tensor], t: float) -> Tensor:
    at = torch.tensor(t, dtype=torch.float64)
    return torch.func.jvp(f, (at,), (torch.ones_like(at),))[1]


@shared("process.forward")
def kolmogorov_forward():
    worst = Largest()
    for (name, P), s, t in itertools.product(processes().items(), [CLEAN, 0.0625], INSIDE):
        slope = _derivative(lambda t, P=P, s=s: P.matrix(s, t), t)
        worst.see(slope, P.matrix(s, t) @ P.rate(t), f"{name}, {s} to {t}")
    yield worst.row(PROCESS, "forward equation  dQ/dt = Q R, also from CLEAN")


@shared("process.backward")
def kolmogorov_backward():
    worst = Largest()
    for (name, P), s, t in itertools.product(processes().items(), INSIDE, [0.95, PRIOR]):
        slope = _derivative(lambda s, P=P, t=t: P.matrix(s, t), s)
        worst.see(slope, -P.rate(s) @ P.matrix(s, t), f"{name}, {s} to {t}")
    yield worst.row(PROCESS, "backward equation  dQ/ds = -R Q, also to PRIOR")


@shared("process.fast")
def closed_forms_are_the_dense_ones():
    worst = Largest()
    for name, P in processes().items():
        v, x = 1.1 + numbers(P.K, P.K), torch.arange(P.K)
        for s, t in [(CLEAN, 0.3), (0.2, 0.7), (0.4, PRIOR), (CLEAN, PRIOR)]:
            worst.see(P.push(v, s, t), Process.push(P, v, s, t), f"{name}: push")
            worst.see(P.likelihood(x, s, t), Process.likelihood(P, x, s, t), f"{name}: likelihood")
            if t != PRIOR:  # nothing comes back from the prior
                worst.see(P.unpush(v, s, t), Process.unpush(P, v, s, t), f"{name}: unpush")
        worst.see(P.rate_into(x, 0.4), Process.rate_into(P, x, 0.4), f"{name}: rate_into")
        worst.see(P.rate_from(x, 0.4), Process.rate_from(P, x, 0.4), f"{name}: rate_from")
    yield worst.row(PROCESS, "push, unpush, likelihood, rates = dense forms")


def _joint_rate(P: Process, t: float) -> Tensor:
    """The generator on K^L: one position moves at a time."""
    eye, R = torch.eye(P.K, dtype=torch.float64), P.rate(t)
    total = torch.zeros(P.K**L, P.K**L, dtype=torch.float64)
    for i in range(L):
        factor = torch.ones(1, 1, dtype=torch.float64)
        for j in range(L):
            factor = torch.kron(factor, R if i == j else eye)
        total += factor
    return total


@shared("process.factorised")
def rates_factorise_over_positions():
    worst = Largest()
    for (name, P), t in itertools.product(processes().items(), INSIDE):
        R = _joint_rate(P, t)
        joint = lambda t, P=P: torch.kron(P.matrix(CLEAN, t), P.matrix(CLEAN, t))  # noqa: E731
        worst.see(_derivative(joint, t), joint(t) @ R, f"{name}, t = {t}: forward equation on K^L")
        p = marginal(P, t)
        X, time, p_t = reachable(P, t)
        rates = reverse_rate(enumeration.Denoiser(P, data_distribution(), L).predict(X, time))  # (N, L, K)
        whole = R[:, enumeration.index(X, P.K)].T * p / p_t[:, None]  # (N, K^L): R(y, x) p(y) / p(x)
        for i, y in itertools.product(range(L), range(P.K)):
            target = X.clone()
            target[:, i] = y
            rate = whole.gather(-1, enumeration.index(target, P.K)[:, None])[:, 0]
            worst.see(rates[:, i, y], torch.where(X[:, i] == y, 0.0, rate), f"{name}, t = {t}")
    yield worst.row(PROCESS, "rates position by position = rates on K^L")


@shared("process.curves")
def schedules_are_the_curves_of_their_papers():
    """alpha of a schedule by its name, its ends and its exponent chosen,
    is what the paper writes (eps is alpha at t = 1)."""
    worst, eps, pi = Largest(), 0.01, math.pi
    lost = {  # what is lost by time t where eps is 0
        ("loglinear", None): lambda t: t,
        ("logarithmic", None): lambda t: math.log(1 + t) / math.log(2),
        ("cosine", None): lambda t: math.cos(pi / 2 * (1 - t)),
        ("square", None): lambda t: t**2,
        ("square-root", None): lambda t: math.sqrt(t),
        ("polynomial", None): lambda t: t**2,
        ("polynomial", 3.0): lambda t: t**3,
        ("cosine-power", None): lambda t: 1 - math.cos(pi / 2 * t) ** 2,
        ("cosine-power", 1.0): lambda t: 1 - math.cos(pi / 2 * t),
    }
    for (name, exponent), curve in lost.items():
        schedule = named(name, alpha_1=eps, exponent=exponent)
        for t in INSIDE:
            alpha = torch.tensor([1 - (1 - eps) * curve(float(t))], dtype=torch.float64)
            worst.see(schedule.alpha(t), alpha, f"{name} {exponent or ''}, t = {t}")
    yield worst.row(PROCESS, "schedules by name = the papers' curves")


@shared("process.schedules")
def schedules_agree_with_alpha():
    """Of each, rates and weights are slopes of alpha, and the inverse goes back."""
    worst, late = Largest(), {"begin": Polynomial(1.5, 1e-3, begin=0.2), "exponential": Exponential(0.5, 4.0)}
    for name, schedule in [*((name, kind()) for name, kind in SCHEDULES.items()), *late.items()]:
        for t in INSIDE:
            alpha, slope, where = schedule.alpha(t), _derivative(schedule.alpha, t), f"{name}, t = {t}"
            worst.see(schedule.beta(t), -slope / alpha, f"{where}: beta")
            worst.see(schedule.weight(t), -slope / (1 - alpha), f"{where}: weight")
            worst.see(schedule.sigma(t), -alpha.log(), f"{where}: sigma")
            worst.see(schedule.log_snr(t), (alpha / (1 - alpha)).log(), f"{where}: log SNR")
            worst.see(schedule.inverse(alpha), torch.tensor([t]).double(), f"{where}: inverse")
    yield worst.row(PROCESS, "schedules: rates = slopes of alpha, inverses")
