"""One session of a run: its choices are checked, its folder is held, and it is trained to the last step or until a
signal.

    Session(config, METHODS["mdlm"]).run()      makes the run folder config.run, or goes on with the run there to `resume`

A run that is stopped and goes on in another session has the same numbers as one that never stopped. The steps are in
`fit`, which imports Lightning and is imported only when training starts; `tune` has the session of an adapter.
"""

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..base import files
from ..base.errors import InputError
from ..base.processes import this_process
from ..core.random import mix
from ..data import Corpus
from ..data import load as load_tokenizer
from ..data.table import refuse_mixed
from ..data.tokenizer_base import Tokenizer
from ..methods import build, reference
from ..methods.method import Method
from ..models.checkpoint.layout import CHECKPOINTS, LOG, SAMPLES, clear, holds_run, newest, step_name, step_of
from ..models.checkpoint.read import (
    check_checkpoint,
    is_settled,
    last_checkpoint,
    read_state,
    resumed_step,
    saved_config,
)
from ..models.checkpoint.write import link, prune, write_config
from ..models.config import Config
from ..models.defaults import for_text
from ..models.given import needs_sight, refuse_given
from ..papers.recipes import RECIPES
from ..show.numbers import count, path
from ..show.progress import Progress
from . import device, lock, logger, notes, setup
from .forecast import Plan, fitted, forecast, validation_gradients
from .optimizer import make_optimizer
from .prepared import Prepared
from .run import Run
from .signals import Interrupted, Quit, Signals, Stopped


@dataclass(frozen=True)
class Session:
    """A training in its folder, `config.run`.

    Attributes:
        config: all choices, resolved.
        method: the class; `network`: an own one, in the place of the one that `config.net` describes.
        size: the preset that the first line names.
        resume, overwrite: go on with the run that is there, or replace it.
    """

    config: Config
    method: type[Method]
    network: nn.Module | None = None
    size: str = ""
    resume: bool = False
    overwrite: bool = False
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        """Let the first process alone report progress."""
        if this_process().rank:
            object.__setattr__(self, "progress", Progress())

    @property
    def folder(self) -> Path:
        return Path(self.config.run)

    @property
    def resume_command(self) -> str:
        """The command that goes on with the run."""
        return f"zellige train {path(reference(self.method))} --run {path(self.folder)} --resume"

    def run(self) -> Run:
        """Check everything, then train.

        Raises:
            InputError: the input is wrong, or another process trains there, and nothing was written; or the disk is
                full, and the last checkpoint is intact.
            Stopped: a signal; the last step is saved.
            Diverged: the loss is not finite.
        """
        with self._stopping() as signals, self._held():
            prepared = self.prepare()
            return prepared if isinstance(prepared, Run) else self._train(prepared, signals)

    # ------------------------------------------------------------------------------------------------ before the first step
    @cached_property
    def checkpoint(self) -> Path | None:
        """The checkpoint that the run goes on from."""
        return last_checkpoint(self.folder) if self.resume else None

    @cached_property
    def start(self) -> setup.Start | None:
        """The model that the run begins with."""
        name = self.config.train.start
        return setup.load_start(name, self.method, self.config.method) if name and not self.checkpoint else None

    def read(self, config: Config) -> Corpus:
        """The data, in the tokens of the model that the run begins or goes on with."""
        tokenizer = load_tokenizer(self.checkpoint) if self.checkpoint and config.train.start else None
        ends = setup.ends_for(config, self.method)
        return setup.read_corpus(config, ends, tokenizer, self.start, self.progress.reading)

    def build(self, config: Config, corpus: Corpus, about: dict[str, Any]) -> tuple[Method, Config, dict[str, Any]]:
        """The method with its first weights, its config, and what else is known of the run."""
        tokens, start = corpus.tokenizer, self.start
        about = about | start.published if start else about
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mix(config.train.seed, 0))
            network = setup.own_network(config, about) if self.network is None else self.network
            network = config.net if network is None else network
            method = build(self.method, tokens.size, network, config.options, config.net.length, tokens.ordered)
            refuse_mixed(tokens, method)
            if config.data.given:
                refuse_given(method, config.data.given)
                if needs_sight(method) and not config.net.given and self.network is None:
                    config = replace(config, net=replace(config.net, given=True))
                    torch.manual_seed(mix(config.train.seed, 0))
                    method = build(
                        self.method, tokens.size, config.net, config.options, config.net.length, tokens.ordered
                    )
        if start:
            setup.copy_weights(method, config, start)
        return method, config, about

    def sampling_defaults(self, method: Method, tokenizer: Tokenizer) -> dict[str, Any]:
        """Defaults by which the trained model is sampled."""
        return for_text(method, tokenizer)

    def prepare(self) -> Prepared | Run:
        """Check everything, then write config.json and the notes. A Run where nothing is left to do."""
        rank = this_process().rank
        saved, about = saved_config(self.folder, self.method, self.resume, self.overwrite, rank)
        last = self.checkpoint
        step = resumed_step(last) if last else 0
        config = setup.with_network(self.config, saved or (self.start and self.start.config))
        before = about.get("data") or {}
        config = setup.shaped(config, before.get("shape"), len(before.get("classes") or ()))
        if saved is None:
            setup.check_new(config)
        changes = setup.changed(saved, config) if saved else {}
        fleet = device.fleet(config)
        device.require_room(config, fleet)
        if config.train.wandb:
            logger.require_wandb()
        corpus = self.read(config)
        corpus.split("train")  # or it says that there is none
        if "validation" not in corpus.rows:
            raise InputError(
                f"'{corpus.about['name']}' has no validation split, only {', '.join(corpus.rows)}; "
                "set `data.validation` above 0"
            )
        config = setup.shaped_by(config, corpus)
        setup.same_corpus(about, corpus)
        if saved and last and step >= config.train.steps and is_settled(last):
            return self._finished(last, config, about)
        method, config, about = self.build(config, corpus, about)
        make_optimizer(config, method.network, [*method.parameters()])  # or it says what the network lacks
        if last:  # what does not fit, or is truncated, is said before anything starts
            check_checkpoint(last, method, config)
        defaults = self.sampling_defaults(method, corpus.tokenizer)
        return self._begin(Prepared(method, corpus, config, about, fleet, changes, last, step, defaults))

    def _finished(self, last: Path, config: Config, about: dict[str, Any]) -> Run:
        """Nothing is left to do, but perhaps to tidy up."""
        state = read_state(last)["run"]
        logger.restore_metrics(self.folder, state["step"], self.progress.note)
        link(self.folder / CHECKPOINTS)
        prune(self.folder / CHECKPOINTS, config.train.keep)
        return Run.at(self.folder, config, about, state)

    def _begin(self, prepared: Prepared) -> Prepared:
        """Fit the steps into the minutes that are given, write config.json, say what will be trained."""
        config, method, corpus = prepared.config, prepared.method, prepared.corpus
        whole, per_row = config.train.steps, None
        if config.train.minutes:
            if device.cuda(config) or prepared.fleet.world > 1:
                self.progress.note(
                    f"note: `train.minutes` is for one process on a CPU; all {count(whole)} steps are taken"
                )
                config = replace(config, train=replace(config.train, minutes=0.0))
            else:
                asked = config
                config, per_row = fitted(asked, method, corpus.tokenizer.size, len(corpus.validation))
                validation = validation_gradients(asked, method, corpus.tokenizer.size, len(corpus.validation))
                prepared = replace(prepared, plan=Plan(asked, config.train.steps, validation))
        about = notes.about_run(prepared.about, corpus, method, prepared.changes, prepared.step)
        prepared = replace(prepared, config=config, about=about)
        if not this_process().rank:
            if self.overwrite:
                clear(self.folder)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_config(self.folder, config, about)
            self._announce(prepared, per_row, whole)
            began = f"{'resumed at' if self.resume else 'started from'} step {prepared.step}"
            logger.log(self.folder, f"{began}; changed: {prepared.changes or 'nothing'}")
        return prepared

    def _announce(self, prepared: Prepared, per_row: float | None, whole: int) -> None:
        """Say for how long, what will be trained, on what, and from where."""
        config, method, corpus, step = prepared.config, prepared.method, prepared.corpus, prepared.step
        say, size = self.progress.note, self.size
        quiet = self.progress.quiet or config.adapter  # rows of prompts and answers are as long as these
        if not device.cuda(config) and prepared.fleet.world == 1 and not quiet:
            texts = len(corpus.validation)
            for note in forecast(config, method, corpus.tokenizer, texts, step, size, per_row=per_row, whole=whole):
                say(note)
        elif size:
            say(setup.described(size, config, type(method), shaped=bool(corpus.tokenizer.shape)))
        say(notes.heading(config, method, corpus, prepared.about, prepared.fleet, self.folder))
        if config.recipe in RECIPES:
            say(RECIPES[config.recipe].note)
        for text in corpus.notes:
            say(f"note: {text}")
        later = "" if self.resume else notes.exporting(config)
        for note in (notes.ending(config, method.block), later, notes.sampling(prepared.defaults)):
            if note:
                say(note)
        if self.resume:
            say(notes.resumed(step, config, corpus.train, prepared.changes))

    # ------------------------------------------------------------------------------------------------ the steps
    def _train(self, prepared: Prepared, signals: Signals) -> Run:
        """Train to the last step, or until a signal."""
        rank = this_process().rank
        with logger.libraries_into(None if rank else self.folder / LOG):
            from .fit import fit

            loop = fit(prepared, self.resume_command, self.progress, signals)
            while loop.replanned and not signals.asked:
                prepared = self._planned_again(prepared, loop.step, loop.replanned)
                loop = fit(prepared, self.resume_command, self.progress, signals)
            if loop.step < prepared.config.train.steps:  # the signal may have come to another process
                raise Interrupted
        if rank:
            raise SystemExit(0)  # the other processes end here: what follows in a script is for the first one
        meters, validation = loop.meters, loop.validation
        return Run.at(self.folder, prepared.config, prepared.about, {
            "best": validation.best, "validations": validation.count, "step": loop.step, "seconds": meters.elapsed(),
            "tokens": meters.tokens,
        }, meters.speed(), meters.peak)  # fmt: skip

    def _planned_again(self, prepared: Prepared, step: int, steps: int) -> Prepared:
        """The training from its checkpoint of `step` on, to another last step:
        a run that is resumed so has the same numbers."""
        config, about, before = prepared.config, prepared.about, prepared.config.train.steps
        minutes = prepared.plan.asked.train.minutes if prepared.plan else 0.0
        config = replace(config, train=replace(config.train, steps=steps))
        about = {**about, "changes": [*about["changes"], {"step": step, "train.steps": [before, steps]}]}
        write_config(self.folder, config, about)
        fit = f"{count(steps)} steps fit into {minutes:g} minutes at the pace of the first {count(step)}"
        self.progress.note(f"note: {fit}, not {count(before)}")
        logger.log(self.folder, f"step {step}: {fit}, not {count(before)}")
        checkpoint = self.folder / CHECKPOINTS / step_name(step)
        return replace(prepared, config=config, about=about, checkpoint=checkpoint, step=step, plan=None)

    # ------------------------------------------------------------------------------------------------ around it
    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """The folder, which no other process may train in, without what a killed one has left;
        else it is refused later."""
        if this_process().rank or not (self.folder.is_dir() or not (self.resume or self.folder.exists())):
            yield
            return
        with lock.hold(self.folder, "trained"):
            folders = (CHECKPOINTS, SAMPLES)  # where nobody else writes
            files.sweep(self.folder, folders)
            for place in (self.folder / name for name in folders):
                if place.is_dir():
                    files.sweep(place)
            yield

    @contextlib.contextmanager
    def _stopping(self) -> Iterator[Signals]:
        """The signals within the block; where one came, what is on the disk is said in the end, and Stopped raised with
        its code.

        Another process than the first one says nothing, and ends with 0 once the steps had begun.
        """
        say = self.progress.note
        signals, was_stopped = Signals(say), False
        try:
            with signals:
                yield signals
        except (Interrupted, Quit):
            was_stopped = True
        if not (was_stopped or signals.asked):
            return
        if this_process().rank and signals.begun and not signals.quit:
            raise SystemExit(0)
        last = newest(self.folder / CHECKPOINTS)
        step = step_of(last) if last else None
        safe = "nothing is on disk yet" if step is None else f"step {count(step)} is safe on disk"
        if signals.quit:
            say(f"quit without saving; {safe}")
        elif step is None or not signals.begun:
            say(f"stopped before a step was taken; {safe}")
        else:
            say(f"stopped and saved at step {count(step)}")
        if holds_run(self.folder):
            self.progress.go_on(self.resume_command)
        raise Stopped(signals.asked or signal.SIGTERM, step, saved=not signals.quit)
