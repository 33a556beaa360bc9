"""Training: `train` makes a run folder, fills it, and goes on where it was stopped, with the same numbers as never stopping.

    run = train("mdlm", data=Data("pydocs"), net=Net(layers=4, hidden=128), train=Train(steps=2300), run="runs/first")
    run.validation                          # ≤ 2.190 ± 0.021 bits/char (95%)

This module puts a run together: its choices (`setup`), its folder (`models.checkpoint`), its corpus, its model. The loop is in
`loop`, which imports Lightning and is imported only when training starts; what happens between two steps is in `callback`.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..base import files
from ..base.arguments import checked
from ..base.errors import Diverged, InputError
from ..base.launched import this_process
from ..core.random import mix
from ..data import Corpus, Data
from ..data import load as load_tokenizer
from ..data.corpus import as_data
from ..data.dna import complement
from ..data.table import refuse_mixed
from ..methods import build, find, reference
from ..methods.method import Method
from ..models.checkpoint.layout import (
    CHECKPOINTS,
    LOG,
    SAMPLES,
    clear,
    data_label,
    default_folder,
    holds_run,
    newest,
    step_name,
    step_of,
)
from ..models.checkpoint.read import (
    check_checkpoint,
    is_settled,
    last_checkpoint,
    read_state,
    resumed_step,
    saved_config,
)
from ..models.checkpoint.write import link, prune, write_config
from ..models.config import Config, Train
from ..models.given import needs_sight, refuse_given
from ..models.model import Model
from ..nn.block import Net
from ..show.numbers import count, path
from ..show.progress import Progress
from . import device, lock, logger, notes, setup
from .forecast import Plan, fitted, forecast, validation_gradients
from .recipes import RECIPES
from .run import Run
from .setup import SIZES
from .signals import Interrupted, Quit, Signals, Stopped

if TYPE_CHECKING:
    from .callback import TrainingCallback


@checked
def train(
    method: str | type[Method] | None = None,
    *,
    data: Any = None,
    net: Net | nn.Module | None = None,
    train: Train | None = None,
    options: Any = None,
    run: str | os.PathLike | None = None,
    recipe: str = "",
    size: str = "",
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Train a method, or go on with a run.

    Args:
        method: a name of `zellige list methods`, or an own class; by default the recipe's, or mdlm.
        data: which corpus: a Data; the name of a data set; a path; or values: a list of texts, a data set of `datasets`, an
            array or tensor of whole numbers, or a dict of these by split (`Data.of` says more about them).
        net: the transformer's sizes, or an own network with `features` and `head` (and, if it is not 256, a `length`).
        options: the method's own Config.
        run: the folder; by default runs/METHOD-DATA, of a recipe runs/RECIPE, with a number after it where that is there.
        recipe: a name of `zellige list recipes`: what is not given is as the paper has it.
        size: tiny, small, base or medium (`setup.SIZES`): the network and the training where they are not given.
        resume: go on with the run in that folder; started by torchrun or Slurm, begin it where there is none. What is not
            given is the run's own; of what is given, only steps, lr, clip, precision, what computes them (devices, nodes,
            strategy, accumulate) and what is written when may differ from it.
        overwrite: replace the run in that folder.
        progress: where progress is reported; nowhere by default.

    Raises:
        InputError: the input is wrong, or another process trains there, and nothing was written; or the disk is full, and the
            last checkpoint is intact.
        Stopped: Ctrl-C, SIGTERM or SIGUSR1; the last step is saved. A SystemExit: uncaught it ends the process with 130, 143
            or 138.
        Diverged: the loss is not finite.
    """
    rank, launcher = this_process().rank, this_process().launcher
    progress = Progress() if rank or progress is None else progress
    data = None if data is None else as_data(data)
    if recipe:
        recipe_config = RECIPES[recipe].for_method(recipe, method)
        method = recipe_config.method
        if not resume:  # a run that goes on has them
            data, net, train = (
                data or recipe_config.data,
                recipe_config.net if net is None else net,
                train or recipe_config.train,
            )
            options = recipe_config.options if options is None else options
    method = "mdlm" if method is None else method
    name = method if isinstance(method, str) else getattr(find(method), "name", method.__name__)
    method = find(method)
    if size:
        recipe_config = SIZES[size].of((data or Data()).name, method)
        net, train = recipe_config[0] if net is None else net, train or recipe_config[1]
    if run is None:
        run = default_folder(recipe or f"{name}-{data_label(data or Data())}", resume or overwrite, rank)
    folder = Path(run)
    if launcher and not holds_run(folder):
        resume = False  # it starts the same command again, which is to begin the run, too
    again = f"zellige train {path(reference(method))} --run {path(folder)} --resume"
    prepare = lambda: _prepare(  # noqa: E731
        method, name, data, net, train, options, folder, resume, overwrite, progress, rank, recipe, size
    )
    return run_in(folder, again, resume, progress, prepare)


def run_in(folder: Path, again: str, resume: bool, progress: Progress, prepare: Callable[[], "Prepared | Run"]) -> Run:
    """Train what `prepare` gives in a folder that is locked and swept; stop at a signal.

    Args:
        again: the command that goes on with the run.
        prepare: checks everything and writes config.json; a Run where nothing is left to do.
    """
    rank = this_process().rank
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(_stopping(progress, folder, again, rank))
        if not rank and (folder.is_dir() or not (resume or folder.exists())):  # else it is refused
            stack.enter_context(lock.hold(folder, "trained"))
            folders = (CHECKPOINTS, SAMPLES)  # where nobody else writes
            files.sweep(folder, folders)
            for place in (folder / name for name in folders):
                if place.is_dir():
                    files.sweep(place)
        prepared = prepare()
        return prepared if isinstance(prepared, Run) else _run(prepared, progress, rank, signals, again)


@dataclass(frozen=True)
class Prepared:
    """All that a training starts from.

    Attributes:
        checkpoint: the one it goes on from, taken after `step` steps; None: from the start.
        plan: of its steps, where they were fitted into minutes.
    """

    folder: Path
    method: Method
    corpus: Corpus
    config: Config
    about: dict[str, Any]
    fleet: device.Fleet
    checkpoint: Path | None
    step: int
    plan: Plan | None = None


def _prepare(
    method, name, data, net, train, options, folder, resume, overwrite, progress, rank, recipe, size
) -> Prepared | Run:
    """Check everything, then write config.json and the notes. A Run where nothing is left to do."""
    saved_run, about = saved_config(folder, method, name, resume, overwrite, rank)
    last = last_checkpoint(folder) if resume else None
    step = resumed_step(last) if last else 0
    begin_train = saved_run.train if saved_run else train
    start = (
        setup.load_start(begin_train.start, method, name)
        if last is None and begin_train is not None and begin_train.start
        else None
    )
    if saved_run and recipe and saved_run.recipe != recipe:
        raise InputError(
            f"'{path(folder)}' is a run of {saved_run.recipe or 'no recipe'}, not of {recipe}; leave `recipe` out"
        )
    config = setup.choose_config(saved_run, name, method, data, net, train, options, folder, start, recipe)
    before = about.get("data") or {}
    config = setup.shaped(config, before.get("shape"), len(before.get("classes") or ()))
    changes = setup.changed(saved_run, config) if saved_run else {}
    fleet = device.fleet(config)
    device.require_room(config, fleet)
    if config.train.wandb:
        logger.require_wandb()
    tokenizer = load_tokenizer(last) if last and config.train.start else None
    corpus = setup.read_corpus(config, setup.ends_for(config, method), tokenizer, start, progress.reading)
    config = setup.filled_up(config, corpus)
    config = setup.shaped(config, corpus.tokenizer.shape, len(corpus.about.get("classes") or ()))
    setup.same_corpus(about, corpus)
    if saved_run and last and step >= config.train.steps and is_settled(last):
        return finished(folder, config, last, about, progress)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mix(config.train.seed, 0))
        if start and start.published:
            about = {**about, "published": start.published}
        network = net if isinstance(net, nn.Module) else setup.own_network(config, about) or config.net
        tokens = corpus.tokenizer
        fresh = build(method, tokens.size, network, config.options, config.net.length, tokens.ordered)
        refuse_mixed(tokens, fresh)
        if config.data.given:
            refuse_given(fresh, config.data.given)
            if needs_sight(fresh) and not config.net.given and not isinstance(network, nn.Module):
                config = replace(config, net=replace(config.net, given=True))
                torch.manual_seed(mix(config.train.seed, 0))
                fresh = build(method, tokens.size, config.net, config.options, config.net.length, tokens.ordered)
    if last:  # what does not fit, or is truncated, is said before anything starts
        check_checkpoint(last, fresh, config)
    elif start:
        setup.copy_weights(fresh, config, start)
    result = Prepared(folder, fresh, corpus, config, about, fleet, last, step)
    return begin(result, progress, changes, resume, overwrite, size)


def begin(
    prepared: Prepared, progress: Progress, changes: dict[str, Any], resume: bool, overwrite: bool, size: str = ""
) -> Prepared:
    """Fit the steps into the minutes that are given, write config.json, say what will be trained."""
    config, method, corpus, folder = prepared.config, prepared.method, prepared.corpus, prepared.folder
    whole, per_row = config.train.steps, None
    if config.train.minutes:
        if device.cuda(config) or prepared.fleet.world > 1:
            progress.note(f"note: `train.minutes` is for one process on a CPU; all {count(whole)} steps are taken")
            config = replace(config, train=replace(config.train, minutes=0.0))
        else:
            asked = config
            config, per_row = fitted(asked, method, corpus.tokenizer.size, len(corpus.validation))
            validation = validation_gradients(asked, method, corpus.tokenizer.size, len(corpus.validation))
            prepared = replace(prepared, plan=Plan(asked, config.train.steps, validation))
    about = notes.about_run(prepared.about, corpus, method, changes, prepared.step)
    prepared = replace(prepared, config=config, about=about)
    if not this_process().rank:
        if overwrite:
            clear(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_config(folder, config, about)
        _announce(prepared, progress, changes, resume, size, per_row, whole)
        began = f"{'resumed at' if resume else 'started from'} step {prepared.step}"
        logger.log(folder, f"{began}; changed: {changes or 'nothing'}")
    return prepared


def _announce(
    prepared: Prepared,
    progress: Progress,
    changes: dict[str, Any],
    resume: bool,
    size: str,
    per_row: float | None,
    whole: int,
) -> None:
    """Say for how long, what will be trained, on what, and from where."""
    config, method, corpus, step = prepared.config, prepared.method, prepared.corpus, prepared.step
    quiet = progress.quiet or config.adapter  # rows of prompts and answers are as long as these
    if not device.cuda(config) and prepared.fleet.world == 1 and not quiet:
        texts = len(corpus.validation)
        for note in forecast(config, method, corpus.tokenizer, texts, step, size, per_row=per_row, whole=whole):
            progress.note(note)
    elif size:
        progress.note(setup.described(size, config, type(method), bool(corpus.tokenizer.shape)))
    progress.note(notes.heading(config, method, corpus, prepared.about, prepared.fleet, prepared.folder))
    if config.recipe in RECIPES:
        progress.note(RECIPES[config.recipe].note(config.recipe))
    for text in corpus.notes:
        progress.note(f"note: {text}")
    for note in (notes.ending(config, method.block), "" if resume else notes.exporting(config)):
        if note:
            progress.note(note)
    if resume:
        progress.note(notes.resumed(step, config, corpus.train, changes))


def _run(prepared: Prepared, progress: Progress, rank: int, signals: Signals, again: str) -> Run:
    """Train to the last step, or until a signal."""
    folder = prepared.folder
    with logger.libraries_into(None if rank else folder / LOG):
        callback = _fit(prepared, progress, rank, signals, again)
        while callback.replanned and not signals.asked:
            prepared = _planned_again(prepared, callback.step, callback.replanned, progress)
            callback = _fit(prepared, progress, rank, signals, again)
        if callback.step < prepared.config.train.steps:  # the signal may have come to another process
            raise Interrupted
    if rank:
        raise SystemExit(0)  # the other processes end here: what follows in a script is for the first one
    meters, validation = callback.meters, callback.validation
    return Run.at(folder, prepared.config, prepared.about, {
        "best": validation.best, "validations": validation.count, "step": callback.step, "seconds": meters.elapsed(),
        "tokens": meters.tokens,
    }, meters.speed(), meters.peak)  # fmt: skip


def _fit(prepared: Prepared, progress: Progress, rank: int, signals: Signals, again: str) -> "TrainingCallback":
    """Train until the last step, a signal, or the plan of the steps is to be another."""
    from . import loop
    from .callback import TrainingCallback
    from .learner import Learner

    folder, method, corpus, config = prepared.folder, prepared.method, prepared.corpus, prepared.config
    model = Model(method, corpus.tokenizer, config, prepared.about)
    writer = loop.LightningWriter(corpus.tokenizer, config, prepared.about, not rank)
    callback = TrainingCallback(folder, model, corpus, progress, signals, prepared.step, again, writer, prepared.plan)
    is_sharded = prepared.fleet.sharded(config)
    shape = corpus.tokenizer.shape
    other = complement(corpus.tokenizer) if config.data.reverse_complement else []
    rows = corpus.train.crops() if config.data.crop else corpus.train
    learner = Learner(method, config, rows, prepared.step, prepared.fleet.world, is_sharded, shape, other)
    method.train()
    signals.droppable = prepared.fleet.world == 1  # several agree before the first step whether to stop
    try:
        loop.fit(callback, learner, writer, prepared.checkpoint, prepared.fleet)
    except Exception as problem:
        if signals.asked and callback.saved == callback.step:  # it may have ended a process that reads data, too
            raise Interrupted from problem
        last = newest(folder / CHECKPOINTS)
        if last and not isinstance(problem, (Diverged, InputError)):
            progress.note(f"saved at step {count(step_of(last))}; go on: {again}")
        raise
    finally:
        callback.close()
    return callback


def _planned_again(prepared: Prepared, step: int, steps: int, progress: Progress) -> Prepared:
    """The training from its checkpoint of `step` on, to another last step: a run that is resumed so has the same numbers."""
    config, about, before = prepared.config, prepared.about, prepared.config.train.steps
    minutes = prepared.plan.asked.train.minutes if prepared.plan else 0.0
    config = replace(config, train=replace(config.train, steps=steps))
    about = {**about, "changes": [*about["changes"], {"step": step, "train.steps": [before, steps]}]}
    write_config(prepared.folder, config, about)
    text = (
        f"{count(steps)} steps fit into {minutes:g} minutes at the pace of the first {count(step)}, not {count(before)}"
    )
    progress.note(f"note: {text}")
    logger.log(prepared.folder, f"step {step}: {text}")
    checkpoint = prepared.folder / CHECKPOINTS / step_name(step)
    return replace(prepared, config=config, about=about, checkpoint=checkpoint, step=step, plan=None)


@contextlib.contextmanager
def _stopping(progress: Progress, folder: Path, again: str, rank: int) -> Iterator[Signals]:
    """The signals within the block; where one came, what is on the disk is said in the end, and Stopped raised with its code.

    Another process than the first one says nothing, and ends with 0 once the steps had begun.
    """
    signals, was_stopped = Signals(progress.note), False
    try:
        with signals:
            yield signals
    except (Interrupted, Quit):
        was_stopped = True
    if not (was_stopped or signals.asked):
        return
    if rank and signals.begun and not signals.quit:
        raise SystemExit(0)
    last = newest(folder / CHECKPOINTS)
    step = step_of(last) if last else None
    safe = "nothing is on disk yet" if step is None else f"step {count(step)} is safe on disk"
    if signals.quit:
        progress.note(f"quit without saving; {safe}")
    elif step is None or not signals.begun:
        progress.note(f"stopped before a step was taken; {safe}")
    else:
        progress.note(f"stopped and saved at step {count(step)}")
    if holds_run(folder):
        progress.note(f"  go on: {again}")
    raise Stopped(signals.asked or signal.SIGTERM, step, saved=not signals.quit)


def finished(folder: Path, config: Config, last: Path, about: dict[str, Any], progress: Progress) -> Run:
    """Nothing is left to do, but perhaps to tidy up."""
    state = read_state(last)["run"]
    logger.restore_metrics(folder, state["step"], progress.note)
    link(folder / CHECKPOINTS)
    prune(folder / CHECKPOINTS, config.train.keep)
    return Run.at(folder, config, about, state)
