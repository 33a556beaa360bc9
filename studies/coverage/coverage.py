"""How often the intervals of `zellige evaluate --bracket` hold what they are about, on a trained model.

    zellige train mdlm --data.name pydocs --net.length 16 --net.layers 2 --net.hidden 64 --net.heads 4 --net.conv 7 \\
        --train.steps 600 --train.batch 64 --train.optimizer adamw --train.lr 4e-3 --train.ema 0.98 --train.validate-every 0 \\
        --train.times stratified --run runs/pydocs16
    python studies/coverage/coverage.py runs/pydocs16 runs/sudoku     # grids of 4 x 4, from studies/brackets
    python studies/coverage/coverage.py                               # of lognormal weights: where the threshold comes from

A network that is not told the time says the same of the same set of known tokens: 2^16 answers are all that any order of 16
tokens asks. So every order's weight is looked up, each repeat has draws of its own, and the truth is of 4 million draws of
each text that no repeat has seen (from above with n = 1: a sum over all sets). Of a longer text there is the plain bound, and
its own samples. Everything else is the command's own code. (*): not within 93 to 97%, by a binomial test.
"""

import argparse
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import zellige
from zellige.core.batch import Batch
from zellige.core.prediction import posterior
from zellige.evaluation import interval
from zellige.evaluation.corpus import corpus_of
from zellige.evaluation.evaluate import evaluate_rows, rows_of
from zellige.evaluation.interval import FREEDOM
from zellige.evaluation.result import summarize
from zellige.plugins.evaluations.bracket import two_sides
from zellige.plugins.evaluations.bracket.bracket import SETS, BracketRow, BracketTable, Work
from zellige.samplers.replay import path_of

DRAWS, SETS_OF_TRUTH = 1 << 16, 64
LONGEST = 16  # tokens: 2^16 answers of a text are looked up
ESTIMATES = {
    "importance-weighted": two_sides.from_above,
    "TUBE": two_sides.from_below,
    "width": two_sides.width,
}


@torch.no_grad()
def answers(method: Any, text: Tensor) -> Tensor:
    """log p of each token of a text (L,) where the tokens of a set are masked: (2^L, L), of masked ones."""
    L = len(text)
    masked = (torch.arange(1 << L)[:, None] >> torch.arange(L)) & 1 == 1
    table = torch.zeros(1 << L, L, dtype=torch.float64)
    for part in torch.arange(1, 1 << L).split(4096):
        at = masked[part]
        p = posterior(method.predict(torch.where(at, method.process.mask, text), 0.5, at=at)).double()
        there = p.gather(-1, text.expand(at.shape)[at][:, None])[:, 0].clamp_min(1e-300)
        table[part] = torch.zeros(at.shape, dtype=torch.float64).masked_scatter(at, there.log())
    return table


def weights(table: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """log w of so many orders, each drawn anew: (draws,)."""
    L = table.shape[1]
    order = torch.rand(draws, L, generator=generator).argsort(1)
    before = (1 << order).flip(1).cumsum(1).flip(1)  # the set that is masked when this position is drawn
    return table.view(-1)[before * L + order].sum(1)


def mean_nats(table: Tensor) -> float:
    """The mean of -log w over all orders, by the sets: what the plain bound and n = 1 are in expectation."""
    L = table.shape[1]
    sets = torch.arange(1 << L)
    inside = (sets[:, None] >> torch.arange(L)) & 1 == 1
    size, value = inside.sum(1), torch.zeros(1 << L, dtype=torch.float64)
    for k in range(1, L + 1):
        here = sets[size == k]
        at = inside[here]
        after = value[here[:, None] ^ (1 << torch.arange(L))] - table[here]
        value[here] = torch.where(at, after, 0.0).sum(1) / k
    return float(value[-1])


@dataclass
class Lookup(Work):
    """As `Work`, with the weights from tables."""

    tables: tuple[Tensor, ...] = ()

    def _draws(self, texts, places, draws, purpose):
        g = torch.Generator().manual_seed(self.seed)
        log_w = torch.stack([weights(self.tables[self.chosen.index(place)], draws, g) for place in places])
        return log_w[..., None], [float(self.tables[0].shape[1])] * len(places)


class Count:
    """Of the intervals that were given, how many held the truth."""

    def __init__(self, truth: float):
        self.truth, self.asked, self.given, self.held = truth, 0, 0, 0

    def add(self, low: float, high: float, determined: bool = True) -> None:
        self.asked += 1
        if determined and high < math.inf:
            self.given += 1
            self.held += low <= self.truth <= high

    def __str__(self) -> str:
        if not self.given:
            return f"none given of {self.asked:,}"
        share, n = self.held / self.given, self.given
        low, high = (edge + sign * 3.3 * math.sqrt(edge * (1 - edge) / n) for edge, sign in ((0.93, -1), (0.97, 1)))
        part = "" if n == self.asked else f" of {n:,} of {self.asked:,}"
        return f"{100 * share:.1f}{part}" + (" (*)" if not low <= share <= high else "")


def judge(model: Any, asked: Any, count: int, draws: int, seed: int = 0) -> Any:
    """The plain bound of so many texts."""
    how = {"batch": 4096, "characters": asked.characters, "unit": asked.unit}
    return evaluate_rows(model.method, asked.rows, draws=draws, seed=seed, limit=count, **how)


def plain(run: str, count: int = 128, draws: int = 8, repeats: int = 200) -> None:
    """The plain bound, over the draws, the texts being these; the truth is of 16 times as many."""
    model = zellige.load(run)
    asked = rows_of(model, corpus_of(model, None), "test")
    hit = Count(judge(model, asked, count, 16 * draws, 10**6).value)
    for seed in range(repeats):
        r = judge(model, asked, count, draws, seed)
        hit.add(r.draws_low, r.draws_high)
    print(
        f"\n{run}, the plain bound of {count} texts by {draws} draws, {repeats} repeats\n  bound{'':<23}{hit}",
        flush=True,
    )


def texts(run: str, count: int, repeats: int, numbers: tuple[int, ...]) -> None:
    """The rows of a trained model of 16 tokens, over the draws."""
    model = zellige.load(run)
    method = model.method.eval()
    asked = rows_of(model, corpus_of(model, None), "test")
    chosen = [i * len(asked.rows) // count for i in range(count)]
    tables = tuple(answers(method, asked.rows.collate([asked.rows[i]]).tokens[0]) for i in chosen)
    scale = judge(model, asked, count, 2)
    units = scale.units * scale.scale
    generator = torch.Generator().manual_seed(10**6)
    hits = {f"{name}, n = {n}": Count(0.0) for n in numbers for name in ESTIMATES}
    for table in tables:
        for _ in range(SETS_OF_TRUTH):
            log_w = weights(table, DRAWS, generator)[None, :, None]
            for n in numbers:
                for name, estimate in ESTIMATES.items():
                    part = float(estimate(log_w, n).mean()) / SETS_OF_TRUTH / units
                    hits[f"{name}, n = {n}"].truth += part
    hits["importance-weighted, n = 1"] = Count(sum(map(mean_nats, tables)) / units)
    path, counting = path_of(method, 64), dict[str, BracketRow]()
    for seed in range(repeats):
        work = Lookup(
            method,
            asked.rows,
            chosen,
            path,
            {},
            tuple(sorted(set(numbers))),
            0,
            seed,
            4096,
            torch.device("cpu"),
            tables,
        )
        made = BracketTable([work(i) for i in range(len(work))], scale, asked, max(numbers))
        for row in made.sides(path, numbers):
            assert row.result is not None
            hits[row.name].add(row.result.draws_low, row.result.draws_high, row.determined)
            counting[row.name] = row
    print(f"\n{run}, {count} texts, over the draws of {repeats} repeats")
    for name, hit in hits.items():
        row = counting.get(name)
        counts = (
            ""
            if row is None or row.effective is None
            else f"; {row.effective:.3g} draws of n count, skewness {row.skewness:.2f}"
        )
        print(f"  {name:<29}{hit}{counts}", flush=True)


def own(run: str, count: int = 8, repeats: int = 200, more: int = 50, numbers: tuple[int, ...] = (1, 2)) -> None:
    """The rows of its own samples, over other samples; the truth is of `more` times as many."""
    model = zellige.load(run)
    method = model.method.eval()
    blank, path = Batch(torch.zeros(count, method.shape[0], dtype=torch.long)), path_of(method, 64)

    def sides(seed: int) -> dict[tuple[str, int], Tensor]:
        work = Work(method, None, [*range(count)], path, {}, numbers, count, seed, 4096, torch.device("cpu"))
        made = work._own(blank, work.chosen, max(numbers))
        return {
            (name, n): torch.tensor(made[f"own {name}"][n]) for name in ("above", "below", "apart") for n in numbers
        }

    far = [sides(10**6 + seed) for seed in range(more)]
    hits = {key: Count(float(torch.cat([each[key] for each in far]).mean())) for key in far[0]}
    for seed in range(repeats):
        for key, values in sides(seed).items():
            r = summarize(values, torch.ones(count), "nats/token")
            hits[key].add(r.low, r.high)
    print(f"\n{run}, {count} samples of its own, over other samples, {repeats} repeats")
    for (name, n), hit in hits.items():
        print(f"  {name}, n = {n:<20}{hit}", flush=True)


def lognormal(repeats: int = 60) -> None:
    """The tangent bound of lognormal weights, by the skewness that `two_sides` expects: all texts alike, or one far worse."""
    edges = (*(share * interval.SKEWED for share in (0.5, 1, 1.5, 2, 4, 8)), math.inf)
    hits, generator = dict[tuple[str, float], list[int]](), torch.Generator().manual_seed(0)
    for most in (16, 64):
        for n in {1, most // 8, most}:
            for count in (2, 4, 16):
                for alike in (True, False):
                    for sigma in (0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.2):
                        each = torch.full((count,), sigma if alike else 0.1, dtype=torch.float64)
                        each[0] = sigma
                        far = (
                            torch.randn(count, DRAWS, 1, dtype=torch.float64, generator=generator) * each[:, None, None]
                        )
                        exact = each.square()[:, None] / 2
                        log_psi = two_sides.log_mean(far, n)[..., 0]
                        truth = float(-two_sides.tangent(log_psi, exact.expand(log_psi.shape)).mean(1).sum())
                        for _ in range(repeats):
                            noise = torch.randn(count, SETS * most, 1, dtype=torch.float64, generator=generator)
                            log_w = noise * each[:, None, None]
                            values = two_sides.replicates(two_sides.from_below, log_w, n)
                            if values.shape[1] <= FREEDOM:
                                continue
                            r = summarize(values, torch.ones(count), "nats/token", "lower")
                            share = float(two_sides.effective(log_w).min())
                            edge = next(e for e in edges if interval.skewness(share, SETS * most) <= e)
                            held = hits.setdefault(("alike" if alike else "one far worse", edge), [0, 0])
                            held[0] += abs(r.value * count - truth) <= r.draws_half * count
                            held[1] += 1
    for (kind, edge), (held, all_) in sorted(hits.items()):
        print(f"  {kind:<16} skewness up to {edge:<6}{100 * held / all_:.1f} of {all_:,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--texts", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--numbers", type=int, nargs="+", default=[1, 8, 64])
    chosen = parser.parse_args()
    if not chosen.runs:
        lognormal()
    for run in chosen.runs:
        if zellige.load(run).method.shape[0] <= LONGEST:
            texts(run, chosen.texts, chosen.repeats, tuple(chosen.numbers))
        plain(run, repeats=chosen.repeats // 2)
        own(run, repeats=chosen.repeats // 2)


if __name__ == "__main__":
    main()
