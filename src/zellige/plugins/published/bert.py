"""BERT, MosaicBERT and ModernBERT: encoders that fill masks, as masked diffusion models that are to be trained further.

    network     `nn.Bert`; no time input; the table of the outputs is that of the embeddings
    mask        [MASK] of the tokenizer, by its number
    bound       MDLM's, of a time-free network; one that was trained on 15% or 30% of masks has a poor one before it is trained on
                all shares of them (Sahoo et al. 2024, arXiv 2406.07524, section 5.1)

Only safetensors are read. What stands in a file beside the model of masks (the pooler and the next-sentence head of
BERT) is left out. A text alone is of BERT's first token type throughout.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zellige.base.errors import InputError
from zellige.base.schema import read_json
from zellige.data.tokenizer import Tokens, load
from zellige.nn.block import Net

from .layout import Description, Layout, Shapes, count_in, count_or, entries_in, number_or
from .llama import complete, require
from .nn.bert import Bert, BertNet
from .tokens import TOKENIZERS, named

MASKS = ("[MASK]", "<mask>")
UNCASED = "bert-base-uncased"  # the tokenizer of a folder without one


@dataclass(frozen=True)
class Names:
    """Names of the tensors of a published encoder, by ours; `layers` stands before the number of a layer.

    >>> names = Names({"norm": "emb.norm", "head.rows": "bias"}, "layer.", {"qkv": "attn.Wqkv"})
    >>> names.ours("layer.3.attn.Wqkv.bias"), names.theirs("layers.3.qkv.bias"), names.theirs("head.rows")
    ('layers.3.qkv.bias', 'layer.3.attn.Wqkv.bias', 'bias')
    >>> names.ours("emb.norm.weight")
    'norm.weight'
    """

    whole: Mapping[str, str]
    layers: str
    parts: Mapping[str, str]

    def theirs(self, key: str) -> str:
        """Our name in the published words."""
        if key in self.whole:
            return self.whole[key]
        first, *rest = key.split(".")
        if first == "layers":
            return f"{self.layers}{rest[0]}.{self.parts[rest[1]]}.{rest[2]}"
        return ".".join((self.whole[first], *rest))

    def ours(self, key: str) -> str:
        """A published name in our network's words; a name that it has not comes back as it is."""
        for name, published in self.whole.items():
            if key == published or key.startswith(f"{published}."):
                return name + key.removeprefix(published)
        match = re.fullmatch(rf"{re.escape(self.layers)}(\d+)\.(.+)\.(weight|bias)", key)
        part = next((ours for ours, theirs in self.parts.items() if match and theirs == match[2]), None)
        return f"layers.{match[1]}.{part}.{match[3]}" if match and part else key


_EMBEDDINGS, _TRANSFORM = "bert.embeddings.", "cls.predictions.transform."
_BERT = {
    "embedding": f"{_EMBEDDINGS}word_embeddings",
    "types": f"{_EMBEDDINGS}token_type_embeddings",
    "norm": f"{_EMBEDDINGS}LayerNorm",
    "transform": f"{_TRANSFORM}dense",
    "transform_norm": f"{_TRANSFORM}LayerNorm",
}
_ATTENTION = {  # BERT has queries, keys and values apart, MosaicBERT has them so
    "qkv": "attention.self.Wqkv",
    "out": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
}
BERT = Names(
    {**_BERT, "positions": f"{_EMBEDDINGS}position_embeddings", "head.rows": "cls.predictions.bias"},
    "bert.encoder.layer.",
    {**_ATTENTION, "up": "intermediate.dense", "down": "output.dense", "norm2": "output.LayerNorm"},
)
MOSAIC = Names(
    {**_BERT, "head.rows": "cls.predictions.decoder.bias"},
    "bert.encoder.layer.",
    {**_ATTENTION, "up": "mlp.gated_layers", "down": "mlp.wo", "norm2": "mlp.layernorm"},
)
MODERN = Names(
    {
        "embedding": "model.embeddings.tok_embeddings", "norm": "model.embeddings.norm", "last": "model.final_norm",
        "transform": "head.dense", "transform_norm": "head.norm", "head.rows": "decoder.bias",
    },
    "model.layers.",
    {
        "norm1": "attn_norm", "qkv": "attn.Wqkv", "out": "attn.Wo", "norm2": "mlp_norm", "up": "mlp.Wi", "down": "mlp.Wo",
    },
)  # fmt: skip
_SAME = {"is_decoder": (False, None), "tie_word_embeddings": (True, None)}
NEEDS = {
    "bert": {
        "hidden_act": ("gelu", None),
        "position_embedding_type": ("absolute", None),
        "add_cross_attention": (False, None),
        **_SAME,
    },
    "mosaicbert": {"hidden_act": ("gelu", None), **_SAME},
    "modernbert": {
        "hidden_activation": ("gelu", None),
        "classifier_activation": ("gelu", None),
        "attention_bias": (False, None),
        "mlp_bias": (False, None),
        "norm_bias": (False, None),
        "classifier_bias": (False, None),
        "decoder_bias": (True, None),
        **_SAME,
    },
}


def bert_net(config: Mapping[str, Any]) -> BertNet:
    """The network of a published config.json (`BertConfig`)."""
    require(config, NEEDS["bert"], "BERT")
    eps = number_or(config, "layer_norm_eps", 1e-12)
    return BertNet(**_sizes(config), **_dropout(config), types=_types(config), eps=eps, head_eps=eps)


def mosaic_net(config: Mapping[str, Any]) -> BertNet:
    """The network of MosaicBERT's config.json, whose norm before the logits has an eps of its own."""
    require(config, NEEDS["mosaicbert"], "MosaicBERT")
    more = {"positions": "linear", "gated": True, "types": _types(config)}
    return BertNet(**_sizes(config), **_dropout(config), **more, eps=number_or(config, "layer_norm_eps", 1e-12))


def modern_net(config: Mapping[str, Any]) -> BertNet:
    """The network of a published config.json (`ModernBertConfig`), of transformers 4 or 5."""
    require(config, NEEDS["modernbert"], "ModernBERT")
    sizes, eps = _sizes(config), number_or(config, "norm_eps", 1e-5)
    base = _base(config, "full_attention", "global_rope_theta", 1.6e5)
    null = "local_rope_theta" in config and config["local_rope_theta"] is None  # the base of the others, then
    return BertNet(
        **sizes,
        positions="rotary",
        types=0,
        before=True,
        gated=True,
        bias=False,
        norm_bias=False,
        window=count_or(config, "local_attention", 128) // 2,
        every=_every(config, sizes["layers"]),
        base=base,
        local_base=_base(config, "sliding_attention", "local_rope_theta", base if null else 1e4),
        eps=eps,
        head_eps=eps,
        attention_dropout=number_or(config, "attention_dropout", 0.0),
    )


def _sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    published = {
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "inner": "intermediate_size",
        "rows": "vocab_size",
        "length": "max_position_embeddings",
    }
    return {ours: count_in(config, theirs) for ours, theirs in published.items()}


def _types(config: Mapping[str, Any]) -> int:
    return count_or(config, "type_vocab_size", 2)


def _dropout(config: Mapping[str, Any]) -> dict[str, Any]:
    names = {"dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob"}
    return {ours: number_or(config, theirs, 0.1) for ours, theirs in names.items()}


def _base(config: Mapping[str, Any], kind: str, old: str, default: float) -> float:
    """The base of the rotary frequencies of a kind of layers; InputError where they are scaled."""
    rope = entries_in(config, "rope_parameters", kind)
    require(rope, {"rope_type": ("default", None)}, "ModernBERT")
    if config.get("rope_scaling") is not None:
        require(config, {"rope_scaling": (None,)}, "ModernBERT")
    return number_or(rope, "rope_theta", default if config.get(old) is None else number_or(config, old, default))


def _every(config: Mapping[str, Any], layers: int) -> int:
    """How many layers it is from one that sees all positions to the next."""
    kinds = config.get("layer_types")
    if kinds is None:
        return count_or(config, "global_attn_every_n_layers", 3)
    for every in range(1, layers + 1):
        if kinds == ["sliding_attention" if i % every else "full_attention" for i in range(layers)]:
            return every
    raise InputError(
        f"the published config.json says {kinds!r} for 'layer_types'; ModernBERT is known with full attention in the "
        "first layer and in every n-th, so it is not loaded"
    )


# ---------------------------------------------------------------------------------------------------- tensors
_LEFT_OUT = ("bert.pooler.", "cls.seq_relationship.", f"{_EMBEDDINGS}position_ids")
_APART = ("query", "key", "value")
_TWINS = {  # published tensors that are one of the network's, written twice
    "cls.predictions.decoder.weight": "embedding.weight",
    "decoder.weight": "embedding.weight",
    "cls.predictions.decoder.bias": "head.rows",
}


def whole(names: Names, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Published tensors as our network has them: queries, keys and values in one, old names of norms as new."""
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if not name.startswith(_LEFT_OUT):
            result[re.sub(r"LayerNorm\.(gamma|beta)$", _new, name)] = tensor
    part = names.parts["qkv"].removesuffix("Wqkv")
    for name in [n for n in result if n.endswith((f"{part}query.weight", f"{part}query.bias"))]:
        apart = [name.replace(f"{part}query.", f"{part}{each}.") for each in _APART]
        if all(n in result for n in apart):
            result[name.replace(f"{part}query.", f"{part}Wqkv.")] = torch.cat([result.pop(n) for n in apart])
    return result


def _new(match: re.Match[str]) -> str:
    return "LayerNorm." + {"gamma": "weight", "beta": "bias"}[match[1]]


def apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """BERT's tensors with queries, keys and values apart again."""
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if ".Wqkv." in name:
            pieces = zip(_APART, tensor.chunk(3))
            result |= {name.replace(".Wqkv.", f".{each}."): piece.clone() for each, piece in pieces}
        else:
            result[name] = tensor
    return result


# ---------------------------------------------------------------------------------------------------- tokens
def bert_tokenizer(folder: Path, description: Description) -> Tokens:
    """The tokenizer of a folder, of its name where there is no such folder, or BERT's; its mask is the one it declares.

    Raises:
        InputError: it has no mask, or more tokens than the table has rows.
    """
    has = folder.is_dir() and any((folder / name).is_file() for name in TOKENIZERS)
    if has and (folder / "tokenizer.json").is_file():
        tokenizer = load(folder)
    else:
        tokenizer = named(str(folder) if has or not folder.exists() else description.tokenizer)
    inner: Any = getattr(tokenizer, "inner", None)
    if inner is not None:
        complete(inner, folder)
    declared = _declared(folder)
    found = [inner.token_to_id(name) for name in ((declared,) if declared else MASKS)] if inner is not None else []
    mask = next((i for i in found if i is not None), None)
    if mask is None:
        raise InputError(
            f"tokenizer '{tokenizer.name}' has no mask ({declared or ' or '.join(MASKS)}); give the tokenizer that the "
            "model was trained with (`tokenizer`)"
        )
    result = Tokens(inner, tokenizer.name, mask=mask)
    if result.size > description.rows:
        raise InputError(
            f"tokenizer '{result.name}' has {result.size:,} tokens; the model's table has {description.rows:,} rows: "
            "give the tokenizer that it was trained with (`tokenizer`)"
        )
    return result


def _declared(folder: Path) -> str | None:
    """The mask that `tokenizer_config.json` names."""
    path = folder / "tokenizer_config.json"
    token = read_json(path, dict, "copy or download it again").get("mask_token") if path.is_file() else None
    return token.get("content") if isinstance(token, Mapping) else token


# ---------------------------------------------------------------------------------------------------- layouts
def _layout(
    name: str,
    about: str,
    names: Names,
    net: Callable[[Mapping[str, Any]], BertNet],
    knows: Callable[[Mapping[str, Any]], bool],
    revert: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] = dict,
) -> Layout:
    def read(config: Mapping[str, Any], shapes: Shapes) -> Description:
        n = net(config)
        return Description(Net(n.layers, n.hidden, n.heads, n.length, dropout=n.dropout), n.rows, tokenizer=UNCASED)

    def write(description: Description) -> dict[str, Any]:
        raise InputError(f"the format {name} is for the networks that were published in it; choose another with `to`")

    def build(config: Mapping[str, Any], description: Description) -> Bert:
        length = description.net.length
        n = replace(net(config), dropout=description.net.dropout)
        if n.positions == "learnt" and n.length < length:
            raise InputError(f"the length is {length:,}, and the model has {n.length:,} positions; choose fewer")
        if n.positions != "learnt":
            n = replace(n, length=length)
        with torch.device("meta"):  # its tensors are put in as they are, in the precision that they have
            return Bert(n, description.rows)

    return Layout(
        name, "mdlm", about, "", knows, read, write, names.ours, names.theirs, strips=(), build=build,
        tokenizer=bert_tokenizer, convert=lambda tensors, _: whole(names, tensors),
        revert=lambda tensors, _: revert(tensors), twins={name: names.theirs(ours) for name, ours in _TWINS.items()},
        safetensors=True,
    )  # fmt: skip


LAYOUTS = [
    _layout(
        "bert", "BERT, to be trained further", BERT, bert_net,
        lambda config: config.get("model_type") == "bert" and "alibi_starting_size" not in config, apart,
    ),
    _layout(
        "mosaicbert", "MosaicBERT, to be trained further", MOSAIC, mosaic_net,
        lambda config: config.get("model_type") == "bert" and "alibi_starting_size" in config,
    ),
    _layout(
        "modernbert", "ModernBERT, to be trained further", MODERN, modern_net,
        lambda config: config.get("model_type") == "modernbert",
    ),
]  # fmt: skip
