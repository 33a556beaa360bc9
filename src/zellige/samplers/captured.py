"""A sampling step as one graph, for a GPU.

A GPU computes the hundreds of operations of a step faster than Python starts them. A step of fixed shape
(`Sampler.has_fixed_shape`) is a function of tensors: PyTorch compiles it whole, network and random numbers included, and
records it as a CUDA graph, which is started at once. The first step takes a minute or so. Later steps and runs of the
same model and options find the graph, also those of an equal sampler: PyTorch keeps graphs with the code of `whole`.
"""

import functools
import threading
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..base.waiting import fixed
from ..core.random import Streams
from ..nn.compiler import compiled

RECORDED: dict[str, Any] = {"mode": "reduce-overhead"}  # of torch.compile: as a CUDA graph


def captures(method: Any) -> bool:
    """Return whether the current step is to be a graph: it has a fixed shape, and the method is compiled."""
    return fixed() and method.compiles


def captured(step: Callable[..., Any], method: Any) -> Callable[..., Any]:
    """`Sampler.step` as one graph, for `Streams`; the step itself where it is to be none."""
    # a server computes in other threads; PyTorch before 2.13 records graphs in one
    main = threading.current_thread() is threading.main_thread()
    return graph_of(step, main) if captures(method) else step


@functools.lru_cache(maxsize=16)
def graph_of(step: Callable[..., Any], recorded: bool) -> Callable[..., Any]:
    """A step as one graph, for `Streams`.

    Args:
        recorded: as a CUDA graph.
    """

    def whole(method: Any, state: Any, t: Tensor, s: Tensor, streams: Streams) -> tuple[Any, Tensor]:
        streams = streams.apart()  # a graph changes none of its inputs
        return step(method, state, t, s, streams), streams.calls

    graph = compiled(whole, **RECORDED if recorded else {})

    def one(method: Any, state: Any, t: Tensor, s: Tensor, generator: Streams) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        with method._in_precision(state.x.device):  # a graph has none of its own
            new, calls = graph(method, state, t, s, generator)
        generator.calls.copy_(calls)  # which others share
        return own(new, state)

    return one


def own(value: Any, before: Any) -> Any:
    """Copy the tensors of a state that a graph returned, since its next start writes over them; what is as it was
    `before` is no copy."""
    if value is before:
        return value
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, tuple):
        return tuple(own(new, old) for new, old in zip(value, before or len(value) * (None,), strict=True))
    if is_dataclass(value) and not isinstance(value, type):
        parts = {
            field.name: own(getattr(value, field.name), getattr(before, field.name, None)) for field in fields(value)
        }
        return replace(value, **parts)
    return value
