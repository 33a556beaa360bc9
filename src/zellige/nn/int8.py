"""Linear layers with int8 weights, for a CPU: a scale for each output, and for each row of the inputs.

    y_mn = s_m w_n (sum_k q_mk W_nk) + b_n,    q_mk = round(x_mk / s_m), s_m = max_k |x_mk| / 127; W and w alike, once

The sum is exact, in int32, and a row has its own scale: a text does not depend on the others of its batch. Embeddings,
norms, convolutions, and the layers that time and class pass through before a block stay as they are. Rounded layers are
not trained. Their names in a state and in a file are `codes`, `scale` and `bias`.

On a CPU with VNNI oneDNN multiplies the codes of wide layers, and they are kept in its layout alone: for 2 to 16 rows
that is 1.3 to 2.4 times as fast as `torch._int_mm`, and for others as fast.
"""

from typing import Any, Self

import torch
from torch import Tensor, nn

from ..base.errors import InputError
from . import linear
from .embedding import Modulation, TimeEmbedding

LARGEST = 127
PACKED = 1 << 19  # codes of a layer from which oneDNN is faster
_product: Any = getattr(torch.ops.onednn, "qlinear_pointwise", None)
_able = linear.able and torch.cpu._is_vnni_supported() and _product is not None
_ZERO = 128  # code of 0 where those of the inputs are not negative, as oneDNN multiplies them


class Codes:
    """Codes W (N, K) int8 of the weights of a layer, in the layout of oneDNN where that is faster."""

    def __init__(self, codes: Tensor):
        self.packed = _able and codes.numel() >= PACKED and not codes.is_meta
        self.zeros = torch.zeros(len(codes), dtype=torch.int32)
        self.codes = torch.ops.onednn.qlinear_prepack(codes, (linear.ROWS, codes.shape[1])) if self.packed else codes

    def dense(self) -> Tensor:
        """The codes (N, K)."""
        return self.codes.to_dense().t().contiguous() if self.packed else self.codes

    def __reduce__(self) -> tuple[Any, ...]:
        return Codes, (self.dense(),)

    def product(self, x: Tensor, w: Tensor) -> Tensor:
        """s_m w_n sum_k q_mk W_nk: x (M, K) float32, w (N,) -> (M, N) float32."""
        if not len(x):
            return w.new_empty(0, len(w))
        q, scale = rounded(x)
        if not self.packed:
            return (torch._int_mm(q, self.codes.t()) * scale).mul_(w)
        rows = linear.filled(q.view(torch.uint8) ^ _ZERO)  # adds 128
        how = (None, 1.0, 0, torch.float32, "none", [], "")
        y = _product(rows, 1.0, _ZERO, self.codes, w, self.zeros, *how)
        return (y if len(y) == len(q) else y[: len(q)]).mul_(scale)


class Int8Linear(nn.Module):
    """`torch.nn.Linear` with rounded weights: codes, scale (N,), bias (N,) or None."""

    scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear, values: bool = True):
        super().__init__()
        self.in_features, self.out_features, self.training = linear.in_features, linear.out_features, False
        self.parameter_count = sum(p.numel() for p in linear.parameters())  # a tied head has none of its own
        device = linear.weight.device if values else torch.device("meta")
        codes, scale = rounded(linear.weight.detach().to(device).float().contiguous())
        self.codes = Codes(codes)
        self.register_buffer("scale", scale[:, 0].contiguous())
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().to(device).float())

    def forward(self, x: Tensor) -> Tensor:
        """(*, K) -> (*, N), in x's dtype."""
        y = self.codes.product(x.reshape(-1, self.in_features).float(), self.scale)
        y = y if self.bias is None else y.add_(self.bias)
        return y.to(x.dtype).view(*x.shape[:-1], self.out_features)

    def train(self, mode: bool = True) -> Self:
        """As of any module. InputError: rounded weights are not trained."""
        if mode:
            raise InputError("weights rounded to int8 are not trained; use the model they were rounded from")
        return super().train(mode)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}codes"] = self.codes.dense()

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, metadata: Any, strict: bool, missing: list[str], *more: Any
    ) -> None:
        name = f"{prefix}codes"
        others = {key: tensor for key, tensor in state_dict.items() if key != name}
        super()._load_from_state_dict(others, prefix, metadata, strict, missing, *more)
        if name in state_dict:
            self.codes = Codes(state_dict[name].to(torch.int8))
        else:
            missing.append(name)


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (M, K) int8 and scales (M, 1) of the rows of x: x is about codes * scales."""
    scale = x.abs().amax(-1, keepdim=True).div_(LARGEST).clamp_min_(torch.finfo(x.dtype).tiny)
    return (x / scale).round_().to(torch.int8), scale


def quantize(network: nn.Module, values: bool = True) -> None:
    """Round the weights of a network's linear layers to int8, in place: they then take a quarter of the memory.

    Args:
        values: False leaves the rounded layers without numbers, on the device "meta": a state is loaded into them.
    """
    for name, part in [*network.named_children()]:
        if isinstance(part, nn.Linear) and not isinstance(part, Modulation):
            setattr(network, name, Int8Linear(part, values))
        elif not isinstance(part, TimeEmbedding):
            quantize(part, values)


def is_quantized(module: nn.Module) -> bool:
    """Return whether linear layers of a module are rounded to int8."""
    return any(isinstance(part, Int8Linear) for part in module.modules())


def count_weights(module: nn.Module) -> int:
    """Return the number of weights of a module, those that are rounded to int8 among them."""
    rounded_weights = sum(part.parameter_count for part in module.modules() if isinstance(part, Int8Linear))
    return sum(p.numel() for p in module.parameters()) + rounded_weights
