"""Qwen3, Qwen2 and Llama in the names of transformers: SDAR, Fast-dLLM v2, A2D, and the autoregressive models they
begin with.

    llama           causal, method `ar`: Qwen3, Qwen2 and Llama themselves
    sdar            in blocks, method `bd3lm`: SDAR (arXiv 2510.06303) and TraDo, Qwen3 with a block-causal mask
    fast-dllm-v2    in blocks and with the shift kept, `bd3lm`: Fast-dLLM v2 (arXiv 2509.26328), Qwen2 with a block-causal mask
    a2d             every position sees every other, `mdlm`: Qwen3, Qwen2 or Llama trained further by dllm

The last three may begin with a model of the first (`system`): the mask is then a token more, in the first row of the
tables that no token has, or in a row that is added. It begins as the mean of the other rows.

A block's noisy tokens see the clean blocks before, as in BD3-LM. Fast-dLLM v2 reads the first token of a block from the
clean token before it (`Llama.features`), and the published samplers draw it before the others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zellige.base.errors import InputError
from zellige.data.tokenizer import Tokens
from zellige.nn.block import Net

from .layout import Description, Layout, Shapes, begin_in, count_in, entries_in
from .llama import TRANSFORMERS, fitting, number_in, require, with_mask
from .nn.llama import Llama, LlamaNet

LENGTH = 4096  # tokens of a text unless `length` says otherwise: configs admit 32,768 and more, which costs memory
SAME = {
    "hidden_act": "silu",
    "mlp_bias": (False, None),
    "rope_scaling": (None,),
    "tie_word_embeddings": (False, True, None),
    "use_sliding_window": (False, None),
}
QWEN3 = ("qwen3", "sdar", "a2d-qwen3")  # model_type: heads normalised and of their own width, no biases
QWEN2 = ("qwen2", "Fast_dLLM_Qwen", "a2d-qwen2")  # biases at queries, keys and values
LLAMA = ("llama", "a2d-llama")


def kind(config: Mapping[str, Any]) -> str:
    """`model_type` of a config.json, "" where it has none."""
    value = config.get("model_type")
    return value if isinstance(value, str) else ""


def qwen_net(config: Mapping[str, Any], system: str, shift: bool = False) -> LlamaNet:
    """The network of a config.json of Qwen3's, Qwen2's or Llama's kind.

    Raises:
        InputError: it means another network (scaled rotary frequencies, a window, other biases); an entry is missing.
    """
    require(config, SAME if kind(config) in QWEN2 else SAME | {"attention_bias": (False, None)}, system)
    kinds = config.get("layer_types")
    if kinds is not None and (not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds)):
        require(config, {"layer_types": (None,)}, system)
    rope = entries_in(config, "rope_parameters")  # as transformers 5 writes it
    require(rope, {"rope_type": ("default", None)}, system)
    heads = count_in(config, "num_attention_heads")
    return LlamaNet(
        layers=count_in(config, "num_hidden_layers"),
        hidden=count_in(config, "hidden_size"),
        heads=heads,
        shared=heads if config.get("num_key_value_heads") is None else count_in(config, "num_key_value_heads"),
        inner=count_in(config, "intermediate_size"),
        rows=count_in(config, "vocab_size"),
        length=min(count_in(config, "max_position_embeddings"), LENGTH),
        base=number_in(rope if "rope_theta" in rope else config, "rope_theta"),
        eps=number_in(config, "rms_norm_eps"),
        bias=kind(config) in QWEN2,
        shift=shift,
        width=0 if config.get("head_dim") is None else count_in(config, "head_dim"),
        head_norms=kind(config) in QWEN3,
        tied=bool(config.get("tie_word_embeddings")),
    )


@dataclass(frozen=True)
class Family:
    """Networks of one kind, as transformers publishes them.

    Attributes:
        net: (config.json, the layout for people, whether the shift is kept) -> the sizes; raises InputError.
        network: (sizes, states, block, config.json) -> the network.
        ours, theirs: names of its tensors, as in `Layout`.
        tables: as in `Layout`.
        tokenizer: of a folder.
        strips, convert: as in `Layout`.
    """

    net: Callable[[Mapping[str, Any], str, bool], LlamaNet]
    network: Callable[[LlamaNet, int, int, Mapping[str, Any]], Llama]
    ours: Callable[[str], str]
    theirs: Callable[[str], str]
    tables: tuple[str, ...]
    tokenizer: Callable[[Path], Tokens]
    strips: tuple[str, ...] = ()
    convert: Callable[[Mapping[str, Tensor], Net], dict[str, Tensor]] | None = None


def layout_of_family(
    family: Family,
    name: str,
    method: str,
    about: str,
    system: str,
    kinds: tuple[str, ...],
    begins: Mapping[str, dict[str, Any]],
    block: str = "",
    usual: int = 0,
    mask: int | None = None,
    shift: bool = False,
) -> Layout:
    """The layout of models of one family and one method.

    Args:
        kinds: `model_type` of its config.json.
        begins: `model_type` of a model that one of its own may begin with -> the entries that make that its own.
        block: the entry with the tokens of a block, and how many they are where it is left out.
        mask: the number of the mask where neither config.json nor the tokenizer says it.
    """
    causal = method == "ar"

    def read(config: Mapping[str, Any], shapes: Shapes) -> Description:
        n = family.net(config, system, shift)
        options: dict[str, Any] = {}
        if block:
            options["block"] = usual if config.get(block) is None else count_in(config, block)
        if causal:
            options |= begin_in(config)
        token = config.get("mask_token_id")
        token = None if causal else mask if token is None else count_in(config, "mask_token_id")
        return Description(Net(n.layers, n.hidden, n.heads, n.length), n.rows, options, tokenizer="", mask=token)

    def write(description: Description) -> dict[str, Any]:
        raise InputError(f"the format {name} is for the networks that were published in it; choose another with `to`")

    def words(folder: Path, description: Description) -> Tokens:
        vocabulary = family.tokenizer(folder)
        if not causal:
            vocabulary = with_mask(vocabulary, folder, description.mask)
        return fitting(vocabulary, description.rows + 1)

    def build(config: Mapping[str, Any], description: Description) -> Llama:
        n, states = family.net(config, system, shift), description.rows + causal
        n = replace(n, length=description.net.length, rows=max(n.rows, states))
        with torch.device("meta"):  # its tensors are put in as they are, in the precision that they have
            return family.network(n, states, 1 if causal else description.options.get("block", 0), config)

    def adopt(config: Mapping[str, Any]) -> dict[str, Any] | None:
        more = begins.get(kind(config))
        return None if more is None else {**config, **more}

    def revise(config: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        said, revised = read(config, {}), dict(config)
        if block and options["block"] != said.options["block"]:
            revised[block] = options["block"]
        if not causal and options["mask"] != said.mask:
            revised["mask_token_id"] = options["mask"]
        if not causal:  # the mask's row, where one was added
            revised["vocab_size"] = max(count_in(config, "vocab_size"), options["mask"] + 1)
        return revised

    return Layout(
        name, method, about, "", lambda config: kind(config) in kinds, read, write, family.ours, family.theirs,
        build=build, tokenizer=words, adopt=adopt, revise=revise, tables=family.tables, strips=family.strips,
        convert=family.convert, twins={"lm_head.weight": family.tables[0]},
    )  # fmt: skip


def _words(folder: Path) -> Tokens:
    from .dream import dream_tokenizer

    return dream_tokenizer(folder, None)


QWEN = Family(
    qwen_net,
    lambda net, states, block, config: Llama(net, states, block),
    TRANSFORMERS.ours,
    TRANSFORMERS.theirs,
    ("model.embed_tokens.weight", "lm_head.weight"),
    _words,
)


def _remote(module: str, config: str, model: str) -> dict[str, str]:
    """`auto_map`: the classes of the published code, which transformers runs if it is trusted; here nothing is run."""
    return {
        "AutoConfig": f"configuration_{module}.{config}" if module else f"configuration.{config}",
        "AutoModelForCausalLM": f"modeling_{module}.{model}" if module else f"modeling.{model}",
    }


_SDAR = {
    "architectures": ["SDARForCausalLM"],
    "model_type": "sdar",
    "auto_map": _remote("sdar", "SDARConfig", "SDARForCausalLM"),
}
_FAST = {
    "architectures": ["Fast_dLLM_QwenForCausalLM"],
    "model_type": "Fast_dLLM_Qwen",
    "auto_map": _remote("", "Fast_dLLM_QwenConfig", "Fast_dLLM_QwenForCausalLM"),
}
_A2D = {
    size.lower(): {"architectures": [f"A2D{size}LMHeadModel"], "model_type": f"a2d-{size.lower()}"}
    for size in ("Qwen3", "Qwen2", "Llama")
}
LAYOUTS = [
    layout_of_family(QWEN, "llama", "ar", "Qwen3, Qwen2 or Llama, autoregressive", "Llama", ("qwen3", "qwen2", "llama"), {}),
    layout_of_family(
        QWEN, "sdar", "bd3lm", "SDAR or TraDo, Qwen3 in blocks", "SDAR", ("sdar",), dict.fromkeys(("qwen3", "a2d-qwen3"), _SDAR),
        "block_size", 4, 151669,
    ),
    layout_of_family(
        QWEN, "fast-dllm-v2", "bd3lm", "Fast-dLLM v2, Qwen2 in blocks, shifted", "Fast-dLLM v2", ("Fast_dLLM_Qwen",),
        {"qwen2": _FAST}, "bd_size", 32, 151665, shift=True,
    ),
    layout_of_family(
        QWEN, "a2d", "mdlm", "Qwen3, Qwen2 or Llama in both directions", "A2D", tuple(f"a2d-{of}" for of in _A2D), _A2D
    ),
]  # fmt: skip
