"""A training step of D3PM with Gaussian noise at 256 levels, Zellige's against the published formulation.

python benchmarks/chain_step.py [--head logistic|logits] [--rounds N] [--threads N] [--small] [--exact] [--json FILE]

Published: Q_t and Q_1 .. Q_t of all T steps in two tables (T, K, K) of float32; at every position and state both factors of
eq. 4, gathered or multiplied, as logarithms with 1e-6 in them, for the truth and for the prediction; the KL of their softmaxes,
the cross-entropy of the first step, and that beside the bound. Ours: the same sums in closed form, from tables that a row
shares. The network is a table and a linear head: what differs is the objective, so only that is timed. Tables stand beside all
steps.
"""

import copy
import json
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import measure
from zellige.core import random
from zellige.core.batch import Batch
from zellige.methods import D3PM
from zellige.methods.diffusion import draw_step

SIZES = {"K = 256, L = 784, B = 8": (256, 784, 8, 1000), "K = 256, L = 3,072, B = 8": (256, 3072, 8, 1000)}
SMALL = {"K = 64, L = 49, B = 2": (64, 49, 2, 20)}
EPS = 1e-6


class Cheap(nn.Module):
    """A table and a head."""

    def __init__(self, states: int, outputs: int, width: int = 16):
        super().__init__()
        self.embedding, self.head = nn.Embedding(states, width), nn.Linear(width, outputs)

    def features(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        return self.embedding(x)


def make(head: str, states: int, length: int, steps: int) -> D3PM:
    torch.manual_seed(0)
    config = D3PM.Config("gaussian", diffusion_steps=steps, head=head, last="image")
    return D3PM(Cheap(states, D3PM.outputs(states, config)), states, (length,), config)


class Published:
    """Its tables and its loss, T times one step in nats."""

    def __init__(self, method: D3PM, dtype: torch.dtype = torch.float32, eps: float = EPS):
        self.method, self.eps, process = method, eps, method.process
        T, K, product = process.T, process.K, torch.eye(process.K, dtype=torch.float64)
        self.one, self.all = torch.empty(T, K, K, dtype=dtype), torch.empty(T, K, K, dtype=dtype)
        for i, Q in enumerate(process.steps):  # pyright: ignore
            product = product @ Q
            self.one[i], self.all[i] = Q.mT, product  # the first as (t, x_t, x_s)

    def clean(self, outputs: Tensor, x_t: Tensor) -> Tensor:
        """Logits (B, L, K) of p~: the mass of a logistic distribution in each bin, by the difference of two log-sigmoids."""
        if self.method.config.head == "logits":
            return outputs
        K = self.method.process.K
        mean, log_scale = outputs.unbind(-1)
        mean = torch.tanh(2 * x_t / (K - 1) - 1 + mean)[..., None]
        inverse = torch.exp(2 - log_scale)[..., None]
        centre = torch.linspace(-1, 1, K, dtype=mean.dtype) - mean
        below, above = (F.logsigmoid(inverse * (centre + side / (K - 1))) for side in (-1, 1))
        return above + torch.log1p(-torch.exp(below - above) + self.eps)

    def posterior(self, likely: Tensor, distribution: Tensor) -> Tensor:
        return (likely + self.eps).log() + (distribution + self.eps).log()

    def loss(self, x_0: Tensor, generator: torch.Generator) -> Tensor:
        method = self.method
        T = method.steps
        _, t, _ = draw_step(method, Batch(x_0), generator)
        i = (t * T).round().long()[:, None] - 1
        x_t = random.categorical(self.all[i, x_0], generator)
        logits = self.clean(method.network.head(method.network.features(x_t)), x_t)
        likely, first, before = self.one[i, x_t], i[:, 0] == 0, (i - 1).clamp_min(0)
        true = self.posterior(likely, self.all[before, x_0])
        pred = self.posterior(likely, logits.softmax(-1) @ self.all[before[:, 0]])
        log_q, log_p = true.log_softmax(-1), pred.log_softmax(-1)
        kl = (log_q.exp() * (log_q - log_p)).sum((1, 2))
        beside = F.cross_entropy(logits.mT, x_0, reduction="none").sum(-1)
        return T * torch.where(first, beside, kl) + method.config.auxiliary * beside


def step(method: D3PM, published: Published | None, x_0: Tensor, seed: int = 1) -> float:
    method.zero_grad()
    generator = torch.Generator().manual_seed(seed)
    each: Any = published.loss(x_0, generator) if published else method.loss(Batch(x_0), generator)
    loss = each.mean() / x_0.shape[1]
    loss.backward()
    return float(loss.detach())


def data(states: int, batch: int, length: int) -> Tensor:
    return torch.randint(states, (batch, length), generator=torch.Generator().manual_seed(0))


def print_peak(size: str, way: str, head: str) -> None:
    """MiB of the tables and, beside them, of a step."""
    states, length, batch, steps = {**SIZES, **SMALL}[size]
    memory = measure.Memory()
    torch.eye(8) @ torch.eye(8)
    start = memory.now()
    method, published = make(head, states, length, steps), None
    if way == "published":
        published = Published(method)
        method.process.products = None  # pyright: ignore[reportAttributeAccessIssue]
    x_0 = data(states, batch, length)
    step(method, published, x_0[:1, :4])
    before = memory.mark()
    for seed in (1, 2):
        step(method, published, x_0, seed)
    print(json.dumps({"tables": before - start, "step": memory.largest() - before}))


def main() -> None:
    parser = measure.options(__doc__.splitlines()[0], rounds=7)
    parser.add_argument("--head", choices=("logistic", "logits"), default="logistic")
    parser.add_argument("--small", action="store_true", help="a size that only shows that it runs")
    parser.add_argument("--exact", action="store_true", help="only compare both with the published sums in float64")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.exact:
        print_exact(784)
        return
    if options.peak:
        print_peak(*options.peak.split("/"))
        return
    rows, out = [], {"machine": measure.machine(), "head": options.head, "sizes": {}}
    for size, (states, length, batch, steps) in (SMALL if options.small else SIZES).items():
        method, x_0 = make(options.head, states, length, steps), data(states, batch, length)
        published, peaks = Published(method), {}

        def one(way: str, method=method, published=published, x_0=x_0) -> float:
            return step(method, published if way == "published" else None, x_0)

        def peak(way: str, size: str = size, peaks: dict = peaks) -> float:
            peaks[way] = measure.peak(__file__, f"{size}/{way}/{options.head}", options.threads)
            return sum(peaks[way].values())

        row, out["sizes"][size] = measure.beside(size, one, peak, options)
        out["sizes"][size] |= {"peaks": peaks}
        rows.append(row)
        for way, MiB in peaks.items():
            print(f"{size}, {way}: tables {MiB['tables']:,.0f} MiB, a step beside them {MiB['step']:,.0f} MiB")
    measure.show(rows, measure.BESIDE)
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")


def print_exact(length: int) -> None:
    """How far float32 is from the published sums in float64 without their eps, of K logits: loss and gradient, in
    proportion."""
    method = make("logits", 256, length, 1000)
    x_0, made = data(256, 8, length), {}
    nn.init.normal_(method.network.head.weight)  # a network that says something
    both = Published(method), Published(copy.deepcopy(method).double(), torch.float64, 1e-300)
    for way, published in {"zellige": None, "published": both[0], "exact": both[1]}.items():
        of = method if published is None else published.method
        loss = step(of, published, x_0)
        made[way] = loss, torch.cat([p.grad.double().flatten() for p in of.parameters() if p.grad is not None])
    (value, gradient) = made.pop("exact")
    for way, (loss, slope) in made.items():
        apart = float((slope - gradient).norm() / gradient.norm())
        print(f"{way}: loss {loss:.6f}, off by {abs(loss / value - 1):.1e} in proportion; gradient off by {apart:.1e}")


if __name__ == "__main__":
    main()
