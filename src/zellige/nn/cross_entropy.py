"""The cross-entropy of chosen positions, without ever holding their logits all at once.

At 50,000 states the head and the softmax are four fifths of a training step and most of its memory. Three things make
them cheap: only the positions that are read come here; the rows are taken in chunks whose logits stay in cache; and the
gradients are made in the forward pass, while the logits are still there, so that nothing of size (N, K) is kept.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .linear import product

# rows whose softmax is taken at one time, or more if they have few states; two to four chunks exist together
CHUNK = 128
# of a chunk's logits, if that is more: what fits a cache, what a kernel's launch is worth
ENTRIES, ENTRIES_GPU = 1 << 20, 1 << 26
LARGE = 1 << 22  # N * K from which the logits are taken in chunks


def cross_entropy(
    network: Any,
    h: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    exclude: int | None = None,
) -> Tensor:
    """weight * -log softmax(head(h))[target], (N,) nats in float32 (float64 if `h` is).

    h (N, D) hidden states, target (N,) states, weight (N,). The state `exclude` has probability 0: its column of the
    head does not take part (the mask, which is never a prediction).
    """
    head = network.head
    if isinstance(head, nn.Linear) and (len(h) * head.out_features >= LARGE or _wider(h, head.weight)):
        return chunked(h, head.weight, head.bias, target, weight, exclude)
    logits = head(h)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if exclude is not None:
        out = torch.arange(logits.shape[-1], device=logits.device) == exclude
        logits = logits.masked_fill(out, -torch.inf)
    nll = F.cross_entropy(logits, target, reduction="none")
    return nll if weight is None else weight * nll


def _wider(h: Tensor, W: Tensor) -> bool:
    """Whether the head's weights are of a lower precision than its inputs."""
    return torch.promote_types(h.dtype, W.dtype) != W.dtype


def chunked(
    h: Tensor, W: Tensor, b: Tensor | None, target: Tensor, weight: Tensor | None = None, exclude: int | None = None
) -> Tensor:
    """`cross_entropy` for the head h W' + b, W (K, D), b (K,) or None, in chunks of rows."""
    kind, compute = h.device.type, torch.promote_types(h.dtype, W.dtype)
    if torch.is_autocast_enabled(kind):
        compute = torch.get_autocast_dtype(kind)
    if torch.compiler.is_compiling():
        weights = torch.ones(len(h), dtype=torch.float32, device=h.device) if weight is None else weight
        nll = _whole(h, W, b, target, weights, -1 if exclude is None else exclude, compute, torch.is_grad_enabled())[0]
        return nll if weight is None else nll * weight
    if torch.is_grad_enabled():
        return _Chunked.apply(h, W, b, target, weight, exclude, compute)
    with torch.autocast(kind, enabled=False):
        nll = _sweep(h, W, b, target, None, exclude, compute, (False, False, False))[0]
    return nll if weight is None else nll * weight


class _Chunked(torch.autograd.Function):
    """Rows n, states k: nll_n = w_n (lse_n - z_{n, target}); d nll_n / d z_nk = w_n (softmax_nk - [k = target_n])."""

    @staticmethod
    def forward(ctx, h, W, b, target, weight, exclude, compute):
        ctx.exclude, ctx.compute = exclude, compute
        with torch.autocast(h.device.type, enabled=False):
            nll, *ctx.gradients = _sweep(h, W, b, target, weight, exclude, compute, ctx.needs_input_grad[:3])
        ctx.save_for_backward(h, W, b, target, weight, nll)
        return nll if weight is None else nll * weight

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        h, W, b, target, weight, nll = ctx.saved_tensors
        gradients, ctx.gradients = (
            ctx.gradients,
            None,
        )  # scaled in place and given away; a second backward makes them anew
        if gradients is not None and (grad == grad[:1]).all():  # a sum or a mean: one number for all rows
            gradients = [None if g is None else g.mul_(grad[0]) if len(grad) else g for g in gradients]
        else:
            row = grad if weight is None else grad * weight
            with torch.autocast(h.device.type, enabled=False):
                _, *gradients = _sweep(h, W, b, target, row, ctx.exclude, ctx.compute, ctx.needs_input_grad[:3])
        dh, dW, db = (None if g is None else g.to(p.dtype) for g, p in zip(gradients, (h, W, b)))
        return dh, dW, db, None, (grad * nll if ctx.needs_input_grad[4] else None), None, None


# ---------------------------------------------------------------------------------- one node of a compiled graph
@torch.library.custom_op("zellige::cross_entropy", mutates_args=())
def _whole(
    h: Tensor,
    W: Tensor,
    b: Tensor | None,
    target: Tensor,
    weight: Tensor,
    exclude: int,
    compute: torch.dtype,
    gradients: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`_sweep` as torch.compile takes it: nll (N,), and the gradients of sum(weight * nll) for h, W and b,
    or nothing."""
    with torch.autocast(h.device.type, enabled=False):
        flags = (gradients, gradients, gradients)
        nll, *results = _sweep(h, W, b, target, weight, None if exclude < 0 else exclude, compute, flags)
    dh, dW, db = (nll.new_empty(0) if g is None else g for g in results)
    return nll, dh, dW, db


@_whole.register_fake
def _(h, W, b, target, weight, exclude, compute, gradients):
    full = torch.promote_types(compute, torch.float32)
    shapes = [p.shape if gradients and p is not None else (0,) for p in (h, W, b)]
    return h.new_empty(len(h), dtype=full), *(h.new_empty(shape, dtype=full) for shape in shapes)


def _save(ctx, inputs, output):
    h, W, b, _, weight, *_ = inputs
    ctx.save_for_backward(weight, *output[1:])
    ctx.dtypes = h.dtype, W.dtype, None if b is None else b.dtype


def _gradients(ctx, grad, *_):
    """Gradients that `_whole` made, for a sum or a mean of weighted rows: each row's `grad` is g times its weight, with
    one number g for all, by which they are multiplied."""
    weight, *values = ctx.saved_tensors
    size = (weight * weight).sum()
    g = (grad * weight).sum() / torch.where(size > 0, size, 1.0)
    alike = (grad - g * weight).abs().amax() <= 1e-4 * (g * weight).abs().amax()
    torch._assert_async(alike, "the rows of a compiled cross-entropy are weighed once: by `weight`")
    dh, dW, db = (None if dtype is None else (g * m).to(dtype) for m, dtype in zip(values, ctx.dtypes))
    return dh, dW, db, None, None, None, None, None


_whole.register_autograd(_gradients, setup_context=_save)


def chunk_rows(states: int, device: torch.device) -> int:
    """Number of positions with this many states whose softmax is taken at one time."""
    return max(CHUNK, (ENTRIES if device.type == "cpu" else ENTRIES_GPU) // states)


def _sweep(h, W, b, target, weight, exclude, compute, needed):
    """nll (N,), unweighted, and the gradients of sum(weight * nll) for h, W, b where `needed`, else None.

    With p the softmax and y the one-hot target, G = p - y: dh = w (G W), dW = G' (w h), db = G' w.
    """
    N, K = len(h), len(W)
    full = torch.promote_types(compute, torch.float32)
    low = compute != full
    empty = torch.empty if N else torch.zeros
    nll = torch.empty(N, dtype=full, device=h.device)
    dh = torch.empty_like(h, dtype=full) if needed[0] else None
    dW = empty(W.shape, dtype=full, device=h.device) if needed[1] else None
    db = torch.zeros_like(b, dtype=full) if needed[2] and b is not None else None
    w = torch.ones_like(nll) if weight is None else weight.to(full)
    h_, wh, W_ = h.to(compute), (w[:, None] * h).to(compute), W.to(compute)
    rows = chunk_rows(K, h.device)
    group = 4 * rows if low else 2 * rows  # dW is read and written once a group (in bfloat16 also rounded: so fewer)
    scratch = torch.empty(min(N, rows) if low else 0, K, dtype=full, device=h.device)
    of_group = torch.empty(W.shape if low and needed[1] else 0, dtype=compute, device=h.device)
    for start in range(0, N, group):
        i = slice(start, min(start + group, N))
        G = product(h_[i], W_, None if b is None else b.to(compute))
        if exclude is not None:
            G[:, exclude] = -torch.inf
        for rows_, j in zip(G.split(rows), range(start, i.stop, rows)):
            j = slice(j, j + len(rows_))
            p = scratch[: len(rows_)].copy_(rows_) if low else rows_
            top, z_target = p.amax(-1), p.gather(1, target[j, None])[:, 0]
            torch.softmax(p, -1, out=p)
            nll[j] = top - p.amax(-1).log() - z_target  # the largest p is 1 / sum exp(z - top)
            if not any(needed):
                continue
            p.scatter_add_(1, target[j, None], -torch.ones_like(p[:, :1]))
            if db is not None:
                db.addmv_(p.T, w[j])
            if low:
                rows_.copy_(p)
        if dh is not None:
            dh[i] = product(G, W_.T) * w[i, None]
        if dW is not None and not low:
            dW.addmm_(G.T, wh[i], beta=1 if start else 0)
        elif dW is not None:
            torch.mm(G.T, wh[i], out=of_group)
            dW.add_(of_group) if start else dW.copy_(of_group)
    return nll, dh, dW, db
