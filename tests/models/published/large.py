"""LLaDA and Dream in the layout they are published in, only small: config.json, tokenizer files, weights in several files.

LLADA and DREAM are the published configs; `config` has other numbers in the place of each, no two of them equal.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLADA = {  # GSAI-ML/LLaDA-8B-Instruct, config.json
    "activation_type": "silu", "alibi": False, "alibi_bias_max": 8.0, "architectures": ["LLaDAModelLM"],
    "attention_dropout": 0.0, "attention_layer_norm": False, "attention_layer_norm_with_affine": True,
    "auto_map": {
        "AutoConfig": "configuration_llada.LLaDAConfig", "AutoModelForCausalLM": "modeling_llada.LLaDAModelLM",
        "AutoModel": "modeling_llada.LLaDAModelLM",
    },
    "bias_for_layer_norm": False, "block_group_size": 1, "block_type": "llama", "d_model": 4096, "embedding_dropout": 0.0,
    "embedding_size": 126464, "eos_token_id": 126081, "flash_attention": False, "include_bias": False,
    "include_qkv_bias": False, "init_cutoff_factor": None, "init_device": "meta", "init_fn": "mitchell", "init_std": 0.02,
    "input_emb_norm": False, "layer_norm_type": "rms", "layer_norm_with_affine": True, "mask_token_id": 126336,
    "max_sequence_length": 4096, "mlp_hidden_size": 12288, "mlp_ratio": 4, "model_type": "llada",
    "multi_query_attention": None, "n_heads": 32, "n_kv_heads": 32, "n_layers": 32, "pad_token_id": 126081,
    "precision": "amp_bf16", "residual_dropout": 0.0, "rms_norm_eps": 1e-05, "rope": True, "rope_full_precision": True,
    "rope_theta": 500000.0, "scale_logits": False, "transformers_version": "4.46.3", "use_cache": False,
    "vocab_size": 126464, "weight_tying": False,
}  # fmt: skip
DREAM = {  # Dream-org/Dream-v0-Instruct-7B, the entries of config.json that say what it computes
    "architectures": ["DreamModel"],
    "auto_map": {"AutoConfig": "configuration_dream.DreamConfig", "AutoModel": "modeling_dream.DreamModel"},
    "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
    "mask_token_id": 151666, "max_position_embeddings": 131072, "max_window_layers": 28, "model_type": "Dream",
    "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "pad_token_id": 151643,
    "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": None,
    "tie_word_embeddings": False, "use_cache": False, "use_sliding_window": False, "vocab_size": 152064,
}  # fmt: skip
SPECIAL = {
    "llada": [
        "<|startoftext|>",
        "<|endoftext|>",
        "<|mdm_mask|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
    ],
    "dream": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|beginoftext|>", "<|mask|>"],
    "qwen": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "sdar": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|MASK|>"],
}
MASKS = {"llada": "<|mdm_mask|>", "dream": "<|mask|>", "qwen": "<|im_end|>", "sdar": "<|MASK|>"}
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXT = "The quick brown fox jumps over the lazy dog; it doesn't mind, and the dog didn't. 1234 café 漢字\n\n" * 20


def tokenizer(folder: Path, system: str) -> int:
    """Write the tokenizer's files; the mask's number."""
    inner = Tokenizer(models.BPE())
    inner.normalizer = normalizers.NFC()
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS), "isolated"), bytewise])
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        [TEXT], trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet, show_progress=False)
    )
    size = inner.get_vocab_size()
    if system == "dream":  # as its folder is: no tokenizer.json
        inner.model.save(str(folder))
        added = {str(size + i): {"content": token, "special": True} for i, token in enumerate(SPECIAL[system])}
        (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    else:
        inner.add_special_tokens(SPECIAL[system])
        inner.save(str(folder / "tokenizer.json"))
    return size + SPECIAL[system].index(MASKS[system])


def config(system: str, mask: int, **more) -> dict:
    """The published config.json with other numbers, the sizes small."""
    if system == "llada":
        small = {"d_model": 32, "n_layers": 3, "n_heads": 4, "n_kv_heads": 2, "mlp_hidden_size": 48, "vocab_size": 310}
        small |= {"embedding_size": 320, "max_sequence_length": 40, "rms_norm_eps": 0.03, "rope_theta": 20000.0}
        return LLADA | small | {"mask_token_id": mask} | more
    small = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
    small |= {"intermediate_size": 48, "vocab_size": 320, "max_position_embeddings": 40}
    small |= {"rms_norm_eps": 0.02, "rope_theta": 30000.0}
    return DREAM | small | {"mask_token_id": mask} | more


def shapes(system: str, config: dict) -> dict[str, tuple[int, ...]]:
    """The published tensors and their shapes, written down from the published index files."""
    if system == "llada":
        D, inner, rows = config["d_model"], config["mlp_hidden_size"], config["embedding_size"]
        at, shared = "model.transformer", config["n_kv_heads"] * (D // config["n_heads"])
        found = {f"{at}.wte.weight": (rows, D), f"{at}.ff_out.weight": (rows, D), f"{at}.ln_f.weight": (D,)}
        for i in range(config["n_layers"]):
            for part, shape in {
                "attn_norm": (D,), "attn_out": (D, D), "ff_norm": (D,), "ff_out": (D, inner), "ff_proj": (inner, D),
                "k_proj": (shared, D), "q_proj": (D, D), "up_proj": (inner, D), "v_proj": (shared, D),
            }.items():  # fmt: skip
                found[f"{at}.blocks.{i}.{part}.weight"] = shape
        return found
    D, inner, rows = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    shared = config["num_key_value_heads"] * (D // config["num_attention_heads"])
    found = {"model.embed_tokens.weight": (rows, D), "lm_head.weight": (rows, D), "model.norm.weight": (D,)}
    for i in range(config["num_hidden_layers"]):
        for part, shape in {
            "input_layernorm.weight": (D,), "post_attention_layernorm.weight": (D,), "mlp.down_proj.weight": (D, inner),
            "mlp.gate_proj.weight": (inner, D), "mlp.up_proj.weight": (inner, D), "self_attn.q_proj.weight": (D, D),
            "self_attn.q_proj.bias": (D,), "self_attn.k_proj.weight": (shared, D), "self_attn.k_proj.bias": (shared,),
            "self_attn.v_proj.weight": (shared, D), "self_attn.v_proj.bias": (shared,), "self_attn.o_proj.weight": (D, D),
        }.items():  # fmt: skip
            found[f"model.layers.{i}.{part}"] = shape
    return found


def weights(system: str, config: dict, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """Random tensors of these shapes, none of them a zero or a one that could hide."""
    g, found = torch.Generator().manual_seed(0), {}
    for name, shape in shapes(system, config).items():
        value = torch.randn(shape, generator=g) * (0.2 if len(shape) == 1 else shape[-1] ** -0.5)
        found[name] = (value + ("norm" in name or "ln_f" in name)).to(dtype)
    return found


def write(folder: Path, config: dict, weights: dict[str, torch.Tensor], files: int = 3) -> Path:
    """A folder as on the hub: several safetensors files and their index, or one file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    if files == 1:
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        return folder
    where = {name: f"model-{1 + i % files:05d}-of-{files:05d}.safetensors" for i, name in enumerate(sorted(weights))}
    for file in set(where.values()):
        save_file({n: weights[n] for n in weights if where[n] == file}, folder / file, {"format": "pt"})
    total = sum(t.numel() * t.element_size() for t in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def published(
    folder: Path, system: str, dtype: torch.dtype = torch.float32, files: int = 3, **more
) -> tuple[dict, dict]:
    """A whole folder; its config and its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    said = config(system, tokenizer(folder, system), **more)
    made = weights(system, said, dtype)
    write(folder, said, made, files)
    return said, made
