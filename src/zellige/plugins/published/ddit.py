"""Parts of all layouts of the DDiT family: SEDD, RADD, MDLM, BD3-LM, AR, UDLM and Duo. Their tensors differ in what is
there, not in how it is called: the names are SEDD's, which the others have kept, and the one table of them is here.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from zellige.base.errors import InputError
from zellige.nn.block import Block, Net
from zellige.nn.embedding import Modulation
from zellige.nn.transformer import DiT

from .layout import Choices, Description, Layout, Shapes, field_of, number_or

GEOMETRIC = {"sigma_min": 1e-4, "sigma_max": 20.0}  # the ends of `core.curves.Geometric`


def sizes(shapes: Shapes, choices: Choices) -> Net:
    """The sizes of a network by its tensors alone; length and, without rotary frequencies, heads by choice."""
    missing = [name for name in ("vocab_embed.embedding", "blocks.0.attn_qkv.weight") if len(shapes.get(name, ())) != 2]
    if missing:
        names = ", ".join(sorted(shapes)[:3])
        raise InputError(
            f"no tensor '{missing[0]}' among {len(shapes)} ({names}, ...); it is no model of the DDiT family"
        )
    if choices.length is None:
        raise InputError("nothing says how long a text is; give `length`, e.g. `length` 1024, or the config.json")
    hidden = shapes["vocab_embed.embedding"][1]
    waves = shapes.get("rotary_emb.inv_freq")
    heads = choices.heads or (hidden // (2 * waves[0]) if waves else None)
    if heads is None:
        raise InputError(
            f"nothing says how many heads share the width {hidden}; give `heads`, e.g. `heads` {hidden // 64}"
        )
    layers = 1 + max(int(name.split(".")[1]) for name in shapes if name.startswith("blocks."))
    classes = shapes.get("cond_map.embedding_table.weight", (1,))[0] - 1
    condition = shapes.get("sigma_map.mlp.2.weight", (128,))[0]
    return Net(layers, hidden, heads, choices.length, condition=condition, classes=classes)


def bare(layout: Layout, shapes: Shapes, choices: Choices) -> Description:
    """Description from the tensors of a file without a config, and the choices."""
    net = sizes(shapes, choices)
    if layout.name == "bd3lm" and choices.block is None:
        raise InputError("nothing says how long a block is; give `block`, e.g. `block` 16")
    values = {name: getattr(choices, name) for name in ("block", "process", "schedule", "time")}
    options = {name: value for name, value in values.items() if value is not None}
    return layout.read(layout.write(Description(net, shapes["vocab_embed.embedding"][0], options)), shapes)


def noise(config: Mapping[str, Any], known: tuple[str, ...]) -> str:
    """The schedule's name."""
    name = str(field_of(config, "noise", "type", default="loglinear")).replace("log-linear", "loglinear")
    if name not in known:
        raise InputError(f"its noise is '{name}', and only {' and '.join(known)} is known here, so it is not loaded")
    return name


def ends_of_sigma(config: Mapping[str, Any]) -> dict[str, float]:
    """`sigma_min` and `sigma_max` of geometric noise, where they are not ours."""
    if noise(config, ("loglinear", "geometric")) != "geometric":
        return {}
    ends = {end: value for end in GEOMETRIC if (value := field_of(config, "noise", end, default=None)) is not None}
    return {end: number for end in ends if (number := number_or(ends, end, 0.0)) != GEOMETRIC[end]}


def ddit_layout(
    name: str,
    method: str,
    about: str,
    prefix: str,
    knows: Callable[[Mapping[str, Any]], bool],
    read: Callable[..., Description],
    write: Callable[..., dict[str, Any]],
    form: Callable[[DiT], dict[str, Tensor]] | None = None,
    extra: Callable[[Description], dict[str, Tensor]] = lambda description: {},
) -> Layout:
    """A layout with our DiT and the family's names; form: with adaptive norms, unless another one is given."""

    def beside(description: Description) -> dict[str, Tensor]:
        width = description.net.hidden // description.net.heads
        frequencies = 1e4 ** (-torch.arange(0, width, 2).float() / width)
        return {f"{prefix}rotary_emb.inv_freq": frequencies} | extra(description)

    return Layout(
        name, method, about, prefix, knows, read, write, ours, theirs, order, BUFFERS, form=form or modulated, extra=beside
    )  # fmt: skip


PAIRS = (  # (theirs, ours): where a name begins, or what stands inside the name of a block's parameter
    ("vocab_embed.embedding", "embedding.weight"),
    ("sigma_map.", "time."),
    ("cond_map.embedding_table.", "classes."),
    ("output_layer.norm_final.", "norm."),
    ("output_layer.linear.", "head."),
    ("output_layer.adaLN_modulation.", "modulation."),
    (".attn_qkv.", ".qkv."),
    (".attn_out.", ".out."),
    (".adaLN_modulation.", ".modulation."),
)
BUFFERS = ("rotary_emb.inv_freq", "sampling_eps_min", "sampling_eps_max")

_ORDER = (
    "vocab_embed.embedding", "sigma_map.mlp.0.weight", "sigma_map.mlp.0.bias", "sigma_map.mlp.2.weight",
    "sigma_map.mlp.2.bias", "cond_map.embedding_table.weight", "blocks", "output_layer.weight", "output_layer.bias",
    "output_layer.norm_final.weight", "output_layer.norm_final.bias", "output_layer.linear.weight",
    "output_layer.linear.bias", "output_layer.adaLN_modulation.weight", "output_layer.adaLN_modulation.bias",
)  # fmt: skip
_BLOCK = (
    "norm1.weight", "norm1.bias", "attn_qkv.weight", "attn_out.weight", "norm2.weight", "norm2.bias", "mlp.0.weight",
    "mlp.0.bias", "mlp.2.weight", "mlp.2.bias", "adaLN_modulation.weight", "adaLN_modulation.bias",
)  # fmt: skip


def ours(key: str) -> str:
    """A published name in our network's words.

    >>> ours("vocab_embed.embedding"), ours("blocks.3.attn_qkv.weight"), ours("output_layer.adaLN_modulation.bias")
    ('embedding.weight', 'blocks.3.qkv.weight', 'modulation.bias')
    """
    return _renamed(key, [(a, b) for a, b in PAIRS])


def theirs(key: str) -> str:
    """Our name in the published words: `theirs(ours(key)) == key`."""
    return _renamed(key, [(b, a) for a, b in PAIRS])


def _renamed(key: str, pairs: Sequence[tuple[str, str]]) -> str:
    for old, new in pairs:
        if key.startswith(old) or (old[0] == "." and old in key):
            return key.replace(old, new, 1)
    return key


def order(keys: Sequence[str]) -> list[str]:
    """Published names as the published classes' `parameters()` has them: the order of an EMA list."""

    def place(key: str) -> tuple[int, ...]:
        block = re.fullmatch(r"blocks\.(\d+)\.(.+)", key)
        if block:
            return _ORDER.index("blocks"), int(block[1]), _BLOCK.index(block[2])
        return (_ORDER.index(key),)

    return sorted(keys, key=place)


# ---------------------------------------------------------------------------------------------------- one function, two forms
BRANCHES = (("norm1", "out"), ("norm2", "mlp.2"))  # of a block: its layer norm, and what ends it


@torch.no_grad()
def unmodulated(network: DiT) -> dict[str, Tensor]:
    """The tensors of the same function without adaptive norms, with a bias in each norm (RADD's form).

    For a network without time and class inputs.
    """
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
            if gate is None:
                continue
            for part, factor in (("weight", gate[:, None]), ("bias", gate)):
                if (name := f"blocks.{i}.{last}.{part}") in state:
                    state[name] = state[name] * factor
    shift, scale = [None] * 2 if condition is None or network.modulation is None else network.modulation(condition[0])
    into("norm", network.norm, shift, scale)
    return state


@torch.no_grad()
def modulated(network: DiT) -> dict[str, Tensor]:
    """The tensors of a network with adaptive norms (MDLM's form). Of one without a time input they are at the constant
    sigma = 0: what they say is a bias, shift and scale are 0, gates 1, and the embedding of the time is zero."""
    if network.time is not None:
        return dict(network.state_dict())
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
