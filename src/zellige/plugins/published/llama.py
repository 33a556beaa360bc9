"""Shared parts of the layouts of LLaDA, Dream and Qwen: the names of a llama's tensors, and a layout of such names.

The states are the tokenizer's tokens, the mask among them, by their published numbers. The tables of embeddings and
outputs have more rows; those that no token has are kept, and are neither input nor prediction.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from zellige.base.errors import InputError
from zellige.base.schema import read_json, shown
from zellige.data.tokenizer import Tokens, load
from zellige.nn.block import Net

from .layout import Description, Layout, Shapes, count_in, number_or
from .nn.llama import Llama, LlamaNet

PARTS = ("norm1", "query", "key", "value", "out", "norm2", "gate", "up", "down", "query_norm", "key_norm")
MASKS = ("<|MASK|>", "<|mask|>", "|<MASK>|", "<MASK>")  # names of a mask's token, where no file declares it


@dataclass(frozen=True)
class Names:
    """Names of the tensors of a published llama; `layers` stands before the number of a layer, `parts` are the names of
    PARTS.

    >>> names = Names("wte", "blocks.", ("a", "q", "k", "v", "o", "b", "g", "u", "d"), "ln_f", "ff_out")
    >>> names.ours("blocks.3.q.bias"), names.theirs("layers.3.query.bias"), names.theirs("head.rows")
    ('layers.3.query.bias', 'blocks.3.q.bias', 'ff_out.weight')
    """

    embedding: str
    layers: str
    parts: tuple[str, ...]
    norm: str
    head: str

    def ours(self, key: str) -> str:
        """A published name in our network's words; a name that it has not comes back as it is."""
        whole = {f"{self.embedding}.weight": "embedding.weight", f"{self.norm}.weight": "norm.weight"}
        whole[f"{self.head}.weight"] = "head.rows"
        match = re.fullmatch(rf"{re.escape(self.layers)}(\d+)\.(.+)\.(weight|bias)", key)
        if match and match[2] in self.parts:
            return f"layers.{match[1]}.{PARTS[self.parts.index(match[2])]}.{match[3]}"
        return whole.get(key, key)

    def theirs(self, key: str) -> str:
        """Our name in the published words: `theirs(ours(key)) == key`."""
        first, *rest = key.split(".")
        if first == "layers":
            number, part, end = rest
            return f"{self.layers}{number}.{self.parts[PARTS.index(part)]}.{end}"
        return {"embedding": self.embedding, "norm": self.norm, "head": self.head}[first] + ".weight"


TRANSFORMERS = Names(  # of transformers' Llama, Qwen2 and Qwen3
    "model.embed_tokens",
    "model.layers.",
    (
        "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
        "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "self_attn.q_norm", "self_attn.k_norm",
    ),
    "model.norm",
    "lm_head",
)  # fmt: skip


def number_in(config: Mapping[str, Any], name: str) -> float:
    """A number of a published configuration that must be there, above 0."""
    value = number_or(config, name, None)
    if value <= 0:
        raise InputError(f"the published config.json has {value:g} as '{name}'; it must be above 0")
    return value


def require(config: Mapping[str, Any], needs: Mapping[str, Any], system: str) -> None:
    """InputError where a choice is another than the network has: it would load, and compute something else.

    `needs`: entry -> what it must be; a tuple: one of these, where None stands for an entry that is left out.
    """
    for name, need in needs.items():
        values = need if isinstance(need, tuple) else (need,)
        value = config.get(name)
        if not any(value is a or (value == a and type(value) is type(a)) for a in values):
            says = "says nothing of" if value is None else f"says {value!r} for"
            raise InputError(
                f"the published config.json {says} '{name}'; {system} is known with {values[0]!r} only, so it is not "
                "loaded"
            )


def llama_tokenizer(folder: Path, mask: int | None) -> Tokens:
    """The tokenizer of `tokenizer.json`, which has the mask among its tokens if there is one."""
    tokenizer = load(folder)
    if not isinstance(tokenizer, Tokens):
        raise InputError(
            f"'{shown(folder)}' holds another model's tokenizer ({tokenizer.describe()}); copy or download the folder "
            "again"
        )
    complete(tokenizer.inner, folder)
    return Tokens(tokenizer.inner, tokenizer.name, mask=mask)


def complete(inner: Any, folder: Path) -> None:
    """Give a tokenizer the tokens that `added_tokens.json` and `tokenizer_config.json` have beside its own, by their
    numbers.

    Raises:
        InputError: a file is damaged, or a number is not the next one.
    """
    from tokenizers import AddedToken

    try:
        numbers, config = (
            read_json(path) if path.is_file() else {}
            for path in (folder / "added_tokens.json", folder / "tokenizer_config.json")
        )
        more = {int(number): str(token) for token, number in numbers.items()}
        more |= {int(number): entry["content"] for number, entry in config.get("added_tokens_decoder", {}).items()}
        for number, token in sorted(more.items()):
            if inner.id_to_token(number) is None:
                inner.add_special_tokens([AddedToken(token, normalized=False, special=True)])
                if inner.token_to_id(token) != number:
                    raise ValueError(f"'{token}' is to be token {number:,}, and its vocabulary ends elsewhere")
    except Exception as problem:
        raise InputError(f"'{shown(folder)}' holds no tokenizer ({problem}); copy or download it again") from None


def with_mask(vocabulary: Tokens, folder: Path, mask: int | None) -> Tokens:
    """A folder's tokenizer with its mask: `mask` if that is one of its tokens, else the one that it declares or names,
    else a token more."""
    from tokenizers import AddedToken

    inner = vocabulary.inner
    if mask is None or not mask < vocabulary.size:
        path = folder / "tokenizer_config.json"
        token = read_json(path, dict, "copy or download it again").get("mask_token") if path.is_file() else None
        name = token.get("content") if isinstance(token, Mapping) else token
        mask = next((i for i in map(inner.token_to_id, (name or "", *MASKS)) if i is not None), None)
    if mask is None:
        inner.add_special_tokens([AddedToken(MASKS[0], normalized=False, special=True)])
        mask = inner.token_to_id(MASKS[0])
    return Tokens(inner, vocabulary.name, mask=mask)


def fitting(vocabulary: Tokens, rows: int) -> Tokens:
    """A tokenizer whose tokens have each a row in tables of so many. InputError where they have not."""
    if not (vocabulary.mask or 0) < vocabulary.size <= rows:
        mask = "" if vocabulary.mask is None else f", its mask is {vocabulary.mask:,}"
        raise InputError(
            f"tokenizer '{vocabulary.name}' has {vocabulary.size:,} tokens; the model's table has {rows:,} rows{mask}: "
            "give the tokenizer that it was trained with (`tokenizer`)"
        )
    return vocabulary


def llama_layout(
    name: str,
    about: str,
    kind: str,
    names: Names,
    net: Callable[[Mapping[str, Any]], LlamaNet],
    tokenizer: Callable[[Path, int], Tokens],
) -> Layout:
    """A layout whose network is a Llama.

    Args:
        kind: `model_type` in its config.json.
        net: the network that a config.json means; raises InputError.
        tokenizer: that of a folder, given the mask.
    """

    def read(config: Mapping[str, Any], shapes: Shapes) -> Description:
        n = net(config)
        return Description(
            Net(n.layers, n.hidden, n.heads, n.length),
            n.rows,
            mask=count_in(config, "mask_token_id"),
            tokenizer="",
        )

    def write(description: Description) -> dict[str, Any]:
        raise InputError(f"the format {name} is for the networks that were published in it; choose another with `to`")

    def words(folder: Path, description: Description) -> Tokens:
        return fitting(tokenizer(folder, description.mask or 0), description.rows)

    def build(config: Mapping[str, Any], description: Description) -> Llama:
        with torch.device("meta"):  # its tensors are put in as they are, in the precision that they have
            return Llama(replace(net(config), length=description.net.length), description.rows)

    return Layout(
        name, "mdlm", about, "", lambda config: config.get("model_type") == kind, read, write, names.ours, names.theirs,
        strips=(), build=build, tokenizer=words,
    )  # fmt: skip
