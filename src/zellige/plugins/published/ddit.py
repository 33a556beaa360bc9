"""Parts of all layouts of the DDiT family: SEDD, RADD, MDLM, BD3-LM, AR, UDLM and Duo. Their tensors differ in what is
there, not in how it is called: the names are SEDD's, which the others have kept, and the one table of them is here.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zellige.base.errors import InputError
from zellige.nn.block import Net

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
    values = {name: getattr(choices, name) for name in ("block", "process", "time")}
    options = {name: value for name, value in values.items() if value is not None}
    return layout.read(layout.write(Description(net, shapes["vocab_embed.embedding"][0], options)), shapes)


def noise(config: Mapping[str, Any], known: tuple[str, ...]) -> str:
    """The schedule's name."""
    name = str(field_of(config, "noise", "type", default="loglinear")).replace("log-linear", "loglinear")
    if name not in known:
        raise InputError(f"its noise is '{name}', and only {' and '.join(known)} is known here; choose with `schedule`")
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
) -> Layout:
    """A layout with our DiT and the family's names."""
    return Layout(name, method, about, prefix, knows, read, write, ours, theirs, order, BUFFERS)


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
