"""A function of the logits of chosen positions, in chunks of positions, its gradients made in the forward pass.

What a loss needs of the logits is often one number for each position. Where there are many positions and states, the logits
(N, K) and everything computed from them are the memory of a training step; here only some rows exist at a time.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

CHUNK = 128  # positions at one time, or more if they have few states
CHUNK_GPU = 1024
LARGE = 1 << 20  # N * K from which the positions are taken in chunks, of an eighth of it


def each_position(
    head: Any, h: Tensor, states: int, f: Callable[[Tensor, slice], Tensor], more: Iterable[nn.Parameter] = ()
) -> Tensor:
    """f(head(h)), (N,): hidden states h (N, D), f(logits (n, K), which) -> (n,) for the positions `which` of the N.

    The logits that f gets are float32 at least.

    f must treat positions independently; what else it differentiates (a learnt schedule) is named in `more`. A head that is
    no module, or a small N * K, is computed in one piece.
    """
    if not isinstance(head, nn.Module) or len(h) * states < LARGE:
        return f(_logits(head, h), slice(0, len(h)))
    size = max(CHUNK if h.device.type == "cpu" else CHUNK_GPU, LARGE // (8 * states))
    parts = [slice(i, min(i + size, len(h))) for i in range(0, len(h), size)]
    if (
        torch.compiler.is_compiling()
    ):  # the compiler differentiates; a chunk's logits are made again in the backward pass
        run = lambda part: checkpoint(lambda here: f(_logits(head, here), part), h[part], use_reentrant=False)  # noqa: E731
        return torch.cat([run(part) for part in parts])
    parameters = [p for p in dict.fromkeys((*head.parameters(), *more)) if p.requires_grad]
    if not torch.is_grad_enabled():
        return torch.cat([f(_logits(head, h[part]), part) for part in parts])
    return _Chunks.apply(head, f, parts, h, *parameters)


class _Chunks(torch.autograd.Function):
    """value_n = f(head(h_n)); the gradients of their sum are made at once, and serve if the incoming gradient is one number."""

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
        made, ctx.gradients = ctx.gradients, None
        if made is not None and (grad == grad[:1]).all():  # a sum or a mean
            made = [None if g is None else g.mul_(grad[0].to(g)) for g in made]
        else:
            made = ctx.run(grad)[1]
        return None, None, None, *made


def _sweep(head, f, parts, h, parameters, weight, with_h):
    """The values (N,), and the gradients of their sum (weighted) for h and the parameters."""
    values, dh = [], torch.empty_like(h) if with_h else None
    total = [torch.zeros_like(p) for p in parameters]
    for part in parts:
        with torch.enable_grad():
            here = h[part].requires_grad_(with_h)
            value = f(_logits(head, here), part)
            whole = value.sum() if weight is None else (value * weight[part]).sum()
        inputs = [*([here] if with_h else []), *parameters]
        made = (
            list(torch.autograd.grad(whole, inputs, allow_unused=True)) if whole.requires_grad else [None] * len(inputs)
        )
        if dh is not None:
            g = made.pop(0)
            dh[part] = 0.0 if g is None else g
        for sum_, g in zip(total, made):
            if g is not None:
                sum_.add_(g)
        values.append(value.detach())
    return torch.cat(values), [dh, *total]


def _logits(head: Any, h: Tensor) -> Tensor:
    logits = head(h)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
