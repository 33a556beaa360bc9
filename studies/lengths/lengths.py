"""Lengths of a model's samples against those of the texts that it was trained on.

python studies/lengths/lengths.py RUN [RUN ...] --count 1000 --steps 64

For each run: the median length, and the total variation between the distribution of the lengths of `count` samples and that of
the test split; for comparison that of as many texts of the training split, which only chance separates from it. Of molecules
(SMILES) also the share of the samples that are valid. The token that ends a text does not count.
"""

import argparse
from collections import Counter
from collections.abc import Sequence

import numpy as np

import zellige
from zellige.evaluation.corpus import corpus_of
from zellige.plugins.kinds.molecules.smiles import is_molecule


def lengths_of(rows: np.ndarray, end: int | None) -> list[int]:
    """Lengths of the texts (N, L), -1 where there is padding, without the token that ends them."""
    return [int(((row >= 0) & (row != end)).sum()) for row in rows]


def variation(one: Sequence[int], other: Sequence[int]) -> float:
    """Total variation between the distributions of two sets of numbers."""
    a, b = Counter(one), Counter(other)
    return sum(abs(a[n] / len(one) - b[n] / len(other)) for n in {*a, *b}) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--steps", type=int, nargs="+", default=[64])
    parser.add_argument("--molecules", action="store_true", help="count the valid samples, too")
    chosen = parser.parse_args()
    for run in chosen.runs:
        model = zellige.load(run)
        corpus, end = corpus_of(model), model.tokenizer.separator
        test = lengths_of(corpus.test.array(), end)
        train = lengths_of(corpus.train.array(chosen.count), end)
        print(f"{run}: test split median {np.median(test):.0f}, training split {np.median(train):.0f}, ", end="")
        print(f"total variation {variation(train, test):.3f}")
        for steps in chosen.steps:
            samples = zellige.Sample(count=chosen.count, steps=steps, batch=250, defaults=False).run(model)
            ours = lengths_of(np.array([row + [-1] * (64 - len(row)) for row in samples.tokens]), end)
            valid = (
                f", valid {np.mean([is_molecule(text.strip()) for text in samples.texts]):.3f}"
                if chosen.molecules
                else ""
            )
            print(f"  {steps} steps: median {np.median(ours):.0f}, total variation {variation(ours, test):.3f}{valid}")


if __name__ == "__main__":
    main()
