"""Writing of a checkpoint: at once, or by a thread while the training goes on (`train.async_save`).

A checkpoint is taken between two optimizer steps; `layout` lists its files. Tensors are copied to the CPU if they are
to be written later; numbers are copied in any case (`pack`). Order, randomness and rate are functions of the step, so
that nothing else has a state.
"""

import concurrent.futures
import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...base import files
from ...base.errors import InputError
from ...base.memory import size
from ...base.schema import sealed, sha256
from ...data.tokenizer_base import Tokenizer
from ..adapter import of_adapter, peft_name, write_adapter
from ..config import FORMAT, Config, to_json
from ..defaults import write_defaults
from .layout import (
    ADAPTER,
    BEST,
    CHECKSUMS,
    CONFIG,
    LAST,
    METRICS,
    SHARDS,
    STATE,
    TRAINING,
    WEIGHTS,
    newest,
    step_of,
    steps,
)
from .read import best, header, load_tensors, load_weights, read_state
from .shards import copied, is_sharded, load_shards, save_shards, whole


def write_model(
    folder: Path,
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer,
    config: Config,
    about: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """Fill `folder` with a model: its tensors (of a tuned one its adapter), its config, its tokenizer,
    its sampling defaults."""
    if config.adapter:
        write_adapter(folder, config.adapter, config.train.start)
        save_tensors(folder / ADAPTER, {peft_name(name): tensor for name, tensor in tensors.items()}, {"format": "pt"})
    else:
        save_tensors(folder / WEIGHTS, tensors, {"format": str(FORMAT)})  # who wrote it stands in config.json
    text = json.dumps(to_json(config, about), indent=1, ensure_ascii=False)
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
    tokenizer.save(folder)
    write_defaults(folder, defaults or {})


def write_config(folder: Path, config: Config, about: dict[str, Any]) -> None:
    """Write config.json of a run; a full disk is one line."""
    text = json.dumps(sealed(to_json(config, about)), indent=1, ensure_ascii=False) + "\n"
    with explain_full_disk(folder, "starting the run", len(text), lambda: "free space and start again"):
        files.write_file(folder / CONFIG, text)


class Writer:
    """Lightning's checkpoint as a folder of safetensors and JSON, complete or absent.

    A thread, where there is one, does what is otherwise done at once, by the same function: the files, their checksums,
    the name, the links, the removal of old checkpoints. One checkpoint at a time is written. The methods are those of
    Lightning's CheckpointIO; `training.fit` makes it one, so that nothing here imports Lightning.
    """

    # A copy and a thread that calls `dcp.save` is what PyTorch's `async_save` is, too (2.13), but its thread ends with
    # the shards, and a folder is whole only after them. Lightning's AsyncCheckpointIO would gather sharded weights in
    # its thread, amid the training's own communication.

    def __init__(
        self,
        tokenizer: Tokenizer,
        config: Config,
        about: dict[str, Any],
        defaults: Mapping[str, Any] | None = None,
        first: bool = True,
    ):
        """Args:
        defaults: sampling defaults of the model.
        first: this is the first process, or the only one; the others write their shards alone, where there are any.
        """
        self.tokenizer, self.config, self.about, self.first = tokenizer, config, about, first
        self.defaults = defaults
        self.thread = concurrent.futures.ThreadPoolExecutor(1, "checkpoint") if config.train.async_save else None
        self.underway: concurrent.futures.Future[None] | None = None
        self.group: Any = None  # of the threads of all processes; over gloo, as what they send each other is on the CPU

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: object = None) -> None:
        """Write a checkpoint, or begin to; an error of the one before that `wait` has not raised is raised here."""
        self.wait()
        path, later = Path(path), self.thread is not None
        weights = {name.removeprefix("method."): t for name, t in checkpoint["state_dict"].items()}
        if self.config.adapter:
            weights = {name: t for name, t in weights.items() if of_adapter(name)}
        average = checkpoint["average"]
        model = {name: whole(t, copy=later) for name, t in {**weights, **average}.items()}
        rest = {
            "weights": {name: weights[name] for name in average},
            "optimizer_states": checkpoint["optimizer_states"],
        }
        rest |= {key: checkpoint[key] for key in ("run", "global_step", "epoch", "pytorch-lightning_version")}
        tensors: dict[str, Tensor] = {}
        numbers = pack(rest, tensors)
        if later:
            tensors = {name: copied(t) for name, t in tensors.items()}
        parts = {name: t for name, t in tensors.items() if is_sharded(t)}
        if later and parts and self.group is None:
            self.group = torch.distributed.new_group(backend="gloo")
        step, metrics = checkpoint["run"]["step"], checkpoint["metrics"]

        def fill(folder: Path) -> None:
            write_model(folder, model, self.tokenizer, self.config, self.about | {"step": step}, self.defaults)
            if parts:
                save_shards(parts, folder, self.group)
            save_tensors(folder / TRAINING, {n: t for n, t in tensors.items() if n not in parts})
            (folder / STATE).write_text(json.dumps(numbers) + "\n", encoding="utf-8")
            if metrics:
                (folder / METRICS).write_text(metrics, encoding="utf-8")
            write_checksums(folder)

        def write() -> None:
            needed = nbytes(model) + nbytes(tensors)
            with explain_full_disk(path, f"saving step {step:,}", needed, lambda: intact(path.parent)):
                if not self.first:
                    return save_shards(parts, None, self.group)
                files.write_folder(path, fill)
                link(path.parent)
                prune(path.parent, self.config.train.keep)

        if self.thread is None:
            write()
        else:
            self.underway = self.thread.submit(write)

    def wait(self) -> None:
        """Wait until no checkpoint is being written any more; an error of the last one is raised here, once."""
        if self.underway is None:
            return
        concurrent.futures.wait([self.underway])  # a signal may end this: then it is still under way
        writer, self.underway = self.underway, None
        writer.result()

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: object = None,
        weights_only: bool | None = None,
        like: dict[str, Tensor] | None = None,
    ) -> dict[str, Any]:
        """Read a checkpoint.

        Args:
            like: of each tensor that this process is to hold a part of, such a part (`shards.held_parts`).
        """
        if like or any(Path(path).glob(SHARDS)):
            tensors = load_shards(Path(path), like)
            model = {name: tensors[name] for name in header(Path(path) / WEIGHTS) if name in tensors}
        else:
            model = load_weights(Path(path))
            tensors, _ = load_tensors(Path(path) / TRAINING)
        state = unpack(read_state(Path(path)), tensors)
        weights = state.pop("weights")
        state["average"] = {name: model[name] for name in weights}
        state["state_dict"] = {f"method.{name}": t for name, t in {**model, **weights}.items()}
        return state | {"lr_schedulers": [], "callbacks": {}}

    def remove_checkpoint(self, path: str | Path) -> None:
        files.remove(Path(path))


def link(checkpoints: Path) -> None:
    """Let the links `last` and `best` point to their checkpoints, for people; nothing depends on them."""
    for name, folder in ((LAST, newest(checkpoints)), (BEST, best(checkpoints))):
        if folder is not None:
            files.point(checkpoints / name, folder.name)


def prune(checkpoints: Path, keep: int) -> None:
    """Keep the newest of a run's checkpoints, and the best one."""
    kept_always = best(checkpoints)
    for old in steps(checkpoints)[:-keep]:
        if old != kept_always and not old.is_symlink():
            files.remove(old)


# ---------------------------------------------------------------------------------------------------- tensors and states
def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write named tensors as safetensors; memory that is shared or strided is written out.

    The same tensors give the same bytes, unless `metadata` has several entries, which safetensors writes in any order.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    ready: dict[str, Tensor] = {}
    pointers: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        ready[name] = tensor.clone() if tensor.data_ptr() in pointers else tensor
        pointers.add(tensor.data_ptr())
    try:
        save_file(ready, path, metadata=dict(metadata or {}))
    except SafetensorError as problem:
        number = re.search(r"os error (\d+)", str(problem))
        if number:
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from problem
        raise


def write_checksums(folder: Path) -> None:
    """Write the sha256 of every file in `folder` into its SHA256SUMS."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name != CHECKSUMS)
    lines = [f"{sha256(folder / name)}  {name}\n" for name in names]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def pack(value: object, tensors: dict[str, Tensor], name: str = "") -> Any:
    """Return nested dicts, lists, tuples, numbers, texts and tensors as JSON; the tensors go into `tensors`, by their
    path.

    What JSON cannot express is an object with one key: {"tensor": path}, {"tuple": [...]}, {"items": [[key, value]]}.
    """
    below = lambda key: f"{name}.{key}" if name else str(key)  # noqa: E731
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, Mapping):
        if all(isinstance(k, str) for k in value) and (len(value) != 1 or not {*value} & _WORDS):
            return {k: pack(v, tensors, below(k)) for k, v in value.items()}
        return {"items": [[k, pack(v, tensors, below(k))] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        inner = [pack(v, tensors, below(i)) for i, v in enumerate(value)]
        return {"tuple": inner} if isinstance(value, tuple) else inner
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{name} is a {type(value).__name__}; a state holds tensors, numbers, texts and nests of them")


_WORDS = {"tensor", "tuple", "items"}


def unpack(packed: object, tensors: Mapping[str, Tensor]) -> Any:
    """Return the value that `pack` was given."""
    if isinstance(packed, list):
        return [unpack(v, tensors) for v in packed]
    if not isinstance(packed, dict):
        return packed
    if len(packed) == 1 and {*packed} & _WORDS:
        (word, inner), *_ = packed.items()
        if word == "tensor":
            return tensors[inner]
        return tuple(unpack(inner, tensors)) if word == "tuple" else {k: unpack(v, tensors) for k, v in inner}
    return {k: unpack(v, tensors) for k, v in packed.items()}


# ---------------------------------------------------------------------------------------------------- a full disk
def nbytes(tensors: Mapping[str, Tensor]) -> int:
    """Return the size of tensors, in bytes."""
    return sum(t.numel() * t.element_size() for t in tensors.values())


@contextlib.contextmanager
def explain_full_disk(path: Path, doing: str, needs: float, then: Callable[[], str]) -> Iterator[None]:
    """Report a full disk within the block in one line: what was being done, what it needs, what to do then."""
    try:
        yield
    except (OSError, InputError) as problem:
        if not files.is_full(problem):
            raise
        while not path.exists() and path != path.parent:
            path = path.parent
        free = size(shutil.disk_usage(path).free)
        raise InputError(f"no space left while {doing} (needs {size(needs)}, {free} free); {then()}") from problem


def intact(checkpoints: Path) -> str:
    """Return what a full disk has left of a run, and what to do then."""
    last = newest(checkpoints)
    return f"step {step_of(last):,} is intact, free space and `resume`" if last else "free space and start again"
