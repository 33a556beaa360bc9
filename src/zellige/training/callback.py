"""The training callback: what happens between two optimizer steps. Average, record, validate, save, stop."""

import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer
from torch.optim import Optimizer

from ..base import files
from ..base.errors import Diverged, InputError
from ..data import Corpus
from ..evaluation.result import Result
from ..models.checkpoint.layout import CHECKPOINTS, newest, step_name
from ..models.checkpoint.write import Writer, explain_full_disk, intact, link
from ..models.model import Model
from ..show.numbers import byte_size
from ..show.progress import Progress
from . import forecast
from .device import promised
from .ema import EMA
from .forecast import Plan
from .learner import Learner
from .logger import MetricLogger, log
from .meters import Meters, diagnosis
from .plan import model_flops
from .signals import Quit, Signals
from .validation import Validation


class TrainingCallback(Callback):
    """Lightning's hooks: after each optimizer step the average moves; now and then the step is settled.

    Settling a step is to write its row of metrics.csv, to validate, to save and to stop, each where it is due.

    Args:
        start: the optimizer steps that are done.
        resume: the command that goes on with the run.
        writer: writes the checkpoints.
        plan: of the steps, to be made again after a minute; None where none is.

    Attributes:
        replanned: as many steps fit as that plan says now, and the training ends for the moment; None where it goes on.
        step: optimizer steps done, the average included.
        settled: the last step that was recorded and, if it was due, validated. A run that goes on settles its step first.
        saved: the last step of which there is a checkpoint, or one is being written.
        halfway: an optimizer step is being taken, so that the weights are no step's.
    """

    def __init__(
        self,
        folder: Path,
        model: Model,
        corpus: Corpus,
        progress: Progress,
        signals: Signals,
        start: int,
        resume: str,
        writer: Writer,
        plan: Plan | None = None,
    ):
        self.folder, self.model, self.config, self.train = folder, model, model.config, model.config.train
        self.progress, self.signals, self.resume, self.writer = progress, signals, resume, writer
        self.checkpoints = folder / CHECKPOINTS
        self.step = self.settled = self.saved = start
        self.validation = Validation(folder, model, corpus, self.train, progress, signals)
        bound = getattr(model.method, "loss_is_bound", True)
        self.meters = Meters(self.train, corpus.train, model.unit if bound else None)
        self.average: dict[str, Any] | None = None  # of the checkpoint, until training starts
        self.halfway = False
        self.plan = plan
        self.replanned: int | None = None

    # ------------------------------------------------------------------------------------------------ Lightning's hooks
    def on_load_checkpoint(self, trainer: Trainer, module: Learner, checkpoint: dict[str, Any]) -> None:
        self.average, run = checkpoint["average"], checkpoint["run"]
        self.step, self.settled = run["step"], run["settled"]
        self.validation.best, self.validation.count = run["best"], run["validations"]
        self.meters.load(run)

    def on_save_checkpoint(self, trainer: Trainer, module: Learner, checkpoint: dict[str, Any]) -> None:
        meters = self.meters
        checkpoint["average"] = self.ema.state()
        checkpoint["run"] = {
            "step": self.step, "settled": self.settled, "seconds": meters.elapsed(), "tokens": meters.tokens,
            "best": self.validation.best, "window": meters.window, "validations": self.validation.count,
            "norms": list(meters.norms),
        }  # fmt: skip
        checkpoint["metrics"] = "" if self.logger is None else self.logger.text

    def on_train_start(self, trainer: Trainer, module: Learner) -> None:
        self.ema = EMA(self.model.method, self.train.ema, self.train.ema_warmup)
        if self.average is not None:
            self.ema.load(self.average)
            self.average = None
        self.first, self.world = trainer.is_global_zero, trainer.world_size
        self.logger = None
        if self.first:
            files.make(self.checkpoints)
            link(self.checkpoints)
            self.logger = MetricLogger(
                self.folder, self.step, self.progress.note, tensorboard=self.train.tensorboard, wandb=self.train.wandb,
                config={"run": self.config.run, "method": self.config.method},
            )  # fmt: skip
        self.device = module.device
        self.every = 10 if module.device.type == "cuda" else 1  # reading numbers off a GPU makes it wait
        self.meters.flops = model_flops(self.config, self.model.method)
        self.meters.promised = promised(self.config, self.world)
        self.meters.start(self.step)
        self.saved_at = time.monotonic()
        self.signals.begin()
        self.progress.start(self.train.steps, self.step)
        if self.settled < self.step:
            self.settle(trainer, module)
        elif self.agree(trainer)[0]:
            trainer.should_stop = True

    def on_before_optimizer_step(self, trainer: Trainer, module: Learner, optimizer: Optimizer) -> None:
        self.halfway = True

    def on_train_batch_end(self, trainer: Trainer, module: Learner, outputs: object, batch: object, index: int) -> None:
        if (index + 1) % self.train.accumulate:
            return
        self.step += 1
        self.ema.update(self.step)
        self.meters.count(self.step, module.nats, module.norm)
        module.nats = []
        self.halfway = False
        alone = self.world == 1 and self.signals.asked
        if alone or self.due() or self.step % self.every == 0:
            self.drain(summed=self.world > 1)
            self.settle(trainer, module)

    def on_train_end(self, trainer: Trainer, module: Learner) -> None:
        self.wait()
        self.close()
        self.meters.read_peak(module.device)

    def on_exception(self, trainer: Trainer, module: Learner, exception: BaseException) -> None:
        """Save the last whole step, if there is one that is not saved and nothing speaks against it."""
        with self.logged():
            self.wait()
        hopeless = isinstance(exception, (Quit, Diverged, InputError)) or files.is_full(exception)
        if not hasattr(self, "ema") or hopeless or self.halfway or self.step == self.saved:
            return self.close()
        if self.world > 1 and (module.sharded or self.meters.undrained):
            return self.close()  # the other processes would be needed
        with self.logged():
            self.drain(summed=False)
            self.save(trainer, module)
            self.wait()
        self.close()

    @contextlib.contextmanager
    def logged(self) -> Iterator[None]:
        """An error within it, while another one is handled, is a line in the log."""
        try:
            yield
        except Exception as second:
            if self.first:
                log(self.folder, f"could not save a checkpoint: {second!r}")

    # ------------------------------------------------------------------------------------------------ between two steps
    def due(self) -> bool:
        """Return whether this step is followed by a validation, a checkpoint or the end."""
        t = self.train
        marks = (t.validate_every, t.save_every)
        return self.step >= t.steps or any(mark and self.step % mark == 0 for mark in marks)

    def drain(self, summed: bool) -> None:
        """Read the numbers of the last steps, of all devices if summed; Diverged where one of them is not finite."""
        numbers, now = self.meters.drain(summed), time.monotonic()
        for step, (nats, tokens, norm) in enumerate(numbers, self.step - len(numbers) + 1):
            if not math.isfinite(nats) or not math.isfinite(norm):
                self.halfway = True  # its weights are not to be saved
                with self.logged():
                    self.wait()
                last = newest(self.checkpoints)
                raise Diverged(diagnosis(step, nats, norm, self.meters, self.config, last, self.resume))
            self.meters.add(nats, tokens, norm, now)
        if numbers:
            self.progress.step(self.step, self.meters.loss(), self.meters.unit, self.meters.speed())

    def settle(self, trainer: Trainer, module: Learner) -> None:
        """Do what follows a step: validation, a row, a checkpoint, the end. A full disk is one line, whatever was written."""
        with explain_full_disk(
            self.folder, f"writing what step {self.step:,} gave", 1e5, lambda: intact(self.checkpoints)
        ):
            self._settle(trainer, module)

    def _settle(self, trainer: Trainer, module: Learner) -> None:
        t = self.train
        last = self.step >= t.steps
        result, better = None, False
        if self.settled < self.step:
            validate = last or bool(t.validate_every and self.step % t.validate_every == 0)
            if validate:
                result, better = self.validation.run(self.step, module, self.ema)
            if result is not None or not validate or not self.first:
                self.record(result, flush=last)
                self.settled = self.step
        stop, minutes = self.agree(trainer)
        if not last and not stop and self.plan is not None and time.monotonic() - self.meters.began >= forecast.AGAIN:
            plan, self.plan = self.plan, None
            self.replanned = plan.again(self.step, time.monotonic() - self.meters.began)
        if last or better or stop or minutes or self.replanned or (t.save_every and self.step % t.save_every == 0):
            self.save(trainer, module)
            stop = stop or (self.world == 1 and bool(self.signals.asked))  # it came while saving: no step more
        if stop or last or self.replanned:
            trainer.should_stop = True

    def agree(self, trainer: Trainer) -> tuple[bool, bool]:
        """Return whether to stop, and whether the minutes between checkpoints are over: the same answer on every process."""
        late = self.train.save_minutes and time.monotonic() - self.saved_at >= 60 * self.train.save_minutes
        flags = torch.tensor([int(bool(self.signals.asked)), int(bool(late) and self.first)])
        if self.world > 1:
            flags = flags.to(trainer.strategy.root_device)
            torch.distributed.all_reduce(flags)
        stop, late = (bool(flag) for flag in flags.tolist())
        return stop, late

    def record(self, result: Result | None, flush: bool = False) -> None:
        """Write a row of metrics.csv where one is due: the steps since the last one, and the validation."""
        if not self.meters.window or not (result is not None or flush or self.step % self.train.log_every == 0):
            return
        self.meters.read_peak(self.device)
        row = self.meters.row(self.step)
        if result is not None:
            if self.first and (speed := self.meters.speed()):
                peak = f"  peak {byte_size(self.meters.peak)}" if self.meters.peak else ""
                log(self.folder, f"step {self.step}: {speed}{peak}")
            row |= {"validation": result.value, "validation_low": result.low, "validation_high": result.high}
        if self.logger is not None:
            self.logger.row(row)

    def save(self, trainer: Trainer, module: Learner) -> None:
        """A checkpoint of this step."""
        if not self.first and not module.sharded:
            self.saved = self.step
            return
        # Trainer.save_checkpoint would wait for the other processes, which may be gone when an exception is handled.
        state = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        folder = self.checkpoints / step_name(self.step)
        self.writer.save_checkpoint(state, folder)
        self.saved, self.saved_at = self.step, time.monotonic()

    def wait(self) -> None:
        """Wait for the checkpoint that is being written, if there is one; its error is raised here."""
        try:
            self.writer.wait()
        except BaseException:
            self.saved = -1  # there is none of that step
            raise

    def close(self) -> None:
        self.progress.close()
        logger, self.logger = getattr(self, "logger", None), None
        if logger is not None:
            logger.close()
