"""FLOP of a training, counted on the network without numbers."""

from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ..methods import METHODS
from ..methods.method import Method
from ..models.config import Config
from ..nn.block import Net
from ..nn.network import unfilled
from .device import DEVICES

PEAK = DEVICES["h100"].bfloat16  # FLOP/s
UTILISATION = 0.4  # of that; the share that a well-kept training reaches


@dataclass(frozen=True)
class Cost:
    """Cost of a training.

    Attributes:
        parameters: of the network.
        flops: of every step's forward and backward pass; a multiplication and an addition are two.
        tokens: positions that pass through the network: steps, rows of a step, and the length of a row.
    """

    parameters: int
    flops: float
    tokens: float

    @property
    def hours(self) -> float:
        """Of one H100 at `UTILISATION` of its peak."""
        return self.flops / (PEAK * UTILISATION) / 3600


def training_cost(config: Config, vocabulary: int) -> Cost:
    """The cost of the steps of a config: the network is asked once for each row, forward and backward, at every
    position.

    Left out: the optimizer, validations and samples, and whatever a loss asks of the network beside its main term. The
    head is counted at every position, as published code has it; here it is computed only where it is read.
    """
    parameters, row = _row(METHODS[config.method], config.options, config.net, vocabulary)
    rows = config.train.steps * config.train.batch
    return Cost(parameters, float(row) * rows, float(config.net.length) * rows)


def model_flops(config: Config, method: Method) -> float | None:
    """FLOP of one row of a training, forward and backward, counted as `training_cost` does but without what
    `net.checkpoint` computes twice: of the model, however it is computed. None for an own network, and for one that is
    tuned.
    """
    if config.network or config.adapter:
        return None
    try:
        return float(_row(type(method), config.options, replace(config.net, checkpoint=False), method.vocabulary)[1])
    except Exception:  # an own class may do what has no shapes alone; a meter is no reason not to train
        return None


@cache
def _row(cls: type[Method], options: object, net: Net, vocabulary: int) -> tuple[int, int]:
    """The parameters of a network, and the FLOPs of one row forward and backward.

    A transformer of one block and one of two are counted: each further block costs what the second does.
    """
    with torch.device("meta"), unfilled():
        network = cls.build_network(net, vocabulary, options)
    if net.is_unet:
        flops = _flops(cls, options, net, network)
    else:
        with torch.device("meta"), unfilled():
            one, two = (cls.build_network(replace(net, layers=n), vocabulary, options) for n in (1, 2))
        first, both = (_flops(cls, options, net, network) for network in (one, two))
        flops = first + (net.layers - 1) * (both - first)
    return sum(p.numel() for p in network.parameters()), flops


def _flops(cls: type[Method], options: object, net: Net, network: nn.Module) -> int:
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        x = torch.zeros(1, net.length, dtype=torch.long)
        time = torch.zeros(1) if cls.timed(options) else None
        two_streams = 0 < cls.block_size(options) < net.length and cls.parameterization != "next"  # ar reads one
        h = network.features(x, time, **({"clean": x} if two_streams else {}))  # pyright: ignore[reportCallIssue]
        network.head(h).sum().backward()  # pyright: ignore[reportCallIssue]
    return counter.get_total_flops()
