"""The steps of a training, taken by Lightning, which moves the data, scales the precision and synchronizes devices.

An optimizer step is computed in parts, `train.accumulate` of them on each device. `Loop` has what Lightning calls, in
this order:

    train_dataloader               the rows of each part, in the order that `order` gives them
    optimizer_step                 the learning rate; then the parts, and at last the weights
        training_step              noise and loss of a part; Lightning takes the gradient
        configure_gradient_clipping
    on_train_batch_end             the moving average and the numbers of the step;
                                   where it is due `settle`: a row of metrics.csv, a validation, a checkpoint, the end

Order, randomness and rate are functions of the step, so that a run that goes on has nothing of Lightning's loop to
restore. A checkpoint (`models.checkpoint.write`) is taken only between two optimizer steps, and holds what is needed to
take the next one.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import lightning
import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ..base import files
from ..base.errors import Diverged, InputError
from ..base.processes import this_process
from ..core.batch import Batch
from ..data.symmetry import symmetries
from ..evaluation.result import Result
from ..models.checkpoint.layout import CHECKPOINTS, newest, step_name, step_of
from ..models.checkpoint.write import Writer, explain_full_disk, intact, link
from ..models.config import Train
from ..models.model import Model
from ..show.numbers import byte_size, count
from ..show.progress import Progress
from . import forecast
from .compiled import CHECKED, check_gradient, compile_step
from .cost import model_flops
from .device import cuda, matrix_products, precision, promised
from .ema import EMA
from .logger import MetricLogger, log
from .meters import Meters, diagnosis
from .optimizer import make_optimizer
from .order import Augmentation, BatchSampler, StepSeeds
from .prepared import Prepared
from .signals import Interrupted, Quit, Signals, worker
from .strategy import compiled_shards, environment, shard, strategy
from .validation import Validation


def fit(prepared: Prepared, resume_command: str, progress: Progress, signals: Signals) -> "Loop":
    """Take the steps from a checkpoint (or the start) to the last one, to a signal, or until the plan of the steps
    changes.

    Args:
        resume_command: the command that goes on with the run.

    Raises:
        Diverged, InputError (no space), Quit, or whatever the method or the data raised, after saving the last step.
    """
    config, fleet = prepared.config, prepared.fleet
    loop = Loop(prepared, resume_command, progress, signals)
    prepared.method.train()
    signals.droppable = fleet.world == 1  # several agree before the first step whether to stop
    trainer = lightning.Trainer(
        accelerator="cuda" if cuda(config) else "cpu",
        devices=fleet.devices,
        num_nodes=fleet.nodes,
        strategy=strategy(config, fleet),
        precision="bf16-mixed" if precision(config) == "bfloat16" else "32-true",
        max_steps=max(config.train.steps - prepared.step, 1),
        max_epochs=-1,
        min_epochs=0,
        accumulate_grad_batches=config.train.accumulate,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        callbacks=[_SavesOnError()],
        plugins=[loop.writer, environment()],
    )
    # Signals are ours (`signals`): its own handler would end a training that has not begun with exit code 0.
    trainer._signal_connector.register_signal_handlers = lambda: None
    checkpoint = str(prepared.checkpoint) if prepared.checkpoint else None
    shards = compiled_shards(prepared.method) if loop.sharded and config.train.compile else contextlib.nullcontext()
    try:
        with matrix_products(config), shards:
            trainer.fit(loop, ckpt_path=checkpoint, weights_only=True)
    except BaseException as problem:
        launcher = trainer.strategy.launcher
        if fleet.world > 1 and trainer.is_global_zero and hasattr(launcher, "kill"):
            launcher.kill(9)  # pyright: ignore  (they may wait for this process for ever)
        if not isinstance(problem, Exception):
            raise
        if signals.asked and loop.saved == loop.step:  # it may have ended a process that reads data, too
            raise Interrupted from problem
        last = newest(loop.checkpoints)
        if last and not isinstance(problem, (Diverged, InputError)):
            progress.note(f"saved at step {count(step_of(last))}; go on: {resume_command}")
        raise
    finally:
        loop.close()
    return loop


class _LightningWriter(Writer, CheckpointIO):
    """The writer of checkpoints as a plugin of Lightning."""


class _SavesOnError(lightning.Callback):
    """What a module is not told: that the training ends with an error."""

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        assert isinstance(pl_module, Loop)
        pl_module.save_on_error(exception)


class Loop(lightning.LightningModule):
    """The loop of a training: what a step computes, and what happens between two steps.

    Attributes:
        start: optimizer steps that are done before the first one of this loop.
        parts: into which a step is cut, over all devices.
        step: optimizer steps done, the average included.
        settled: the last step whose row of the log is written and, if it was due, whose validation is done. A resumed
            run first does what its last step still lacks.
        saved: the last step of which there is a checkpoint, or one is being written.
        halfway: an optimizer step is being taken; the weights must not be saved now.
        nats: (nats, tokens) of each part of this step; `norm`: of its gradient.
        replanned: the new total of steps, measured after a minute; the session starts the loop again with it. None
            where the first estimate stands.
    """

    def __init__(self, prepared: Prepared, resume_command: str, progress: Progress, signals: Signals):
        super().__init__()
        config, corpus, fleet = prepared.config, prepared.corpus, prepared.fleet
        train = config.train
        self.method, self.config, self.train_config = prepared.method, config, train
        self.folder, self.checkpoints = prepared.folder, prepared.folder / CHECKPOINTS
        self.resume_command, self.progress, self.signals, self.plan = resume_command, progress, signals, prepared.plan
        self.strict_loading = config.adapter is None  # a checkpoint of a tuned model holds its adapter alone
        self.world, self.sharded = fleet.world, fleet.sharded(config)
        self.parts = train.accumulate * fleet.world

        self.rows = corpus.train.crops() if config.data.crop else corpus.train
        self.per_row = self.rows.tokens_total / len(self.rows)  # tokens that count, so that padding scales no gradient
        flip = corpus.tokenizer.shape if config.data.flip else None
        strands = (
            symmetries(config.data, corpus.tokenizer, 2).renames[1].tolist() if config.data.reverse_complement else []
        )
        self.augment = Augmentation(train.seed, self.parts, train.label_dropout, flip, strands, train.given_dropout)

        self.model = Model(prepared.method, corpus.tokenizer, config, prepared.about, prepared.defaults)
        self.writer = _LightningWriter(
            corpus.tokenizer, config, prepared.about, prepared.defaults, not this_process().rank
        )
        self.validation = Validation(prepared, self.model, progress, signals)
        is_bound = prepared.method.loss_is_bound and (train.times != "middle" or prepared.method.exact)
        self.meters = Meters(train, corpus.train, self.model.unit if is_bound else None)
        self.metrics: MetricLogger | None = None  # of the first process
        self.average: dict[str, Any] | None = None  # of the checkpoint, until training starts

        self.start = self.step = self.settled = self.saved = prepared.step
        self.halfway = False
        self.nats: list[Tensor] = []
        self.norm: Tensor = torch.tensor(0.0)
        self.replanned: int | None = None

    # ------------------------------------------------------------------------------------------------ before the first step
    def configure_model(self) -> None:
        if self.sharded:
            mesh: Any = self.device_mesh
            shard(self.method, mesh if self.train_config.strategy == "hybrid" else mesh["data_parallel"])

    @cached_property
    def trained(self) -> list[torch.nn.Parameter]:
        """The parameters that are trained; listed when they are first needed, once they are in their shards."""
        return [p for p in self.method.parameters() if p.requires_grad]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return make_optimizer(self.config, self.method.network, self.trained)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.average, run = checkpoint["average"], checkpoint["run"]
        self.step, self.settled = run["step"], run["settled"]
        self.validation.best, self.validation.count = run["best"], run["validations"]
        self.meters.load(run)

    def on_train_start(self) -> None:
        t = self.train_config
        self.ema = EMA(self.method, t.ema, t.ema_warmup)
        if self.average is not None:
            self.ema.load(self.average)
            self.average = None
        if self.trainer.is_global_zero:
            files.make(self.checkpoints)
            link(self.checkpoints)
            self.metrics = MetricLogger(
                self.folder,
                self.step,
                self.progress.note,
                tensorboard=t.tensorboard,
                wandb=t.wandb,
                config={"run": self.config.run, "method": self.config.method},
            )
        self.every = 10 if self.device.type == "cuda" else 1  # reading numbers off a GPU makes it wait
        self.meters.start(self.step, model_flops(self.config, self.method), promised(self.config, self.world))
        self.saved_at = time.monotonic()
        self.signals.begin()
        self.progress.start(t.steps, self.step)
        if self.settled < self.step:
            self.settle()
        elif self.agree()[0]:
            self.trainer.should_stop = True

    # ------------------------------------------------------------------------------------------------ a step
    @cached_property
    def seeds(self) -> StepSeeds:
        """The random numbers of the parts."""
        return StepSeeds(self.train_config.seed, self.parts, self.device, self.train_config.times)

    @cached_property
    def compiled(self) -> Any:
        """The compiled loss, where the whole step is compiled."""
        return compile_step(self.method) if self.train_config.compile and not self.sharded else None

    def train_dataloader(self) -> DataLoader:
        t = self.train_config
        end = max(t.steps, self.start + 1)  # a run that is only to settle its last step takes no other: see `settle`
        rank = self.trainer.global_rank
        batches = BatchSampler(
            self.rows.sources, t.seed, t.batch, self.start, end, t.accumulate, rank, self.world, self.rows.redrawn
        )
        return DataLoader(
            self.rows,
            batch_sampler=batches,
            collate_fn=type(self.rows).collate,
            num_workers=t.workers,
            worker_init_fn=worker,
            pin_memory=self.trainer.strategy.root_device.type == "cuda",
            generator=torch.Generator().manual_seed(t.seed),  # else it would draw from the global one
        )

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Optimizer, optimizer_closure: Callable[[], Any] | None = None
    ) -> None:
        step = self.start + batch_idx // self.train_config.accumulate
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(self.train_config, step)
        optimizer.step(closure=optimizer_closure)

    def training_step(self, batch: Batch, index: int) -> Tensor:
        step, micro = divmod(index, self.train_config.accumulate)
        part = micro * self.world + self.trainer.global_rank
        seed = partial(self.seeds.seed_part, self.start + step, part)
        batch = self.augment(batch, self.start + step, part)
        if self.compiled and step in CHECKED and not micro:
            check_gradient(self.method.loss, self.compiled, batch, seed, self.method.named_parameters())
        nats = (self.compiled or self.method.loss)(batch, seed()).sum()
        nats_and_tokens = nats.detach().double()  # the tokens are filled in, not copied: a GPU would wait for a copy
        tokens = nats_and_tokens.new_full((), batch.tokens.numel()) if batch.mask is None else batch.mask.sum().double()
        self.nats.append(torch.stack([nats_and_tokens, tokens]))
        return nats / (len(batch) * self.per_row)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        self.halfway = True

    def configure_gradient_clipping(
        self, optimizer: Optimizer, gradient_clip_val=None, gradient_clip_algorithm=None
    ) -> None:
        limit = self.train_config.clip or math.inf
        norm = torch.nn.utils.clip_grad_norm_([p for p in self.trained if p.grad is not None], limit)
        self.norm = norm.full_tensor() if isinstance(norm, DTensor) else norm

    def on_train_batch_end(self, outputs: object, batch: object, index: int) -> None:
        if (index + 1) % self.train_config.accumulate:
            return
        self.step += 1
        self.ema.update(self.step)
        self.meters.count(self.step, self.nats, self.norm)
        self.nats = []
        self.halfway = False
        alone = self.world == 1 and self.signals.asked
        if alone or self.due() or self.step % self.every == 0:
            self.drain(summed=self.world > 1)
            self.settle()

    # ------------------------------------------------------------------------------------------------ between two steps
    def due(self) -> bool:
        """Return whether this step is followed by a validation, a checkpoint or the end."""
        t = self.train_config
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
                raise Diverged(diagnosis(step, nats, norm, self.meters, self.config, last, self.resume_command))
            self.meters.add(nats, tokens, norm, now)
        if numbers:
            self.progress.step(self.step, self.meters.loss(), self.meters.unit, self.meters.speed())

    def settle(self) -> None:
        """Do what follows a step: validation, a row, a checkpoint, the end."""
        better = self._validate_and_record() if self.settled < self.step else False
        self._save_and_stop(better)

    def _validate_and_record(self) -> bool:
        """Validate and write a row of metrics.csv, where they are due; return whether the validation is the best so
        far. A full disk is one line."""
        t, result, better = self.train_config, None, False
        validate = self.step >= t.steps or bool(t.validate_every and self.step % t.validate_every == 0)
        if validate or self.step % t.log_every == 0:
            writes = f"writing what step {self.step:,} gave"
            with explain_full_disk(self.folder, writes, 1e5, lambda: intact(self.checkpoints)):
                if validate:
                    result, better = self.validation.run(self.step, self.ema)
                    if result is None and self.trainer.is_global_zero:  # a signal came: a resumed run validates
                        return False
                self.record(result)
        self.settled = self.step
        return better

    def _save_and_stop(self, better: bool) -> None:
        """Write a checkpoint where one is due, or asked for; stop after the last step, at a signal,
        or for another plan."""
        t = self.train_config
        last = self.step >= t.steps
        stop, minutes = self.agree()
        passed = time.monotonic() - self.meters.began
        if not last and not stop and self.plan is not None and passed >= forecast.AGAIN:
            plan, self.plan = self.plan, None
            self.replanned = plan.again(self.step, passed)
        if last or better or stop or minutes or self.replanned or (t.save_every and self.step % t.save_every == 0):
            self.save()
            stop = stop or (self.world == 1 and bool(self.signals.asked))  # it came while saving: no step more
        if stop or last or self.replanned:
            self.trainer.should_stop = True

    def agree(self) -> tuple[bool, bool]:
        """Return whether to stop, and whether the minutes between checkpoints are over:
        the same answer on every process."""
        minutes = self.train_config.save_minutes
        late = minutes and time.monotonic() - self.saved_at >= 60 * minutes
        flags = torch.tensor([int(bool(self.signals.asked)), int(bool(late) and self.trainer.is_global_zero)])
        if self.world > 1:
            flags = flags.to(self.trainer.strategy.root_device)
            torch.distributed.all_reduce(flags)
        stop, late = (bool(flag) for flag in flags.tolist())
        return stop, late

    def record(self, result: Result | None) -> None:
        """Write a row of metrics.csv: the steps since the last one, and the validation."""
        if not self.meters.window:
            return
        self.meters.read_peak(self.device)
        row = self.meters.row(self.step) | {"rate": learning_rate(self.train_config, self.step - 1)}
        if result is not None:
            if self.trainer.is_global_zero and (speed := self.meters.speed()):
                peak = f"  peak {byte_size(self.meters.peak)}" if self.meters.peak else ""
                log(self.folder, f"step {self.step}: {speed}{peak}")
            row |= {"validation": result.value, "validation_low": result.low, "validation_high": result.high}
        if self.metrics is not None:
            self.metrics.row(row)

    # ------------------------------------------------------------------------------------------------ checkpoints
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        meters = self.meters
        checkpoint["average"] = self.ema.state()
        checkpoint["run"] = {
            "step": self.step,
            "settled": self.settled,
            "seconds": meters.elapsed(),
            "tokens": meters.tokens,
            "best": self.validation.best,
            "window": meters.window,
            "validations": self.validation.count,
            "norms": list(meters.norms),
        }
        checkpoint["metrics"] = "" if self.metrics is None else self.metrics.text

    def save(self) -> None:
        """Write a checkpoint of this step."""
        if not self.trainer.is_global_zero and not self.sharded:
            self.saved = self.step
            return
        # Trainer.save_checkpoint would wait for the other processes, which may be gone when an exception is handled.
        state = self.trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        self.writer.save_checkpoint(state, self.checkpoints / step_name(self.step))
        self.saved, self.saved_at = self.step, time.monotonic()

    def wait(self) -> None:
        """Wait for the checkpoint that is being written, if there is one; its error is raised here."""
        try:
            self.writer.wait()
        except BaseException:
            self.saved = -1  # there is none of that step
            raise

    # ------------------------------------------------------------------------------------------------ the end
    def on_train_end(self) -> None:
        self.wait()
        self.close()
        self.meters.read_peak(self.device)

    def save_on_error(self, exception: BaseException) -> None:
        """Save the last whole step, if there is one that is not saved and nothing speaks against it."""
        with self.logged():
            self.wait()
        hopeless = isinstance(exception, (Quit, Diverged, InputError)) or files.is_full(exception)
        others = self.world > 1 and (self.sharded or self.meters.undrained)  # which would be needed, and may be gone
        if hasattr(self, "ema") and not (hopeless or self.halfway or others) and self.step != self.saved:
            with self.logged():
                self.drain(summed=False)
                self.save()
                self.wait()
        self.close()

    @contextlib.contextmanager
    def logged(self) -> Iterator[None]:
        """An error within it, while another one is handled, is a line in the log."""
        try:
            yield
        except Exception as second:
            if self.trainer.is_global_zero:
                log(self.folder, f"could not save a checkpoint: {second!r}")

    def close(self) -> None:
        self.progress.close()
        metrics, self.metrics = self.metrics, None
        if metrics is not None:
            metrics.close()


def learning_rate(train: Train, step: int) -> float:
    """The learning rate of step `step` (from 0)."""
    warm = min(1.0, (step + 1) / train.warmup) if train.warmup else 1.0
    if train.decay == "constant":
        return train.lr * warm
    if train.decay == "inverse-sqrt":  # the published code's rsqrt_normalized_decay
        start = max(train.warmup, 1)
        return train.lr * warm * math.sqrt(start / max(step + 1, start))
    if train.decay == "wsd":  # along a line in the last fifth
        return train.lr * warm * min(max(1 - step / train.steps, 0.0) / 0.2, 1.0)
    share = min(max(step - train.warmup, 0) / max(train.steps - train.warmup, 1), 1.0)
    return train.lr * warm * (1 + math.cos(math.pi * share)) / 2
