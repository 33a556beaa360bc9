"""Adapters: low-rank products beside the matrices of a network (LoRA, arXiv 2106.09685), by the library peft.

    W x + alpha / rank B A x        W is the base's, frozen; A (rank, inputs) and B (outputs, rank) are trained    eq. 3

`inject` puts them into a network for training. A model that is loaded has them added to W (`merge`): so it is a network
as any other, as fast, and everything works on it.
"""

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from torch import nn

from ..base.errors import InputError, nearest, not_installed
from ..base.schema import shown
from ..methods.method import Method
from ..nn.linear import Linear
from .config import Adapter

_AGAIN = "copy the folder again"
_PREFIX, _LORA = "base_model.model.", re.compile(r"\.(lora_[AB])\.(?:default\.)?weight$")


def of_adapter(name: str) -> bool:
    """Return whether a tensor of a method belongs to an adapter."""
    return _LORA.search(name) is not None


def peft_name(name: str) -> str:
    """The name that peft gives to a tensor of an adapter on disk.

    >>> peft_name("network.layers.0.query.lora_A.default.weight")
    'base_model.model.layers.0.query.lora_A.weight'
    """
    return _PREFIX + _LORA.sub(r".\1.weight", name.removeprefix("network."))


def own_name(name: str) -> str:
    """The name in a method of a tensor that peft names so; the way back.

    >>> own_name("base_model.model.layers.0.query.lora_A.weight")
    'network.layers.0.query.lora_A.default.weight'
    """
    return "network." + _LORA.sub(r".\1.default.weight", name.removeprefix(_PREFIX))


def check_peft(what: str) -> None:
    """InputError where the library is not installed; it is not imported yet, which takes seconds."""
    if sys.modules.get("peft", "") is None or importlib.util.find_spec("peft") is None:
        raise not_installed(what, "peft", "tune")


def load_peft(what: str) -> Any:
    """The library; InputError where it is not installed."""
    check_peft(what)
    import peft

    return peft


def projections(network: nn.Module) -> dict[str, int]:
    """The linear projections in the blocks of a network, of attention and MLP: as a block calls them, and how many
    there are.

    >>> from zellige.nn import DiT, Net
    >>> projections(DiT(Net(layers=2, hidden=8, heads=2, length=4), 5))
    {'qkv': 2, 'out': 2, 'mlp.0': 2, 'mlp.2': 2}
    """
    lists = {name for name, module in network.named_modules() if isinstance(module, nn.ModuleList)}
    counts: dict[str, int] = {}
    for name, module in network.named_modules():
        parts = name.split(".")
        at = max((i for i in range(1, len(parts) - 1) if ".".join(parts[:i]) in lists), default=None)
        if at is not None and type(module) in (nn.Linear, Linear):
            kind = ".".join(parts[at + 1 :])
            counts[kind] = counts.get(kind, 0) + 1
    return counts


def resolve_targets(network: nn.Module, targets: tuple[str, ...]) -> tuple[str, ...]:
    """The projections that are adapted, all where none are named; "out" is also "attention.out".

    Raises:
        InputError: there is none of that name; the network has none at all.
    """
    there = list(projections(network))
    if not there:
        raise InputError(f"the network ({type(network).__name__}) has no blocks with linear projections to adapt")
    chosen = []
    for target in targets or there:
        matches = [name for name in there if name == target or name.endswith(f".{target}")]
        if not matches:
            near = nearest(target, there)
            hint = f"did you mean '{near}'? " if near else ""
            raise InputError(
                f"`targets` names '{target}', which is no projection of the network; {hint}it has {', '.join(there)}"
            )
        chosen += matches
    return tuple(dict.fromkeys(chosen))


def lora_config(adapter: Adapter, base: str) -> Any:
    """The same in peft's words."""
    names = "|".join(name.replace(".", r"\.") for name in adapter.targets)
    return load_peft("an adapter").LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=rf".*\.\d+\.({names})",
        base_model_name_or_path=base,
    )


def write_adapter(folder: Path, adapter: Adapter, base: str) -> None:
    """Write adapter_config.json."""
    lora_config(adapter, base).save_pretrained(str(folder))


def inject(method: Method, config: Any) -> Any:
    """Put adapters into the network of a method, all else frozen; peft's model of it, whose `merge_and_unload` takes
    them out.

    Args:
        config: peft's, as `lora_config` makes it.
    """
    method.requires_grad_(False)
    tuned = load_peft("an adapter").LoraModel(method.network, config, "default")
    for p in method.parameters():
        if p.requires_grad:
            p.data = p.data.float()  # in bfloat16 small steps would be rounded away
    return tuned


def merge(method: Method, folder: Path, place: Any) -> None:
    """Add an adapter to the matrices of a method.

    Args:
        folder: holds adapter_config.json.
        place: puts the adapter's tensors into the method.

    Raises:
        InputError: the file is damaged, or names matrices that the network has not; what `place` raises.
    """
    peft = load_peft("a tuned model")
    try:
        tuned = inject(method, peft.LoraConfig.from_pretrained(str(folder)))
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        reason = " ".join(str(problem).split())[:120].rstrip(".")
        raise InputError(f"'{shown(folder)}' holds no adapter of this network ({reason}); {_AGAIN}") from None
    place()
    tuned.merge_and_unload(safe_merge=True)
    method.requires_grad_(True)
