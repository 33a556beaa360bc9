"""What results say of a model: which one it is, by its hashes too, and the unit of its likelihoods."""

import hashlib
import json
from typing import Any

import torch


def identity(model: Any) -> dict[str, Any]:
    """What a result says of its model: method, T, parameters, step, which weights, tokenizer; the sha256 of both."""
    return {
        "method": getattr(model.method, "name", type(model.method).__name__),
        "time": getattr(model.method, "discrete_time", ""),
        "parameters": sum(p.numel() for p in model.method.parameters()),
        "step": getattr(model, "about", {}).get("step"),
        "weights": which_weights(model),
        "tokenizer": model.tokenizer.name,
        "weights_sha256": fingerprint(model.method),
        "tokenizer_sha256": model.tokenizer.fingerprint,
    }


def which_weights(model: Any) -> str:
    """EMA, raw, or as published."""
    about, config = getattr(model, "about", {}), getattr(model, "config", None)
    if "published" in about:
        return "EMA" if about["published"].get("weights") == "ema" else "as published"
    return "EMA" if config is None or config.train.ema else "raw"


def fingerprint(*parts: Any) -> str:
    """A hash of tensors, modules (their state) and anything that JSON can write."""
    digest = hashlib.sha256()
    for part in parts:
        tensors = part.state_dict().values() if isinstance(part, torch.nn.Module) else [part]
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                data = tensor.detach().cpu().contiguous().reshape(-1)
                digest.update(f"{tensor.dtype} {[*tensor.shape]}".encode())
                digest.update(memoryview(data.view(torch.uint8).numpy()))  # pyright: ignore[reportArgumentType]
            else:
                digest.update(json.dumps(tensor, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def unit(tokenizer: Any) -> str:
    """The unit of a likelihood in these tokens."""
    unit = {"byte": "char"}.get(tokenizer.unit, tokenizer.unit)
    return f"bits/{unit}" if unit in ("char", "dim", "note", "cell") else "nats/token"
