"""Linear layers, whose float32 products on a CPU with AVX-512 are computed by oneDNN.

PyTorch gives float32 products to the BLAS that it was built with, which is MKL; on processors that are not Intel's MKL
keeps to AVX2. oneDNN, which PyTorch brings too, has AVX-512 everywhere: the same float32 arithmetic in another order,
2.2 times as fast on an AMD EPYC with Zen 4 cores. oneDNN makes and keeps a kernel for each number of rows, which takes
longer than a product and half a megabyte; so rows are filled up with zeros to a few numbers.

Without gradients, in evaluation mode, a layer with few rows keeps a second copy of its weights, in the layout that
oneDNN computes in (`Packs`). Then a product of one row, which is all reading of weights, is 2 times as fast, and one of
16 rows 2 to 3 times; also in bfloat16, 1.1 to 2.0 times.
"""

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base.waiting import at_hand

ROWS = 16  # with fewer, oneDNN takes longer to lay out the weights than it gains
LEAST = 1 << 18  # multiplications from which a call of it pays
PACKED_ROWS = 256  # with more, packed weights gain less than a tenth
PACKED = {torch.float32: 1 << 18, torch.bfloat16: 1 << 19}  # entries of a weight from which packing it pays
PACKED_LEAST = 1 << 20  # multiplications from which it pays for any float32 weight
_op = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
_pack = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None)
able = _op is not None and torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"
_packs = {torch.float32} if able and _pack is not None else set()
if _packs and torch.cpu._is_avx512_bf16_supported():
    _packs.add(torch.bfloat16)


class Packs(nn.Module):
    """A layer whose products read a packed copy of its weights where that is faster.

    The copy is made at the first such product, and again after the weights have changed. It takes as much memory as
    they do. It is no part of the state, of a copied module or of a pickled one, and is dropped by `train()`, `to` and
    their like.
    """

    _packed: "Packed | None" = None

    def product(self, x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
        """As the function `product`, with weights W (N, K) that are this layer's."""
        if self.training or torch.is_grad_enabled() or not _packable(x, W):
            return product(x, W, b)
        if self._packed is None or not self._packed.is_of(W):
            self._packed = Packed(W)
        return _cut(_onednn(filled(x.to(W.dtype)), self._packed.weight, b), x)

    def train(self, mode: bool = True) -> Self:
        """As of any module."""
        if mode:
            self._packed = None
        return super().train(mode)

    def _apply(self, *args: Any, **more: Any) -> Self:
        self._packed = None
        return super()._apply(*args, **more)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_packed"}


class Packed:
    """A weight W (N, K) in the layout of oneDNN, for few rows, and what tells whether W is still the same.

    Args:
        W: is not changed. A change of it that PyTorch does not count (through `.data`, or NumPy) is noticed only if it
            changes the last entries of the last row.
    """

    def __init__(self, W: Tensor):
        self.source, self.version, self.shape = W.detach(), W._version, W.shape
        self.end = self.source[-1, -ROWS:]
        self.kept_end = self.end.clone()
        assert _pack is not None
        self.weight: Tensor = _pack(self.source, ROWS)

    def is_of(self, W: Tensor) -> bool:
        """Return whether W is the tensor that it was made of, unchanged."""
        return (
            W.data_ptr() == self.source.data_ptr()
            and W._version == self.version
            and W.shape == self.shape
            and torch.equal(self.end, self.kept_end)
        )


class Linear(Packs, nn.Linear):
    """`torch.nn.Linear` by `product`."""

    def forward(self, input: Tensor) -> Tensor:
        """(*, K) -> (*, N)."""
        return self.product(input, self.weight, self.bias)


def product(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """x W' + b, as `torch.nn.functional.linear`: x (*, K), W (N, K), b (N,) -> (*, N)."""
    if able and _is_plain(x, W) and _is_large(x, W):  # first what makes no size a guard of a graph
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


def _packable(x: Tensor, W: Tensor) -> bool:
    """Whether a product with packed weights is faster, and computes what it would compute otherwise."""
    entries, dtype = W.numel(), W.dtype
    return (
        dtype in _packs
        and x.device.type == W.device.type == "cpu"
        and at_hand(W)  # `Packed.is_of` reads it
        and (entries >= PACKED[dtype] or (dtype == torch.float32 and x.numel() * W.shape[0] >= PACKED_LEAST))
        and 0 < x.numel() <= PACKED_ROWS * W.shape[1]
        and dtype == (torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype)
        and type(x) is Tensor
        and type(W) in (Tensor, nn.Parameter)
        and not W.is_inference()
    )


def filled(x: Tensor) -> Tensor:
    """The rows of x (*, K), with rows of zeros up to one of few numbers: (M, K)."""
    rows = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
    M = rows.shape[0]
    step = 1 if M <= 4 else 4 if M <= 16 else 16 if M <= 128 else 64 if M <= 512 else 256
    return F.pad(rows, (0, 0, 0, -M % step)) if M % step else rows


def _cut(y: Tensor, x: Tensor) -> Tensor:
    """The rows of y (M, N) that are those of x (*, K): (*, N)."""
    rows, (M, N) = x.shape[:-1], y.shape
    return (y if rows.numel() == M else y[: rows.numel()]).view(*rows, N)


def _onednn(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    return _op(x, W, b, "none", [], "")  # pyright: ignore[reportOptionalCall]


class _Product(torch.autograd.Function):
    """y = x W' + b; dx = dy W, dW = dy' x, db = the sum of dy. Its gradients have gradients."""

    @staticmethod
    def forward(x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        return _cut(_onednn(filled(x), W, b), x)

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
            product(filled(grad).t(), filled(x).t()) if wants_W else None,
            grad.flatten(0, -2).sum(0) if wants_b else None,
        )
