"""The layouts of the DDiT family: SEDD, RADD, MDLM, BD3-LM, AR, UDLM and Duo. Their tensors differ in what is there, not in names.

SEDD and RADD are published with their whole Hydra config and no prefix; the others with a flat config of their own class and
`backbone.`. A Lightning checkpoint of the latter holds a Hydra config too, which `flat` turns into the flat one.
"""

from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from ..nn.transformer import Net
from . import names
from .layout import Choices, Layout, Said, Shapes, field_of, whole

UNIFORM = ("udlm", "duo")  # their K are the tokenizer's tokens and, where it has no mask, one more row that is never a token


# ---------------------------------------------------------------------------------------------------- what the tensors say
def sizes(shapes: Shapes, choices: Choices) -> Net:
    """The sizes of a network by its tensors alone; length and, without rotary frequencies, heads by choice."""
    missing = [name for name in ("vocab_embed.embedding", "blocks.0.attn_qkv.weight") if len(shapes.get(name, ())) != 2]
    if missing:
        there = ", ".join(sorted(shapes)[:3])
        raise InputError(f"no tensor '{missing[0]}' among {len(shapes)} ({there}, ...); it is no model of the DDiT family")
    if choices.length is None:
        raise InputError("nothing says how long a text is; give --length, e.g. --length 1024, or the config.json")
    hidden = shapes["vocab_embed.embedding"][1]
    waves = shapes.get("rotary_emb.inv_freq")
    heads = choices.heads or (hidden // (2 * waves[0]) if waves else None)
    if heads is None:
        raise InputError(f"nothing says how many heads share the width {hidden}; give --heads, e.g. --heads {hidden // 64}")
    layers = 1 + max(int(name.split(".")[1]) for name in shapes if name.startswith("blocks."))
    classes = shapes.get("cond_map.embedding_table.weight", (1,))[0] - 1
    condition = shapes.get("sigma_map.mlp.2.weight", (128,))[0]
    return Net(layers, hidden, heads, choices.length, condition=condition, classes=classes)


def bare(layout: Layout, shapes: Shapes, choices: Choices) -> Said:
    """What the tensors of a file without a config say, with the choices."""
    net = sizes(shapes, choices)
    if layout.name == "bd3lm" and choices.block is None:
        raise InputError("nothing says how long a block is; give --block, e.g. --block 16")
    chosen = {name: getattr(choices, name) for name in ("block", "process", "time")}
    options = {name: value for name, value in chosen.items() if value is not None}
    return layout.read(layout.write(Said(net, shapes["vocab_embed.embedding"][0], options)), shapes)


# ---------------------------------------------------------------------------------------------------- SEDD, RADD: Hydra
def _net(config: Mapping[str, Any], shapes: Shapes, **more: Any) -> Net:
    model = config["model"]
    condition = more.pop("condition", None) or whole(config, "model", "cond_dim")
    return Net(
        whole(config, "model", "n_blocks"), whole(config, "model", "hidden_size"), whole(config, "model", "n_heads"),
        whole(config, "model", "length"), dropout=float(model.get("dropout", 0.0)), condition=condition, **more,
    )  # fmt: skip


def _hydra(config: Mapping[str, Any]) -> bool:
    return "tokens" in config and isinstance(config.get("model"), Mapping)


def _noise(config: Mapping[str, Any], known: tuple[str, ...]) -> str:
    """The schedule's name; its numbers must be those that ours has."""
    name = str(field_of(config, "noise", "type", default="loglinear")).replace("log-linear", "loglinear")
    if name not in known:
        raise InputError(f"its noise is '{name}', and only {' and '.join(known)} is known here; choose with --schedule")
    ends = {"geometric": (1e-4, 20.0)}.get(name)
    said = tuple(field_of(config, "noise", end, default=None) for end in ("sigma_min", "sigma_max"))
    if ends and None not in said and any(abs(a - b) > 1e-9 for a, b in zip(said, ends)):
        raise InputError(f"its geometric noise runs from {said[0]:g} to {said[1]:g}; only {ends[0]:g} to {ends[1]:g} is known here")
    return name


def _read_sedd(config: Mapping[str, Any], shapes: Shapes) -> Said:
    kind = field_of(config, "graph", "type", default="absorb")
    process = {"absorb": "absorbing", "uniform": "uniform"}.get(kind)
    if process is None:
        raise InputError(f"its graph is '{kind}'; it must be absorb or uniform")
    scaled = bool(field_of(config, "model", "scale_by_sigma", default=process == "absorbing"))
    options = {
        "process": process, "schedule": _noise(config, ("loglinear", "geometric")),
        "scale_by_sigma": scaled if process == "absorbing" else None,
    }  # fmt: skip
    return Said(_net(config, shapes), whole(config, "tokens") + (process == "absorbing"), options, data=_data(config))


def _write_sedd(said: Said) -> dict[str, Any]:
    process = said.options.get("process", "absorbing")
    absorbs = process == "absorbing"
    scaled = said.options.get("scale_by_sigma")
    return {
        "tokens": said.rows - absorbs,
        "graph": {"type": "absorb" if absorbs else "uniform"},
        "noise": {"type": said.options.get("schedule", "loglinear"), "sigma_min": 1e-4, "sigma_max": 20},
        "model": _sizes(said) | {"scale_by_sigma": absorbs if scaled is None else scaled},
    }


def _sizes(said: Said) -> dict[str, Any]:
    net = said.net
    return {
        "name": "small", "type": "ddit", "hidden_size": net.hidden, "cond_dim": net.condition, "length": net.length,
        "n_blocks": net.layers, "n_heads": net.heads, "dropout": net.dropout,
    }  # fmt: skip


def _read_radd(config: Mapping[str, Any], shapes: Shapes) -> Said:
    condition = int(field_of(config, "model", "cond_dim", default=None) or 128)  # it has none: the number is never used
    loss = str(field_of(config, "training", "loss_type", default=config.get("loss_type", "lambda_DCE")))
    name = loss.lower().replace("_", "-")
    options = {"schedule": _noise(config, ("loglinear",))}
    if name in ("k-dce", "lambda-dce", "t-dce", "t-dse"):
        options["loss"] = name
    return Said(_net(config, shapes, condition=condition), whole(config, "tokens") + 1, options, data=_data(config))


def _write_radd(said: Said) -> dict[str, Any]:
    loss = {"k-dce": "k_DCE", "lambda-dce": "lambda_DCE", "t-dce": "t_DCE", "t-dse": "t_DSE"}
    return {
        "tokens": said.rows - 1,
        "graph": {"type": "absorb"},
        "noise": {"type": "loglinear", "sigma_min": 1e-4, "sigma_max": 20},
        "training": {"loss_type": loss[said.options.get("loss", "lambda-dce")]},
        "model": _sizes(said) | {"type": "ddit_wot", "use_checkpoint": False, "dtype": "float32"},
    }


def _data(config: Mapping[str, Any]) -> str:
    """What it was trained on, by our name."""
    said = field_of(config, "data", "train", default="")
    return said if said in ("openwebtext", "text8", "lm1b") else "openwebtext" if "webtext" in str(said) else ""


# ---------------------------------------------------------------------------------------------------- the flat configs
def flat(config: Mapping[str, Any], shapes: Shapes) -> dict[str, Any] | None:
    """The flat config of a Lightning checkpoint's Hydra config; None where it is no such config."""
    model = config.get("model")
    if not isinstance(model, Mapping) or "hidden_size" not in model or "tokens" in config:
        return None
    algo = config.get("algo") if isinstance(config.get("algo"), Mapping) else config
    uniform = config.get("diffusion") == "uniform"
    name = str(field_of(config, "algo", "name", default=""))
    said = str(algo.get("parameterization", ""))  # pyright: ignore[reportOptionalMemberAccess]
    kind = "DUO" if name.startswith(("duo", "distil")) else name if name in ("bd3lm", "udlm") else None
    kind = kind or ("udlm" if uniform else {"subs": "mdlm", "sedd": "sedd", "ar": "ar"}.get(said))
    if kind is None or (kind == "mdlm" and said == "d3pm"):
        raise InputError(f"its parameterization is '{said}'; it must be subs, sedd, ar or, with uniform noise, d3pm")
    classes = field_of(config, "data", "num_classes") if "cond_map.embedding_table.weight" in shapes else None
    plain = {
        "model_type": kind,
        "vocab_size": shapes.get("vocab_embed.embedding", (0,))[0],
        "model_length": model.get("length"),
        "hidden_dim": model.get("hidden_size"),
        "cond_dim": model.get("cond_dim", 128),
        "n_blocks": model.get("n_blocks"),
        "n_heads": model.get("n_heads"),
        "dropout": model.get("dropout", 0.0),
        "time_conditioning": bool(algo.get("time_conditioning", kind in ("udlm", "DUO", "sedd"))),  # pyright: ignore
        "noise": str(field_of(config, "noise", "type", default="loglinear")),
    }
    if kind == "bd3lm":
        plain["block_size"] = config.get("block_size")
        plain |= {end: field_of(config, "training", end) for end in ("sampling_eps_min", "sampling_eps_max")}
    if classes:
        plain |= {"cfg": True, "cfg_num_classes": classes}
    return plain


def _flat_net(config: Mapping[str, Any], shapes: Shapes, **more: Any) -> Net:
    return Net(
        whole(config, "n_blocks"), whole(config, "hidden_dim"), whole(config, "n_heads"), whole(config, "model_length"),
        dropout=float(config.get("dropout", 0.0)), condition=whole(config, "cond_dim"), **more,
    )  # fmt: skip


def _tokenizer(config: Mapping[str, Any]) -> dict[str, str]:
    """The tokenizer that a table of so many rows is known for, and its data."""
    if config.get("vocab_size") == 30522:
        return {"tokenizer": "bert-base-uncased", "data": "lm1b"}
    return {"tokenizer": "gpt2", "data": "openwebtext" if config.get("vocab_size") in (50257, 50258) else ""}


def _schedule(config: Mapping[str, Any]) -> str:
    return _noise({"noise": {"type": config.get("noise", "loglinear")}}, ("loglinear", "cosine"))


def _read_mdlm(config: Mapping[str, Any], shapes: Shapes) -> Said:
    time = bool(config.get("time_conditioning", False))
    net = _flat_net(config, shapes, constant=not time)
    return Said(net, whole(config, "vocab_size"), {"time": time, "schedule": _schedule(config)}, **_tokenizer(config))


def _read_bd3lm(config: Mapping[str, Any], shapes: Shapes) -> Said:
    time = bool(config.get("time_conditioning", False))
    clip = tuple(float(f"{config.get(f'sampling_eps_{end}', edge):.6g}") for end, edge in (("min", 0.0), ("max", 1.0)))
    options = {"block": whole(config, "block_size"), "time": time, "clip": clip, "schedule": _schedule(config)}
    net = _flat_net(config, shapes, constant=not time)
    return Said(net, whole(config, "vocab_size"), options, **_tokenizer(config))


def _read_ar(config: Mapping[str, Any], shapes: Shapes) -> Said:
    net = _flat_net({"cond_dim": 128, **config}, shapes)
    return Said(net, whole(config, "vocab_size"), {}, **_tokenizer(config))


def _read_sedd_noeos(config: Mapping[str, Any], shapes: Shapes) -> Said:
    net = _flat_net(config, shapes)
    return Said(net, whole(config, "vocab_size"), {"schedule": _schedule(config)}, **_tokenizer(config))


def _read_uniform(config: Mapping[str, Any], shapes: Shapes) -> Said:
    time = bool(config.get("time_conditioning", True))
    classes = int(config.get("cfg_num_classes", -1)) if config.get("cfg") else 0
    net = _flat_net(config, shapes, constant=not time, classes=max(classes, 0))
    return Said(net, whole(config, "vocab_size"), {"time": time, "schedule": _schedule(config)}, **_tokenizer(config))


def _flat(said: Said, kind: str, **more: Any) -> dict[str, Any]:
    net = said.net
    return {
        "model_type": kind, "vocab_size": said.rows, "model_length": net.length, "hidden_dim": net.hidden,
        "cond_dim": net.condition, "n_blocks": net.layers, "n_heads": net.heads, "dropout": net.dropout, **more,
    }  # fmt: skip


def _write_mdlm(said: Said) -> dict[str, Any]:
    return _flat(said, "mdlm", time_conditioning=said.options.get("time", False))


def _write_bd3lm(said: Said) -> dict[str, Any]:
    low, high = said.options.get("clip", (0.0, 1.0))
    block = said.options.get("block", 16)
    return _flat(
        said, "bd3lm", block_size=block, cross_attn=block < said.net.length, adaln=True, attn_backend="sdpa", causal=False,
        time_conditioning=said.options.get("time", False), var_min=True, sampling_eps_min=low, sampling_eps_max=high,
    )  # fmt: skip


def _write_ar(said: Said) -> dict[str, Any]:
    return _flat(said, "bd3lm", block_size=1, cross_attn=False, adaln=False, causal=True, time_conditioning=False)


def _write_sedd_noeos(said: Said) -> dict[str, Any]:
    if said.options.get("process", "absorbing") != "absorbing" or said.options.get("scale_by_sigma") is False:
        raise InputError("the layout sedd-noeos is for absorbing noise, scaled by sigma; use --to sedd")
    return _flat(said, "sedd", time_conditioning=True)


def _write_udlm(said: Said) -> dict[str, Any]:
    classes = said.net.classes
    return _flat(
        said, "udlm", time_conditioning=said.options.get("time", True), cfg=classes > 0, cfg_num_classes=classes or -1
    )


def _write_duo(said: Said) -> dict[str, Any]:
    if said.net.classes or not said.options.get("time", True):
        raise InputError("the layout duo is told the time and no classes; use --to udlm")
    return _flat(said, "DUO", causal=False, var_min=True)


def _typed(*kinds: str):
    return lambda config: str(config.get("model_type", "")).lower() in kinds and "hidden_dim" in config


def _layout(name: str, method: str, about: str, prefix: str, knows: Any, read: Any, write: Any) -> Layout:
    return Layout(name, method, about, prefix, knows, read, write, names.ours, names.theirs, names.order, names.BUFFERS)


def _is_radd(config: Mapping[str, Any]) -> bool:
    model = config["model"]
    return str(model.get("type", "")).endswith("wot") or "scale_by_sigma" not in model


def _is_ar(config: Mapping[str, Any]) -> bool:
    return (bool(config.get("causal")) and _typed("bd3lm", "ar")(config)) or _typed("ar")(config)


LAYOUTS = [
    _layout("sedd", "sedd", "SEDD, absorbing or uniform noise", "", lambda c: _hydra(c) and not _is_radd(c), _read_sedd, _write_sedd),
    _layout("radd", "radd", "RADD, no time, layer norms with bias", "", lambda c: _hydra(c) and _is_radd(c), _read_radd, _write_radd),
    _layout("mdlm", "mdlm", "MDLM", "backbone.", _typed("mdlm"), _read_mdlm, _write_mdlm),
    _layout("bd3lm", "bd3lm", "BD3-LM, blocks", "backbone.", lambda c: _typed("bd3lm")(c) and not _is_ar(c), _read_bd3lm, _write_bd3lm),
    _layout("ar", "ar", "AR of MDLM's and BD3-LM's authors", "backbone.", _is_ar, _read_ar, _write_ar),
    _layout("sedd-noeos", "sedd", "SEDD of BD3-LM's authors", "backbone.", _typed("sedd"), _read_sedd_noeos, _write_sedd_noeos),
    _layout("udlm", "udlm", "UDLM, uniform noise, classes", "backbone.", _typed("udlm"), _read_uniform, _write_udlm),
    _layout("duo", "udlm", "Duo, uniform noise", "backbone.", _typed("duo"), _read_uniform, _write_duo),
]  # fmt: skip
