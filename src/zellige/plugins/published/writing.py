"""A model in a published layout: the way back of what was imported, and the way out for what was trained here.

What came in a layout goes back into it with the same keys, the same bytes and the same config.json. A time-free network
is written in the layout of MDLM, whose adaptive norms then say nothing (shift and scale 0, gate 1), or of RADD, whose
norms have a bias: both are the same function (`modulated`, `unmodulated`).
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zellige.base.errors import InputError
from zellige.data.tokenizer_base import Tokenizer
from zellige.methods.method import Method
from zellige.models.checkpoint.write import save_tensors
from zellige.models.config import Config
from zellige.nn.block import Block, Net
from zellige.nn.embedding import Modulation
from zellige.nn.transformer import DiT

from .layout import Description, Layout

FREE = ("mdlm", "md4", "radd")  # time-free, all three read their network as p(x_0 | x_t) at the masks


HUB = "hub"  # no layout of others: Zellige's own folder with a model card


def layout_name(about: Mapping[str, Any], to: str | None = None) -> str:
    """The layout that a model is written in: `to`, the one it came in, or HUB for what was trained here."""
    return to or about.get("published", {}).get("layout") or HUB


def fitting(config: Config) -> list[str]:
    """The layouts that a model of this method may be written in."""
    from .layouts import LAYOUTS

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
        state: dict[str, Tensor] = method.network.state_dict()  # pyright: ignore
        tensors = {layout.theirs(name): tensor for name, tensor in state.items()}
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
        width = config.net.hidden // config.net.heads
        tensors[f"{layout.prefix}rotary_emb.inv_freq"] = 1e4 ** (-torch.arange(0, width, 2).float() / width)
        if layout.name == "bd3lm":
            for end, value in zip(("min", "max"), description.options.get("clip", (0.0, 1.0))):
                tensors[f"sampling_eps_{end}"] = torch.tensor(value, dtype=torch.float32)
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
            f"the layout {layout.name} is of another network than this one's; only what came in it goes back"
        )
    if not same:
        time_note = " that is time-conditioned" if config.method in FREE and layout.method in FREE else ""
        hint = f"for {config.method} there are {', '.join(fitting(config))}" if fitting(config) else "use `to` hub"
        raise InputError(
            f"the layout {layout.name} is for {layout.method}, and this is {config.method}{time_note}; {hint}"
        )
    if parts := unpublished(net):
        raise InputError(
            f"this network has {parts}, for which no published layout has a word; use `to` hub, or train one without"
        )
    if config.method == "ar" and options.get("begin") is None:
        raise InputError(
            "its texts begin with a state of its own, those of the layout ar with a token; train it with `begin`"
        )
    if options.get("mask") is not None:
        raise InputError(f"its mask is one of the tokenizer's tokens; in the layout {layout.name} it comes after them")
    if options.get("prediction", "mean") != "mean":
        raise InputError("the layout bd3lm is for `prediction` mean; this one gives a score")
    state = dict(network.state_dict())
    if layout.name == "radd":
        state = unmodulated(network)
    elif network.time is None and layout.method != "ar":
        state, net = modulated(network), dataclasses.replace(net, constant=True)
    rows = type(method).states(tokenizer.size, config.options)
    return state, Description(net, rows, options)


# ---------------------------------------------------------------------------------------------------- one function, two forms
BRANCHES = (("norm1", "out"), ("norm2", "mlp.2"))  # of a block: its layer norm, and what ends it


@torch.no_grad()
def unmodulated(network: DiT) -> dict[str, Tensor]:
    """The tensors of the same function without adaptive norms, with a bias in each norm (RADD's form).

    For a network without time and class inputs.
    """
    if network.classes is not None:
        raise InputError("this network is class-conditional, for which the layout radd has no word; use `to` udlm")
    state = {n: t for n, t in network.state_dict().items() if not n.startswith("time.") and "modulation" not in n}
    condition = None if network.time is None else network.conditioning(torch.zeros(1, 1, dtype=torch.long), None)

    def into(norm: str, module: Any, shift: Tensor | None, scale: Tensor | None) -> None:
        bias = torch.zeros_like(module.weight) if module.bias is None else module.bias
        if shift is not None and scale is not None:
            state[f"{norm}.weight"], bias = module.weight * (1 + scale), bias * (1 + scale) + shift
        state[f"{norm}.bias"] = bias

    for i, block in enumerate(network.blocks):
        assert isinstance(block, Block)
        vectors = [None] * 6 if condition is None or block.modulation is None else block.modulation(condition[0])
        for j, (norm, last) in enumerate(BRANCHES):
            shift, scale, gate = vectors[3 * j : 3 * j + 3]
            into(f"blocks.{i}.{norm}", getattr(block, norm), shift, scale)
            for part in ("weight", "bias") if gate is not None else ():
                name = f"blocks.{i}.{last}.{part}"
                if name in state:
                    state[name] = state[name] * (gate[:, None] if part == "weight" else gate)  # pyright: ignore
    shift, scale = [None] * 2 if condition is None or network.modulation is None else network.modulation(condition[0])
    into("norm", network.norm, shift, scale)
    return state


@torch.no_grad()
def modulated(network: DiT) -> dict[str, Tensor]:
    """The tensors of the same function with adaptive norms at the constant sigma = 0 (MDLM's form): what they say is a
    bias.

    For a network without them; the embedding of the time is zero.
    """
    D, width = network.net.hidden, network.net.condition
    state = {n: t for n, t in network.state_dict().items() if not n.endswith(("norm.bias", "norm1.bias", "norm2.bias"))}
    like = network.embedding.weight
    for layer, (rows, columns) in {"0": (width, 256), "2": (width, width)}.items():
        state |= {
            f"time.mlp.{layer}.weight": like.new_zeros(rows, columns),
            f"time.mlp.{layer}.bias": like.new_zeros(rows),
        }

    def say(name: str, parts: list[Tensor]) -> None:
        modulation = Modulation(width, D, len(parts))
        state[f"{name}.weight"], state[f"{name}.bias"] = modulation.weight.detach().to(like), torch.cat(parts)

    zero, ones = like.new_zeros(D), like.new_ones(D)
    shift = lambda norm: zero if norm.bias is None else norm.bias  # noqa: E731
    for i, block in enumerate(network.blocks):
        assert isinstance(block, Block)
        say(f"blocks.{i}.modulation", [shift(block.norm1), zero, ones, shift(block.norm2), zero, ones])
    say("modulation", [shift(network.norm), zero])
    return state
