"""What learns most in the same time: trainings with different settings, each for as many steps as its time buys.

    python studies/half-hour/half_hour.py stories mdlm "" "train.optimizer=muon" --steps 1000
    python studies/half-hour/half_hour.py stories bd3lm "" "train.optimizer=muon train.lr=6e-3" --table curves.csv

A variant is a list of settings, as `zellige train` has them without the dashes; "" has none of its own. The script has
more: `shape=linear` (the rate falls to 0 along a line from the beginning), and those of `levers.py`. All variants have
the settings of `--base`, and the same text, network, batches and noise, unless they say otherwise.

First the variants take a step in turn, in one process, and the median of each one's processor time is its time of a step.
The first variant gets `--steps` steps; each other gets the steps that take it equally long, so that a busy machine changes
nothing. `--after N` leaves out the training of the first N variants, which were trained before. The bound of the averaged
weights on the validation split, in nats per token, is written to the table at each eighth of a training.
"""

import argparse
import contextlib
import csv
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import levers
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

    def __init__(self, config: Config, corpus: Any, own: dict[str, str]):
        self.config, self.corpus, self.shape = config, corpus, own.pop("shape", "")
        self.shares = [part for part in own.pop("masks", "").split(",") if part]
        self.stages = levers.stages(own.pop("grow", ""), config.train.batch, config.net.length)
        torch.manual_seed(config.train.seed)
        self.method = build(config.method, corpus.tokenizer.size, config.net, config.options)
        for lever in own:
            levers.change(self.method, lever)
        self.parameters = list(self.method.parameters())
        self.optimizer = make_optimizer(config, self.method.network, self.parameters)
        self.average = EMA(self.method, config.train.ema)
        self.seeds = StepSeeds(config.train.seed, 1, torch.device("cpu"), config.train.times)
        self.order = iter(BatchSampler(corpus.train.sources, config.train.seed, 1, 0, 10**9))
        self.done, self.part = 0, 0.0  # steps, and the part of the training's time

    def batch(self, rows: int, length: int) -> Batch:
        """As many tokens as `rows` rows of `length`, cut from rows of the text."""
        whole = rows * length // self.config.net.length
        batch = self.corpus.train.collate([self.corpus.train[next(self.order)[0]] for _ in range(whole)])
        return batch if rows == whole else replace(batch, tokens=batch.tokens.view(rows, length))

    def rate(self) -> float:
        train, place = self.config.train, self.part * self.config.train.steps
        if self.shape == "linear":
            return (1 - self.part) * learning_rate(replace(train, decay="constant"), round(place))
        return learning_rate(train, round(place))

    def step(self, rows: int, length: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        batch = self.batch(rows, length)
        shares = levers.shares(self.method, *self.shares) if self.shares else contextlib.nullcontext()
        with products(torch.device("cpu"), precision(self.config)), shares:
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
    settings: dict[str, Any] = dict(pair.split("=") for pair in variant.split())
    own = {name: settings.pop(name) for name in list(settings) if "." not in name}
    settings = {name: value.split(",") if "," in value else value for name, value in settings.items()}
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
    return Learner(config, prepare(config.data, config.net.length), own)


def seconds_of_a_step(learners: list[Learner]) -> list[list[float]]:
    """Median processor time of a step of each, in each of its stages, taken in turn."""
    times: list[list[list[float]]] = [[[] for _ in each.stages] for each in learners]
    for n in range(WARM + ROUNDS):
        for mine, each in zip(times, learners):
            for of_stage, (_, rows, length) in zip(mine, each.stages):
                began = time.process_time()
                each.step(rows, length)
                if n >= WARM:
                    of_stage.append(time.process_time() - began)
    return [[statistics.median(of_stage) for of_stage in mine] for mine in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", choices=TEXTS)
    parser.add_argument("method")
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--base", default="", help="settings of all variants")
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
    variants = [f"{chosen.base} {variant}".strip() for variant in chosen.variants]
    trials = [make(variant, 1000) for variant in variants]
    seconds = seconds_of_a_step(trials)
    for variant, each in zip(variants, seconds):
        print(*(f"{1e3 * s:.1f} ms {seconds[0][0] / s:.2f} " for s in each), repr(variant), flush=True)
    total = chosen.steps * seconds[0][0]
    for variant, trial, each in list(zip(variants, trials, seconds))[chosen.after :]:
        plan = [
            (cost, rows, length)
            for cost, (share, rows, length) in zip(each, trial.stages)
            for _ in range(round(share * total / cost))
        ]
        train(chosen, make(variant, round(total / each[-1])), variant, plan, total)


def train(
    chosen: argparse.Namespace, one: Learner, variant: str, plan: list[tuple[float, int, int]], total: float
) -> None:
    """Train one variant by steps of (seconds, rows, length) for so many seconds in all; its rows go to the table."""
    marks = {max(1, round(len(plan) * n / POINTS)) for n in range(1, POINTS + 1)}
    began, spent = time.process_time(), 0.0
    for each, rows, length in plan:
        one.part = spent / total
        one.step(rows, length)
        spent += each
        if one.done in marks:
            row = (chosen.text, chosen.method, variant, chosen.seed, one.done, len(plan), f"{spent:.1f}")
            write(chosen.table, (*row, f"{one.bound():.4f}"))
    took = time.process_time() - began
    print(f"{variant!r}: {len(plan)} steps, {one.bound():.4f} nats/token, {took:.0f} s", flush=True)


def write(table: Path, row: tuple[Any, ...]) -> None:
    new = not table.exists()
    with table.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, row] if new else [row])


if __name__ == "__main__":
    main()
