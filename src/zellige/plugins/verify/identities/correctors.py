"""Psi samplers and correctors: what a step keeps with the exact network, and what it does on one that is not exact."""

import itertools
import math
from typing import Any

import torch
from torch import Tensor

from zellige.core import gaussian, maths
from zellige.core.curves import Linear
from zellige.core.prediction import LeaveOneOut, as_leave_one_out, kernel, score
from zellige.core.process import absorbing, uniform
from zellige.core.schedule import CLEAN
from zellige.exact import enumeration, script
from zellige.methods.diffusion import Diffusion
from zellige.samplers import Ancestral, Informed, Psi, Remasking, Sampler, State
from zellige.samplers.pairing import can_choose_first, discrete_times

from .check import (
    INSIDE,
    L,
    Largest,
    V,
    above,
    apart,
    data_distribution,
    ends,
    fits,
    marginal,
    one_alpha,
    own,
    reachable,
    shared,
    state_of,
    truth_of,
)
from .prediction import PREDICTION
from .sampler import GIVEN, SAMPLER

GAUSSIAN = "Gaussian noise: its largest entry is a token of uniform noise"
STEPS, ETA, ON, OFF = 6, 0.3, 0.7, 0.3
NUMBERS = Psi("0.4", "0.7", "0.2", ON, OFF)
DEPENDENT = [Psi(rule, rule, rule, ON, OFF) for rule in (f"cap:{ETA}", f"rescale:{ETA}", f"rescale-published:{ETA}")]
PAUSED = Psi("0.3", "0.6", f"cap:{ETA}", ON, OFF, pause=0.8)


def psis(method: Diffusion) -> list[Psi]:
    """Psi samplers that the method supports."""
    if not one_alpha(method):
        return [NUMBERS]
    return [NUMBERS, *DEPENDENT] if discrete_times(method) else [NUMBERS, *DEPENDENT, PAUSED]


def kept(worst: Largest, sampler: Sampler, method: Diffusion, distribution: Tensor, places: bool = False) -> None:
    """See p_t times the transition from t to s against p_s, step by step; with `places` each position by itself."""
    (length,), K = method.shape, method.process.K
    clean, times = enumeration.embed(method.process, distribution, length), sampler.times(method, STEPS)
    p = [enumeration.marginal(method.process, clean, length, float(t)) for t in times]
    for i, matrix in enumerate(script.transitions(sampler, method, times)):
        possible = p[i] > 0
        after, wanted = p[i][possible] @ matrix[possible], p[i + 1]
        for axis in range(length) if places else [None]:
            if axis is not None:
                a, b = (q.reshape([K] * length).movedim(axis, 0).reshape(K, -1).sum(-1) for q in (after, wanted))
            else:
                a, b = after, wanted
            worst.see(a, b, f"{sampler.kappa}, {float(times[i]):.3f} to {float(times[i + 1]):.3f}")  # pyright: ignore


@own("sampler.psi", fits(Psi))
@torch.no_grad()
def psi_keeps_the_marginals(method: Diffusion):
    """Given x_0, which the network knows, both positions jointly."""
    worst, _ = Largest(), ends(method, 1e-6)  # or a score is un-pushed by what is left of alpha, 1e-9
    point = torch.zeros_like(data_distribution()).index_fill(0, torch.tensor(5), 1.0)
    for sampler in psis(method):
        kept(worst, sampler, truth_of(method, point), point)
    yield worst.row(SAMPLER, "psi  keeps q(x_s | x_0) at each step")


@own("sampler.psi-positions", fits(Psi))
@torch.no_grad()
def psi_keeps_each_position(method: Diffusion):
    """With the exact network: of two positions each, of one everything; the two together it does not keep."""
    worst, single, _ = Largest(), data_distribution(1), ends(method, 1e-6)
    for sampler in psis(method):
        kept(worst, sampler, truth_of(method), data_distribution(), places=True)
        kept(worst, sampler, truth_of(method, single, 1), single)
    yield worst.row(SAMPLER, "psi, exact network: each position keeps p_t")
    truth, away = truth_of(method), Largest()
    kept(away, Psi("0", "0", "0"), truth, data_distribution())
    where = f"expected failure: {away.where}"
    yield above(SAMPLER, "psi, kappa 0: not two positions together", away.error, 1e-3, "≥ 1e-03", where)


@own("sampler.psi-ancestral", fits(Psi))
@torch.no_grad()
def psi_with_kappa_1_is_ancestral(method: Diffusion):
    """On a network that is not exact; and `cap` is that of `remasking`."""
    worst = Largest()
    for steps in (1, 3):
        plain = script.sample_distribution(Ancestral(choose=False), method, steps)
        worst.see(script.sample_distribution(Psi("1"), method, steps), plain, f"T = {steps}")
    yield worst.row(SAMPLER, "psi, kappa 1 = ancestral")
    if Remasking.reason_against(method) is not None or not can_choose_first(method):
        return
    same, eta = Largest(), 0.05
    for kind in ("cap", "rescale"):
        rule = f"{kind}:{eta}"
        ours, theirs = Psi(rule, rule, rule), Remasking(kind, eta)  # pyright: ignore[reportArgumentType]
        for steps in (2, 4):
            times = ours.times(method, steps)
            ours_gives, theirs_gives = (script.sample_distribution(each, method, times) for each in (ours, theirs))
            same.see(ours_gives, theirs_gives, f"{kind}, T = {steps}")
    yield same.row(SAMPLER, "psi, cap and rescale = remasking")


@own("sampler.psi-given", fits(Psi))
@torch.no_grad()
def psi_leaves_given_tokens(method: Diffusion):
    worst, X = Largest(), enumeration.states(method.process.K, L)
    samples = script.sample_distribution(NUMBERS, method, 3, GIVEN)
    worst.see(samples[X[:, 0] == GIVEN[0]].sum(), 1.0, "given [1, _]")
    yield worst.row(SAMPLER, "psi  leaves given tokens as they are")


@own("sampler.psi-rules", lambda method: Psi.reason_against(method) is None and one_alpha(method))
@torch.no_grad()
def kappa_is_what_the_rules_say(method: Diffusion):
    """By definition, in numbers; the pause as three parts."""
    worst, n = Largest(), 16
    alpha = lambda time: float(method.process.schedule.alpha(time)[..., 0])  # noqa: E731
    for sampler in (NUMBERS, *DEPENDENT, Psi(f"rescale:{ETA}", f"cap:{ETA}", "0.1", ON, OFF)):
        for t, s in itertools.pairwise(sampler.times(method, n)[:-1]):
            rule = sampler.kappa_early if t > 0.7 else sampler.kappa if t > 0.3 else sampler.kappa_late
            a, b = alpha(t), alpha(s)
            most = min(1.0, (1 - b) / a) if a else 1.0
            again = {"cap": min(ETA, most), "rescale": ETA * most, "rescale-published": ETA * min(ETA, most)}
            kind = rule.rpartition(":")[0]
            masked = min(again[kind], 1 - b) if kind else (1 - float(rule)) * (1 - b)  # again, of absorbing noise
            worst.see((1 - sampler.share(method, t, s)) * (1 - b), masked, f"{rule}, {float(t):.3f} to {float(s):.3f}")
    if not discrete_times(method):
        still = float(method.process.schedule.inverse(0.8))
        first, middle = round(0.3 * (n + 1)), round(0.4 * (n + 1))
        parts = [[1 + (still - 1) * i / (first - 1) for i in range(first)], [still] * middle]
        parts.append([still - still * i / (n - first - middle) for i in range(n + 1 - first - middle)])
        times = PAUSED.times(method, n)
        wanted = torch.tensor(list(itertools.chain(*parts))[1:-1], dtype=torch.float64)
        worst.see(times[1:-1], wanted, "times of the pause")
        worst.see(PAUSED.share(method, times[first], times[first + 1]), 0.3, "in the pause")
        worst.see(PAUSED.share(method, times[1], times[2]), 0.6, "before it")
    yield worst.row(SAMPLER, "psi  kappa and times by their rules")


# ---------------------------------------------------------------------------------- correctors
def corrected(sampler: Informed, method: Diffusion, X: Tensor, s: float, revised: bool = False) -> Tensor:
    """Transition matrix (N, K^L) of one corrector step at time s, or of one step of self-correction."""
    state, time = state_of(X), torch.tensor(s, dtype=torch.float64)

    def step(source: Any) -> State:
        return sampler.revised(method, state, source) if revised else sampler.correct(method, state, time, source)

    return script.after(step, X.shape, method.process.K)


@own("sampler.informed", fits(Informed))
@torch.no_grad()
def one_random_position_keeps_the_distribution(method: Diffusion):
    """With the exact network. Several positions, or a choice that looks at the tokens, do not keep it."""
    worst, together, looking = Largest(), 0.0, 0.0
    truth = truth_of(method)
    for s in INSIDE:
        (X, _, p), whole = reachable(method.process, s), marginal(method.process, s)
        worst.see(p @ corrected(Informed(), truth, X, s), whole, f"t = {s}")
        together = max(together, apart(p @ corrected(Informed(resample=2), truth, X, s), whole))
        looking = max(looking, apart(p @ corrected(Informed(pick="margin"), truth, X, s), whole))
    yield worst.row(SAMPLER, "informed, one random position  keeps p_t")
    where = "expected failure: total variation after one step"
    yield above(SAMPLER, "informed, two at once  do not keep p_t", together, 1e-3, "≥ 1e-03", where)
    yield above(SAMPLER, "informed, picked by margin  p_t not kept", looking, 1e-3, "≥ 1e-03", where)


def _conditionals(method: Diffusion, X: Tensor, t: float) -> Any:
    """The prediction for all X at t, and p_t(. | the others) (N, L, K)."""
    pred = method.predict(X, torch.full(X.shape, t, dtype=torch.float64))
    return pred, maths.normalise(score(pred).double().clamp_min(0.0))


@own("sampler.informed-picks", lambda method: Informed.reason_against(method) is None and not method.block)
@torch.no_grad()
def positions_are_picked_by_their_rule(method: Diffusion):
    """On a network that is not exact: the whole transition by definition."""
    worst, K, s, tau = Largest(), method.process.K, 0.5625, 0.5
    X, _, _ = reachable(method.process, s)
    _, p = _conditionals(method, X, s)
    for rule in ("random", "probability", "confidence", "margin"):
        weights = torch.ones(len(X), L, dtype=torch.float64)
        for n, i in itertools.product(range(len(X)), range(L)):
            now, others = float(p[n, i, X[n, i]]), [float(p[n, i, y]) for y in range(K) if y != X[n, i]]
            odds = {"random": 1.0, "probability": 1 / max(now, 1e-300), "confidence": 1 / max(now, *others)}
            weights[n, i] = odds.get(rule, max(others) / max(now, 1e-300)) ** (1 / tau)
        if not bool(weights.isfinite().all() & (weights.sum(-1) > 0).all()):
            continue
        weights = weights / weights.sum(-1, keepdim=True)
        wanted = torch.zeros(len(X), K**L, dtype=torch.float64)
        for i, y in itertools.product(range(L), range(K)):
            new = X.clone()
            new[:, i] = y
            wanted.scatter_add_(1, enumeration.index(new, K)[:, None], (weights[:, i] * p[:, i, y])[:, None])
        sampler = Informed(pick=rule, pick_temperature=tau)  # pyright: ignore[reportArgumentType]
        worst.see(corrected(sampler, method, X, s), wanted, rule)
    yield worst.row(SAMPLER, "informed  its transition by definition")


def _replaces_tokens(method: Any) -> bool:
    return fits(Informed)(method) and not discrete_times(method) and method.process.mask is None


@own("sampler.informed-revised", _replaces_tokens)
@torch.no_grad()
def self_correction_replaces_the_clearest_token(method: Diffusion):
    """On a network that is not exact: both drawn tokens followed, and the likelier of those that are new."""
    worst, K, t, heat = Largest(), method.process.K, 0.09375, 0.7
    X, _, _ = reachable(method.process, t)
    pred, _ = _conditionals(method, X, t)
    p = maths.normalise(as_leave_one_out(pred).mu.double() ** (1 / heat))
    wanted = torch.zeros(len(X), K**L, dtype=torch.float64)
    for n, (a, b) in itertools.product(range(len(X)), itertools.product(range(K), repeat=2)):
        x, drawn = X[n].tolist(), (a, b)
        new = [i for i in range(L) if drawn[i] != x[i] and p[n, i, drawn[i]] > 0]
        if new:
            best = max(new, key=lambda i: float(p[n, i, drawn[i]]))
            x[best] = drawn[best]
        wanted[n, enumeration.index(torch.tensor(x), K)] += p[n, 0, a] * p[n, 1, b]
    sampler = Informed(revise=1, revise_time=t, revise_temperature=heat)
    worst.see(corrected(sampler, method, X, t, revised=True), wanted, "all x")
    yield worst.row(SAMPLER, "informed, self-correction by definition")


# ---------------------------------------------------------------------------------- a mean as if it were leave-one-out
class PlugIn(enumeration.Denoiser):
    """The exact mean p(x_0 | x_t), put in the place of x_0 in q(x_s | x_t, x_0)."""

    def predict(self, x_t, t, *, at=None, condition=None, context=None, segments=None):
        mean = super().predict(x_t, t, at=at)
        return LeaveOneOut(self.process, mean.mu, mean.x_t, mean.t)  # pyright: ignore[reportAttributeAccessIssue]


@shared("prediction.plug-in")
@torch.no_grad()
def a_mean_is_no_leave_one_out():
    """At a mask they are one. Under uniform noise the wrong kernel is wrong in the limit of small steps, too."""
    worst, data = Largest(), data_distribution()
    P = absorbing(V + 1, Linear())
    for t, s in itertools.product(INSIDE, (CLEAN, 0.0625)):
        X, time, _ = reachable(P, t)
        ours, theirs = (kernel(made(P, data, L).predict(X, time), s) for made in (PlugIn, enumeration.Denoiser))
        worst.see(ours, theirs, f"{t} to {s}")
    yield worst.row(PREDICTION, "masks: mean in the place of x_0 = the mixture")
    P = uniform(V, Linear(1e-6))
    away = [apart(script.sample_distribution(Ancestral(), PlugIn(P, data, L), T), data) for T in (32, 64, 128)]
    where = "expected failure: distances at T = 32, 64, 128: " + ", ".join(f"{d:.4f}" for d in away)
    limit = 2 * away[2] - away[1]  # the error in 1/T cancelled
    yield above(PREDICTION, "uniform: mean in the place of x_0  wrong in limit", limit, 0.02, "≥ 0.02", where)


# ---------------------------------------------------------------------------------- the largest entry
@shared("process.gaussian-alpha")
def the_largest_entry_has_uniform_noise():
    """By the density of the largest rival, and for two tokens in closed form; the slope by differences."""
    worst, slopes, gamma = Largest(), Largest(), torch.linspace(-6.0, 4.0, 21, dtype=torch.float64)
    r, m = (-gamma / 2).exp(), torch.linspace(-9.0, 9.0, 1801, dtype=torch.float64)
    density = (-m.square() / 2).exp() / math.sqrt(2 * math.pi)
    for K in (2, 3, 27):
        rival = (K - 1) * density * torch.special.ndtr(m) ** (K - 2) * 0.01
        p = (rival * torch.special.ndtr(r[:, None] - m)).sum(-1)
        at_x_0 = uniform(K, Linear()).prior[0]
        alpha, slope = gaussian.uniform_alpha(gamma, K)
        worst.see(alpha + (1 - alpha) * at_x_0, p, f"{K} tokens")
        if K == 2:
            worst.see(alpha + (1 - alpha) * at_x_0, torch.special.ndtr(r / math.sqrt(2)), "two tokens, closed form")
        step = 0.01
        near, far = (
            gaussian.uniform_alpha(gamma + d, K)[0] - gaussian.uniform_alpha(gamma - d, K)[0] for d in (step, 2 * step)
        )
        slopes.see(slope, (8 * near - far) / (12 * step), f"{K} tokens")
    yield worst.row(GAUSSIAN, "alpha + (1 - alpha) / K = P(it is x_0)")
    yield slopes.row(GAUSSIAN, "slope of alpha = difference quotient", 1e-7)


@shared("process.gaussian-tokens")
def tokens_have_these_frequencies():
    """On a lattice of noises: fewer points than make an exact count, so that the frequencies are near."""
    worst = Largest()
    for K, n in ((2, 200), (3, 40)):
        quantiles = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)
        noise = torch.cartesian_prod(*[quantiles] * K)
        for gamma in (-2.0, 0.0, 2.0):
            level = torch.tensor(gamma, dtype=torch.float64).expand(len(noise))
            share = (gaussian.tokens_at(torch.ones(len(noise), dtype=torch.long), level, noise) == 1).double().mean()
            worst.see(share, gaussian.top_probability(level[:1], K)[0][0], f"{K} tokens, gamma = {gamma:g}")
    yield worst.row(GAUSSIAN, "tokens of a lattice of noises: frequencies", 0.02)


@shared("process.gaussian-schedule")
def its_schedule_is_that_alpha():
    worst, slopes, low, high = Largest(), Largest(), -5.0, 3.0
    t = torch.linspace(0.0123, 0.9876, 50, dtype=torch.float64)
    for K in (3, 27):
        schedule, (alpha, slope) = gaussian.Gaussian(K, low, high), gaussian.uniform_alpha(low + (high - low) * t, K)
        worst.see(schedule.alpha(t)[:, 0], alpha, f"{K} tokens")
        worst.see(schedule.alpha(schedule.inverse(alpha))[:, 0], alpha, f"inverse, {K} tokens")
        slopes.see(-(schedule.beta(t) * schedule.alpha(t))[:, 0], (high - low) * slope, f"{K} tokens")
    yield worst.row(GAUSSIAN, "its schedule: alpha, and the time of an alpha")
    yield slopes.row(GAUSSIAN, "its schedule: the slope of alpha", 1e-7)
