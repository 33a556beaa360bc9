"""Linear layers, whose float32 products on a CPU with AVX-512 are computed by oneDNN.

PyTorch gives float32 products to the BLAS that it was built with, which is MKL; on processors that are not Intel's MKL
keeps to AVX2. oneDNN, which PyTorch brings too, has AVX-512 everywhere: the same float32 arithmetic in another order,
2.2 times as fast on an AMD EPYC with Zen 4 cores. oneDNN makes and keeps a kernel for each number of rows, which takes
longer than a product and megabytes; so rows are filled up with zeros to a few numbers.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS = 16  # with fewer, oneDNN takes longer to lay out the weights than it gains
LEAST = 1 << 18  # multiplications from which a call of it pays
_op = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
_able = _op is not None and torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"


class Linear(nn.Linear):
    """`torch.nn.Linear` by `product`."""

    def forward(self, input: Tensor) -> Tensor:
        """(*, K) -> (*, N)."""
        return product(input, self.weight, self.bias)


def product(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """x W' + b, as `torch.nn.functional.linear`: x (*, K), W (N, K), b (N,) -> (*, N)."""
    if _able and _is_large(x, W) and _is_plain(x, W):
        return _Product.apply(x, W, b)
    return F.linear(x, W, b)


def _is_large(x: Tensor, W: Tensor) -> bool:
    return x.numel() >= ROWS * W.shape[1] and x.numel() * W.shape[0] >= LEAST


def _is_plain(x: Tensor, W: Tensor) -> bool:
    """Whether both are float32 in the memory of the CPU, and nobody traces, compiles or lowers the product."""
    return (
        x.dtype == W.dtype == torch.float32
        and x.device.type == W.device.type == "cpu"
        and type(x) is Tensor
        and type(W) in (Tensor, nn.Parameter)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def _filled(x: Tensor) -> Tensor:
    """The rows of x (*, K), with rows of zeros up to a multiple of 16, 64 or 256: (M, K)."""
    rows = x.flatten(0, -2)
    step = 16 if len(rows) <= 128 else 64 if len(rows) <= 512 else 256
    return F.pad(rows, (0, 0, 0, -len(rows) % step)) if len(rows) % step else rows


def _onednn(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    return _op(x, W, b, "none", [], "")  # pyright: ignore[reportOptionalCall]


class _Product(torch.autograd.Function):
    """y = x W' + b; dx = dy W, dW = dy' x, db = the sum of dy. Its gradients have gradients."""

    @staticmethod
    def forward(x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        return _onednn(_filled(x), W, b)[: x.shape[:-1].numel()].view(*x.shape[:-1], len(W))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, W, _ = inputs
        ctx.save_for_backward(x, W)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Tensor, int]:
        return torch.vmap(F.linear, in_dims)(*inputs), 0

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, W = ctx.saved_tensors
        wants_x, wants_W, wants_b = ctx.needs_input_grad
        return (
            product(grad, W.t()) if wants_x else None,
            product(_filled(grad).t(), _filled(x).t()) if wants_W else None,
            grad.flatten(0, -2).sum(0) if wants_b else None,
        )
