"""A table of categories whose distribution is known: how far is each objective of CSM from it, and masks and left to right?

    python studies/tabular/tabular.py [--seeds 3] [--steps 500] [--folder /tmp/tabular]

The table is drawn from a Bayesian network over six columns of three values, 2,000 rows of 729 possible ones. Its probabilities
are known, so the divergence KL(true || model) is exact for CSM (of the distribution that its chain keeps) and for AR, and a bound
for MDLM. Every method has the same transformer, steps and rows. Beside them two counts of the training rows: columns independent,
and the frequency of each whole row with 1/3 added.
"""

import argparse
import csv
import json
import math
import statistics
from pathlib import Path

import torch

import zellige
from zellige import exact
from zellige.base.errors import Diverged
from zellige.core import maths
from zellige.core.batch import Batch
from zellige.data import Data, prepare
from zellige.evaluation.interval import student
from zellige.exact import metropolis
from zellige.nn import Net

COLUMNS, VALUES, ROWS = 6, 3, 2000
PARENTS = ((), (0,), (0,), (1, 2), (3,), (2, 4))
METHODS = {
    "csm": ("csm", {"neighbours": 4}),
    "denoising": ("csm", {"objective": "denoising"}),
    "score entropy": ("csm", {"objective": "score-entropy", "neighbours": 4}),
    "ratio matching": ("csm", {"objective": "ratio-matching", "neighbours": 4}),
    "discrete marginalisation": ("csm", {"objective": "discrete-marginalisation", "neighbours": 4}),
    "mdlm": ("mdlm", {}),
    "ar": ("ar", {}),
}


def truth(seed: int = 0) -> torch.Tensor:
    """The probability of every row, (729,): each column's conditional is a random point of the simplex, softened by 0.02."""
    generator, X = torch.Generator().manual_seed(seed), exact.states(VALUES, COLUMNS)
    p = torch.ones(len(X), dtype=torch.float64)
    for column, parents in enumerate(PARENTS):
        logits = 1.5 * torch.randn(*[VALUES] * (len(parents) + 1), generator=generator, dtype=torch.float64)
        table = 0.98 * logits.softmax(-1) + 0.02 / VALUES
        p = p * table[tuple(X[:, i] for i in (*parents, column))]
    return p


def write(path: Path, p: torch.Tensor, seed: int) -> torch.Tensor:
    """Draw the table, and count its training rows: (729,)."""
    rows = torch.multinomial(p, ROWS, replacement=True, generator=torch.Generator().manual_seed(seed))
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow([f"column{i}" for i in range(COLUMNS)])
        table.writerows([["abc"[k] for k in row] for row in exact.states(VALUES, COLUMNS)[rows].tolist()])
    rows = prepare(Data("table", path=str(path))).train
    tokens = torch.stack([torch.as_tensor(rows[i]["tokens"]) for i in range(len(rows))])
    return exact.index(tokens.long(), VALUES).bincount(minlength=len(p)).double()


@torch.no_grad()
def divergence(method: zellige.methods.Method, p: torch.Tensor) -> float:
    """KL(true || model) in nats, or for masks a bound on it."""
    X = exact.states(VALUES, COLUMNS)
    if method.name == "csm":
        return float(metropolis.divergence(p, method))
    draws = 1 if method.exact else 200
    nats = torch.stack([method.bound(Batch(X), torch.Generator().manual_seed(i)) for i in range(draws)]).mean(0)
    return float((p * nats).sum() - exact.entropy(p))


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("seeds", 3), ("steps", 500)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/tabular"))
    parser.add_argument("--only", nargs="*", default=list(METHODS))
    choices = parser.parse_args()
    choices.folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[float]] = {}
    X = exact.states(VALUES, COLUMNS)
    for seed in range(choices.seeds):
        p, path = truth(), choices.folder / f"table{seed}.csv"
        data, counts = Data("table", path=str(path)), write(path, p, seed)
        frequency = maths.normalise(counts + 1 / 3)
        alone = torch.ones_like(p)
        for i in range(COLUMNS):
            share = maths.normalise(torch.zeros(VALUES, dtype=torch.float64).index_add(0, X[:, i], counts))
            alone = alone * share[X[:, i]]
        for name, q in (("columns independent", alone), ("frequency of rows", frequency)):
            results.setdefault(name, []).append(float(maths.kl(p, q)))
        for name in choices.only:
            method, options = METHODS[name]
            try:
                run = zellige.train(
                    method, options=zellige.METHODS[method].Config(**options), data=data,
                    net=Net(layers=2, hidden=64, heads=4),
                    train=zellige.Train(
                        steps=choices.steps, batch=128, lr=3e-3, warmup=100, validate_every=choices.steps, samples=0, seed=seed,
                        ema=0.999, tensorboard=False,
                    ),
                    run=choices.folder / f"{name.replace(' ', '-').replace(',', '')}-{seed}", overwrite=True,
                )  # fmt: skip
            except Diverged as problem:
                print(seed, name, problem, flush=True)
                results.setdefault(name, []).append(math.inf)
                continue
            results.setdefault(name, []).append(divergence(run.model.method.double().eval(), p))
            print(seed, name, results[name][-1], flush=True)
    (choices.folder / "results.json").write_text(json.dumps(results))
    for name, values in results.items():
        finite = [value for value in values if value < math.inf]
        cell = "diverged"
        if len(finite) > 1:
            half = student(len(finite) - 1) * statistics.stdev(finite) / math.sqrt(len(finite))
            cell = f"{statistics.mean(finite):.3f} ± {half:.3f}"
        print(f"| {name} | {cell} | {len(values) - len(finite)} of {len(values)} |")


if __name__ == "__main__":
    main()
