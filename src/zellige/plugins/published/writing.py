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
from zellige.core.curves import ScheduleChoice, schedule_of
from zellige.data.tokenizer_base import Tokenizer
from zellige.methods import METHODS
from zellige.methods.method import Method
from zellige.models.checkpoint.write import save_tensors
from zellige.models.config import Config
from zellige.nn.block import Net
from zellige.nn.transformer import DiT

from .layout import Description, Layout
from .layouts import LAYOUTS
from .tokens import first_token

FREE = ("mdlm", "md4", "radd")  # time-free, all three read their network as p(x_0 | x_t) at the masks
HUB = "hub"  # no layout of others: Zellige's own folder with a model card
TRAINING = (  # options of training alone
    "auxiliary", "auxiliary_at", "auxiliary_pass", "blocks", "clip", "loss", "objective", "resample", "row_by_row", "search",
    "token_share",
)  # fmt: skip
CURVE = ("eps", *(each.name for each in dataclasses.fields(ScheduleChoice)))  # options of the noise schedule
PARTS = {  # of a network that no published layout has, by the field of Net that is not as usual
    "kind": "dilated convolutions",
    "conv": "short convolutions",
    "grid": "a grid",
    "mlp": "a gated MLP",
    "self_condition": "self-conditioning",
    "given": "an input that says what is given",
    "latents": "a latent variable",
}


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
    return next((f"{PARTS[n]} (`net.{n}`)" for n in PARTS if getattr(net, n) != getattr(Net, n)), "")


def refuse_unsaid(
    layout: Layout, said: Mapping[str, Any], method: Method, tokenizer: Tokenizer, config: Config
) -> None:
    """InputError where a config.json of a layout, which says the options `said`, means another model than this one.

    Of a time-free network of masks the schedule is no part: at each of its masks it says the same, whatever the time.
    """
    said = {n: value for n, value in said.items() if n not in TRAINING}
    ours, begin = config.options, first_token(tokenizer)
    if layout.method == "ar":  # where neither says what begins a text, whoever reads it is asked for it
        said = {"begin": ours.begin if begin is None else begin} | said
    theirs = METHODS[layout.method].Config(**said)
    values = dataclasses.asdict(type(ours)()) | {"time": False} | dataclasses.asdict(theirs)
    lost = {n: v for n, v in dataclasses.asdict(ours).items() if n not in TRAINING and v not in (None, values[n])}
    free = not method.time_conditioned and getattr(method.process, "mask", None) is not None
    if free or (not lost.keys().isdisjoint(CURVE) and _curve(ours) == _curve(theirs)):
        lost = {n: v for n, v in lost.items() if n not in CURVE}
    if lost:
        name, value = next(iter(lost.items()))
        raise InputError(f"the format {layout.name} has no word for `{name}` {value}; use `to` {HUB}")


def _curve(options: Any) -> list[float]:
    """alpha at some times of the schedule that the options choose."""
    return schedule_of(options).alpha(torch.linspace(0, 1, 9, dtype=torch.float64)).flatten().tolist()


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
        options = dataclasses.asdict(config.options)
        revised = {n: options[n] for n in ("block", "mask") if layout.revise is not None and n in options}
        refuse_unsaid(layout, {**came["options"], **revised}, method, tokenizer, config)
        tensors = {layout.theirs(name): tensor for name, tensor in method.network.state_dict().items()}
        tensors = tensors if layout.revert is None else layout.revert(tensors, config.net)
        tensors = {came["prefix"] + name: tensor for name, tensor in tensors.items()}
        dtypes = {name: came["dtypes"].get(name, came["dtype"]) for name in tensors}
        tensors = {name: tensor.to(getattr(torch, dtypes[name])) for name, tensor in tensors.items()}
        for name, buffer in came["buffers"].items():
            tensors[name] = torch.tensor(buffer["values"], dtype=getattr(torch, buffer["dtype"]))
        entries = came["config"]
        if layout.revise is not None:
            entries = layout.revise(entries, options)
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
        raise InputError(
            f"this network has {parts}, which no published format has; use `to` {HUB}, or train one without"
        )
    if config.method == "ar" and options.get("begin") is None:
        raise InputError(
            "the format ar needs a begin token, and this model has none; train with `begin`, or use `to` hub"
        )
    rows = type(method).states(tokenizer.size, config.options)
    description = Description(net, rows, options)
    said = layout.read(layout.write(description), {})
    refuse_unsaid(layout, said.options, method, tokenizer, config)
    if said.net.classes != net.classes:
        raise InputError(f"the format {layout.name} has no word for `net.classes` {net.classes}; use `to` {HUB}")
    return layout.form(network), description
