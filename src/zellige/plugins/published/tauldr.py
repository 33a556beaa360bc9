"""tauLDR's network of images (Campbell et al. 2022): its configuration as JSON, its U-Net's tensors, which lie
otherwise.

    published                                     here
    flat lists of blocks, attention between them  attention within its block
    NiN: W (inputs, outputs), b                   a linear layer, or a 1 x 1 convolution
    queries, keys and values apart                together
    one convolution to a mean and a scale each    a convolution to D features of each colour, of which the head takes two

Its checkpoints (`ckpt_0001999999.pt`) hold raw weights and averaged ones (`ema_shadow_params`); the configuration lies
elsewhere, as YAML, and where no config.json is beside them they are taken for the published ones of CIFAR-10.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zellige.base.arguments import MOST
from zellige.base.errors import InputError
from zellige.data.levels import Levels
from zellige.nn.block import Net

from .layout import Description, Layout, Shapes, count_in, entries_in, field_of, number_or

USUAL = {  # config/train/cifar10.py
    "data": {"name": "DiscreteCIFAR10", "S": 256, "shape": [3, 32, 32]},
    "loss": {"name": "GenericAux", "nll_weight": 0.001, "min_time": 0.01, "one_forward_pass": True},
    "model": {
        "name": "GaussianTargetRateImageX0PredEMA", "ch": 128, "num_res_blocks": 2, "num_scales": 4,
        "ch_mult": [1, 2, 2, 2], "input_channels": 3, "scale_count_to_put_attn": 1, "data_min_max": [0, 255],
        "dropout": 0.1, "skip_rescale": True, "time_embed_dim": 128, "time_scale_factor": 1000, "fix_logistic": False,
        "rate_sigma": 6.0, "Q_sigma": 512.0, "time_exponential": 100.0, "time_base": 3.0,
    },
}  # fmt: skip


def _knows(config: Mapping[str, Any]) -> bool:
    return field_of(config, "model", "ch_mult") is not None and field_of(config, "model", "Q_sigma") is not None


def _read(config: Mapping[str, Any], shapes: Shapes) -> Description:
    model, loss, S = (
        entries_in(config, "model"),
        entries_in(config, "loss"),
        count_in(config, "data", "S"),
    )
    shape, widths = field_of(config, "data", "shape"), field_of(config, "model", "ch_mult")
    if not (_counts(shape) and len(shape) == 3 and _counts(widths)):
        raise InputError(
            "its data.shape must be (colours, height, width), and its model.ch_mult numbers; download it again"
        )
    colours, height, width = shape
    channels, scale = count_in(config, "model", "ch"), number_or(model, "scale_count_to_put_attn", 0)
    if scale not in range(len(widths)):
        raise InputError(f"its model.scale_count_to_put_attn is {scale:g}; it must be 0 to {len(widths) - 1}")
    needs = {
        "data_min_max": [0, S - 1],
        "time_embed_dim": channels,
        "time_scale_factor": 1000,
        "input_channels": colours,
        "num_scales": len(widths),
        "fix_logistic": False,
    }
    for name, value in needs.items():
        if model.get(name) != value:
            raise InputError(f"its model.{name} is {model.get(name)!r}; only {value!r} is known here")
    sides = [max(height, width) // 2**i for i in range(len(widths))]
    net = Net(
        length=colours * height * width,
        grid=(height, width, colours),
        kind="unet",
        channels=channels,
        multipliers=tuple(widths),
        blocks=count_in(config, "model", "num_res_blocks"),
        attention=(sides[int(scale)],),
        condition=4 * channels,
        dropout=number_or(model, "dropout", 0.0),
        rescale=bool(model.get("skip_rescale")),
    )
    options = {
        "process": "gaussian",
        "head": "logistic-within",
        "objective": "one-pass-biased" if loss.get("one_forward_pass") else "two-pass",
        "auxiliary": number_or(loss, "nll_weight", 0.001),
        "min_time": number_or(loss, "min_time", 0.01),
        "base": number_or(model, "time_base", 3.0),
        "growth": number_or(model, "time_exponential", 100.0),
        "rate_sigma": number_or(model, "rate_sigma", 6.0),
        "target_sigma": number_or(model, "Q_sigma", 512.0),
    }
    data = "cifar10" if tuple(shape) == (3, 32, 32) else "images"
    return Description(net, S, options, tokenizer="", data=data)


def _counts(value: object) -> bool:
    """Return whether a value is a list of whole numbers from 1."""
    return isinstance(value, list) and all(type(number) is int and 1 <= number <= MOST for number in value)


def _write(description: Description) -> dict[str, Any]:
    raise InputError("the format tauldr is only written back, of what came in it; use `to` hub")


def _tokenizer(folder: Path, description: Description) -> Levels:
    return Levels(description.rows, description.net.grid, ordered=True)


def _pairs(net: Net) -> Iterator[tuple[str, str]]:
    """(published, ours): the names of the blocks and layers, without those of their parameters."""
    yield from (("temb_modules.0", "time.mlp.0"), ("temb_modules.1", "time.mlp.2"), ("input_conv", "input"))
    sides, levels = [max(net.grid[:2])], len(net.multipliers)
    while len(sides) < levels:
        sides.append((sides[-1] + 1) // 2)
    has_attention = [side in net.attention for side in sides]
    ways = (
        ("downsampling_modules", "down", range(levels), net.blocks, levels - 1),
        ("upsampling_modules", "up", reversed(range(levels)), net.blocks + 1, 0),
    )
    for published_prefix, prefix, order, blocks, last in ways:
        i = j = 0
        for level in order:
            for _ in range(blocks):
                yield f"{published_prefix}.{i}", f"{prefix}.{j}"
                i, j = i + 1, j + 1
                if has_attention[level]:
                    yield f"{published_prefix}.{i}", f"{prefix}.{j - 1}.attention"
                    i += 1
            if level != last:
                yield f"{published_prefix}.{i}.conv", f"{prefix}.{j}"
                i, j = i + 1, j + 1
    yield from (("middle_modules.0", "middle.0"), ("middle_modules.1", "middle.0.attention"))
    yield from (("middle_modules.2", "middle.1"), ("output_modules.0", "norm"))


BLOCK = {"groupnorm0": "norm1", "conv0": "conv1", "dense0": "shift", "groupnorm1": "norm2", "conv1": "conv2"}


def to_ours(tensors: Mapping[str, Tensor], net: Net) -> dict[str, Tensor]:
    """Published tensors under our names and in our shapes; what is left over keeps its name.
    InputError where one is missing."""
    left, state = dict(tensors), {}

    def take(name: str) -> Tensor:
        if name not in left:
            raise InputError(f"checkpoint does not fit: 1 key missing ({name}); the format is tauldr")
        return left.pop(name)

    for published_name, own_name in _pairs(net):
        if own_name.endswith("attention"):
            state |= {
                f"{own_name}.norm.{part}": take(f"{published_name}.GroupNorm_0.{part}") for part in ("weight", "bias")
            }
            state[f"{own_name}.qkv.weight"] = torch.cat([take(f"{published_name}.NIN_{i}.W").T for i in range(3)])
            state[f"{own_name}.qkv.bias"] = torch.cat([take(f"{published_name}.NIN_{i}.b") for i in range(3)])
            state[f"{own_name}.out.weight"], state[f"{own_name}.out.bias"] = (
                take(f"{published_name}.NIN_3.W").T,
                take(f"{published_name}.NIN_3.b"),
            )
        elif f"{published_name}.conv0.weight" in left:
            for layer, name in BLOCK.items():
                state |= {
                    f"{own_name}.{name}.{part}": take(f"{published_name}.{layer}.{part}") for part in ("weight", "bias")
                }
            if f"{published_name}.nin.W" in left:
                state[f"{own_name}.shortcut.weight"] = take(f"{published_name}.nin.W").T[:, :, None, None]
                state[f"{own_name}.shortcut.bias"] = take(f"{published_name}.nin.b")
        else:
            state |= {f"{own_name}.{part}": take(f"{published_name}.{part}") for part in ("weight", "bias")}
    return state | _ends(take("output_modules.1.weight"), take("output_modules.1.bias"), net) | left


def _ends(weight: Tensor, bias: Tensor, net: Net) -> dict[str, Tensor]:
    """One convolution to all means, then all scales, as ours: of each colour's D features the first is its mean, the
    second its scale, and the head reads these."""
    colours, D = net.grid[2], net.channels
    features = weight.new_zeros(colours, D, *weight.shape[1:])
    features[:, :2] = weight.unflatten(0, (2, colours)).transpose(0, 1)
    biases = bias.new_zeros(colours, D)
    biases[:, :2] = bias.unflatten(0, (2, colours)).T
    return {
        "output.weight": features.flatten(0, 1),
        "output.bias": biases.flatten(),
        "head.weight": torch.eye(2, D).to(weight),
        "head.bias": bias.new_zeros(2),
    }


def to_theirs(tensors: Mapping[str, Tensor], net: Net) -> dict[str, Tensor]:
    """The way back; a trained head is multiplied into the last convolution."""
    state: dict[str, Tensor] = {}
    for published_name, own_name in _pairs(net):
        if own_name.endswith("attention"):
            state |= {
                f"{published_name}.GroupNorm_0.{part}": tensors[f"{own_name}.norm.{part}"]
                for part in ("weight", "bias")
            }
            for i, (W, b) in enumerate(
                zip(tensors[f"{own_name}.qkv.weight"].chunk(3), tensors[f"{own_name}.qkv.bias"].chunk(3))
            ):
                state |= {f"{published_name}.NIN_{i}.W": W.T, f"{published_name}.NIN_{i}.b": b}
            state |= {
                f"{published_name}.NIN_3.W": tensors[f"{own_name}.out.weight"].T,
                f"{published_name}.NIN_3.b": tensors[f"{own_name}.out.bias"],
            }
        elif f"{own_name}.conv1.weight" in tensors:
            for layer, name in BLOCK.items():
                state |= {
                    f"{published_name}.{layer}.{part}": tensors[f"{own_name}.{name}.{part}"]
                    for part in ("weight", "bias")
                }
            if f"{own_name}.shortcut.weight" in tensors:
                state |= {f"{published_name}.nin.W": tensors[f"{own_name}.shortcut.weight"][:, :, 0, 0].T}
                state |= {f"{published_name}.nin.b": tensors[f"{own_name}.shortcut.bias"]}
        else:
            state |= {f"{published_name}.{part}": tensors[f"{own_name}.{part}"] for part in ("weight", "bias")}
    colours, head = net.grid[2], tensors["head.weight"]
    weight = torch.einsum("kd,cd...->kc...", head, tensors["output.weight"].unflatten(0, (colours, -1)))
    bias = head @ tensors["output.bias"].view(colours, -1).T + tensors["head.bias"][:, None]
    state |= {"output_modules.1.weight": weight.flatten(0, 1), "output_modules.1.bias": bias.flatten()}
    return {name: tensor.contiguous() for name, tensor in state.items()}


def _same(name: str) -> str:
    return name


LAYOUT = Layout(
    "tauldr", "tauldr", "tauLDR's U-Net of images", "net.", _knows, _read, _write, _same, _same, list,
    strips=("net.", "module.", "model."), tokenizer=_tokenizer, usual=USUAL, convert=to_ours, revert=to_theirs,
)  # fmt: skip
