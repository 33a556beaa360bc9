"""An image of tau as a density of the plane: tau-leaping beside exact simulation (tauLDR, section 6.1, figure 3).

python studies/tau-image/tau_image.py [--out docs/pictures/tau.png] [--count 1000]

32 x 32 cells; a "text" is a cell's column and row, ordered levels under the Gaussian rates of tauLDR. The network is exact, so
that nothing but the sampler is wrong. The distribution of tau-leaping's samples is enumerated, from transition matrices over all
1,024 cells; exact simulation (`uniformisation`) has the density itself, and is drawn. Prints the Hellinger distances and what the
samples cost, and draws the densities. Some minutes on one core.
"""

import argparse
import itertools
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from zellige import exact
from zellige.core import maths
from zellige.core.curves import Exponential
from zellige.core.matrices import CTMC
from zellige.core.prediction import Mean, kernel, reverse_rate
from zellige.core.schedule import CLEAN
from zellige.methods import tauldr_rates
from zellige.samplers import TauLeaping, Uniformisation, run
from zellige.samplers.grid import spaced
from zellige.samplers.tau_leaping import describe_leaps, leap_distribution

S = 32  # cells a side
STEPS = (4, 8, 16, 32, 64, 128)
SHOWN = (8, 32, 128)
INTERVALS = 512  # of exact simulation, each with a bound of its own
STROKES = (  # of the letter, in [-1, 1]^2
    ((-0.75, 0.35), (-0.6, 0.6), (0.75, 0.6)),
    ((0.1, 0.6), (-0.05, 0.0), (-0.08, -0.4), (0.0, -0.65), (0.2, -0.7), (0.4, -0.55)),
)


def tau() -> Tensor:
    """The density: (S * S,), zero away from the letter."""
    share = torch.linspace(0.0, 1.0, 100, dtype=torch.float64)[:, None]
    ends = [torch.tensor(pair, dtype=torch.float64) for stroke in STROKES for pair in itertools.pairwise(stroke)]
    points = torch.cat([a + share * (b - a) for a, b in ends])
    side = (torch.arange(S, dtype=torch.float64) + 0.5) / S * 2 - 1
    away = torch.cdist(side[exact.states(S, 2)], points).amin(1)
    ink = torch.exp(-((away / 0.09) ** 2))
    ink = torch.where(ink > 0.05, ink, 0.0)
    return ink / ink.sum()


class Exact(exact.Denoiser):
    """The exact network of two positions, by products of matrices."""

    def predict(self, x_t, t, *, at=None, condition=None, context=None, segments=None):
        t = torch.as_tensor(t, dtype=torch.float64).expand(x_t.shape)
        q, p = self.process.likelihood(x_t, CLEAN, t), self.distribution.reshape(S, S)
        mean = maths.normalise(q * torch.stack((q[:, 1] @ p.T, q[:, 0] @ p), 1))
        return Mean(self.process, *((mean, x_t, t) if at is None else (mean[at], x_t[at], t[at])))


def network(density: Tensor) -> Exact:
    """The exact one, with the Gaussian rates in the paper's proportions, for ordered levels."""
    R, stationary = tauldr_rates.gaussian(S, 1.0, 2.0 * S)
    noise = Exponential(tauldr_rates.SLOWEST / 99, 100.0, 0.001)
    method = Exact(CTMC(R / tauldr_rates.gap(R, stationary), stationary, noise), density, 2)
    method.ordered = True
    return method


def hellinger(p: Tensor, q: Tensor) -> float:
    return float((1 - (p * q).sqrt().sum()).clamp_min(0.0).sqrt())


def in_pieces(X: Tensor, mean: Tensor) -> Tensor:
    """`leap_distribution`, texts with few jumps first: those with many need longer transforms."""
    each = torch.empty_like(mean)
    for piece in mean.sum(-1).amax(-1).argsort().split(32):
        each[piece] = leap_distribution(X[piece], mean[piece])
    return each


@torch.no_grad()
def leapt(method: Exact, steps: int) -> Tensor:
    """The distribution of tau-leaping's samples, (S * S,): leaps even in t, the kernel at both ends."""
    X, times = exact.states(S, 2), spaced(method, steps)
    distribution = method.process.prior[X].prod(-1)
    for t, s in itertools.pairwise(times):
        pred = method.predict(X, t.expand(X.shape))
        ends = bool(t >= 1) or bool(s.isinf())
        each = kernel(pred, s.expand(X.shape)) if ends else in_pieces(X, (t - s) * reverse_rate(pred))
        a, b = (each / each.sum(-1, keepdim=True)).unbind(1)  # (N, K) of the column and the row
        distribution = distribution @ (a[:, :, None] * b[:, None]).flatten(1)
    return distribution


def drawn(sampler, method: Exact, count: int, steps: int):
    """The last state of `count` samples."""
    *_, last = run(sampler, method, (count, 2), steps, generator=torch.Generator().manual_seed(0))
    return last


def picture(panels: list[tuple[str, Tensor]], path: Path) -> None:
    figure = Figure(figsize=(2.2 * len(panels), 2.6), layout="constrained")
    for axes, (title, p) in zip(figure.subplots(1, len(panels)), panels):
        axes.imshow(p.reshape(S, S).T, origin="lower", cmap="magma", vmax=float(panels[0][1].max()))
        axes.set(xticks=[], yticks=[])
        axes.set_title(title, fontsize=9)
    figure.savefig(path, dpi=110)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--out", type=Path, default=Path(__file__).with_name("tau.png"))
    ask.add_argument("--count", type=int, default=1000, help="samples of exact simulation")
    options = ask.parse_args()
    torch.set_num_threads(1)
    density = tau()
    method, panels = network(density), [("the density", density)]
    print("| tau-leaping, steps | Hellinger distance | what its leaps come to |\n|---|---|---|")
    for steps in STEPS:
        distribution = leapt(method, steps)
        leaps = drawn(TauLeaping(), method, options.count, steps).memory.fractions()
        print(f"| {steps} | {hellinger(density, distribution):.4f} | {describe_leaps(leaps)} |", flush=True)
        if steps in SHOWN:
            panels.append((f"tau-leaping, {steps} steps", distribution))
    last = drawn(Uniformisation(), method, options.count, INTERVALS)
    seen = exact.index(last.x, S).bincount(minlength=S * S).double() / options.count
    even = torch.multinomial(density, options.count, True, generator=torch.Generator().manual_seed(0))
    floor = hellinger(density, even.bincount(minlength=S * S).double() / options.count)
    calls = last.calls.double()
    print(
        f"\nexact simulation, {options.count:,} samples: {hellinger(density, seen):.4f}; as many of the density: {floor:.4f}"
    )
    print(f"its network evaluations: {float(calls.mean()):.0f} each, at most {int(calls.max())}")
    picture([*panels, (f"exact, {options.count:,} samples", seen)], options.out)


if __name__ == "__main__":
    main()
