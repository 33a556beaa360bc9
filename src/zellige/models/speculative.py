"""Causal heads on disk: what verifies the drafts of one model (`samplers.speculative`), in a folder of its own.

`zellige train speculative MODEL` trains one (`plugins.students.speculative`). The folder names the weights of its model by
their hash, since a head reads the hidden states of that network alone.
"""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor

from ..base.errors import InputError
from ..base.schema import shown
from ..nn.speculative import CausalHead
from .network_folder import load_network, save_network

NAME = "head"  # of its files


@dataclass(frozen=True)
class HeadConfig:
    """Contents of head.json.

    Attributes:
        model_sha256: of the weights of the model that it was trained on.
        states, width, heads, conv, grid: arguments of `CausalHead`.
        texts: held-out texts; draft, verified: nats per token of the network and of the head on their masks, any number
            of them in any order, with the standard errors over texts.
    """

    model: str
    model_sha256: str
    states: int
    width: int
    heads: int
    conv: int
    grid: tuple[int, ...]
    steps: int
    seed: int
    texts: int = 0
    draft: tuple[float, float] = (0.0, 0.0)
    verified: tuple[float, float] = (0.0, 0.0)

    def network(self) -> CausalHead:
        """A new head of this size."""
        return CausalHead(self.states, self.width, self.heads, self.conv, self.grid)


class Verifier:
    """A causal head with its config, `Diffusion.verifier` of its model's method."""

    def __init__(self, network: CausalHead, config: HeadConfig):
        self.network, self.config = network, config

    def __call__(self, h: Tensor, x: Tensor, turn: Tensor) -> Tensor:
        """See `CausalHead`."""
        return self.network(h.to(self.network.norm.weight.dtype), x, turn).to(h.dtype)

    def save(self, folder: str | Path) -> Path:
        """Write head.safetensors, head.json and their SHA256SUMS; the folder."""
        return save_network(folder, NAME, self.network, self.config)


def load_verifier(folder: str | PathLike, model_sha256: str, device: torch.device | str = "cpu") -> Verifier:
    """The head in such a folder.

    Raises:
        InputError: a file is missing, damaged, or not of this kind; the head is one of other weights than
            `model_sha256`.
    """
    network, config = load_network(
        Path(folder), NAME, HeadConfig, HeadConfig.network, "zellige train speculative", device
    )
    if config.model_sha256 != model_sha256:
        raise InputError(
            f"the head in '{shown(folder)}' is one of other weights, those of '{config.model}'; train one of this "
            "model with zellige train speculative MODEL"
        )
    return Verifier(network, config)
