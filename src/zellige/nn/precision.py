"""Precision of a network's matrix products: float32, TF32 on a GPU, bfloat16, or int8 on a CPU (`nn.int8`).

PyTorch's float32 is not float32 everywhere: on a GPU its convolutions are in TF32 unless it is set otherwise. Here it
is set, by `float32_products` and by nothing else.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

PRECISIONS = {"float32": None, "tf32": None, "bfloat16": torch.bfloat16, "int8": None}  # None: that of the weights
_MATRICES = (nn.Linear, nn.Conv1d, nn.Conv2d)
_lock = threading.Lock()
_asked: list[list[bool]] = []  # whether TF32 is allowed, by each that is within `float32_products`
_before: list[Any] = []  # PyTorch's settings outside all of them


def lower(network: nn.Module, dtype: torch.dtype) -> None:
    """Round the weights of a network's matrix products and convolutions, in place: they then take the memory of
    `dtype`.

    Embeddings and layer norms keep theirs, and with them the sums that a residual branch is added to.
    """
    for module in network.modules():
        if isinstance(module, _MATRICES):
            module.to(dtype)


def products(device: torch.device, precision: str | None) -> contextlib.AbstractContextManager[Any]:
    """Context in which a network's matrix products have this precision; None: the caller's.

    Args:
        precision: one of PRECISIONS. "bfloat16" takes and gives bfloat16 (torch.autocast).
    """
    if precision is None:
        return contextlib.nullcontext()
    if (dtype := PRECISIONS[precision]) is not None:
        return torch.autocast(device.type, dtype=dtype)
    if device.type != "cuda" or torch.compiler.is_compiling():  # a graph has no settings: they are its caller's
        return contextlib.nullcontext()
    return float32_products(tf32=precision == "tf32")


@contextlib.contextmanager
def float32_products(tf32: bool) -> Iterator[None]:
    """Within it a GPU's float32 matrix products and convolutions are in TF32 (10 bits of mantissa, sums in float32), or
    are not.

    The setting is one of the process. The innermost of a thread counts, and of several threads the last that entered;
    what was set before comes back when all have left.
    """
    entry = [tf32]
    with _lock:
        if not _asked:
            _before[:] = [_read(setting) for setting in _SETTINGS]
        _asked.append(entry)
        _write(_values(tf32))
    try:
        yield
    finally:
        with _lock:
            _asked[:] = [request for request in _asked if request is not entry]
            _write(_values(_asked[-1][0]) if _asked else _before)


_backends: Any = torch.backends
_SETTINGS: tuple[
    tuple[Any, str], ...
] = (  # the older ones first, which PyTorch's compiler reads; they set some of the newer ones
    (torch, "float32_matmul_precision"),
    (_backends.cudnn, "allow_tf32"),
    (_backends.cuda.matmul, "fp32_precision"),
    (_backends.mkldnn.matmul, "fp32_precision"),
    (_backends.cudnn.conv, "fp32_precision"),
    (_backends.cudnn.rnn, "fp32_precision"),
)


def _values(tf32: bool) -> list[Any]:
    return ["high" if tf32 else "highest", tf32, *["tf32" if tf32 else "ieee"] * 4]


def _read(setting: tuple[Any, str]) -> Any:
    """Its value; None where PyTorch refuses to say, since the newer settings differ among themselves."""
    owner, name = setting
    try:
        return owner.get_float32_matmul_precision() if owner is torch else getattr(owner, name)
    except RuntimeError:
        return None


def _write(values: list[Any]) -> None:
    for (owner, name), value in zip(_SETTINGS, values):
        if value is None:
            continue
        if owner is torch:
            owner.set_float32_matmul_precision(value)
        else:
            setattr(owner, name, value)
