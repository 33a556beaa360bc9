"""A training step of tauLDR at 256 levels, Zellige's against the published formulation.

python benchmarks/ctmc_step.py [--process gaussian|birth-death|uniform] [--prediction leave-one-out] [--objective two-pass]
                               [--length 3072] [--rounds N] [--threads N] [--small] [--json FILE]

Published: q(x_t | x_0) and R_t as one matrix for each row of the batch; rows and columns of them gathered for every
position, (B, L, K) each, masks of ones with a zero at x, and two products (B, L, K) x (B, K, K) for each network call; in
float32 with 1e-9 in the denominators. Ours: the same sums, a chunk of positions at a time. Published is one network call, at
x~, and so is ours but in two-pass. The network is a table and a linear head: what differs is the objective, so only that is
timed.
"""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import measure
from zellige.core import random
from zellige.core.batch import Batch
from zellige.core.curves import LinearSigma
from zellige.core.matrices import CTMC
from zellige.methods import TauLDR, tauldr_rates

SIZES = {"K = 256, L = 784, B = 8": (256, 784, 8), "K = 256, L = 784, B = 32": (256, 784, 32)}
LARGE = {"K = 256, L = 3,072, B = 8": (256, 3072, 8)}
SMALL = {"K = 16, L = 49, B = 2": (16, 49, 2)}
CONFIGS = {
    "gaussian": TauLDR.Config("gaussian", base=3.0, growth=100.0, rate_sigma=6.0, target_sigma=512.0),
    "birth-death": TauLDR.Config("birth-death"),
    "uniform": TauLDR.Config("uniform", base=0.03),
}
EPS = 1e-9


class Cheap(nn.Module):
    """A table and a head."""

    def __init__(self, states: int, width: int = 16):
        super().__init__()
        self.embedding, self.head = nn.Embedding(states, width), nn.Linear(width, states)

    def features(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        return self.embedding(x)


def make(name: str, states: int, length: int) -> TauLDR:
    torch.manual_seed(0)
    process, prediction, objective = name.split(",")
    config = replace(CONFIGS[process], prediction=prediction, objective=objective)
    return TauLDR(Cheap(states), states, (length,), config)


class Published:
    """Its noise, with an eigenbasis made once; and its loss."""

    def __init__(self, method: TauLDR):
        self.method, config, K = method, method.config, method.process.K
        if config.process == "uniform":
            R, distribution, schedule = (
                *tauldr_rates.uniform(K),
                LinearSigma(config.base * config.min_time, config.base),
            )
        else:
            R, distribution, schedule = method.process.R, method.process.prior, method.process.schedule
        self.R, self.schedule = R, CTMC(R, distribution, schedule).schedule
        root = distribution.sqrt()
        self.values, vectors = torch.linalg.eigh(root[:, None] * R / root)
        self.right, self.left = vectors / root[:, None], vectors.T * root

    def loss(self, x_0: Tensor, generator: torch.Generator) -> Tensor:
        B = len(x_0)
        t = 1 - random.stratified(B, generator)
        sigma, beta = self.schedule.sigma(t)[:, :, None], self.schedule.beta(t)[:, :, None]
        q = ((self.right * (sigma * self.values).exp()) @ self.left).float().clamp_min(0.0)  # (B, K, K)
        R = (beta * self.R).float()
        row = torch.arange(B)[:, None]
        x_t = random.categorical(q[row, x_0], generator)
        leaving = R[row, x_t].scatter(-1, x_t[..., None], 0.0)
        place = random.categorical(leaving.sum(-1), generator)[:, None]
        value = random.categorical(leaving[row, place][:, 0], generator)[:, None]
        x = x_t.scatter(1, place, value)
        logits = self.method.network.head(self.method.network.features(x))
        mu = logits.softmax(-1)
        others = torch.ones_like(mu).scatter(-1, x[..., None], 0.0)
        into = R.mT[row, x]
        column = q.mT[row, x] + EPS
        first = (mu / column * ((others * into) @ q.mT)).sum((1, 2))
        inner = ((mu / column) @ q + EPS).log()
        u = q[row, x_0] / (q[row, x_0].gather(-1, x[..., None]) + EPS)
        flow = others * into * u
        exits = -R.diagonal(dim1=1, dim2=2)
        here = exits.gather(1, x)
        before = here.sum(1)[:, None, None] - here[..., None] + exits[:, None]
        signal = -(flow * inner).sum((1, 2)) / (flow / before).sum((1, 2))
        beside = F.cross_entropy(logits.mT, x_0, reduction="none").mean(-1)
        return first + signal + self.method.config.auxiliary * beside


def step(way: str, method: TauLDR, published: Published, x_0: Tensor) -> float:
    method.zero_grad()
    forget(method.process)
    generator = torch.Generator().manual_seed(1)
    each: Any = published.loss(x_0, generator) if way == "published" else method.loss(Batch(x_0), generator)
    loss = each.mean() / x_0.shape[1]
    loss.backward()
    return float(loss.detach())


def forget(process: Any) -> None:
    """No matrix of these times is there yet, as at each step of a training; what serves all times is."""
    if isinstance(process, CTMC):
        process.cache.matrices.clear()


def main() -> None:
    parser = measure.options(__doc__.splitlines()[0], rounds=5)
    parser.add_argument("--process", choices=CONFIGS, default="gaussian")
    parser.add_argument("--prediction", choices=TauLDR.choices["prediction"], default="mean")
    parser.add_argument("--objective", choices=TauLDR.choices["objective"], default="one-pass")
    parser.add_argument("--length", choices=(784, 3072), type=int, default=784)
    parser.add_argument("--small", action="store_true", help="a size that only shows that it runs")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        size, way, name = options.peak.split("/")
        states, length, batch = {**SIZES, **LARGE, **SMALL}[size]
        method, memory = make(name, states, length), measure.Memory()
        published, x_0 = Published(method), data(states, batch, length)
        measure.peak_of_steps(
            memory, partial(step, way, method, published, x_0[:1, :4]), partial(step, way, method, published, x_0)
        )
        return
    name = f"{options.process},{options.prediction},{options.objective}"
    rows, out = [], {"machine": measure.machine(), "config": name, "sizes": {}}
    sizes = SMALL if options.small else LARGE if options.length == 3072 else SIZES
    for size, (states, length, batch) in sizes.items():
        method, x_0 = make(name, states, length), data(states, batch, length)
        published = Published(method)
        peak = lambda way, size=size: measure.peak(__file__, f"{size}/{way}/{name}", options.threads)["step"]  # noqa: E731
        row, out["sizes"][size] = measure.beside(
            size, partial(step, method=method, published=published, x_0=x_0), peak, options
        )
        rows.append(row)
    measure.show(rows, measure.BESIDE)
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")


def data(states: int, batch: int, length: int) -> Tensor:
    return torch.randint(states, (batch, length), generator=torch.Generator().manual_seed(0))


if __name__ == "__main__":
    main()
