"""Reading of a folder that Zellige wrote: its config, its tensors without pickle, and the state of its training.

Every file is compared with SHA256SUMS before it is used, where the folder has one.
"""

import contextlib
import io
import json
import os
import pickletools
import re
import struct
import zipfile
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from ...base.errors import InputError
from ...base.files import follow
from ...base.schema import read_json, read_text, sha256, shown, structure
from ...base.trust import may_have_changed
from ...methods.method import Method
from ...show.numbers import count
from .. import weights
from ..adapter import of_adapter, own_name
from ..config import AGAIN, Config, from_json
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
        if file.suffix == ".safetensors" and file.is_file():
            header(file)  # says more of a file that is truncated or a pickle
        if name in sums and sha256(file) != sums[name]:
            raise InputError(f"'{shown(file)}' has changed since it was written ({CHECKSUMS}); {_ACCEPT}")


def load_tensors(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the named tensors of a safetensors file, and its metadata.

    Raises:
        InputError: it is missing, truncated, a pickle, or something else.
    """
    from safetensors import SafetensorError, safe_open

    metadata = header(path).get("__metadata__") or {}
    try:
        with safe_open(path, "pt", device=str(device)) as file:
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
    except SafetensorError as problem:
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
    """Read the JSON of a folder's config."""
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(f"'{shown(folder)}' holds no {CONFIG}; give a run or a folder that Zellige wrote")
    entries = read_json(path, dict, AGAIN)
    if "format" not in entries:
        raise InputError(f"'{shown(path)}' is not the config of a Zellige model; give a folder that Zellige wrote")
    return entries


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Read the tensors of a checkpoint, by their names in the method: of a tuned model those of its adapter alone."""
    if not (folder / ADAPTER).exists():
        return load_tensors(folder / WEIGHTS)[0]
    return {own_name(name): tensor for name, tensor in load_tensors(folder / ADAPTER)[0].items()}


def place_weights(method: nn.Module, tensors: Mapping[str, Tensor], config: Config, take: bool = False) -> None:
    """Put tensors into a method (`weights.place`); InputError if one is missing, left over or of another shape."""
    if config.adapter:
        what = f"the adapter is of rank {config.adapter.rank} beside {', '.join(config.adapter.targets)}"
        return weights.place(method, tensors, what, of=of_adapter)
    sizes = str(config.net) if config.net.convolutional else f"{config.net.layers} layers"
    weights.place(
        method, tensors, f"the network is {config.network}" if config.network else f"config says {sizes}", take
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
    folder: Path, method: type[Method], name: str, resume: bool, overwrite: bool, rank: int
) -> tuple[Config | None, dict[str, Any]]:
    """Return the config of the run in a folder, and what else is known about it; (None, {}) where a new one begins.

    Raises:
        InputError: the folder does not allow `resume` or `overwrite`, or a new run where neither is given.
    """
    if resume and overwrite:
        raise InputError("`resume` and `overwrite` are both given; one continues the run, the other replaces it")
    has_run = holds_run(folder)
    if resume:
        if not has_run:
            raise InputError(f"no run at '{shown(folder)}' to resume; drop `resume` to start one")
        entries = read_config(folder)
        if entries["method"] != name:
            raise InputError(
                f"`resume` with method {name}, but the run has {entries['method']}; name that one, or use a new `run`"
            )
        config = from_json(entries, method=method, source=shown(folder / CONFIG))
        return config, entries.get("about") or {}
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
    """Return the checkpoint that a run goes on from; None where there is none yet; InputError where there is something else."""
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
    """Return the step that a run goes on from: that of the state in its newest checkpoint, which its name must agree with."""
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
    """Put a checkpoint's weights into `method`; InputError, which names an earlier one, where a run cannot go on from it."""
    with _with_earlier(last):
        check_sums(last)
        place_weights(method, load_weights(last), config)
        for file in (last / TRAINING, *last.glob(SHARDS)):
            header(file)


def is_settled(last: Path) -> bool:
    """Return whether nothing is left to do after a checkpoint's step: it is recorded and validated."""
    state = read_state(last)["run"]
    return state["settled"] == state["step"]


# ---------------------------------------------------------------------------------------------------- pickles, which are refused
def refuse_pickle(path: Path) -> None:
    """Refuse a pickle, also inside a zip archive, as torch.save writes it; the InputError names what it would run.

    The opcodes are read, nothing is executed.
    """
    refuse_code(path)
    for data in _pickles(path):
        names = list(_globals(data))
        if names:
            raise InputError(f"'{shown(path)}' asks to run '{names[0]}' when loaded; refused, nothing was run")
        if data[:1] == b"\x80":
            raise InputError(f"'{shown(path)}' is a pickle; refused, nothing was run: give a folder that Zellige wrote")


def refuse_code(path: Path, known: Container[str] = ()) -> None:
    """Refuse a pickle that names anything but the classes of tensors and what is `known`. Nothing is executed."""
    for data in _pickles(path):
        for name in _globals(data):
            if name not in known and not name.startswith(_PLAIN):
                raise InputError(f"'{shown(path)}' asks to run '{name}' when loaded; refused, nothing was run")


_PLAIN = ("torch.", "torch._utils.", "collections.OrderedDict", "numpy.", "_codecs.encode")


def _pickles(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic[:2] == b"PK":
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if member.endswith(".pkl"):
                    yield archive.read(member)
    elif magic[:1] in (b"\x80", b"(", b"c", b"]", b"}"):
        with path.open("rb") as file:
            yield file.read(64_000_000)


def _globals(data: bytes) -> Iterator[str]:
    """Yield the names that a stream of pickles looks up, in order."""
    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        texts: list[Any] = []  # what was pushed last, texts or None; memo: what was stored
        memo: dict[int, Any] = {}
        try:
            for op, argument, _ in pickletools.genops(stream):
                if op.name in ("GLOBAL", "INST"):
                    yield str(argument).replace(" ", ".")
                elif op.name == "STACK_GLOBAL":
                    yield ".".join(str(t) for t in texts[-2:])
                elif op.name == "MEMOIZE":
                    memo[len(memo)] = texts[-1] if texts else None
                elif op.name in ("BINPUT", "LONG_BINPUT", "PUT") and texts:
                    memo[int(argument)] = texts[-1]  # pyright: ignore[reportArgumentType]
                elif op.name in ("BINGET", "LONG_BINGET", "GET"):
                    texts.append(memo.get(int(argument)))  # pyright: ignore[reportArgumentType]
                elif op.stack_after:
                    texts.append(argument if isinstance(argument, str) else None)
        except Exception:  # not a pickle, or no more of them: what torch.save wrote before 1.6 goes on with raw bytes
            return
