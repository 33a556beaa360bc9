"""Concrete score matching on densities of the plane, cut into cells: what it learns and draws, beside the truth.

    python examples/densities.py --out docs/pictures

A density is a law on S x S cells: a text has two tokens, the cell's column and row. How far the law that the chain keeps is from
the truth is computed from its transition matrix, exactly. Prints that with the acceptance and the autocorrelation time, and the
three losses side by side for one density; writes densities.png. Some minutes on two cores.
"""

import argparse
import math
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import zellige
from zellige import exact
from zellige.core import random
from zellige.exact import metropolis
from zellige.methods import CSM
from zellige.samplers.metropolis import Metropolis, report

S = 32  # cells a side
BATCH = 512
CHAINS, PROPOSALS = 2048, 1000
LOSSES = {
    "CSM, c = network": {},
    "CSM, c = exp(network) - 1": {"positive": True},
    "score entropy": {"objective": "score-entropy"},
}


# ---------------------------------------------------------------------------------- the densities
def moons(n: int) -> Tensor:
    """Two half circles, one in the arms of the other: n points (n, 2) in [-1, 1]^2."""
    a = torch.linspace(0, math.pi, n // 2)
    one = torch.stack([torch.cos(a), torch.sin(a)], -1)
    other = torch.stack([1 - torch.cos(a), 0.5 - torch.sin(a)], -1)
    return (torch.cat([one, other]) - torch.tensor([0.5, 0.25])) / 1.9


def pinwheel(n: int) -> Tensor:
    """Five arms that turn as they leave the centre."""
    r = torch.linspace(0.15, 0.95, n // 5)
    turn = torch.arange(5)[:, None] * 2 * math.pi / 5 + 1.6 * (1 - r)
    return torch.stack([r * torch.cos(turn), r * torch.sin(turn)], -1).reshape(-1, 2)


def roll(n: int) -> Tensor:
    """The outer turn of a spiral."""
    a = torch.linspace(0.25, 1.0, n).sqrt() * 3.5 * math.pi
    return torch.stack([torch.cos(a), torch.sin(a)], -1) * a[:, None] / (3.5 * math.pi) * 0.9


def law(points: Tensor, width: float = 0.07, floor: float = 0.01) -> Tensor:
    """A Gaussian round each point, summed over the cells' centres, and a little everywhere: (S * S,)."""
    side = (torch.arange(S).double() + 0.5) / S * 2 - 1
    cells = side[exact.states(S, 2)]
    near = torch.exp(-torch.cdist(cells, points.double()).square() / (2 * width**2)).sum(1)
    return (1 - floor) * near / near.sum() + floor / S**2


DENSITIES = {"moons": moons, "pinwheel": pinwheel, "roll": roll}


# ---------------------------------------------------------------------------------- the model
class Cells(nn.Module):
    """A network of two tokens: Fourier features of both, three layers, and a number for each cell of a row or column."""

    def __init__(self, hidden: int = 128):
        super().__init__()
        waves = torch.arange(1, 9)[:, None] * torch.arange(S) * math.pi / S
        self.register_buffer("waves", torch.cat([waves.cos(), waves.sin()]).T, persistent=False)  # (S, 16)
        self.body = nn.Sequential(
            nn.Linear(32, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 2 * hidden)
        )
        self.head = nn.Linear(hidden, S)
        nn.init.zeros_(self.head.weight)

    def features(self, x: Tensor, time: Tensor | None = None, **kwargs) -> Tensor:
        h = self.body(self.waves[x].flatten(1))
        return nn.functional.gelu(h.reshape(len(x), 2, -1))


def train(truth: Tensor, steps: int, **choices) -> CSM:
    """On fresh draws of the density."""
    torch.manual_seed(0)
    method = CSM(Cells(), S, (2,), CSM.Config("grid", **choices))
    optimizer = torch.optim.AdamW(method.parameters(), lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps)
    generator, cells = torch.Generator().manual_seed(0), exact.states(S, 2)
    for _ in range(steps):
        x = cells[random.categorical(truth.expand(BATCH, -1), generator)]
        optimizer.zero_grad()
        method.loss(zellige.Batch(x), generator).mean().backward()
        torch.nn.utils.clip_grad_norm_(method.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return method.eval()


@torch.no_grad()
def draw(method: CSM) -> tuple[Tensor, str]:
    """The cell of each chain's last text, (CHAINS,); and how the chains walked."""
    *_, last = zellige.run(Metropolis(), method, (CHAINS, 2), PROPOSALS, generator=torch.Generator().manual_seed(1))
    return exact.index(last.x, S), report([last.memory])


def divergence(method: CSM, truth: Tensor) -> str:
    """In nats, exactly."""
    return f"{float(metropolis.divergence(truth, method)):.4f}"


def picture(shown: list[tuple[str, Tensor, Tensor, str]], path: Path) -> None:
    """Truth above, samples below."""
    figure = Figure(figsize=(3 * len(shown), 6.4), layout="constrained")
    for column, (name, truth, cells, kl) in zip(figure.subplots(2, len(shown)).T, shown):
        seen = cells.bincount(minlength=S * S).double() / len(cells)
        for axes, p, title in zip(column, (truth, seen), (name, f"{CHAINS:,} chains, KL = {kl} nats")):
            axes.imshow(p.reshape(S, S).T, origin="lower", cmap="magma", vmax=float(truth.max()))
            axes.set(xticks=[], yticks=[], title=title)
    figure.savefig(path, dpi=110)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--out", type=Path, default=Path(), help="folder of the picture")
    ask.add_argument("--steps", type=int, default=600, help="of each training")
    options = ask.parse_args()
    shown = []
    print(f"{S} x {S} cells, neighbours on the grid, {options.steps:,} steps of {BATCH} draws\n")
    for name, points in DENSITIES.items():
        truth = law(points(600))
        method = train(truth, options.steps)
        (cells, walked), kl = draw(method), divergence(method, truth)
        shown.append((name, truth, cells, kl))
        print(f"{name:<10}KL(truth || kept) = {kl} nats   {walked}", flush=True)
    picture(shown, options.out / "densities.png")
    truth = law(roll(600))
    print("\nthe three losses on the roll (the first is the one above)")
    for name, choices in LOSSES.items():
        kl = divergence(train(truth, options.steps, **choices), truth) if choices else shown[-1][-1]
        print(f"{name:<28}KL = {kl} nats", flush=True)


if __name__ == "__main__":
    main()
