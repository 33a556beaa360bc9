"""What each way to sample in few steps reaches, as exact numbers: the chains of its sampler enumerated on a small world.

    python studies/few-steps/few_steps.py [--steps 400] [--latents 8] [--seed 0]

The data is a random distribution on all texts of three tokens of three kinds. Teachers have the exact network. Students are
tables, a free logit for every text, position, token and latent, smooth in time, so that what they miss is what the method misses.
Each is trained by `train_rounds` in rounds from 32 steps to 16, 8, 4, 2 and 1, and each round's student is
sampled in its own steps. Tables of total variation, KL(data || samples) and the entropy of the samples; a KL of one evaluation
that is below the total correlation is marked with *.
"""

import argparse
import copy
import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from zellige.core import maths
from zellige.core.batch import Batch
from zellige.exact import enumeration, script
from zellige.methods import MDLM, UDLM, build
from zellige.nn.table import Table
from zellige.plugins.students.distill import WAYS, train_rounds
from zellige.plugins.students.small import FitOptions
from zellige.samplers import Ancestral, State

V, L, FIRST, COUNTS = 3, 3, 32, (1, 2, 4, 8)


class Rows:
    """Texts of a distribution, at even quantiles: what a data set of infinite size would give."""

    def __init__(self, distribution: Tensor, count: int = 20_000):
        u = (torch.arange(count, dtype=torch.float64) + 0.5) / count
        self.tokens = enumeration.of_index(torch.searchsorted(distribution.cumsum(0), u).clamp_max(V**L - 1), V, L)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, i: int) -> Tensor:
        return self.tokens[i]

    def collate(self, rows: list[Tensor]) -> Batch:
        return Batch(torch.stack(rows))


@torch.no_grad()
def samples(method: Any, n: int) -> Tensor:
    """Distribution (V^L,) of the ancestral sampler's texts after n steps."""
    K = method.process.K
    X, start = enumeration.states(K, L), method.process.prior
    p = start[X].prod(-1)
    state = State(X, torch.zeros_like(X, dtype=torch.bool), torch.zeros(len(X), dtype=torch.long))
    for t, s in itertools.pairwise(method.grid(n)):
        step = torch.zeros(len(X), len(X), dtype=torch.float64)
        draw = lambda at, source, t=t, s=s: Ancestral().step(  # noqa: E731
            method, state.take(at), t.expand(len(at), 1), s.expand(len(at), 1), source
        )
        for at, new, chance in script.branches(draw, len(X)):
            step.index_put_((at, enumeration.index(new.x, K)), chance, accumulate=True)
        p = p @ step
    return p[method.process.clean[X].all(-1)]


def student_of(cls: Any, latents: int, seed: int) -> Any:
    """A table of the method, with a latent if there are any."""
    config = cls.Config(**({"time": True} if cls is MDLM else {}))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = Table(cls.states(V, config), L, time=True, latents=latents).double()
    with torch.no_grad():
        network.logits.mul_(1.0 if latents else 0.0)
    return build(cls, V, network, config, length=L).double()


def students(cls: Any, by: str, divergence: str, latents: int, p: Tensor, steps: int, seed: int) -> dict[int, Tensor]:
    """Samples of the student of each round in its own steps, by their number."""
    student = student_of(cls, latents, seed)
    teacher: Any = enumeration.Denoiser(student.process, p, L, student.parameterization)
    loss, results, n = partial(WAYS[by].loss, merge=2, divergence=divergence), dict[int, Tensor](), FIRST
    rows: Any = Rows(p)
    while n > 1:
        train_rounds(student, teacher, loss, rows, rows, [n, n // 2], 0.99, FitOptions(steps, 128, 0.05, seed + n))
        n //= 2
        teacher = copy.deepcopy(student)
        if n in COUNTS:
            results[n] = samples(student, n)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="training steps of each round")
    parser.add_argument("--latents", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    weights = torch.rand(V**L, generator=torch.Generator().manual_seed(chosen.seed), dtype=torch.float64) ** 4
    p = weights / weights.sum()
    floor = float(enumeration.total_correlation(p, V, L))
    print(f"{V**L} texts, entropy {enumeration.entropy(p):.4f} nats, total correlation {floor:.4f} nats\n")
    results: dict[str, dict[int, Tensor]] = {}
    for name, cls in (("masks", MDLM), ("uniform", UDLM)):
        truth = enumeration.Denoiser(student_of(cls, 0, 0).process, p, L, "mean")
        results[f"{name}, exact network"] = {n: samples(truth, n) for n in COUNTS}
    for name, cls, by, divergence, latents in (
        ("masks, sdtt", MDLM, "sdtt", "kl", 0),
        ("masks, sdtt, reverse-kl", MDLM, "sdtt", "reverse-kl", 0),
        (f"masks, di4c of {chosen.latents}", MDLM, "di4c", "kl", chosen.latents),
        ("uniform, consistency", UDLM, "consistency", "kl", 0),
        (f"uniform, di4c of {chosen.latents}", UDLM, "di4c", "kl", chosen.latents),
    ):
        began = time.monotonic()
        results[name] = students(cls, by, divergence, latents, p, chosen.steps, chosen.seed)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)

    def from_data(q: Tensor, n: int) -> str:
        kl = float(maths.kl(p, q))
        return f"{kl:.4f}{'*' if n == 1 and kl < floor - 5e-5 else ''}"

    numbers: dict[str, Callable[[Tensor, int], str]] = {
        "total variation": lambda q, _: f"{float((p - q).abs().sum() / 2):.4f}",
        "KL from the data, nats": from_data,
        "entropy of the samples, nats": lambda q, _: f"{float(enumeration.entropy(q)):.4f}",
    }
    order = sorted(results, key=lambda name: (name.startswith("uniform"), name.split(", ")[1] != "exact network"))
    for title, number in numbers.items():
        print(f"\n| {title} | " + " | ".join(f"{n} evaluation{'s' * (n > 1)}" for n in COUNTS) + " |")
        print("|---" * (1 + len(COUNTS)) + "|")
        for name in order:
            print(f"| {name} | " + " | ".join(number(results[name][n], n) for n in COUNTS) + " |")


if __name__ == "__main__":
    main()
