"""Tau-leaping's error against the number of steps, with 0, 1 and 3 corrector steps; `ancestral` and `euler` beside it.

python studies/leaping/leaping.py [--out docs/pictures/leaping.png]

Two positions of five states, the exact network of a fixed distribution. Nothing is drawn: the distribution of the samples is a
product of the transition matrices of the steps (which the tests hold equal to those of the samplers' code), and the error its
total variation to the distribution of the data.
"""

import argparse
import itertools
import math
from pathlib import Path

import matplotlib
import torch
from matplotlib.figure import Figure

from zellige import exact
from zellige.core.curves import Geometric
from zellige.core.matrices import CTMC
from zellige.core.prediction import kernel, reverse_rate
from zellige.core.process import Process, uniform
from zellige.methods import tauldr_rates
from zellige.plugins.report.palette import COLOURS
from zellige.plugins.verify.identities.check import numbers
from zellige.samplers.euler import stepped
from zellige.samplers.grid import spaced
from zellige.samplers.tau_leaping import corrector_rate, leap_distribution, single_distribution

K, L = 5, 2
STEPS = (8, 16, 32, 64, 128, 256)
LINES = {  # name -> corrector steps, colour, dashes, marker
    "ancestral": (0, "soft", (0, (1, 1)), "s"),
    "euler": (0, "green", (0, (2, 1.5)), "D"),
    "tau-leaping": (0, "blue", "-", "o"),
    "1 corrector": (1, "vermilion", (0, (6, 2)), "^"),
    "3 correctors": (3, "purple", (0, (6, 2, 1.5, 2)), "v"),
}


def worlds() -> dict[str, exact.Denoiser]:
    """The exact networks: levels under noise that moves them to their neighbours, tokens under uniform noise."""
    R, distribution = tauldr_rates.birth_death(K)
    noise = Geometric(1e-5, 12.0)
    processes: dict[str, Process] = {
        "ordered levels, birth and death, jumps summed": CTMC(
            R / tauldr_rates.gap(R, distribution), distribution, noise
        ),
        "tokens, uniform noise, one jump a position": uniform(K, noise),
    }
    weights = (1.05 + numbers(K**L)) ** 2
    made = {name: exact.Denoiser(P, weights / weights.sum(), L) for name, P in processes.items()}
    for name, method in made.items():
        method.ordered = name.startswith("ordered")
    return made


@torch.no_grad()
def error(method: exact.Denoiser, name: str, steps: int) -> float:
    """Total variation between the distribution of the samples and the data's. Positions step independently, given the network's
    answer."""
    times, X = spaced(method, steps, "log-snr"), exact.states(K, L)
    leap = leap_distribution if method.ordered else single_distribution
    distribution = method.process.prior[X].prod(-1)
    for t, s in itertools.pairwise(times):
        time, later, end = t.expand(X.shape), s.expand(X.shape), bool(t >= 1) or bool(s.isinf())
        pred = method.predict(X, time)
        if end or name == "ancestral":
            each = kernel(pred, later)
        else:
            each = stepped(pred, later) if name == "euler" else leap(X, (t - s) * reverse_rate(pred))
        distribution = distribution @ joint(each)
        if correctors := LINES[name][0] if s.isfinite() else 0:
            each = leap(X, (t - s) * corrector_rate(method.predict(X, later)))
            distribution = distribution @ torch.linalg.matrix_power(joint(each), correctors)
    return float((distribution - method.distribution).abs().sum()) / 2


def joint(each: torch.Tensor) -> torch.Tensor:
    """(N, 2, K) weights of two positions -> (N, K^2) distributions."""
    a, b = (each / each.sum(-1, keepdim=True)).unbind(1)
    return (a[:, :, None] * b[:, None]).flatten(1)


def figure(errors: dict[str, dict[str, list[float]]]) -> Figure:
    """A panel for each world, error against steps, named at the lines' ends."""
    plain = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 9,
        "axes.titlesize": 9,
        "lines.linewidth": 1.4,
    }
    with matplotlib.rc_context(
        plain | {"axes.grid": True, "grid.color": COLOURS["rule"], "axes.titlelocation": "left"}
    ):
        made = Figure(figsize=(9.5, 3.8), layout="constrained")
        for axes, (world, lines) in zip(made.subplots(1, len(errors), sharey=True), errors.items()):
            for name, values in lines.items():
                _, colour, dash, marker = LINES[name]
                axes.loglog(STEPS, values, color=COLOURS[colour], linestyle=dash, marker=marker, markersize=4)
            above = 0.0
            for name, values in sorted(lines.items(), key=lambda line: line[1][-1]):  # from below, none on another
                above = max(above * 1.35, values[-1])
                said = f"{name}, order {order(values):.2f}"
                axes.annotate(said, (1.15 * STEPS[-1], above), color=COLOURS[LINES[name][1]], va="center")
            axes.set(title=world, xlabel="steps", xticks=STEPS, xticklabels=map(str, STEPS), xlim=(7, 2600))
            axes.minorticks_off()
        made.axes[0].set_ylabel("total variation to the data (lower is better)")
    return made


def order(errors: list[float]) -> float:
    """Measured by the last two."""
    return math.log2(errors[-2] / errors[-1])


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs" / "pictures" / "leaping.png")
    out = ask.parse_args().out
    torch.set_num_threads(1)
    errors = {
        world: {name: [error(method, name, steps) for steps in STEPS] for name in LINES}
        for world, method in worlds().items()
    }
    for world, lines in errors.items():
        print(
            f"\n{world}\n\n| | " + " | ".join(f"{n} steps" for n in STEPS) + " | order |\n|" + "---|" * (len(STEPS) + 2)
        )
        for name, values in lines.items():
            print(f"| {name} | " + " | ".join(f"{v:.1e}" for v in values) + f" | {order(values):.2f} |")
    figure(errors).savefig(out, dpi=150)
    print(f"\nwritten  {out}")


if __name__ == "__main__":
    main()
