"""What truncated Gumbel noise makes of a step: exact, for K tokens by Zipf's law, of which a step of T reveals one with 1/T.

    python studies/gumbel/truncated_gumbel.py [--bits 24] [--figure gumbel.svg]

Of the step's distribution (K tokens and the mask) the total variation to that with noise of so many bits, times T, which is the
part of the steps in which another state is drawn than should be; and of the tokens that are revealed the entropy.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from zellige.core.maths import xlogy
from zellige.core.random import truncated_gumbel
from zellige.plugins.report.palette import BLUE, GREEN, VERMILION, styled

TOKENS, STEPS = (27, 1024, 50257), (64, 1024, 4096)


def entropy(p: torch.Tensor) -> float:
    return -float(xlogy(p, p).sum())


def step_of(K: int, T: int, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The distribution of one of T steps over K tokens and the mask, and what the truncated noise makes of it: (K + 1,) each."""
    tokens = 1 / torch.arange(1, K + 1, dtype=torch.float64)
    step = torch.cat([tokens / tokens.sum() / T, torch.tensor([1 - 1 / T], dtype=torch.float64)])
    return step, truncated_gumbel(step, bits)


def lost(K: int, T: int, bits: int) -> float:
    """Fraction of the reveals that the truncated noise loses."""
    step, drawn = step_of(K, T, bits)
    return 0.5 * float((drawn - step).abs().sum()) * T


@styled
def draw(bits: int) -> Figure:
    """Reveals lost against the number of steps, a curve for each number of tokens."""
    figure = Figure(figsize=(5.6, 3), layout="constrained")
    axes, steps = figure.subplots(), [2**n for n in range(4, 15)]
    for K, colour, dash in zip(TOKENS, (BLUE, GREEN, VERMILION), ("-", (0, (6, 2)), (0, (2, 1.5)))):
        values = [lost(K, T, bits) for T in steps]
        axes.plot(steps, values, color=colour, ls=dash)
        axes.annotate(f"{K:,} tokens", (steps[-1], values[-1]), (5, -3), textcoords="offset points", color=colour)
    axes.set_xscale("log", base=2)
    axes.set_xlim(steps[0], steps[-1] * 6)
    axes.set_xticks(steps[::2], [f"{T:,}" for T in steps[::2]])
    axes.yaxis.set_major_formatter(PercentFormatter(1, 0))
    axes.set_xlabel("steps")
    axes.set_title(f"reveals lost where {bits} bits cut Gumbel noise off")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", type=int, default=24)
    parser.add_argument("--figure", type=Path)
    chosen = parser.parse_args()
    bits = chosen.bits
    print("| tokens | entropy, nats | steps | total variation x steps | entropy of what is revealed, nats |")
    print("|---|---|---|---|---|")
    for K in TOKENS:
        for T in STEPS:
            step, drawn = step_of(K, T, bits)
            tokens, revealed = step[:-1] * T, drawn[:-1] / drawn[:-1].sum()
            print(f"| {K:,} | {entropy(tokens):.3f} | {T:,} | {lost(K, T, bits):.4f} | {entropy(revealed):.3f} |")
    if chosen.figure:
        draw(bits).savefig(chosen.figure, metadata={"Date": None})


if __name__ == "__main__":
    main()
