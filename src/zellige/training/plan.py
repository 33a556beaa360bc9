"""What a training of a config takes on devices that are not at hand: memory, speed, hours, and what limits it.

The memory is that of the step of training itself, run on tensors without numbers (`live`) by the kernels of the CPU. On a GPU
dropout keeps a byte where those keep a number, so there it is somewhat less; what the driver, the allocator's fragments and a
network's messages take is not in it. The same run counts the operations, each of which launches a kernel: a step of many small
ones takes as long as their launches, however little they compute.
"""

import contextlib
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..core.batch import Batch
from ..core.random import Counter
from ..errors import InputError
from ..methods import METHODS, build
from ..models.config import Config
from ..models.weights import unfilled
from ..nn import chunks
from .cost import UTILISATION, Cost, training_cost
from .device import Fleet, precision, sharded_blocks, split_batch
from .devices import Device
from .live import Numberless, numberless

TOKENS = (
    2048  # of the rows whose step is counted, or those from which logits come in chunks; more are extended from these
)

LAUNCH = 4e-6  # seconds from one kernel to the next, each launched by itself
LAUNCH_SOURCE = "3.8 us a kernel on a V100, PyTorch's own work left out (NVIDIA, Getting Started with CUDA Graphs)"

NODE = 8  # devices of a node, where `train.nodes` does not say


@dataclass(frozen=True)
class Memory:
    """Bytes on each device at the fullest moment of a step.

    Attributes:
        weights, gradients: in float32, with what FSDP gathers of them at one time.
        optimizer: the two moments of AdamW. average: of the weights.
        activations: what a step holds beside these: the network's states for the backward pass, chunks of logits.
    """

    weights: float
    gradients: float
    optimizer: float
    average: float
    activations: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.average + self.activations


@dataclass(frozen=True)
class Budget:
    """What a training takes on `gpus` devices of one kind.

    Attributes:
        rows: of a step, on each device at one time.
        ddp, fsdp, hybrid: the memory of each device, with the weights copied, sharded, or sharded over those of a node (`node`).
        launches: kernels of a step on each device, at least; the optimizer's, a few, left out. Of a compiled step the products of
            matrices, convolutions and attention alone, since a compiler may join the rest to them.
        products: seconds of a step at `utilisation` of the peak of matrix products.
        launching: seconds to launch its kernels, `LAUNCH` each.
        traffic: seconds to read and write once what AdamW and the average do, and the activations.
        seconds: of a step, the longest of the three; hours: of all steps.
    """

    cost: Cost
    gpus: int
    device: Device
    precision: str
    utilisation: float
    steps: int
    rows: int
    launches: float
    ddp: Memory
    fsdp: Memory
    hybrid: Memory
    node: int

    @property
    def products(self) -> float:
        return self.cost.flops / self.steps / (self.gpus * self.device.peak(self.precision) * self.utilisation)

    @property
    def launching(self) -> float:
        return self.launches * LAUNCH

    @property
    def seconds(self) -> float:
        return max(self.products, self.launching, self.traffic)

    @property
    def reached(self) -> float:
        """Share of the peak of matrix products that is left where something else limits a step."""
        return self.utilisation * self.products / self.seconds

    @property
    def hours(self) -> float:
        return self.steps * self.seconds / 3600

    @property
    def tokens_per_second(self) -> float:
        """Of all devices together."""
        return self.cost.tokens / self.steps / self.seconds

    @property
    def traffic(self) -> float:
        moved = 2 * (self.ddp.weights + self.ddp.optimizer + self.ddp.average) + self.ddp.gradients
        return (moved + 2 * self.ddp.activations) / self.device.bandwidth

    @property
    def limit(self) -> str:
        """What a faster training, or any, would need first."""
        if min(self.ddp.total, self.fsdp.total) > self.device.memory:
            return "memory"
        by = {"matrix products": self.products, "kernel launches": self.launching, "memory bandwidth": self.traffic}
        return max(by, key=by.__getitem__)


def plan(config: Config, vocabulary: int, gpus: int, device: Device, utilisation: float = UTILISATION) -> Budget:
    """The plan of a config for `gpus` devices.

    Raises:
        InputError: a step's rows do not split over them; or genmd4, which asks as many rows as its learnt rates say.
    """
    if config.method == "genmd4":
        raise InputError(
            "no plan of genmd4, whose step depends on what it learns; md4 with the same network takes less"
        )
    split_batch(config.train, Fleet(1, gpus))
    if gpus % config.train.nodes:
        raise InputError(f"{gpus} devices on {config.train.nodes} nodes are not as many on each; give a multiple")
    rows = config.train.batch // (gpus * config.train.accumulate)
    numbers = precision(config, able=True)
    cost = training_cost(config, vocabulary)
    step = count_step(config, vocabulary, rows, numbers)
    network, activations = step.network, step.bytes
    launches = config.train.accumulate * (step.products if config.train.compile else step.launches)
    P = 4.0 * sum(p.numel() for p in network.parameters() if p.requires_grad)
    average = P if config.train.ema else 0.0
    blocks = [4.0 * sum(p.numel() for p in block.parameters()) for block in sharded_blocks(network)]
    at_once = P - sum(blocks) + 2 * max(blocks, default=0.0)  # outside the blocks; the block at work, and the next one
    node = gpus // config.train.nodes if config.train.nodes > 1 else min(gpus, NODE)

    def memory(parts: int) -> Memory:
        gathered = P / parts + min(at_once, P) if parts > 1 else P
        return Memory(gathered, gathered, 2 * P / parts, average / parts, activations)

    ddp, fsdp, hybrid = (memory(parts) for parts in (1, gpus, node))
    return Budget(cost, gpus, device, numbers, utilisation, config.train.steps, rows, launches, ddp, fsdp, hybrid, node)


@dataclass(frozen=True)
class Step:
    """What a step of training takes on one device.

    Attributes:
        network: without numbers.
        bytes: the most that are held beside weights and gradients.
        launches, products: operations, as `Numberless` counts them.
    """

    network: nn.Module
    bytes: float
    launches: float
    products: float


def count_step(config: Config, vocabulary: int, rows: int, precision: str = "float32") -> Step:
    """A step of so many rows: that of few and of twice as many, extended, where they are many."""
    entries = chunks.LARGE if config.net.convolutional else _fused().ENTRIES_GPU  # from which logits come in chunks
    some = math.ceil(max(TOKENS, 2 * entries / vocabulary) / config.net.length)
    if rows <= 2 * some:
        return _count(config, vocabulary, rows, precision)
    one, two = (_count(config, vocabulary, n, precision) for n in (some, 2 * some))
    extended = lambda few, twice: twice + (twice - few) / some * (rows - 2 * some)  # noqa: E731
    return Step(
        two.network,
        extended(one.bytes, two.bytes),
        extended(one.launches, two.launches),
        extended(one.products, two.products),
    )


@contextlib.contextmanager
def gpu_chunks() -> Iterator[None]:
    """Within it logits are taken in chunks as large as a GPU's, whatever the device."""
    sizes = [(chunks, "CHUNK", chunks.CHUNK_GPU), (_fused(), "ENTRIES", _fused().ENTRIES_GPU)]
    before = [getattr(module, name) for module, name, _ in sizes]
    try:
        for module, name, size in sizes:
            setattr(module, name, size)
        yield
    finally:
        for (module, name, _), size in zip(sizes, before):
            setattr(module, name, size)


def _fused() -> Any:
    return sys.modules["zellige.nn.cross_entropy"]  # the package has a function of that name


def _count(config: Config, vocabulary: int, rows: int, precision: str) -> Step:
    net, cls = config.net, METHODS[config.method]
    with numberless(), unfilled():
        network = cls.build_network(net, vocabulary, config.options)
    method = build(cls, vocabulary, network, config.options, net.length, ordered=True).train()  # its tables are real
    method.prepare()
    masks = getattr(getattr(method, "process", None), "mask", None) is not None
    share = getattr(method, "lost", None) or (0.5 if masks else 1.0)  # of the positions, those the head is asked about
    low = torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16")
    with (
        gpu_chunks(),
        numberless(),
        Numberless(share, rows, max(1, round(share * net.length))) as live,
        torch.enable_grad(),
    ):
        live.watch(method)
        batch = Batch(torch.zeros(rows, *method.shape, dtype=torch.long))
        draws = Counter(0, torch.zeros((), dtype=torch.long))
        with low:
            loss = method.loss(batch, draws).sum()
        loss.backward()
    return Step(network, live.peak, live.launches, live.products)
