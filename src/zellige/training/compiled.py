"""A compiled training step, and whether its gradient is that of the plain step.

PyTorch's compiler has compiled two of our steps wrongly, without a message: the loss was right, and layers got a
gradient of 0 or a false one. So a training compares both gradients in its first steps. At the start many layers have a
gradient of 0, because the layers after them begin at 0; hence more than one step.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ..base.errors import InputError
from ..core.batch import Batch
from ..core.random import Randomness
from ..methods.method import Method
from ..nn.compiler import compiled
from ..show.numbers import counted

CHECKED = (0, 10, 100, 1000)  # steps since the start or the resumption
APART = 0.5  # of a weight's gradient: rounding in bfloat16 moves it by some percent, a fault by all of it or more
LARGE = 0.01  # of the norm of the whole gradient: a smaller gradient may be rounding itself


def compile_step(
    method: Method, backend: str | Callable[..., Any] = "inductor"
) -> Callable[[Batch, Randomness], Tensor]:
    """The loss of a step, compiled whole, with the dropout of the step that is not: torch's own kernels draw it.

    It raises InputError where PyTorch cannot compile it.
    """
    options: Any = {"fallback_random": True} if backend == "inductor" else None
    compiled_loss = compiled(_loss, dynamic=False, backend=backend, options=options)
    return lambda batch, randomness: compiled_loss(method.for_step(randomness), batch, randomness)


def _loss(method: Method, batch: Batch, randomness: Randomness) -> Tensor:
    return method.loss(batch, randomness)


def check_gradient(
    plain: Callable[..., Tensor],
    compiled: Callable[..., Tensor],
    batch: Batch,
    seed: Callable[[], Randomness],
    named: Iterable[tuple[str, torch.nn.Parameter]],
) -> None:
    """Compare the gradients of two losses for the weights (trained parameters of two dimensions or more); changes no
    `.grad`.

    Args:
        seed: returns the randomness of the step, the same each time.

    Raises:
        InputError: a weight's gradients differ by more than rounding explains.
    """
    weights = {name: p for name, p in named if p.requires_grad and p.ndim > 1}
    plain_gradients, compiled_gradients = (_gradients(loss, batch, seed, weights) for loss in (plain, compiled))
    norms = {name: float(g.norm()) for name, g in plain_gradients.items()}
    least = LARGE * sum(norm**2 for norm in norms.values()) ** 0.5
    apart = {
        name: float((compiled_gradients[name] - g).norm()) / norms[name]
        for name, g in plain_gradients.items()
        if norms[name] > least
    }
    wrong = [name for name, distance in apart.items() if not distance <= APART]  # of a gradient with NaN, too
    if wrong:
        raise InputError(
            f"the compiled step has a wrong gradient of {counted(len(wrong), 'weight')}: that of {wrong[0]} is "
            f"{apart[wrong[0]]:.0%} away from the plain step's. PyTorch {torch.__version__} compiles this model "
            "wrongly on this device; leave out `compile`, or take another version"
        )


def _gradients(
    loss: Callable[..., Tensor], batch: Batch, seed: Callable[[], Randomness], weights: dict[str, torch.nn.Parameter]
) -> dict[str, Tensor]:
    torch.clear_autocast_cache()  # it holds weights in bfloat16, with the graph that made them, which is used up here
    found = torch.autograd.grad(loss(batch, seed()).sum(), [*weights.values()], allow_unused=True)
    torch.clear_autocast_cache()
    return {name: torch.zeros_like(p) if g is None else g.float() for (name, p), g in zip(weights.items(), found)}
