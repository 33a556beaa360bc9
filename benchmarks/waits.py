"""Operations of a step, and how often a GPU would be waited for in it: counted on a CPU, no GPU is needed.

python benchmarks/waits.py [--only WORDS]

A wait is an operation whose result the host has to read before it can go on: a number, or a shape. Each takes the time
that the GPU has still to compute, and an operation some microseconds to start: on a fast GPU a small step is both. In the
column `--compile` a graph counts as one operation.
"""

import argparse
import contextlib
import statistics
from collections import Counter as Count
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

import measure
from zellige import Batch
from zellige.base import waiting
from zellige.core.random import Streams
from zellige.methods import METHODS, build
from zellige.nn import Net
from zellige.samplers import captured, find, run
from zellige.samplers.sampler import LOOK
from zellige.training.order import StepSeeds

V, B, L = 27, 8, 32
NET = Net(layers=2, hidden=64, heads=2, length=L)
TRAINED = {
    "mdlm": {},
    "md4": {},
    "radd": {},
    "sedd": {},
    "udlm": {},
    "bd3lm": {"block": 8},
    "ar": {},
    "genmd4": {},
    "gidd": {},
    "d3pm": {},
    "d3pm uniform": {"process": "uniform"},
    "tauldr": {},
    "csm": {},
}
SAMPLED = {  # method, sampler, its options, steps
    "mdlm ancestral": ("mdlm", "ancestral", {}, 16),
    "mdlm first hitting": ("mdlm", "first_hitting", {}, None),
    "mdlm any order": ("mdlm", "any_order", {}, None),
    "mdlm confidence": ("mdlm", "confidence", {}, 16),
    "mdlm confidence, threshold": ("mdlm", "confidence", {"threshold": 0.06}, None),
    "udlm ancestral": ("udlm", "ancestral", {}, 16),
    "sedd ancestral": ("sedd", "ancestral", {}, 16),
    "bd3lm blocks": ("bd3lm", "blockwise", {}, 8),
    "bd3lm blocks, first hitting": ("bd3lm", "blockwise", {"block_sampler": "first_hitting"}, None),
    "ar": ("ar", "left_to_right", {}, None),
}
READS = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "equal",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "repeat_interleave",
    "bincount",
    "lift_fresh",
    "lift_fresh_copy",
}
COPIES = {torch.Tensor.cpu, torch.Tensor.tolist, torch.Tensor.numpy}


class Counted(TorchDispatchMode):
    """Counts operations, by name, and those that a GPU would be waited for.

    Args:
        host: a tensor that is not on the GPU.
    """

    def __init__(self, host: torch.Tensor | None = None):
        super().__init__()
        self.host = None if host is None else host.untyped_storage().data_ptr()
        self.operations, self.waits = Count(), Count()
        self.copies = _Copies(self.waits)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.operations[name] += 1
        indices = args[1] if name in ("index", "index_put", "index_put_") else ()
        reads = name in READS and (self.host is None or args[0].untyped_storage().data_ptr() != self.host)
        if reads or any(i is not None and i.dtype == torch.bool for i in indices):
            self.waits[name] += 1
        return func(*args, **(kwargs or {}))

    def __enter__(self):
        self.copies.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.copies.__exit__(*error)


class _Copies(TorchFunctionMode):
    """Counts what copies a tensor to the host, which on a CPU is no operation."""

    def __init__(self, waits: Count):
        super().__init__()
        self.waits = waits

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in COPIES:
            self.waits[func.__name__] += 1
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Take the ways of a device whose values are waited for, on the CPU."""
    before, waiting.READABLE = waiting.READABLE, ()
    try:
        yield
    finally:
        waiting.READABLE = before


def method_of(name: str, config: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    method = build(name, V, NET, METHODS[name].Config(**config), ordered=True)
    with torch.no_grad():
        for p in method.network.parameters():  # heads and modulations begin at zero
            p.add_(0.05 * torch.randn(p.shape))
    return method


def training_step(case: str) -> Counted:
    """The loss of a batch and its gradient; of the second step, as the first one makes what is kept."""
    method, seeds = method_of(case.split()[0], TRAINED[case]).train(), StepSeeds(0, 1, torch.device("cpu"))
    batch = Batch(torch.randint(V, (B, L), generator=torch.Generator().manual_seed(0)))
    with as_on_a_gpu():
        for number in range(2):
            seed, counted = seeds.seed_part(number, 0), Counted()
            with counted:
                method.loss(batch, seed).sum().backward()
    return counted


@contextlib.contextmanager
def as_graphs(method: Any) -> Iterator[None]:
    """Sample as with `--compile`, without compiling: a graph is one operation, and nothing is counted inside."""

    def compiled(step: Callable[..., Any], **how: Any) -> Callable[..., Any]:
        def graph(*args: Any) -> Any:
            torch.empty(0)  # one operation in its place
            with _disable_current_modes():
                return step(*args)

        return graph

    before, captured.compiled, method.compiles = captured.compiled, compiled, True
    method._compiled = {entry: getattr(method.network, entry) for entry in ("features", "extend", "advance")}
    captured.graph_of.cache_clear()
    try:
        yield
    finally:
        captured.compiled, method.compiles = before, False
        captured.graph_of.cache_clear()


def sampling_steps(case: str, graphs: bool = False) -> list[Counted]:
    """Each step of eight texts."""
    name, sampler_name, options, steps = SAMPLED[case]
    method = method_of(name, TRAINED[name]).eval()
    counts: list[Counted] = []
    with as_on_a_gpu(), as_graphs(method) if graphs else contextlib.nullcontext():
        sampler = find(sampler_name)(**options)
        times = sampler.times(method, steps)
        host = times if times.ndim > 1 else None  # several numbers are for Python to read: `run` leaves them there
        states = run(sampler, method, (B, L), times, generator=Streams(range(B)))
        next(states)
        while True:
            counted = Counted(host)
            with counted:
                if next(states, None) is None:
                    return counts
            counts.append(counted)


def waits_of(steps: list[Counted]) -> list[int]:
    return [counted.waits.total() for counted in steps]


def most_in(waits: list[int], steps: int) -> int:
    """The largest number of waits in so many steps one after another."""
    return max(sum(waits[i : i + steps]) for i in range(max(len(waits) - steps, 0) + 1))


def rows(chosen: Callable[[str], bool]) -> Iterator[tuple]:
    for case in filter(chosen, TRAINED):
        counted = training_step(case)
        yield f"training, {case}", counted.waits.total(), counted.operations.total(), "", names(counted.waits)
    for case in filter(chosen, SAMPLED):
        steps = sampling_steps(case)
        operations, around = (
            round(statistics.mean(counted.operations.total() for counted in of))
            for of in (steps, sampling_steps(case, graphs=True))
        )
        waits = sum((counted.waits for counted in steps), Count())
        yield (
            f"sampling, {case}",
            f"{sum(waits_of(steps)) / len(steps):.2f} (at most {most_in(waits_of(steps), LOOK)} in {LOOK})",
            operations,
            around,
            names(waits),
        )


def names(waits: Count) -> str:
    return ", ".join(f"{name} {count}" for name, count in waits.most_common())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], help="words of the steps: bd3lm")
    options = parser.parse_args()
    table = list(rows(lambda case: all(word in case for word in options.only)))
    measure.show(table, ("step", "waits", "operations", "with --compile", "waits by name"))


if __name__ == "__main__":
    main()
