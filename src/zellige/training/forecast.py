"""Forecast of a training on the CPU, printed before its first step, and the line that takes half an hour.

A few gradients of a copy on random tokens are timed: the weights that are trained and every random state stay as they
are. By the same clock `train.minutes` becomes a number of steps, once at the start and again after a minute of training
(`Plan`); the run keeps it: what is resumed goes on to that number.
A validation costs the network evaluations of its bound, which are counted: T-step models take two or three for each
sequence.
Left out: the optimizer, the samples of a validation, the reading of the data, and whatever else the machine will do.
"""

import contextlib
import copy
import dataclasses
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..base.errors import InputError
from ..core.batch import Batch
from ..data import Corpus, Data
from ..data.corpus import OwnData
from ..data.tokenizer_base import Tokenizer
from ..evaluation.likelihood import Likelihood
from ..evaluation.pilot import EACH, pilot_edges
from ..methods import build, reference
from ..methods.method import Method
from ..models.checkpoint.read import read_config
from ..models.config import Config, Train
from ..nn.block import UNREAD, Net
from ..nn.precision import products
from ..show.numbers import count, counted, path
from . import setup
from .device import precision
from .setup import CPU, SIZES

HALF_AN_HOUR = 1800.0
TIMED = 2.0  # seconds of gradients by which steps are fitted
AGAIN = 60.0  # seconds of training, after which a plan is made again
SLACK = 0.2  # of its steps, which are left as they are within it
SHORT, LONG = 60.0, 3600.0  # seconds: of what is shorter nothing is said, with what is longer the line
OF_SMALL = ("batch", "optimizer", "lr", "warmup", "decay", "ema", "times")  # how the smallest size is trained
SMALL = {  # the smallest size; of a U-Net what it reads of these
    **{name: getattr(SIZES[CPU].net, name) for name in ("layers", "hidden", "heads", "length", "conv")},
    "channels": 32,
    "blocks": 2,
}


def seconds_per_row(
    method: Method,
    vocabulary: int,
    clock: Callable[[], float] = time.perf_counter,
    least: float = 0.0,
    precision: str | None = None,
) -> float:
    """Seconds of one row's gradient in this precision: the mean of as many calls as take `least` seconds, two or more,
    after one that warms up."""
    with _trial(method, vocabulary) as (trial, batch, generator), torch.enable_grad():
        trial.train()
        durations = []
        while len(durations) < 3 or sum(durations[1:]) < least:
            began = clock()
            with products(batch.tokens.device, precision):
                loss = trial.loss(batch, generator).mean()
            loss.backward()
            durations.append(clock() - began)
    return sum(durations[1:]) / len(durations[1:]) / len(batch)


@contextlib.contextmanager
def _trial(method: Method, vocabulary: int) -> Iterator[tuple[Method, Batch, torch.Generator]]:
    """A copy of the method, random sequences and their randomness; the global random state stays as it is."""
    device = next(method.parameters()).device
    sequences = max(1, min(16, 2048 // method.shape[0]))
    with torch.random.fork_rng(devices=[]):
        generator = torch.Generator(device).manual_seed(0)
        states = min(vocabulary, method.vocabulary)  # without a mask that is the last of the tokenizer's tokens
        tokens = torch.randint(states, (sequences, *method.shape), generator=generator, device=device)
        yield copy.deepcopy(method), Batch(tokens), generator


def validation_gradients(config: Config, method: Method, vocabulary: int, sequences: int) -> float:
    """Cost of one validation, in gradients of one sequence, of which each network evaluation without a backward pass is
    a third.

    The evaluations of a loss, of a draw of the bound's terms and of a draw of the pilot are counted on random tokens.

    Args:
        sequences: in the validation split.
    """
    t = config.train
    with _trial(method, vocabulary) as (trial, batch, generator), torch.no_grad():
        counts, features = [], trial.network.features

        def counted_features(x: torch.Tensor, *others: Any, **named: Any) -> torch.Tensor:
            counts[-1] += len(x)
            return features(x, *others, **named)

        trial.network.features = counted_features
        ask = Likelihood(trial, "bound" if trial.bounded else "loss")
        pilot_draws = EACH * max(0, len(pilot_edges(ask)) - 1)
        for evaluate in (trial.loss, ask, *([ask.between] if pilot_draws else [])):
            counts.append(0)
            evaluate(batch, generator)
    draws = min(sequences, t.validate_rows or sequences) * (1 if ask.certain else t.validate_draws)
    loss, terms, pilot_terms = (*counts, 0)[:3]
    return (draws * terms + pilot_draws * pilot_terms) / (3 * max(loss, 1))


def seconds(config: Config, steps: int, per_row: float, validation: float) -> float:
    """Seconds of `steps` steps and their validations; `validation`:
    gradients of one sequence that one of these costs."""
    t = config.train
    validations = 1 + (steps // t.validate_every if t.validate_every else 0)
    return per_row * (steps * t.batch + validations * validation)


def fitted(
    config: Config, method: Method, vocabulary: int, sequences: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[Config, float]:
    """The config with as many of its steps, in hundreds, as take `train.minutes`, one hundred at least;
    and seconds of a row."""
    per_row = seconds_per_row(method, vocabulary, clock, TIMED, precision(config))
    return shortened(config, per_row, validation_gradients(config, method, vocabulary, sequences)), per_row


def shortened(config: Config, per_row: float, validation: float) -> Config:
    """The config with as many of its steps as take `train.minutes`, which it then says no more;
    pace as `seconds` takes it."""
    t = config.train
    hundreds = (t.steps, *range(t.steps // 100 * 100, 0, -100))
    fits = (n for n in hundreds if seconds(config, n, per_row, validation) <= 60 * t.minutes)
    steps = next(fits, min(t.steps, 100))
    return _with_steps(config, steps)


def _with_steps(config: Config, steps: int) -> Config:
    """The config with so many steps, which its minutes have become."""
    t = config.train
    return replace(config, train=replace(t, steps=steps, minutes=0.0, warmup=min(t.warmup, steps // 2)))


@dataclass(frozen=True)
class Plan:
    """Steps that were fitted into minutes, to be fitted again once there is a pace: the machine may have been busy
    before.

    Attributes:
        asked: the config before, with its minutes and all of its steps.
        steps: that were fitted.
        validation: gradients of one sequence that a validation costs.
    """

    asked: Config
    steps: int
    validation: float

    def again(self, step: int, passed: float) -> int | None:
        """The steps that fit at the pace of the first `step` ones, which took `passed` seconds;
        None where the plan was right."""
        t = self.asked.train
        validations = step // t.validate_every if t.validate_every else 0
        per_row = passed / (step * t.batch + validations * self.validation)
        steps = min(max(shortened(self.asked, per_row, self.validation).train.steps, step + 1), t.steps)
        return None if abs(steps - self.steps) <= SLACK * self.steps else steps


@dataclass(frozen=True)
class Timed:
    """One of several trainings: its config as its data shapes it, and its pace here, as `seconds` takes it."""

    config: Config
    per_row: float
    validation: float

    @property
    def seconds(self) -> float:
        """Seconds of its steps and validations."""
        return seconds(self.config, self.config.train.steps, self.per_row, self.validation)


def timed(
    trainings: Sequence[tuple[Config, type[Method]]],
    corpus: Corpus | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Timed]:
    """Several trainings with their paces here; what is the same network on the same data is timed once.

    Args:
        trainings: the config and the method's class of each.
        corpus: of all of them, where it has been read.
    """
    corpora, paces, results = list[tuple[Any, Corpus]](), list[tuple[Any, tuple[float, float]]](), list[Timed]()
    for config, method in trainings:
        start = setup.load_start(config.train.start, method, config.method) if config.train.start else None
        source = (config.data, setup.row_length(config), config.train.start)
        read = corpus or next((known for key, known in corpora if key == source), None)
        if read is None:
            read = setup.read_corpus(config, setup.ends_for(config, method), start=start)
            corpora.append((source, read))
        tokens, t = read.tokenizer, config.train
        config = setup.shaped_by(config, read)
        work = (method, config.options, config.net, source, t.validate_rows, t.validate_draws, precision(config))
        pace = next((known for key, known in paces if key == work), None)
        if pace is None:
            with torch.random.fork_rng(devices=[]):
                network = build(method, tokens.size, config.net, config.options, config.net.length, tokens.ordered)
            validation = validation_gradients(config, network, tokens.size, len(read.validation))
            pace = seconds_per_row(network, tokens.size, clock, TIMED, precision(config)), validation
            paces.append((work, pace))
        results.append(Timed(config, *pace))
    return results


def alike(trainings: Sequence[Timed]) -> list[Timed]:
    """The same trainings without `train.minutes`: all with as many steps as fit into them for the slowest."""
    steps = min(shortened(one.config, one.per_row, one.validation).train.steps for one in trainings)
    return [replace(one, config=_with_steps(one.config, steps)) for one in trainings]


def as_long_as(run: Path, train: Train) -> Train:
    """The training with the steps of a run that was begun, which its minutes have become."""
    before = read_config(run)["train"]
    return replace(train, steps=before["steps"], warmup=before["warmup"], minutes=0.0)


def of_several(
    trainings: Sequence[Timed] | Sequence[Config], number: int, preset: str, whole: int = 0, size: str = ""
) -> str:
    """The first line of several trainings: of which size, how many, how long.

    Args:
        trainings: what is known of them, or their configs alone where nothing was timed (a GPU).
        number: of the trainings, which may be more.
        preset: their size, as `setup.described` names it.
        whole: steps of each before these were fitted into minutes; 0: they were not.
    """
    configs = [one.config if isinstance(one, Timed) else one for one in trainings]
    steps = sorted({config.train.steps for config in configs})
    each = count(steps[0]) if len(steps) == 1 else f"{count(steps[0])} to {count(steps[-1])}"
    fewer = whole > steps[-1]
    line = f"{preset}: {counted(number, 'training')} of {each}{f' of {count(whole)}' if fewer else ''} steps"
    times = [one.seconds for one in trainings if isinstance(one, Timed)]
    if times:
        threads = counted(torch.get_num_threads(), "thread")
        line += f" will take about {_about(sum(times) / len(times) * number)} in all on this CPU ({threads}) at its current load"
    return line + _otherwise(fewer, size)


def _otherwise(fewer: bool, size: str) -> str:
    """What else can be asked for: all steps, where these are fewer, and the larger sizes, where one is given."""
    larger = [*SIZES][[*SIZES].index(size) + 1 :] if size else []
    text = "; for all steps: `train.minutes` 0" if fewer else ""
    return text + (f"; for a larger network: `size` {', '.join(larger)}" if larger else "")


def forecast(
    config: Config,
    method: Method,
    tokenizer: Tokenizer,
    sequences: int,
    step: int = 0,
    size: str = "",
    clock: Callable[[], float] = time.perf_counter,
    per_row: float | None = None,
    whole: int = 0,
) -> list[str]:
    """The notes: how long the steps from `step` on will take; of a size always, and which others there are; over an
    hour a line that takes half of one. `sequences`: in the validation split; `per_row`: seconds of a row, where they
    are known; `whole`: all steps, of which `config` has fewer."""
    if per_row is None:
        per_row = seconds_per_row(method, tokenizer.size, clock, precision=precision(config))
    validation = validation_gradients(config, method, tokenizer.size, sequences)
    left = seconds(config, config.train.steps - step, per_row, validation)
    if left < SHORT and not size:
        return []
    steps, threads = config.train.steps - step, counted(torch.get_num_threads(), "thread")
    fewer = whole > config.train.steps
    steps = f"{count(steps)} of {count(whole)}" if fewer else count(steps)
    takes = f"{steps} steps will take about {_about(left)} on this CPU ({threads}) at its current load"
    preset = setup.described(size, config, type(method), shaped=bool(tokenizer.shape))
    lines = [f"{preset}: {takes}{_otherwise(fewer, size)}"]
    if left > LONG and not step:
        line = half_an_hour(config, method, tokenizer, per_row, clock)
        lines += [f"note: to finish in about half an hour, run instead:\n  {line}"] if line else []
    return lines


def _about(seconds: float) -> str:
    if seconds < SHORT:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 3600:.0f} hours" if seconds >= 2 * 3600 else counted(round(seconds / 60), "minute")


def half_an_hour(
    config: Config, method: Method, tokenizer: Tokenizer, per_row: float, clock: Callable[[], float] = time.perf_counter
) -> str:
    """The command line of a training in half an hour: fewer steps where 1,000 fit, else a smaller network too."""
    smaller = config
    if HALF_AN_HOUR / (per_row * config.train.batch) < 1000 and not config.network:
        unread_fields = {*UNREAD[config.net.kind], *(("length", "conv") if config.net.grid or tokenizer.shape else ())}
        sizes = {k: v for k, v in SMALL.items() if k not in unread_fields}
        _, usual = SIZES[CPU].of(getattr(config.data, "name", ""), type(method), kind=config.net.kind)
        train = replace(config.train, **{name: getattr(usual, name) for name in OF_SMALL})
        try:
            smaller = replace(config, net=replace(config.net, **sizes), train=train)
            with torch.random.fork_rng(devices=[]):
                trial = build(
                    type(method), tokenizer.size, smaller.net, config.options, smaller.net.length, method.ordered
                )
        except InputError:
            return ""
        per_row = seconds_per_row(trial, tokenizer.size, clock, precision=precision(smaller))
    steps = int(HALF_AN_HOUR / (per_row * smaller.train.batch))
    steps = max(100, steps // 100 * 100)
    train = replace(smaller.train, steps=min(steps, config.train.steps), minutes=0.0)
    return command_line(replace(smaller, train=train), method)


def command_line(config: Config, method: Method) -> str:
    """The command line of a config, with a folder beside the run's; "" where no line can name the data or the network."""
    words = ["zellige train", path(reference(type(method)))]
    if config.network or isinstance(config.data, OwnData):
        return ""
    usual = usual_values(config, type(method))
    for prefix in ("", "data.", "net.", "train."):
        section = getattr(config, prefix.removesuffix(".") or "options")
        for entry in dataclasses.fields(section):
            value = getattr(section, entry.name)
            if value != usual.get(prefix + entry.name):
                words.append(_flag(prefix, entry.name.replace("_", "-"), value))
    return " ".join([*words, "--run", shlex.quote(f"{config.run}-small")])


def usual_values(config: Config, method: type[Method]) -> dict[str, Any]:
    """What the command line takes on a CPU for an option that is not typed, if the others of this config are. No steps:
    they are always typed."""

    def size(kind: str = "", optimizer: str = "") -> tuple[Net, Train]:
        if config.train.start:  # which chooses the network
            return Net(), Train()
        return SIZES[CPU].of(getattr(config.data, "name", ""), method, kind=kind, optimizer=optimizer)

    net, train = size(config.net.kind, config.train.optimizer)
    sections = {"": method.Config(), "data.": Data(), "net.": net, "train.": train}
    values = {
        prefix + entry.name: getattr(section, entry.name)
        for prefix, section in sections.items()
        for entry in dataclasses.fields(section)
    }
    return values | {
        "net.kind": size()[0].kind,
        "train.optimizer": size(config.net.kind)[1].optimizer,
        "train.steps": None,
        "train.minutes": 0.0,
    }


def _flag(prefix: str, name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"--{prefix}{'' if value else 'no-'}{name}"
    values = value if isinstance(value, (tuple, list)) else [value]
    return " ".join([f"--{prefix}{name}", *(shlex.quote(f"{v:g}" if isinstance(v, float) else str(v)) for v in values)])
