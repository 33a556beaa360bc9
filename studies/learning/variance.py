"""Variance of a training's loss and gradient, with stratified and with independent times (MDLM, figure 3).

    python studies/learning/variance.py RUN [RUN ...] [--batches 100] [--rows 8]

Over batches of the run's training data and over the noise: the variance of the loss, nats per token of a batch, and that of its
gradient, summed over all weights. ± is 95%, Student's t over the jackknife's pseudo-values. Both kinds of times get the same
batches. The loss is that of training; dropout is off. `studies/clipping/clipping.py` compares intervals of times of BD3-LM.
"""

import argparse
import math

import torch
from torch import Tensor

import zellige
from zellige.core.batch import Batch
from zellige.core.counter_random import Counter, Independent
from zellige.data.prepare import prepare
from zellige.evaluation.interval import student
from zellige.methods.method import Method


def losses_and_gradients(method: Method, batches: list[Batch], kind: type[Counter]) -> tuple[Tensor, Tensor]:
    """The loss of each batch (N,), nats per token, and its gradient (N, weights)."""
    losses, gradients = [], []
    for number, batch in enumerate(batches):
        method.zero_grad(set_to_none=True)
        loss = method.loss(batch, kind(0, number)).sum() / batch.counted.sum()
        loss.backward()
        losses.append(loss.detach().double())
        gradients.append(torch.cat([p.grad.reshape(-1) for p in method.parameters() if p.grad is not None]))
    return torch.stack(losses), torch.stack(gradients)


def variance(values: Tensor) -> tuple[float, float]:
    """The variance of values (N,) or (N, d), summed over d, and the half-width of its 95% interval (jackknife)."""
    n, values = len(values), values.reshape(len(values), -1)
    away = (values - values.mean(0)).double().square().sum(-1)
    whole = away.sum() / (n - 1)
    left_out = (away.sum() - away * n / (n - 1)) / (n - 2)  # of the others alone
    pseudo = n * whole - (n - 1) * left_out
    return float(whole), student(n - 1) * float(pseudo.std()) / math.sqrt(n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--rows", type=int, default=8)
    chosen = parser.parse_args()
    for run in chosen.runs:
        model = zellige.load(run)
        corpus = prepare(model.config.data, model.config.net.length, tokenizer=model.tokenizer)
        order = torch.randperm(len(corpus.train), generator=torch.Generator().manual_seed(0))
        order = order[torch.arange(chosen.batches * chosen.rows) % len(order)]
        batches = [corpus.train.collate([corpus.train[int(i)] for i in part]) for part in order.split(chosen.rows)]
        print(f"{run}: {model.config.method}, {chosen.batches} batches of {chosen.rows}")
        for times, kind in (("stratified", Counter), ("independent", Independent)):
            losses, gradients = losses_and_gradients(model.method.eval(), batches, kind)
            (loss, half), (gradient, half_gradient) = variance(losses), variance(gradients)
            print(
                f"  {times:<12} loss {float(losses.mean()):.3f} nats/token, its variance {loss:.3g} ± {half:.2g};"
                f" variance of the gradient {gradient:.3g} ± {half_gradient:.2g}"
            )


if __name__ == "__main__":
    main()
