"""A network whose matrix products are in fewer bits than its weights were trained in."""

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16}  # None: that of the weights
_MATRICES = (nn.Linear, nn.Conv1d, nn.Conv2d)


def lower(network: nn.Module, dtype: torch.dtype) -> None:
    """Round the weights of a network's matrix products and convolutions, in place: they then take the memory of `dtype`.

    Embeddings and layer norms keep theirs, and with them the sums that a residual branch is added to.
    """
    for module in network.modules():
        if isinstance(module, _MATRICES):
            module.to(dtype)


@contextlib.contextmanager
def products(device: torch.device, dtype: torch.dtype | None) -> Iterator[None]:
    """Within it matrix products take and give `dtype` (torch.autocast); None: as they come, autocast by who calls or not."""
    if dtype is None:
        yield
    else:
        with torch.autocast(device.type, dtype=dtype):
            yield
