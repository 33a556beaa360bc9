"""A model in a published layout: the way back of what was imported, and the way out for what was trained here.

What came in a layout goes back into it with the same keys, the same bytes and the same config.json. A time-free network
is written in the layout of MDLM or of RADD: both are the same function (`Layout.form`).
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zellige.base.errors import InputError
from zellige.data.tokenizer_base import Tokenizer
from zellige.methods.method import Method
from zellige.models.checkpoint.write import save_tensors
from zellige.models.config import Config
from zellige.nn.block import Net
from zellige.nn.transformer import DiT

from .layout import Description, Layout
from .layouts import LAYOUTS

FREE = ("mdlm", "md4", "radd")  # time-free, all three read their network as p(x_0 | x_t) at the masks
HUB = "hub"  # no layout of others: Zellige's own folder with a model card


def layout_name(about: Mapping[str, Any], to: str | None = None) -> str:
    """The layout that a model is written in: `to`, the one it came in, or HUB for what was trained here."""
    return to or about.get("published", {}).get("layout") or HUB


def fitting(config: Config) -> list[str]:
    """The layouts that a model of this method may be written in."""
    free = FREE if config.method in FREE and not getattr(config.options, "time", False) else ()
    return [
        n
        for n, layout in LAYOUTS.items()
        if layout.build is None and layout.convert is None and layout.method in (config.method, *free)
    ]


def unpublished(net: Net) -> str:
    """The part of a network that no published layout has, in words; "" where there is none."""
    if net.conv or net.grid:
        return "short convolutions (`net.conv`)" if net.conv else "a grid (`net.grid`)"
    return "a gated MLP (`net.mlp` swiglu)" if net.mlp != "gelu" else ""


def write_layout(
    folder: Path, method: Method, tokenizer: Tokenizer, config: Config, about: Mapping[str, Any], layout: Layout
) -> None:
    """Fill `folder` with a model in a published layout: tensors, config.json and the tokenizer.

    Raises:
        InputError: the layout is of another method, or has no word for what the network is.
    """
    came = about.get("published", {})
    if came.get("layout") == layout.name:
        assert isinstance(method.network, nn.Module)
        tensors = {layout.theirs(name): tensor for name, tensor in method.network.state_dict().items()}
        tensors = tensors if layout.revert is None else layout.revert(tensors, config.net)
        dtype = getattr(torch, came["dtype"])
        tensors = {came["prefix"] + name: tensor.to(dtype) for name, tensor in tensors.items()}
        for name, buffer in came["buffers"].items():
            tensors[name] = torch.tensor(buffer["values"], dtype=getattr(torch, buffer["dtype"]))
        entries = came["config"]
        if layout.revise is not None:
            entries = layout.revise(entries, dataclasses.asdict(config.options))
        for name in {came["prefix"] + table for table in layout.tables} & tensors.keys():
            tensors[name] = tensors[name][: entries["vocab_size"]]  # less the row that `ar` neither reads nor predicts
    else:
        state, description = state_of(layout, method, tokenizer, config)
        tensors = {layout.prefix + layout.theirs(name): tensor for name, tensor in state.items()}
        tensors |= layout.extra(description)
        entries = layout.write(description)
    save_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    tokenizer.save(folder)


def state_of(
    layout: Layout, method: Method, tokenizer: Tokenizer, config: Config
) -> tuple[dict[str, Tensor], Description]:
    """The network's tensors, by our names, as the layout has them, and what its config is to say. InputError."""
    net, network, options = config.net, method.network, dataclasses.asdict(config.options)
    free = not method.time_conditioned
    same = config.method == layout.method or (free and config.method in FREE and layout.method in FREE)
    if layout.build is not None or not isinstance(network, DiT):
        raise InputError(
            f"the layout {layout.name} has another kind of network; it takes only models imported from it, use `to` hub"
        )
    if not same:
        time_note = " that is time-conditioned" if config.method in FREE and layout.method in FREE else ""
        hint = f"for {config.method} there are {', '.join(fitting(config))}" if fitting(config) else "use `to` hub"
        raise InputError(
            f"the format {layout.name} is for {layout.method}, and this is {config.method}{time_note}; {hint}"
        )
    if parts := unpublished(net):
        raise InputError(f"this network has {parts}, which no published format has; use `to` hub, or train one without")
    if config.method == "ar" and options.get("begin") is None:
        raise InputError(
            "the format ar needs a begin token, and this model has none; train with `begin`, or use `to` hub"
        )
    if options.get("mask") is not None:
        raise InputError(f"its mask is one of the tokenizer's tokens; in the format {layout.name} it comes after them")
    if options.get("prediction", "mean") != "mean":
        raise InputError("the format bd3lm is for `prediction` mean; this one gives a score")
    rows = type(method).states(tokenizer.size, config.options)
    return layout.form(network), Description(net, rows, options)
