"""Measure one trained method: its bound, its samples at each number of network evaluations, its speed in training."""

import csv
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ... import __version__, samplers
from ...core.random import mix
from ...data import Corpus
from ...errors import InputError, check_counts
from ...exact import metropolis
from ...methods.method import Method
from ...models import model as checkpoint
from ...models.checkpoint.layout import WEIGHTS
from ...models.checkpoint.read import read_metrics
from ...models.frames import Frame, collect
from ...models.locate import locate
from ...models.sample import watch
from ...samplers.pairing import admissible
from ...schema import sha256
from .record import Bound, Measurement, Quality
from .reference import Enumerated, Grams


@dataclass(frozen=True)
class Settings:
    """Settings by which the trained models are compared.

    Attributes:
        calls: numbers of steps at which samples are judged.
        samples: how many at each; 0: as many as the judge asks for.
        draws, limit: of the bound, as `evaluate` takes them.
        seed: of everything that is drawn.
    """

    calls: Sequence[int]
    samples: int = 0
    draws: int = 4
    limit: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(draws=self.draws, calls=min(self.calls, default=0))
        if self.samples and self.samples < 2:
            raise InputError(f"`samples` is {self.samples}; it must be 2 or more: an interval needs two")
        if self.limit is not None and self.limit < 2:
            raise InputError(f"`limit` is {self.limit}; it must be 2 or more: an interval needs two texts")


def check_pairing(method: Method) -> None:
    """InputError where the method's sampler refuses it."""
    samplers.check(samplers.find(method.sampler)(), method)


def measurement_key(run: Path, corpus: Corpus, how: Settings) -> dict[str, Any]:
    """All that a measurement depends on: where it is the same, nothing is measured again."""
    weights = locate(run) / WEIGHTS
    return {"model": sha256(weights)} | data_key(corpus, how)


def data_key(corpus: Corpus, how: Settings) -> dict[str, Any]:
    data = corpus.about.get("tokens_sha256") or corpus.about.get("sha256")
    return (
        {"zellige": __version__, "data": data, "length": corpus.train.length} | vars(how) | {"calls": list(how.calls)}
    )


def measure_method(
    model: checkpoint.Model, run: Path, key: dict[str, Any], judge: Grams | Enumerated, how: Settings,
    progress: Callable[[str, int, int], None],
) -> Measurement:  # fmt: skip
    """The numbers of one method, made with these settings (`key`); calls progress(title, done, total)."""
    began = time.perf_counter()
    method = model.method
    length, states = int(method.shape[0]), getattr(method.process, "K", method.vocabulary)
    result = None
    if method.bounded or metropolis.enumerable(method) is None:  # without a bound: its chain's distribution
        result = judge.bound(model, how.draws, how.seed, how.limit, lambda done, total: progress("bound", done, total))
    count = how.samples or judge.count
    batch = max(1, min(count, 2**14 // length, 2**26 // (length * states)))
    quality = []
    blocks = max(1, length // method.block) if method.block else 1  # steps are those of each block
    step_counts = [admissible(method, max(1, round(steps / blocks))) for steps in how.calls]
    for number, (steps, step_count) in enumerate(zip(how.calls, step_counts)):
        frames = watch(model, count=count, steps=step_count, seed=mix(how.seed, "compare"), batch=batch, defaults=False)

        def report_frame(frame: Frame, before: int = sum(step_counts[:number]), steps: int = step_count) -> None:
            share = (frame.first + len(frame.x) * frame.step / max(frame.steps, 1)) / count
            progress("samples", round(count * (before + share * steps)), count * sum(step_counts))

        samples = collect(frames, report_frame)
        score = judge.score(padded_rows(samples.tokens))
        quality.append(
            Quality(
                **vars(score),
                asked=steps,
                steps=step_count,
                calls=float(np.mean(samples.calls)),
                samples=count,
                example=samples.texts[0],
            )
        )
    return Measurement(
        parameters=sum(p.numel() for p in method.parameters()), sampler=method.sampler,
        bound=None if result is None else Bound.of(result), quality=tuple(quality), tokens_per_second=speed(run),
        key=key, seconds=time.perf_counter() - began,
    )  # fmt: skip


def padded_rows(texts: Sequence[Sequence[int]]) -> np.ndarray:
    """Texts that may have ended before others, as rows: -1 where there is none."""
    return np.array(list(zip(*zip_longest(*texts, fillvalue=-1))))


def speed(run: Path) -> float | None:
    """Tokens a second in training, the median of metrics.csv."""
    rows = csv.DictReader(io.StringIO(read_metrics(run)))
    rates = [float(row["tokens_per_second"]) for row in rows if row.get("tokens_per_second")]
    return median(rates) if rates else None
