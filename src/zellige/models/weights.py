"""Weights into a module: built without being filled, checked by name, and taken as they lie, not copied.

A network that is about to be given its weights needs no random ones: at 170 million parameters these cost seconds. The tensors of
a safetensors file are a view of the file itself, so a model that takes them costs no memory until it reads them.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..base.errors import InputError

_FILLS = {"fill_", "zero_", "normal_", "uniform_", "truncated_", "copy_"}


class unfilled(TorchFunctionMode):
    """Within it, nothing that torch.nn.init or a fill in place would write into a parameter is written."""

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, inside = getattr(func, "__name__", ""), getattr(func, "__module__", None) == "torch.nn.init"
        if inside or name in _FILLS:
            parameter = args[0] if args else (kwargs or {}).get("tensor")
            if isinstance(parameter, nn.Parameter):
                return parameter
        return func(*args, **(kwargs or {}))


def listed(names: Sequence[str]) -> str:
    """` (a, b, c, ...)`, the first few of them; "" for none."""
    return f" ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})" if names else ""


def check_fit(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], what: str) -> None:
    """InputError if a tensor is missing, left over or of another shape; `what` ends the sentence: what the config says."""
    missing = [name for name in own if name not in tensors]
    over = [name for name in tensors if name not in own]
    if missing or over:
        counts = f"{len(missing)} key{'s' * (len(missing) != 1)} missing{listed(missing)}, {len(over)} unexpected{listed(over)}"
        raise InputError(f"checkpoint does not fit: {counts}; {what}")
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            have, need = (" x ".join(map(str, s)) or "a number" for s in (tensor.shape, own[name].shape))
            raise InputError(f"checkpoint does not fit: {name} is {have}, the model has {need}; {what}")


def check_finite(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """InputError if a weight is NaN or infinite, or a buffer NaN; one pass over the numbers, in no memory of its own."""
    buffers = {name for name, _ in module.named_buffers()}
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.is_meta or not tensor.numel():
            continue
        low, high = (float(x) for x in (tensor if tensor.itemsize > 1 else tensor.float()).aminmax())
        if math.isfinite(low) and math.isfinite(high):
            continue
        nan = int(tensor.isnan().sum())
        wrong = nan or (0 if name in buffers else int(tensor.isinf().sum()))
        if wrong:
            where = f"{wrong:,} of its {tensor.numel():,} numbers" if tensor.numel() > 1 else "its number"
            raise InputError(
                f"the weights are not finite: {name} has {'NaN' if nan else 'infinity'} for {where}; "
                "take an earlier checkpoint, or copy or download it again"
            )


def place(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    what: str,
    take: bool = False,
    of: Callable[[str], bool] = lambda name: True,
) -> None:
    """Put tensors into a module, all or none.

    Args:
        of: says of which of the module's names they are; the others keep their values.
        take: have the tensors themselves as the module's, where their type is its own; for a module that nobody else holds.
            A module that is not there yet (on the device "meta") has them in the type that they have.

    Raises:
        InputError: one is missing, left over, of another shape or not finite.
    """
    state = {name: tensor for name, tensor in module.state_dict().items() if of(name)}
    check_fit(state, tensors, what)
    check_finite(module, tensors)
    copies = not take or os.name == "nt"  # Windows neither moves nor removes a file that is a model's memory
    if copies and not any(tensor.is_meta for tensor in state.values()):
        module.load_state_dict(dict(tensors), strict=False)  # checked above
        return
    cast_tensors = {n: tensor if state[n].is_meta else tensor.to(state[n].dtype) for n, tensor in tensors.items()}
    module.load_state_dict(
        {n: tensor.clone() for n, tensor in cast_tensors.items()} if copies else cast_tensors, strict=False, assign=True
    )
