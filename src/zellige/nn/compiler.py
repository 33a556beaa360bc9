"""PyTorch's compiler: whether it can work here, and its failures in one line."""

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

import torch

from ..base.errors import InputError

LIMIT = 64  # graphs of a step, for different models, options and sizes in one process; PyTorch's own limit is 8


def require_compiler() -> None:
    """InputError where torch.compile has no C++ compiler, which it needs for a GPU as well."""
    name = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(name) is None:
        raise InputError(f"`compile` needs a C++ compiler, and there is no {name}; install it, or leave `compile` out")


def compiled(step: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    """`torch.compile` of a step. Its calls raise InputError where PyTorch cannot compile it.

    Args:
        how: as `torch.compile` takes it.
    """
    from torch._dynamo import config  # with the compiler, which takes two seconds
    from torch._dynamo.exc import TorchDynamoException

    graph = torch.compile(step, **how)

    def call(*args: Any) -> Any:
        try:
            with config.patch(recompile_limit=LIMIT):
                return graph(*args)
        except TorchDynamoException as problem:
            why = str(getattr(problem, "inner_exception", problem)).strip().splitlines()
            raise InputError(
                f"PyTorch {torch.__version__} cannot compile the step of this model on this device "
                f"({why[0] if why else type(problem).__name__}); leave out `compile`, or take another version"
            ) from problem

    return call
