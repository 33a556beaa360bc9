"""Folders as the hub holds them: recorded weights under their published keys, with the config.json of their class."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from zellige.data.tokenizer import Integers

FLAT = {  # what the flat configs of MDLM's family have in common, at the sizes of the recorded weights
    "vocab_size": 54, "model_length": 24, "hidden_dim": 64, "cond_dim": 32, "n_blocks": 2, "n_heads": 4, "dropout": 0.1,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "mdlm": {"model_type": "mdlm", "time_conditioning": False},
    "mdlm-timed": {"model_type": "mdlm", "time_conditioning": True},
    "sedd-noeos": {"model_type": "sedd", "time_conditioning": True},
    "duo": {"model_type": "DUO", "architectures": ["DUO"], "causal": False, "var_min": True},
    "udlm": {"model_type": "udlm", "time_conditioning": True, "cfg": True, "cfg_num_classes": 4},
    "bd3lm": {
        "model_type": "bd3lm", "block_size": 4, "cross_attn": True, "adaln": True, "attn_backend": "flex", "causal": False,
        "time_conditioning": False, "var_min": True, "sampling_eps_min": 0.3, "sampling_eps_max": 0.8,
    },
    "ar": {"model_type": "bd3lm", "block_size": 1, "cross_attn": False, "adaln": False, "causal": True},
}  # fmt: skip


def sedd(process: str, schedule: str = "loglinear") -> dict[str, Any]:
    """SEDD's Hydra config."""
    return {
        "ngpus": 8, "tokens": 53, "training": {"batch_size": 512, "n_iters": 1300001, "ema": 0.9999},
        "data": {"train": "openwebtext", "valid": "wikitext103", "cache_dir": "data"},
        "graph": {"type": process, "file": "data", "report_all": False},
        "noise": {"type": schedule, "sigma_min": 0.0001, "sigma_max": 20},
        "model": {
            "name": "small", "type": "ddit", "hidden_size": 64, "cond_dim": 32, "length": 24, "n_blocks": 2, "n_heads": 4,
            "scale_by_sigma": process == "absorb", "dropout": 0.1,
        },
    }  # fmt: skip


RADD = {
    "tokens": 53, "noise": {"type": "loglinear"}, "training": {"loss_type": "t_DCE"},
    "model": {
        "name": "small_radd", "type": "ddit_wot", "hidden_size": 64, "cond_dim": 32, "length": 24, "n_blocks": 2, "n_heads": 4,
        "dropout": 0.02, "use_checkpoint": False, "dtype": "float16",
    },
}  # fmt: skip


def weights(golden_folder: Path, name: str) -> dict[str, Tensor]:
    return load_file(golden_folder / "torch" / f"{name}.safetensors")


def folder(
    path: Path, tensors: dict[str, Tensor], config: dict[str, Any] | None, prefix: str = "", tokens: int | None = 53,
    file: str = "model.safetensors",
) -> Path:  # fmt: skip
    """A folder with these tensors under `prefix`, a config.json and a tokenizer of so many integers."""
    path.mkdir(parents=True, exist_ok=True)
    named = {prefix + name: tensor for name, tensor in tensors.items()}
    if file.endswith(".safetensors"):
        save_file(named, path / file, {"format": "pt"})
    else:
        torch.save(named, path / file)
    if config is not None:
        (path / "config.json").write_text(json.dumps(config, indent=2))
    if tokens is not None:
        Integers(tokens).save(path)
    return path


def of(golden_folder: Path, path: Path, kind: str, **more: Any) -> Path:
    """One of the recorded models as the hub would hold it."""
    tokens = 54 if kind in ("udlm", "duo") else 53
    if kind.startswith("sedd_"):
        _, process, schedule = kind.split("_")
        return folder(path, weights(golden_folder, f"sedd__weights_{process}"), sedd(process, schedule) | more)
    if kind == "radd":
        return folder(path, weights(golden_folder, "radd__weights"), RADD | more)
    name = {"bd3lm": "bd3lm__weights", "ar": "bd3lm__weights", "udlm": "udlm__weights"}.get(kind, "mdlm__weights")
    tensors = weights(golden_folder, name)
    if kind == "ar":  # it has neither the embedding of the time nor adaptive norms
        tensors = {n: t for n, t in tensors.items() if "sigma_map" not in n and "adaLN" not in n}
    made = folder(path, tensors, FLAT | CONFIGS[kind] | more, "backbone.", tokens)
    if kind == "bd3lm":
        extra = {f"sampling_eps_{end}": torch.tensor(value) for end, value in (("min", 0.3), ("max", 0.8))}
        save_file(load_file(made / "model.safetensors") | extra, made / "model.safetensors", {"format": "pt"})
    return made
