"""Small worlds for the tests: data distributions, dense processes that are no `Mixture`, sources of draws that can be
enumerated.

What is enumerated is the space of `zellige verify`, and the library's chains by matrices are those that it goes through. `CTMC`
and `Chain` are subclasses of `Process` that give nothing but `matrix` (and `rate`): they show that predictions, bounds
and samplers need nothing else.
"""

import itertools
import math
from collections.abc import Iterator

import torch
from hypothesis import settings
from torch import Tensor, nn

from zellige.core import matrices
from zellige.core.curves import Cosine, Linear, Polynomial
from zellige.core.process import Mixture, Process, absorbing, uniform
from zellige.core.schedule import PRIOR
from zellige.nn import Table
from zellige.plugins.verify.identities.check import L, V, chains

# a busy machine is no failure; the same examples always
settings.register_profile("zellige", deadline=None, derandomize=True)
settings.load_profile("zellige")


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Uniform float64 numbers in (0, 1)."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def data_distribution(V: int = V, L: int = L, seed: int = 1) -> Tensor:
    p = numbers(V**L, seed=seed) ** 3 + 0.01
    return p / p.sum()


def positions(K: int, n: int = 200, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random logits (n, K), x_0 and x_t (n,) of every pairing that a position of K states can have."""
    x_0 = (V * numbers(n, seed=seed + 1)).long()
    x_t = torch.where(numbers(n, seed=seed + 2) < 0.5, x_0, (K * numbers(n, seed=seed + 3)).long())
    return 6 * numbers(n, K, seed=seed) - 3, x_0, x_t


def value_and_gradient(cost, logits: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
    """cost(logits, *rest), (N,), and the gradient of a weighted sum of it for the logits."""
    logits = logits.clone().requires_grad_()
    value = cost(logits, *rest)
    return value.detach(), torch.autograd.grad((value * numbers(len(value), seed=9)).sum(), logits)[0]


def per_token(*w: float) -> Tensor:
    return torch.tensor(w, dtype=torch.float64)


def times(t) -> Tensor:
    return torch.as_tensor(t, dtype=torch.float64)


class CTMC(Process):
    """Q_{s,t} = exp((tau(t) - tau(s)) R) with any generator R and tau = t + t^2; a jump to the stationary distribution at PRIOR
    only."""

    def __init__(self, R: Tensor):
        A = torch.cat((R.T, torch.ones(1, len(R), dtype=R.dtype)))
        e = torch.zeros(len(R) + 1, dtype=R.dtype)
        e[-1] = 1.0
        super().__init__(torch.linalg.lstsq(A, e[:, None]).solution[:, 0])
        self.R = R

    def matrix(self, s, t):
        s, t = torch.broadcast_tensors(times(s), times(t))
        tau = [(u := w.clamp(0.0, 1.0)) + u**2 for w in (s, t)]
        Q = torch.linalg.matrix_exp((tau[1] - tau[0])[..., None, None] * self.R)
        jump = ((t == PRIOR) & (s < PRIOR))[..., None, None]
        return torch.where(jump, self.prior.expand_as(Q), Q)

    def rate(self, t):
        return (1 + 2 * times(t))[..., None, None] * self.R


class Chain(Process):
    """T stochastic matrices that need not commute: Q_{s,t} = M_{i+1} .. M_j on the grid i / T; PRIOR lies beyond the last."""

    def __init__(self, steps: Tensor):
        T, K, _ = steps.shape
        super().__init__(torch.full((K,), 1 / K, dtype=steps.dtype))
        table = torch.eye(K, dtype=steps.dtype).repeat(T + 2, T + 2, 1, 1)
        for i in range(T + 1):
            for j in range(i, T):
                table[i, j + 1] = table[i, j] @ steps[j]
            table[i, T + 1] = self.prior
        self.T, self.table = T, table

    def matrix(self, s, t):
        i, j = ((times(u).clamp(0.0, (self.T + 1) / self.T) * self.T) for u in (s, t))
        i, j = torch.broadcast_tensors(i, j)
        assert ((i - i.round()).abs() < 1e-6).all(), "a chain's time is on its grid"
        return self.table[i.round().long(), j.round().long()]


def generator_matrix(K: int, seed: int = 2) -> Tensor:
    R = numbers(K, K, seed=seed)
    R.fill_diagonal_(0.0)
    return R - torch.diag(R.sum(1))


def chain(K: int = V, T: int = 10) -> Chain:
    """Each step keeps a token with probability about 0.8, else moves it by a random matrix."""
    M = numbers(T, K, K, seed=3)
    return Chain(0.8 * torch.eye(K, dtype=torch.float64) + 0.2 * M / M.sum(-1, keepdim=True))


def mixtures() -> dict[str, Mixture]:
    vector = Polynomial(per_token(0.7, 1.0, 2.5, 1.3))
    prior = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    grey = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    return {
        "absorbing": absorbing(V + 1, Linear()),
        "absorbing, below 1 at 0": absorbing(V + 1, Cosine(1e-2, 1 - 1e-2)),
        "absorbing, mask in the middle": absorbing(V + 1, Linear(1e-2), mask=1),
        "absorbing, exponent per token": absorbing(V + 1, vector),
        "uniform": uniform(V, Linear()),
        "any prior": Mixture(prior, Cosine(1e-2)),
        "absorbing into a data state": Mixture(grey, Linear(1e-2)),
        "into a data state, exponent per token": Mixture(grey, Polynomial(per_token(0.6, 1.0, 2.0))),
    }


def processes() -> dict[str, Process]:
    """All kinds that have a rate."""
    return {**mixtures(), "ctmc": CTMC(generator_matrix(V)), **chains()}


def all_processes() -> dict[str, Process]:
    own = matrices.Chain(
        chain().table.diagonal(1).movedim(-1, 0)[:10], torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    )
    return {**processes(), "chain": chain(), "Chain": own}


def table(states: int, length: int, time: bool = False, seed: int = 0, outputs: int | None = None) -> Table:
    """An enumerable network in float64; a time in [0, 1] or sigma."""
    network = Table(states, length, time=time, outputs=outputs).double()
    with torch.no_grad():
        network.logits.copy_(3 * numbers(*network.logits.shape, seed=seed) - 1.5)
    return network


class Given:
    """A source that gives these uniforms, one after the other; scalars fill the shape."""

    def __init__(self, *draws: Tensor | float):
        self.draws = [torch.as_tensor(d, dtype=torch.float64) for d in draws]

    def uniform(self, shape, device):
        draw, *self.draws = self.draws
        return draw.expand(tuple(shape)).clone()


def orders(L: int) -> Iterator[Tensor]:
    """All L! orders as uniforms (L,)."""
    for order in itertools.permutations(range(L)):
        yield (torch.tensor(order).double() + 0.5) / L


def five_sigma(draws: Tensor, expected: Tensor | float) -> bool:
    """Whether the mean of draws (N, *) is within 5.5 standard errors of `expected`; a false alarm: 4e-8 an entry."""
    error = draws.std(0) / math.sqrt(len(draws))
    return bool(((draws.mean(0) - expected).abs() <= 5.5 * error + 1e-12).all())


class Counting(nn.Module):
    """A network that counts the rows it is asked and the positions its head computes."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network, self.rows, self.heads = network, [], 0

    def features(self, x, time=None, **kwargs):
        self.rows.append(len(x))
        return self.network.features(x, time, **kwargs)

    def head(self, h):
        self.heads += h[..., 0].numel()
        return self.network.head(h)


class LogitsOf(nn.Module):
    """The logits that a method's head of two numbers stands for, as a network whose head gives them."""

    def __init__(self, method):
        super().__init__()
        self.logits = lambda x, time: method._clean(method.network.features(x, time), x)

    def features(self, x, time=None, **kwargs):
        return self.logits(x, time)

    def head(self, h):
        return h
