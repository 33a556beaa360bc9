"""The folder of a run: what may be in it before training starts, and from where the run goes on.

It holds config.json (enough to rebuild the model and to run again), metrics.csv, checkpoints/ (step-000500, ..., and for
people the links last and best), samples/, log.txt and TensorBoard events.
"""

import contextlib
import glob
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import files
from ..data import Data
from ..errors import InputError
from ..launched import this_process
from ..methods.method import Method
from ..models import checkpoints
from ..models.config import Config, from_json, to_json
from ..models.model import place_weights, read_config
from ..models.tensors import check_sums, header, load_tensors
from ..schema import sealed
from ..show.numbers import count

OURS = (
    "checkpoints",
    "samples",
    "metrics.csv",
    "metrics-before.csv",
    "metrics-damaged.csv",
    "log.txt",
    "report.html",
    "wandb-id.txt",
)  # beside config.json
OWN = ("text", "tokens", "array", "images")  # data that has no name of its own
RESULTS = (
    "events.out.tfevents.*", "evaluate-*.json", "suite-*.json", "steps-*.json", "pairs-*.json", "probe-*.json",
    "bracket-*", "generate-*", "generate.jsonl",
)  # fmt: skip


def label(data: Data) -> str:
    """What a run's folder says of its data: its name, of one's own files theirs: `notes` of notes/ and of notes/*.txt.gz."""
    parts = [part for part in Path(data.path or "").absolute().parts if not glob.has_magic(part)]
    own = parts[-1].partition(".")[0] if data.path and data.name in OWN and parts else ""
    return re.sub(r"[^\w-]+", "-", own).strip("-")[:60] or ("mix" if data.mix else data.name)


def usual(name: str, again: bool, rank: int = 0) -> Path:
    """Where a run goes if nothing says it: runs/NAME, or the first of NAME-2, NAME-3, ... that is not there yet.

    again: the last that is there, which is gone on with or replaced. Of several processes, those after the first one (`rank`)
    take the folder that it made; where torchrun or Slurm starts them all at once none can, so that there is no number.
    """
    base, new = Path("runs") / name, files.free(Path("runs") / name)
    if this_process().world > 1 or new == base:
        return base
    number = int(new.name.rpartition("-")[2]) - 1
    return new if not (again or rank) else base if number == 1 else base.with_name(f"{name}-{number}")


def saved_config(
    folder: Path, method: type[Method], name: str, resume: bool, overwrite: bool, rank: int
) -> tuple[Config | None, dict[str, Any]]:
    """Return the config of the run that is in the folder, and what is known about it; (None, {}) where a new one begins.

    Raises InputError where the folder is not as `resume` or `overwrite`, or neither, need it.
    """
    if resume and overwrite:
        raise InputError("`resume` and `overwrite` are both given; one continues the run, the other replaces it")
    there = (folder / "config.json").is_file()
    if resume:
        if not there:
            raise InputError(f"no run at '{files.shown(folder)}' to resume; drop `resume` to start one")
        entries = read_config(folder)
        if entries["method"] != name:
            raise InputError(
                f"`resume` with method {name}, but the run has {entries['method']}; name that one, or use a new `run`"
            )
        config = from_json(entries, method=method, source=files.shown(folder / "config.json"))
        return config, entries.get("about") or {}
    if rank or not folder.exists():  # the first process has made the folder before it starts the others
        return None, {}
    if not folder.is_dir():
        raise InputError(f"'{files.shown(folder)}' is a file; give `run` a folder")
    if there and not overwrite:
        last = checkpoints.newest(folder / "checkpoints")
        at = f" at step {checkpoints.step_of(last):,}" if last else ""
        raise InputError(
            f"'{files.shown(folder)}' holds a run{at}; add `resume` to continue it or `overwrite` to replace it"
        )
    if not there and any(not p.name.startswith(".") for p in folder.iterdir()):
        raise InputError(f"'{files.shown(folder)}' holds something that is not a run; choose another `run`")
    return None, {}


def clear(folder: Path) -> None:
    """Remove what a run has written but its config.json, and nothing else.

    That one is replaced at once by the next run's (`write_config`): the folder is a run whenever this is killed.
    """
    results = [file for pattern in RESULTS for file in folder.glob(pattern)]
    for file in [*(folder / name for name in OURS), *results]:
        if file.exists() or file.is_symlink():
            files.remove(file)


def last_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint that a run goes on from; None where there is none yet. InputError where there is something else."""
    points = folder / "checkpoints"
    last = checkpoints.newest(points)
    names = sorted(p.name for p in points.iterdir() if not p.name.startswith(".")) if points.is_dir() else []
    if last is None and names:
        raise InputError(
            f"'{files.shown(points)}' holds no checkpoint such as step-000500, only {', '.join(names)}; "
            "copy the run again, or replace it with `overwrite`"
        )
    return last


def resumed_step(last: Path) -> int:
    """The step that a run goes on from: that of the state in its newest checkpoint, by which the folder must be called."""
    with _or_from_before(last):
        step = checkpoints.read_state(last)["run"]["step"]
    right = last.with_name(checkpoints.step_name(step))
    if last.name != right.name:
        then = f"remove it, '{right.name}' is there too" if right.exists() else f"rename it to '{right.name}'"
        raise InputError(f"'{files.shown(last)}' holds step {count(step)}, as its {checkpoints.STATE} says; {then}")
    return step


@contextlib.contextmanager
def _or_from_before(last: Path) -> Iterator[None]:
    """What is wrong with the newest checkpoint is said with the one before it, where there is one."""
    try:
        yield
    except InputError as problem:
        before = checkpoints.steps(last.parent)[:-1]
        if not before:
            raise
        step = count(checkpoints.step_of(before[-1]))
        raise InputError(f"{problem}, or remove '{files.shown(last)}' to go on from step {step}") from problem


def check_checkpoint(last: Path, method: Method, config: Config) -> None:
    """InputError unless a run can go on from a checkpoint, whose weights `method` gets: it says from which other one it could."""
    with _or_from_before(last):
        check_sums(last)
        place_weights(method, load_tensors(last / checkpoints.WEIGHTS)[0], config)
        for file in (last / "training.safetensors", *last.glob("shard-*.safetensors")):
            header(file)


def settled(last: Path) -> bool:
    """Whether nothing is left to do after a checkpoint's step: it is recorded and validated."""
    state = checkpoints.read_state(last)["run"]
    return state["settled"] == state["step"]


def write_config(folder: Path, config: Config, about: dict[str, Any]) -> None:
    """Write config.json; a full disk is one line."""
    text = json.dumps(sealed(to_json(config, about)), indent=1, ensure_ascii=False) + "\n"
    with checkpoints.explain_full_disk(folder, "starting the run", len(text), lambda: "free space and start again"):
        files.write_file(folder / "config.json", text)
