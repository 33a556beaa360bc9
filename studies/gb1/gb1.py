"""GB1: a model of a fitness landscape of 20^4 proteins, enumerated; guidance and Sequential Monte Carlo measured against the sum.

    python studies/gb1/gb1.py gb1_four_sites.csv.xz [--method mdlm] [--count 1000] [--seed 0] [--out gb1.json]

The file has the columns `variant`, four amino acids, and `fitness`, 1 for the wild type. The distribution to learn is
p(x) = fitness(x) / (sum of all fitness). A variant that was not measured has p = 0, since nothing is known of it: it is in no
training set and no mean of fitness, and what a model or a sampler gives to such variants is counted apart.

1. A model is trained on draws from p. Its distribution q over all 160,000 variants is enumerated, and compared with p.
2. A classifier of noisy variants learns whether fitness is at least --threshold, from the same draws. What one wants is
   proportional to q(x) P(fit | x)^g: known exactly, because both factors are.
3. Classifier guidance is enumerated, too. Sequential Monte Carlo cannot be; 1, 8 and 64 particles are compared by their samples,
   as is guidance itself.

A distance of samples is the total variation between groups of variants: 20 groups with equal probability, by P(fit | x).
"By chance" are its mean and 95% quantile for as many exact draws.
"""

import argparse
import csv
import json
import lzma
import math
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import zellige
from zellige import Data, Net, Train, exact
from zellige.core.schedule import CLEAN
from zellige.evaluation.interval import Proportion, student

ACIDS = "ACDEFGHIKLMNPQRSTVWY"
LENGTH, GROUPS, PARTICLES = 4, 20, (1, 8, 64)
SPACE = len(ACIDS) ** LENGTH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--method", default="mdlm", choices=("mdlm", "udlm"))
    parser.add_argument("--steps", type=int, default=3000, help="of training")
    parser.add_argument("--sampling-steps", type=int, default=16)
    parser.add_argument("--threshold", type=float, default=4.0)
    parser.add_argument("--draws", type=int, default=200_000, help="variants of the training set")
    parser.add_argument("--count", type=int, default=1000, help="samples")
    parser.add_argument("--particles", type=int, nargs="*", default=PARTICLES)
    parser.add_argument("--strengths", type=float, nargs="*", default=[1.0])
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out")
    chosen = parser.parse_args()
    result = run(chosen)
    if chosen.out:
        Path(chosen.out).write_text(json.dumps(result, indent=1))


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    fitness, draw = read(chosen.file), np.random.default_rng(chosen.seed)
    result: dict[str, Any] = {"settings": vars(chosen)}
    measured = ~fitness.isnan()
    p = fitness.nan_to_num(0.0) / fitness.nansum()
    fit = (fitness >= chosen.threshold).long()
    print(
        f"{int(measured.sum()):,} of {SPACE:,} variants measured; fitness at least {chosen.threshold:g}: {int(fit.sum()):,}, "
        f"{100 * float(p[fit == 1].sum()):.1f}% of p; entropy of p {float(exact.entropy(p)):.3f} nats"
    )

    rows = torch.from_numpy(draw.choice(SPACE, chosen.draws, p=p.numpy()))
    variants = exact.states(len(ACIDS), LENGTH)
    net = Net(layers=2, hidden=chosen.hidden, heads=4, length=LENGTH)
    train = Train(steps=chosen.steps, batch=256, lr=2e-3, seed=chosen.seed)
    with tempfile.TemporaryDirectory() as folder:
        with timed(result, "training"):
            data = Data.of(variants[rows], len(ACIDS), kind="grid")
            model = zellige.train(chosen.method, data=data, net=net, train=train, run=f"{folder}/gb1").model
        with timed(result, "training of the classifier"):
            labelled = Data.of(variants[rows], len(ACIDS), kind="grid", labels=fit[rows].numpy())
            request = zellige.TrainClassifier(
                out=f"{folder}/fit", data=labelled, steps=chosen.steps, batch=256, lr=2e-3, seed=chosen.seed
            )
            classifier: Any = request.run(model).classifier
        method: Any = model.method
        times, clean = method.grid(chosen.sampling_steps), method.process.clean
        clean = clean[exact.states(method.process.K, LENGTH)].all(-1)
        with timed(result, "enumeration of the model"):
            q = exact.model_distribution(method, times)[clean]
        log_fit = Tabulated(classifier, len(ACIDS)).log_p(variants, torch.tensor([CLEAN]), method.process)[:, 1]

        apart = sites(p)
        result["model"] = against(p, q) | {"unmeasured": float(q[~measured].sum())}
        result["independent positions"] = against(p, apart) | {"unmeasured": float(apart[~measured].sum())}
        for name in ("model", "independent positions"):
            print(f"{name:22}", told(result[name]))

        result["guided"], tabulated = [], Tabulated(classifier, method.process.K)
        for g in chosen.strengths:
            wanted = q * (g * log_fit).exp()
            wanted, log_z = wanted / wanted.sum(), float(wanted.sum().log())
            group = groups(wanted, log_fit)
            summary = exactly(wanted, fitness, log_fit)
            print(f"\nstrength {g:g}: log Z {log_z:.3f}\n   {'wanted':20}", told(summary))
            guide = zellige.guidance.ByClassifier(method, tabulated, g, label=1)
            with timed(result, f"enumeration of guidance {g:g}"):
                guided = exact.model_distribution(guide, times)[clean]
            entry: dict[str, Any] = {"strength": g, "log Z": log_z, "wanted": summary, "samples": {}}
            for name, of in {"without": q, "classifier guidance": guided}.items():
                entry[name] = against(wanted, of) | exactly(of, fitness, log_fit)
                print(f"   {name:20}", told(entry[name]))
            chance = torch.from_numpy(draw.multinomial(chosen.count, torch.bincount(group, wanted).numpy(), 1000))
            chance = distance(chance / chosen.count)
            entry["by chance"] = [float(chance.mean()), float(chance.quantile(0.95))]
            print(
                f"   distance of {chosen.count:,} samples by chance {chance.mean():.3f}, 95% below {chance.quantile(0.95):.3f}"
            )
            more = {"count": chosen.count, "classes": ("1",), "guidance": g, "steps": chosen.sampling_steps}
            more |= {"seed": chosen.seed, "batch": 500, "defaults": False}
            ways: dict[str, Any] = {"guidance": {"classifier": f"{folder}/fit"}}
            ways |= {f"smc {n}": {"reward": f"{folder}/fit", "options": {"particles": n}} for n in chosen.particles}
            for name, how in ways.items():
                began = time.perf_counter()
                drawn = zellige.Sample(**more, **how).run(model)
                x = exact.index(torch.tensor(drawn.tokens), len(ACIDS))
                row = of_samples(x, group, fitness, log_fit) | {"seconds": time.perf_counter() - began}
                if drawn.summary is not None and any(drawn.summary.groups):
                    row |= by_constant(drawn.summary.groups, fitness)
                entry["samples"][name] = row
                print(f"   {name:20}", told(row), flush=True)
            result["guided"].append(entry)
    result["GB of memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{result['GB of memory']:.2f} GB of memory; seconds:", result["seconds"])
    return result


def read(file: str) -> Tensor:
    """Fitness of all variants in the order of `exact.states`, (20^4,) float64; nan where it was not measured."""
    fitness = torch.full((SPACE,), math.nan, dtype=torch.float64)
    with lzma.open(file, "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            x = torch.tensor([ACIDS.index(letter) for letter in row["variant"]])
            fitness[exact.index(x, len(ACIDS))] = float(row["fitness"])
    return fitness


def sites(p: Tensor) -> Tensor:
    """The product of the distributions of single positions of p."""
    table = p.reshape([len(ACIDS)] * LENGTH)
    product = torch.ones(1, dtype=p.dtype)
    for i in range(LENGTH):
        product = torch.kron(product, table.sum([j for j in range(LENGTH) if j != i]))
    return product


def against(p: Tensor, q: Tensor) -> dict[str, float]:
    """KL(p || q) in nats, and the total variation."""
    log = torch.where(p > 0, p / q.where(p > 0, 1.0), 1.0).log()
    return {"KL": float((p * log).sum()), "total variation": float((p - q).abs().sum() / 2)}


def exactly(p: Tensor, fitness: Tensor, log_fit: Tensor) -> dict[str, float]:
    """Means over a distribution: of fitness over the measured variants, of P(fit | x); the rest of it; its entropy in nats."""
    measured = ~fitness.isnan()
    return {
        "fitness": float((p * fitness)[measured].sum() / p[measured].sum()),
        "P(fit)": float((p * log_fit.exp()).sum()),
        "unmeasured": float(p[~measured].sum()),
        "entropy": float(exact.entropy(p)),
    }


def groups(p: Tensor, by: Tensor) -> Tensor:
    """The group of each variant, with equal probability up to single variants, in the order of `by`."""
    order = by.argsort()
    before = p[order].cumsum(0) - p[order] / 2
    return torch.empty_like(order).scatter_(0, order, (before * GROUPS).long().clamp_max(GROUPS - 1))


def of_samples(x: Tensor, group: Tensor, fitness: Tensor, log_fit: Tensor) -> dict[str, Any]:
    """What there is to say of samples, as rows of the space (N,)."""
    share = torch.bincount(group[x], minlength=GROUPS) / len(x)
    known = fitness[x][~fitness[x].isnan()]
    return {
        "distance": float(distance(share)),
        "fitness": mean(known),
        "P(fit)": mean(log_fit[x].exp()),
        "unmeasured": str(Proportion(len(x) - len(known), len(x))),
        "unique": len(x.unique()),
    }


def by_constant(groups: list[Any], fitness: Tensor) -> dict[str, str]:
    """Mean fitness of all particles, each set with the weight Z of its normalising constant: the unbiased mean; and mean Z."""
    z = torch.tensor([group.log_z for group in groups], dtype=torch.float64).exp()
    weights = z[:, None] * torch.tensor([group.weights for group in groups], dtype=torch.float64)
    values = fitness[exact.index(torch.tensor([group.tokens for group in groups]), len(ACIDS))]
    weights = weights.where(~values.isnan(), 0.0)
    above, below = (weights * values.nan_to_num(0.0)).sum(-1), weights.sum(-1)
    ratio = float(above.sum() / below.sum())
    half = student(len(z) - 1) * float((above - ratio * below).std() / below.mean()) / math.sqrt(len(z))
    return {"all, by Z": f"{ratio:.3f} ± {half:.3f}", "Z": mean(z)}


def distance(shares: Tensor) -> Tensor:
    """Total variation of the shares of groups (*, GROUPS) from equal ones."""
    return (shares - 1 / GROUPS).abs().sum(-1) / 2


class Tabulated:
    """A classifier that says the same of all K^4 noisy variants from a table, one for each time."""

    def __init__(self, classifier: Any, K: int):
        self.classifier, self.K, self.length, self.tables = classifier, K, LENGTH, {}

    @torch.no_grad()
    def log_p(self, x: Tensor, t: Tensor, process: Any) -> Tensor:
        time = float(t.flatten()[0])
        if time not in self.tables:
            parts = exact.states(self.K, LENGTH).split(8192)
            times = (torch.full(part.shape, time, dtype=torch.float64) for part in parts)
            self.tables[time] = torch.cat([self.classifier.log_p(part, at, process) for part, at in zip(parts, times)])
        return self.tables[time][exact.index(x, self.K)]


def told(values: dict[str, Any]) -> str:
    """Names and values in a line."""
    return "   ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    )


def mean(values: Tensor) -> str:
    half = student(len(values) - 1) * float(values.std()) / math.sqrt(len(values))
    return f"{float(values.mean()):.3f} ± {half:.3f}"


@contextmanager
def timed(result: dict[str, Any], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    result.setdefault("seconds", {})[name] = round(time.perf_counter() - began, 1)


if __name__ == "__main__":
    main()
