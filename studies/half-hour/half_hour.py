"""What learns most in the same time: trainings with different settings, each for as many steps as its time buys.

    python studies/half-hour/half_hour.py stories mdlm "" "train.optimizer=muon" --steps 1000
    python studies/half-hour/half_hour.py stories bd3lm "" "train.optimizer=muon train.lr=6e-3" --table curves.csv

A variant is a list of settings, as `zellige train` has them without the dashes; "" has none of its own. Two more are the
script's: `shape=linear` (the rate falls to 0 along a line from the beginning) and `zero=1` (the last matrix of each
residual branch begins at 0). All variants have the same text, network, batches and noise, unless they say otherwise.

First the variants take a step in turn, in one process, and the median of each one's processor time is its time of a step.
The first variant gets `--steps` steps; each other gets the steps that take it equally long, so that a busy machine changes
nothing. `--after N` leaves out the training of the first N variants, which were trained before. The bound of the averaged
weights on the validation split, in nats per token, is written to the table at each eighth of a training.
"""

import argparse
import csv
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from zellige import Data, Net
from zellige.core.batch import Batch
from zellige.data.prepare import prepare
from zellige.evaluation.evaluate import evaluate_rows
from zellige.methods import METHODS, build
from zellige.models.config import Config, Train
from zellige.nn.precision import products
from zellige.training.device import precision
from zellige.training.ema import EMA
from zellige.training.fit import learning_rate
from zellige.training.optimizer import make_optimizer
from zellige.training.order import BatchSampler, StepSeeds
from zellige.training.settings import with_settings

HERE = Path(__file__).parent
TEXTS = {
    "stories": "simple-stories/tinystories-train.txt.xz",
    "wikitext-2": "wikitext-2/train.txt.xz",
    "text8": "text8/text8_first_6877825.xz",
    "shakespeare": "tinyshakespeare/input.txt",
    "shipped": None,  # the megabyte of stories that comes with Zellige
}
NET = Net(layers=4, hidden=128, heads=4, length=128, conv=7)
TRAIN = Train(batch=16, lr=3e-3, warmup=100, precision="auto", optimizer="adamw")
POINTS, ROUNDS, WARM = 8, 9, 2
COLUMNS = ("text", "method", "variant", "seed", "step", "steps", "seconds", "bound")


class Learner:
    """One training, step by step; the step is that of `zellige train` on one device, without its loop."""

    def __init__(self, config: Config, corpus: Any, shape: str, zero: bool):
        self.config, self.corpus, self.shape = config, corpus, shape
        torch.manual_seed(config.train.seed)
        self.method = build(config.method, corpus.tokenizer.size, config.net, config.options)
        if zero:
            for name, p in self.method.named_parameters():
                if name.endswith((".out.weight", ".mlp.2.weight")):
                    torch.nn.init.zeros_(p)
        self.parameters = list(self.method.parameters())
        self.optimizer = make_optimizer(config, self.method.network, self.parameters)
        self.average = EMA(self.method, config.train.ema)
        self.seeds = StepSeeds(config.train.seed, 1, torch.device("cpu"), config.train.times)
        self.batches = self._batches()
        self.steps, self.done = config.train.steps, 0

    def _batches(self) -> Iterator[Batch]:
        rows, train = self.corpus.train, self.config.train
        for indices in BatchSampler(rows.sources, train.seed, train.batch, 0, 10**9):
            yield rows.collate([rows[i] for i in indices])

    def rate(self) -> float:
        train = replace(self.config.train, steps=self.steps)
        if self.shape == "linear":
            return (1 - self.done / self.steps) * learning_rate(replace(train, decay="constant"), self.done)
        return learning_rate(train, self.done)

    def step(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        batch = next(self.batches)
        with products(torch.device("cpu"), precision(self.config)):
            loss = self.method.loss(batch, self.seeds.seed_part(self.done, 0)).sum() / batch.tokens.numel()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.config.train.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.done += 1
        self.average.update(self.done)

    def bound(self) -> float:
        with self.average.swapped():
            result = evaluate_rows(self.method, self.corpus.validation, draws=1, limit=256, batch=32)
        self.method.train()
        return result.value


def learner(data: Data, method: str, variant: str, steps: int, seed: int) -> Learner:
    settings: dict[str, str] = dict(pair.split("=") for pair in variant.split())
    shape, zero = settings.pop("shape", ""), bool(settings.pop("zero", ""))
    sections = with_settings(
        {
            "options": METHODS[method].Config(),
            "data": data,
            "net": NET,
            "train": replace(TRAIN, steps=steps, seed=seed),
        },
        settings,
    )
    config = Config(method, **sections)
    return Learner(config, prepare(config.data, config.net.length), shape, zero)


def seconds_of_a_step(learners: list[Learner]) -> list[float]:
    """Median processor time of a step of each, taken in turn."""
    times: list[list[float]] = [[] for _ in learners]
    for n in range(WARM + ROUNDS):
        for mine, each in zip(times, learners):
            began = time.process_time()
            each.step()
            if n >= WARM:
                mine.append(time.process_time() - began)
    return [statistics.median(mine) for mine in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", choices=TEXTS)
    parser.add_argument("method")
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--steps", type=int, default=1000, help="of the first variant")
    parser.add_argument("--after", type=int, default=0, help="variants that only give the time of a step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=Path("data"), help="a folder with a subfolder for each text")
    parser.add_argument("--table", type=Path, default=HERE / "curves.csv")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    path = TEXTS[chosen.text]
    data = Data("stories") if path is None else Data("text", path=str(chosen.data / path), tokenizer="bpe:1024")
    make = lambda variant, steps: learner(data, chosen.method, variant, steps, chosen.seed)  # noqa: E731
    seconds = seconds_of_a_step([make(variant, 1000) for variant in chosen.variants])
    print(
        *(f"{1e3 * s:.1f} ms  {seconds[0] / s:.2f}  {v!r}" for v, s in zip(chosen.variants, seconds)),
        sep="\n",
        flush=True,
    )
    for variant, each in list(zip(chosen.variants, seconds))[chosen.after :]:
        steps = round(chosen.steps * seconds[0] / each)
        one = make(variant, steps)
        marks = {max(1, round(steps * n / POINTS)) for n in range(1, POINTS + 1)}
        began = time.process_time()
        while one.done < steps:
            one.step()
            if one.done in marks:
                row = (chosen.text, chosen.method, variant, chosen.seed, one.done, steps, f"{one.done * each:.1f}")
                write(chosen.table, (*row, f"{one.bound():.4f}"))
        print(
            f"{variant!r}: {steps} steps, {one.bound():.4f} nats/token, {time.process_time() - began:.0f} s", flush=True
        )


def write(table: Path, row: tuple[Any, ...]) -> None:
    new = not table.exists()
    with table.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, row] if new else [row])


if __name__ == "__main__":
    main()
