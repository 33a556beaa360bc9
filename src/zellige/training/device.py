"""On what a training runs: device, precision, and how a batch is split over devices."""

import contextlib
from dataclasses import dataclass

import torch
from torch import nn

from ..errors import InputError
from ..evaluation.workers import limit_processes
from ..launched import this_process
from ..models.config import Config, Train
from ..nn.precision import float32_products
from ..show.numbers import counted
from .devices import recognise


def cuda(config: Config) -> bool:
    """Whether the run is on GPUs."""
    device = config.train.device
    return device == "cuda" or (device == "auto" and torch.cuda.is_available())


def promised(config: Config, devices: int) -> float | None:
    """FLOP/s that the data sheets promise of all devices in this run's precision; None of a CPU, or of a GPU not in the table."""
    known = recognise(torch.cuda.get_device_name()) if cuda(config) else None
    return None if known is None else devices * known.peak(precision(config))


def precision(config: Config, able: bool | None = None) -> str:
    """What "auto" means: float32, or bfloat16, which pays on a GPU from a width of 256 up; tf32 on a CPU is float32.

    able: whether the device has it; None: this machine is asked.
    """
    chosen = config.train.precision
    if chosen == "tf32":
        return chosen if able or (able is None and cuda(config)) else "float32"
    if chosen != "auto":
        return chosen
    able = cuda(config) and torch.cuda.is_bf16_supported() if able is None else able
    return "bfloat16" if able and config.net.width >= 256 else "float32"


def matrix_products(config: Config) -> contextlib.AbstractContextManager[None]:
    """Within it a GPU's float32 products and convolutions are in TF32 if that is the run's precision, else in float32."""
    return float32_products(tf32=precision(config) == "tf32")


def sharded_blocks(method: nn.Module) -> list[nn.Module]:
    """The blocks of a network that FSDP shards each by itself: those of its outermost lists."""
    lists = [name for name, module in method.named_modules() if isinstance(module, nn.ModuleList)]
    outermost = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    return [block for name in outermost for block in method.get_submodule(name).children()]


@dataclass(frozen=True)
class Fleet:
    """The processes of a training: so many on each of so many nodes."""

    nodes: int = 1
    devices: int = 1

    @property
    def world(self) -> int:
        """All of them."""
        return self.nodes * self.devices

    def sharded(self, config: Config) -> bool:
        """Whether each holds a part of the model only."""
        return self.world > 1 and config.train.strategy in ("fsdp", "hybrid")


def fleet(config: Config) -> Fleet:
    """The processes that were started, or that are to be; InputError for what is not asked for so, or not there."""
    t, here = config.train, this_process()
    gpus = torch.cuda.device_count()
    gpu = t.device == "cuda" or (t.device == "auto" and gpus > 0)
    if t.device == "cuda" and not gpus:
        raise InputError(
            "`train.device` is cuda, but this machine has no GPU that torch can use; leave it out, or use cpu"
        )
    if here.world > 1 or here.launcher == "torchrun":
        started = Fleet(here.nodes, here.world // here.nodes)
        for name, asked, there in (
            ("nodes", t.nodes > 1 and t.nodes, started.nodes),
            ("devices", t.devices, started.devices),
        ):
            if asked and asked != there:
                raise InputError(
                    f"`train.{name}` is {asked}, but {here.launcher} started {_shown(started)}; leave it out, or start as many"
                )
    elif t.nodes > 1:
        raise InputError(
            f"`train.nodes` is {t.nodes}, but only this process was started; on each node: torchrun --nnodes {t.nodes} "
            f"--nproc-per-node {t.devices or (gpus if gpu else 1)} --rdzv-backend c10d --rdzv-endpoint HOST:29500 -m "
            "-- zellige train ..."
        )
    else:
        started = Fleet(1, t.devices or (gpus if gpu else 1))
    if gpu and started.devices > gpus:
        of = "`train.devices` is" if t.devices else f"{here.launcher} started"
        raise InputError(f"{of} {started.devices}, but this machine has {counted(gpus, 'GPU')}; use {gpus} or fewer")
    if not gpu:
        limit_processes("train.devices", started.devices)
    limit_processes("train.workers", t.workers)
    return started


def _shown(fleet: Fleet) -> str:
    return f"{counted(fleet.devices, 'process', 'processes')} on {counted(fleet.nodes, 'node')}"


def split_batch(t: Train, fleet: Fleet) -> None:
    """InputError unless a step's sequences split into equal parts."""
    parts = fleet.world * t.accumulate
    if t.batch % parts:
        near = max(parts, t.batch // parts * parts)
        nodes = f"{fleet.nodes} nodes x " if fleet.nodes > 1 else ""
        raise InputError(
            f"`train.batch` {t.batch} does not split into {parts} equal parts ({nodes}{counted(fleet.devices, 'device')} x "
            f"{t.accumulate} accumulated); use {near} or {near + parts}"
        )
