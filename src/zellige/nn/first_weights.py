"""The first weights of a U-Net, as the authors of each kind have them.

unet        D3PM's: variance 1 / inputs, truncated at two standard deviations; residual branches end with zeros
rescale     tauLDR's: PyTorch's own, uniform; queries, keys, values and shortcuts with a tenth of Glorot's variance
flat-unet, u-vit    MD4's: as D3PM's, but attention ends as any layer; conditioning shifts and scales nothing at first
"""

import math

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

from .block import Net

ZERO = {  # what ends a residual branch, or says what shifts and scales, in each kind
    "unet": ("conv2.weight", "attention.out.weight"),
    "flat-unet": ("conv2.weight", "shift.weight"),
    "u-vit": ("conv2.weight", "modulation.weight", "pixels.weight"),
}
CUT = 0.87962566103423978  # the standard deviation of a normal distribution cut at 2


def first_weights(network: nn.Module, net: Net) -> None:
    """Fill the parameters of a `UNet`; the head is zero."""
    fill = _torch_default if net.rescale else _lecun
    for name, p in network.named_parameters():
        if name.startswith("head") or (not net.rescale and name.endswith(ZERO[net.kind])):
            nn.init.zeros_(p)
        elif name.endswith("places"):
            _sines(p, net)
        elif name.endswith("embedding.weight"):
            nn.init.normal_(p, std=1.0 if net.kind == "unet" else p.shape[1] ** -0.5)
        elif p.ndim > 1:
            fill(name, p)
        else:
            nn.init.constant_(p, float("norm" in name and name.endswith("weight")))
    if net.rescale:
        for module in network.modules():
            if isinstance(module, nn.Conv2d) and module.kernel_size != (1, 1) and module.bias is not None:
                nn.init.uniform_(module.bias, *_within(module.weight[0].numel() ** -0.5))


def _lecun(name: str, p: Tensor) -> None:
    std = p[0].numel() ** -0.5 / CUT
    truncated_(p, std)


def truncated_(p: Tensor, std: float) -> Tensor:
    """Fill from a normal distribution cut at two deviations, unless `network.unfilled` leaves it (torch's own it does
    not see)."""
    if has_torch_function_unary(p):
        return handle_torch_function(truncated_, (p,), p, std)
    return nn.init.trunc_normal_(p, std=std, a=-2 * std, b=2 * std)


def _torch_default(name: str, p: Tensor) -> None:
    scale = {"qkv.weight": 0.1, "shortcut.weight": 0.1, "attention.out.weight": 1e-10}
    for end, share in scale.items():
        if name.endswith(end):
            width = p.shape[1] if end == "qkv.weight" else (p.shape[0] + p.shape[1]) / 2
            nn.init.uniform_(p, *_within(math.sqrt(3 * share / width)))
            return
    nn.init.uniform_(p, *_within(p[0].numel() ** -0.5))


def _within(bound: float) -> tuple[float, float]:
    return -bound, bound


@torch.no_grad()
def _sines(p: Tensor, net: Net) -> None:
    """Positions of patches line by line, (height x width, D): sines and cosines of the column, then of the line."""
    width = (net.grid[1] + 1) // 2
    position, D = torch.arange(len(p), dtype=torch.float64), p.shape[1]
    quarter = torch.arange(D // 4, dtype=torch.float64)
    angles = [axis[:, None] * 1e-4 ** (quarter / max(D / 4, 1)) for axis in (position % width, position // width)]
    table = torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], 1)
    nn.init.zeros_(p)
    p[:, : table.shape[1]].copy_(table.to(p))
