"""On what a training runs: device, precision, and how a batch is split over devices."""

import torch

from ..errors import InputError
from ..evaluation.workers import limit_processes
from ..models.config import Config, Train
from ..show.numbers import counted


def cuda(config: Config) -> bool:
    """Whether the run is on GPUs."""
    device = config.train.device
    return device == "cuda" or (device == "auto" and torch.cuda.is_available())


def precision(config: Config) -> str:
    """What "auto" means here: float32, or bfloat16, which pays on a GPU from a width of 256 up."""
    chosen = config.train.precision
    if chosen != "auto":
        return chosen
    return "bfloat16" if cuda(config) and torch.cuda.is_bf16_supported() and config.net.width >= 256 else "float32"


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
