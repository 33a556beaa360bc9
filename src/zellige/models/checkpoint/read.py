"""Reading of a folder that Zellige wrote: its config, its tensors without pickle, and the state of its training.

Every file is compared with SHA256SUMS before it is used, where the folder has one. The tensors of a safetensors file
are a view of the file itself, so a model that takes them costs no memory until it reads them.
"""

import contextlib
import json
import math
import os
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from torch import Tensor, nn

from ...base.errors import InputError, some
from ...base.files import follow
from ...base.schema import check_format, read_json, read_text, sha256, shown, structure
from ...base.trust import may_have_changed
from ...methods.method import Method
from ...show.numbers import count
from ..adapter import of_adapter, own_name
from ..config import AGAIN, FORMAT, Config, from_json
from .layout import (
    ADAPTER,
    BEST,
    CHECKPOINTS,
    CHECKSUMS,
    CONFIG,
    LAST,
    METRICS,
    SHARDS,
    STATE,
    TRAINING,
    WEIGHTS,
    holds_run,
    newest,
    step_name,
    step_of,
    steps,
)
from .pickles import refuse_pickle

# ---------------------------------------------------------------------------------------------------- any folder
_ACCEPT = "copy the folder again, or take it as it is with `checksums=False`"
_LINE = re.compile(r"([0-9a-f]{64})  ([\w.-]+)")


def check_sums(folder: Path, *names: str) -> None:
    """Compare files of a folder with its SHA256SUMS; a folder that has none is taken as it is.

    Args:
        names: of the files; where none are named, all that are listed.

    Raises:
        InputError: one has changed, is missing or is not listed; SHA256SUMS itself is damaged.
    """
    path = folder / CHECKSUMS
    if may_have_changed() or not os.path.lexists(path):
        return
    sums: dict[str, str] = {}
    for number, line in enumerate(read_text(path, _ACCEPT).removesuffix("\n").split("\n"), 1):
        entry = _LINE.fullmatch(line)
        if entry is None or entry[2] in sums:
            raise InputError(f"line {number} of '{shown(path)}' is no checksum; {_ACCEPT}")
        sums[entry[2]] = entry[1]
    for name in names or sums:
        file = folder / name
        if name not in sums and file.is_file():
            raise InputError(f"'{shown(path)}' does not list '{name}'; {_ACCEPT}")
        if name in sums and not file.is_file():
            raise InputError(f"'{shown(file)}' is missing; {_ACCEPT}")
        if name in sums and sha256(file) != sums[name]:
            if file.suffix == ".safetensors":
                header(file)  # says more of a file that is truncated or a pickle
            raise InputError(f"'{shown(file)}' has changed since it was written ({CHECKSUMS}); {_ACCEPT}")


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the named tensors of a safetensors file, and its metadata.

    Raises:
        InputError: it is missing, truncated, a pickle, or something else.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as problem:
        header(path)  # says more of a file that is missing, truncated or a pickle
        raise InputError(f"'{shown(path)}' is damaged ({problem}); copy or download it again") from None


def header(path: Path) -> dict[str, Any]:
    """Read the header of a safetensors file: name -> dtype, shape, offsets; checked against the length of the file."""
    if not path.is_file():
        raise InputError(f"no file at '{shown(path)}'; copy or download the folder again")
    have = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
        if length > 100_000_000:  # not a header: that length is what a pickle or a zip archive begins with
            refuse_pickle(path)
            raise InputError(f"'{shown(path)}' is not a safetensors file; give a folder that Zellige wrote")
        text = file.read(length)
    if len(first) < 8 or len(text) < length:
        raise _truncated(path, have, 8 + length)
    try:
        entries = json.loads(text)
        if not all(isinstance(value, str) for value in (entries.get("__metadata__") or {}).values()):
            raise TypeError("metadata are texts")
        need = 8 + length + max((e["data_offsets"][1] for n, e in entries.items() if n != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise InputError(f"'{shown(path)}' is not a safetensors file; give a folder that Zellige wrote") from None
    if have < need:
        raise _truncated(path, have, need)
    return entries


def _truncated(path: Path, have: int, need: int) -> InputError:
    return InputError(f"'{shown(path)}' is truncated ({have:,} of {need:,} bytes); copy or download it again")


def read_config(folder: Path) -> dict[str, Any]:
    """Read the config of a folder that Zellige wrote; InputError where it did not."""
    entries = own_config(folder)
    if entries is not None:
        return entries
    if (folder / CONFIG).is_file():
        what = f"'{shown(folder / CONFIG)}' is not the config of a Zellige model; give"
    else:
        what = f"'{shown(folder)}' holds no {CONFIG}; give a run or"
    raise InputError(f"{what} a folder that Zellige wrote")


def own_config(folder: Path) -> dict[str, Any] | None:
    """Read the config of a folder; None where there is none, or Zellige did not write it."""
    path = folder / CONFIG
    try:
        entries = read_json(path, dict, AGAIN) if path.is_file() else {}
    except InputError:
        check_sums(folder, CONFIG)  # says more of one that has changed
        raise
    return entries if "format" in entries else None


def run_config(folder: Path, method: type[Method] | None = None) -> tuple[Config, dict[str, Any]]:
    """Return the config of a run or a model's folder, and `about`, what else its config.json says; raises as `from_json`.

    Args:
        method: an own class, which the config does not know.
    """
    entries = read_config(folder)
    return from_json(entries, method=method, source=shown(folder / CONFIG)), entries.get("about") or {}


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Read the tensors of a model's folder, by their names in the method: of a tuned model those of its adapter alone.

    Raises:
        InputError: as `load_tensors`; of another format.
    """
    if (folder / ADAPTER).exists():
        return {own_name(name): tensor for name, tensor in load_tensors(folder / ADAPTER)[0].items()}
    tensors, metadata = load_tensors(folder / WEIGHTS)
    number = metadata.get("format", "pt")  # "pt" is what other writers put there
    check_format(FORMAT if number in ("pt", str(FORMAT)) else number, FORMAT, shown(folder / WEIGHTS))
    return tensors


def weights_sha256(folder: Path) -> str:
    """Return the digest of the weights in a model's folder, as they are on disk."""
    return sha256(folder / WEIGHTS)


# ---------------------------------------------------------------------------------------------------- tensors into a module
def place_weights(method: nn.Module, tensors: Mapping[str, Tensor], config: Config, take: bool = False) -> None:
    """Put tensors into a method (`place`); InputError if one is missing, left over or of another shape."""
    if config.adapter:
        what = f"the adapter is of rank {config.adapter.rank} beside {', '.join(config.adapter.targets)}"
        return place(method, tensors, what, of=of_adapter)
    sizes = str(config.net) if config.net.is_unet else f"{config.net.layers} layers"
    place(method, tensors, f"the network is {config.network}" if config.network else f"config says {sizes}", take)


def place(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    what: str,
    take: bool = False,
    of: Callable[[str], bool] = lambda name: True,
) -> None:
    """Put tensors into a module, all or none.

    Args:
        of: says of which of the module's names they are; the others keep their values.
        take: have the tensors themselves as the module's, where their type is its own; for a module that nobody else
            holds. A module that is not there yet (on the device "meta") has them in the type that they have.

    Raises:
        InputError: one is missing, left over, of another shape or not finite.
    """
    state = {name: tensor for name, tensor in module.state_dict().items() if of(name)}
    check_fit(state, tensors, what)
    check_finite(module, tensors)
    copies = not take or os.name == "nt"  # Windows neither moves nor removes a file that is a model's memory
    if copies and not any(tensor.is_meta for tensor in state.values()):
        module.load_state_dict(dict(tensors), strict=False)  # checked above
        return
    cast_tensors = {n: tensor if state[n].is_meta else tensor.to(state[n].dtype) for n, tensor in tensors.items()}
    module.load_state_dict(
        {n: tensor.clone() for n, tensor in cast_tensors.items()} if copies else cast_tensors, strict=False, assign=True
    )


def _listed(names: Sequence[str]) -> str:
    """` (a, b, c, ...)`, the first few of them; "" for none."""
    return f" ({some(names, 3)})" if names else ""


def check_fit(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], what: str) -> None:
    """Raise InputError if a tensor is missing, left over or of another shape; `what` ends the sentence:
    what the config says."""
    missing = [name for name in own if name not in tensors]
    over = [name for name in tensors if name not in own]
    if missing or over:
        counts = f"{len(missing)} key{'s' * (len(missing) != 1)} missing{_listed(missing)}, {len(over)} unexpected{_listed(over)}"
        raise InputError(f"checkpoint does not fit: {counts}; {what}")
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            have, need = (" x ".join(map(str, s)) or "a number" for s in (tensor.shape, own[name].shape))
            raise InputError(f"checkpoint does not fit: {name} is {have}, the model has {need}; {what}")


def check_finite(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Raise InputError if a weight is NaN or infinite, or a buffer NaN; one pass over the numbers,
    in no memory of its own."""
    buffers = {name for name, _ in module.named_buffers()}
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.is_meta or not tensor.numel():
            continue
        low, high = (float(x) for x in (tensor if tensor.itemsize > 1 else tensor.float()).aminmax())
        if math.isfinite(low) and math.isfinite(high):
            continue
        nan = int(tensor.isnan().sum())
        wrong = nan or (0 if name in buffers else int(tensor.isinf().sum()))
        if wrong:
            where = f"{wrong:,} of its {tensor.numel():,} numbers" if tensor.numel() > 1 else "its number"
            raise InputError(
                f"the weights are not finite: {name} has {'NaN' if nan else 'infinity'} for {where}; "
                "take an earlier checkpoint, or copy or download it again"
            )


# ---------------------------------------------------------------------------------------------------- the checkpoints of a run
def best(checkpoints: Path) -> Path | None:
    """Return the checkpoint with the best validation, as the newest one records it; None where that is not there."""
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
    """Return the checkpoint called "last", "best" or by a name of its own; None where there is none.

    Where there are no others, a folder that a copy has put in a link's place counts.
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
    """Progress of a run: steps, seconds, tokens, the best validation, and the parts of rows of metrics.csv to come."""

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
    """Read the numbers of the training that a checkpoint holds beside its tensors.

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
    """Read metrics.csv of a run; "" where there is none.

    Raises:
        InputError: it does not begin with what the newest checkpoint whose copy is whole holds; it is not UTF-8.
    """
    folder, rows = _saved_metrics(run / CHECKPOINTS)  # read first: a training beside us only adds to the other
    path = run / METRICS
    if not path.is_file():
        return ""
    text = read_text(path, "copy the run again, or remove the file")
    if not text.startswith(rows):
        raise InputError(
            f"'{shown(path)}' has changed since '{shown(folder)}' was written; training with `resume` restores it, "
            "or take it as it is with `checksums=False`"
        )
    return text


def _saved_metrics(checkpoints: Path) -> tuple[Path, str]:
    """Return the newest checkpoint whose copy of metrics.csv is whole, and that copy; "" where there is none."""
    for folder in reversed(steps(checkpoints)) if not may_have_changed() else ():
        with contextlib.suppress(InputError):  # damaged, or pruned beside us
            check_sums(folder, METRICS)
            return folder, read_text(folder / METRICS)
    return checkpoints, ""


# ---------------------------------------------------------------------------------------------------- going on with a run
def saved_config(
    folder: Path, method: type[Method], resume: bool, overwrite: bool, rank: int
) -> tuple[Config | None, dict[str, Any]]:
    """Return the config of the run in a folder, and what else is known about it; (None, {}) where a new one begins.

    Raises:
        InputError: the folder does not allow `resume` or `overwrite`, or a new run where neither is given.
    """
    if (folder / STATE).is_file():
        raise InputError(f"'{shown(folder)}' is a checkpoint of a run; give `run` the folder of that run")
    if any((folder / name).is_file() for name in (WEIGHTS, ADAPTER)):
        raise InputError(
            f"'{shown(folder)}' is a saved model without a training state; begin with it: `train.start` "
            f"{shown(folder)} and a new `run`"
        )
    has_run = holds_run(folder)
    if resume:
        if not has_run:
            raise InputError(f"no run at '{shown(folder)}' to resume; drop `resume` to start one")
        return run_config(folder, method)
    if rank or not folder.exists():  # the first process has made the folder before it starts the others
        return None, {}
    if not folder.is_dir():
        raise InputError(f"'{shown(folder)}' is a file; give `run` a folder")
    if has_run and not overwrite:
        last = newest(folder / CHECKPOINTS)
        at = f" at step {step_of(last):,}" if last else ""
        raise InputError(f"'{shown(folder)}' holds a run{at}; add `resume` to continue it or `overwrite` to replace it")
    if not has_run and any(not p.name.startswith(".") for p in folder.iterdir()):
        raise InputError(f"'{shown(folder)}' holds something that is not a run; choose another `run`")
    return None, {}


def last_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint that a run goes on from; None where there is none yet;
    InputError where there is something else."""
    points = folder / CHECKPOINTS
    last = newest(points)
    names = sorted(p.name for p in points.iterdir() if not p.name.startswith(".")) if points.is_dir() else []
    if last is None and names:
        raise InputError(
            f"'{shown(points)}' holds no checkpoint such as step-000500, only {', '.join(names)}; "
            "copy the run again, or replace it with `overwrite`"
        )
    return last


def resumed_step(last: Path) -> int:
    """Return the step that a run goes on from: that of the state in its newest checkpoint,
    which its name must agree with."""
    with _with_earlier(last):
        step = read_state(last)["run"]["step"]
    right = last.with_name(step_name(step))
    if last.name != right.name:
        then = f"remove it, '{right.name}' is there too" if right.exists() else f"rename it to '{right.name}'"
        raise InputError(f"'{shown(last)}' holds step {count(step)}, as its {STATE} says; {then}")
    return step


@contextlib.contextmanager
def _with_earlier(last: Path) -> Iterator[None]:
    """Add to an error of the newest checkpoint the one before it, where there is one."""
    try:
        yield
    except InputError as problem:
        before = steps(last.parent)[:-1]
        if not before:
            raise
        step = count(step_of(before[-1]))
        raise InputError(f"{problem}, or remove '{shown(last)}' to go on from step {step}") from problem


def check_checkpoint(last: Path, method: Method, config: Config) -> None:
    """Put a checkpoint's weights into `method`; InputError, which names an earlier one,
    where a run cannot go on from it."""
    with _with_earlier(last):
        check_sums(last)
        place_weights(method, load_weights(last), config)
        for file in (last / TRAINING, *last.glob(SHARDS)):
            header(file)


def is_settled(last: Path) -> bool:
    """Return whether nothing is left to do after a checkpoint's step: it is recorded and validated."""
    state = read_state(last)["run"]
    return state["settled"] == state["step"]
