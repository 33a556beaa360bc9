"""The checkpoints of a run: step-NNNNNN folders, the best, what a resume reads."""

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from torch import Tensor

from ..arguments import of_kind, refuse_path
from ..errors import InputError
from ..files import follow, is_full, point, remove, size
from ..schema import checking, read_json, read_text, shown, structure
from .tensors import check_sums

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", ("tokenizer.json", "tokenizer_config.json")


STATE = "training.json"  # of a checkpoint: the numbers of the training


METRICS = "metrics.csv"  # of a run, and of a checkpoint: what was measured up to its step


def folder_of_run(run: Any) -> Path:
    """The folder of a run, or of what `zellige.train` returned; InputError where it is neither."""
    folder = getattr(run, "folder", run)
    if not isinstance(folder, (str, os.PathLike)):
        raise InputError(f"`run` is {of_kind(run)}; it must be a run's folder, or what train returned")
    refuse_path("run", folder)
    return Path(folder)


def nbytes(tensors: Mapping[str, Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors.values())


@contextlib.contextmanager
def explain_full_disk(path: Path, doing: str, needs: float, then: Callable[[], str]) -> Iterator[None]:
    """A full disk within the block is one line: what was being done, what it takes, what to do then."""
    try:
        yield
    except (OSError, InputError) as problem:
        if not is_full(problem):
            raise
        while not path.exists() and path != path.parent:
            path = path.parent
        free = size(shutil.disk_usage(path).free)
        raise InputError(f"no space left while {doing} (needs {size(needs)}, {free} free); {then()}") from problem


def intact(checkpoints: Path) -> str:
    """What a full disk has left of a run, and what to do then."""
    last = newest(checkpoints)
    return f"step {step_of(last):,} is intact, free space and `resume`" if last else "free space and start again"


# No pointer says which checkpoint is which: a folder step-000500 is whole or absent (`write_folder`), so the last one is the
# one with the highest step, and it records which is the best. The links last and best are for people; a copy may lack them.
_STEP = re.compile(r"step-([0-9]{6,})")


LAST, BEST = "last", "best"


def step_name(step: int) -> str:
    """`step-000500`, the name of a checkpoint."""
    return f"step-{step:06d}"


def step_of(folder: Path) -> int:
    """The step of a checkpoint, by its name (by its content: `read_state`, which a training goes on from)."""
    return int(folder.name.removeprefix("step-"))


def steps(checkpoints: Path) -> list[Path]:
    """A run's checkpoints, the newest last. Folders of other names are not ours: a copy, `step-000060-backup`."""
    if not checkpoints.is_dir():
        return []
    named = ((_STEP.fullmatch(path.name), path) for path in checkpoints.iterdir())
    return sorted((p for m, p in named if m and p.name == step_name(int(m[1])) and p.is_dir()), key=step_of)


def newest(checkpoints: Path) -> Path | None:
    """The last checkpoint of a run; None where there is none."""
    return next(reversed(steps(checkpoints)), None)


def best(checkpoints: Path) -> Path | None:
    """The checkpoint with the best validation, as the newest one records it; None where that is not there."""
    last = newest(checkpoints)
    if last is None:
        return None
    try:
        record = read_state(last)["run"]["best"]
        folder = checkpoints / step_name(record["step"]) if record else None
    except (InputError, OSError):  # nothing is recorded, or it is damaged: the link is left
        if not last.is_dir():  # a training beside us has pruned it while it was read
            return best(checkpoints)
        folder = follow(checkpoints / BEST)
        if folder is None and (last / STATE).is_file():
            raise
    return folder if folder is not None and folder.is_dir() else None


def named_checkpoint(checkpoints: Path, name: str) -> Path | None:
    """The checkpoint that "last", "best" or a name of its own means; None where there is no such.

    A folder that a copy has put in a link's place is what is meant where there are no others.
    """
    if name in (LAST, BEST) and steps(checkpoints):
        return newest(checkpoints) if name == LAST else best(checkpoints)
    return follow(checkpoints / name)


class Best(TypedDict):
    """The best validation of a run: its step, and the result as JSON has it."""

    step: int
    value: float
    result: dict[str, Any]


class RunProgress(TypedDict):
    """How far a run is: steps, seconds, tokens, the best validation, and the parts of rows of metrics.csv to come."""

    step: int
    settled: int
    seconds: float
    tokens: int
    best: Best | None
    window: list[Any]
    validations: int
    norms: list[float]


class TrainingState(TypedDict):
    """training.json: the progress, and where in training.safetensors the weights and the optimizer's moments are."""

    weights: dict[str, Any]
    optimizer_states: list[Any]
    run: RunProgress
    global_step: int
    epoch: int


def read_state(folder: Path) -> dict[str, Any]:
    """The numbers of the training that a checkpoint holds beside its tensors.

    Raises:
        InputError: there are none; they have changed since they were written, or an entry is not what it should be.
    """
    if not os.path.lexists(folder / STATE):
        raise InputError(
            f"'{shown(folder)}' holds no {STATE}, from which a training goes on; copy the checkpoint again"
        )
    instead = "copy the checkpoint again, or remove it to resume an earlier one"
    check_sums(folder, STATE)
    state = read_json(folder / STATE, dict, instead)
    structure(state, TrainingState, f"'{shown(folder / STATE)}'", instead=instead)
    return state


def read_metrics(run: Path) -> str:
    """metrics.csv of a run; "" where there is none.

    Raises:
        InputError: it does not begin with what the newest checkpoint whose copy is whole holds; it is not UTF-8.
    """
    folder, saved = _saved_metrics(run / "checkpoints")  # read first: a training beside us only adds to the other
    path = run / METRICS
    if not path.is_file():
        return ""
    text = read_text(path, "copy the run again, or remove the file")
    if not text.startswith(saved):
        raise InputError(
            f"'{shown(path)}' has changed since '{shown(folder)}' was written; training with `resume` restores it, "
            "or take it as it is with `checksums=False`"
        )
    return text


def _saved_metrics(checkpoints: Path) -> tuple[Path, str]:
    """The newest checkpoint whose copy of metrics.csv is whole, and that copy; "" where there is none."""
    for folder in reversed(steps(checkpoints)) if checking.get() else ():
        with contextlib.suppress(InputError):  # damaged, of an earlier version that has none, or pruned beside us
            check_sums(folder, METRICS)
            return folder, read_text(folder / METRICS)
    return checkpoints, ""


def link(checkpoints: Path) -> None:
    """Let the links `last` and `best` lead where they should, for people; nothing depends on them."""
    for name, folder in ((LAST, newest(checkpoints)), (BEST, best(checkpoints))):
        if folder is not None:
            point(checkpoints / name, folder.name)


def prune(checkpoints: Path, keep: int) -> None:
    """Keep the newest of a run's checkpoints, and the best one."""
    kept_always = best(checkpoints)
    for old in steps(checkpoints)[:-keep]:
        if old != kept_always and not old.is_symlink():
            remove(old)
