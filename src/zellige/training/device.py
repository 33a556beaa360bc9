"""On what a training runs: device, precision, and how a batch is split over devices;
what data sheets say of known ones."""

import contextlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..base.errors import InputError
from ..base.memory import machine_memory, require_memory
from ..base.plugins import Registry
from ..base.processes import this_process
from ..data import DATASETS
from ..evaluation.workers import limit_processes
from ..models.config import Config, Train
from ..nn.network import LAYER, least_parameters
from ..nn.precision import float32_products
from ..show.numbers import counted

WIDE, WIDE_UNET = 128, 192  # width of a network from which bfloat16 pays, and of a U-Net


@dataclass(frozen=True)
class Device:
    """A device as its data sheet has it.

    Attributes:
        words: that its driver's name for it has, all of them.
        bfloat16, tf32, float32: FLOP/s of dense matrix products, without sparsity; float32 is without TF32.
        memory: bytes. bandwidth: bytes/s of it.
        source: the data sheet.
    """

    words: tuple[str, ...]
    bfloat16: float
    tf32: float
    float32: float
    memory: float
    bandwidth: float
    source: str

    def peak(self, precision: str) -> float:
        """FLOP/s in "bfloat16", "tf32" or "float32"."""
        return {"bfloat16": self.bfloat16, "tf32": self.tf32}.get(precision, self.float32)


_A100, _H100 = "NVIDIA A100 Tensor Core GPU, data sheet", "NVIDIA H100 Tensor Core GPU, data sheet"

# A data sheet that gives the number with sparsity alone: half of it. Of several that fit a name, the first.
DEVICES: Registry[Device] = Registry("device")
DEVICES |= {
    "b200": Device(("B200",), 2250e12, 1100e12, 75e12, 180e9, 7.7e12, "NVIDIA HGX B200, data sheet (an eighth)"),
    "h200": Device(("H200",), 989e12, 494.5e12, 67e12, 141e9, 4.8e12, "NVIDIA H200 Tensor Core GPU, data sheet (SXM)"),
    "h100-pcie": Device(("H100", "PCIe"), 756e12, 378e12, 51e12, 80e9, 2.0e12, f"{_H100} (PCIe)"),
    "h100": Device(("H100", "HBM3"), 989e12, 494.5e12, 67e12, 80e9, 3.35e12, f"{_H100} (SXM)"),
    "a100-40": Device(("A100", "40GB"), 312e12, 156e12, 19.5e12, 40e9, 1.555e12, f"{_A100} (40 GB)"),
    "a100": Device(("A100", "SXM4", "80GB"), 312e12, 156e12, 19.5e12, 80e9, 2.039e12, f"{_A100} (80 GB, SXM)"),
    "l40s": Device(("L40S",), 362e12, 183e12, 91.6e12, 48e9, 0.864e12, "NVIDIA L40S, data sheet"),
    "l4": Device(("L4",), 121e12, 60e12, 30.3e12, 24e9, 0.3e12, "NVIDIA L4 Tensor Core GPU, data sheet"),
    "rtx4090": Device(("RTX", "4090"), 165.2e12, 82.6e12, 82.6e12, 24e9, 1.008e12, "NVIDIA Ada GPU architecture"),
    "mi300x": Device(("MI300X",), 1307.4e12, 653.7e12, 163.4e12, 192e9, 5.3e12, "AMD Instinct MI300X, data sheet"),
}


def recognise(name: str) -> Device | None:
    """The device that a driver calls so (`torch.cuda.get_device_name`); None for one that is not in the table.

    >>> recognise("NVIDIA H100 80GB HBM3") is DEVICES["h100"], recognise("NVIDIA GeForce GTX 1060")
    (True, None)
    """
    words = name.replace("-", " ").split()
    return next((device for device in DEVICES.values() if all(word in words for word in device.words)), None)


def cuda(config: Config) -> bool:
    """Return whether the run is on GPUs."""
    device = config.train.device
    return device == "cuda" or (device == "auto" and torch.cuda.is_available())


def promised(config: Config, devices: int) -> float | None:
    """FLOP/s that the data sheets promise of all devices in this run's precision; None of a CPU,
    or of a GPU not in the table."""
    gpu = recognise(torch.cuda.get_device_name()) if cuda(config) else None
    return None if gpu is None else devices * gpu.peak(precision(config))


def precision(config: Config, able: bool | None = None) -> str:
    """Resolve "auto": bfloat16 from a width of 128 up (192 channels of a U-Net) where the device computes in it, else
    float32; tf32 on a CPU is float32.

    able: whether the device has it; None: this machine is asked.
    """
    name = config.train.precision
    if name == "tf32":
        return name if able or (able is None and cuda(config)) else "float32"
    if name != "auto":
        return name
    if able is None:
        able = torch.cuda.is_bf16_supported() if cuda(config) else cpu_computes_bfloat16()
    wide = config.net.width >= (WIDE_UNET if config.net.is_unet else WIDE)
    return "bfloat16" if able and wide else "float32"


def cpu_computes_bfloat16() -> bool:
    """Whether this CPU has instructions for products of bfloat16 (AVX-512 or AMX); elsewhere they are slower than
    those of float32."""
    has: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(has.get("avx512_bf16") or has.get("amx_bf16"))


def matrix_products(config: Config) -> contextlib.AbstractContextManager[None]:
    """Within it a GPU's float32 products and convolutions are in TF32 if that is the run's precision,
    else in float32."""
    return float32_products(tf32=precision(config) == "tf32")


def sharded_blocks(method: nn.Module) -> list[nn.Module]:
    """The blocks of a network that FSDP shards each by itself: those of its outermost lists."""
    lists = [name for name, module in method.named_modules() if isinstance(module, nn.ModuleList)]
    outermost = [name for name in lists if not any(name.startswith(f"{outer}.") for outer in lists)]
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
        """Return whether each holds a part of the model only."""
        return self.world > 1 and config.train.strategy in ("fsdp", "hybrid")


def fleet(config: Config) -> Fleet:
    """The processes that were started, or that are to be; InputError for what is not asked for so, or not there."""
    t, process = config.train, this_process()
    gpus = torch.cuda.device_count()
    gpu = t.device == "cuda" or (t.device == "auto" and gpus > 0)
    if t.device == "cuda" and not gpus:
        raise InputError(
            "`train.device` is cuda, but this machine has no GPU that torch can use; leave it out, or use cpu"
        )
    if process.world > 1 or process.launcher == "torchrun":
        launched_fleet = Fleet(process.nodes, process.world // process.nodes)
        for name, wanted_count, actual_count in (
            ("nodes", t.nodes > 1 and t.nodes, launched_fleet.nodes),
            ("devices", t.devices, launched_fleet.devices),
        ):
            if wanted_count and wanted_count != actual_count:
                raise InputError(
                    f"`train.{name}` is {wanted_count}, but {process.launcher} started {_shown(launched_fleet)}; "
                    "leave it out, or start as many"
                )
    elif t.nodes > 1:
        raise InputError(
            f"`train.nodes` is {t.nodes}, but only this process was started; on each node: torchrun --nnodes {t.nodes} "
            f"--nproc-per-node {t.devices or (gpus if gpu else 1)} --rdzv-backend c10d --rdzv-endpoint HOST:29500 -m "
            "-- zellige train ..."
        )
    else:
        launched_fleet = Fleet(1, t.devices or (gpus if gpu else 1))
    if gpu and launched_fleet.devices > gpus:
        of = "`train.devices` is" if t.devices else f"{process.launcher} started"
        raise InputError(
            f"{of} {launched_fleet.devices}, but this machine has {counted(gpus, 'GPU')}; use {gpus} or fewer"
        )
    check_optimizer(config, launched_fleet)
    if not gpu:
        limit_processes("train.devices", launched_fleet.devices)
    limit_processes("train.workers", t.workers)
    return launched_fleet


def check_optimizer(config: Config, fleet: Fleet) -> None:
    """InputError for Muon where a process holds no whole matrices: of an adapter, or of a sharded model."""
    t = config.train
    if t.optimizer == "muon" and config.adapter:
        raise InputError("`train.optimizer` muon is for whole matrices, and an adapter has factors of them; use adamw")
    if t.optimizer == "muon" and fleet.sharded(config):
        raise InputError(
            f"`train.optimizer` muon needs whole matrices, and `train.strategy` {t.strategy} shards them; "
            "use ddp, or adamw"
        )


def _shown(fleet: Fleet) -> str:
    return f"{counted(fleet.devices, 'process', 'processes')} on {counted(fleet.nodes, 'node')}"


def require_room(config: Config, fleet: Fleet) -> None:
    """InputError unless a step's sequences split into equal parts, and the least that a step holds at one time fits
    into the memory of a device: weights, gradients and moments, and what each block keeps for the backward pass.
    """
    split_batch(config.train, fleet)
    net = config.net
    if config.network or net.is_unet:
        return
    rows = config.train.batch // (fleet.world * config.train.accumulate)
    kept = 1 if net.checkpoint else {"dit": 8, "conv": 2}[net.kind]  # hidden states of each block
    number = 2 if precision(config) == "bfloat16" else 4
    states = 0 if config.data.name in DATASETS and DATASETS[config.data.name].shaped else net.length
    needed = rows * states * net.layers * net.hidden * kept * number + net.layers * LAYER
    if not config.adapter:
        needed += 16 * least_parameters(net) / (fleet.world if fleet.sharded(config) else 1)
    memory = float(torch.cuda.get_device_properties(0).total_memory) if cuda(config) else machine_memory()
    step = (
        f"a step of {counted(rows, 'row')} of {net.length:,} tokens, through {net}" if states else f"a network of {net}"
    )
    require_memory(needed, step, memory)


def split_batch(t: Train, fleet: Fleet) -> None:
    """InputError unless a step's sequences split into equal parts."""
    parts = fleet.world * t.accumulate
    if t.batch % parts:
        near = max(parts, t.batch // parts * parts)
        nodes = f"{fleet.nodes} nodes x " if fleet.nodes > 1 else ""
        raise InputError(
            f"`train.batch` {t.batch} does not split into {parts} equal parts "
            f"({nodes}{counted(fleet.devices, 'device')} x {t.accumulate} accumulated); use {near} or {near + parts}"
        )
