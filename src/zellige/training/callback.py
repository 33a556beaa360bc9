"""What happens between two optimizer steps: average, record, validate, save, stop."""

import contextlib
import math
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch
from lightning import Callback
from torch import Tensor

from .. import files
from ..core.random import mix
from ..data import Corpus
from ..errors import Diverged, InputError
from ..evaluation.evaluate import evaluate_rows
from ..evaluation.result import Result
from ..methods.method import Method
from ..models import checkpoints
from ..models.checkpoints import intact, room
from ..models.config import Config
from ..models.frames import collect
from ..models.model import unit
from ..models.watch import watch
from ..samplers.pairing import admissible
from ..show import kinds
from ..show.numbers import counted
from .device import precision, rate
from .ema import EMA
from .logger import Journal, log, write_samples
from .signals import Interrupted, Quit, Signals

SMOOTH = 100  # steps that the loss and the speed of the progress bar are averaged over


class Guard(Callback):
    """What happens between two optimizer steps: average, record, validate, save, stop.

    Attributes:
        step: optimizer steps done, the average included.
        settled: the last step that was recorded and, if it was due, validated. A run that goes on settles its step first.
    """

    def __init__(
        self,
        folder: Path,
        method: Method,
        corpus: Corpus,
        config: Config,
        model: Any,
        progress: Any,
        signals: Signals,
        start: int,
        again: str,
    ):
        self.folder, self.method, self.corpus, self.config, self.model = folder, method, corpus, config, model
        self.train, self.progress, self.signals, self.again = config.train, progress, signals, again
        self.checkpoints = folder / "checkpoints"
        self.step = self.settled = self.saved = start
        self.seconds, self.tokens, self.validations = 0.0, 0, 0
        self.best: dict[str, Any] | None = None
        self.window: list[list[float]] = []  # of the steps since the last row: nats, tokens, norm
        self.undrained: list[Tensor] = []  # the same, still on the device
        self.norms: deque[float] = deque(maxlen=21)
        self.recent: deque[tuple[float, float, float]] = deque(maxlen=SMOOTH)  # nats, tokens, and when
        self.dirty, self.loaded = False, None
        self.peak = 0
        rows, tokenizer = corpus.train, corpus.tokenizer
        self.unit = unit(tokenizer)
        per_token = (rows.characters or rows.tokens_total) / max(rows.tokens_total, 1)
        self.scale = 1 / (per_token * math.log(2)) if self.unit.startswith("bits") else 1.0
        self.loss_unit = self.unit if getattr(method, "loss_is_bound", True) else None
        if self.loss_unit is None:
            self.scale = 1.0
        self.per_row = rows.tokens_total / len(rows)

    # ------------------------------------------------------------------------------------------------ Lightning's hooks
    def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        self.loaded = checkpoint["average"]
        run = checkpoint["run"]
        self.step, self.settled, self.seconds, self.tokens = (run[k] for k in ("step", "settled", "seconds", "tokens"))
        self.best, self.window, self.validations = run["best"], run["window"], run["validations"]
        self.norms.extend(run["norms"])

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint["average"] = self.ema.state()
        checkpoint["run"] = {
            "step": self.step, "settled": self.settled, "seconds": self.elapsed(), "tokens": self.tokens,
            "best": self.best, "window": self.window, "validations": self.validations, "norms": list(self.norms),
        }  # fmt: skip

        checkpoint["metrics"] = "" if self.journal is None else self.journal.text

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self.ema = EMA(self.method, self.train.ema)
        if self.loaded is not None:
            self.ema.load(self.loaded)
            self.loaded = None
        self.zero, self.world = trainer.is_global_zero, trainer.world_size
        self.journal = None
        if self.zero:
            files.make(self.checkpoints)
            checkpoints.link(self.checkpoints)
            self.journal = Journal(
                self.folder, self.step, self.progress.note, tensorboard=self.train.tensorboard, wandb=self.train.wandb,
                config={"run": self.config.run, "method": self.config.method},
            )  # fmt: skip
        self.every = 10 if module.device.type == "cuda" else 1  # reading numbers off a GPU makes it wait
        self.began = self.saved_at = time.monotonic()
        self.signals.install()
        self.progress.start(self.train.steps, self.step)
        if self.settled < self.step:
            self.settle(trainer, module)

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        self.dirty = True

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        if (index + 1) % self.train.accumulate:
            return
        self.step += 1
        self.ema.update(self.step)
        self.tokens = round(self.step * self.train.batch * self.per_row)
        self.undrained.append(torch.cat([torch.stack(module.nats).sum(0), module.norm.detach().double()[None]]))
        module.nats = []
        self.dirty = False
        alone = self.world == 1 and self.signals.asked
        if alone or self.due() or self.step % self.every == 0:
            self.drain(trainer)
            self.settle(trainer, module)

    def on_train_end(self, trainer: Any, module: Any) -> None:
        self.close()
        if module.device.type == "cuda":
            self.peak = torch.cuda.max_memory_allocated(module.device)

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """Save the last whole step, if there is one that is not saved and nothing speaks against it."""
        hopeless = isinstance(exception, (Quit, Diverged, InputError)) or files.is_full(exception)
        if not hasattr(self, "ema") or hopeless or self.dirty or self.step == self.saved:
            return self.close()
        if self.world > 1 and (module.sharded or self.undrained):
            return self.close()  # the other processes would be needed
        try:
            self.drain(None)
            self.save(trainer, module)
        except Exception as second:
            self.tell(f"could not save step {self.step}: {second!r}")
        self.close()

    # ------------------------------------------------------------------------------------------------ between two steps
    def due(self) -> bool:
        """Whether this step is followed by a validation, a checkpoint or the end."""
        t = self.train
        marks = (t.validate_every, t.save_every)
        return self.step >= t.steps or any(mark and self.step % mark == 0 for mark in marks)

    def drain(self, trainer: Any) -> None:
        """Read the losses of the last steps, over all devices; stop if one is not finite."""
        if not self.undrained:
            return
        numbers = torch.stack(self.undrained)
        self.undrained = []
        if self.world > 1 and trainer is not None:
            sums = numbers[:, :2].contiguous()
            torch.distributed.all_reduce(sums)
            numbers = torch.cat([sums, numbers[:, 2:]], 1)
        now = time.monotonic()
        for i, (nats, tokens, norm) in enumerate(numbers.tolist()):
            step = self.step - len(numbers) + 1 + i
            if not math.isfinite(nats) or not math.isfinite(norm):
                self.dirty = True
                raise Diverged(self.diagnose(step, nats, norm))
            self.window.append([nats, tokens, norm])
            self.norms.append(norm)
            self.recent.append((nats, tokens, now))
        nats, tokens = (sum(r[i] for r in self.recent) for i in (0, 1))
        self.progress.step(self.step, self.scale * nats / max(tokens, 1.0), self.loss_unit, self.speed())

    def speed(self) -> float | None:
        """Tokens a second, over the last steps."""
        if len(self.recent) < 2 or self.recent[-1][2] <= self.recent[0][2]:
            return None
        first = self.recent[0][2]
        later = sum(1 for r in self.recent if r[2] > first)
        return later * self.train.batch * self.per_row / (self.recent[-1][2] - first)

    def elapsed(self) -> float:
        return self.seconds + (time.monotonic() - self.began)

    def settle(self, trainer: Any, module: Any) -> None:
        """What follows a step: validation, a row, a checkpoint, the end. A full disk is one line, whatever was written."""
        with room(self.folder, f"writing what step {self.step:,} gave", 1e5, lambda: intact(self.checkpoints)):
            self._settle(trainer, module)

    def _settle(self, trainer: Any, module: Any) -> None:
        t = self.train
        last = self.step >= t.steps
        result, better = None, False
        if self.settled < self.step:
            validate = last or bool(t.validate_every and self.step % t.validate_every == 0)
            if validate:
                result = self.validate(module)
                better = self.remember(result)
            if result is not None or not validate or not self.zero:
                self.record(result, flush=last)
                self.settled = self.step
        stop, minutes = self.agree(trainer)
        if last or better or stop or minutes or (t.save_every and self.step % t.save_every == 0):
            self.save(trainer, module)
            stop = stop or (self.world == 1 and bool(self.signals.asked))  # it came while saving: no step more
        if stop or last:
            trainer.should_stop = True

    def agree(self, trainer: Any) -> tuple[bool, bool]:
        """Whether to stop, and whether the minutes between checkpoints are over: the same answer on every process."""
        late = self.train.save_minutes and time.monotonic() - self.saved_at >= 60 * self.train.save_minutes
        flags = torch.tensor([int(bool(self.signals.asked)), int(bool(late) and self.zero)])
        if self.world > 1:
            flags = flags.to(trainer.strategy.root_device)
            torch.distributed.all_reduce(flags)
        stop, late = (bool(flag) for flag in flags.tolist())
        return stop, late

    def validate(self, module: Any) -> Result | None:
        """The bound of the averaged weights on the validation split, and a few texts; None if a signal came in between.

        One process does it for all, unless the weights are sharded.
        """
        if not self.zero and not module.sharded:
            return None
        t, rows = self.train, self.corpus.validation
        characters = rows.characters if self.unit == "bits/char" else None
        began, texts = time.monotonic(), []
        self.model.about["step"] = self.step
        eager = torch.compiler.set_stance("force_eager") if t.compile else contextlib.nullcontext()
        with self.ema.swapped(), eager:
            try:
                self.signals.droppable = not module.sharded
                if self.signals.asked and self.signals.droppable:
                    raise Interrupted
                result = evaluate_rows(
                    self.method, rows, draws=t.validate_draws, seed=t.seed, limit=t.validate_rows or None,
                    batch=max(1, t.batch // module.parts), characters=characters,
                    estimator="bound" if self.method.bounded else "loss",
                    unit=self.unit if self.corpus.tokenizer.shape else "",
                )  # fmt: skip
                if self.method.adapts:
                    self.adapt(module.device)
                if t.samples:
                    texts = self.sample()
            except Interrupted:
                result = None
            finally:
                self.signals.droppable = False
        if result is not None and self.zero:
            best = self.best is None or result.value < self.best["value"]
            self.progress.validated(self.step, result, texts[0] if texts else None, best)
            self.tell(f"step {self.step}: validation {result}, {time.monotonic() - began:.1f} s")
        return result

    def adapt(self, device: torch.device) -> None:
        """What the method tunes beside its weights, from rows of the validation split and random numbers of this step."""
        rows, n = self.corpus.validation, min(self.method.adapts, len(self.corpus.validation))
        batch = rows.collate([rows[i * len(rows) // n] for i in range(n)]).to(device)
        self.method.eval()
        said = self.method.adapt(batch, torch.Generator().manual_seed(mix(self.train.seed, self.step, "adapt")))
        self.method.train()
        self.tell(f"step {self.step}: {said}")

    def sample(self) -> list[str]:
        """A few into samples/, as a line of JSON each and as their kind shows them; the texts, if they are texts."""
        t = self.train
        steps = admissible(self.model.method, t.sample_steps)
        kind = kinds.of(self.model.tokenizer)
        drawn = collect(watch(self.model, count=t.samples, steps=steps, seed=t.seed))
        if self.zero:
            rows = zip(drawn.texts, drawn.tokens, drawn.calls)
            write_samples(
                self.folder, self.step,
                ({"text": x, "tokens": y, "seed": t.seed, "calls": c, "prompt": None} for x, y, c in rows),
            )  # fmt: skip
            if not kind.running:
                kind.save(self.folder / "samples" / f"step-{self.step:06d}{kind.suffixes[0]}", drawn.tokens)
        return drawn.texts if kind.running else []

    def remember(self, result: Result | None) -> bool:
        """Count a validation; whether it is the best so far."""
        if result is None:
            return False
        self.validations += 1
        if self.best is not None and result.value >= self.best["value"]:
            return False
        self.best = {"step": self.step, "value": result.value, "result": result.to_dict(None)}
        return True

    def record(self, result: Result | None, flush: bool = False) -> None:
        """A row of metrics.csv: the steps since the last one, and the validation."""
        if not self.window or not (result is not None or flush or self.step % self.train.log_every == 0):
            return
        nats, tokens = (sum(w[i] for w in self.window) for i in (0, 1))
        norm = self.window[-1][2]
        self.window = []
        if self.journal is None:
            return
        values = {
            "step": self.step,
            "epoch": self.step * self.train.batch // len(self.corpus.train),
            "seconds": round(self.elapsed(), 3),
            "tokens": self.tokens,
            "loss": self.scale * nats / max(tokens, 1.0),
            "unit": self.loss_unit,
            "rate": rate(self.train, self.step - 1),
            "gradient_norm": norm,
            "tokens_per_second": self.speed(),
        }
        if result is not None:
            values |= {"validation": result.value, "validation_low": result.low, "validation_high": result.high}
        self.journal.row(values)

    # ------------------------------------------------------------------------------------------------ saving
    def save(self, trainer: Any, module: Any) -> None:
        """A checkpoint of this step: written whole, then old ones go."""
        if not self.zero and not module.sharded:
            self.saved = self.step
            return
        # Trainer.save_checkpoint would wait for the other processes, which may be gone when an exception is handled.
        state = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        if not self.zero:
            self.saved = self.step
            return
        folder = self.checkpoints / checkpoints.step_name(self.step)
        trainer.strategy.checkpoint_io.save_checkpoint(state, folder)
        self.saved, self.saved_at = self.step, time.monotonic()
        checkpoints.link(self.checkpoints)
        checkpoints.prune(self.checkpoints, self.train.keep)

    def close(self) -> None:
        self.progress.close()
        journal, self.journal = getattr(self, "journal", None), None
        if journal is not None:
            journal.close()

    def tell(self, text: str) -> None:
        if self.zero:
            log(self.folder, text)

    # ------------------------------------------------------------------------------------------------ when it goes wrong
    def diagnose(self, step: int, nats: float, norm: float) -> str:
        """The block that is printed when the loss or the gradient is not finite."""
        what, value = ("loss", nats) if not math.isfinite(nats) else ("gradient", norm)
        value = "NaN" if math.isnan(value) else "infinite"
        head = f"{what} is {value} at step {step:,}"
        if self.recent:
            nats, tokens, _ = self.recent[-1]
            loss = f"{self.scale * nats / max(tokens, 1.0):.2f} {self.loss_unit or '(not a bound)'}"
            head += f"; last finite loss {loss} at {step - 1:,}"
        last = checkpoints.newest(self.checkpoints)
        lines = [head, f"  last good checkpoint: {files.shown(last)} (kept)" if last else "  no checkpoint yet"]
        t, causes = self.train, []
        lower = f"--train.rate {t.rate / 4:.1g}"
        norms = [n for n in self.norms if n > 0]
        rise = norms[-1] / norms[0] if len(norms) > 1 else 1.0
        over = counted(len(norms) - 1, "step")
        steep = f"gradient norm rose {rise:.0f}-fold in {over}" if rise >= 4 else "the rate is too high"
        causes.append((steep, lower, f"(now {t.rate:.1g})"))
        if not t.clip:
            causes.append(("no clipping", "--train.clip 1", ""))
        if precision(self.config) == "bfloat16":
            causes.append((f"bfloat16 at hidden {self.config.net.hidden}", "--train.precision float32", ""))
        wide = [max(len(c[i]) for c in causes) for i in (0, 1)]
        lines.append("  likely causes, likeliest first")
        lines += [f"    {a:<{wide[0]}}   {b:<{wide[1]}}   {c}".rstrip() for a, b, c in causes]
        lines.append(
            f"  go on: {self.again} {lower}"
            if last
            else f"  again: {self.again.replace('--resume', '--overwrite')} {lower}"
        )
        return "\n".join(lines)
