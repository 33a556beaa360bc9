"""How often the intervals of energy distance, MMD and total variation of n-grams (`evaluation/metrics.py`) hold the truth.

    cd studies/coverage
    python coverage_distances.py                                       # of normal vectors, shifted and scaled
    python coverage_distances.py --text shared/data/tales/train.txt    # of rows of real text, and shuffled ones
    python coverage_distances.py --hard                                # where they are known to cover less
    zellige sample RUN --count 400 --out drawn.jsonl
    python coverage_distances.py --text TRAINED-ON --samples drawn.jsonl    # of a trained model's samples beside it

Of normal vectors the truth is of 4 million pairs. Of texts the laws are pools, from which each repeat draws with repetition:
the truth of a kernel is exact, over all pairs of the pools, and that of TV the mean of twenty times as many repeats. In percent,
energy distance / MMD or 1- to 4-grams. (*): 93 to 97% is refused, at 99% of Clopper and Pearson's interval of the hits.
"""

import argparse
import itertools
import json
import math
from pathlib import Path

import numpy as np

from zellige.evaluation import distances, metrics
from zellige.evaluation.metrics import ORDERS, grams
from zellige.plugins.evaluations.generate.text_features import hashed_ngrams, in_units_of

PAIRS = 4_000_000
POOL = 1500  # rows of real text
ROW = 64  # characters of a row, bytes as its tokens
CHANGES = {  # of place, in units in which D is 1.4 V2^(1/2), 3, 13 and 90 of these then, and of scale
    "equal": (0.0, 1.0), "shift 1.5": (1.5, 1.0), "3": (3.0, 1.0), "8": (8.0, 1.0),
    "scale 0.7": (0.0, 0.7), "1.1": (0.0, 1.1), "1.3": (0.0, 1.3), "2": (0.0, 2.0),
}  # fmt: skip
KERNELS = {"energy distance": np.negative, "MMD": lambda r: np.exp(-(r**2) / 2)}


def tail(hits: int, repeats: int, share: float) -> float:
    """P(at most so many hits), exactly."""
    log = lambda k: (  # noqa: E731
        math.lgamma(repeats + 1) - math.lgamma(k + 1) - math.lgamma(repeats - k + 1)
        + k * math.log(share) + (repeats - k) * math.log1p(-share)
    )  # fmt: skip
    return math.fsum(math.exp(log(k)) for k in range(hits + 1))


def covers(hits: int, repeats: int, low: float = 0.93, high: float = 0.97) -> bool:
    """Whether Clopper and Pearson's 99% interval of the coverage reaches `low` to `high`: 0.5% on either side."""
    return tail(hits, repeats, low) > 0.005 and (hits == 0 or 1 - tail(hits - 1, repeats, high) > 0.005)


def shown(hits: int, repeats: int) -> str:
    return f"{100 * hits / repeats:.1f}" + ("" if covers(hits, repeats) else " (*)")


# ------------------------------------------------------------------------------------------------------- normal vectors
def embedded(g: np.random.Generator, count: int, dimension: int, shift: float, scale: float = 1.0) -> np.ndarray:
    """Normal vectors in the units of real text, one of their numbers shifted, all of them scaled."""
    x = g.normal(size=(count, dimension)) * scale
    x[:, 0] += shift
    return x / math.sqrt(2 * dimension)


def truths(dimension: int, shift: float, scale: float) -> dict[str, float]:
    """D of such vectors and unshifted ones: x - y is normal too, and its length a chi; the same draws for all three parts."""
    g = np.random.default_rng(0)
    rest, first = (g.chisquare(dimension - 1, PAIRS) if dimension > 1 else 0.0), g.normal(size=PAIRS)
    lengths = [
        np.sqrt((square * rest + (math.sqrt(square) * first + by) ** 2) / (2 * dimension))
        for square, by in ((2 * scale**2, 0.0), (2.0, 0.0), (1 + scale**2, shift))
    ]
    means = {name: [float(k(r).mean()) for r in lengths] for name, k in KERNELS.items()}
    return {name: xx + yy - 2 * xy for name, (xx, yy, xy) in means.items()}


def normal(g: np.random.Generator, repeats: int, sizes: tuple[int, int], dimension: int, change: str) -> dict[str, int]:
    """How often the intervals of so many vectors hold the truth."""
    (shift, scale), (n, m) = CHANGES[change], sizes
    shift *= math.sqrt(2 / n + 2 / m) * dimension**0.25
    truth = truths(dimension, shift, scale)
    hits = dict.fromkeys(truth, 0)
    for _ in range(repeats):
        x, y = embedded(g, n, dimension, shift, scale), embedded(g, m, dimension, 0.0)
        numbers = metrics.measure(vectors=x, real_vectors=y)
        for name in truth:
            hits[name] += numbers[name].low <= truth[name] <= numbers[name].high
    return hits


# ------------------------------------------------------------------------------------------------------- pools of texts
def from_pools(
    g: np.random.Generator, repeats: int, sizes: tuple[int, int], x: np.ndarray, y: np.ndarray
) -> dict[str, int]:
    """The same of embeddings drawn from pools x (N, D) and y (M, D), with repetition."""
    far = [distances.euclidean(x, x), distances.euclidean(y, y), distances.euclidean(x, y)]
    hits = {}
    for name, kernel in KERNELS.items():
        xx, yy, xy = (kernel(r) for r in far)
        truth, hits[name] = float(xx.mean() + yy.mean() - 2 * xy.mean()), 0
        for _ in range(repeats):
            i, j = (g.integers(0, len(pool), n) for pool, n in zip((x, y), sizes))
            number = distances.discrepancy(xx[np.ix_(i, i)], yy[np.ix_(j, j)], xy[np.ix_(i, j)])
            hits[name] += number.low <= truth <= number.high
    return hits


def variation(
    g: np.random.Generator, repeats: int, sizes: tuple[int, int], x: np.ndarray, y: np.ndarray, n: int
) -> tuple[int, float]:
    """How often the interval of TV-n, of rows (N, L) and (M, L), holds its mean, of 20 times as many repeats; and that mean."""
    codes = grams([*x.tolist(), *y.tolist()], n)[0].reshape(len(x) + len(y), -1)
    kinds, places = int(codes.max()) + 1, lambda: [g.integers(0, len(p), size) for p, size in zip((x, y), sizes)]

    def value() -> float:
        i, j = places()
        f, h = (np.bincount(some.ravel(), minlength=kinds) / some.size for some in (codes[i], codes[len(x) + j]))
        return float(np.abs(f - h).sum() / 2)

    truth, hits = math.fsum(value() for _ in range(20 * repeats)) / (20 * repeats), 0
    for _ in range(repeats):
        i, j = places()
        number = metrics.total_variation(x[i].tolist(), y[j].tolist(), n)
        hits += number.low <= truth <= number.high
    return hits, truth


def missing_mode(g: np.random.Generator, repeats: int, sizes: tuple[int, int], share: float) -> dict[str, int]:
    """Of normal vectors in 8 dimensions, of which this share of the real ones lie in a second mode that no sample has."""
    (n, m), many = sizes, 4000
    x, y = embedded(g, many, 8, 0.0), embedded(g, many, 8, 0.0)
    y[: round(share * many), 0] += 6.0
    return from_pools(g, repeats, (n, m), x, y)


def topics(g: np.random.Generator, repeats: int, sizes: tuple[int, int], concentration: float) -> int:
    """TV-1 of texts of 64 tokens of 50 kinds, equal laws, each text with frequencies of its own (Dirichlet)."""
    law = np.full(50, concentration)
    x, y = (
        np.stack([g.choice(50, ROW, p=g.dirichlet(law)) for _ in range(POOL)]) for _ in range(2)
    )  # fmt: skip
    return variation(g, repeats, sizes, x, y, 1)[0]


def few_topics(g: np.random.Generator, repeats: int, sizes: tuple[int, int], topics: int) -> int:
    """TV-1 of texts of 64 tokens, equal distributions, each text of one topic with kinds of its own, 16, or 8 of many topics."""
    words = 16 if topics <= 3 else 8
    x, y = (
        g.integers(0, topics, POOL)[:, None] * words + g.integers(0, words, (POOL, ROW)) for _ in range(2)
    )  # fmt: skip
    return variation(g, repeats, sizes, x, y, 1)[0]


def rows_of(text: str) -> np.ndarray:
    """(N, ROW) bytes."""
    codes = np.frombuffer(text.encode(), np.uint8).astype(np.int64)
    return codes[: len(codes) // ROW * ROW].reshape(-1, ROW)


def spelt(rows: np.ndarray) -> list[str]:
    return [bytes(row.tolist()).decode(errors="replace") for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--hard", action="store_true")
    parser.add_argument("--samples", type=Path)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[60, 60, 30, 120], help="texts of either side, pair by pair"
    )
    parser.add_argument("--dimensions", type=int, nargs="+", default=[1, 8, 64])
    chosen = parser.parse_args()
    sizes, repeats = list(zip(chosen.sizes[::2], chosen.sizes[1::2])), chosen.repeats
    if chosen.hard:
        for pair in sizes:
            for share in (0.03, 0.06, 0.12, 0.25):
                hits = missing_mode(np.random.default_rng([*pair, 3]), repeats, pair, share)
                text = " / ".join(shown(k, repeats) for k in hits.values())
                print(f"{pair[0]}, {pair[1]}: a mode of {share:.0%} of the real texts is missing: {text}", flush=True)
            for concentration in (0.02, 0.1, 1.0):
                hits = topics(np.random.default_rng([*pair, 4]), repeats, pair, concentration)
                text = shown(hits, repeats)
                print(f"{pair[0]}, {pair[1]}: TV-1, topics of concentration {concentration:g}: {text}", flush=True)
            for count in (2, 5, 10):
                text = shown(few_topics(np.random.default_rng([*pair, 5]), repeats, pair, count), repeats)
                print(f"{pair[0]}, {pair[1]}: TV-1, each text of one of {count} topics: {text}", flush=True)
        return
    if chosen.text is None:
        print("| n, m | d | " + " | ".join(CHANGES) + " |\n" + "|---" * (2 + len(CHANGES)) + "|")
        for pair in sizes:
            for dimension in chosen.dimensions:
                cells = [
                    normal(np.random.default_rng([*pair, dimension, i]), repeats, pair, dimension, change)
                    for i, change in enumerate(CHANGES)
                ]
                hits = [" / ".join(shown(k, repeats) for k in cell.values()) for cell in cells]
                print(f"| {pair[0]}, {pair[1]} | {dimension} | " + " | ".join(hits) + " |", flush=True)
        return
    real = rows_of(chosen.text.read_text())
    real = real[np.random.default_rng(0).permutation(len(real))[: 2 * POOL]]
    y, other = real[:POOL], real[POOL:]
    mixed = other.copy()
    mixed[::2] = np.random.default_rng(1).permuted(mixed[::2], axis=1)
    laws = {"real text": y, "half of its rows shuffled": mixed}
    if chosen.samples is not None:
        texts = [json.loads(line)["text"] for line in chosen.samples.read_text().splitlines()]
        laws = {"a model's": np.concatenate([rows_of(text)[:2] for text in texts])}
    units = in_units_of(hashed_ngrams(spelt(y)))
    print("| n, m | samples are | energy distance / MMD | " + " | ".join(f"TV-{n}, mean" for n in ORDERS) + " |")
    print("|---" * (3 + len(ORDERS)) + "|")
    for pair, (i, (name, rows)) in itertools.product(sizes, enumerate(laws.items())):
        g = np.random.default_rng([*pair, i])
        kernels = from_pools(g, repeats, pair, *(units(hashed_ngrams(spelt(some))) for some in (rows, y)))
        hits = [" / ".join(shown(k, repeats) for k in kernels.values())]
        for n in ORDERS:
            held, truth = variation(g, repeats, pair, rows, y, n)
            hits.append(f"{shown(held, repeats)}, {truth:.3f}")
        print(f"| {pair[0]}, {pair[1]} | {name} | " + " | ".join(hits) + " |", flush=True)


if __name__ == "__main__":
    main()
