"""The names of the DDiT's parameters: SEDD's, which RADD, MDLM, BD3-LM, UDLM and Duo have kept. The one table of them."""

import re
from collections.abc import Sequence

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
