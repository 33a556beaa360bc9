"""MDLM, BD3-LM, AR, UDLM, Duo, and the SEDD of BD3-LM's authors: a flat config of their own class, and `backbone.`
before names.

A Lightning checkpoint of theirs holds a Hydra config, which `flattened` turns into the flat one.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from zellige.base.errors import InputError
from zellige.nn.block import Net

from .ddit import ddit_layout, noise
from .layout import Description, Shapes, begin_in, count_in, field_of, number_or

COSINE = {"schedule": "cosine-power", "exponent": 1.0}  # `noise` cosine of these authors; ours is MD4's, another curve


def flattened(config: Mapping[str, Any], shapes: Shapes) -> dict[str, Any] | None:
    """The flat config of a Lightning checkpoint's Hydra config; None where it is no such config."""
    model = config.get("model")
    if not isinstance(model, Mapping) or "hidden_size" not in model or "tokens" in config:
        return None
    algo = config["algo"] if isinstance(config.get("algo"), Mapping) else config
    uniform = config.get("diffusion") == "uniform"
    name = str(field_of(config, "algo", "name", default=""))
    parameterization = str(algo.get("parameterization", ""))
    kind = "DUO" if name.startswith(("duo", "distil")) else name if name in ("bd3lm", "udlm") else None
    kind = kind or ("udlm" if uniform else {"subs": "mdlm", "sedd": "sedd", "ar": "ar"}.get(parameterization))
    if kind is None or (kind == "mdlm" and parameterization == "d3pm"):
        raise InputError(
            f"its parameterization is '{parameterization}'; it must be subs, sedd, ar or, with uniform noise, d3pm"
        )
    classes = field_of(config, "data", "num_classes") if "cond_map.embedding_table.weight" in shapes else None
    flat = {
        "model_type": kind,
        "vocab_size": shapes.get("vocab_embed.embedding", (0,))[0],
        "model_length": model.get("length"),
        "hidden_dim": model.get("hidden_size"),
        "cond_dim": model.get("cond_dim", 128),
        "n_blocks": model.get("n_blocks"),
        "n_heads": model.get("n_heads"),
        "dropout": model.get("dropout", 0.0),
        "time_conditioning": bool(algo.get("time_conditioning", kind in ("udlm", "DUO", "sedd"))),
        "noise": str(field_of(config, "noise", "type", default="loglinear")),
    }
    if kind == "bd3lm":
        flat["block_size"] = config.get("block_size")
        flat |= {end: field_of(config, "training", end) for end in ("sampling_eps_min", "sampling_eps_max")}
    if classes:
        flat |= {"cfg": True, "cfg_num_classes": classes}
    return flat


def _flat_net(config: Mapping[str, Any], shapes: Shapes, **more: Any) -> Net:
    return Net(
        count_in(config, "n_blocks"),
        count_in(config, "hidden_dim"),
        count_in(config, "n_heads"),
        count_in(config, "model_length"),
        dropout=number_or(config, "dropout", 0.0),
        condition=count_in(config, "cond_dim"),
        **more,
    )


def _tokenizer(config: Mapping[str, Any]) -> dict[str, Any]:
    """The tokenizer that a table of so many rows is known for, and its data."""
    if config.get("vocab_size") == 30522:
        return {"tokenizer": "bert-base-uncased", "data": "lm1b"}
    return {"tokenizer": "gpt2", "data": "openwebtext" if config.get("vocab_size") in (50257, 50258) else ""}


def _noise(config: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """The options of the schedule that a config names: loglinear or one of `more`."""
    name = noise({"noise": {"type": config.get("noise", "loglinear")}}, ("loglinear", *more))
    return COSINE if name == "cosine" else {"schedule": name}


def _said(options: Mapping[str, Any]) -> dict[str, str]:
    """The way back: what a config says of a schedule that is not loglinear."""
    return {"noise": "cosine"} if COSINE.items() <= options.items() else {}


def _read_mdlm(config: Mapping[str, Any], shapes: Shapes) -> Description:
    time = bool(config.get("time_conditioning", False))
    net = _flat_net(config, shapes, constant=not time)
    options = {"time": time, **_noise(config, "cosine")}
    return Description(net, count_in(config, "vocab_size"), options, **_tokenizer(config))


def _read_bd3lm(config: Mapping[str, Any], shapes: Shapes) -> Description:
    time = bool(config.get("time_conditioning", False))
    clip = tuple(
        float(f"{number_or(config, f'sampling_eps_{end}', edge):.6g}") for end, edge in (("min", 0.0), ("max", 1.0))
    )
    options = {
        "block": count_in(config, "block_size"),
        "time": time,
        "clip": clip,
        **_noise(config, "cosine"),
    }
    net = _flat_net(config, shapes, constant=not time)
    return Description(net, count_in(config, "vocab_size"), options, **_tokenizer(config))


def _read_ar(config: Mapping[str, Any], shapes: Shapes) -> Description:
    net = _flat_net({"cond_dim": 128, **config}, shapes)
    return Description(net, count_in(config, "vocab_size"), begin_in(config), **_tokenizer(config))


def _read_sedd_noeos(config: Mapping[str, Any], shapes: Shapes) -> Description:
    net = _flat_net(config, shapes)
    return Description(net, count_in(config, "vocab_size"), _noise(config), **_tokenizer(config))


def _read_uniform(config: Mapping[str, Any], shapes: Shapes) -> Description:
    time = bool(config.get("time_conditioning", True))
    classes = int(config.get("cfg_num_classes", -1)) if config.get("cfg") else 0
    net = _flat_net(config, shapes, constant=not time, classes=max(classes, 0))
    duo = str(config.get("model_type")).lower() == "duo"  # whose cosine is another
    options = {"time": time, **_noise(config, *(() if duo else ("cosine",)))}
    return Description(net, count_in(config, "vocab_size"), options, **_tokenizer(config))


def _flat(description: Description, kind: str, **more: Any) -> dict[str, Any]:
    net = description.net
    return {
        "model_type": kind,
        "vocab_size": description.rows,
        "model_length": net.length,
        "hidden_dim": net.hidden,
        "cond_dim": net.condition,
        "n_blocks": net.layers,
        "n_heads": net.heads,
        "dropout": net.dropout,
        **more,
    }


def _write_mdlm(description: Description) -> dict[str, Any]:
    options = description.options
    return _flat(description, "mdlm", time_conditioning=options.get("time", False), **_said(options))


def _write_bd3lm(description: Description) -> dict[str, Any]:
    low, high = description.options.get("clip", (0.0, 1.0))
    block = description.options.get("block", 16)
    return _flat(
        description, "bd3lm", block_size=block, cross_attn=block < description.net.length, adaln=True, attn_backend="sdpa",
        causal=False, time_conditioning=description.options.get("time", False), var_min=True, sampling_eps_min=low,
        sampling_eps_max=high, **_said(description.options),
    )  # fmt: skip


def _clip(description: Description) -> dict[str, Tensor]:
    """The interval of times that a model was trained in."""
    clip = description.options.get("clip", (0.0, 1.0))
    return {f"sampling_eps_{end}": torch.tensor(value, dtype=torch.float32) for end, value in zip(("min", "max"), clip)}


def _write_ar(description: Description) -> dict[str, Any]:
    return _flat(
        description, "bd3lm", block_size=1, cross_attn=False, adaln=False, causal=True, time_conditioning=False,
        bos_token_id=description.options.get("begin"),
    )  # fmt: skip


def _write_sedd_noeos(description: Description) -> dict[str, Any]:
    return _flat(description, "sedd", time_conditioning=True)


def _write_udlm(description: Description) -> dict[str, Any]:
    classes = description.net.classes
    return _flat(
        description,
        "udlm",
        time_conditioning=description.options.get("time", True),
        cfg=classes > 0,
        cfg_num_classes=classes or -1,
        **_said(description.options),
    )


def _write_duo(description: Description) -> dict[str, Any]:
    return _flat(description, "DUO", causal=False, var_min=True)


def _typed(*kinds: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda config: str(config.get("model_type", "")).lower() in kinds and "hidden_dim" in config


def _is_bd3lm(config: Mapping[str, Any]) -> bool:
    return _typed("bd3lm")(config) and not _is_ar(config)


def _is_ar(config: Mapping[str, Any]) -> bool:
    return (bool(config.get("causal")) and _typed("bd3lm", "ar")(config)) or _typed("ar")(config)


def _layout(
    name: str,
    method: str,
    about: str,
    knows: Callable[[Mapping[str, Any]], bool],
    read: Callable[..., Description],
    write: Callable[..., dict[str, Any]],
    **more: Any,
):
    return ddit_layout(name, method, about, "backbone.", knows, read, write, **more)


LAYOUTS = [
    _layout("mdlm", "mdlm", "MDLM", _typed("mdlm"), _read_mdlm, _write_mdlm),
    _layout("bd3lm", "bd3lm", "BD3-LM", _is_bd3lm, _read_bd3lm, _write_bd3lm, extra=_clip),
    _layout("ar", "ar", "AR of the same authors", _is_ar, _read_ar, _write_ar, form=lambda net: dict(net.state_dict())),
    _layout("sedd-noeos", "sedd", "SEDD of the same authors", _typed("sedd"), _read_sedd_noeos, _write_sedd_noeos),
    _layout("udlm", "udlm", "UDLM, with classes or without", _typed("udlm"), _read_uniform, _write_udlm),
    _layout("duo", "udlm", "Duo", _typed("duo"), _read_uniform, _write_duo),
]
