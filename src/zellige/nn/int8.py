"""Linear layers with int8 weights, for a CPU: a scale for each output, and for each row of the inputs.

    y_mn = s_m w_n (sum_k q_mk W_nk) + b_n,    q_mk = round(x_mk / s_m), s_m = max_k |x_mk| / 127; W and w alike, once

The sum is exact, in int32, and a row has its own scale: a text does not depend on the others of its batch. Embeddings,
norms, convolutions and the modulations of time and class stay as they are.
"""

import torch
from torch import Tensor, nn

from .embedding import Modulation

LARGEST = 127


class Int8Linear(nn.Module):
    """`torch.nn.Linear` with rounded weights: codes (N, K) int8, scale (N,), bias (N,) or None."""

    codes: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        codes, scale = rounded(linear.weight.detach().float())
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale[:, 0].contiguous())
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float())

    def forward(self, x: Tensor) -> Tensor:
        """(*, K) -> (*, N), in x's dtype."""
        codes, scale = rounded(x.reshape(-1, self.in_features).float())
        y = torch._int_mm(codes, self.codes.t()) * scale if len(codes) else x.new_empty(0, self.out_features)
        y = y.mul_(self.scale) if self.bias is None else torch.addcmul(self.bias, y, self.scale)
        return y.to(x.dtype).view(*x.shape[:-1], self.out_features)


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (M, K) int8 and scales (M, 1) of the rows of x: x is about codes * scales."""
    scale = (x.abs().amax(-1, keepdim=True) / LARGEST).clamp_min(torch.finfo(x.dtype).tiny)
    return (x / scale).round_().to(torch.int8), scale


def quantize(network: nn.Module) -> None:
    """Round the weights of a network's linear layers to int8, in place: they then take a quarter of the memory."""
    for module in [*network.modules()]:
        for name, part in [*module.named_children()]:
            if isinstance(part, nn.Linear) and not isinstance(part, Modulation):
                setattr(module, name, Int8Linear(part))
