"""Samplers of jump processes: Euler's step, the order of tau-leaping, what its corrector keeps, and the chi-square of
exact simulation."""

from collections.abc import Iterator

import torch
from torch import Tensor

from zellige.core.prediction import reverse_rate
from zellige.core.schedule import CLEAN
from zellige.exact import enumeration
from zellige.exact.script import after, scripts, transition, transitions
from zellige.methods.diffusion import Diffusion
from zellige.samplers import Euler, State, TauLeaping, Uniformisation
from zellige.samplers.tau_leaping import Jumps, corrector_rate

from .check import (
    INSIDE,
    L,
    Largest,
    Row,
    apart,
    data_distribution,
    every_state,
    fits,
    marginal,
    mild,
    of_order,
    own,
    reachable,
    truth_of,
)
from .sampler import GIVEN, SAMPLER, chi_square, counts, distance, of_draws, starts


def _kinds(method: Diffusion) -> Iterator[Jumps]:
    """Kinds of jumps that the method supports."""
    if TauLeaping.reason_against(method) is None:
        yield "one"
        if method.process.mask is None:
            yield "sum"


@own("sampler.euler-step", fits(Euler))
@torch.no_grad()
def euler_steps_are_their_definition(method: Diffusion):
    """1 + h Rhat, position by position, of a step in which no entry is clipped: SEDD eq. 17."""
    worst, state, h = Largest(), every_state(method), 1e-3
    for t in INSIDE:
        time = torch.full((len(state.x), 1), t, dtype=torch.float64)
        move = h * reverse_rate(method.predict(state.x, time.expand(state.x.shape)))
        kernels = move.scatter_add(-1, state.x[..., None], 1 - move.sum(-1, keepdim=True))  # (N, L, K)
        distribution = kernels[:, torch.arange(L), state.x].prod(-1)  # (N, N): from each state to each
        worst.see(transition(Euler(), method, state, time, time - h), distribution, f"t = {t}")
    yield worst.row(SAMPLER, "euler  one step = 1 + h R")


@own("sampler.tau_leaping-step")
@torch.no_grad()
def leaps_are_of_first_order(method: Diffusion):
    """From p_t to p_s within (0, 1), where rates are smooth: nothing of the ends."""
    for jumps in _kinds(method):
        truth, sampler, away = truth_of(mild(method)), TauLeaping(jumps=jumps), []
        for steps in (16, 32):
            times = torch.linspace(0.9, 0.1, steps + 1, dtype=torch.float64)
            distribution = marginal(method.process, 0.9)
            for matrix in transitions(sampler, truth, times):
                distribution = distribution @ matrix
            away.append(apart(distribution, marginal(method.process, 0.1)))
        where = f"distance {away[0]:.2e} at 16 steps, {away[1]:.2e} at 32"
        yield of_order(SAMPLER, f"tau_leaping, {jumps}  p_t to p_s: order 1", away[0], away[1], 1.0, where=where)


@own("sampler.tau_leaping-one")
@torch.no_grad()
def single_jumps_are_of_first_order(method: Diffusion):
    """For ordered states, for which `auto` is `sum`."""
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
                target = X.index_fill(1, torch.tensor(i), y)
                net = net.index_add(0, enumeration.index(target, K), flow[:, i, y])
        worst.see(net, 0.0, f"t = {t}")
    yield worst.row(SAMPLER, "corrector's rates  p_t (R + Rhat) = 0")


@own("sampler.tau_leaping-corrector")
@torch.no_grad()
def corrector_leaps_keep_the_marginal(method: Diffusion):
    """One leap of it, from p_t."""
    for jumps in _kinds(method):
        truth, t, sampler = truth_of(mild(method)), INSIDE[1], TauLeaping(jumps=jumps)
        p, state = marginal(method.process, t), every_state(method)
        away = [apart(p @ corrected(sampler, truth, state, t, h), p) for h in (0.02, 0.01)]
        where = f"distance {away[0]:.2e} at h = 0.02, {away[1]:.2e} at h = 0.01"
        yield of_order(SAMPLER, f"one corrector leap, {jumps}  order in h: 2", away[0], away[1], 2.0, where=where)


def corrected(sampler: TauLeaping, method: Diffusion, state: State, t: Tensor | float, h: Tensor | float) -> Tensor:
    """Transition probabilities (B, K^L) of one corrector leap of size h at t, floats or (B, 1), from `state`."""
    time, size = (torch.as_tensor(u, dtype=torch.float64).expand(len(state.x), 1) for u in (t, h))
    return after(lambda script: sampler.correct(method, state, time, size, script), state.x.shape, method.process.K)


def _poisson(n: Tensor, mean: Tensor) -> Tensor:
    return (torch.special.xlogy(n, mean) - mean - torch.lgamma(n + 1)).exp()


@own("sampler.tau_leaping-numbers")
@torch.no_grad()
def numbers_of_a_leap_are_poisson_probabilities(method: Diffusion):
    """Of every state, with and without a given token: the jumps are summed over their numbers, and where they lead."""
    worst, n, shown = Largest(), torch.arange(13, dtype=torch.float64), list(_kinds(method))
    K, draw = method.process.K, torch.Generator().manual_seed(0)
    X = enumeration.states(K, L)
    for jumps in shown:
        for t, given in ((0.5625, False), (0.90625, True)):
            time, fixed = torch.full((len(X), 1), t, dtype=torch.float64), torch.zeros_like(X, dtype=torch.bool)
            fixed[:, 0] = given
            state, sampler = State(X, fixed, fixed[:, 0].long()), TauLeaping(jumps=jumps)
            rate = reverse_rate(method.predict(X, torch.where(fixed, CLEAN, time)))
            movable = method.process.movable(X) & ~fixed
            h = 0.5 / max(1.0, float(rate[movable].sum(-1).max()))  # 13 jumps or more: below 1e-13
            mean = torch.where(movable[..., None], h * rate, 0.0)
            total = mean.sum(-1, keepdim=True)
            jump = _poisson(n[1:], total).sum(-1)
            rejected = _poisson(n[2:], total).sum(-1) if jumps == "one" else torch.zeros_like(jump)
            clipped = torch.zeros_like(jump)
            if jumps == "sum":
                counts = torch.cartesian_prod(*[n] * K)
                target = X[..., None] + ((torch.arange(K) - X[..., None])[..., None, :] * counts).sum(-1)
                chance = torch.stack([_poisson(counts[:, y], mean[..., y, None]) for y in range(K)]).prod(0)
                clipped = torch.where((target < 0) | (target >= K), chance, 0.0).sum(-1)
            each = torch.stack((torch.ones_like(jump), jump, clipped, rejected), -1) * movable[..., None]
            (new, _), *_ = scripts(lambda script: sampler.step(method, state, time, time - h, script), len(X))  # noqa: B023
            (_, made), where = new.memory.steps[-1], f"{jumps}, t = {t}"
            worst.see(made, each.sum(1), where)
            drawn = sampler.step(method, state, time, time - h, draw).memory.steps[-1][1]
            worst.see(drawn[:, [0, 1, 3]], each.sum(1)[:, [0, 1, 3]], f"{where}, drawn")
        ends = TauLeaping(jumps=jumps).step(
            method, every_state(method), torch.ones(()).double(), torch.tensor(0.9).double(), draw
        )
        worst.see(ends.memory.steps[-1][1], 0.0, "from t = 1")
        t, s = torch.tensor([0.5, 0.25], dtype=torch.float64)
        moved = TauLeaping(jumps=jumps, corrector=1).step(method, every_state(method), t, s, draw)
        worst.see(float(len(moved.memory.steps)), 1.0, "a step with a corrector")
    if shown:
        yield worst.row(SAMPLER, "tau_leaping, numbers of a leap = Poisson sums")


class _Recorded(TauLeaping):
    """One whose leaps and corrector leaps only write down that they were asked for: time and size of each row."""

    def predict(self, method, state, t, s, generator=None):
        self.made = [torch.stack((t, s), -1)]
        return state

    def correct(self, method, state, t, h, generator=None):
        self.made.append(torch.stack((t, h), -1))
        return state


@own("sampler.tau_leaping-correctors", fits(TauLeaping))
@torch.no_grad()
def correctors_stand_at_the_end_of_a_step(method: Diffusion):
    """A leap from t to s, then `corrector` leaps at s of `corrector_step` (t - s) each; of size 0 where the step
    started above `corrector_from`. What one leap of each kind does, other identities say."""
    worst, state = Largest(), every_state(method)
    t = torch.linspace(0.2, 0.9, len(state.x), dtype=torch.float64)[:, None]
    for number, size, begin in ((1, 1.0, 1.0), (3, 1.5, 0.5)):
        sampler = _Recorded(corrector=number, corrector_step=size, corrector_from=begin)
        sampler.step(method, state, t, t - 0.125)
        where = f"{number} correctors, {size:g} steps long, from t = {begin:g}"
        worst.see(len(sampler.made) - 1.0, float(number), where)
        worst.see(sampler.made[0], torch.stack((t, t - 0.125), -1), where)
        on = t <= begin
        correct = torch.stack((torch.where(on, t - 0.125, 0.5), torch.where(on, 0.125 * size, 0.0)), -1)
        for record in sampler.made[1:]:
            worst.see(record, correct, where)
    yield worst.row(SAMPLER, "tau_leaping, correctors  at s, their number")


@own("sampler.uniformisation-infill-drawn", fits(Uniformisation))
@torch.no_grad()
def uniformisation_keeps_what_is_given(method: Diffusion) -> Iterator[Row]:
    """Given [1, _], with the exact network given that it is CLEAN: the conditional distribution."""
    if not starts(method):
        return
    X = enumeration.states(method.process.K, L)
    exact = enumeration.embed(method.process, data_distribution(), L) * (X[:, 0] == GIVEN[0])
    drawn = counts(Uniformisation(), truth_of(method), 4_000, GIVEN, seed=1)
    yield chi_square(drawn, exact / exact.sum(), "uniformisation, given [1, _]  chi-square, p")


@own("sampler.uniformisation-drawn", fits(Uniformisation))
@torch.no_grad()
def uniformisation_draws_the_data_distribution(method: Diffusion) -> Iterator[Row]:
    if starts(method):
        yield of_draws(method, Uniformisation(), "uniformisation  chi-square of draws, its p")
