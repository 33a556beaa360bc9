"""Zellige: discrete diffusion for text, images and any tokens.

Names are imported when they are first used, so `import zellige` is light: no torch, no trainer, no data library.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `__getattr__` imports when it is asked for
    from . import demo as demo
    from . import exact as exact
    from . import guide as guide
    from . import report as report
    from .checkpoint import Model as Model
    from .checkpoint import load as load
    from .compare import compare as compare
    from .config import Config as Config
    from .config import Train as Train
    from .data import Data as Data
    from .errors import InputError as InputError
    from .evaluate import evaluate as evaluate
    from .generate import infill as infill
    from .generate import sample as sample
    from .generate import watch as watch
    from .method import Batch as Batch
    from .method import Method as Method
    from .methods import METHODS as METHODS
    from .nn.transformer import Net as Net
    from .represent import embed as embed
    from .samplers import SAMPLERS as SAMPLERS
    from .samplers import State as State
    from .samplers import run as run
    from .schedule import CLEAN as CLEAN
    from .schedule import PRIOR as PRIOR
    from .train import train as train
    from .verify import verify as verify

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
