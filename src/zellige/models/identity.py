"""What files and results say of a model: which one it is, the unit of its likelihoods, and the versions that it runs on."""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from .. import __version__


def identity(model: Any) -> dict[str, Any]:
    """What a result says of its model: method, T, parameters, step, which weights (EMA, raw, as published), tokenizer."""
    about, config = getattr(model, "about", {}), getattr(model, "config", None)
    if "published" in about:
        weights = "EMA" if about["published"].get("weights") == "ema" else "as published"
    else:
        weights = "EMA" if config is None or config.train.ema else "raw"
    return {
        "method": getattr(model.method, "name", type(model.method).__name__),
        "time": getattr(model.method, "discrete_time", ""),
        "parameters": sum(p.numel() for p in model.method.parameters()),
        "step": about.get("step"),
        "weights": weights,
        "tokenizer": model.tokenizer.name,
    }


def unit(tokenizer: Any) -> str:
    """The unit of a likelihood in these tokens."""
    unit = {"byte": "char"}.get(tokenizer.unit, tokenizer.unit)
    return f"bits/{unit}" if unit in ("char", "dim", "note", "cell") else "nats/token"


def versions() -> dict[str, str]:
    """What this runs on."""
    numbers = {"zellige": __version__, "python": platform.python_version()}
    for package in ("torch", "lightning", "numpy", "safetensors"):
        try:
            numbers[package] = version(package)
        except PackageNotFoundError:  # a build of one's own
            continue
    return numbers
