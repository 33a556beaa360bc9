"""Measurements while a model is trained: loss, gradient norm, tokens, speed, use of the device, time, memory; and
the diagnosis where the loss or the gradient is not finite."""

import math
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..base import files
from ..data import Rows
from ..models.config import Config, Train
from ..show.numbers import columns, counted
from ..show.progress import Speed
from ..show.units import unit_of
from .device import precision
from .order import epochs

SMOOTH = 100  # steps that the loss and the speed of the progress bar are averaged over
NORMS = 21  # gradient norms that are remembered, for the diagnosis of a divergence


class Meters:
    """The loss, gradient norm, tokens, speed, time and GPU memory of a run.

    A step's numbers stay on its device, without waiting for it, until `drain` reads those of several steps at once.

    Args:
        rows: of the training split.
        unit: of the loss, such as bits/char; None where it is not a bound: then it is in nats per token.

    Attributes:
        window: [nats, tokens, norm] of each step since the last row of metrics.csv.
        norms: gradient norms of the last steps.
        recent: (nats, tokens, when it was read, in seconds) of the last steps.
        flops: of the model, of one row forward and backward; None where it is not counted.
        promised: FLOP/s of all devices by their data sheets; None where there is none, as of a CPU.
        peak: bytes of GPU memory at most, 0 on the CPU.
    """

    def __init__(self, train: Train, rows: Rows, unit: str | None):
        self.train, self.sources, self.unit = train, rows.sources, unit
        self.tokens_per_row = rows.tokens_total / len(rows)
        characters_per_token = (rows.characters or rows.tokens_total) / max(rows.tokens_total, 1)
        self.scale = 1 / (characters_per_token * math.log(2)) if unit and unit_of(unit).measure == "bits" else 1.0
        self.seconds, self.tokens, self.peak = 0.0, 0, 0
        self.window: list[list[float]] = []
        self.undrained: list[Tensor] = []  # [nats, tokens, norm] of each step, still on the device
        self.norms: deque[float] = deque(maxlen=NORMS)
        self.recent: deque[tuple[float, float, float]] = deque(maxlen=SMOOTH)

    def load(self, state: dict[str, Any]) -> None:
        """Go on from what a checkpoint holds: its seconds, tokens, window and norms."""
        self.seconds, self.tokens, self.window = state["seconds"], state["tokens"], state["window"]
        self.norms.extend(state["norms"])

    def start(self, step: int, flops: float | None = None, promised: float | None = None) -> None:
        """Start the clock, after step `step`."""
        self.began, self.first, self.flops, self.promised = time.monotonic(), step, flops, promised

    def elapsed(self) -> float:
        """Return the seconds of training, over all sessions."""
        return self.seconds + (time.monotonic() - self.began)

    def count(self, step: int, parts: list[Tensor], norm: Tensor) -> None:
        """Take the numbers of step `step` (from 1): (nats, tokens) of each of its parts, and the gradient's norm."""
        self.tokens = round(step * self.train.batch * self.tokens_per_row)
        self.undrained.append(torch.cat([torch.stack(parts).sum(0), norm.detach().double()[None]]))

    def drain(self, summed: bool) -> list[list[float]]:
        """Return [nats, tokens, norm] of each step since the last call; nats and tokens of all devices, if summed."""
        if not self.undrained:
            return []
        numbers = torch.stack(self.undrained)
        self.undrained = []
        if summed:
            sums = numbers[:, :2].contiguous()
            torch.distributed.all_reduce(sums)
            numbers = torch.cat([sums, numbers[:, 2:]], 1)
        return numbers.tolist()

    def add(self, nats: float, tokens: float, norm: float, now: float) -> None:
        """Take what `drain` has read of one step, at the time `now`."""
        self.window.append([nats, tokens, norm])
        self.norms.append(norm)
        self.recent.append((nats, tokens, now))

    def loss(self) -> float:
        """Return the mean loss of the last steps, in `unit`."""
        nats, tokens = (sum(step[i] for step in self.recent) for i in (0, 1))
        return self.scale * nats / max(tokens, 1.0)

    def last_loss(self) -> float | None:
        """Return the loss of the last step that was finite, in `unit`; None where there is none in this session."""
        if not self.recent:
            return None
        nats, tokens, _ = self.recent[-1]
        return self.scale * nats / max(tokens, 1.0)

    def left(self, step: int) -> float | None:
        """Return the seconds that the steps after `step` will take, validations and all,
        at the pace of this session."""
        steps_done = step - self.first
        return (time.monotonic() - self.began) / steps_done * (self.train.steps - step) if steps_done > 0 else None

    def speed(self) -> Speed | None:
        """Return how fast the last steps were; None where these are too few to tell."""
        if len(self.recent) < 2 or self.recent[-1][2] <= self.recent[0][2]:
            return None
        first = self.recent[0][2]
        later = sum(1 for _, _, when in self.recent if when > first)
        rows = later * self.train.batch / (self.recent[-1][2] - first)  # a second
        flops = None if self.flops is None else rows * self.flops
        share = None if flops is None or self.promised is None else flops / self.promised
        return Speed(rows * self.tokens_per_row, flops, share)

    def row(self, step: int) -> dict[str, Any]:
        """Return a row of metrics.csv, of the steps since the last one, and empty the window."""
        nats, tokens = (sum(entry[i] for entry in self.window) for i in (0, 1))
        norm, speed, left = self.window[-1][2], self.speed(), self.left(step)
        self.window = []
        return {
            "step": step,
            "epoch": int(max(epochs(self.sources, step * self.train.batch))),  # of the source gone through most often
            "seconds": round(self.elapsed(), 3),
            "tokens": self.tokens,
            "loss": self.scale * nats / max(tokens, 1.0),
            "unit": self.unit,
            "gradient_norm": norm,
            "tokens_per_second": speed and speed.tokens,
            "flops_per_second": speed and speed.flops,
            "utilisation": speed and speed.utilisation,
            "peak_memory": self.peak or None,
            "seconds_left": None if left is None else round(left, 3),
        }

    def read_peak(self, device: torch.device) -> None:
        """Read the GPU memory that was taken at most: the allocator's own count, for which no device waits."""
        if device.type == "cuda":
            self.peak = torch.cuda.max_memory_allocated(device)


def diagnosis(
    step: int, nats: float, norm: float, meters: Meters, config: Config, checkpoint: Path | None, resume: str
) -> str:
    """Return the block that is printed: at which step, what is safe, the likely causes, and what to type.

    Args:
        step, nats, norm: the step, its loss and its gradient's norm, one of them not finite.
        checkpoint: the newest one; None if there is none yet.
        resume: the command that goes on with the run.
    """
    name, value = ("loss", nats) if not math.isfinite(nats) else ("gradient", norm)
    head = f"{name} is {'NaN' if math.isnan(value) else 'infinite'} at step {step:,}"
    loss = meters.last_loss()
    if loss is not None:
        head += f"; last finite loss {loss:.2f} {meters.unit or '(not a bound)'} at {step - 1:,}"
    checkpoint_line = (
        f"  last good checkpoint: {files.shown(checkpoint)} (kept)" if checkpoint else "  no checkpoint yet"
    )
    lower = f"{config.train.lr / 4:.1g}"
    causes = [(_steepness(list(meters.norms)), f"`train.lr` {lower}", f"(now {config.train.lr:.1g})")]
    if not config.train.clip:
        causes.append(("no clipping", "`train.clip` 1", ""))
    if precision(config) == "bfloat16":
        width = f"{'channels' if config.net.is_unet else 'hidden'} {config.net.width}"
        causes.append((f"bfloat16 at {width}", "`train.precision` float32", ""))
    table = columns(causes, "<<<", indent=4, gap=3)
    next_line = f"  go on: {resume}" if checkpoint else f"  again: {resume.replace('--resume', '--overwrite')}"
    return "\n".join(
        [head, checkpoint_line, "  likely causes, likeliest first", *table, f"{next_line} --train.lr {lower}"]
    )


def _steepness(norms: list[float]) -> str:
    """Growth of the gradient's norm over the last steps."""
    norms = [norm for norm in norms if norm > 0]
    rise = norms[-1] / norms[0] if len(norms) > 1 else 1.0
    over = counted(len(norms) - 1, "step")
    return f"gradient norm rose {rise:.0f}-fold in {over}" if rise >= 4 else "the rate is too high"
