"""A sampling step as one graph, for a GPU: it computes a step's hundreds of operations faster than Python starts them.

A step of fixed shape (`Sampler.has_fixed_shape`) is a function of tensors. PyTorch compiles it whole, network and random
numbers included, and records it as a CUDA graph, which is started at once. The first step takes a minute or so; later
steps and runs of the same model, sampler and sizes find the graph.
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

HOW: dict[str, Any] = {"mode": "reduce-overhead"}  # of torch.compile


def captures(method: Any) -> bool:
    """Return whether steps of fixed shape, of which this is one, are to be graphs."""
    return fixed() and method.compiles


@functools.lru_cache(maxsize=16)
def captured(step: Callable[..., Any]) -> Callable[..., Any]:
    """`Sampler.step` of a step of fixed shape, as one graph; its arguments, with `Streams` as generator."""

    def whole(method: Any, state: Any, t: Tensor, s: Tensor, key: Any, calls: Tensor, *of: Tensor) -> Any:
        streams = Streams.at(key, calls.clone(), *of)
        return step(method, state, t, s, streams), streams.calls

    # a server computes in several threads; PyTorch before 2.13 records graphs in one
    graph = compiled(whole, **HOW if threading.current_thread() is threading.main_thread() else {})

    def one(method: Any, state: Any, t: Tensor, s: Tensor, generator: Streams) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        new, calls = graph(method, state, t, s, generator.key, generator.calls, *generator.counted())
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
        return tuple(own(new, old) for new, old in zip(value, before or len(value) * (None,)))
    if is_dataclass(value) and not isinstance(value, type):
        parts = {
            field.name: own(getattr(value, field.name), getattr(before, field.name, None)) for field in fields(value)
        }
        return replace(value, **parts)
    return value
