"""A swiss roll of quantised points under three kinds of noise (D3PM, figure 1).

    python studies/swiss-roll/swiss_roll.py [--out docs/pictures/swiss-roll.png] [--steps 1500] [--folder /tmp/swiss-roll]

A "text" is a point of the plane: its column and its row on a grid of 50 x 50. For each noise a small transformer is trained, and
four panels are drawn: the data, the noise half way and at the end, and samples of the model. Prints, for each noise, the share of
the samples that lie on the roll, within a cell of a point of the data. Some minutes on one core.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

import zellige
from zellige.data import Data
from zellige.evaluation.interval import Proportion
from zellige.nn import Net

SIDE, POINTS, SAMPLES = 50, 20_000, 2000
NOISES = {"uniform": "cosine", "gaussian": "cosine", "absorbing": "paper"}


def points(count: int, seed: int) -> np.ndarray:
    """Points of the roll, quantised: (count, 2) whole numbers below SIDE."""
    draw = np.random.default_rng(seed)
    angle = 1.5 * math.pi * (1 + 2 * draw.random(count))
    roll = np.stack((angle * np.cos(angle), angle * np.sin(angle)), 1) + 0.3 * draw.standard_normal((count, 2))
    return np.clip((roll / 32 + 0.5) * SIDE, 0, SIDE - 1).astype(np.uint8)


def on_the_roll(samples: Tensor, data: np.ndarray) -> Tensor:
    """Whether each sample (N, 2) is a neighbour of a point of the data, or one of them: (N,) bool."""
    seen = torch.zeros(1, 1, SIDE, SIDE)
    seen[0, 0, *torch.as_tensor(data).long().unbind(1)] = 1.0
    near = torch.nn.functional.max_pool2d(seen, 3, 1, 1)[0, 0].bool()
    inside = (samples < SIDE).all(1)
    x, y = samples.clamp_max(SIDE - 1).unbind(1)
    return inside & near[x, y]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("swiss-roll.png"))
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/swiss-roll"))
    choices = parser.parse_args()
    torch.set_num_threads(1)
    choices.folder.mkdir(parents=True, exist_ok=True)
    data, path = points(POINTS, 0), choices.folder / "points.npy"
    np.save(path, data[:, None])  # a picture of one row and two columns, so that the values are ordered
    clean = torch.as_tensor(points(SAMPLES, 1)).long()
    figure = Figure(figsize=(8, 6.2), layout="constrained")
    for axes, (noise, schedule) in zip(figure.subplots(len(NOISES), 4), NOISES.items()):
        run = zellige.train(
            "d3pm", options=zellige.METHODS["d3pm"].Config(noise, schedule, diffusion_steps=100),
            data=Data("array", path=str(path), kind="image", vocabulary=SIDE),
            net=Net(layers=3, hidden=96, heads=4),
            train=zellige.Train(
                steps=choices.steps, batch=256, lr=2e-3, warmup=100, validate_every=0, samples=0, tensorboard=False
            ),
            run=choices.folder / noise, overwrite=True,
        )  # fmt: skip
        method = run.model.method
        generator = torch.Generator().manual_seed(0)
        noisy = [method.corrupt(zellige.Batch(clean), t, generator) for t in (0.5, 1.0)]
        drawn = torch.tensor(zellige.Sample(count=SAMPLES, steps=100, batch=SAMPLES).run(run.model).tokens)
        share = Proportion(int(on_the_roll(drawn, data).sum()), SAMPLES)
        print(f"| {noise} | {share} |", flush=True)
        titles = (f"{noise}: data", "half way", "at the end", "samples")
        for axis, title, x in zip(axes, titles, (clean, *noisy, drawn)):
            shown = x[(x < SIDE).all(1)]  # a mask has no place
            axis.scatter(shown[:, 0], shown[:, 1], s=0.6, color="#4c6ef5")
            axis.set(xlim=(-1, SIDE), ylim=(-1, SIDE), xticks=[], yticks=[], aspect="equal")
            axis.set_title(title, fontsize=9)
    figure.savefig(choices.out, dpi=110)


if __name__ == "__main__":
    main()
