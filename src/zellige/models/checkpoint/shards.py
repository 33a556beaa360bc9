"""Sharded tensors on disk: PyTorch's distributed checkpoints, as safetensors.

Each process writes the parts that it holds into a file of its own, `shard-00001-model-00001-of-00001.safetensors`,
whose header says where in each tensor they belong; another number of processes, or one, reads what it needs of all of
them. PyTorch's usual format has a pickle beside the tensors (`.metadata`): it is neither written nor read.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def is_sharded(tensor: Tensor) -> bool:
    """Return whether this process may hold only a part of a tensor."""
    return hasattr(tensor, "to_local")  # a DTensor


def whole(tensor: Tensor, copy: bool = False) -> Tensor:
    """Return all of a tensor, on the CPU where it was sharded or a copy is asked for; every process must call this."""
    if is_sharded(tensor):
        tensor = tensor.full_tensor().cpu()  # pyright: ignore[reportAttributeAccessIssue]
    return copied(tensor) if copy else tensor


def copied(tensor: Tensor) -> Tensor:
    """Copy a tensor, or the part of it that this process holds, into other memory, of the CPU."""
    return tensor.detach().to("cpu", copy=True)


def save_shards(tensors: Mapping[str, Tensor], folder: Path | None, group: "ProcessGroup | None" = None) -> None:
    """Write sharded tensors; every process must call this, and the first one gives the folder.

    Args:
        group: of all processes, through which they agree; by default that of the training.

    Raises:
        OSError: of one of the processes, on each of them.
    """
    from torch.distributed import checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    where = [str(folder)]
    torch.distributed.broadcast_object_list(where, group=group)
    try:
        dcp.save(
            {**tensors}, storage_writer=HuggingFaceStorageWriter(where[0], save_distributed=True), process_group=group
        )
    except CheckpointException as problem:
        raise next(iter(problem.failures.values()))[0] from problem


def load_shards(folder: Path, like: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Read all tensors of the safetensors files of a folder, sharded or not.

    Args:
        like: of each tensor that this process is to hold a part of, such a part; then every process must call this. The
            others are whole.
    """
    from torch.distributed import checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    like = like or {}
    reader = HuggingFaceStorageReader(str(folder))
    metadata = reader.read_metadata().state_dict_metadata
    tensors = {
        name: torch.empty_like(like[name]) if name in like else torch.empty(of.size, dtype=of.properties.dtype)  # pyright: ignore
        for name, of in metadata.items()
    }
    dcp.load(tensors, storage_reader=reader, no_dist=not like)
    return tensors


def held_parts(
    optimizer_state: Mapping[str, Any], parameters: Mapping[str, Tensor], trained: Sequence[Tensor]
) -> dict[str, Tensor]:
    """Return the parts of tensors that this process holds, under the names of a checkpoint (`load_shards`).

    Args:
        optimizer_state: of the checkpoint; its moments are called after the numbers of the parameters.
        parameters: of the method, by name.
        trained: those of the optimizer, in its order.
    """
    names = [name for group in optimizer_state["param_groups"] for name in group["params"]]
    parts = {**parameters, **{f"weights.{name}": p for name, p in parameters.items()}}
    for moment in ("exp_avg", "exp_avg_sq"):
        parts |= {f"optimizer_states.0.state.{name}.{moment}": p for name, p in zip(names, trained)}
    return parts
