"""A second device that is none: its tensors are the CPU's behind another name, and whoever copies to it or from it is counted.

A GPU would wait for each such copy. A process has room for one such device and keeps it, so a test starts one of its own:

    python -m tests.testing.second_device CASE...

prints as JSON, for each case, which lines copied which way in a step of training, and in a step of each sampler.
"""

import json
import sys
import traceback
from collections import Counter as Count
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map

from zellige import Batch, Net
from zellige.core.random import Counter
from zellige.methods import METHODS, build
from zellige.samplers import SAMPLERS, SemiAutoregressive, run
from zellige.samplers.semi_autoregressive import WRITES

CASES = {
    "d3pm": {}, "d3pm uniform": {"process": "uniform"}, "csm": {}, "tauldr": {}, "sedd": {},
    "sedd uniform": {"process": "uniform"}, "radd": {}, "mdlm": {}, "mdlm timed": {"time": True},
    "mdlm steps": {"diffusion_steps": 8}, "md4": {}, "genmd4": {}, "udlm": {}, "bd3lm": {"block": 4}, "ar": {},
}  # fmt: skip
AWAY = "away"
copies: Count[str] = Count()


class There(Tensor):
    """A tensor of the second device, whose numbers are `here`."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> "There":
        sizes = here.shape, here.stride(), here.storage_offset()
        return Tensor._make_wrapper_subclass(cls, *sizes, dtype=here.dtype, device=f"{AWAY}:0")  # pyright: ignore

    def __init__(self, here: Tensor):
        self.here = here

    def tolist(self) -> Any:
        count("from the device")
        return self.here.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.overloadpacket.__name__, dict(kwargs or {})
        device = kwargs.get("device")
        if device is not None and device.type == AWAY:
            kwargs["device"] = torch.device("cpu")
        elif name == "_to_copy" and device is not None:
            count("from the device")
            return func(args[0].here, **kwargs)
        host = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.device.type == "cpu"]
        if name == "copy_" and host:
            count("to the device" if type(args[0]) is There else "from the device")
        elif any(x.ndim for x in host):  # a number goes with the kernel
            if not name.startswith(("index", "_index_put")):
                raise RuntimeError(f"{name} of tensors of two devices")
            count("to the device")
        out = func(*tree_map(bare, args), **tree_map(bare, kwargs))
        if func._schema.is_mutable and name.endswith("_"):
            return args[0]
        return tree_map(lambda x: There(x) if isinstance(x, Tensor) else x, out)


def bare(x: Any) -> Any:
    return x.here if type(x) is There else x


def count(way: str) -> None:
    """One copy, of the line of Zellige that made it."""
    frames = [f for f in traceback.extract_stack() if "/src/zellige/" in f.filename]
    line = f": {frames[-1].filename.rpartition('/src/zellige/')[2]}: {frames[-1].line}" if frames else ""
    copies[f"{way}{line}"] += 1


def register() -> tuple[Any, ...]:
    """Make the device known to PyTorch, as long as what this returns is kept."""

    def made(op: Any, *args: Any, **kwargs: Any) -> Tensor:
        assert not any(isinstance(x, Tensor) for x in tree_leaves(args)), f"{op} of tensors that are not of the device"
        return There(op(*args, **{**kwargs, "device": "cpu"}))

    hook = backend_registration._DummyPrivateUse1Hook()
    backend_registration._setup_privateuseone_for_python_backend(AWAY, hook=hook)
    others, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    others.fallback(made, "PrivateUse1")
    aten.impl("copy_", lambda *a: There.__torch_dispatch__(torch.ops.aten.copy_.default, (), a), "PrivateUse1")
    for name in ("arange", "arange.start", "arange.start_step"):  # which else would give their result its size later
        op = getattr(torch.ops.aten.arange, name.partition(".")[2] or "default")
        aten.impl(name, partial(made, op), "PrivateUse1")
    return hook, others, aten


def steps_of(case: str) -> dict[str, dict[str, int]]:
    """The copies of a step of training, and of the first step of each sampler."""
    torch.manual_seed(0)
    name = case.split()[0]
    net = Net(layers=1, hidden=16, heads=2, length=16, dropout=0.1)
    method = build(name, 7, net, METHODS[name].Config(**CASES[case]), ordered=True).to(AWAY)
    draws = lambda: Counter(5, *(torch.full((), number, device=AWAY) for number in (3, 0)), 1)  # noqa: E731
    tokens, found = torch.zeros(4, 16, dtype=torch.long, device=AWAY), {}
    for _ in range(2):  # tables are made once
        copies.clear()
        method.loss(Batch(tokens), draws()).sum().backward()
    found["training"] = dict(copies)
    samplers = {name: sampler() for name, sampler in SAMPLERS.items()}
    samplers |= {f"blocks of {name}": SemiAutoregressive(name, 5) for name in WRITES}
    for name, sampler in samplers.items():
        if sampler.reason_against(method) is None:
            states = run(sampler, method, (4, 16), None if sampler.grows else 4, generator=draws())
            next(states)  # pyright: ignore[reportArgumentType]
            copies.clear()
            next(states)
            found[name] = dict(copies)
    return found


def itself() -> dict[str, dict[str, int]]:
    """What is counted of some ways to make a tensor there, or to read one."""
    t, index, found = torch.zeros(3, device=AWAY), torch.tensor([0, 2]), {}
    ways = {
        "new_tensor": lambda: t.new_tensor([0.0, 1.0]),
        "as_tensor": lambda: torch.as_tensor(0.5, device=AWAY),
        "index": lambda: t[index],
        "to": lambda: index.to(AWAY),
        "cpu": t.cpu,
        "tolist": t.tolist,
        "arange": lambda: torch.arange(2, device=AWAY),
        "full": lambda: torch.full((), 0.5, device=AWAY) + torch.tensor(1.0),
    }
    for name, way in ways.items():
        copies.clear()
        way()
        found[name] = dict(copies)
    return found


if __name__ == "__main__":
    device = register()
    print(json.dumps({"itself": itself()} | {case: steps_of(case) for case in sys.argv[1:] or CASES}))
