"""A small network in a folder of its own: what is trained on a model, to guide, verify or measure its samples.

NAME.safetensors has its weights, NAME.json what built it, and SHA256SUMS both.
"""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn

from ..base.errors import InputError
from ..base.files import write_folder
from ..base.schema import read_json, shown
from ..show.record import as_file
from .checkpoint.layout import may_be_replaced
from .checkpoint.read import check_finite, check_sums, load_tensors
from .checkpoint.write import save_tensors, write_checksums

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C")
N = TypeVar("N", bound=nn.Module)


def files_of(name: str) -> tuple[str, str]:
    """The names of the two files: weights, config."""
    return f"{name}.safetensors", f"{name}.json"


def check_place(folder: str | Path, name: str) -> None:
    """InputError: the folder holds something else than such a network."""
    weights, about = files_of(name)
    if not may_be_replaced(Path(folder), about, (weights,)):
        raise InputError(
            f"'{shown(folder)}' holds other files than {about} and {weights}; give the name of a new folder"
        )


def save_network(folder: str | Path, name: str, network: nn.Module, config: "DataclassInstance") -> Path:
    """Write the folder at once, and return it; `config` is a dataclass. An earlier network in it is replaced."""
    check_place(folder, name)
    weights, about = files_of(name)

    def write(into: Path) -> None:
        save_tensors(into / weights, network.state_dict())
        (into / about).write_text(as_file(asdict(config)), encoding="utf-8")
        write_checksums(into)

    return write_folder(folder, write)


def load_network(
    folder: Path, name: str, config: type[C], build: Callable[[C], N], made_by: str, device: torch.device | str = "cpu"
) -> tuple[N, C]:
    """The network, not to be trained, and its config.

    Args:
        build: a new network of a config.
        made_by: the command that writes such folders, for errors.

    Raises:
        InputError: a file is missing, damaged, or not of this kind.
    """
    weights, about = files_of(name)
    again = f"give a folder of {made_by}"
    if not (folder / about).is_file():
        raise InputError(f"'{shown(folder)}' holds no {about}; {again}")
    check_sums(folder)
    read = read_json(folder / about, config, again)
    tensors, _ = load_tensors(folder / weights)
    try:
        network = build(read)
        network.load_state_dict(tensors)
    except (RuntimeError, TypeError, ValueError):
        raise InputError(f"the tensors of '{shown(folder / weights)}' are not those of its {about}; {again}") from None
    check_finite(network, tensors)
    return network.to(device).eval().requires_grad_(False), read
