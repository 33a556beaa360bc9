"""Samplers of jump processes: Euler's step, the order of tau-leaping, what its corrector keeps, and the chi-square of exact
simulation."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ...core.prediction import reverse_rate
from ...methods.diffusion import Diffusion
from ...samplers import Euler, State, TauLeaping, Uniformisation
from ...samplers.tau_leaping import corrector_rate
from .. import enumeration
from ..script import scripts, transition
from .check import INSIDE, L, Largest, Row, apart, data_law, mild, of_order, own, reachable, truth_of
from .sampler import SAMPLER, chi_square, distance, starts


def _kinds(method: Diffusion) -> Iterator[str]:
    """What its jumps may come to."""
    if TauLeaping.refuse(method) is None:
        yield "one"
        if method.process.mask is None:
            yield "sum"


def _all(method: Diffusion, copies: int = 1) -> State:
    """Every state of the space."""
    X = enumeration.states(method.process.K, L).repeat(copies, 1)
    return State(X, torch.zeros_like(X, dtype=torch.bool), torch.zeros(len(X), dtype=torch.long))


def _marginal(method: Diffusion, t: float) -> Tensor:
    return enumeration.marginal(method.process, enumeration.embed(method.process, data_law(), L), L, t)


@own("sampler.euler-step")
@torch.no_grad()
def euler_steps_are_their_definition(method: Diffusion):
    """1 + h Rhat, position by position, of a step in which no entry is clipped: SEDD eq. 17."""
    if Euler.refuse(method) is not None:
        return
    worst, state, h = Largest(), _all(method), 1e-3
    for t in INSIDE:
        time = torch.full((len(state.x), 1), t, dtype=torch.float64)
        move = h * reverse_rate(method.predict(state.x, time.expand(state.x.shape)))
        each = move.scatter_add(-1, state.x[..., None], 1 - move.sum(-1, keepdim=True))  # (N, L, K)
        law = each[:, torch.arange(L), state.x].prod(-1)  # (N, N): from each state to each
        worst.see(transition(Euler(), method, state, time, time - h), law, f"t = {t}")
    yield worst.row(SAMPLER, "euler  one step = 1 + h R")


@own("sampler.tau_leaping-step")
@torch.no_grad()
def leaps_are_of_first_order(method: Diffusion):
    """From p_t to p_s within (0, 1), where rates are smooth: nothing of the ends."""
    for jumps in _kinds(method):
        truth, sampler, away = truth_of(mild(method)), TauLeaping(jumps=jumps), []
        for steps in (16, 32):
            times, law = torch.linspace(0.9, 0.1, steps + 1, dtype=torch.float64), _marginal(method, 0.9)
            t, s = (u.repeat_interleave(len(law))[:, None] for u in (times[:-1], times[1:]))
            for matrix in transition(sampler, truth, _all(method, steps), t, s).reshape(steps, len(law), -1):
                law = law @ matrix
            away.append(apart(law, _marginal(method, 0.1)))
        where = f"distance {away[0]:.2e} at 16 steps, {away[1]:.2e} at 32"
        yield of_order(SAMPLER, f"tau_leaping, {jumps}  p_t to p_s: order 1", away[0], away[1], 1.0, where=where)


@own("sampler.tau_leaping-one")
@torch.no_grad()
def single_jumps_are_of_first_order(method: Diffusion):
    """Where the states have an order, `auto` is `sum`."""
    if "sum" in _kinds(method) and starts(method):
        a, b = (distance(method, TauLeaping(grid="log-snr", jumps="one"), steps) for steps in (64, 128))
        where = f"distance {a:.2e} at T = 64, {b:.2e} at T = 128"
        yield of_order(SAMPLER, "tau_leaping, one  order in 1/steps, claims 1", a, b, 1.0, where=where)


@own("sampler.tau_leaping-generator")
@torch.no_grad()
def corrector_rates_keep_the_marginal(method: Diffusion):
    """p_t (R + Rhat) = 0 on K^L."""
    worst, K = Largest(), method.process.K
    if not list(_kinds(method)):
        return
    for t in INSIDE:
        X, time, p = reachable(method.process, t)
        flow = p[:, None, None] * corrector_rate(truth_of(method).predict(X, time))  # (N, L, K)
        net = torch.zeros(K**L, dtype=p.dtype).index_add(0, enumeration.index(X, K), -flow.sum((1, 2)))
        for i in range(L):
            for y in range(K):
                moved = X.index_fill(1, torch.tensor(i), y)
                net = net.index_add(0, enumeration.index(moved, K), flow[:, i, y])
        worst.see(net, 0.0, f"t = {t}")
    yield worst.row(SAMPLER, "corrector's rates  p_t (R + Rhat) = 0")


@own("sampler.tau_leaping-corrector")
@torch.no_grad()
def corrector_leaps_keep_the_marginal(method: Diffusion):
    """One leap of it, from p_t."""
    for jumps in _kinds(method):
        truth, t, sampler = truth_of(mild(method)), INSIDE[1], TauLeaping(jumps=jumps)
        p, state = _marginal(method, t), _all(method)
        away = [apart(p @ corrected(sampler, truth, state, t, h), p) for h in (0.02, 0.01)]
        where = f"distance {away[0]:.2e} at h = 0.02, {away[1]:.2e} at h = 0.01"
        yield of_order(SAMPLER, f"one corrector leap, {jumps}  order in h: 2", away[0], away[1], 2.0, where=where)


def corrected(sampler: TauLeaping, method: Diffusion, state: State, t: Tensor | float, h: Tensor | float) -> Tensor:
    """The transition matrix of one corrector leap of size h at t, floats or (B, 1), from each row of `state`: (B, K^L)."""
    law = torch.zeros(len(state.x), method.process.K**L, dtype=torch.float64)
    time, size = (torch.as_tensor(u, dtype=torch.float64).expand(len(law), 1) for u in (t, h))
    for new, chance in scripts(lambda script: sampler.correct(method, state, time, size, script), len(law)):
        law.scatter_add_(1, enumeration.index(new.x, method.process.K)[:, None], chance[:, None])
    return law


@own("sampler.uniformisation-drawn")
@torch.no_grad()
def uniformisation_draws_the_data_law(method: Diffusion) -> Iterator[Row]:
    if Uniformisation.refuse(method) is None and starts(method):
        yield chi_square(method, Uniformisation(), "uniformisation  chi-square of draws, its p")
