"""GPT-2 in the names of transformers' `GPT2LMHeadModel`, and the diffusion models that begin with it.

    gpt2           causal, method `ar`: GPT-2 itself, and others of its architecture
    a2d-gpt2       every position sees every other, `mdlm`: GPT-2 trained further by dllm
    gpt2-blocks    in blocks, `bd3lm`; a layout of Zellige's own, with GPT-2's names

The last two may begin with the first, as the layouts of `qwen` do: the hidden state at i says the token at i, and the
mask is a token more, in a row that is added to the table, the mean of the others.
"""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zellige.nn.block import Net

from .dream import bpe_tokenizer
from .layout import count_in
from .llama import number_in, require
from .nn.gpt2 import GPT2, GPT2Layer
from .nn.llama import LlamaNet
from .qwen import Family, layout_of_family

NEEDS = {
    "activation_function": ("gelu_new", None),
    "add_cross_attention": (False, None),
    "reorder_and_upcast_attn": (False, None),
    "scale_attn_by_inverse_layer_idx": (False, None),
    "scale_attn_weights": (True, None),
    "tie_word_embeddings": (True, None),
}
PARTS = {
    "norm1": "ln_1",
    "qkv": "attn.c_attn",
    "out": "attn.c_proj",
    "norm2": "ln_2",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}
WHOLE = {"embedding": "wte", "places": "wpe", "norm": "ln_f"}
OURS = {theirs: ours for names in (PARTS, WHOLE) for ours, theirs in names.items()}
TRIANGLES = re.compile(r"h\.\d+\.attn\.(masked_)?bias")  # older files hold the causal mask, which is no parameter


def gpt2_net(config: Mapping[str, Any], system: str, shift: bool = False) -> LlamaNet:
    """The network of a config.json. InputError where it means another one."""
    require(config, NEEDS, system)
    D, heads = count_in(config, "n_embd"), count_in(config, "n_head")
    inner = 4 * D if config.get("n_inner") is None else count_in(config, "n_inner")
    return LlamaNet(
        count_in(config, "n_layer"), D, heads, heads, inner, count_in(config, "vocab_size"), count_in(config, "n_positions"),
        eps=number_in(config, "layer_norm_epsilon"), shift=shift, tied=True,
    )  # fmt: skip


def ours(key: str) -> str:
    """A published name, without `transformer.`, in our network's words.

    >>> ours("h.3.attn.c_attn.weight"), theirs("layers.3.qkv.columns"), ours("wpe.weight")
    ('layers.3.qkv.columns', 'h.3.attn.c_attn.weight', 'places.weight')
    """
    layer = re.fullmatch(r"h\.(\d+)\.(.+)\.(weight|bias)", key)
    if layer and layer[2] in OURS:
        end = "columns" if layer[3] == "weight" and OURS[layer[2]] in GPT2Layer.matrices else layer[3]
        return f"layers.{layer[1]}.{OURS[layer[2]]}.{end}"
    name, _, end = key.rpartition(".")
    return f"{OURS[name]}.{end}" if name in OURS else key


def theirs(key: str) -> str:
    """The way back."""
    first, *others = key.split(".")
    if first == "layers":
        return f"h.{others[0]}.{PARTS[others[1]]}.{others[2].replace('columns', 'weight')}"
    return ".".join((WHOLE[first], *others))


def _parameters(tensors: Mapping[str, Tensor], net: Net) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if not TRIANGLES.fullmatch(name)}


GPT = Family(
    gpt2_net,
    lambda net, states, block, config: GPT2(net, states, block, count_in(config, "n_positions")),
    ours,
    theirs,
    ("wte.weight",),
    lambda folder: bpe_tokenizer(folder, None),
    ("transformer.",),
    _parameters,
)
_BEGINS = {
    name: {"gpt2": {"architectures": architectures, "model_type": name}}
    for name, architectures in (("a2d-gpt2", ["A2DGPT2LMHeadModel"]), ("gpt2-blocks", []))
}
LAYOUTS = [
    layout_of_family(GPT, "gpt2", "ar", "GPT-2, autoregressive", "GPT-2", ("gpt2",), {}),
    layout_of_family(GPT, "a2d-gpt2", "mdlm", "GPT-2 in both directions", "A2D", ("a2d-gpt2",), _BEGINS["a2d-gpt2"]),
    layout_of_family(
        GPT,
        "gpt2-blocks",
        "bd3lm",
        "GPT-2 in blocks",
        "GPT-2 in blocks",
        ("gpt2-blocks",),
        _BEGINS["gpt2-blocks"],
        "block_size",
        4,
    ),
]
