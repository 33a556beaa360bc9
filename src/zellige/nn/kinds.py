"""The kinds of networks that a `Net` may ask for."""

from ..errors import InputError
from .block import Net
from .transformer import DiT
from .unet import UNet


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
    """
    if not net.convolutional:
        return DiT(net, states, time, bias, outputs, block)
    if block:
        raise InputError(
            f"`net.kind` {net.kind} reads all of an image at once, and this method block after block; use one that does not, "
            "such as mdlm"
        )
    return UNet(net, states, time, outputs, levels)
