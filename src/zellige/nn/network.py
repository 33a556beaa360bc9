"""Interface between a method and its network, and the kinds of networks that a `Net` may ask for."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..base.errors import InputError
from ..base.memory import require_memory
from .block import Net
from .transformer import DiT
from .unet import UNet


class Network(Protocol):
    """Hidden states and head apart, so that the head is paid only where it is read.

    A network of blocks (its attribute `block` > 0) takes more keywords in `features`: `clean` (B, L), the tokens that
    earlier blocks are read from, and `clean_time`, their time input; or `cache`, what it remembers of the tokens before
    x; and it has `extend(cache, x, time) -> cache` (see `nn.DiT`). A network whose attribute `chooses` is True takes
    `at`, positions (`core.positions`), and gives the hidden states (N, D) of these alone. One whose attribute
    `sees_given` is True takes `given` (B, L) bool, the positions whose tokens are given.
    """

    def features(
        self, x: Tensor, time: Tensor | None = None, *, segments: Tensor | None = None, condition: Tensor | None = None
    ) -> Tensor:
        """(B, L) tokens, time (B,) or (B, L) -> (B, L, D)."""
        ...

    def head(self, h: Tensor) -> Tensor:
        """(*, D) -> (*, K) logits."""
        ...


def check_tokens_alone(positions: int, longest: int, time: Tensor | None, condition: Tensor | None) -> None:
    """Raise InputError where a network that reads tokens alone is given a time, a class,
    or more positions than it has."""
    if time is not None or condition is not None:
        raise InputError("this network takes no time and no classes; leave them out")
    if longest < positions:
        raise InputError(f"the input has {positions:,} positions; the network was built for {longest:,}")


LAYER = 8000  # bytes of the Python objects of a layer, at least


def least_parameters(net: Net, states: int = 1) -> int:
    """A lower bound on the parameters of the network that `build_network` makes; computed without making it."""
    layers = {"dit": 12, "u-vit": 12, "conv": 1}.get(net.kind, 0) * net.layers * net.hidden**2
    if net.is_unet:
        return layers + 9 * (net.channels * (max(net.multipliers) if net.kind == "unet" else 1)) ** 2
    return layers + (states // net.patch + (math.prod(net.cells) if net.grid else 0)) * net.hidden


def build_network(
    net: Net,
    states: int,
    time: bool = False,
    outputs: int | None = None,
    block: int = 0,
    levels: bool = False,
    bias: bool = False,
) -> DiT | UNet:
    """A fresh network of `net.kind`.

    Args:
        states, time, outputs: as in `DiT` and `UNet`.
        block, bias: of a transformer, as in `DiT`.
        levels: whether its noise is one of ordered levels: a U-Net then reads the states as numbers.

    Raises:
        InputError: this machine has too little memory for it.
    """
    layers = net.layers * LAYER
    numbers = torch.empty(0)  # within torch.device("meta") or FakeTensorMode there are none
    weights = 0 if numbers.is_meta or type(numbers) is not Tensor else 2 * least_parameters(net, states)
    require_memory(layers + weights, f"a network of {net}")
    if not net.is_unet:
        return DiT(net, states, time, bias, outputs, block)
    if block:
        raise InputError(
            f"`net.kind` {net.kind} reads all of an image at once, and this method block after block; use one that "
            "does not, such as mdlm"
        )
    return UNet(net, states, time, outputs, levels)


_FILLS = {"fill_", "zero_", "normal_", "uniform_", "truncated_", "copy_"}


class unfilled(TorchFunctionMode):
    """Within it, nothing that torch.nn.init or a fill in place would write into a parameter is written.

    A network that is about to be given its weights needs no random ones: at 170 million parameters these cost seconds.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, inside = getattr(func, "__name__", ""), getattr(func, "__module__", None) == "torch.nn.init"
        if inside or name in _FILLS:
            parameter = args[0] if args else (kwargs or {}).get("tensor")
            if isinstance(parameter, nn.Parameter):
                return parameter
        return func(*args, **(kwargs or {}))
