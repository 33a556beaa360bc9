"""Training: `train` makes a run folder, fills it, and goes on where it was stopped, with the same numbers as never stopping.

    run = train("mdlm", data=Data("pydocs"), net=Net(layers=4, hidden=128), train=Train(steps=2300), run="runs/first")
    run.validation                          # ≤ 2.190 ± 0.021 bits/char (95%)

A run folder holds config.json (enough to rebuild the model and to run again), metrics.csv, checkpoints/ (step-000500, ...,
and for people the links last and best), samples/, log.txt and TensorBoard events. This module checks the input, prepares the
folder and reports; the loop is in `fit`, which imports Lightning and is imported only when training starts.
"""

import contextlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from .. import files
from ..arguments import checked
from ..core.random import mix
from ..data import Data
from ..data import load as load_tokenizer
from ..errors import Diverged, InputError, from_environment
from ..evaluation.result import Result
from ..methods import build, find, reference
from ..methods.method import Method
from ..models import checkpoints, checksums, tensors
from ..models.config import Config, Train, from_json, to_json
from ..models.model import Model, fit, load, read_config
from ..nn.block import Net
from ..schema import sealed
from ..show.numbers import count, counted, duration, path, rate, scaled, size
from . import device, lock, logger, notes, setup
from .forecast import forecast
from .signals import Quit, Signals, Stopped

__all__ = ["Progress", "Run", "Silent", "Stopped", "describe", "train"]

OURS = (
    "config.json", "metrics.csv", "metrics-before.csv", "metrics-damaged.csv", "log.txt", "report.html", "wandb-id.txt",
    "checkpoints", "samples",
)  # fmt: skip


class Progress(Protocol):
    """Who is told how it goes (`terminal.Training` draws it)."""

    def start(self, total: int, done: int = 0) -> None:
        """Work of `total` steps begins, `done` of them already behind."""

    def step(self, step: int, loss: float | None, unit: str | None, tokens_per_second: float | None) -> None:
        """After a step: the mean loss of the last 100, in `unit`; None says that it is not a bound."""

    def validated(self, step: int, result: Any, sample: str | None = None, best: bool = False) -> None:
        """The validation bound at a step, and one of the samples."""

    def note(self, text: str) -> None:
        """A line that stays."""

    def close(self) -> None:
        """Training is over."""


class Silent:
    """Says nothing."""

    quiet = True  # of a Progress: nobody reads its notes, and none need be made

    def start(self, total: int, done: int = 0) -> None: ...
    def step(self, step: int, loss: float | None, unit: str | None, tokens_per_second: float | None) -> None: ...
    def validated(self, step: int, result: Any, sample: str | None = None, best: bool = False) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: where everything is.
        validation: the best validation bound, at `best_step`, of `validations`.
        seconds, tokens: of training, over all sessions; `tokens_per_second` of this one, at its end.
        peak: bytes of GPU memory at most, 0 on the CPU.
    """

    folder: Path
    config: Config
    validation: Result | None
    best_step: int
    validations: int
    steps: int
    seconds: float
    tokens: int
    tokens_per_second: float | None = None
    peak: int = 0
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The best model of the run."""
        return load(self.folder)


def describe(run: Run) -> list[str]:
    """The lines with which `zellige train` ends."""
    speed = f"   {rate(run.tokens_per_second)}" if run.tokens_per_second else ""
    peak = f"   peak {size(run.peak)}" if run.peak else ""
    lines = [
        f"trained {counted(run.steps, 'step')} in {duration(run.seconds)}   {scaled(run.tokens)} tokens{speed}{peak}"
    ]
    if run.validation is not None:
        lines.append(
            f"  validation {run.validation}   best of {count(run.validations)}, at step {count(run.best_step)}"
        )
    lines.append(f"  {path(run.folder)}   checkpoints: last, best   metrics.csv")
    return lines


@checked
def train(
    method: str | type[Method] = "mdlm",
    *,
    data: Data | str | None = None,
    net: Net | nn.Module | None = None,
    train: Train | None = None,
    options: Any = None,
    run: str | os.PathLike | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Train a method, or go on with a run.

    Args:
        method: a name of `zellige list methods`, or an own class.
        data: which corpus; a name will do.
        net: the transformer's sizes, or an own network with `features` and `head` (and, if it is not 256, a `length`).
        options: the method's own Config.
        run: the folder; runs/METHOD by default.
        resume: go on with the run in that folder. What is not given is the run's own; of what is given, only steps, rate,
            clip, precision and what is written when may differ from it.
        overwrite: replace the run in that folder.
        progress: who is told how it goes; nobody by default.

    Raises:
        InputError: the input is wrong, or another process trains there, and nothing was written; or the disk is full, and the
            last checkpoint is intact.
        Stopped: Ctrl-C or SIGTERM; the last step is saved. A SystemExit: uncaught it ends the process with 130 or 143.
        Diverged: the loss is not finite.
    """
    rank = from_environment("RANK") or from_environment("LOCAL_RANK")
    progress = Silent() if rank or progress is None else progress
    name = method if isinstance(method, str) else getattr(find(method), "name", method.__name__)
    method = find(method)
    folder = Path(run) if run is not None else Path("runs") / name
    data = Data(data) if isinstance(data, str) else data
    with contextlib.ExitStack() as held:
        if not rank and (folder.is_dir() or not (resume or folder.exists())):  # else it is refused
            held.enter_context(lock.hold(folder, "trained"))
            if (folder / "checkpoints").is_dir():
                files.sweep(folder / "checkpoints")
        return _train(method, name, data, net, train, options, folder, resume, overwrite, progress, rank)


def _train(method, name, data, net, train, options, folder, resume, overwrite, progress, rank) -> Run:
    saved, about = _saved(folder, method, name, resume, overwrite, rank)
    start = setup.start(train.start, method, name) if saved is None and train is not None and train.start else None
    config = setup.choose(saved, name, method, data, net, train, options, folder, start)
    config = setup.shaped(config, (about.get("data") or {}).get("shape"))
    changes = notes.changed(saved, config) if saved else {}
    devices = device.devices(config)
    device.split_batch(config.train, devices)
    if config.train.wandb:
        logger.require_wandb()
    last = _newest(folder) if resume else None
    tokenizer = load_tokenizer(last) if last and config.train.start else None
    corpus = setup.read(config, tokenizer, start, getattr(progress, "reading", None))
    config = setup.shaped(config, corpus.tokenizer.shape)
    setup.same_corpus(about, corpus)
    step = checkpoints.step_of(last) if last else 0
    if saved and last and step >= config.train.steps and _settled(last):
        return _finished(folder, config, last, about, progress)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mix(config.train.seed, 0))
        network = net if isinstance(net, nn.Module) else config.net
        tokens = corpus.tokenizer
        fresh = build(method, tokens.size, network, config.options, config.net.length, tokens.ordered)
    if last:  # what does not fit, or is truncated, is said before anything starts
        _whole(last, fresh, config)
    elif start:
        setup.begin(fresh, config, start)
    about = notes.about_run(about, corpus, fresh, changes, step)
    if not rank:
        if overwrite:
            _clear(folder)
        folder.mkdir(parents=True, exist_ok=True)
        _write_config(folder, config, about)
        progress.note(notes.heading(config, fresh, corpus, about, devices, folder))
        for text in corpus.notes:
            progress.note(f"note: {text}")
        if said := notes.ending(config, fresh.block):
            progress.note(said)
        if not device.cuda(config) and devices == 1 and not getattr(progress, "quiet", False):
            for said in forecast(config, fresh, tokens, step):
                progress.note(said)
        if resume:
            progress.note(notes.resumed(step, config, len(corpus.train), changes))
        logger.log(folder, f"{'resumed at' if resume else 'started from'} step {step}; changed: {changes or 'nothing'}")
    return _run(fresh, corpus, config, about, folder, last, step, devices, rank, progress)


def _run(method, corpus, config, about, folder, last, step, devices, rank, progress) -> Run:
    again = f"zellige train {path(reference(type(method)))} --run {path(folder)} --resume"
    with logger.quiet(None if rank else folder / "log.txt"), Signals(progress.note) as signals:
        from . import loop
        from .callback import Guard

        model = Model(method, corpus.tokenizer, config, about)
        guard = Guard(folder, method, corpus, config, model, progress, signals, step, again)
        learner = loop.Learner(method, config, corpus.train, step, devices, config.train.strategy == "fsdp")
        method.train()
        writer = loop.Writer(corpus.tokenizer, config, about)
        try:
            loop.fit(guard, learner, writer, last, devices)
        except Quit:
            _leave(progress, folder, again, signals, rank)
        except Exception as problem:
            if signals.asked and guard.saved == guard.step:  # e.g. the same signal has ended a process that reads data
                _leave(progress, folder, again, signals, rank)
            if not isinstance(problem, (Diverged, InputError)) and checkpoints.newest(folder / "checkpoints"):
                progress.note(f"saved at step {count(guard.saved)}; go on: {again}")
            raise
        finally:
            guard.close()
        if signals.asked or guard.step < config.train.steps:
            _leave(progress, folder, again, signals, rank)
    if rank:
        raise SystemExit(0)  # the other processes end here: what follows in a script is for the first one
    return _result(folder, config, about, {
        "best": guard.best, "validations": guard.validations, "step": guard.step, "seconds": guard.elapsed(),
        "tokens": guard.tokens,
    }, guard.speed(), guard.peak)  # fmt: skip


def _leave(progress: Progress, folder: Path, again: str, signals: Signals, rank: int) -> None:
    """Say what is on the disk and end, with the signal's code; another process than the first one ends with 0."""
    if rank and not signals.quit:
        raise SystemExit(0)
    last = checkpoints.newest(folder / "checkpoints")
    step = checkpoints.step_of(last) if last else None
    if signals.quit:
        safe = f"step {count(step)} is safe on disk" if step is not None else "nothing is on disk yet"
        progress.note(f"quit without saving; {safe}")
    else:
        progress.note(f"stopped and saved at step {count(step or 0)}")
    if step is not None:
        progress.note(f"  go on: {again}")
    raise Stopped(signals.asked or 15, step, saved=not signals.quit)


# ---------------------------------------------------------------------------------------------------- the folder
def _saved(folder: Path, method: type, name: str, resume: bool, overwrite: bool, rank: int):
    """The config of the run that is in the folder, and what is known about it; (None, {}) where a new one begins."""
    if resume and overwrite:
        raise InputError("--resume and --overwrite are both given; one continues the run, the other replaces it")
    there = (folder / "config.json").is_file()
    if resume:
        if not there:
            raise InputError(f"no run at '{files.shown(folder)}' to resume; drop --resume to start one")
        plain = read_config(folder)
        if plain["method"] != name:
            raise InputError(
                f"--resume with method {name}, but the run has {plain['method']}; name that one, or use a new --run"
            )
        return from_json(plain, method=method, source=files.shown(folder / "config.json")), plain.get("about") or {}
    if rank or not folder.exists():  # the first process has made the folder before it starts the others
        return None, {}
    if not folder.is_dir():
        raise InputError(f"'{files.shown(folder)}' is a file; give --run a folder")
    if there and not overwrite:
        last = checkpoints.newest(folder / "checkpoints")
        at = f" at step {checkpoints.step_of(last):,}" if last else ""
        raise InputError(
            f"'{files.shown(folder)}' holds a run{at}; add --resume to continue it or --overwrite to replace it"
        )
    if not there and any(not p.name.startswith(".") for p in folder.iterdir()):
        raise InputError(f"'{files.shown(folder)}' holds something that is not a run; choose another --run")
    return None, {}


def _clear(folder: Path) -> None:
    """Remove what a run has written, and nothing else."""
    judged = (
        "evaluate-*.json",
        "suite-*.json",
        "steps-*.json",
        "pairs-*.json",
        "probe-*.json",
        "generate-*",
        "generate.jsonl",
    )
    written = [file for pattern in ("events.out.tfevents.*", *judged) for file in folder.glob(pattern)]
    for there in [*(folder / name for name in OURS), *written]:
        if there.exists() or there.is_symlink():
            files.remove(there)


def _newest(folder: Path) -> Path | None:
    """The checkpoint that a run goes on from; None where there is none yet. InputError where there is something else."""
    points = folder / "checkpoints"
    last = checkpoints.newest(points)
    there = sorted(p.name for p in points.iterdir() if not p.name.startswith(".")) if points.is_dir() else []
    if last is None and there:
        raise InputError(
            f"'{files.shown(points)}' holds no checkpoint such as step-000500, only {', '.join(there)}; "
            "rename the newest so, copy the run again, or replace it with --overwrite"
        )
    return last


def _whole(last: Path, fresh: Method, config: Config) -> None:
    """InputError unless a run can go on from a checkpoint: it says from which other one it could."""
    try:
        checksums.check_sums(last)
        fit(fresh, tensors.load_tensors(last / checkpoints.WEIGHTS)[0], config)
        tensors.header(last / "training.safetensors")
        checkpoints.read_state(last)
    except InputError as problem:
        before = checkpoints.steps(last.parent)[:-1]
        if not before:
            raise
        step = count(checkpoints.step_of(before[-1]))
        raise InputError(f"{problem}, or remove '{files.shown(last)}' to go on from step {step}") from problem


def _settled(last: Path) -> bool:
    state = checkpoints.read_state(last)["run"]
    return state["settled"] == state["step"]


def _write_config(folder: Path, config: Config, about: dict[str, Any]) -> None:
    text = json.dumps(sealed(to_json(config, about)), indent=1, ensure_ascii=False) + "\n"
    with checkpoints.room(folder, "starting the run", len(text), lambda: "free space and start again"):
        files.write_file(folder / "config.json", text)


def _finished(folder: Path, config: Config, last: Path, about: dict[str, Any], progress: Progress) -> Run:
    """Nothing is left to do, but perhaps to tidy up."""
    state = checkpoints.read_state(last)["run"]
    logger.history(folder, state["step"], progress.note)
    checkpoints.link(folder / "checkpoints")
    checkpoints.prune(folder / "checkpoints", config.train.keep)
    return _result(folder, config, about, state)


def _result(folder, config, about, state, speed=None, peak=0) -> Run:
    best = state["best"]
    return Run(
        folder=folder, config=config, validation=Result.from_dict(best["result"]) if best else None,
        best_step=best["step"] if best else 0, validations=state["validations"], steps=state["step"],
        seconds=state["seconds"], tokens=state["tokens"], tokens_per_second=speed, peak=peak, about=about,
    )  # fmt: skip
