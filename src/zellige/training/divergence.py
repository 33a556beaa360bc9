"""The diagnosis of a divergence: what is said when the loss or the gradient is not finite."""

import math
from pathlib import Path

from .. import files
from ..models.config import Config
from ..show.numbers import counted
from .device import precision
from .meters import Meters


def diagnosis(
    step: int, nats: float, norm: float, meters: Meters, config: Config, checkpoint: Path | None, resume: str
) -> str:
    """Return the block that is printed: at which step, what is safe, the likely causes, and what to type.

    Args:
        step, nats, norm: the step, its loss and its gradient's norm, one of them not finite.
        checkpoint: the newest one; None if there is none yet.
        resume: the command that goes on with the run.
    """
    what, value = ("loss", nats) if not math.isfinite(nats) else ("gradient", norm)
    head = f"{what} is {'NaN' if math.isnan(value) else 'infinite'} at step {step:,}"
    loss = meters.last_loss()
    if loss is not None:
        head += f"; last finite loss {loss:.2f} {meters.unit or '(not a bound)'} at {step - 1:,}"
    saved = f"  last good checkpoint: {files.shown(checkpoint)} (kept)" if checkpoint else "  no checkpoint yet"
    lower = f"{config.train.rate / 4:.1g}"
    table = [(_steepness(list(meters.norms)), f"`train.rate` {lower}", f"(now {config.train.rate:.1g})")]
    if not config.train.clip:
        table.append(("no clipping", "`train.clip` 1", ""))
    if precision(config) == "bfloat16":
        table.append(
            (
                f"bfloat16 at {'channels' if config.net.convolutional else 'hidden'} {config.net.width}",
                "`train.precision` float32",
                "",
            )
        )
    wide = [max(len(row[i]) for row in table) for i in (0, 1)]
    causes = [f"    {cause:<{wide[0]}}   {cure:<{wide[1]}}   {now}".rstrip() for cause, cure, now in table]
    next_line = f"  go on: {resume}" if checkpoint else f"  again: {resume.replace('--resume', '--overwrite')}"
    return "\n".join([head, saved, "  likely causes, likeliest first", *causes, f"{next_line} --train.rate {lower}"])


def _steepness(norms: list[float]) -> str:
    """How the gradient's norm rose over the last steps."""
    norms = [norm for norm in norms if norm > 0]
    rise = norms[-1] / norms[0] if len(norms) > 1 else 1.0
    over = counted(len(norms) - 1, "step")
    return f"gradient norm rose {rise:.0f}-fold in {over}" if rise >= 4 else "the rate is too high"
