"""Several processes and devices, as Lightning is told of them: who starts them, who has which part of the model."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from ..base.processes import this_process
from ..methods.method import Method
from ..models.checkpoint.read import read_state
from ..models.checkpoint.shards import held_parts
from ..models.config import Config
from .device import Fleet, sharded_blocks

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def environment() -> Any:
    """Who starts the processes: Lightning, unless they were started."""
    from lightning.fabric.plugins import environments

    process = this_process()
    if process.launcher == "torchrun":
        return environments.TorchElasticEnvironment()
    if process.world > 1:  # of Slurm, whose signals are ours: see `signals`
        return environments.SLURMEnvironment(auto_requeue=False)
    return environments.LightningEnvironment()


def strategy(config: Config, fleet: Fleet) -> Any:
    """Lightning's strategy: one process alone, copies of the model (DDP), or shards of it (FSDP)."""
    if fleet.sharded(config):
        return sharded_strategy(config, fleet)
    if fleet.world == 1:
        return "auto"
    from lightning.pytorch.strategies import DDPStrategy

    return DDPStrategy(gradient_as_bucket_view=True)


def sharded_strategy(config: Config, fleet: Fleet) -> Any:
    """FSDP (PyTorch's second version) through Lightning, with checkpoints through our own writer."""
    from lightning.pytorch.strategies import ModelParallelStrategy

    class Sharded(ModelParallelStrategy):
        def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
            """Each process reads its parts, whatever number of processes wrote the checkpoint."""
            (optimizer,) = self.optimizers
            parameters_by_name = {name.removeprefix("method."): p for name, p in self.model.named_parameters()}  # pyright: ignore
            optimized = [p for group in optimizer.param_groups for p in group["params"]]
            like = held_parts(read_state(Path(checkpoint_path))["optimizer_states"][0], parameters_by_name, optimized)
            state = self.checkpoint_io.load_checkpoint(checkpoint_path, like=like)  # pyright: ignore[reportCallIssue]
            self.model.load_state_dict(state["state_dict"])  # pyright: ignore[reportOptionalMemberAccess]
            optimizer.load_state_dict(state["optimizer_states"][0])
            return state

        def lightning_module_state_dict(self) -> dict[str, Any]:
            return self.model.state_dict()  # pyright: ignore[reportOptionalMemberAccess]

        def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
            return getattr(optimizer, "_optimizer", optimizer).state_dict()

    # Of the two dimensions of Lightning's mesh, `hybrid` copies over the first and shards over the second (`shard`).
    sizes = (fleet.nodes, fleet.devices) if config.train.strategy == "hybrid" else (fleet.world, 1)
    return Sharded(*sizes, save_distributed_checkpoint=False)


def shard(method: Method, mesh: "DeviceMesh") -> None:
    """Shard a method over the devices of a mesh (the last dimension of two, copied over the first), block by block; its
    entries gather what lies outside the blocks."""
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    if isinstance(method, FSDPModule):
        return  # Lightning calls configure_model more than once
    for block in sharded_blocks(method):
        fully_shard(block, mesh=mesh)
    fully_shard(method, mesh=mesh, reshard_after_forward=False)
    for entry in ("loss", "terms", "predict"):
        register_fsdp_forward_method(method, entry)


@contextlib.contextmanager
def compiled_shards(method: Method) -> Iterator[None]:
    """Within it the network is compiled alone: of a sharded model the whole step cannot be."""
    method.compiles = True
    try:
        yield
    finally:
        method.compiles = False
