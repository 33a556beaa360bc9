"""The checkpoints of a training: written at once, or by a thread while the training goes on (`train.async_save`).

A checkpoint is taken between two optimizer steps, and its folder holds:

    model.safetensors      the averaged weights, with which config.json and tokenizer.json are a model (models.model)
    training.safetensors   the weights themselves and the optimizer's moments; where they are sharded, each process
                           has a file of its own beside it (`shards`)
    training.json          the numbers: step, seconds, best validation, the losses of the unfinished row of metrics.csv
    metrics.csv            the run's, up to here

Whoever takes it copies the tensors to the CPU if it is to be written later; numbers are copied in any case (`pack`). Order,
randomness and rate are functions of the step, so that nothing else has a state.
"""

import concurrent.futures
import json
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from torch import Tensor

from .. import files
from ..models import checkpoints
from ..models.checkpoints import METRICS, explain_full_disk, intact, nbytes, read_state
from ..models.config import Config
from ..models.model import write_model
from ..models.tensors import header, load_tensors, pack, save_tensors, unpack, write_checksums
from . import shards


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
        model = {name: shards.whole(t, copy=later) for name, t in {**weights, **average}.items()}
        rest = {
            "weights": {name: weights[name] for name in average},
            "optimizer_states": checkpoint["optimizer_states"],
        }
        rest |= {key: checkpoint[key] for key in ("run", "global_step", "epoch", "pytorch-lightning_version")}
        tensors: dict[str, Tensor] = {}
        numbers = pack(rest, tensors)
        if later:
            tensors = {name: shards.copied(t) for name, t in tensors.items()}
        parts = {name: t for name, t in tensors.items() if shards.is_sharded(t)}
        if later and parts and self.group is None:
            self.group = torch.distributed.new_group(backend="gloo")
        step, metrics = checkpoint["run"]["step"], checkpoint["metrics"]

        def fill(folder: Path) -> None:
            write_model(folder, model, self.tokenizer, self.config, self.about | {"step": step})
            if parts:
                shards.save_shards(parts, folder, self.group)
            save_tensors(folder / "training.safetensors", {n: t for n, t in tensors.items() if n not in parts})
            (folder / "training.json").write_text(json.dumps(numbers) + "\n", encoding="utf-8")
            if metrics:
                (folder / METRICS).write_text(metrics, encoding="utf-8")
            write_checksums(folder)

        def write() -> None:
            size = nbytes(model) + nbytes(tensors)
            with explain_full_disk(path, f"saving step {step:,}", size, lambda: intact(path.parent)):
                if not self.first:
                    return shards.save_shards(parts, None, self.group)
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
        if like or any(Path(path).glob(shards.FILES)):
            tensors = shards.load_shards(Path(path), like)
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
