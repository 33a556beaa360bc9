"""Tensors that are spread over processes, in files: PyTorch's distributed checkpoints, as safetensors.

Each process writes the parts that it holds into a file of its own, `shard-00001-model-00001-of-00001.safetensors`, whose header
says where in each tensor they belong; another number of processes, or one, reads what it needs of all of them. PyTorch's usual
format has a pickle beside the tensors (`.metadata`): it is neither written nor read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter

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
