"""What a training of a config takes on devices that are not at hand: memory, speed, hours, and what limits it.

The memory is that of the step of training itself, run on tensors without numbers (`live`) by the kernels of the CPU. On a GPU
dropout keeps a byte where those keep a number, so there it is somewhat less; what the driver, the allocator's fragments and a
network's messages take is not in it.
"""

from dataclasses import dataclass

import torch
from torch import nn

from ..core.batch import Batch
from ..core.random import Counter
from ..errors import InputError
from ..methods import METHODS, build
from ..models.config import Config
from ..models.weights import unfilled
from .cost import UTILISATION, Cost, training_cost
from .device import Fleet, precision, sharded_blocks, split_batch
from .devices import Device
from .live import Numberless, numberless

TOKENS = (
    2048  # of the rows whose step is counted; of more, the bytes are those of so many and of twice as many, extended
)

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
        hours: at `utilisation` of the peak of matrix products.
        traffic: seconds of a step to read and write once what AdamW and the average do, and the activations.
    """

    cost: Cost
    gpus: int
    device: Device
    precision: str
    utilisation: float
    steps: int
    rows: int
    ddp: Memory
    fsdp: Memory
    hybrid: Memory
    node: int

    @property
    def seconds(self) -> float:
        """Of one step, at the utilisation."""
        return self.cost.flops / self.steps / (self.gpus * self.device.peak(self.precision) * self.utilisation)

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
        return "memory bandwidth" if self.traffic > self.seconds else "matrix products"


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
    network, activations = step_bytes(config, vocabulary, rows, numbers)
    P = 4.0 * sum(p.numel() for p in network.parameters() if p.requires_grad)
    average = P if config.train.ema else 0.0
    blocks = [4.0 * sum(p.numel() for p in block.parameters()) for block in sharded_blocks(network)]
    at_once = P - sum(blocks) + 2 * max(blocks, default=0.0)  # outside the blocks; the block at work, and the next one
    node = gpus // config.train.nodes if config.train.nodes > 1 else min(gpus, NODE)

    def memory(parts: int) -> Memory:
        gathered = P / parts + min(at_once, P) if parts > 1 else P
        return Memory(gathered, gathered, 2 * P / parts, average / parts, activations)

    ddp, fsdp, hybrid = (memory(parts) for parts in (1, gpus, node))
    return Budget(cost, gpus, device, numbers, utilisation, config.train.steps, rows, ddp, fsdp, hybrid, node)


def step_bytes(config: Config, vocabulary: int, rows: int, precision: str = "float32") -> tuple[nn.Module, float]:
    """The network without numbers, and the most bytes that a step of so many rows holds beside weights and gradients."""
    some = max(1, TOKENS // config.net.length)
    few = [rows] if rows <= 2 * some else [some, 2 * some]
    counted = [_count(config, vocabulary, n, precision) for n in few]
    network, last = counted[-1]
    if len(few) == 1:
        return network, last
    return network, last + (last - counted[0][1]) / some * (rows - 2 * some)


def _count(config: Config, vocabulary: int, rows: int, precision: str) -> tuple[nn.Module, float]:
    net, cls = config.net, METHODS[config.method]
    with numberless(), unfilled():
        network = cls.build_network(net, vocabulary, config.options)
    method = build(cls, vocabulary, network, config.options, net.length, ordered=True).train()  # its tables are real
    masks = getattr(getattr(method, "process", None), "mask", None) is not None
    share = getattr(method, "lost", None) or (0.5 if masks else 1.0)  # of the positions, those the head is asked about
    low = torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16")
    with numberless(), Numberless(share) as live, torch.enable_grad():
        live.watch(method)
        batch = Batch(torch.zeros(rows, *method.shape, dtype=torch.long))
        draws = Counter(0, torch.zeros((), dtype=torch.long))
        with low:
            loss = method.loss(batch, draws).sum()
        loss.backward()
    return network, float(live.peak)
