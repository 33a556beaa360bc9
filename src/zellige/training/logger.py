"""Files of a run other than its checkpoints: metrics.csv, samples/, TensorBoard events, Weights & Biases, log.txt."""

import contextlib
import csv
import importlib.util
import io
import json
import logging
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..base.errors import InputError, not_installed
from ..base.files import make, unlinked, write_file
from ..base.schema import accessible, read_text, sealed
from ..models.checkpoint.layout import (
    CHECKPOINTS,
    LOG,
    METRICS,
    METRICS_BEFORE,
    METRICS_DAMAGED,
    WANDB,
    samples_file,
    step_name,
)
from ..models.checkpoint.read import check_sums
from ..show.record import why_broken

COLUMNS = (
    "step", "epoch", "seconds", "tokens", "loss", "unit", "rate", "gradient_norm", "tokens_per_second",
    "validation", "validation_low", "validation_high", "flops_per_second", "utilisation", "peak_memory", "seconds_left",
)  # fmt: skip


class MetricLogger:
    """The rows of metrics.csv, and the same numbers for TensorBoard and Weights & Biases.

    A run that goes on from `step` drops what was written after it, so that the curve is that of an unbroken run.
    """

    def __init__(
        self,
        folder: Path,
        step: int,
        say: Callable[[str], Any],
        *,
        tensorboard: bool = False,
        wandb: str = "",
        config: Any = None,
    ):
        self.lines = [restore_metrics(folder, step, say)]
        with accessible("change its permissions"):
            self.file = unlinked(folder / METRICS).open("a", encoding="utf-8", newline="")
        self.events = self.run = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self.events = SummaryWriter(str(folder), purge_step=step + 1 if step else None)
        if wandb:
            self.run = _wandb(wandb, folder, config, resume=step > 0)

    def row(self, values: Mapping[str, Any]) -> None:
        """One row; what is absent or None stays blank."""
        step = values["step"]
        self.lines.append(_text([[_cell(values.get(name)) for name in COLUMNS]]))
        self.file.write(self.lines[-1])
        self.file.flush()
        numbers = {n: v for n, v in values.items() if isinstance(v, (int, float)) and n != "step"}
        if self.events is not None:
            for name, value in numbers.items():
                self.events.add_scalar(name, value, step)
        if self.run is not None:
            self.run.log(numbers, step=step)

    @property
    def text(self) -> str:
        """All of metrics.csv."""
        return "".join(self.lines)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a full disk, which has been reported
            self.file.close()
        with contextlib.suppress(OSError):
            if self.events is not None:
                self.events.close()
        if self.run is not None:
            self.run.finish()


def _cell(value: object) -> Any:
    return "" if value is None else repr(value) if isinstance(value, float) else value


def _text(rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def restore_metrics(folder: Path, step: int, say: Callable[[str], Any]) -> str:
    """metrics.csv of a run that begins, or goes on from `step`: put in its place if need be, and returned.

    It is what the checkpoint holds. What was there goes to another name, and is reported, where it is not that with
    later rows after it.

    Raises:
        InputError: what the checkpoint holds has changed since it was written.
    """
    path = folder / METRICS
    with accessible("change its permissions"):
        present_text = path.read_bytes().decode("utf-8", errors="replace") if path.is_file() else None
    text, is_damaged = _text([COLUMNS]), False
    if step:
        source = folder / CHECKPOINTS / step_name(step) / METRICS
        check_sums(source.parent, METRICS)
        text = read_text(source)
        is_damaged = present_text is not None and not present_text.startswith(text)
    note = f"restored from the checkpoint of step {step:,}"
    if is_damaged or (present_text is not None and not step and present_text != text):
        name = METRICS_DAMAGED if is_damaged else METRICS_BEFORE
        write_file(folder / name, path.read_bytes())
        why = f"metrics.csv was damaged: {note}" if is_damaged else "no checkpoint yet, so it begins at step 0"
        say(f"note: {why}; what was there is in {name}")
    elif step and present_text is None:
        say(f"note: metrics.csv was missing: {note}")
    if present_text != text:
        write_file(path, text)
    return text


def require_wandb() -> None:
    """InputError where Weights & Biases is not installed."""
    if importlib.util.find_spec("wandb") is None:
        raise not_installed("`train.wandb`", "wandb", "wandb")


def _wandb(project: str, folder: Path, config: Any, resume: bool) -> Any:
    wandb = importlib.import_module("wandb")
    file = folder / WANDB
    before = file.read_text(encoding="utf-8").strip() if resume and file.is_file() else None
    run = wandb.init(project=project, id=before, name=folder.name, dir=str(folder), config=config, resume="allow")
    write_file(file, run.id + "\n")
    return run


def write_samples(folder: Path, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write samples/step-000500.jsonl: an object a line, each with its checksum."""
    file = samples_file(folder, step)
    make(file.parent)
    lines = [json.dumps(sealed(row), ensure_ascii=False) + "\n" for row in rows]
    write_file(file, "".join(lines))


@contextlib.contextmanager
def libraries_into(log: Path | None) -> Iterator[None]:
    """The notices and warnings of the libraries go into a file (None: nowhere), not onto the screen."""
    try:
        import lightning  # noqa: F401  (which adds its own handlers when it is imported)
    except Exception as problem:
        if why := why_broken("torchvision"):
            raise InputError(
                f"'torchvision' cannot be imported ({why}), and Lightning imports it; install the one that belongs to "
                "this build of torch, or uninstall it"
            ) from problem
        raise

    handler: logging.Handler = logging.NullHandler()
    if log:
        with contextlib.suppress(OSError):
            handler = logging.FileHandler(unlinked(log), encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    names = ("lightning", "lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero", "torch")
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = lambda message, category, *place: handler.handle(
                logging.makeLogRecord({"name": category.__name__, "msg": str(message)})
            )
            yield
    finally:
        for logger, (handlers, propagate) in zip(loggers, before):
            logger.handlers, logger.propagate = handlers, propagate
        handler.close()


def log(folder: Path, text: str) -> None:
    """A line in the run's log.txt; nothing depends on it, so a full disk does not matter here."""
    with contextlib.suppress(OSError), unlinked(folder / LOG).open("a", encoding="utf-8") as file:
        file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} zellige: {text}\n")


def typed_command() -> str | None:
    """The command line that this is, if it is one of Zellige's."""
    name = Path(sys.argv[0]).name
    if name == "zellige" or (name == "__main__.py" and Path(sys.argv[0]).parent.name == "zellige"):
        return shlex.join(["zellige", *sys.argv[1:]])
    return None
