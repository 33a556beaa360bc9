"""What the layouts of the DDiT family share: SEDD, RADD, MDLM, BD3-LM, AR, UDLM and Duo. Their tensors differ in what is there,
not in how it is called (`names.py`).
"""

from collections.abc import Mapping
from typing import Any

from ...errors import InputError
from ...nn.block import Net
from . import names
from .layout import Choices, Description, Layout, Shapes, field_of, number_or

GEOMETRIC = {"sigma_min": 1e-4, "sigma_max": 20.0}  # the ends of `core.curves.Geometric`


def sizes(shapes: Shapes, choices: Choices) -> Net:
    """The sizes of a network by its tensors alone; length and, without rotary frequencies, heads by choice."""
    missing = [name for name in ("vocab_embed.embedding", "blocks.0.attn_qkv.weight") if len(shapes.get(name, ())) != 2]
    if missing:
        there = ", ".join(sorted(shapes)[:3])
        raise InputError(
            f"no tensor '{missing[0]}' among {len(shapes)} ({there}, ...); it is no model of the DDiT family"
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
    """What the tensors of a file without a config say, with the choices."""
    net = sizes(shapes, choices)
    if layout.name == "bd3lm" and choices.block is None:
        raise InputError("nothing says how long a block is; give `block`, e.g. `block` 16")
    chosen = {name: getattr(choices, name) for name in ("block", "process", "time")}
    options = {name: value for name, value in chosen.items() if value is not None}
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


def ddit_layout(name: str, method: str, about: str, prefix: str, knows: Any, read: Any, write: Any) -> Layout:
    """A layout with our DiT and the family's names."""
    return Layout(name, method, about, prefix, knows, read, write, names.ours, names.theirs, names.order, names.BUFFERS)
