"""Folders that others have published: which they are, and the plug-in that reads and writes them.

A folder of Zellige's own never imports it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from ..base.errors import InputError
from ..base.plugins import part
from ..base.schema import shown
from .checkpoint.read import own_config
from .config import Config

PICKLES = (".bin", ".ckpt", ".pt", ".pth")
SUFFIXES = (".safetensors", *PICKLES)
_FIRST = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def plugin() -> Any:
    """`zellige.plugins.published`: layouts, `read`, `rebuild`, `write_layout` and what else it has."""
    return part("published")


def network_of(config: Config, about: Mapping[str, Any]) -> Any:
    """The network of a published layout with a class of its own, its weights unset;
    None where the network is another."""
    return plugin().rebuild(plugin().LAYOUTS[config.network], about, config) if has_class(config) else None


def has_class(config: Config) -> bool:
    """Whether the network is that of a published layout with a class of its own."""
    layout = plugin().LAYOUTS.get(config.network) if config.network else None
    return layout is not None and layout.build is not None


def is_published(path: Path) -> bool:
    """Return whether a file or a folder holds weights without a config of Zellige's."""
    if path.is_file():
        return path.suffix in SUFFIXES and not own_config(path.parent)
    return path.is_dir() and not own_config(path) and weights_in(path) is not None


def weights_in(folder: Path) -> Path | None:
    """The file of a folder that holds its weights; None if there is none. InputError if there are several."""
    for name in _FIRST:
        if (folder / name).is_file():
            return folder / name
    files = sorted(f for f in folder.iterdir() if f.suffix in SUFFIXES and f.is_file() and not f.name.startswith("."))
    if len(files) > 1:
        names = ", ".join(f.name for f in files[:5])
        raise InputError(f"'{shown(folder)}' holds {len(files)} files of weights ({names}); give one of them")
    return files[0] if files else None


class PublishedChoices(TypedDict, total=False):
    """What a published folder does not say, as arguments of `zellige.load`."""

    system: str | None
    length: int | None
    tokenizer: str | None
    heads: int | None
    block: int | None
    process: str | None
    schedule: str | None
    time: bool | None
    begin: int | None
    weights: str | None
