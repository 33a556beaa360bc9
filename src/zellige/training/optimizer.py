"""The optimizer of a training: AdamW, or Muon for the matrices of the blocks and AdamW for all other weights.

Muon (Jordan et al. 2024) makes its step of a matrix orthogonal; with the size of AdamW's (Liu et al. 2025, arXiv
2502.16982) one rate serves both.
"""

from collections.abc import Iterable
from itertools import compress
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from ..base.errors import InputError
from ..models.config import Config


def make_optimizer(config: Config, network: nn.Module, parameters: list[nn.Parameter]) -> Optimizer:
    """The optimizer of these parameters of a method; those of `network`'s blocks are told apart.

    Raises:
        InputError: Muon, and the network names no matrices.
    """
    train = config.train
    if train.optimizer == "adamw":
        return _adamw(config, parameters)
    matrices = block_matrices(network)
    if not matrices:
        raise InputError(
            "`train.optimizer` muon is for the matrices of blocks, and this network names none: a block's class "
            'attribute does, such as matrices = ("qkv", "mlp"); or use adamw'
        )
    muon = torch.optim.Muon(matrices, train.lr, train.weight_decay, adjust_lr_fn="match_rms_adamw")
    of_muon = set(matrices)
    rest = [p for p in parameters if p not in of_muon]
    return Together([muon, _adamw(config, rest)] if rest else [muon])


def block_matrices(network: nn.Module) -> list[nn.Parameter]:
    """The matrices of a network's blocks that are trained, each once.

    A block declares them: its class attribute `matrices` names the submodules whose matrices they are.
    """
    found: dict[nn.Parameter, None] = {}
    for block in network.modules():
        for name in getattr(type(block), "matrices", ()):
            part = getattr(block, name, network)
            if part is network or not isinstance(part, nn.Module | None):
                raise InputError(
                    f"`matrices` of {type(block).__name__} names '{name}', which is no module of it; it must be names of "
                    'its submodules, such as matrices = ("qkv", "mlp")'
                )
            weights = part.parameters() if part is not None else ()
            found |= {p: None for p in weights if p.ndim == 2 and p.requires_grad}
    return [*found]


def _adamw(config: Config, parameters: list[nn.Parameter]) -> AdamW:
    train = config.train
    has_decay = [p.ndim > 1 or train.decay_all for p in parameters]
    groups = [
        {"params": list(compress(parameters, has_decay)), "weight_decay": train.weight_decay},
        {"params": [p for p, among in zip(parameters, has_decay) if not among], "weight_decay": 0.0},
    ]
    return AdamW([g for g in groups if g["params"]], lr=train.lr, betas=train.betas, fused=True)


class Together(Optimizer):
    """Several optimizers as one, with one list of groups and one state: each steps its own parameters."""

    def __init__(self, parts: Iterable[Optimizer]):
        self.parts = list(parts)
        super().__init__([group for part in self.parts for group in part.param_groups], {})
        self._share()

    def _share(self) -> None:
        groups = iter(self.param_groups)
        for part in self.parts:
            part.state = self.state
            part.param_groups = [next(groups) for _ in part.param_groups]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    def step(self, closure: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss
