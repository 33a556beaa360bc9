"""Samplers of one model against their network evaluations: -log p of the samples by the model itself, and their entropy.

    python studies/samplers/speculative.py runs/tales-mdlm --head tales-head ancestral:20 speculative:cosine=0.1,rounds=4

-log p is the model's any-order bound, with the same masks for every set, in nats per token (95% over texts). Entropy is that of
the tokens within a text, in nats, mean over texts: a sampler that repeats itself has a low one. Seconds are of one thread.
"""

import argparse
import math
import time
from typing import Any

import torch

import zellige
from zellige.core.batch import Batch

DRAWS = 4  # numbers of masks for each text
BATCH = 64  # texts in one evaluation


def entropy(tokens: torch.Tensor) -> torch.Tensor:
    """Entropy (N,) of the tokens of each text (N, L), nats."""
    shares = [row.unique(return_counts=True)[1].double() / len(row) for row in tokens]
    return torch.stack([-(p * p.log()).sum() for p in shares])


def mean(values: torch.Tensor) -> str:
    return f"{float(values.mean()):.3f} ± {1.96 * float(values.std()) / math.sqrt(len(values)):.3f}"


def value_of(word: str) -> object:
    """An option's value: a whole number, a number, or a word."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return word


@torch.no_grad()
def measure(model: zellige.Model, way: str, count: int, length: int, seed: int) -> str:
    name, _, rest = way.partition(":")
    words = rest.split(",") if rest else []
    steps = next((int(word) for word in words if word.isdigit()), None)
    options: dict[str, Any] = {key: value_of(word) for key, _, word in (w.partition("=") for w in words) if word}
    began = time.process_time()
    samples = zellige.Sample.of(
        count=count, seed=seed, sampler=name, steps=steps, length=length, batch=BATCH, defaults=False, **options
    ).run(model)
    seconds = time.process_time() - began
    tokens = torch.tensor(samples.tokens)
    bound, generator = (
        model.method.of_length(length).estimators()["any_order"],
        torch.Generator().manual_seed(seed),
    )
    draws = [torch.cat([bound(Batch(part), generator) for part in tokens.split(BATCH)]) for _ in range(DRAWS)]
    nats, calls = torch.stack(draws).mean(0) / length, torch.tensor(samples.calls).double()
    return f"| {way} | {float(calls.mean()):.1f} | ≤ {mean(nats)} | {mean(entropy(tokens))} | {seconds / count:.2f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("ways", nargs="+", help="a sampler with :steps or :option=value,option=value")
    parser.add_argument("--head")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    loaded = zellige.load(chosen.model, head=chosen.head)
    print("| sampler | evaluations | -log p, nats/token | entropy, nats | seconds a text |\n|---|---|---|---|---|")
    for one in chosen.ways:
        print(measure(loaded, one, chosen.count, chosen.length, chosen.seed), flush=True)
