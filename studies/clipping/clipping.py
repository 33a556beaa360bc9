"""How much a training gradient of block diffusion varies with the law of t: all of [0, 1], clipped intervals, counts of masks.

    python studies/clipping/clipping.py RUN [RUN ...] [--draws 100] [--figure clipping.svg]

For each run of bd3lm (say of blocks of 4 and of 16): the variance of the gradient over batches of its training data and over
what is drawn, summed over all weights, over that of t ~ U[0, 1]. "counts" is what a network without a time trains with unless it
is told to clip: k masks in a block, k evenly spread. An interval has another expectation than the bound (it leaves out times),
so the squared norm of its mean gradient stands beside.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import zellige
from zellige.core.batch import Batch
from zellige.data.prepare import prepare
from zellige.methods.bd3lm import BD3LM

INTERVALS = [(0.0, 1.0), (0.0, 0.5), (0.3, 0.8), (0.5, 1.0), (0.45, 0.95)]


def variance(method: BD3LM, batches: list[Batch], loss: Callable[..., Tensor]) -> tuple[float, float]:
    """The variance of the gradient of the loss in nats per token, summed over the weights; the squared norm of its mean."""
    total = square = torch.zeros(())
    for number, batch in enumerate(batches):
        method.zero_grad(set_to_none=True)
        (loss(batch, torch.Generator().manual_seed(number)).mean() / batch.tokens.shape[1]).backward()
        flat = torch.cat([p.grad.reshape(-1) for p in method.parameters() if p.grad is not None]).double()
        total, square = total + flat, square + flat.square()
    n = len(batches)
    mean = total / n
    return float(((square / n - mean.square()) * n / (n - 1)).sum()), float(mean.square().sum())


def measure(run: str, draws: int, rows: int) -> tuple[str, dict[str, tuple[float, float]]]:
    model = zellige.load(run)
    method = model.method
    corpus = prepare(model.config.data, model.config.net.length, tokenizer=model.tokenizer)
    order = torch.randperm(len(corpus.train), generator=torch.Generator().manual_seed(0))[: draws * rows]
    batches = [corpus.train.collate([corpus.train[int(i)] for i in part]) for part in order.split(rows)]
    method.train()
    found = {}
    for low, high in INTERVALS:
        ends = torch.tensor([low, high], dtype=torch.float64)
        found[f"[{low:g}, {high:g}]"] = variance(method, batches, lambda b, g, ends=ends: method.clipped(b, ends, g))
    if method.draws_mask_counts:
        found["counts"] = variance(method, batches, method.bound)
    return f"L' = {method.config.block}", found


def draw(found: dict[str, dict[str, tuple[float, float]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.45 * len(next(iter(found.values()))) * len(found) ** 0.5 + 1.2), layout="constrained")
    axes = figure.subplots()
    names, height = list(next(iter(found.values()))), 0.8 / len(found)
    for i, (label, each) in enumerate(found.items()):
        places = [j + (i - (len(found) - 1) / 2) * height for j in range(len(names))]
        axes.barh(places, [each[n][0] / each[names[0]][0] for n in names], height, label=label)
    axes.set_yticks(range(len(names)), [f"t in {n}" if n[0] == "[" else n for n in names])
    axes.invert_yaxis()
    axes.axvline(1, color="gray", linewidth=0.8)
    axes.set_xlabel("variance of the gradient, that of t ~ U[0, 1] = 1")
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--figure", type=Path)
    chosen = parser.parse_args()
    found = dict(measure(run, chosen.draws, chosen.rows) for run in chosen.runs)
    for label, each in found.items():
        whole = each[f"[{INTERVALS[0][0]:g}, {INTERVALS[0][1]:g}]"][0]
        print(f"{label}, {chosen.draws} batches of {chosen.rows}")
        for name, (value, mean) in each.items():
            print(f"  {name:<12} variance {value:9.3g}   of U[0, 1]'s {value / whole:6.3f}   mean² {mean:9.3g}")
    if chosen.figure:
        draw(found, chosen.figure)


if __name__ == "__main__":
    main()
