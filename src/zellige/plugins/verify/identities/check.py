"""Tools of a check: the enumerated space, its data distribution, processes,
and methods with fixed numbers for a network."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from zellige import methods
from zellige.core.curves import Cosine, Exponential, Linear, LinearSigma, Polynomial
from zellige.core.matrices import CTMC
from zellige.core.process import Process, absorbing, uniform
from zellige.core.schedule import CLEAN, PRIOR, Tabulated
from zellige.exact import enumeration
from zellige.methods import tauldr_rates
from zellige.methods.diffusion import Diffusion
from zellige.methods.gidd import Drifting, Hybrid
from zellige.methods.method import Method
from zellige.nn.table import Table
from zellige.samplers import SAMPLERS, Sampler, State
from zellige.samplers.pairing import discrete_times

M = TypeVar("M", bound=Method)

V, L = 3, 2  # tokens and length of the enumerated space
T = 256  # steps of a method whose time is discrete
EXACT, QUADRATURE = 1e-9, 1e-5  # tolerances: of sums, and of integrals over time
TIMES = [CLEAN, 0.0, 0.1875, 0.5625, 0.90625, 1.0, PRIOR]  # all of them on a grid of T steps
INSIDE = [0.09375, 0.5625, 0.90625]


@dataclass(frozen=True)
class Row:
    """One identity: its largest error, what is allowed, and where the largest error is.

    `claim` is how the tolerance is printed: a bound on the error (`1e-09`), `1 ± 0.15` round an order, `≥ 0`. Of the
    rows of several variants of a method the one with the largest `strain` is shown. `seconds` is what the whole check
    of its key took, and `memory` the largest number of bytes that the process had held when it ended.
    """

    group: str
    identity: str
    error: float
    tolerance: float
    ok: bool
    claim: str
    where: str = ""
    strain: float = 0.0
    key: str = ""
    method: str = ""
    seconds: float = 0.0
    memory: int = 0


# ---------------------------------------------------------------------------------- how a check is written
SHARED: dict[str, Callable[[], Iterable[Row]]] = {}  # about processes and predictions: the same for every method
OWN: dict[str, Callable[[Method], Iterable[Row]]] = {}  # about one method; empty where it does not apply
WHOLE: dict[str, Callable[[type[Method]], Iterable[Row]]] = {}  # about a method with all of its options


def shared(key: str):
    return lambda f: SHARED.setdefault(key, f)


def reverses(method: Method) -> bool:
    """Return whether there is a process to reverse."""
    return method.process is not None


def fits(sampler: type[Sampler]) -> Callable[[Method], bool]:
    """Whether there is a process to reverse, and the sampler supports the method."""
    return lambda method: reverses(method) and sampler.reason_against(method) is None


def own(key: str, of: Callable[[Method], bool] = reverses):
    """A check of one method, if it is one `of` those."""
    return lambda f: OWN.setdefault(key, lambda m: f(m) if of(m) else ())


def whole(key: str):
    return lambda f: WHOLE.setdefault(key, f)


class Largest:
    """The largest error seen, and where."""

    def __init__(self):
        self.error, self.where = 0.0, ""

    def see(self, a: Tensor | float, b: Tensor | float, where: str = "") -> None:
        a = a if isinstance(a, Tensor) else torch.tensor(a, dtype=torch.float64)
        difference = torch.where(a == b, 0.0, a - b).abs().detach()  # infinite on both sides is no difference
        worst = float(difference.max()) if not difference.isnan().any() else math.inf
        if worst > self.error:
            seen = difference.nan_to_num(math.inf, math.inf)
            at = (seen == seen.max()).nonzero()[0].tolist()  # torch.unravel_index imports sympy, for a second
            self.error, self.where = worst, f"{where}   entry {at}".strip()

    def see_gradients(self, a: Tensor, b: Tensor, methods: Iterable[Method], where: str = "") -> None:
        """The gradients of two numbers, each for the parameters of its method."""
        pairs = zip((a, b), methods)
        gradients = (torch.autograd.grad(v, list(m.parameters()), materialize_grads=True) for v, m in pairs)
        for x, y in zip(*gradients):
            self.see(x, y, where)

    def row(self, group: str, identity: str, tolerance: float = EXACT) -> Row:
        ok, claim = self.error <= tolerance, f"{tolerance:.0e}"
        return Row(group, identity, self.error, tolerance, ok, claim, self.where, self.error / tolerance)


def worst_of(checks: Iterable[tuple[str, Iterable[Row]]]) -> Iterable[Row]:
    """Of the rows of one identity the one with the largest strain; `where` begins with the name of its check."""
    rows: dict[str, Row] = {}
    for name, found in checks:
        for row in found:
            if row.identity not in rows or row.strain > rows[row.identity].strain:
                rows[row.identity] = dataclasses.replace(row, where=f"{name}: {row.where}" if name else row.where)
    return rows.values()


def near(group: str, identity: str, value: float, target: float, tolerance: float, where: str = "") -> Row:
    """A value that must be `target` ± tolerance, e.g. an order of convergence."""
    away, claim = abs(value - target), f"{target:g} ± {tolerance:g}"
    return Row(group, identity, value, tolerance, away <= tolerance, claim, where, away / tolerance)


def of_order(
    group: str, identity: str, a: float, b: float, order: float, tolerance: float = 0.15, where: str = ""
) -> Row:
    """An error that is `a`, and `b` with half the step: log2(a / b) must be the `order` of convergence."""
    return near(group, identity, math.log2(a / b), order, tolerance, where)


def below(group: str, identity: str, value: float, most: float, claim: str, where: str = "") -> Row:
    """A value that must be `most` at most."""
    return Row(group, identity, value, most, value <= most, claim, where, value)


def above(group: str, identity: str, value: float, least: float, claim: str, where: str = "") -> Row:
    """A value that must be `least` at least."""
    return Row(group, identity, value, least, value >= least, claim, where, -value)


def apart(p: Tensor, q: Tensor) -> float:
    """Total variation between two distributions (N,)."""
    return float((p - q).abs().sum()) / 2


# ---------------------------------------------------------------------------------- what is enumerated
def numbers(*shape: int, size: float = 1.0, shift: int = 0) -> Tensor:
    """Numbers that look random and are not; others for each `shift`."""
    n = torch.arange(math.prod(shape) + shift, dtype=torch.float64)
    return size * torch.sin(12.9898 * (n + 1) ** 1.37)[shift:].reshape(shape)


def data_distribution(length: int = L, shift: int = 0) -> Tensor:
    """A distribution on all texts of this length, (V^length,); another for each `shift`."""
    weights = (1.05 + numbers(V**length, shift=shift)) ** 2
    return weights / weights.sum()


def some_texts() -> Tensor:
    """Three clean texts, (3, L), with each token at each position."""
    return enumeration.states(V, L)[[1, 3, 8]]


def even(n: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights for `exact.expectation` of a draw of one of n steps; of 1 for one that draws no time."""
    return (torch.arange(n, dtype=torch.float64) + 0.5) / n, torch.full((n,), 1 / n, dtype=torch.float64)


def processes() -> dict[str, Process]:
    per_token = Polynomial(torch.tensor([0.7, 1.0, 2.5, 1.0], dtype=torch.float64))
    return {
        "absorbing, linear": absorbing(V + 1, Linear()),
        "absorbing, cosine": absorbing(V + 1, Cosine(1e-4, 1 - 1e-4)),
        "absorbing, one exponent per token": absorbing(V + 1, per_token),
        "uniform, linear": uniform(V, Linear()),
        "masks and random tokens, drifting": Drifting(V + 1, Hybrid(0.3)),
        **chains(),
    }


def chains() -> dict[str, Process]:
    """Of tauLDR's rates, and one that goes one way round a circle of states, which no distribution balances."""
    growing, round_ = Exponential(0.5, 4.0), torch.eye(V, dtype=torch.float64).roll(1, 1)
    return {
        "CTMC, uniform": CTMC(*tauldr_rates.uniform(V), LinearSigma(0.0, 1.0)),
        "CTMC, Gaussian target": CTMC(*tauldr_rates.gaussian(V, 1.0, 2.0), growing),
        "CTMC, birth-death": CTMC(*tauldr_rates.birth_death(V), growing),
        "CTMC, one way": CTMC(round_ - torch.eye(V), tauldr_rates.uniform(V)[1], LinearSigma(1e-2, 2.0)),
    }


N = TypeVar("N", bound=Table)


def with_table(network: N, size: float = 1.5) -> N:
    """The network in float64, with fixed numbers for its logits."""
    with torch.no_grad():
        network.double().logits.copy_(numbers(*network.logits.shape, size=size))
    return network


class _Unit(Table):
    """A table whose time is scaled to [0, 1], so that it is smooth whatever a method tells its network."""

    unit: float = 1.0

    def features(self, x, time=None, **kwargs):
        return super().features(x, None if time is None else time.double() / self.unit, **kwargs)


def enumerable(cls: type[Method], **changes: Any) -> Method:
    """The method with an enumerable network whose numbers are fixed, and so is what else it learns.

    Discrete time has T = 256 steps unless `diffusion_steps` says so.
    """
    config = cls.Config(**changes)
    if getattr(config, "diffusion_steps", 0) and "diffusion_steps" not in changes:  # before tables of 1,000 are made
        return enumerable(cls, diffusion_steps=T, **changes)
    sizes: dict[str, Any] = {"outputs": cls.outputs(V, config), "block": cls.block_size(config)}
    network = with_table(_Unit(cls.states(V, config), L, time=cls.timed(config), **sizes))
    method = methods.build(cls, V, network, config, length=L, ordered=True).double()
    if discrete(method) and "diffusion_steps" not in changes:
        return enumerable(cls, diffusion_steps=T, **changes)
    with torch.no_grad():
        for parameter in method.process.parameters() if method.process is not None else ():
            parameter += numbers(*parameter.shape).abs()
    if method.time_conditioned:
        network.unit = float(method.network_time(torch.ones((), dtype=torch.float64)))
    return method


def variants(cls: type[Method], kinds: bool = False) -> Iterator[tuple[str, Method]]:
    """The method as its paper reports it: each of its `variants`, and what tells it from the first.

    With `kinds`, only those that a sampler with the exact network could tell from the ones before.
    """
    kinds_so_far = set()
    for changes in cls.variants:
        method = enumerable(cls, **changes)
        walks = type(getattr(method, "neighbourhood", None))  # of a method without a process
        noise = () if method.process is None else tuple(method.process.matrix(CLEAN, 0.5).flatten().tolist())
        kind = (noise, walks, method.parameterization)
        kind += tuple(s.reason_against(method) for s in SAMPLERS.values())
        if not kinds or kind not in kinds_so_far:
            words = (k if v is True else v if isinstance(v, str) else f"{k} {v}" for k, v in changes.items())
            yield ", ".join(words), method
        kinds_so_far.add(kind)


def again(method: M, **changes: Any) -> M:
    """The same variant once more, with changes."""
    fields = {f.name: getattr(method.config, f.name) for f in dataclasses.fields(method.config)}
    return cast(M, enumerable(type(method), **{**fields, **changes}))


def discrete(method: Method) -> bool:
    """Return whether only the times of a grid exist."""
    return discrete_times(method) > 0


def one_alpha(method: Method) -> bool:
    """Return whether the noise has a schedule with one alpha for all tokens."""
    schedule = getattr(method.process, "schedule", None)
    return schedule is not None and schedule.alpha(0.5).shape[-1] == 1


def end_at(method: Method, alpha_1: float, alpha_0: float | None = None) -> bool:
    """Move alpha(1), and alpha(0) if it is given; False if there is no schedule that can be moved."""
    schedule = getattr(method.process, "schedule", None)
    if schedule is None or isinstance(schedule, Tabulated):
        return False
    schedule.alpha_1, schedule.alpha_0 = alpha_1, schedule.alpha_0 if alpha_0 is None else alpha_0
    if hasattr(schedule, "sigma_max"):  # alpha is made of sigma
        schedule.sigma_min, schedule.sigma_max = -math.log(schedule.alpha_0), -math.log(alpha_1)
    elif (
        isinstance(schedule, Polynomial) and alpha_0 is not None
    ):  # its curve begins there, and t = 0 may lie behind that
        reach = float((1 - schedule.begin**schedule.w).min())
        schedule.alpha_0 = min(alpha_1 + (alpha_0 - alpha_1) / reach, 1.0)
    return True


def ends(method: Method, alpha_1: float) -> bool:
    """`end_at`, and alpha(0) is 1 - 1e-4 at least: a jump from there to clean tokens costs O((1 - alpha_0)^2)."""
    alpha_0 = getattr(getattr(method.process, "schedule", None), "alpha_0", 1.0)
    return end_at(method, alpha_1, max(alpha_0, 1 - 1e-4))


def mild(method: M) -> M:
    """The same with less noise and a network nearer to uniform: few steps do for a limit, and no kernel of a score is
    clipped."""
    schedule = getattr(method.process, "schedule", None)
    if isinstance(schedule, Polynomial):
        schedule.begin = 0.2  # t^w is not smooth at 0
    end_at(method, 0.3, 0.7)
    if isinstance(schedule, Exponential):
        schedule.growth = 2.0  # nearer to even in t
    with torch.no_grad():
        method.network.logits.mul_(0.2)
    return method


def truth_of(method: Diffusion, distribution: Tensor | None = None, length: int = L) -> enumeration.Denoiser:
    """The exact network for the data's distribution, or another one, read as the method reads its own; of one with a
    process."""
    truth = enumeration.Denoiser(
        method.process,
        data_distribution(length) if distribution is None else distribution,
        length,
        method.parameterization,
    )
    truth.ordered = method.ordered
    return truth


def pairs(process: Process, t: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every clean x_0 with every x_t that it can become: x_0 (N, L), x_t (N, L), times (N, L), q(x_t | x_0) (N,)."""
    X = enumeration.states(process.K, L)
    X_0 = X[enumeration.is_clean(process, L)]
    x_0, x_t = X_0.repeat_interleave(len(X), 0), X.repeat(len(X_0), 1)
    time = torch.full(x_t.shape, t, dtype=torch.float64)
    q = process.likelihood(x_t, CLEAN, time).gather(-1, x_0[..., None])[..., 0].prod(-1)
    possible = q > 0
    return x_0[possible], x_t[possible], time[possible], q[possible]


def reachable(process: Process, t: float) -> tuple[Tensor, Tensor, Tensor]:
    """Every x_t of positive probability: x_t (N, L), times (N, L), and its probability (N,)."""
    p = marginal(process, t)
    X = enumeration.states(process.K, L)[p > 0]
    return X, torch.full(X.shape, t, dtype=torch.float64), p[p > 0]


def marginal(process: Process, t: float) -> Tensor:
    """Distribution of x_t, (K^L,)."""
    return enumeration.marginal(process, enumeration.embed(process, data_distribution(), L), L, t)


def of_clean(method: Diffusion, distribution: Tensor) -> Tensor:
    """The entries of a distribution (K^L,) on clean sequences, (V^L,)."""
    return distribution[enumeration.is_clean(method.process, L)]


def state_of(x: Tensor, **more: Any) -> State:
    """A sampler's state of texts (B, L) in which nothing is given; `more` of its fields."""
    return State(x, torch.zeros_like(x, dtype=torch.bool), torch.zeros_like(x[:, 0]), **more)


def every_state(method: Diffusion) -> State:
    """A sampler's state of every sequence of the space."""
    return state_of(enumeration.states(method.process.K, L))
