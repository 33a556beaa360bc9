"""Sequential Monte Carlo: every draw of two particles, every way to resample them, and the limit of many particles."""

import itertools
import math
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from zellige import methods
from zellige.core import maths
from zellige.core.curves import Linear
from zellige.core.prediction import kernel
from zellige.core.process import Process, absorbing
from zellige.core.random import Streams
from zellige.core.schedule import CLEAN, as_time
from zellige.exact import enumeration, script
from zellige.methods.diffusion import Diffusion
from zellige.nn.table import Table
from zellige.samplers import State, run
from zellige.samplers.smc import Particles, Rewarded, Smc, systematic

from .check import (
    L,
    Largest,
    V,
    above,
    apart,
    below,
    data_distribution,
    discrete,
    fits,
    numbers,
    own,
    shared,
    state_of,
    truth_of,
    with_table,
)
from .sampler import starts

PARTICLES = "particles: weighted, steered by a reward or annealed"
POWER, TOKENS, STRENGTH = 1.5, 2, 0.7


# ---------------------------------------------------------------------------------- the limit of many particles, by definition
def base(process: Process, s: Tensor, t: Tensor) -> Tensor:
    """b(x_s | x_t), (K of x_t, K of x_s), the reverse kernel of a uniformly distributed token, by Bayes' rule."""
    before, after = (process.clean.double() @ process.matrix(CLEAN, float(time)) for time in (s, t))
    joint = before[:, None] * process.matrix(float(s), float(t))
    return torch.where(after > 0, joint / torch.where(after > 0, after, 1.0), 0.0).mT


def step_weights(method: Diffusion, t: Tensor, s: Tensor, anneal: float) -> Tensor:
    """W(x_s | x_t), (K^L, K^L), of all texts."""
    K, (length,) = method.process.K, method.shape
    X = enumeration.states(K, length)
    p = kernel(method.predict(X, as_time(t).expand(X.shape)), as_time(s)).double()  # (N, L, K)
    p = torch.where(method.process.movable(X)[..., None], p, torch.nn.functional.one_hot(X, K))
    w = maths.product((p, base(method.process, s, t)[X]), (anneal, 1 - anneal))
    return w[:, torch.arange(length), X].prod(-1)


def limit(method: Diffusion, sampler: Smc, steps: int) -> Tensor:
    """Weight of each text (K^L,) at the end of all paths, without a reward."""
    X = enumeration.states(method.process.K, method.shape[0])
    times = sampler.times(method, steps)
    weights = method.process.prior.double()[X].prod(-1) * method.vocabulary ** ((1 - sampler.anneal) * X.shape[1])
    for t, s in itertools.pairwise(times):
        weights = weights @ step_weights(method, t, s, sampler.anneal)
    return weights


# ---------------------------------------------------------------------------------- every outcome of the code
def outcomes(sampler: Smc, method: Any, steps: int) -> tuple[Tensor, Tensor]:
    """E[Z sum_i w_i 1(x_i = x)] for each text x, and the distribution of the sample, (K^L,) each.

    All draws of a run are followed. Groups of equal particles and weights are one, with their probability and with the
    mean of Z.
    """
    times, (length,) = sampler.times(method, steps), method.shape
    state = sampler.init(method, (1, length))
    chance = z = torch.ones(1, dtype=torch.float64)

    def first(rows: Tensor, source: Any) -> State:
        return sampler.init(method, (len(rows), length), generator=source)

    state, chance, z = _merged(first, chance, z)
    for t, s in itertools.pairwise(times):
        before = state

        def step(rows: Tensor, source: Any, before: State = before, t: Tensor = t, s: Tensor = s) -> State:
            return sampler.step(method, before.take(rows), t, s, source)

        state, chance, z = _merged(step, chance, z)
    x, memory = _tokens(state), state.memory
    where, total = enumeration.index(x, method.process.K), torch.zeros(method.process.K**length, dtype=torch.float64)
    weighted = total.index_add(0, where.flatten(), (z[:, None] * memory.weights).flatten())
    return weighted, total.index_add(0, where[:, 0], chance)


def _tokens(state: State) -> Tensor:
    """The particles, (B, N, L)."""
    return torch.cat((state.x[:, None], state.memory.others), 1)


def _merged(draw: Any, chance: Tensor, z: Tensor) -> tuple[State, Tensor, Tensor]:
    """All states that `draw` makes, equal ones merged, with log_z 0, their probabilities, and E[Z] on them."""
    parts = []
    for rows, state, p in script.branches(draw, len(chance)):
        parts.append((state, p * chance[rows], p * z[rows] * state.memory.log_z.exp()))
    memory = {
        name: torch.cat([getattr(state.memory, name) for state, _, _ in parts])
        for name in ("others", "log_weights", "ahead", "ess", "resampled")
    }
    state = State(*(torch.cat([getattr(state, name) for state, _, _ in parts]) for name in ("x", "fixed", "calls")))
    memory = Particles(**memory, log_z=torch.zeros(len(state.x), dtype=torch.float64), begun=parts[0][0].memory.begun)
    state = replace(state, memory=memory)
    key = torch.cat((_tokens(state).flatten(1), (1e13 * torch.cat((memory.log_weights, memory.ahead), 1)).round()), 1)
    _, number = key.unique(dim=0, return_inverse=True)
    count = int(number.max()) + 1
    representative = torch.zeros(count, dtype=torch.long).scatter_(0, number, torch.arange(len(number)))
    masses = (torch.zeros(count, dtype=torch.float64).index_add(0, number, torch.cat(m)) for m in list(zip(*parts))[1:])
    return state.take(representative), *masses  # pyright: ignore


@cache
def world(name: str) -> Diffusion:
    """A model of two tokens at two positions, with a network that sees the time and is not exact."""
    cls: Any = methods.find(name)
    config = cls.Config()
    network = with_table(Table(cls.states(TOKENS, config), 2, time=True, outputs=cls.outputs(TOKENS, config)))
    method: Any = methods.build(cls, TOKENS, network, config, length=2)
    return method.double()


def reward(x: Tensor, condition: Tensor | None) -> Tensor:
    """A reward of two tokens; one text is forbidden."""
    value = 2 * numbers(TOKENS**2)[enumeration.index(x, TOKENS)]
    return value.masked_fill((x == 1).all(-1), -torch.inf)


def target(method: Diffusion, sampler: Smc, steps: int, strength: float | None) -> Tensor:
    """Weight of each text at the end, with the reward."""
    weights, clean = limit(method, sampler, steps), enumeration.is_clean(method.process, 2)
    if strength is None:
        return weights
    factor = torch.zeros_like(weights)
    value = reward(enumeration.states(method.process.K, 2)[clean], None)
    factor[clean] = torch.where(value.isneginf(), 0.0, (strength * value).exp())
    return weights * factor


@shared("smc.unbiased")
@torch.no_grad()
def the_estimate_is_unbiased():
    """Two particles, two positions, two or three steps: all draws of particles and lookaheads,
    and all ways to resample."""
    for name, sampler, steps, strength in (
        ("md4", Smc(particles=2, lookahead=1, resample_below=0.9), 3, STRENGTH),
        ("md4", Smc(particles=2, lookahead=1, resample_below=0.9, anneal=POWER), 2, STRENGTH),
        ("udlm", Smc(particles=2, lookahead=1, resample_below=0.9), 2, STRENGTH),
        ("udlm", Smc(particles=2, lookahead=0, resample_below=1.0, anneal=POWER), 2, STRENGTH),
        ("sedd", Smc(particles=2, lookahead=0, resample_below=1.0, anneal=POWER), 2, None),
    ):
        method, worst = world(name), Largest()
        model = method if strength is None else Rewarded(method, reward, strength)
        weighted, _ = outcomes(sampler, model, steps)
        worst.see(weighted, target(method, sampler, steps, strength), f"{name}, {sampler}")
        kind = " and ".join(filter(None, ("reward" * (strength is not None), "anneal" * (sampler.anneal != 1))))
        yield worst.row(PARTICLES, f"two particles: E[Z w(x)], {kind}, {name}", 1e-10)


@shared("smc.limit")
@torch.no_grad()
def more_particles_are_nearer():
    """Distance of the sample's distribution from its limit with 1, 2 and 3 particles, annealed."""
    method, distances = world("md4"), []
    for count in (1, 2, 3):
        sampler = Smc(particles=count, anneal=2.5, resample_below=0.9)
        distribution, weights = outcomes(sampler, method, 2)[1], limit(method, sampler, 2)
        distances.append(apart(distribution, weights / weights.sum()))
    where = ", ".join(f"{distance:.2e}" for distance in distances)
    ratio = max(distances[1] / distances[0], distances[2] / distances[1])
    yield below(PARTICLES, "1, 2, 3 particles: distance / the one before", ratio, 0.8, "≤ 0.8", where)


@shared("smc.resampling")
@torch.no_grad()
def copies_are_in_proportion():
    """Every interval of the uniform number: N w_i copies of each in expectation,
    and that rounded down or up in each case."""
    weights = maths.normalise((1 + numbers(7, 5)).square())
    weights[0], weights[1] = torch.tensor([0.0, 1, 0, 0, 0]), 0.2
    mean, nearest = torch.zeros_like(weights), Largest()
    due = torch.ones(len(weights), dtype=torch.bool)
    for rows, source, p in script.branches(lambda at, s: systematic(weights[at], due[at], s), len(weights)):
        copies = torch.nn.functional.one_hot(source, weights.shape[1]).sum(1).double()
        away = (copies - weights[rows] * weights.shape[1]).abs()
        nearest.see((away - 1).clamp_min(0)[p > 1e-12], 0.0, "copies")
        mean.index_add_(0, rows, p[:, None] * copies)
    worst = Largest()
    worst.see(mean, weights * weights.shape[1], "mean copies")
    yield worst.row(PARTICLES, "systematic resampling: copies in proportion")
    yield nearest.row(PARTICLES, "... and less than one from it in each case")


@shared("smc.groups")
@torch.no_grad()
def each_group_is_drawn_anew_by_itself():
    """Where (sum w)^2 / sum w^2 is below the fraction of N, and there alone; of its own particles,
    with its own weights."""
    due, own_particles, N = Largest(), Largest(), 4
    weights = maths.normalise((0.2 + numbers(6, N).abs()).pow(torch.arange(6.0).double()[:, None]))
    zeros, groups = torch.zeros_like(weights), torch.arange(len(weights))
    size = 1 / weights.square().sum(-1)  # of weights of sum 1
    for fraction in (0.4, 0.6, 0.9):
        sampler, total = Smc(particles=N, resample_below=fraction), torch.zeros(len(weights) * N, dtype=torch.float64)
        particles = Particles(zeros[..., None], weights.log(), zeros, zeros[:, 0], zeros[:, 0] + N, groups * 0)
        below = size < fraction * N
        for (after, source), p in script.scripts(lambda g: sampler._resampled(particles, g), len(weights)):  # noqa: B023
            due.see(after.resampled.double(), below.double(), f"below {fraction:g}")
            copies = torch.nn.functional.one_hot(source, len(total)).double().reshape(-1, N, len(total)).sum(1)
            total += p @ copies
        copies = torch.where(below[:, None], N * weights, 1.0)
        own_particles.see(total, copies.flatten(), f"below {fraction:g}")
    yield due.row(PARTICLES, "drawn anew: where 1 / sum w^2 is small, alone")
    yield own_particles.row(PARTICLES, "... each group, copies of its own particles")


@shared("smc.given")
@torch.no_grad()
def given_tokens_are_not_annealed():
    """One position free, an exact network and one step: Z is sum_y p(y | given)^2, whatever is drawn."""
    process, distribution, X = absorbing(V + 1, Linear()), data_distribution(), enumeration.states(V, L)
    worst, truth = Largest(), enumeration.Denoiser(process, distribution, L)
    for i, token in itertools.product(range(L), range(V)):
        fixed = torch.full((L,), -1).index_fill(0, torch.tensor(i), token)
        *_, last = run(Smc(particles=2, anneal=2.0), truth, (1, L), 1, fixed=fixed, generator=Streams([0]))
        p = maths.normalise(distribution[X[:, i] == token])
        worst.see(last.memory.log_z.exp(), p.square().sum(), f"token {token} given at {i}")
    yield worst.row(PARTICLES, "annealed, a token given: Z = sum p(y | it)^2")


@own("smc.step", fits(Smc))
@torch.no_grad()
def a_step_multiplies_by_its_weights(method: Any):
    """On a network that is not exact, from pairs of texts of unequal weight, annealed: all draws of one step."""
    worst, K = Largest(), method.process.K
    for t, s in torch.tensor([[0.5625, 0.1875], [0.1875, CLEAN]], dtype=torch.float64):
        sampler = Smc(particles=2, anneal=POWER, resample_below=0.9)
        X = enumeration.states(K, L)
        pairs = torch.stack((X, X.flip(0)), 1)[:: max(len(X) // 4, 1)]
        log_weights = torch.tensor([0.8, 0.2], dtype=torch.float64).log().expand(len(pairs), 2)
        zeros = torch.zeros(len(pairs), dtype=torch.float64)
        memory = Particles(pairs[:, 1:], log_weights, torch.zeros_like(log_weights), zeros, zeros + 2, zeros.long())
        state = state_of(pairs[:, 0], memory=memory)
        result = torch.zeros(len(pairs), K**L, dtype=torch.float64)
        step = lambda at, source: sampler.step(method, state.take(at), t, s, source)  # noqa: B023, E731
        for rows, new, p in script.branches(step, len(pairs)):
            mass = (p * new.memory.log_z.exp())[:, None] * new.memory.weights
            where = enumeration.index(_tokens(new), K) + rows[:, None] * K**L
            result.view(-1).index_add_(0, where.flatten(), mass.flatten())
        weights = step_weights(method, t, s, POWER)[enumeration.index(pairs, K)]  # (pairs, 2, K^L)
        worst.see(result, (log_weights.exp()[..., None] * weights).sum(1), f"{float(s):g} < {float(t):g}")
    yield worst.row(PARTICLES, "one step, annealed: E[Z w(x)] = w times W")


@own("smc.anneal", fits(Smc))
@torch.no_grad()
def annealing_tends_to_the_power(method: Any):
    """Many particles with the exact network: the distribution of T steps tends to p^anneal.

    The order in 1/T is 1, or less where the rates of p_t^1.5 rise steeply as t -> 0: noise without a mask.
    """
    if discrete(method) or not starts(method):
        return
    truth, power = truth_of(method), data_distribution() ** POWER
    wanted, distances = enumeration.embed(method.process, power / power.sum(), L), []
    sampler = Smc("auto" if method.process.mask is not None else "log-snr", anneal=POWER)
    for steps in (32, 64):
        weights = _code_limit(truth, sampler, steps)
        distances.append(apart(weights / weights.sum(), wanted))
    a, b = distances
    where = f"{a:.2e} at T = 32, {b:.2e} at T = 64"
    yield above(PARTICLES, "many annealed particles: p^1.5, order", math.log2(a / b), 0.6, "≥ 0.6", where)


def _code_limit(method: Any, sampler: Smc, steps: int) -> Tensor:
    """`limit` from the weights of the sampler's own code: one particle, all its draws, each with its Z."""
    times, K = sampler.times(method, steps), method.process.K
    X = enumeration.states(K, L)
    N, T = len(X), len(times) - 1
    one = replace(sampler, particles=1)
    state = one.init(method, (N * T, L))
    zeros = torch.zeros(N * T, dtype=torch.float64)
    state = replace(state, x=X.repeat(T, 1), memory=replace(state.memory, log_z=zeros))
    t, s = (u.repeat_interleave(N)[:, None] for u in (times[:-1], times[1:]))
    matrix = torch.zeros(N * T, N, dtype=torch.float64)
    for rows, new, p in script.branches(
        lambda at, source: one.step(method, state.take(at), t[at], s[at], source), N * T
    ):
        matrix.index_put_((rows, enumeration.index(new.x, K)), p * new.memory.log_z.exp(), accumulate=True)
    weights = method.process.prior.double()[X].prod(-1)
    for step in matrix.reshape(T, N, N):
        weights = weights @ step
    return weights
