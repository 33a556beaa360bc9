"""Coconet's likelihood of chorales beside the likelihood, for a masked model of them (Huang et al. 2017, arXiv 1903.07227).

    python studies/chorales/chorale_orders.py chorales --data.path FILE.json.xz [--rows 24] [--orders 5] [--figure FILE]

A model that predicts any note from any others has a likelihood in every order of the notes. Coconet's code evaluates the frames
of a piece in a random order, the four voices of a frame in a random order within it, and does two things beside the chain rule:

    own voices   a voice is predicted given the model's own most likely notes of the voices before it in its frame
    averaging    the probability of each frame is averaged over orders, frame by frame; then the logarithms are summed

The first is a likelihood still, one that takes the voices of a frame for independent. The second is none: each frame is averaged
over what it was predicted from, so that it counts mostly with both its neighbours known, and the neighbours with it known. Two
fair coins that always agree show it: either text has probability 1/2, each coin's average is (1/2 + 1) / 2, and their product
9/16 is more.

All in nats per frame, a mean over rows with its 95% interval.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

import zellige
from zellige import Data
from zellige.core.prediction import posterior
from zellige.data.prepare import prepare
from zellige.evaluation import interval
from zellige.plugins.report.palette import BLUE, VERMILION, styled

BATCH = 64


def frame_orders(frames: int, voices: int, generator: np.random.Generator, chronological: bool = False) -> np.ndarray:
    """An order of the positions, frame by frame: (frames, voices), the voices of each frame shuffled."""
    frames_in_order = np.arange(frames) if chronological else generator.permutation(frames)
    return generator.permuted(frames_in_order[:, None] * voices + np.arange(voices), axis=1)


def log_probabilities(method, texts: Tensor, masked: Tensor, places: Tensor) -> Tensor:
    """log p of all tokens (N, K) at one place of each text (N,), where `masked` (N, L) are masked."""
    out = []
    for text, hidden, place in zip(texts.split(BATCH), masked.split(BATCH), places.split(BATCH)):
        x = torch.where(hidden, method.process.mask, text)
        at = torch.zeros_like(hidden).scatter_(1, place[:, None], True)
        p = posterior(method.predict(x, 0.5, at=at)).double()
        out.append(p.clamp_min(1e-300).log())
    return torch.cat(out)


def in_order(method, text: Tensor, order: np.ndarray, own: bool) -> Tensor:
    """log p of each frame (frames,) in an order (frames, voices), in the order of time; own: given the model's own voices."""
    frames, voices = order.shape
    rank = torch.empty(frames * voices, dtype=torch.long)
    rank[torch.as_tensor(order.reshape(-1))] = torch.arange(frames * voices)
    texts, found = text.repeat(frames, 1), torch.zeros(frames, dtype=torch.float64)
    for voice in range(voices):
        places = torch.as_tensor(order[:, voice])
        masked = rank[None] >= (torch.arange(frames) * voices + voice)[:, None]
        log_p = log_probabilities(method, texts, masked, places)
        found += log_p[torch.arange(frames), text[places]]
        if own:
            texts[torch.arange(frames), places] = log_p.argmax(-1)
    by_frame = torch.empty_like(found)
    by_frame[torch.as_tensor(order[:, 0]) // voices] = found
    return by_frame


def ensembled(log_p: Tensor) -> Tensor:
    """Coconet's ensemble: of (orders, frames), the sum over frames of the log of the mean over orders."""
    return (log_p.logsumexp(0) - math.log(len(log_p))).sum()


def coins() -> float:
    """The sum of what ensembling gives to the four texts of two fair coins that always agree: 1.25, where 1 is right."""
    first, second = torch.full((2, 2), 0.5), torch.eye(2)  # p of a coin alone, and given the other
    text = lambda a, b: [[first[a, a], second[a, b]], [second[b, a], first[b, b]]]  # noqa: E731  (two orders, two coins)
    texts = [torch.tensor(text(a, b)).log() for a in (0, 1) for b in (0, 1)]
    return float(torch.stack([ensembled(log_p).exp() for log_p in texts]).sum())


@styled
def draw(found: dict[str, interval.Number]) -> Figure:
    figure = Figure(figsize=(7, 2.6), layout="constrained")
    axes = figure.subplots()
    colours = [VERMILION if "averaged" in name else BLUE for name in found]
    half = [(of.high - of.low) / 2 for of in found.values()]
    axes.barh(list(found), [of.value for of in found.values()], 0.6, xerr=half, color=colours)
    axes.invert_yaxis()
    axes.set_xlabel("nats per frame; blue: a likelihood, orange: none")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--data.path", dest="path")
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--orders", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    model = zellige.load(args.run)
    corpus = prepare(Data("jsb-chorales", path=args.path, size=64), tokenizer=model.tokenizer)
    frames, voices = model.config.net.grid
    test = corpus.test.array()
    chosen = np.linspace(0, len(test) - 1, args.rows).round().astype(int)
    table: dict[str, list[float]] = {}
    with torch.inference_mode():
        for row in chosen:
            text = torch.as_tensor(test[row].astype(np.int64))
            generator = np.random.default_rng([args.seed, int(row)])
            orders = [frame_orders(frames, voices, generator) for _ in range(args.orders)]
            true = torch.stack([in_order(model.method, text, order, False) for order in orders])
            own = torch.stack([in_order(model.method, text, order, True) for order in orders])
            time = in_order(model.method, text, frame_orders(frames, voices, generator, True), False)
            for name, value in {
                "random order of frames": true.sum(1).mean(),
                f"the mixture of {args.orders} such orders": true.sum(1).logsumexp(0) - math.log(len(orders)),
                "in the order of time": time.sum(),
                "own voices": own.sum(1).mean(),
                "own voices, averaged frame by frame (Coconet)": ensembled(own),
                "true voices, averaged frame by frame": ensembled(true),
            }.items():
                table.setdefault(name, []).append(-float(value) / frames)
    print(f"{args.run}: {len(chosen)} of {len(test)} test rows of {frames} frames, nats a frame")
    found = {name: interval.mean(values) for name, values in table.items()}
    for name, of in found.items():
        print(f"  {name:42} {of.value:.3f} ± {(of.high - of.low) / 2:.3f}")
    if args.figure:
        draw(found).savefig(args.figure)
    print(f"two fair coins that agree, averaged so: the probabilities of all texts sum to {coins():g}")


if __name__ == "__main__":
    main()
