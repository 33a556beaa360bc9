"""Does each method learn? On a distribution that is known exactly, a random one on 3^4.

    python studies/learning/learning.py [METHOD ...]       some minutes a method

A method may carry choices: sedd:process=uniform. The trained network's bound is computed by enumeration and quadrature,
and held against the exact denoiser's own bound (the same T, the same prediction); samples are held against the distribution by
total variation, whose expectation for n exact samples is the floor. Concrete score matching has no bound: of it the divergence
of the distribution from the one that its scores make Metropolis-Hastings keep is computed. Exits with 1 if a claim does not
hold.
"""

import argparse
import math
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zellige import Net, exact
from zellige.core import maths, random
from zellige.core.batch import Batch
from zellige.exact import metropolis
from zellige.methods import build, find
from zellige.methods.method import Method
from zellige.samplers import SAMPLERS, Ancestral, Sampler, run

METHODS = [
    "d3pm:process=absorbing,diffusion_steps=64", "d3pm:process=uniform,schedule=mutual-information,diffusion_steps=64",
    "d3pm:process=gaussian,diffusion_steps=128", "d3pm:process=band,diffusion_steps=128",
    "d3pm:process=middle,diffusion_steps=64", "d3pm:process=nearest,diffusion_steps=64,neighbours=1",
    "csm:objective=score-entropy", "csm",
    "tauldr:process=uniform,prediction=leave-one-out", "tauldr:process=absorbing,prediction=leave-one-out",
    "tauldr:process=uniform", "tauldr:process=absorbing", "tauldr:process=gaussian", "tauldr:process=birth-death",
    "sedd:process=absorbing", "sedd:process=uniform", "radd", "mdlm", "md4", "genmd4", "udlm",
]  # fmt: skip
QUICK = (
    "d3pm:process=absorbing",
    "sedd:process=absorbing",
    "csm",
    "radd",
    "mdlm",
    "md4",
)  # 3,000 steps are enough for these
RATES = {"csm": 1e-3}  # a rare sequence may be 1e6 times likelier than its neighbour: at 3e-3 such a step throws it off


def made(name: str, vocabulary: int, net: Net) -> Method:
    """A method from its name and choices, with a fresh transformer."""
    name, _, choices = name.partition(":")
    cls = find(name)
    kinds = {f: type(getattr(cls.Config(), f)) for f in cls.Config.__dataclass_fields__}
    given = dict(pair.split("=") for pair in choices.split(",") if pair)
    config = cls.Config(**{k: kinds[k](v) for k, v in given.items()})
    return build(cls, vocabulary, net, config, ordered=True)


def train(method: Method, draw: Any, steps: int, rate: float, seed: int = 0) -> float:
    """AdamW with a warm-up and cosine decay; the averaged weights are kept. Returns the seconds."""
    generator, started = torch.Generator().manual_seed(seed), time.perf_counter()
    parameters = list(method.parameters())
    optimizer = torch.optim.AdamW(parameters, rate, betas=(0.9, 0.99), weight_decay=0.0, fused=True)
    average = [p.detach().clone() for p in parameters]
    for step in range(steps):
        share = min(1.0, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = rate * share
        optimizer.zero_grad(set_to_none=True)
        method.loss(Batch(draw(generator)), generator).mean().backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        with torch.no_grad():
            decay = min(0.998, (1 + step) / (10 + step))
            torch._foreach_lerp_(average, parameters, 1 - decay)
    with torch.no_grad():
        for p, a in zip(parameters, average):
            p.copy_(a)
    method.eval()
    return time.perf_counter() - started


def samples(method: Method, sampler: Sampler, steps: int, count: int, batch: int, seed: int = 1) -> Tensor:
    generator, out = torch.Generator().manual_seed(seed), []
    for first in range(0, count, batch):
        *_, last = run(sampler, method, (min(batch, count - first), method.shape[0]), steps, generator=generator)
        out.append(last.x)
    return torch.cat(out)


@dataclass
class Learnt:
    """One row of the table: what was measured, and whether the claim holds."""

    name: str
    said: str
    ok: bool


def random_distribution(seed: int = 0) -> Tensor:
    weights = torch.rand(3**4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 3
    return weights / weights.sum()


@torch.no_grad()
def expected_bound(method: Method, x_0: Tensor, distribution: Tensor) -> float:
    """E over the distribution of the whole bound, nats a position, enumerated; time by quadrature or over the T steps."""
    if method.steps:
        each = exact.step_bound(method, x_0, method.grid(method.steps))
    else:
        each = sum(v for k, v in exact.continuous_terms(method, x_0, 40).items() if k != "jump")
    return float((distribution * each).sum()) / x_0.shape[1]


def distribution(name: str, steps: int | None = None, count: int = 20_000) -> Learnt:
    target, x_0 = random_distribution(), exact.states(3, 4)
    torch.manual_seed(0)
    method = made(name, 3, Net(layers=2, hidden=64, heads=4, length=4, conv=3, condition=64))
    steps = steps or (3000 if any(word in name for word in QUICK) else 6000)
    seconds = train(
        method, lambda g: x_0[random.categorical(target.expand(256, -1), g)], steps, RATES.get(method.name, 3e-3)
    )
    entropy = float(exact.entropy(target)) / 4
    if method.process is None:
        what, best = "cross-entropy of the chain's distribution", entropy
        reached = best + float(maths.kl(target, metropolis.invariant(method))) / 4
        drawn = samples(method, SAMPLERS[method.sampler](), 300, count, batch=5000)
    else:
        what, denoiser = "bound", exact.Denoiser(method.process, target, 4, method.parameterization)
        denoiser.steps, denoiser.config = method.steps, method.config
        best, reached = expected_bound(denoiser, x_0, target), expected_bound(method, x_0, target)
        sampler = Ancestral(grid="log-snr" if method.name == "tauldr" else "uniform")  # its sigma is steep near t = 0
        drawn = samples(method, sampler, method.steps or 128, count, batch=2000)
    share = torch.bincount(exact.index(drawn, 3), minlength=81) / count
    floor = float((2 * target * (1 - target) / (math.pi * count)).sqrt().sum()) / 2
    variation = float((share - target).abs().sum()) / 2
    said = (
        f"{what} {reached:.4f}, exact denoiser {best:.4f} (H {entropy:.4f}) nats/token, gap {reached - best:+.4f}"
        f"   TV {variation:.4f}, floor {floor:.4f}   {seconds:.0f} s"
    )
    return Learnt(name, said, reached - best <= 0.02 and variation <= floor + 0.02)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--steps", type=int)
    chosen, ok = parser.parse_args(), True
    for name in chosen.methods or METHODS:
        learnt = distribution(name, chosen.steps)
        ok &= learnt.ok
        print(f"{learnt.name:<38} {'ok  ' if learnt.ok else 'FAIL'} {learnt.said}", flush=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
