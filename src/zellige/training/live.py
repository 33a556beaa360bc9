"""How many bytes tensors hold while code runs, counted exactly; and code that runs on tensors without numbers.

`tracemalloc` does not see what torch holds, and the memory of a process has an allocator's leftovers in it. Here every storage is
counted from the operation that makes it to its end.
"""

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakTensorKeyDictionary

aten = torch.ops.aten
_BY_INDEX = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}

_SAME = {
    aten.view.default, aten._unsafe_view.default, aten.alias.default, aten.unsqueeze.default, aten.select.int,
    aten.unbind.int,
}  # fmt: skip
_FREE = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh", "promote_types",
    "scalar_tensor", "_local_scalar_dense",
}  # fmt: skip


class Live(TorchDispatchMode):
    """Counts the bytes of the storages that are made within it.

    Attributes:
        now: bytes that are held.
        gradients: of these, the gradients of the parameters given to `watch`.
        peak: the most of the others that were held at one time.
    """

    def __init__(self):
        super().__init__()
        self.now = self.gradients = self.peak = 0
        self.storages: dict[int, int] = {}  # bytes of each

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = self.run(func, args, kwargs or {})
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self._count(tensor)
        return out

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.storages:
            self.storages[key] = size = storage.nbytes()
            self.now += size
            self.peak = max(self.peak, self.now - self.gradients)
            weakref.finalize(storage, self._free, key)

    def _free(self, key: int) -> None:
        self.now -= self.storages.pop(key)

    def watch(self, module: nn.Module) -> None:
        """Count the gradients of a module's parameters apart, from when each is whole."""

        def whole(parameter: Tensor) -> None:
            if id(parameter) not in seen and parameter.grad is not None:
                seen.add(id(parameter))
                self.gradients += parameter.grad.untyped_storage().nbytes()

        seen: set[int] = set()
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(whole)


class Numberless(Live):
    """`Live` for tensors without numbers, of which whatever depends on numbers is answered as it is in a run.

    A mask is True at a `share` of its places; what must hold of all holds, and what may hold of any does not, or once.
    There are `rows` distinct values, as of the times of a batch; where they stand in order, one for each `length` entries.

    Attributes:
        launches: how many of the operations compute; on a GPU each is a kernel, or several.
        products: how many of these are products of matrices, convolutions or attention, which no compiler joins to another.
    """

    def __init__(self, share: float, rows: int = 1, length: int = 1):
        super().__init__()
        self.share, self.rows, self.length = share, rows, length
        self.launches = self.products = 0
        self.known = WeakTensorKeyDictionary()  # tensors whose entries have one value: what `any` gave, counts

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        self.launches += func.namespace == "aten" and not func.is_view and func._opname not in _FREE
        self.products += func.overloadpacket in flop_registry
        if func is aten.nonzero.default:
            return torch.stack(self._places(args[0]), 1)
        if func is aten._unique2.default:
            return self._unique(args[0], self.rows)
        if func is aten.unique_consecutive.default:
            return self._unique(args[0], args[0].numel() // self.length)
        if func is aten.equal.default:
            return True
        if func is aten._local_scalar_dense.default:
            (x,) = args
            return self.known.get(x, True if x.dtype is torch.bool else 1.0 if x.is_floating_point() else 1)
        if func in _BY_INDEX:
            masks = [[i] if i is None or i.dtype is not torch.bool else self._places(i) for i in args[1]]
            args = (args[0], [i for each in masks for i in each], *args[2:])
        out = func(*args, **kwargs)
        if func.overloadpacket is aten.any:
            self.known[out] = False
        elif func in _SAME and args[0] in self.known:
            for view in out if isinstance(out, (tuple, list)) else (out,):
                self.known[view] = self.known[args[0]]
        return out

    def _places(self, mask: Tensor) -> list[Tensor]:
        n = 1 if self.known.get(mask, True) is False else max(1, round(mask.numel() * self.share))
        return [mask.new_empty((n,), dtype=torch.long) for _ in range(mask.ndim)]

    def _unique(self, x: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """At most so many distinct values, which of them each entry is, and how many entries each has, as many as the others."""
        n = next(n for n in range(min(x.numel(), max(most, 1)), 0, -1) if x.numel() % n == 0)
        values, counts = x.new_empty((n,)), x.new_empty((n,), dtype=torch.long)
        place = torch.empty_like(x, dtype=torch.long)
        self.known[values], self.known[place], self.known[counts] = 0, 0, x.numel() // n
        return values, place, counts


@contextlib.contextmanager
def numberless() -> Iterator[None]:
    """Within it tensors have sizes and kernels, those of the CPU, and no numbers; others are taken as such."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cpu"):
        yield
