"""The tokenizer of a published model: a chosen one, that of its folder, or the one that its layout is known for."""

from pathlib import Path
from typing import Any

from zellige.base.errors import InputError
from zellige.data import catalogue, tokenizer_by_name
from zellige.data import load as load_tokenizer
from zellige.data.tokenizer import Integers, Tokens
from zellige.data.tokenizer_base import Tokenizer
from zellige.methods import METHODS

from .layout import Choices, Description, Layout

SIZES = {"gpt2": 50257, "bert-base-uncased": 30522}  # of those that a layout is known for
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "encoder.json")


def tokenizer_of(layout: Layout, description: Description, chosen: Choices, folder: Path) -> Any:
    """The tokenizer: a chosen one, that of the folder, or the one its layout is known for.
    InputError if it does not fit."""
    spec, cls = chosen.tokenizer, METHODS[layout.method]
    options = description.options if description.mask is None else {**description.options, "mask": description.mask}
    tokens = description.rows - cls.states(0, cls.Config(**options))  # how many the table is for
    if spec == "integers":
        return Integers(tokens)
    has_tokenizer = spec is None and any((folder / name).is_file() for name in TOKENIZERS)
    if (
        not has_tokenizer
        and spec is None
        and tokens - SIZES.get(description.tokenizer, tokens) not in (0, int(tokens == description.rows))
    ):
        raise InputError(
            f"nothing says its tokenizer, which has {tokens:,} tokens ({description.rows:,} rows, format "
            f"{layout.name}); give `tokenizer`, e.g. a tokenizer.json"
        )
    if has_tokenizer and (folder / "tokenizer.json").is_file():
        tokenizer = load_tokenizer(folder)
    else:
        tokenizer = named(str(folder) if has_tokenizer else spec or description.tokenizer)
    if tokenizer.size == tokens:
        return tokenizer
    spare = tokens - tokenizer.size  # rows that are no tokens: of a mask that never occurs, or to fill the table up
    if isinstance(tokenizer, Tokens) and tokens == description.rows and (has_tokenizer or spare == 1) and spare > 0:
        return Tokens(tokenizer.inner, tokenizer.name, tokens)
    raise InputError(
        f"the model is for {tokens:,} tokens ({description.rows:,} rows, format {layout.name}) and the tokenizer "
        f"'{tokenizer.name}' has {tokenizer.size:,}; give the one that it was trained with (`tokenizer`)"
    )


def named(spec: str) -> Any:
    """The tokenizer of a name or a folder of vocabulary files; InputError if it is not there."""
    cache = catalogue.cache_folder(None)
    spec = {"bert-base-uncased": "google-bert/bert-base-uncased"}.get(spec, spec)
    try:
        return tokenizer_by_name.named_tokenizer(
            spec, lambda address, checksum: catalogue.fetch(address, checksum, cache)
        )
    except InputError as problem:
        what = str(problem).partition(";")[0]
        raise InputError(f"its tokenizer is missing: {what}; give `tokenizer`, a tokenizer.json or a folder") from None


def first_token(tokenizer: Tokenizer) -> int | None:
    """The token that published code puts before a text: BERT's [CLS], else what ends one."""
    inner = getattr(tokenizer, "inner", None)
    first = inner.token_to_id("[CLS]") if inner is not None else None
    return tokenizer.separator if first is None else first
