"""The bounds of a method."""

import itertools
import math

import torch
from torch import Tensor

from .. import bound, exact, maths
from ..masked import Masked
from ..method import Batch, Method
from ..prediction import truth
from ..process import Process
from ..samplers import Ancestral
from ..schedule import CLEAN, PRIOR, Cosine, Linear, Polynomial, Schedule
from .check import (
    EXACT,
    INSIDE,
    QUADRATURE,
    L,
    Largest,
    Row,
    V,
    data_law,
    enumerable,
    near,
    numbers,
    own,
    pairs,
)

BOUND = "bound"


@own("bound.weighted-ce")
def _(method: Method):
    if not isinstance(method, Masked):
        return
    value, gradient, parameters = Largest(), Largest(), list(method.parameters())
    for t, s in [*((t, None) for t in INSIDE), (0.9, 0.2), (PRIOR, 0.8), (0.3, CLEAN)]:
        x_0, x_t, time, _ = pairs(method.process, t)
        pred, target = method.predict(x_t, time), truth(method.process, x_0, x_t, time)
        if s is None:
            ours, generic = method.diffusion(Batch(x_0), x_t, time[:, 0]), bound.continuous(target, pred).sum(-1)
        else:
            ours = method.step(Batch(x_0), x_t, time[:, 0], torch.full_like(time[:, 0], s))
            generic = bound.discrete(target, pred, torch.full_like(time, s)).sum(-1)
        where = f"t = {t}" + ("" if s is None else f" to {s}")
        k = int((ours - generic).abs().argmax())
        noisy = ["m" if int(i) == method.process.mask else int(i) for i in x_t[k]]
        value.see(ours, generic, f"{where}   x_0 = {x_0[k].tolist()}   x_t = {noisy}")
        weights = 1.1 + numbers(len(x_0))
        one, other = (torch.autograd.grad((weights * v).sum(), parameters)[0] for v in (ours, generic))
        gradient.see(one, other, where)
    yield value.row(BOUND, "weighted cross-entropy = generic bound")
    yield gradient.row(BOUND, "... its gradient")


def total(method: Method, x_0: Tensor) -> Tensor:
    terms = exact.continuous_terms(method, x_0)
    return terms["diffusion"] + terms["reconstruction"] + terms["prior"]


@own("bound.counts")
@torch.no_grad()
def _(method: Method):
    if not isinstance(method, Masked) or method.time_conditioned:
        return
    x_0, worst = exact.states(V, L), Largest()
    exactly = dict.fromkeys(("diffusion", "reconstruction"), torch.zeros(len(x_0), dtype=torch.float64))
    for hidden in itertools.product([False, True], repeat=L):  # E over k in 1..L and over the sets of k positions
        k = sum(hidden)
        if k:
            n = torch.full((len(x_0),), L)
            ce = method.cross_entropy(Batch(x_0), x_0.masked_fill(torch.tensor(hidden), method.process.mask), None)  # pyright: ignore
            for name, weight in zip(exactly, method._count_weights(n, torch.full_like(n, k))):
                exactly[name] = exactly[name] + weight * ce / math.comb(L, k)
    terms = exact.continuous_terms(method, x_0)
    for name, value in exactly.items():
        worst.see(value, terms[name], name)
    yield worst.row(BOUND, "exactly k masks = the integral over t", QUADRATURE)


@own("bound.log-snr")
@torch.no_grad()
def _(method: Method):
    if not isinstance(method, Masked):
        return
    schedule, x_0, worst = method.process.schedule, exact.states(V, L), Largest()
    low, high = (float(schedule.log_snr(t)) for t in (1 - 1e-7, 1e-7))
    total = torch.zeros(len(x_0), dtype=torch.float64)
    for u, w in zip(*exact.quadrature(80)):
        snr = low + (high - low) * u  # -alpha'/(1 - alpha) dt = alpha d(log SNR), alpha = sigmoid(log SNR)
        t = schedule.inverse(torch.sigmoid(snr))
        per_time = exact._expected(method, x_0, t, None) / schedule.weight(t)
        total += w * (high - low) * torch.sigmoid(snr) * per_time
    worst.see(total, exact.continuous_terms(method, x_0)["diffusion"], "x_0")
    yield worst.row(BOUND, "the same integral over log-SNR", QUADRATURE)


def _free_of_time(method: Method, schedule: Schedule) -> Masked | None:
    """The method without time conditioning, under another schedule; None if it has no such form."""
    if not isinstance(method, Masked) or "time" not in method.Config.__dataclass_fields__:
        return None
    free = enumerable(type(method), time=False)
    assert isinstance(free, Masked)
    free.process.schedule = schedule
    return free


@own("bound.schedule")
@torch.no_grad()
def _(method: Method):
    worst, first = Largest(), None
    ends = (1e-2, 0.99)
    for schedule in (Linear(*ends), Cosine(*ends), Polynomial(3.0, *ends)):
        free = _free_of_time(method, schedule)
        if free is None:
            return
        value = total(free, exact.states(V, L))
        first = value if first is None else first
        worst.see(value, first, type(schedule).__name__)
    yield worst.row(BOUND, "time-free: the schedule does not matter", QUADRATURE)


@own("bound.any-order")
@torch.no_grad()
def _(method: Method):
    free = _free_of_time(method, Linear(0.0))
    if free is None:
        return
    worst, x_0 = Largest(), exact.states(V, L)
    worst.see(total(free, x_0), exact.any_order(free, x_0), "x_0")
    yield worst.row(BOUND, "time-free: bound = any-order likelihood", QUADRATURE)


def grid(method: Method, steps: int) -> Tensor:
    return Ancestral().times(method, steps)


@own("bound.steps")
@torch.no_grad()
def _(method: Method):
    x_0, gap, where = exact.states(V, L), math.inf, ""
    for T in (2, 4, 8):
        gaps = exact.step_bound(method, x_0, grid(method, T)) + exact.log_likelihood(method, grid(method, T))
        if float(gaps.min()) < gap:
            gap, where = float(gaps.min()), f"T = {T}, x_0 = {x_0[int(gaps.argmin())].tolist()}"
    yield Row(BOUND, "T = 2, 4, 8: bound ≥ -log p, smallest gap", gap, 0.0, gap >= -EXACT, "≥ 0", where)


@own("bound.normalised")
@torch.no_grad()
def _(method: Method):
    worst = Largest()
    for T in (1, 4):
        worst.see(exact.log_likelihood(method, grid(method, T)).exp().sum(), 1.0, f"T = {T}")
    yield worst.row(BOUND, "T steps: p(x) over all x sums to 1")


@own("bound.limit")
@torch.no_grad()
def _(method: Method):
    x_0, worst = exact.states(V, L), Largest()
    limit = total(method, x_0)
    b = [exact.step_bound(method, x_0, grid(method, T)) for T in (64, 128, 256)]
    ratio = float((b[1] - limit).sum() / (b[2] - limit).sum())
    yield near(BOUND, "gap to continuous time halves as T doubles", ratio, 2.0, 0.1, "T = 128 over T = 256")
    once = [2 * b[1] - b[0], 2 * b[2] - b[1]]  # errors in 1/T cancelled, then those in 1/T^2
    worst.see((4 * once[1] - once[0]) / 3, limit, "T = 64, 128, 256, x_0")
    yield worst.row(BOUND, "Richardson's value = the continuous bound", QUADRATURE)


def _entropy_gap(process: Process, jump: bool = True) -> float:
    """The sum of the three terms at the exact network, less H + KL(p_1 || prior); without the first jump if asked."""
    law, denoiser = data_law(), exact.Denoiser(process, data_law(), L)
    terms = exact.continuous_terms(denoiser, denoiser.x_0)
    total = terms["diffusion"] + terms["reconstruction"] + terms["prior"] - (0.0 if jump else terms["jump"])
    p_1 = exact.marginal(process, exact.embed(process, law, L), L, process.start)
    prior = process.prior[exact.states(process.K, L)].prod(-1)
    return float((law * total).sum() - exact.entropy(law) - maths.kl(p_1, prior))


def _with_end(method: Method, alpha_1: float) -> Process | None:
    """The method's process with another alpha(1); None if its schedule cannot be moved."""
    process = enumerable(type(method)).process
    schedule = getattr(process, "schedule", None)
    if not isinstance(schedule, (Linear, Cosine, Polynomial)):
        return None
    schedule.alpha_1 = alpha_1
    return process


@own("bound.entropy")
def _(method: Method):
    worst = Largest()
    process = _with_end(method, 0.0)
    process = method.process if process is None else process
    worst.see(torch.tensor(_entropy_gap(process)), 0.0, "alpha(1) = 0")
    yield worst.row(BOUND, "exact network: terms = H + KL(p_1 || prior)", QUADRATURE)


@own("bound.entropy-order")
def _(method: Method):
    processes = [_with_end(method, a) for a in (0.02, 0.01)]
    if method.process.mask is None or None in processes:
        return
    gaps = [_entropy_gap(p) for p in processes if p is not None]
    yield near(BOUND, "... its order in alpha_1, claims 2", math.log2(gaps[0] / gaps[1]), 2.0, 0.15)


@own("bound.no-jump")
def _(method: Method):
    if method.process.mask is None:
        return
    gap = _entropy_gap(method.process, jump=False)
    where = "expected failure of the published bound"
    yield Row(BOUND, "without the jump from PRIOR it is below H", gap, 0.0, gap < -1e-6, "< 0", where)
