"""SEDD and RADD: published with their whole Hydra config, and no prefix."""

from collections.abc import Mapping
from typing import Any

from zellige.base.errors import InputError, quoted
from zellige.nn.block import Net

from .ddit import GEOMETRIC, ddit_layout, ends_of_sigma, noise, unmodulated
from .layout import Description, Shapes, count_in, count_or, entries_in, field_of, number_or


def _net(config: Mapping[str, Any], shapes: Shapes, **more: Any) -> Net:
    model = entries_in(config, "model")
    condition = more.pop("condition", None) or count_in(config, "model", "cond_dim")
    return Net(
        count_in(config, "model", "n_blocks"),
        count_in(config, "model", "hidden_size"),
        count_in(config, "model", "n_heads"),
        count_in(config, "model", "length"),
        dropout=number_or(model, "dropout", 0.0),
        condition=condition,
        **more,
    )


def _hydra(config: Mapping[str, Any]) -> bool:
    return "tokens" in config and isinstance(config.get("model"), Mapping)


def _read_sedd(config: Mapping[str, Any], shapes: Shapes) -> Description:
    kind = field_of(config, "graph", "type", default="absorb")
    process = {"absorb": "absorbing", "uniform": "uniform"}.get(str(kind))
    if process is None:
        raise InputError(f"its graph is {quoted(str(kind))}; it must be absorb or uniform")
    scale_by_sigma = bool(field_of(config, "model", "scale_by_sigma", default=process == "absorbing"))
    options = {
        "process": process,
        "schedule": noise(config, ("loglinear", "geometric")),
        "scale_by_sigma": scale_by_sigma if process == "absorbing" else None,
    } | ends_of_sigma(config)
    return Description(
        _net(config, shapes), count_in(config, "tokens") + (process == "absorbing"), options, data=_data(config)
    )


def _write_sedd(description: Description) -> dict[str, Any]:
    process = description.options.get("process", "absorbing")
    absorbs = process == "absorbing"
    scale_by_sigma = description.options.get("scale_by_sigma")
    return {
        "tokens": description.rows - absorbs,
        "graph": {"type": "absorb" if absorbs else "uniform"},
        "noise": {"type": description.options.get("schedule", "loglinear")}
        | {
            end: default if (value := description.options.get(end)) is None else value
            for end, default in GEOMETRIC.items()
        },
        "model": _sizes(description) | {"scale_by_sigma": absorbs if scale_by_sigma is None else scale_by_sigma},
    }


def _sizes(description: Description) -> dict[str, Any]:
    net = description.net
    return {
        "name": "small",
        "type": "ddit",
        "hidden_size": net.hidden,
        "cond_dim": net.condition,
        "length": net.length,
        "n_blocks": net.layers,
        "n_heads": net.heads,
        "dropout": net.dropout,
    }


def _read_radd(config: Mapping[str, Any], shapes: Shapes) -> Description:
    condition = count_or(entries_in(config, "model"), "cond_dim", 128)  # it has none: the number is never used
    loss = str(field_of(config, "training", "loss_type", default=config.get("loss_type", "lambda_DCE")))
    name = loss.lower().replace("_", "-")
    options = {"schedule": noise(config, ("loglinear",))}
    if name in ("k-dce", "lambda-dce", "t-dce", "t-dse"):
        options["loss"] = name
    return Description(
        _net(config, shapes, condition=condition), count_in(config, "tokens") + 1, options, data=_data(config)
    )


def _write_radd(description: Description) -> dict[str, Any]:
    loss = {"k-dce": "k_DCE", "lambda-dce": "lambda_DCE", "t-dce": "t_DCE", "t-dse": "t_DSE"}
    return {
        "tokens": description.rows - 1,
        "graph": {"type": "absorb"},
        "noise": {"type": "loglinear", "sigma_min": 1e-4, "sigma_max": 20},
        "training": {"loss_type": loss[description.options.get("loss", "lambda-dce")]},
        "model": _sizes(description) | {"type": "ddit_wot", "use_checkpoint": False, "dtype": "float32"},
    }


def _data(config: Mapping[str, Any]) -> str:
    """Name of the training data, as here."""
    corpus = field_of(config, "data", "train", default="")
    return corpus if corpus in ("openwebtext", "text8", "lm1b") else "openwebtext" if "webtext" in str(corpus) else ""


def _is_radd(config: Mapping[str, Any]) -> bool:
    model = config["model"]
    return str(model.get("type", "")).endswith("wot") or "scale_by_sigma" not in model


LAYOUTS = [
    ddit_layout(
        "sedd", "sedd", "SEDD, absorbing or uniform noise", "",
        lambda config: _hydra(config) and not _is_radd(config), _read_sedd, _write_sedd,
    ),
    ddit_layout(
        "radd", "radd", "RADD, no time, layer norms with a bias", "",
        lambda config: _hydra(config) and _is_radd(config), _read_radd, _write_radd, unmodulated,
    ),
]  # fmt: skip
