"""Texts, and tokenizers that lose something of them: for the tests of losses and of units."""

import random
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from zellige.data import tokenizer as tk

LETTERS = "abcdefghij"


def words_of(vocabulary: Sequence[str], **parts) -> tk.Tokens:
    """A vocabulary of words, and one token for all others."""
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["[UNK]", *vocabulary])}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    for name, part in parts.items():
        setattr(inner, name, part)
    return tk.Tokens(inner, "words")


def pieces_of(normalizer=None) -> tk.Tokens:
    """A WordPiece of letters, as BERT's."""
    vocabulary = ["[UNK]", "[SEP]", *LETTERS, *(f"##{letter}" for letter in LETTERS), "é", "##é"]
    model = models.WordPiece({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]")
    inner = Tokenizer(model)
    inner.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    inner.decoder = decoders.WordPiece()  # pyright: ignore[reportAttributeAccessIssue]
    if normalizer is not None:
        inner.normalizer = normalizer  # pyright: ignore[reportAttributeAccessIssue]
    return tk.Tokens(inner, "pieces")


def saved(tokenizer, folder: Path) -> str:
    tokenizer.save(folder)
    return str(folder / "tokenizer.json")


def coin_words(count: int, seed: int = 0) -> str:
    """Words in which the case of each letter is a coin: at least a bit each."""
    draw = random.Random(seed)
    return " ".join("".join(draw.choice((c, c.upper())) for c in draw.choices(LETTERS, k=4)) for _ in range(count))


def random_letters(count: int, seed: int = 0) -> str:
    """Letters of 251 kinds, each as likely: 7.97 bits a character."""
    draw = random.Random(seed)
    return "".join(draw.choices([chr(0x4E00 + i) for i in range(251)], k=count))
