"""Measure one trained method: its bound, its samples at each number of network evaluations, its speed in training."""

import csv
import io
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from zellige import __version__, samplers
from zellige.base.errors import InputError, check_counts
from zellige.core.random import mix
from zellige.data import Corpus
from zellige.exact import metropolis
from zellige.methods.method import Method
from zellige.models import model as checkpoint
from zellige.models.checkpoint.read import read_metrics, weights_sha256
from zellige.models.locate import locate
from zellige.plugins.evaluations.generate.sample_sets import Way, by_name, draw_samples
from zellige.samplers.pairing import admissible

from .record import Bound, BySampler, Measurement, Quality
from .reference import Enumerated, Grams


@dataclass(frozen=True)
class Settings:
    """Settings by which the trained models are compared.

    Attributes:
        calls: numbers of steps at which samples are judged.
        samples: how many at each; 0: as many as the judge asks for.
        draws, limit: of the bound, as `evaluate` takes them.
        seed: of everything that is drawn.
        samplers: that are compared at as many network evaluations, each with every method that supports it.
    """

    calls: Sequence[int]
    samples: int = 0
    draws: int = 4
    limit: int | None = None
    seed: int = 0
    samplers: tuple[str, ...] = ()

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
    return {"model": weights_sha256(locate(run))} | data_key(corpus, how)


def data_key(corpus: Corpus, how: Settings) -> dict[str, Any]:
    data = corpus.about.get("tokens_sha256") or corpus.about.get("sha256")
    entries = vars(how) | {"calls": list(how.calls), "samplers": list(how.samplers)}
    if not how.samplers:
        del entries["samplers"]
    return {"zellige": __version__, "data": data, "length": corpus.train.length} | entries


def measure_method(
    model: checkpoint.Model,
    run: Path,
    key: dict[str, Any],
    judge: Grams | Enumerated,
    how: Settings,
    progress: Callable[[str, int, int], None],
) -> Measurement:
    """The numbers of one method, made with these settings (`key`); calls progress(title, done, total)."""
    began = time.perf_counter()
    method = model.method
    result = None
    if method.bounded or metropolis.enumerable(method) is None:  # without a bound: its chain's distribution
        result = judge.bound(model, how.draws, how.seed, how.limit, lambda done, total: progress("bound", done, total))
    count = how.samples or judge.count
    blocks = max(1, int(method.shape[0]) // method.block) if method.block else 1  # steps are those of each block
    own_steps = [admissible(method, max(1, round(steps / blocks))) for steps in how.calls]
    sampled = {"": (Way(), own_steps)}
    for name in how.samplers:
        way = by_name(name, Way())
        if not samplers.find(way.sampler).reason_against(method):
            sampled[name] = way, [steps_within(method, way, most, blocks) for most in how.calls]
    if method.sampler in sampled and sampled[method.sampler][1] == own_steps:  # the same samples
        del sampled[""]
    work, done = count * sum(sum(steps_of) for _, steps_of in sampled.values()), 0
    found: dict[str, list[Quality]] = {name: [] for name in sampled}
    for name, (way, steps_of) in sampled.items():
        for asked, steps in zip(how.calls, steps_of):

            def show(part: int, whole: int, before: int = done, steps: int = steps) -> None:
                progress("samples", round(before + count * steps * part / whole), work)

            drawn = draw_samples(model, replace(way, steps=steps), count, mix(how.seed, "compare"), progress=show)
            done += count * steps
            score, calls = judge.score(padded_rows(drawn.rows or [])), float(np.mean(drawn.calls or [math.nan]))
            quality = Quality(
                **vars(score), asked=asked, steps=steps, calls=calls, samples=count, example=drawn.texts[0]
            )
            found[name].append(quality)
    own = found.pop("") if "" in found else found[method.sampler]
    return Measurement(
        parameters=method.parameter_count,
        sampler=method.sampler,
        bound=None if result is None else Bound.of(result),
        quality=tuple(own),
        tokens_per_second=speed(run),
        key=key,
        seconds=time.perf_counter() - began,
        by_sampler=tuple(BySampler(sampler=name, quality=tuple(quality)) for name, quality in found.items()),
    )


def steps_within(method: Method, way: Way, most: int, blocks: int) -> int:
    """The largest number of steps, of each block, in which a sampler makes at most so many network evaluations;
    at least 1."""
    chosen = samplers.choose_sampler(way.sampler, method, way.temperature, way.top_p, way.options)
    steps = admissible(method, max(1, most // blocks))
    while steps > 1 and chosen.passes(method) * chosen.most_calls(method, chosen.times(method, steps)) > most:
        steps -= 1
    return steps


def padded_rows(texts: Sequence[Sequence[int]]) -> np.ndarray:
    """Texts that may have ended before others, as rows: -1 where there is none."""
    return np.array(list(zip(*zip_longest(*texts, fillvalue=-1))))


def speed(run: Path) -> float | None:
    """Tokens a second in training, the median of metrics.csv."""
    rows = csv.DictReader(io.StringIO(read_metrics(run)))
    rates = [float(row["tokens_per_second"]) for row in rows if row.get("tokens_per_second")]
    return median(rates) if rates else None
