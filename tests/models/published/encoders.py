"""BERT, MosaicBERT and ModernBERT in the layout they are published in, only small: config.json, tokenizer.json, one file.

No number is the published one or a default, and no two that could be taken for each other are equal.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

SYSTEMS = ["bert", "mosaicbert", "modernbert"]
WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnop"),
    "the", "cat", "dog", "saw", "it", "a", ".", ",",
]  # fmt: skip
MASK = WORDS.index("[MASK]")
CONFIGS = {
    "bert": {  # google-bert/bert-base-uncased, config.json
        "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.3, "gradient_checkpointing": False,
        "hidden_act": "gelu", "hidden_dropout_prob": 0.2, "initializer_range": 0.02, "layer_norm_eps": 0.03,
        "model_type": "bert", "pad_token_id": 0, "position_embedding_type": "absolute", "type_vocab_size": 3,
        "use_cache": True,
    },
    "mosaicbert": {  # mosaicml/mosaic-bert-base
        "alibi_starting_size": 512, "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.4,
        "auto_map": {"AutoModelForMaskedLM": "bert_layers.BertForMaskedLM"}, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.2, "layer_norm_eps": 0.02, "model_type": "bert", "type_vocab_size": 3,
    },
    "modernbert": {  # answerdotai/ModernBERT-base
        "architectures": ["ModernBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.3,
        "classifier_activation": "gelu", "classifier_bias": False, "decoder_bias": True, "embedding_dropout": 0.0,
        "global_attn_every_n_layers": 2, "global_rope_theta": 20000.0, "hidden_activation": "gelu",
        "local_attention": 6, "local_rope_theta": 3000.0, "mlp_bias": False, "mlp_dropout": 0.0,
        "model_type": "modernbert", "norm_bias": False, "norm_eps": 0.04, "pad_token_id": 0,
    },
}  # fmt: skip


def config(system: str, **more) -> dict:
    """The published config.json with small sizes; the table has two rows more than there are tokens."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
    return CONFIGS[system] | sizes | {"max_position_embeddings": 40, "vocab_size": len(WORDS) + 2} | more


def tokenizer(folder: Path, words: list[str] = WORDS) -> None:
    """Write a tokenizer.json of BERT's kind."""
    inner = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    inner.add_special_tokens([word for word in words if word.startswith("[")])
    inner.save(str(folder / "tokenizer.json"))


def shapes(system: str, said: dict) -> dict[str, tuple[int, ...]]:
    """The published tensors and their shapes, without those that are tied."""
    D, inner, rows = said["hidden_size"], said["intermediate_size"], said["vocab_size"]
    linear = lambda name, out, into: {f"{name}.weight": (out, into), f"{name}.bias": (out,)}  # noqa: E731
    norm = lambda name: {f"{name}.weight": (D,), f"{name}.bias": (D,)}  # noqa: E731
    found: dict[str, tuple[int, ...]] = {}
    if system == "modernbert":
        for name in ("model.embeddings.norm", "model.final_norm", "head.norm"):
            found[f"{name}.weight"] = (D,)
        found |= {
            "model.embeddings.tok_embeddings.weight": (rows, D),
            "head.dense.weight": (D, D),
            "decoder.bias": (rows,),
        }
        for i in range(said["num_hidden_layers"]):
            at = f"model.layers.{i}"
            found |= {f"{at}.attn_norm.weight": (D,)} if i else {}
            found |= {
                f"{at}.attn.Wqkv.weight": (3 * D, D),
                f"{at}.attn.Wo.weight": (D, D),
                f"{at}.mlp_norm.weight": (D,),
            }
            found |= {f"{at}.mlp.Wi.weight": (2 * inner, D), f"{at}.mlp.Wo.weight": (D, inner)}
        return found
    found |= {
        "bert.embeddings.word_embeddings.weight": (rows, D),
        "bert.embeddings.token_type_embeddings.weight": (said["type_vocab_size"], D),
        **norm("bert.embeddings.LayerNorm"),
        **linear("cls.predictions.transform.dense", D, D),
        **norm("cls.predictions.transform.LayerNorm"),
    }
    mosaic = system == "mosaicbert"
    found["cls.predictions.decoder.bias" if mosaic else "cls.predictions.bias"] = (rows,)
    if not mosaic:
        found["bert.embeddings.position_embeddings.weight"] = (said["max_position_embeddings"], D)
    for i in range(said["num_hidden_layers"]):
        at = f"bert.encoder.layer.{i}"
        found |= linear(f"{at}.attention.output.dense", D, D) | norm(f"{at}.attention.output.LayerNorm")
        if mosaic:
            found |= linear(f"{at}.attention.self.Wqkv", 3 * D, D) | linear(f"{at}.mlp.wo", D, inner)
            found |= norm(f"{at}.mlp.layernorm") | {f"{at}.mlp.gated_layers.weight": (2 * inner, D)}
            continue
        for name in ("query", "key", "value"):
            found |= linear(f"{at}.attention.self.{name}", D, D)
        found |= linear(f"{at}.intermediate.dense", inner, D) | linear(f"{at}.output.dense", D, inner)
        found |= norm(f"{at}.output.LayerNorm")
    return found


def weights(system: str, said: dict) -> dict[str, torch.Tensor]:
    """Random tensors of these shapes, none of them a zero or a one that could hide."""
    g, found = torch.Generator().manual_seed(0), {}
    for name, shape in shapes(system, said).items():
        value = torch.randn(shape, generator=g) * (0.2 if len(shape) == 1 else shape[-1] ** -0.5)
        found[name] = value + ("norm" in name.lower() and name.endswith("weight"))
    return found


def published(folder: Path, system: str, tensors: dict | None = None, **more) -> tuple[dict, dict]:
    """A whole folder; its config and its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    said = config(system, **more)
    made = weights(system, said) if tensors is None else tensors
    (folder / "config.json").write_text(json.dumps(said, indent=2))
    save_file(made, folder / "model.safetensors", {"format": "pt"})
    tokenizer(folder)
    return said, made
