"""A function of the logits of chosen positions, in chunks of positions, its gradients made in the forward pass.

What a loss needs of the logits is often one number for each position. Where there are many positions and states, the
logits (N, K) and everything computed from them are the memory of a training step; here only some rows exist at a time.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

CHUNK = 128  # positions at one time, or more if they have few states
CHUNK_GPU = 1024
LARGE = 1 << 20  # N * K from which the positions are taken in chunks, of an eighth of it


def each_position(
    head: Callable[[Tensor], Tensor],
    h: Tensor,
    states: int,
    f: Callable[[Tensor, Any], Tensor],
    more: Iterable[nn.Parameter] = (),
) -> Tensor:
    """f(head(h)), (N,): hidden states h (N, D), f(logits (n, K), which) -> (n,) for the positions `which` of the N.

    The logits that f gets are float32 at least.

    Compiled, `which` is a tensor of positions, and the chunks are a scan.

    f must treat positions independently; what else it differentiates (a learnt schedule) is named in `more`. A head
    that is no module, or a small N * K, is computed in one piece.
    """
    if not isinstance(head, nn.Module) or len(h) * states < LARGE:
        return f(_logits(head, h), slice(0, len(h)))
    size = max(CHUNK if h.device.type == "cpu" else CHUNK_GPU, LARGE // (8 * states))
    parts = [slice(i, min(i + size, len(h))) for i in range(0, len(h), size)]
    more = [p for p in more if p.requires_grad]
    if torch.compiler.is_compiling():
        if not more and _scan() is not None:
            return _scanned(head, h, f, size)

        # `f` closes over what is learnt: the compiler differentiates, chunk after chunk, and makes logits again
        # backwards
        def run(span: slice) -> Tensor:
            return checkpoint(lambda here: f(_logits(head, here), span), h[span], use_reentrant=False)

        return torch.cat([run(span) for span in parts])
    parameters = [p for p in dict.fromkeys((*head.parameters(), *more)) if p.requires_grad]
    if not torch.is_grad_enabled():
        return torch.cat([f(_logits(head, h[span]), span) for span in parts])
    return _Chunks.apply(head, f, parts, h, *parameters)


class _Chunks(torch.autograd.Function):
    """value_n = f(head(h_n)); the gradients of their sum are made at once,
    and serve if the incoming gradient is one number."""

    @staticmethod
    def forward(ctx, head, f, parts, h, *parameters):
        kind = h.device.type
        low = {"enabled": torch.is_autocast_enabled(kind), "dtype": torch.get_autocast_dtype(kind)}

        def run(weight):
            with torch.autocast(kind, **low):
                return _sweep(head, f, parts, h.detach(), parameters, weight, ctx.needs_input_grad[3])

        ctx.run = run
        value, ctx.gradients = run(None)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is not None and (grad == grad[:1]).all():  # a sum or a mean
            gradients = [None if g is None else g.mul_(grad[0].to(g)) for g in gradients]
        else:
            gradients = ctx.run(grad)[1]
        return None, None, None, *gradients


def _sweep(head, f, parts, h, parameters, weight, with_h):
    """The values (N,), and the gradients of their sum (weighted) for h and the parameters."""
    values, dh = [], torch.empty_like(h) if with_h else None
    total = [torch.zeros_like(p) for p in parameters]
    for span in parts:
        with torch.enable_grad():
            h_span = h[span].requires_grad_(with_h)
            value = f(_logits(head, h_span), span)
            whole = value.sum() if weight is None else (value * weight[span]).sum()
        inputs = [*([h_span] if with_h else []), *parameters]
        gradients = (
            list(torch.autograd.grad(whole, inputs, allow_unused=True)) if whole.requires_grad else [None] * len(inputs)
        )
        if dh is not None:
            g = gradients.pop(0)
            dh[span] = 0.0 if g is None else g
        for sum_, g in zip(total, gradients):
            if g is not None:
                sum_.add_(g)
        values.append(value.detach())
    return torch.cat(values), [dh, *total]


# ---------------------------------------------------------------------------------- in a compiled graph
def _scan() -> Any:
    """PyTorch's loop that is one node of a graph; None where there is none under this name,
    since it is not public yet."""
    return getattr(getattr(torch, "_higher_order_ops", None), "scan", None)


def _scanned(head: nn.Module, h: Tensor, f: Callable[..., Tensor], size: int) -> Tensor:
    """The values (N,), by a loop that is one node of the graph, and one of its backward pass."""
    kind = h.device.type
    low = {"enabled": torch.is_autocast_enabled(kind), "dtype": torch.get_autocast_dtype(kind)}
    names, parameters = zip(*head.named_parameters())

    def value(parameters: tuple[Tensor, ...], h_chunk: Tensor, index: Tensor) -> Tensor:
        with torch.autocast(kind, **low):
            return f(_logits(partial(functional_call, head, dict(zip(names, parameters))), h_chunk), index)

    whole = F.pad(h, (0, 0, 0, -len(h) % size)).unflatten(0, (-1, size))  # (chunks, size, D)
    index = torch.arange(whole.shape[0] * size, device=h.device).clamp_max(len(h) - 1).view(-1, size)
    return _Scan.apply(value, index, whole, *parameters).flatten()[: len(h)]


@torch.library.custom_op("zellige::added", mutates_args=())
def _added(total: Tensor, more: Tensor) -> Tensor:
    """The sum of a loop, in memory of its own.

    PyTorch 2.13's Inductor writes a plain sum over the zeros that the loop began with, takes those for free behind it,
    and puts there what has the same size, such as the gradient of an embedding: the head's gradient is lost, and
    nothing says so.
    """
    return total + more


@_added.register_fake
def _(total, more):
    return torch.empty_like(total)


class _Scan(torch.autograd.Function):
    """value(parameters, h, which), (chunks, size), chunk after chunk; the backward pass makes each chunk's logits
    again.

    PyTorch's own gradient of a scan would keep them, for all chunks.
    """

    @staticmethod
    def forward(ctx, value, index, h, *parameters):
        ctx.save_for_backward(index, h, *parameters)
        ctx.value = value

        def chunk(carry, x):
            return carry.clone(), value(parameters, *x)

        return _scan()(chunk, h.new_zeros(()), (h, index))[1]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        index, h, *parameters = ctx.saved_tensors

        def chunk(total, x):
            h_chunk, i, g = x
            gradients, dh = torch.func.vjp(lambda p, y: ctx.value(p, y, i), tuple(parameters), h_chunk)[1](g)
            return tuple(_added(a, b.to(a)) for a, b in zip(total, gradients)), dh

        total, dh = _scan()(chunk, tuple(torch.zeros_like(p) for p in parameters), (h, index, grad))
        return None, None, dh, *total


def _logits(head: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
    logits = head(h)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
