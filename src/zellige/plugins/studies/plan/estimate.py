"""Estimate of memory, speed and hours of a training on other hardware, and what limits it.

The memory is that of the step of training itself, run on tensors without numbers by the kernels of the CPU; every
storage is counted from the operation that makes it to its end, since `tracemalloc` does not see what torch holds. On a
GPU dropout keeps a byte where those keep a number, so there it is somewhat less; what the driver, the allocator's
fragments and a network's messages take is not in it. The same run counts the operations, each of which launches a
kernel: a step of many small ones takes as long as their launches, however little they compute.
"""

import contextlib
import math
import sys
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakTensorKeyDictionary

from zellige.base.errors import InputError
from zellige.core.batch import Batch
from zellige.core.random import Counter
from zellige.methods import METHODS, build
from zellige.models.config import Config
from zellige.nn import attention, chunks
from zellige.nn.network import unfilled
from zellige.show.record import Record, json_record
from zellige.training.cost import UTILISATION, Cost, training_cost
from zellige.training.device import DEVICES, Device, Fleet, check_optimizer, precision, sharded_blocks, split_batch
from zellige.training.optimizer import block_matrices

aten = torch.ops.aten
_BY_INDEX = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}

_SAME = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.alias.default,
    aten.unsqueeze.default,
    aten.select.int,
    aten.unbind.int,
}
_FREE = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh", "promote_types",
    "scalar_tensor", "_local_scalar_dense",
}  # fmt: skip


class Live(TorchDispatchMode):
    """Counts the bytes of the storages that are made within it.

    Attributes:
        now: bytes that are held.
        gradients: of these, the gradients of the parameters given to `watch`.
        peak: the most of the others that were held at one time.
    """

    def __init__(self):
        super().__init__()
        self.now = self.gradients = self.peak = 0
        self.storages: dict[int, int] = {}  # bytes of each

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = self.run(func, args, kwargs or {})
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self._count(tensor)
        return out

    def run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return func(*args, **kwargs)

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.storages:
            self.storages[key] = size = storage.nbytes()
            self.now += size
            self.peak = max(self.peak, self.now - self.gradients)
            weakref.finalize(storage, self._free, key)

    def _free(self, key: int) -> None:
        self.now -= self.storages.pop(key)

    def watch(self, module: nn.Module) -> None:
        """Count the gradients of a module's parameters apart, from when each is whole."""

        def whole(parameter: Tensor) -> None:
            if id(parameter) not in storages and parameter.grad is not None:
                storages.add(id(parameter))
                self.gradients += parameter.grad.untyped_storage().nbytes()

        storages: set[int] = set()
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(whole)


class Numberless(Live):
    """`Live` for tensors without numbers, of which whatever depends on numbers is answered as it is in a run.

    A mask is True at a `share` of its places; what must hold of all holds, and what may hold of any does not, or once.
    There are `rows` distinct values, as of the times of a batch; where they stand in order, one for each `length`
    entries.

    Attributes:
        launches: how many of the operations compute; on a GPU each is a kernel, or several.
        products: how many of these are products of matrices, convolutions or attention, which no compiler joins to
            another.
    """

    def __init__(self, share: float, rows: int = 1, length: int = 1):
        super().__init__()
        self.share, self.rows, self.length = share, rows, length
        self.launches = self.products = 0
        self.known = WeakTensorKeyDictionary()  # tensors whose entries have one value: what `any` gave, counts

    def run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.launches += func.namespace == "aten" and not func.is_view and func._opname not in _FREE
        self.products += func.overloadpacket in flop_registry
        if func is aten.nonzero.default:
            return torch.stack(self._places(args[0]), 1)
        if func is aten._unique2.default:
            return self._unique(args[0], self.rows)
        if func is aten.unique_consecutive.default:
            return self._unique(args[0], args[0].numel() // self.length)
        if func is aten.equal.default:
            return True
        if func is aten._local_scalar_dense.default:
            (x,) = args
            return self.known.get(x, True if x.dtype is torch.bool else 1.0 if x.is_floating_point() else 1)
        if func in _BY_INDEX:
            masks = [[i] if i is None or i.dtype is not torch.bool else self._places(i) for i in args[1]]
            args = (args[0], [i for group in masks for i in group], *args[2:])
        out = func(*args, **kwargs)
        if func.overloadpacket is aten.any:
            self.known[out] = False
        elif func in _SAME and args[0] in self.known:
            for view in out if isinstance(out, (tuple, list)) else (out,):
                self.known[view] = self.known[args[0]]
        return out

    def _places(self, mask: Tensor) -> list[Tensor]:
        n = 1 if self.known.get(mask, True) is False else max(1, round(mask.numel() * self.share))
        return [mask.new_empty((n,), dtype=torch.long) for _ in range(mask.ndim)]

    def _unique(self, x: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """At most so many distinct values, which of them each entry is, and how many entries each has,
        as many as the others."""
        n = next(n for n in range(min(x.numel(), max(most, 1)), 0, -1) if x.numel() % n == 0)
        values, counts = x.new_empty((n,)), x.new_empty((n,), dtype=torch.long)
        place = torch.empty_like(x, dtype=torch.long)
        self.known[values], self.known[place], self.known[counts] = 0, 0, x.numel() // n
        return values, place, counts


@contextlib.contextmanager
def numberless() -> Iterator[None]:
    """Within it tensors have sizes and kernels, those of the CPU, and no numbers; others are taken as such."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cpu"):
        yield


# of the rows whose step is counted, or those from which logits come in chunks; more are extended from these
TOKENS = 2048

LAUNCH = 4e-6  # seconds from one kernel to the next, each launched by itself
LAUNCH_SOURCE = "3.8 us a kernel on a V100, PyTorch's own work left out (NVIDIA, Getting Started with CUDA Graphs)"

NODE = 8  # devices of a node, where `train.nodes` does not say


@dataclass(frozen=True)
class Memory:
    """Bytes on each device at the fullest moment of a step.

    Attributes:
        weights, gradients: in float32, with what FSDP gathers of them at one time.
        optimizer: the moments, two of AdamW and one of Muon. average: of the weights.
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
class Budget(Record):
    """Requirements of a training on `gpus` devices of one kind.

    Attributes:
        rows: of a step, on each device at one time.
        ddp, fsdp, hybrid: the memory of each device, with the weights copied, sharded, or sharded over those of a node
            (`node`); the last two are None with Muon, which needs whole matrices.
        launches: kernels of a step on each device, at least; the optimizer's, a few, left out. Of a compiled step the
            products of matrices, convolutions and attention alone, since a compiler may join the rest to them.
        muon: FLOP of a step on each device to make Muon's matrices orthogonal.
        products: seconds of a step at `utilisation` of the peak of matrix products.
        launching: seconds to launch its kernels, `LAUNCH` each.
        traffic: seconds to read and write once what the optimizer and the average do, and the activations.
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
    fsdp: Memory | None
    hybrid: Memory | None
    node: int
    muon: float

    @property
    def products(self) -> float:
        peak = self.device.peak(self.precision) * self.utilisation
        return self.cost.flops / self.steps / (self.gpus * peak) + self.muon / (self.device.bfloat16 * self.utilisation)

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
        moved_bytes = 2 * (self.ddp.weights + self.ddp.optimizer + self.ddp.average) + self.ddp.gradients
        return (moved_bytes + 2 * self.ddp.activations) / self.device.bandwidth

    @property
    def limit(self) -> str:
        """Resource that a faster training, or any, would need first."""
        if min(memory.total for memory in self.ways.values()) > self.device.memory:
            return "memory"
        by = {"matrix products": self.products, "kernel launches": self.launching, "memory bandwidth": self.traffic}
        return max(by, key=by.__getitem__)

    @property
    def ways(self) -> dict[str, Memory]:
        """The memory of each device by the value of `train.strategy`."""
        memory = {"ddp": self.ddp, "fsdp": self.fsdp, "hybrid": self.hybrid}
        return {name: of_each for name, of_each in memory.items() if of_each is not None}

    @property
    def gpu_hours(self) -> float:
        return self.hours * self.gpus

    @property
    def price(self) -> float | None:
        """Price, in the currency of the request; None where it gives no price of an hour."""
        hour = getattr(self.request, "price", None)
        return None if hour is None else self.gpu_hours * hour

    def to_dict(self) -> dict[str, Any]:
        memory = {name: {part: getattr(of_each, part) for part in PARTS} for name, of_each in self.ways.items()}
        result = {
            "parameters": self.cost.parameters, "flops": self.cost.flops, "tokens": self.cost.tokens,
            "precision": self.precision, "rows": self.rows, **memory, "memory": self.device.memory,
            "tokens_per_second": self.tokens_per_second, "hours": self.hours, "gpu_hours": self.gpu_hours,
            "cost": self.price, "limit": self.limit, "source": self.device.source,
            "seconds": {
                "step": self.seconds, "products": self.products, "launching": self.launching, "traffic": self.traffic,
            },
            "launches": self.launches, "launch_source": LAUNCH_SOURCE, "node": self.node, "muon": self.muon,
        }  # fmt: skip
        return json_record("plan", self.arguments, result, request=self.request)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], source: str = "it") -> "Budget":
        try:
            result, arguments = document["result"], document["arguments"]
            ways = {
                name: Memory(**{part: value for part, value in result[name].items() if part != "total"})
                for name in ("ddp", "fsdp", "hybrid")
                if name in result
            }
            cost = Cost(result["parameters"], result["flops"], result["tokens"])
            steps = round(3600 * result["hours"] / result["seconds"]["step"])
            return cls(
                cost, arguments["gpus"], DEVICES[arguments["device"]], result["precision"], arguments["mfu"], steps,
                result["rows"],
                result["launches"], ways["ddp"], ways.get("fsdp"), ways.get("hybrid"), result["node"], result["muon"],
            )  # fmt: skip
        except (KeyError, TypeError, ZeroDivisionError) as wrong:
            raise InputError(f"'{source}' is not a record of zellige plan; give one that it wrote") from wrong


@dataclass(frozen=True)
class TableBudget(Record):
    """Requirements of the recipes of a paper's table, each by itself.

    Attributes:
        table: its name.
        budgets: of each recipe that can be planned; reasons: of the others.
    """

    table: str
    budgets: Mapping[str, Budget]
    reasons: Mapping[str, str]

    @property
    def gpu_hours(self) -> float:
        """Of all recipes that can be planned, each trained once."""
        return sum(budget.gpu_hours for budget in self.budgets.values())

    def to_dict(self) -> dict[str, Any]:
        plans = {name: budget.to_dict() for name, budget in self.budgets.items()}
        result = {"table": self.table, "plans": plans, "reasons": dict(self.reasons), "gpu_hours": self.gpu_hours}
        return json_record("plan", self.arguments, result, request=self.request)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], source: str = "it") -> "TableBudget":
        try:
            result = document["result"]
            plans = {name: Budget.from_dict(plan, source) for name, plan in result["plans"].items()}
            return cls(result["table"], plans, result["reasons"])
        except (KeyError, TypeError, AttributeError) as wrong:
            raise InputError(f"'{source}' is not a record of zellige plan; give one that it wrote") from wrong


PARTS = {  # of the memory of each device, and what they are called
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "the optimizer's moments",
    "average": "average of the weights",
    "activations": "activations, logits",
    "total": "in all",
}


def budget_of(config: Config, vocabulary: int, gpus: int, device: Device, utilisation: float = UTILISATION) -> Budget:
    """Return what a config takes on `gpus` devices.

    Raises:
        InputError: a step's rows do not split over them; or genmd4, which asks as many rows as its learnt rates say.
    """
    if config.method == "genmd4":
        raise InputError(
            "no plan of genmd4, whose step depends on what it learns; md4 with the same network takes less"
        )
    fleet = Fleet(1, gpus)
    split_batch(config.train, fleet)
    check_optimizer(config, fleet)
    if gpus % config.train.nodes:
        nodes = config.train.nodes
        raise InputError(f"{gpus} devices cannot be divided evenly over {nodes} nodes; give a multiple of {nodes}")
    rows = config.train.batch // (gpus * config.train.accumulate)
    numbers = precision(config, able=True)
    cost = training_cost(config, vocabulary)
    step = count_step(config, vocabulary, rows, numbers)
    network, activations = step.network, step.bytes
    launches = config.train.accumulate * (step.products if config.train.compile else step.launches)
    P = 4.0 * sum(p.numel() for p in network.parameters() if p.requires_grad)
    average = P if config.train.ema else 0.0
    matrices = block_matrices(network) if config.train.optimizer == "muon" else []
    moments = 2 * P - 4.0 * sum(matrix.numel() for matrix in matrices)
    blocks = [4.0 * sum(p.numel() for p in block.parameters()) for block in sharded_blocks(network)]
    at_once = P - sum(blocks) + 2 * max(blocks, default=0.0)  # outside the blocks; the block at work, and the next one
    node = gpus // config.train.nodes if config.train.nodes > 1 else min(gpus, NODE)

    def memory(parts: int) -> Memory:
        gathered_weights = P / parts + min(at_once, P) if parts > 1 else P
        return Memory(gathered_weights, gathered_weights, moments / parts, average / parts, activations)

    ddp, *sharded = (memory(parts) for parts in (1, gpus, node))
    fsdp, hybrid = (None, None) if matrices else sharded
    muon = sum(orthogonal_flops(*matrix.shape) for matrix in matrices)
    return Budget(
        cost, gpus, device, numbers, utilisation, config.train.steps, rows, launches, ddp, fsdp, hybrid, node, muon
    )


def orthogonal_flops(rows: int, columns: int) -> float:
    """FLOP of Muon's five Newton-Schulz iterations for a matrix, each A = X X', B = b A + c A A, X <- a X + B X, with X
    (m, n) the matrix or its transpose, m <= n."""
    m, n = sorted((rows, columns))
    return 5 * (2 * m * m * n + 2 * m**3 + 2 * m * m * n)


@dataclass(frozen=True)
class Step:
    """Requirements of a step of training on one device.

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
    entries = chunks.LARGE if config.net.is_unet else _fused().ENTRIES_GPU  # from which logits come in chunks
    few_rows = math.ceil(max(TOKENS, 2 * entries / vocabulary) / config.net.length)
    if rows <= 2 * few_rows:
        return _count(config, vocabulary, rows, precision)
    single, two = (_count(config, vocabulary, n, precision) for n in (few_rows, 2 * few_rows))
    extrapolate = lambda few, twice: twice + (twice - few) / few_rows * (rows - 2 * few_rows)  # noqa: E731
    return Step(
        two.network,
        extrapolate(single.bytes, two.bytes),
        extrapolate(single.launches, two.launches),
        extrapolate(single.products, two.products),
    )


@contextlib.contextmanager
def as_on_gpu() -> Iterator[None]:
    """Within it a CPU takes logits in chunks as large as a GPU's, and attention to all positions in one operation."""
    settings = [
        (chunks, "CHUNK", chunks.CHUNK_GPU),
        (_fused(), "ENTRIES", _fused().ENTRIES_GPU),
        (attention, "PRODUCTS", ()),
    ]
    before = [getattr(module, name) for module, name, _ in settings]
    try:
        for module, name, value in settings:
            setattr(module, name, value)
        yield
    finally:
        for (module, name, _), value in zip(settings, before):
            setattr(module, name, value)


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
        as_on_gpu(),
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
