"""On what a training runs: device, precision, and how a batch is split over devices."""

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from ..errors import InputError
from ..evaluation.workers import limit_processes
from ..models.config import Config, Train
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


@contextlib.contextmanager
def matrix_products(config: Config) -> Iterator[None]:
    """Within it float32 matrix products are in TF32 where the run's precision is that: 10 bits of mantissa, sums in float32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision(config) == "tf32" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def sharded_blocks(method: nn.Module) -> list[nn.Module]:
    """The blocks of a network that FSDP shards each by itself: those of its outermost lists."""
    lists = [name for name, module in method.named_modules() if isinstance(module, nn.ModuleList)]
    outermost = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    return [block for name in outermost for block in method.get_submodule(name).children()]


def devices(config: Config) -> int:
    """How many processes; InputError for what this machine has not."""
    t = config.train
    gpus = torch.cuda.device_count()
    gpu = t.device == "cuda" or (t.device == "auto" and gpus > 0)
    if t.device == "cuda" and not gpus:
        raise InputError(
            "`train.device` is cuda, but this machine has no GPU that torch can use; leave it out, or use cpu"
        )
    if t.strategy == "fsdp" and not gpu:
        raise InputError("`train.strategy` fsdp shards a model over GPUs, and this run is on the CPU; use ddp")
    if gpu and t.devices > gpus:
        raise InputError(
            f"`train.devices` is {t.devices}, but this machine has {counted(gpus, 'GPU')}; use {gpus} or fewer"
        )
    if not gpu:
        limit_processes("train.devices", t.devices)
    limit_processes("train.workers", t.workers)
    return t.devices or (gpus if gpu else 1)


def split_batch(t: Train, devices: int) -> None:
    """InputError unless a step's sequences split into equal parts."""
    parts = devices * t.accumulate
    if t.batch % parts:
        near = max(parts, t.batch // parts * parts)
        raise InputError(
            f"`train.batch` {t.batch} does not split into {parts} equal parts ({counted(devices, 'device')} x "
            f"{t.accumulate} accumulated); use {near} or {near + parts}"
        )
