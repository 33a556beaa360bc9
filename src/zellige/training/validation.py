"""The validations of a run: the bound of the averaged weights, a few samples, and which step was the best so far."""

import contextlib
import time
from dataclasses import replace
from typing import Any

import torch

from ..base.processes import this_process
from ..core.random import mix
from ..evaluation.evaluate import evaluate_rows
from ..evaluation.result import Result
from ..models.checkpoint.layout import samples_file
from ..models.model import Model
from ..samplers.pairing import admissible
from ..sampling.sample import watch_some
from ..sampling.samples import collect
from ..show import kinds
from ..show.progress import Progress
from .ema import EMA
from .logger import log, write_samples
from .prepared import Prepared
from .signals import Interrupted, Signals


class Validation:
    """The validations of a run.

    Attributes:
        count: how many there were.
        best: the best so far, {step, value, result}; None before the first.
    """

    def __init__(self, prepared: Prepared, model: Model, progress: Progress, signals: Signals):
        config, fleet = prepared.config, prepared.fleet
        self.folder, self.model, self.corpus, self.train = prepared.folder, model, prepared.corpus, config.train
        self.sharded = fleet.sharded(config)
        self.batch = max(1, config.train.batch // (config.train.accumulate * fleet.world))  # rows of a part
        self.progress, self.signals = progress, signals
        self.count = 0
        self.best: dict[str, Any] | None = None

    def run(self, step: int, ema: EMA) -> tuple[Result | None, bool]:
        """Validate after step `step`: the result, None where a signal came in between; and whether it is the best so
        far.

        The first process does it for all, and the others get None, unless the weights are sharded.
        """
        first = not this_process().rank
        if not first and not self.sharded:
            return None, False
        began = time.monotonic()
        self.model.about["step"] = step
        eager = torch.compiler.set_stance("force_eager") if self.train.compile else contextlib.nullcontext()
        with ema.swapped(), eager:
            try:
                self.signals.droppable = not self.sharded
                if self.signals.asked and self.signals.droppable:
                    raise Interrupted
                result = self._bound()
                if self.model.method.adapts:
                    message = self._adapt(step)
                    if first:
                        log(self.folder, f"step {step}: {message}")
                texts = self._sample(step, first) if self.train.samples else []
            except Interrupted:
                return None, False
            finally:
                self.signals.droppable = False
        better = self._remember(step, result)
        if first:
            self.progress.validated(step, result, texts[0] if texts else None, better)
            log(self.folder, f"step {step}: validation {result}, {time.monotonic() - began:.1f} s")
        return result, better

    def _bound(self) -> Result:
        """The bound (or the loss, where there is none) on the validation split, with its interval."""
        rows, method, tokenizer = self.corpus.validation, self.model.method, self.corpus.tokenizer
        return evaluate_rows(
            method,
            rows,
            draws=self.train.validate_draws,
            seed=self.train.seed,
            limit=self.train.validate_rows or None,
            batch=self.batch,
            characters=rows.characters if self.model.unit == "bits/char" else None,
            estimator="bound" if method.bounded else "loss",
            unit=self.model.unit if tokenizer.shape else "",
        )

    def _adapt(self, step: int) -> str:
        """Tune what the method adapts beside its weights, from rows of the validation split and random numbers of this
        step."""
        method, rows = self.model.method, self.corpus.validation
        n, device = min(method.adapts, len(rows)), next(method.parameters()).device
        batch = rows.collate([rows[i * len(rows) // n] for i in range(n)]).to(device)
        method.eval()
        message = method.adapt(batch, torch.Generator().manual_seed(mix(self.train.seed, step, "adapt")))
        method.train()
        return message

    def _sample(self, step: int, first: bool) -> list[str]:
        """A few samples into samples/, as a line of JSON each and as their kind shows them; the texts,
        if they are texts."""
        kind, seed = kinds.of(self.model.tokenizer), self.train.seed
        steps = admissible(self.model.method, self.train.sample_steps)
        samples = collect(watch_some(self.model, self.train.samples, steps=steps, seed=seed))
        if first:
            lines = replace(samples, summary=None).lines()
            write_samples(self.folder, step, (line | {"seed": seed} for line in lines))
            if not kind.running:
                kind.save(samples_file(self.folder, step, kind.suffixes[0]), samples.tokens)
        return samples.texts if kind.running else []

    def _remember(self, step: int, result: Result) -> bool:
        """Count a validation; whether it is the best so far."""
        self.count += 1
        if self.best is not None and result.value >= self.best["value"]:
            return False
        self.best = {"step": step, "value": result.value, "result": result.to_dict() | {"command": None}}
        return True
