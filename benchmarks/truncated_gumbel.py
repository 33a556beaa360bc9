"""What truncated Gumbel noise makes of a step: exact, for K tokens by Zipf's law, of which a step of T reveals one with 1/T.

    python benchmarks/truncated_gumbel.py [--bits 24]

Of the step's distribution (K tokens and the mask) the total variation to that with noise of so many bits, times T, which is the
part of the steps in which another state is drawn than should be; and of the tokens that are revealed the entropy.
"""

import argparse

import torch

from zellige.core.maths import xlogy
from zellige.core.random import truncated_gumbel

TOKENS, STEPS = (27, 1024, 50257), (64, 1024, 4096)


def entropy(p: torch.Tensor) -> float:
    return -float(xlogy(p, p).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", type=int, default=24)
    bits = parser.parse_args().bits
    print("| tokens | entropy, nats | steps | total variation x steps | entropy of what is revealed, nats |")
    print("|---|---|---|---|---|")
    for K in TOKENS:
        tokens = 1 / torch.arange(1, K + 1, dtype=torch.float64)
        tokens /= tokens.sum()
        for T in STEPS:
            step = torch.cat([tokens / T, torch.tensor([1 - 1 / T], dtype=torch.float64)])
            drawn = truncated_gumbel(step, bits)
            distance = 0.5 * float((drawn - step).abs().sum())
            revealed = drawn[:-1] / drawn[:-1].sum()
            print(f"| {K:,} | {entropy(tokens):.3f} | {T:,} | {distance * T:.4f} | {entropy(revealed):.3f} |")


if __name__ == "__main__":
    main()
