"""What must hold, each identity a function that returns its largest error. `verify` runs them and prints the table.

The space is small (3 tokens, length 2): every expectation is a sum, every integral a quadrature, and the law of a sampler a
product of transition matrices of its actual code (see `exact`). Networks and laws are fixed numbers, so nothing is random.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import bound, exact, maths, methods
from .masked import Masked
from .method import Batch, Method
from .nn.table import Table
from .prediction import as_leave_one_out, as_mean, as_score, reverse, reverse_rate, score, truth
from .process import Process, absorbing, uniform
from .samplers import Ancestral, FirstHitting
from .schedule import CLEAN, PRIOR, Cosine, Linear, Polynomial, Schedule

V, L = 3, 2  # tokens and length of the enumerated space
EXACT, QUADRATURE = 1e-9, 1e-5  # tolerances: of sums, and of integrals over time
TIMES = [CLEAN, 0.0, 0.2, 0.55, 0.9, 1.0, PRIOR]
INSIDE = [0.1, 0.55, 0.9]


@dataclass(frozen=True)
class Row:
    """One identity: its largest error, what is allowed, and where the largest error is.

    `claim` is how the tolerance is printed: a bound on the error (`1e-09`), `± 0.15` round an order, `≥ 0`.
    """

    group: str
    identity: str
    error: float
    tolerance: float
    ok: bool
    claim: str
    where: str = ""
    key: str = ""
    method: str = ""


# ---------------------------------------------------------------------------------- how a check is written
SHARED: dict[str, Callable[[], Iterable[Row]]] = {}  # about processes and predictions: the same for every method
OWN: dict[str, Callable[[Method], Iterable[Row]]] = {}  # about one method; empty where it does not apply


def _shared(key: str):
    return lambda f: SHARED.setdefault(key, f)


def _own(key: str):
    return lambda f: OWN.setdefault(key, f)


class _Largest:
    """The largest error seen, and where."""

    def __init__(self):
        self.error, self.where = 0.0, ""

    def see(self, a: Tensor, b: Tensor | float, where: str = "") -> None:
        difference = (a - b).abs().detach()
        worst = float(difference.max()) if not difference.isnan().any() else math.inf
        if worst > self.error:
            at = [int(i) for i in torch.unravel_index(difference.argmax(), difference.shape)]
            self.error, self.where = worst, f"{where}   entry {at}".strip()

    def row(self, group: str, identity: str, tolerance: float = EXACT) -> Row:
        ok = self.error <= tolerance
        return Row(group, identity, self.error, tolerance, ok, f"{tolerance:.0e}", self.where)


def _near(group: str, identity: str, value: float, target: float, tolerance: float, where: str = "") -> Row:
    """A value that must be `target` ± tolerance, e.g. an order of convergence."""
    ok = abs(value - target) <= tolerance
    return Row(group, identity, value, tolerance, ok, f"{target:g} ± {tolerance:g}", where)


# ---------------------------------------------------------------------------------- what is enumerated
def _fixed(*shape: int, size: float = 1.0) -> Tensor:
    """Numbers that look random and are not."""
    n = torch.arange(math.prod(shape), dtype=torch.float64)
    return size * torch.sin(12.9898 * (n + 1) ** 1.37).reshape(shape)


def _law() -> Tensor:
    weights = (1.05 + _fixed(V**L)) ** 2
    return weights / weights.sum()


def _processes() -> dict[str, Process]:
    per_token = Polynomial(torch.tensor([0.7, 1.0, 2.5, 1.0], dtype=torch.float64))
    return {
        "absorbing, linear": absorbing(V + 1, Linear()),
        "absorbing, cosine": absorbing(V + 1, Cosine(1e-4, 1 - 1e-4)),
        "absorbing, one exponent per token": absorbing(V + 1, per_token),
        "uniform, linear": uniform(V, Linear()),
    }


class _Unit(Table):
    """A table whose time is scaled to [0, 1], so that it is smooth whatever a method tells its network."""

    unit: float = 1.0

    def features(self, x, time=None, **kwargs):
        return super().features(x, None if time is None else time.double() / self.unit, **kwargs)


def enumerable(cls: type[Method], **changes: Any) -> Method:
    """The method with an enumerable network whose numbers are fixed."""
    config = cls.Config(**changes)
    network = _Unit(cls.states(V, config), L, time=cls.timed(config)).double()
    with torch.no_grad():
        network.logits.copy_(_fixed(*network.logits.shape, size=1.5))
    method = methods.build(cls, V, network, config, length=L)
    if isinstance(method, Masked) and method.time_conditioned:
        network.unit = float(method.network_time(torch.ones((), dtype=torch.float64)))
    return method


def _pairs(process: Process, t: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every clean x_0 with every x_t that it can become: x_0 (N, L), x_t (N, L), times (N, L), q(x_t | x_0) (N,)."""
    X = exact.states(process.K, L)
    X_0 = X[process.clean[X].all(-1)]
    x_0, x_t = X_0.repeat_interleave(len(X), 0), X.repeat(len(X_0), 1)
    time = torch.full(x_t.shape, t, dtype=torch.float64)
    q = process.likelihood(x_t, CLEAN, time).gather(-1, x_0[..., None])[..., 0].prod(-1)
    kept = q > 0
    return x_0[kept], x_t[kept], time[kept], q[kept]


def _reachable(process: Process, t: float) -> tuple[Tensor, Tensor, Tensor]:
    """Every x_t of positive probability: x_t (N, L), times (N, L), and its probability (N,)."""
    p = exact.marginal(process, exact.embed(process, _law(), L), L, t)
    X = exact.states(process.K, L)[p > 0]
    return X, torch.full(X.shape, t, dtype=torch.float64), p[p > 0]


PROCESS = "process: absorbing (linear, cosine, alpha per token), uniform"
PREDICTION = "prediction: mean, leave-one-out, score at the exact network"
BOUND, SAMPLER = "bound", "sampler"


# ---------------------------------------------------------------------------------- processes
@_shared("process.semigroup")
def _():
    worst = _Largest()
    for (name, P), (s, t, u) in itertools.product(_processes().items(), itertools.combinations(TIMES, 3)):
        worst.see(P.matrix(s, u), P.matrix(s, t) @ P.matrix(t, u), f"{name}, times {s}, {t}, {u}")
        worst.see(P.matrix(s, u).sum(-1), 1.0, f"{name}, rows of Q({s}, {u})")
    yield worst.row(PROCESS, "semigroup  Q(s,u) = Q(s,t) Q(t,u), with jumps")


def _derivative(f: Callable[[Tensor], Tensor], t: float) -> Tensor:
    at = torch.tensor(t, dtype=torch.float64)
    return torch.func.jvp(f, (at,), (torch.ones_like(at),))[1]


@_shared("process.forward")
def _():
    worst = _Largest()
    for (name, P), s, t in itertools.product(_processes().items(), [CLEAN, 0.05], INSIDE):
        slope = _derivative(lambda t, P=P, s=s: P.matrix(s, t), t)
        worst.see(slope, P.matrix(s, t) @ P.rate(t), f"{name}, {s} to {t}")
    yield worst.row(PROCESS, "forward equation  dQ/dt = Q R, also from CLEAN")


@_shared("process.backward")
def _():
    worst = _Largest()
    for (name, P), s, t in itertools.product(_processes().items(), INSIDE, [0.95, PRIOR]):
        slope = _derivative(lambda s, P=P, t=t: P.matrix(s, t), s)
        worst.see(slope, -P.rate(s) @ P.matrix(s, t), f"{name}, {s} to {t}")
    yield worst.row(PROCESS, "backward equation  dQ/ds = -R Q, also to PRIOR")


@_shared("process.fast")
def _():
    worst = _Largest()
    for name, P in _processes().items():
        v, x = 1.1 + _fixed(P.K, P.K), torch.arange(P.K)
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


@_shared("process.factorised")
def _():
    worst = _Largest()
    for (name, P), t in itertools.product(_processes().items(), INSIDE):
        R = _joint_rate(P, t)
        joint = lambda t, P=P: torch.kron(P.matrix(CLEAN, t), P.matrix(CLEAN, t))  # noqa: E731
        worst.see(_derivative(joint, t), joint(t) @ R, f"{name}, t = {t}: forward equation on K^L")
        p = exact.marginal(P, exact.embed(P, _law(), L), L, t)
        X, time, p_t = _reachable(P, t)
        each = reverse_rate(exact.Denoiser(P, _law(), L).predict(X, time))  # (N, L, K)
        whole = R[:, exact.index(X, P.K)].T * p / p_t[:, None]  # (N, K^L): R(y, x) p(y) / p(x)
        for i, y in itertools.product(range(L), range(P.K)):
            moved = X.clone()
            moved[:, i] = y
            here = whole.gather(-1, exact.index(moved, P.K)[:, None])[:, 0]
            worst.see(each[:, i, y], torch.where(X[:, i] == y, 0.0, here), f"{name}, t = {t}")
    yield worst.row(PROCESS, "rates position by position = rates on K^L")


# ---------------------------------------------------------------------------------- predictions
def _three(P: Process, X: Tensor, time: Tensor) -> dict[str, Any]:
    return {k: exact.Denoiser(P, _law(), L, k).predict(X, time) for k in ("mean", "leave_one_out", "score")}


def _same(worst: _Largest, of: Callable[[Any], Tensor], convert: bool = False) -> None:
    for (name, P), t in itertools.product(_processes().items(), INSIDE):
        X, time, _ = _reachable(P, t)
        three = _three(P, X, time)
        first = of(three["mean"])
        for kind, pred in three.items():
            forms = [f(pred) for f in (as_mean, as_leave_one_out, as_score)] if convert else [pred]
            for form in forms:
                worst.see(of(form), first, f"{name}, t = {t}: {kind}")


@_shared("prediction.bayes")
def _():
    worst = _Largest()
    for (name, P), t, s in itertools.product(_processes().items(), INSIDE, [CLEAN, 0.05]):
        X, time, p_t = _reachable(P, t)
        p_s = exact.marginal(P, exact.embed(P, _law(), L), L, s)
        Q = torch.kron(P.matrix(s, t), P.matrix(s, t))[:, exact.index(X, P.K)]
        whole = (p_s[:, None] * Q / p_t).T.reshape(-1, P.K, P.K)  # p(x_s | x_t) on K^L
        ours = reverse(exact.Denoiser(P, _law(), L).predict(X, time), s)
        worst.see(ours, torch.stack([whole.sum(2), whole.sum(1)], 1), f"{name}, {t} to {s}")
    yield worst.row(PREDICTION, "reverse kernel = Bayes' rule on K^L")


@_shared("prediction.kernel")
def _():
    worst = _Largest()
    for s in (CLEAN, 0.0, 0.05):
        _same(worst, lambda pred, s=s: reverse(pred, s))
    yield worst.row(PREDICTION, "same reverse kernel p(x_s | x_t)")


@_shared("prediction.rate")
def _():
    worst = _Largest()
    _same(worst, reverse_rate)
    yield worst.row(PREDICTION, "same reverse rate")


@_shared("prediction.convert")
def _():
    worst = _Largest()
    _same(worst, lambda pred: reverse(pred, 0.05), convert=True)
    _same(worst, reverse_rate, convert=True)
    yield worst.row(PREDICTION, "each converts into each: same kernel and rate")


@_shared("prediction.mask")
def _():
    worst = _Largest()
    for name in ("absorbing, linear", "absorbing, cosine"):
        P = _processes()[name]
        for t in INSIDE:
            X, time, _ = _reachable(P, t)
            odds = P.schedule.alpha(t) / (1 - P.schedule.alpha(t))
            for kind, pred in _three(P, X, time).items():
                v = score(pred)[P.mask == X]
                worst.see(v[:, P.clean].sum(-1), odds, f"{name}, t = {t}: {kind}")
    yield worst.row(PREDICTION, "score at a mask sums to alpha/(1 - alpha)")


# ---------------------------------------------------------------------------------- bounds of a method
@_own("bound.weighted-ce")
def _(method: Method):
    if not isinstance(method, Masked):
        return
    value, gradient, parameters = _Largest(), _Largest(), list(method.parameters())
    for t, s in [*((t, None) for t in INSIDE), (0.9, 0.2), (PRIOR, 0.8), (0.3, CLEAN)]:
        x_0, x_t, time, _ = _pairs(method.process, t)
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
        weights = 1.1 + _fixed(len(x_0))
        one, other = (torch.autograd.grad((weights * v).sum(), parameters)[0] for v in (ours, generic))
        gradient.see(one, other, where)
    yield value.row(BOUND, "weighted cross-entropy = generic bound")
    yield gradient.row(BOUND, "... its gradient")


def _total(method: Method, x_0: Tensor) -> Tensor:
    terms = exact.continuous_terms(method, x_0)
    return terms["diffusion"] + terms["reconstruction"] + terms["prior"]


@_own("bound.counts")
@torch.no_grad()
def _(method: Method):
    if not isinstance(method, Masked) or method.time_conditioned:
        return
    x_0, worst = exact.states(V, L), _Largest()
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


@_own("bound.log-snr")
@torch.no_grad()
def _(method: Method):
    if not isinstance(method, Masked):
        return
    schedule, x_0, worst = method.process.schedule, exact.states(V, L), _Largest()
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


@_own("bound.schedule")
@torch.no_grad()
def _(method: Method):
    worst, first = _Largest(), None
    ends = (1e-2, 0.99)
    for schedule in (Linear(*ends), Cosine(*ends), Polynomial(3.0, *ends)):
        free = _free_of_time(method, schedule)
        if free is None:
            return
        value = _total(free, exact.states(V, L))
        first = value if first is None else first
        worst.see(value, first, type(schedule).__name__)
    yield worst.row(BOUND, "time-free: the schedule does not matter", QUADRATURE)


@_own("bound.any-order")
@torch.no_grad()
def _(method: Method):
    free = _free_of_time(method, Linear(0.0))
    if free is None:
        return
    worst, x_0 = _Largest(), exact.states(V, L)
    worst.see(_total(free, x_0), exact.any_order(free, x_0), "x_0")
    yield worst.row(BOUND, "time-free: bound = any-order likelihood", QUADRATURE)


def _times(method: Method, steps: int) -> Tensor:
    return Ancestral().times(method, steps)


@_own("bound.steps")
@torch.no_grad()
def _(method: Method):
    x_0, gap, where = exact.states(V, L), math.inf, ""
    for T in (2, 4, 8):
        gaps = exact.step_bound(method, x_0, _times(method, T)) + exact.log_likelihood(method, _times(method, T))
        if float(gaps.min()) < gap:
            gap, where = float(gaps.min()), f"T = {T}, x_0 = {x_0[int(gaps.argmin())].tolist()}"
    yield Row(BOUND, "T = 2, 4, 8: bound ≥ -log p, smallest gap", gap, 0.0, gap >= -EXACT, "≥ 0", where)


@_own("bound.normalised")
@torch.no_grad()
def _(method: Method):
    worst = _Largest()
    for T in (1, 4):
        worst.see(exact.log_likelihood(method, _times(method, T)).exp().sum(), 1.0, f"T = {T}")
    yield worst.row(BOUND, "T steps: p(x) over all x sums to 1")


@_own("bound.limit")
@torch.no_grad()
def _(method: Method):
    x_0, worst = exact.states(V, L), _Largest()
    limit = _total(method, x_0)
    b = [exact.step_bound(method, x_0, _times(method, T)) for T in (64, 128, 256)]
    ratio = float((b[1] - limit).sum() / (b[2] - limit).sum())
    yield _near(BOUND, "gap to continuous time halves as T doubles", ratio, 2.0, 0.1, "T = 128 over T = 256")
    once = [2 * b[1] - b[0], 2 * b[2] - b[1]]  # errors in 1/T cancelled, then those in 1/T^2
    worst.see((4 * once[1] - once[0]) / 3, limit, "T = 64, 128, 256, x_0")
    yield worst.row(BOUND, "Richardson's value = the continuous bound", QUADRATURE)


def _entropy_gap(process: Process, jump: bool = True) -> float:
    """The sum of the three terms at the exact network, less H + KL(p_1 || prior); without the first jump if asked."""
    law, denoiser = _law(), exact.Denoiser(process, _law(), L)
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


@_own("bound.entropy")
def _(method: Method):
    worst = _Largest()
    process = _with_end(method, 0.0)
    process = method.process if process is None else process
    worst.see(torch.tensor(_entropy_gap(process)), 0.0, "alpha(1) = 0")
    yield worst.row(BOUND, "exact network: terms = H + KL(p_1 || prior)", QUADRATURE)


@_own("bound.entropy-order")
def _(method: Method):
    processes = [_with_end(method, a) for a in (0.02, 0.01)]
    if method.process.mask is None or None in processes:
        return
    gaps = [_entropy_gap(p) for p in processes if p is not None]
    yield _near(BOUND, "... its order in alpha_1, claims 2", math.log2(gaps[0] / gaps[1]), 2.0, 0.15)


@_own("bound.no-jump")
def _(method: Method):
    if method.process.mask is None:
        return
    gap = _entropy_gap(method.process, jump=False)
    where = "expected failure of the published bound"
    yield Row(BOUND, "without the jump from PRIOR it is below H", gap, 0.0, gap < -1e-6, "< 0", where)


# ---------------------------------------------------------------------------------- samplers
def distance(method: Method, sampler: Any, steps: int) -> float:
    """Total variation between the law of the sampler's samples and the data's, with the exact network."""
    denoiser = exact.Denoiser(method.process, _law(), L, method.predicts)
    law = exact.sample_law(sampler, denoiser, steps)
    return float((law - exact.embed(method.process, _law(), L)).abs().sum()) / 2


def _order(method: Method, sampler: Any, identity: str) -> Row:
    """The order in 1/T at which the law of the samples approaches the data's; the claim is 1."""
    a, b = (distance(method, sampler, T) for T in (128, 256))
    return _near(SAMPLER, identity, math.log2(a / b), 1.0, 0.15, f"distance {a:.2e} at T = 128, {b:.2e} at T = 256")


GIVEN = torch.tensor([1, -1])


@_own("sampler.ancestral")
def _(method: Method):
    yield _order(method, Ancestral(), "ancestral  order in 1/steps, claims 1")


@_own("sampler.ancestral-cosine")
def _(method: Method):
    yield _order(method, Ancestral("cosine"), "ancestral, cosine grid  order, claims 1")


@_own("sampler.choose")
@torch.no_grad()
def _(method: Method):
    if method.process.mask is None:
        return
    worst = _Largest()
    for T in (1, 2, 5):
        chosen, plain = (exact.sample_law(Ancestral(choose=c), method, T) for c in (True, False))
        worst.see(chosen, plain, f"T = {T}")
        clean = plain[method.process.clean[exact.states(method.process.K, L)].all(-1)]
        worst.see(clean, exact.log_likelihood(method, _times(method, T)).exp(), f"T = {T}, and p(x) of the model")
    yield worst.row(SAMPLER, "choose-then-ask = the plain kernel = p(x)")


@_own("sampler.first_hitting")
@torch.no_grad()
def _(method: Method):
    if method.process.mask is None:
        return
    worst, law = _Largest(), exact.embed(method.process, _law(), L)
    denoiser = exact.Denoiser(method.process, _law(), L)
    worst.see(exact.sample_law(FirstHitting(), denoiser, L), law, "exact network")
    yield worst.row(SAMPLER, "first_hitting  law = the data's")


@_own("sampler.infill")
@torch.no_grad()
def _(method: Method):
    if method.process.mask is None:
        return
    X, worst = exact.states(method.process.K, L), _Largest()
    law = exact.embed(method.process, _law(), L) * ((GIVEN == X) | (GIVEN < 0)).all(-1)
    denoiser = exact.Denoiser(method.process, _law(), L)
    worst.see(exact.sample_law(FirstHitting(), denoiser, L, GIVEN), law / law.sum(), "given [1, _]")
    worst.see(exact.sample_law(Ancestral(), denoiser, 16, GIVEN), law / law.sum(), "one gap: ancestral, 16 steps")
    yield worst.row(SAMPLER, "infilling  law = the exact conditional law")
