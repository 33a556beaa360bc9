"""The checkpoints of a training: written at once, or by a thread while the training goes on (`train.async_save`).

A checkpoint is taken between two optimizer steps, and its folder holds:

    model.safetensors      the averaged weights, with which config.json and tokenizer.json are a model (models.model)
    training.safetensors   the weights themselves and the optimizer's moments; where they are sharded, each process
                           has a file of its own beside it (`save_shards`)
    training.json          the numbers: step, seconds, best validation, the losses of the unfinished row of metrics.csv
    metrics.csv            the run's, up to here

Whoever takes it copies the tensors to the CPU if it is to be written later; numbers are copied in any case (`pack`). Order,
randomness and rate are functions of the step, so that nothing else has a state.

Sharded tensors are PyTorch's distributed checkpoints, as safetensors. Each process writes the parts that it holds into a file of
its own, `shard-00001-model-00001-of-00001.safetensors`, whose header says where in each tensor they belong; another number of
processes, or one, reads what it needs of all of them. PyTorch's usual format has a pickle beside the tensors (`.metadata`): it is
neither written nor read.
"""

import concurrent.futures
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter

from .. import files
from ..models import checkpoints
from ..models.checkpoints import METRICS, explain_full_disk, intact, nbytes, read_state
from ..models.config import Config
from ..models.model import write_model
from ..models.tensors import header, load_tensors, pack, save_tensors, unpack, write_checksums

FILES = "shard-*.safetensors"


def is_sharded(tensor: Tensor) -> bool:
    """Whether this process may hold but a part of a tensor."""
    return hasattr(tensor, "to_local")  # a DTensor


def whole(tensor: Tensor, copy: bool = False) -> Tensor:
    """All of a tensor, on the CPU where it was sharded or a copy is asked for; every process must ask."""
    if is_sharded(tensor):
        tensor = tensor.full_tensor().cpu()  # pyright: ignore[reportAttributeAccessIssue]
    return copied(tensor) if copy else tensor


def copied(tensor: Tensor) -> Tensor:
    """A tensor, or the part of it that this process holds, as it is now, in other memory, of the CPU."""
    return tensor.detach().to("cpu", copy=True)


def save_shards(tensors: Mapping[str, Tensor], folder: Path | None, group: Any = None) -> None:
    """Write sharded tensors; every process must do so, and the first one says where.

    Args:
        group: of all processes, through which they agree; by default that of the training.

    Raises:
        OSError: of one of the processes, on each of them.
    """
    where = [str(folder)]
    torch.distributed.broadcast_object_list(where, group=group)
    try:
        dcp.save(
            {**tensors}, storage_writer=HuggingFaceStorageWriter(where[0], save_distributed=True), process_group=group
        )
    except CheckpointException as problem:
        raise next(iter(problem.failures.values()))[0] from problem


def load_shards(folder: Path, like: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """All tensors of the safetensors files of a folder, sharded or not: whole; or those that are in `like` as the parts of it
    that this process has, and then every process must ask."""
    like = like or {}
    reader = HuggingFaceStorageReader(str(folder))
    there = reader.read_metadata().state_dict_metadata
    tensors = {
        name: torch.empty_like(like[name]) if name in like else torch.empty(of.size, dtype=of.properties.dtype)  # pyright: ignore
        for name, of in there.items()
    }
    dcp.load(tensors, storage_reader=reader, no_dist=not like)
    return tensors


class Writer(CheckpointIO):
    """Lightning's checkpoint as a folder of safetensors and JSON, complete or absent.

    A thread, where there is one, does what is otherwise done at once, by the same function: the files, their checksums, the
    name, the links, the removal of old checkpoints. One checkpoint at a time is written.
    """

    # A copy and a thread that calls `dcp.save` is what PyTorch's `async_save` is, too (2.13), but its thread ends with
    # the shards, and a folder is whole only after them. Lightning's AsyncCheckpointIO would gather sharded weights in its
    # thread, amid the training's own communication.

    def __init__(self, tokenizer: Any, config: Config, about: dict[str, Any], first: bool = True):
        """first: this is the first process, or the only one; the others write their shards alone, where there are such."""
        self.tokenizer, self.config, self.about, self.first = tokenizer, config, about, first
        self.thread = concurrent.futures.ThreadPoolExecutor(1, "checkpoint") if config.train.async_save else None
        self.underway: concurrent.futures.Future[None] | None = None
        self.group: Any = None  # of the threads of all processes; over gloo, as what they send each other is on the CPU

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint, or begin to; the error of the one before is raised here where nobody has asked for it (`wait`)."""
        self.wait()
        path, later = Path(path), self.thread is not None
        weights = {name.removeprefix("method."): t for name, t in checkpoint["state_dict"].items()}
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
            write_model(folder, model, self.tokenizer, self.config, self.about | {"step": step})
            if parts:
                save_shards(parts, folder, self.group)
            save_tensors(folder / "training.safetensors", {n: t for n, t in tensors.items() if n not in parts})
            (folder / "training.json").write_text(json.dumps(numbers) + "\n", encoding="utf-8")
            if metrics:
                (folder / METRICS).write_text(metrics, encoding="utf-8")
            write_checksums(folder)

        def write() -> None:
            size = nbytes(model) + nbytes(tensors)
            with explain_full_disk(path, f"saving step {step:,}", size, lambda: intact(path.parent)):
                if not self.first:
                    return save_shards(parts, None, self.group)
                files.write_folder(path, fill)
                checkpoints.link(path.parent)
                checkpoints.prune(path.parent, self.config.train.keep)

        if self.thread is None:
            write()
        else:
            self.underway = self.thread.submit(write)

    def wait(self) -> None:
        """Wait until no checkpoint is being written any more; what went wrong with the last one is raised here, once."""
        if self.underway is None:
            return
        concurrent.futures.wait([self.underway])  # a signal may end this: then it is still under way
        ended, self.underway = self.underway, None
        ended.result()

    def load_checkpoint(
        self,
        path: Any,
        map_location: Any = None,
        weights_only: bool | None = None,
        like: dict[str, Tensor] | None = None,
    ) -> dict[str, Any]:
        """like: of each tensor that this process is to hold a part of, such a part."""
        if like or any(Path(path).glob(FILES)):
            tensors = load_shards(Path(path), like)
            model = {name: tensors[name] for name in header(Path(path) / "model.safetensors") if name in tensors}
        else:
            model, _ = load_tensors(Path(path) / "model.safetensors")
            tensors, _ = load_tensors(Path(path) / "training.safetensors")
        state = unpack(read_state(Path(path)), tensors)
        weights = state.pop("weights")
        state["average"] = {name: model[name] for name in weights}
        state["state_dict"] = {f"method.{name}": t for name, t in {**model, **weights}.items()}
        return state | {"lr_schedulers": [], "callbacks": {}}

    def remove_checkpoint(self, path: Any) -> None:
        files.remove(Path(path))
