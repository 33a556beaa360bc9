"""Zellige: discrete diffusion for text, images and any tokens.

Names are imported when they are first used, so `import zellige` is light: no torch, no trainer, no data library.
"""

import importlib
from typing import Any

__version__ = "0.1.0"
FORMERLY = "tessella"  # the name under which the first folders were written; they still load

_WHERE = {  # public name -> module that defines it
    "InputError": "errors",
    "CLEAN": "schedule",
    "PRIOR": "schedule",
    "Batch": "method",
    "Method": "method",
    "Net": "nn.transformer",
    "Data": "data",
    "Train": "config",
    "Config": "config",
    "METHODS": "methods",
    "SAMPLERS": "samplers",
    "State": "samplers",
    "run": "samplers",
    "Model": "checkpoint",
    "load": "checkpoint",
    "watch": "generate",
    "sample": "generate",
    "infill": "generate",
    "embed": "represent",
}
_MODULES = {"train", "evaluate", "verify", "compare", "report", "guide", "exact", "demo"}  # the first four are callable

__all__ = ["__version__", *_WHERE, *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _WHERE:
        return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
