"""Planted errors in options of the papers' tables: seeds, the variance of a loss, parts of SUBS, losses and networks."""

from .mutant import Mutant as M

C = "report/compare/"
SEEDS = "verify trains nothing"

OPTIONS = [
    M(
        "several seeds: every run has the first seed",
        C + "comparison.py",
        "replace(train, seed=run.seed)",
        "replace(train, seed=train.seed)",
        why=SEEDS,
        tests="tests/report/test_compare.py -k runs_of_their_own",
    ),
    M(
        "several seeds: told apart by the texts alone",
        C + "comparison.py",
        "half = max(half, mean(",
        "half = min(half, mean(",
        why=SEEDS,
        tests="tests/report/test_compare.py -k narrower_than_that_over_seeds",
    ),
    M(
        "several seeds: the difference is not paired by seed",
        C + "comparison.py",
        "[b.value - a.value for a, b in zip(first, second)]",
        "[b.value - a.value for a, b in zip(first, second[1:] + second[:1])]",
        why=SEEDS,
        tests="tests/report/test_compare.py -k narrower_than_that_over_seeds",
    ),
    M(
        "several seeds: the deviation is that of the mean",
        C + "table.py",
        "numbers = (over.value, stdev(row.seeds),",
        "numbers = (over.value, stdev(row.seeds) / math.sqrt(len(row.seeds)),",
        why=SEEDS,
        tests="tests/report/test_compare.py -k runs_of_their_own",
    ),
    M(
        "several seeds: the bound of the first stands for all",
        C + "comparison.py",
        "if r.nats is not None]).mean(0)",
        "if r.nats is not None])[0]",
        why=SEEDS,
        tests="tests/report/test_compare.py -k runs_of_their_own",
    ),
]
