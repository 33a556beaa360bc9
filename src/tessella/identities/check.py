"""How a check is written, and what is enumerated: the space, its law, the networks."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import exact, methods
from ..masked import Masked
from ..method import Method
from ..nn.table import Table
from ..process import Process, absorbing, uniform
from ..schedule import CLEAN, PRIOR, Cosine, Linear, Polynomial

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


# ---------------------------------------------------------------------------------- how a check is written
SHARED: dict[str, Callable[[], Iterable[Row]]] = {}  # about processes and predictions: the same for every method
OWN: dict[str, Callable[[Method], Iterable[Row]]] = {}  # about one method; empty where it does not apply


def shared(key: str):
    return lambda f: SHARED.setdefault(key, f)


def own(key: str):
    return lambda f: OWN.setdefault(key, f)


class Largest:
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


def near(group: str, identity: str, value: float, target: float, tolerance: float, where: str = "") -> Row:
    """A value that must be `target` ± tolerance, e.g. an order of convergence."""
    ok = abs(value - target) <= tolerance
    return Row(group, identity, value, tolerance, ok, f"{target:g} ± {tolerance:g}", where)


# ---------------------------------------------------------------------------------- what is enumerated
def numbers(*shape: int, size: float = 1.0) -> Tensor:
    """Numbers that look random and are not."""
    n = torch.arange(math.prod(shape), dtype=torch.float64)
    return size * torch.sin(12.9898 * (n + 1) ** 1.37).reshape(shape)


def data_law() -> Tensor:
    weights = (1.05 + numbers(V**L)) ** 2
    return weights / weights.sum()


def processes() -> dict[str, Process]:
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
        network.logits.copy_(numbers(*network.logits.shape, size=1.5))
    method = methods.build(cls, V, network, config, length=L)
    if isinstance(method, Masked) and method.time_conditioned:
        network.unit = float(method.network_time(torch.ones((), dtype=torch.float64)))
    return method


def pairs(process: Process, t: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every clean x_0 with every x_t that it can become: x_0 (N, L), x_t (N, L), times (N, L), q(x_t | x_0) (N,)."""
    X = exact.states(process.K, L)
    X_0 = X[process.clean[X].all(-1)]
    x_0, x_t = X_0.repeat_interleave(len(X), 0), X.repeat(len(X_0), 1)
    time = torch.full(x_t.shape, t, dtype=torch.float64)
    q = process.likelihood(x_t, CLEAN, time).gather(-1, x_0[..., None])[..., 0].prod(-1)
    kept = q > 0
    return x_0[kept], x_t[kept], time[kept], q[kept]


def reachable(process: Process, t: float) -> tuple[Tensor, Tensor, Tensor]:
    """Every x_t of positive probability: x_t (N, L), times (N, L), and its probability (N,)."""
    p = exact.marginal(process, exact.embed(process, data_law(), L), L, t)
    X = exact.states(process.K, L)[p > 0]
    return X, torch.full(X.shape, t, dtype=torch.float64), p[p > 0]
