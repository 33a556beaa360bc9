"""LLaDA: large language diffusion models (Nie et al. 2025, arXiv 2502.09992), and LLaDA 1.5 (Zhu et al. 2025, arXiv
2505.19223).

    network     a Llama of 8 billion weights that reads in both directions; no time input, no shift
    noise       a token is masked with probability t
    bound       E_t [ 1/t sum over the masks of -log p(x_0 | x_t) ]: MDLM's, of a time-free network
    likelihood  E_k [ L/k sum over exactly k masks of -log p(x_0 | x_k) ]: the estimator `any_order`

The mask, 126336, stands among the tokens, before those of the chat format; states keep their published numbers. The
tables have more rows (126,464) than there are tokens: rows without a token are neither input nor prediction.
"""

from collections.abc import Mapping
from typing import Any

from .layout import count_in
from .llama import Names, llama_layout, llama_tokenizer, number_in, require
from .nn.llama import LlamaNet

NAMES = Names(
    "model.transformer.wte",
    "model.transformer.blocks.",
    ("attn_norm", "q_proj", "k_proj", "v_proj", "attn_out", "ff_norm", "ff_proj", "up_proj", "ff_out"),
    "model.transformer.ln_f",
    "model.transformer.ff_out",
)
NEEDS = {  # what LLaDAConfig means where an entry is left out is GPT-2's: so some must be said
    "activation_type": "silu",
    "block_type": "llama",
    "layer_norm_type": "rms",
    "rope": True,
    "weight_tying": False,
    "alibi": (False, None),
    "attention_layer_norm": (False, None),
    "bias_for_layer_norm": (False, None),
    "block_group_size": (1, None),
    "include_bias": (False, None),
    "input_emb_norm": (False, None),
    "layer_norm_with_affine": (True, None),
    "multi_query_attention": (None, False),
    "scale_logits": (False, None),
}


def llada_net(config: Mapping[str, Any]) -> LlamaNet:
    """The network of a published config.json (`LLaDAConfig`)."""
    require(config, NEEDS, "LLaDA")
    return LlamaNet(
        layers=count_in(config, "n_layers"),
        hidden=count_in(config, "d_model"),
        heads=count_in(config, "n_heads"),
        shared=count_in(config, "n_heads" if config.get("n_kv_heads") is None else "n_kv_heads"),
        inner=count_in(config, "mlp_hidden_size"),
        rows=count_in(config, "vocab_size" if config.get("embedding_size") is None else "embedding_size"),
        length=count_in(config, "max_sequence_length"),
        base=number_in(config, "rope_theta"),
        eps=number_in(config, "rms_norm_eps"),
        bias=bool(config.get("include_qkv_bias")),
    )


LAYOUT = llama_layout("llada", "LLaDA 8B, a Llama in both directions", "llada", NAMES, llada_net, llama_tokenizer)
