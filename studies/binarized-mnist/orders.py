"""-log p of images, or of other rows, when the probability is averaged over random orders, as EoNADE averages it.

    python studies/binarized-mnist/orders.py runs/binarized-mnist --data.path FOLDER [--rows 6] [--orders 128]

A masked model has a probability of a row x in every order of its positions, log p(x | order). The mean over all orders is the
probability of `any_order` samples. The mean over n of them, log 1/n sum p(x | order), is a bound on its logarithm in
expectation, which rises with n (Burda et al. 2016, arXiv 1509.00519); n = 1 is the bound that `zellige evaluate` prints, without
the noise at t = 1. EoNADE (Uria et al. 2014, arXiv 1310.1757) takes the mean over n fixed orders as its model, and has such a
likelihood.

A row costs n evaluations of each position, so only some rows of the test split are taken, evenly spaced. All in nats per row,
with 95% intervals over rows; the interval of the gain over n = 1 is narrower, because it is of the same rows.
"""

import argparse
from dataclasses import replace

import numpy as np
import torch

import zellige
from zellige.core.batch import Batch
from zellige.core.random import mix
from zellige.data.prepare import prepare
from zellige.evaluation import interval
from zellige.methods.method import Method
from zellige.plugins.evaluations.bracket.two_sides import effective, from_above
from zellige.samplers.replay import path_of, weigh


def log_probabilities(
    method: Method, row: torch.Tensor, number: int, orders: int, seed: int, batch: int
) -> torch.Tensor:
    """log p(row | order) of so many random orders, (orders,) float64 nats; an order is that of (seed, number) and its place."""
    path, found = path_of(method, 0), []
    for begin in range(0, orders, batch):
        drawn = range(begin, min(begin + batch, orders))
        streams = [torch.Generator().manual_seed(mix(seed, "order", number, order)) for order in drawn]
        found.append(weigh(method, Batch(row.expand(len(drawn), -1)), path, streams).log_w.sum(-1))
    return torch.cat(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--data.path", dest="path")
    parser.add_argument("--rows", type=int, default=6)
    parser.add_argument("--orders", type=int, default=128, help="a power of two")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    model = zellige.load(args.run)
    data = replace(model.config.data, path=args.path, augment=0, given="")
    test = prepare(data, model.config.net.length, tokenizer=model.tokenizer).test.array()
    chosen = np.linspace(0, len(test) - 1, args.rows).round().astype(int)
    drawn = []
    with torch.inference_mode():
        for index in chosen:
            row = torch.as_tensor(test[index].astype(np.int64)).reshape(1, -1)
            drawn.append(log_probabilities(model.method, row, int(index), args.orders, args.seed, args.batch))
            values = ", ".join(f"{float(from_above(drawn[-1][None, :, None], n).mean()):.2f}" for n in (1, args.orders))
            print(f"  row {index}: {values} nats by one order, by {args.orders}", flush=True)
    log_w = torch.stack(drawn)[..., None]  # (rows, orders, 1): one block
    numbers = [2**i for i in range(args.orders.bit_length()) if 2**i <= args.orders]
    one = from_above(log_w, 1).mean(1)
    print(f"{args.run}: {len(chosen)} of {len(test)} test rows, {args.orders} orders each, nats per row")
    for n in numbers:
        value = from_above(log_w, n).mean(1)
        mean, gain = interval.mean(value.tolist()), interval.mean((one - value).tolist())
        half = [(of.high - of.low) / 2 for of in (mean, gain)]
        below = f"   below n = 1 by {gain.value:.2f} ± {half[1]:.2f}" if n > 1 else ""
        print(f"  n = {n:4}   ≤ {mean.value:.2f} ± {half[0]:.2f}{below}")
    share = effective(log_w)
    print(f"  of {args.orders} orders so many count (Kish): {float(share.mean() * args.orders):.1f} on average")


if __name__ == "__main__":
    main()
