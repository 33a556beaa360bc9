"""The training loop: Lightning's Trainer, with our own averaging, stopping, saving and counting around it.

Lightning moves the data, accumulates, scales the precision and synchronizes devices. Its own loop counters are not
saved: a run that goes on starts them at 0 again, because order, randomness and rate are functions of our step. A
checkpoint (`models.checkpoint.write`) is taken only between two optimizer steps, and holds what is needed to take the next one.
"""

from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from torch.optim import Optimizer

from ..base.processes import this_process
from ..models.checkpoint.read import read_state
from ..models.checkpoint.shards import held_parts
from ..models.checkpoint.write import Writer
from ..models.config import Config
from .callback import TrainingCallback
from .device import Fleet, cuda, matrix_products, precision
from .learner import Learner


class LightningWriter(Writer, CheckpointIO):
    """The writer of checkpoints as a plugin of Lightning."""


def fit(
    callback: TrainingCallback, learner: Learner, writer: LightningWriter, checkpoint: Path | None, fleet: Fleet
) -> None:
    """Run the Trainer from a checkpoint (or the start) to the last step, or until a signal.

    Raises:
        Diverged, InputError (no space), Quit, or whatever the method or the data raised, after saving the last step.
    """
    config = callback.config
    trainer = lightning.Trainer(
        accelerator="cuda" if cuda(config) else "cpu",
        devices=fleet.devices,
        num_nodes=fleet.nodes,
        strategy=_strategy(config, fleet),
        precision="bf16-mixed" if precision(config) == "bfloat16" else "32-true",
        max_steps=max(config.train.steps - learner.start, 1),
        max_epochs=-1,
        min_epochs=0,
        accumulate_grad_batches=config.train.accumulate,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        callbacks=[callback],
        plugins=[writer, _environment()],
    )
    # Signals are ours (`signals`): its own handler would end a training that has not begun with exit code 0.
    trainer._signal_connector.register_signal_handlers = lambda: None
    network, compiles_shards = learner.method.network, learner.sharded and config.train.compile
    if compiles_shards:
        network.features = torch.compile(network.features)  # on the instance: no parameter changes its name
    try:
        with matrix_products(config):
            trainer.fit(learner, ckpt_path=str(checkpoint) if checkpoint else None, weights_only=True)
    except BaseException:
        launcher = trainer.strategy.launcher
        if fleet.world > 1 and trainer.is_global_zero and hasattr(launcher, "kill"):
            launcher.kill(9)  # pyright: ignore  (they may wait for this process for ever)
        raise
    finally:
        if compiles_shards:
            del network.features


def _environment() -> Any:
    """Who starts the processes: Lightning, unless they were started."""
    from lightning.fabric.plugins import environments

    process = this_process()
    if process.launcher == "torchrun":
        return environments.TorchElasticEnvironment()
    if process.world > 1:  # of Slurm, whose signals are ours: see `signals`
        return environments.SLURMEnvironment(auto_requeue=False)
    return environments.LightningEnvironment()


def _strategy(config: Config, fleet: Fleet) -> Any:
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
