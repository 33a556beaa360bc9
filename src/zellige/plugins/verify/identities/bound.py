"""The bounds of a method: its closed forms, their limit, the likelihood below them,
and what they are at the exact network."""

import itertools
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from zellige.core import bound, maths
from zellige.core.batch import Batch
from zellige.core.curves import Cosine, Linear, Polynomial
from zellige.core.prediction import Score, as_leave_one_out, as_mean, as_score, posterior, restricted, truth
from zellige.core.schedule import CLEAN, PRIOR, Schedule
from zellige.exact import bounds, enumeration
from zellige.methods.absorbing import Masked
from zellige.methods.diffusion import Diffusion, jumps_at
from zellige.methods.gidd import GIDD
from zellige.samplers import Ancestral

from .check import (
    EXACT,
    INSIDE,
    QUADRATURE,
    L,
    Largest,
    Row,
    T,
    V,
    above,
    again,
    below,
    data_distribution,
    discrete,
    ends,
    marginal,
    mild,
    near,
    numbers,
    of_order,
    one_alpha,
    own,
    pairs,
    processes,
    shared,
    truth_of,
)

BOUND = "bound"
JUMPS = [(PRIOR, CLEAN), (PRIOR, 1.0), (PRIOR, 0.75), (0.25, CLEAN), (1 / T, CLEAN)]
STEPS = [(1.0, 0.75), (0.90625, 0.1875), *JUMPS]


def grid(method: Diffusion, steps: int) -> Tensor:
    return Ancestral().times(method, steps)


def total(method: Diffusion, x_0: Tensor, jumps: bool = False) -> Tensor:
    """The bound itself, all its terms: of continuous time, with `jumps` or not, or of the T steps of the method."""
    if method.steps:
        return bounds.step_bound(method, x_0, method.grid(method.steps))
    return all_terms(bounds.continuous_terms(method, x_0, jumps=jumps))


def all_terms(terms: Mapping[str, Tensor]) -> Tensor:
    return terms["diffusion"] + terms["reconstruction"] + terms["prior"]


# ---------------------------------------------------------------------------------- two forms of one bound
@own("bound.weights", lambda method: isinstance(method, GIDD))
@torch.no_grad()
def weights_are_those_of_the_paper(method: GIDD):
    """Clipped at 2; dynamic, 2 at the mask, 1 at a wrong token, (B / V) e^{-lambda/2} at the right one."""
    worst, P = Largest(), method.process
    clip, dynamic = (again(method, weights=weights) for weights in ("clip", "dynamic"))
    for t in INSIDE:
        for x_0, x_t in itertools.product(range(V), range(P.K)):
            other = (x_t + 1) % P.K  # from which x_t is entered at the rate rho
            rho, q = P.rate(t)[other, x_t], P.matrix(CLEAN, t)[x_0, x_t]
            at = (torch.tensor(x_0), torch.tensor(x_t), torch.tensor(t, dtype=torch.float64))
            where = f"t = {t}, x_0 = {x_0}, x_t = {x_t}"
            worst.see(clip.loss_weight(*at), min(float(rho / q), 2.0), f"clip, {where}")
            snr = math.log((1 - t) / t)
            right = min(P.schedule.B / V * math.exp(-snr / 2), 2.0)
            weight = 2.0 if x_t == P.blank else right if x_t == x_0 else 1.0
            worst.see(dynamic.loss_weight(*at), weight, f"dynamic, {where}")
    yield worst.row(BOUND, "clipped and dynamic weights = the paper's")


def closed_and_generic(
    method: Diffusion, x_0: Tensor, x_t: Tensor, t: Tensor, s: float | None
) -> tuple[Tensor, Tensor]:
    """The bound at x_t by the method's closed form and by the definition, (N,) each: per unit of time if s is None, else
    of the step from t (N, L) to s."""
    pred, target = method.predict(x_t, t, context=method.clean(Batch(x_0))), truth(method.process, x_0, x_t, t)
    if s is None:
        return method.continuous_bound(Batch(x_0), x_t, t[:, 0]), bound.continuous(target, pred).sum(-1)
    later = torch.full_like(t, s)
    return method.discrete_bound(Batch(x_0), x_t, t[:, 0], later[:, 0]), bound.discrete(target, pred, later).sum(-1)


@own("bound.closed-form")
def closed_form_is_the_generic_bound(method: Diffusion):
    forms = ("cost", "continuous_bound", "discrete_bound")
    if all(getattr(type(method), name) is getattr(Diffusion, name) for name in forms):
        return
    value, gradient = Largest(), Largest()
    moments = [] if discrete(method) else [(t, None) for t in (*INSIDE, 1 / 64, 1 - 1 / T)]
    last = [(0.0, CLEAN)] if jumps_at(method.process, 0) else []
    for t, s in [*moments, *(step for step in STEPS if step[0] <= method.process.start_time), *last]:
        x_0, x_t, time, _ = pairs(method.process, t)
        closed, generic = closed_and_generic(method, x_0, x_t, time, s)
        where = f"t = {t:g}" + ("" if s is None else f" to {s:g}")
        k = int((closed - generic).abs().argmax())
        noisy = ["m" if int(i) == method.process.mask else int(i) for i in x_t[k]]
        value.see(closed, generic, f"{where}   x_0 = {x_0[k].tolist()}   x_t = {noisy}")
        finite = generic.isfinite()  # a clipped score may exclude x_0
        weights = 1.1 + numbers(int(finite.sum()))
        a, b = ((weights * v).sum() for v in closed_and_generic(method, x_0[finite], x_t[finite], time[finite], s))
        gradient.see_gradients(a, b, (method, method), where)
    yield value.row(BOUND, "closed form = generic bound")
    yield gradient.row(BOUND, "... its gradient")


@own("bound.definition")
@torch.no_grad()
def the_definition_is_the_generic_bound(method: Diffusion):
    """`Diffusion.cost`, which methods with a closed form pass by: of continuous time, and of a step."""
    worst = Largest()
    for t, s in [(0.5625, None), (0.90625, 0.1875)]:
        if s is None and discrete(method):
            continue
        x_0, x_t, time, _ = pairs(method.process, t)
        context, later = method.clean(Batch(x_0)), None if s is None else torch.full_like(time, s)
        pred, target = method.predict(x_t, time, context=context), truth(method.process, x_0, x_t, time)
        generic = bound.continuous(target, pred) if later is None else bound.discrete(target, pred, later)
        logits = method.logits(method.hidden(x_t, time, context=context))
        cost = Diffusion.cost(method, logits, x_0, x_t, time, later)
        worst.see(cost, generic, f"t = {t:g}" + ("" if s is None else f" to {s:g}"))
    yield worst.row(BOUND, "the cost that methods inherit = generic bound")


@own("bound.convert")
@torch.no_grad()
def every_parameterization_has_one_bound(method: Diffusion):
    worst = Largest()
    for t, s in [(0.90625, 0.1875), (0.5625, 0.25), (0.25, CLEAN)]:
        x_0, x_t, time, _ = pairs(method.process, t)
        pred, target = (
            method.predict(x_t, time, context=method.clean(Batch(x_0))),
            truth(method.process, x_0, x_t, time),
        )
        if isinstance(pred, Score):  # of no distribution in general: the distribution that it would be read as
            pred = restricted(method.process, posterior(pred) + 0.1, x_t, time)
        forms = [as_mean(pred), as_leave_one_out(pred)]
        if torch.linalg.cond(method.process.matrix(s, t)) < 1e5:  # else un-pushing loses too many digits
            forms.append(as_score(pred))
        for form in forms:
            where = f"{type(pred).__name__} as {type(form).__name__}, t = {t}"
            worst.see(bound.discrete(target, form, s), bound.discrete(target, pred, s), f"{where} to {s}")
            if not discrete(method):
                worst.see(bound.continuous(target, form), bound.continuous(target, pred), where)
    yield worst.row(BOUND, "as mean, leave-one-out, score: same bound")


@shared("bound.implicit")
def implicit_is_denoising_score_entropy():
    """SEDD, proposition 3.3 and theorem 3.4: the score entropy that asks for no true score, and the denoising one."""
    worst = Largest()
    for (name, P), t in itertools.product(processes().items(), INSIDE):
        x_0, x_t, time, q = pairs(P, t)
        X, R = enumeration.states(P.K, L), P.rate(t)
        p_t, p_0 = marginal(P, t), enumeration.embed(P, data_distribution(), L)
        apart = []
        for shift in (0.0, 0.7):
            v = torch.exp(numbers(len(X), L, P.K, size=1.5) + shift * numbers(len(X), L, P.K).flip(0))
            at = enumeration.index(x_t, P.K)
            score = Score(P, v[at], x_t, time)
            denoising = p_0[enumeration.index(x_0, P.K)] * q * bound.continuous(truth(P, x_0, x_t, time), score).sum(-1)
            implicit = torch.zeros((), dtype=torch.float64)
            for i, y in itertools.product(range(L), range(P.K)):
                target = X.clone()
                target[:, i] = y
                back = v[enumeration.index(target, P.K), i].gather(-1, X[:, i : i + 1])[:, 0]
                terms = R[y, X[:, i]] * v[:, i, y] - R[X[:, i], y] * back.log()  # SEDD proposition 3.3
                implicit = implicit + (p_t * torch.where(X[:, i] == y, 0.0, terms)).sum()
            apart.append(denoising.sum() - implicit)
        worst.see(apart[0], apart[1], f"{name}, t = {t}")
    yield worst.row(BOUND, "implicit = denoising score entropy + a constant")


# ---------------------------------------------------------------------------------- integrals over time
@own("bound.log-snr")
@torch.no_grad()
def log_snr_integrates_to_the_bound(method: Diffusion):
    if discrete(method) or not one_alpha(method):
        return
    schedule, x_0, worst = method.process.schedule, enumeration.states(V, L), Largest()
    end, begin = (near if math.isinf(schedule.log_snr(at)) else at for at, near in ((1.0, 1 - 1e-9), (0.0, 1e-9)))
    low, high = (float(schedule.log_snr(t)) for t in (end, begin))
    u, w = bounds.quadrature(300)
    snr = low + (high - low) * u  # -alpha'/(1 - alpha) dt = alpha d(log SNR), alpha = sigmoid(log SNR)
    t = schedule.inverse(torch.sigmoid(snr))
    rate = schedule.weight(t)[:, 0]
    weight = torch.where(rate > 0, w * (high - low) * torch.sigmoid(snr) / rate, 0.0)  # t may round to 0
    worst.see(weight @ bounds.expected(method, x_0, t, None), bounds.integral(method, x_0, begin, end), "x_0")
    yield worst.row(BOUND, "the same integral over log-SNR", QUADRATURE)


def free_of_time(method: Diffusion, schedule: Schedule) -> Masked | None:
    """The method without time conditioning, under another schedule, in continuous time.

    None if it has no such form, or does not draw numbers of masks even so.
    """
    if not isinstance(method, Masked):
        return None
    fields = type(method).Config.__dataclass_fields__
    free = again(method, **{name: value for name, value in (("time", False), ("diffusion_steps", 0)) if name in fields})
    if not free.draws_mask_counts:
        return None
    free.process.schedule = schedule
    return free


@own("bound.schedule")
@torch.no_grad()
def time_free_the_schedule_does_not_matter(method: Diffusion):
    worst, reference = Largest(), None
    ends = (1e-2, 0.99)
    for schedule in (Linear(*ends), Cosine(*ends), Polynomial(3.0, *ends)):
        free = free_of_time(method, schedule)
        if free is None:
            return
        value = total(free, enumeration.states(V, L))
        reference = value if reference is None else reference
        worst.see(value, reference, type(schedule).__name__)
    yield worst.row(BOUND, "time-free: the schedule does not matter", QUADRATURE)


@own("bound.any-order")
@torch.no_grad()
def time_free_the_bound_is_any_order(method: Diffusion):
    free = free_of_time(method, Linear(0.0))
    if free is None:
        return
    worst, x_0 = Largest(), enumeration.states(V, L)
    worst.see(total(free, x_0), bounds.any_order(free, x_0), "x_0")
    yield worst.row(BOUND, "time-free: bound = any-order likelihood", QUADRATURE)


# ---------------------------------------------------------------------------------- steps, and their limit
@own("bound.steps")
@torch.no_grad()
def steps_bound_the_likelihood(method: Diffusion):
    x_0, gap, where, method = enumeration.states(V, L), math.inf, "", mild(method)
    for steps in (2, 4, 8):
        times = grid(method, steps)
        bound, log_p = bounds.step_bound(method, x_0, times), bounds.log_likelihood(method, times)
        gaps = torch.where(bound.isinf(), math.inf, bound + log_p)
        if float(gaps.min()) < gap:
            gap, where = float(gaps.min()), f"T = {steps}, x_0 = {x_0[int(gaps.argmin())].tolist()}"
    yield _positive("T = 2, 4, 8: bound ≥ -log p, smallest gap", gap, where)


def _positive(identity: str, gap: float, where: str) -> Row:
    return above(BOUND, identity, gap, -EXACT, "≥ 0", where)


@own("bound.sum")
@torch.no_grad()
def the_bound_leaves_mass(method: Diffusion):
    x_0 = enumeration.states(V, L)
    yield _positive("1 - sum over x of exp(-bound)", 1 - float((-total(method, x_0)).exp().sum()), "all x")


@own("bound.normalised")
@torch.no_grad()
def the_likelihood_is_normalised(method: Diffusion):
    worst = Largest()
    for steps in (1, 4):
        worst.see(bounds.log_likelihood(method, grid(method, steps)).exp().sum(), 1.0, f"T = {steps}")
    yield worst.row(BOUND, "T steps: p(x) over all x sums to 1")


@own("bound.limit")
@torch.no_grad()
def steps_approach_continuous_time(method: Diffusion):
    if discrete(method):
        return
    x_0, worst, method = enumeration.states(V, L), Largest(), mild(method)
    limit = all_terms(bounds.continuous_terms(method, x_0))
    b = [bounds.step_bound(method, x_0, grid(method, steps)) for steps in (64, 128, 256)]
    if not method.exact:  # else there is no gap
        ratio = float((b[1] - limit).sum() / (b[2] - limit).sum())
        yield near(BOUND, "gap to continuous time halves as T doubles", ratio, 2.0, 0.1, "T = 128 over T = 256")
    once = [2 * b[1] - b[0], 2 * b[2] - b[1]]  # errors in 1/T cancelled, then those in 1/T^2
    worst.see((4 * once[1] - once[0]) / 3, limit, "T = 64, 128, 256, x_0")
    yield worst.row(BOUND, "Richardson's value = the continuous bound", QUADRATURE)


# ---------------------------------------------------------------------------------- the exact network
@own("bound.one-position")
@torch.no_grad()
def one_position_loses_nothing(method: Diffusion):
    """Position by position the exact reverse kernel is the truth: with one of them nothing is lost,
    in few steps either."""
    distribution, worst = data_distribution(1), Largest()
    denoiser, prior = truth_of(method, length=1), method.process.prior
    for steps in (1, 2, 8):
        times = grid(method, steps)
        p = enumeration.marginal(method.process, enumeration.embed(method.process, distribution, 1), 1, float(times[0]))
        value = (distribution * bounds.step_bound(denoiser, denoiser.x_0, times)).sum()
        worst.see(value, enumeration.entropy(distribution) + maths.kl(p, prior), f"T = {steps}")
    yield worst.row(BOUND, "one position: T steps = H + KL(p_1 || prior)")


def _entropy_gap(method: Diffusion, start: bool = True, jumps: bool = False) -> float:
    """The sum of the three terms at the exact network, less H + KL(p_1 || prior); without the end at PRIOR if asked."""
    distribution, process, denoiser = data_distribution(), method.process, truth_of(method)
    terms = bounds.continuous_terms(denoiser, denoiser.x_0, jumps=jumps)
    whole = all_terms(terms) - (0.0 if start else terms["start"])
    prior = process.prior[enumeration.states(process.K, L)].prod(-1)
    divergence = maths.kl(marginal(process, process.start_time), prior)
    return float((distribution * whole).sum() - enumeration.entropy(distribution) - divergence)


@own("bound.entropy")
@torch.no_grad()
def the_exact_network_reaches_the_entropy(method: Diffusion):
    if discrete(method):
        return
    worst, alpha_1 = Largest(), 1e-5 if method.process.mask is None else 0.3  # the start at t = 1 costs O(alpha_1^2)
    changes = ends(method, alpha_1)
    worst.see(_entropy_gap(method), 0.0, f"alpha(1) = {alpha_1:g}" if changes else "its own alpha(1)")
    yield worst.row(BOUND, "exact network: terms = H + KL(p_1 || prior)", QUADRATURE)


@own("bound.entropy-order")
@torch.no_grad()
def the_entropy_gap_is_of_second_order(method: Diffusion):
    if discrete(method) or method.process.mask is None:
        return
    gaps = [_entropy_gap(method, jumps=True) for a in (0.02, 0.01) if ends(method, a)]
    yield of_order(BOUND, "... with a jump there, order in alpha_1: 2", gaps[0], gaps[1], 2.0)


@own("bound.no-jump")
@torch.no_grad()
def without_the_jump_it_is_no_bound(method: Diffusion):
    if discrete(method) or method.process.mask is None:
        return
    gap = _entropy_gap(method, start=False)
    yield below(BOUND, "without the end at PRIOR it is below H", gap, -1e-10, "< 0", "expected failure, as published")
