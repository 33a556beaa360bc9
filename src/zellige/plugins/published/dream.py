"""Dream 7B (Ye et al. 2025, arXiv 2508.15487): a masked diffusion model that begins with Qwen2.5's weights.

    network     Qwen2, reading in both directions; no time input; the logits of position i - 1 are those of the token at i
    noise       a token is masked with probability t
    bound       MDLM's, of a time-free network; its training weighs tokens otherwise, which is no bound

The first position has nothing before it: as the published samplers do, its own logits are read, which were never
trained for it. Texts began with <|beginoftext|>, given; so should a prompt. The mask, 151666, is the last token; the
tables have more rows (152,064): rows without a token are neither input nor prediction.

Its tokenizer is published as Qwen2's `vocab.json` and `merges.txt`, with remote code that does what is done here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zellige.base.errors import InputError
from zellige.base.schema import shown
from zellige.data.tokenizer import Tokens

from .layout import count_in
from .llama import TRANSFORMERS, complete, llama_layout, number_in, require
from .llama import llama_tokenizer as own
from .nn.llama import LlamaNet

TRAINED = 2048  # tokens, the length it was trained with; its config says 131,072, which is what Qwen2.5 admits
NEEDS = {
    "hidden_act": "silu",
    "rope_scaling": (None,),
    "tie_word_embeddings": (False, None),
    "use_mrope": (False, None),
    "use_sliding_window": (False, None),
}

WORDS = (  # how Qwen2 cuts a text before its merges
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def dream_net(config: Mapping[str, Any]) -> LlamaNet:
    """The network of a published config.json (`DreamConfig`)."""
    require(config, NEEDS, "Dream")
    return LlamaNet(
        layers=count_in(config, "num_hidden_layers"),
        hidden=count_in(config, "hidden_size"),
        heads=count_in(config, "num_attention_heads"),
        shared=count_in(config, "num_key_value_heads"),
        inner=count_in(config, "intermediate_size"),
        rows=count_in(config, "vocab_size"),
        length=min(count_in(config, "max_position_embeddings"), TRAINED),
        base=number_in(config, "rope_theta"),
        eps=number_in(config, "rms_norm_eps"),
        bias=True,
        shift=True,
    )


def dream_tokenizer(folder: Path, mask: int | None) -> Tokens:
    """Its tokenizer, Qwen2's; see `bpe_tokenizer`."""
    return bpe_tokenizer(folder, mask, WORDS)


def bpe_tokenizer(folder: Path, mask: int | None, words: str = "") -> Tokens:
    """A tokenizer from `tokenizer.json` where there is one, else from `vocab.json` and `merges.txt`.

    Args:
        words: how a text, in Unicode's form NFC, is cut before the merges; "": as GPT-2 cuts it, in no normal form.

    Raises:
        InputError: neither is there, or they are damaged.
    """
    if (folder / "tokenizer.json").is_file():
        return own(folder, mask)
    from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Inner

    files = [folder / name for name in ("vocab.json", "merges.txt")]
    if missing := [file.name for file in files if not file.is_file()]:
        raise InputError(
            f"'{shown(folder)}' has no {missing[0]} and no tokenizer.json; copy or download the folder again"
        )
    try:
        inner: Any = Inner(models.BPE.from_file(*map(str, files)))
        bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not words)
        if words:
            inner.normalizer = normalizers.NFC()
            split = pre_tokenizers.Split(Regex(words), "isolated")
            inner.pre_tokenizer = pre_tokenizers.Sequence([split, bytewise])
        else:
            inner.pre_tokenizer = bytewise
        inner.decoder = decoders.ByteLevel()
    except Exception as problem:  # the library raises a bare Exception for a wrong file
        raise InputError(f"'{shown(folder)}' holds no tokenizer ({problem}); copy or download it again") from None
    complete(inner, folder)
    return Tokens(inner, folder.resolve().name, mask=mask)


LAYOUT = llama_layout("dream", "Dream 7B, Qwen2 in both directions", "Dream", TRANSFORMERS, dream_net, dream_tokenizer)
