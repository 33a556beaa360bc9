"""Texts with masked spans: how they are read, and filled with sampled tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..data.tokenizer_base import Tokenizer
from ..errors import InputError
from ..show.kinds import added
from .model import Model
from .trajectory import before_word


def approximate(model: Model) -> str | None:
    """A note where the noise does not keep given tokens exactly; None where it does."""
    process = model.method.process
    if process is None or process.mask is not None:  # a chain keeps the conditional distribution; a mask is not noise
        return None
    if getattr(model.method.network, "sees_given", False):  # trained with given parts (`data.given`)
        return None
    return (
        "given tokens are kept, which is approximate for this noise: "
        "the rest is not drawn from the exact conditional distribution"
    )


@dataclass(frozen=True)
class MaskedText:
    """A text with masked spans, as tokens.

    Attributes:
        parts: the given texts, and between two of them the number of masked tokens.
        fixed: the tokens, -1 where one is masked.
    """

    parts: list[str | int]
    fixed: list[int]

    def pieces(self, tokens: Sequence[int], tokenizer: Tokenizer) -> list[tuple[str, bool]]:
        """The text with its spans filled from `tokens`, in pieces: (text, whether it was filled in)."""
        pieces, start = [], 0
        free = [i for i, token in enumerate(self.fixed) if token < 0]
        for part in self.parts:
            if isinstance(part, str):
                pieces.append((part, False))
                continue
            positions = free[start : start + part]
            start += part
            before = list(tokens[: positions[0]][-1:])
            text = added(tokenizer, before, [tokens[i] for i in positions])
            prefix = pieces[-1][0] if pieces else ""
            if before_word(tokenizer, prefix) != prefix:  # the blank before the word is there already
                text = text.removeprefix(" ")
            pieces.append((text, True))
        return pieces

    def fill(self, tokens: Sequence[int], tokenizer: Tokenizer) -> str:
        """The text with its spans filled from `tokens`; the given parts stay as they are."""
        return "".join(text for text, _ in self.pieces(tokens, tokenizer))


def masked_text(tokenizer: Tokenizer, text: str, length: int, mask_token: str = "_") -> MaskedText:
    """Read a text with masked spans: each `mask_token` is one missing token, a character, a byte or a subword.

    Raises:
        InputError: nothing to fill, more than `length` tokens, or a character that is not in the vocabulary.
    """
    if not mask_token or mask_token not in text:
        raise InputError(
            f"nothing to fill: no '{mask_token}' in the text; mark each missing token with it, or set `mask_token`"
        )
    parts: list[str | int] = []
    tokens: list[int] = []
    if getattr(tokenizer, "unit", "token") == "char":
        # encoded as a whole, so that an error names the position in the text
        stand_in = tokenizer.decode([0])
        tokenizer.encode(text.replace(mask_token, stand_in * len(mask_token)), "the text")
    split = text.split(mask_token)
    for i, part in enumerate(split, 1):
        if i > 1:
            if parts and isinstance(parts[-1], int):
                parts[-1] += 1
            else:
                parts.append(1)
            tokens.append(-1)
        if part:
            parts.append(part)
            tokens += tokenizer.encode(before_word(tokenizer, part) if i < len(split) else part, "the text")
    if len(tokens) > length:
        raise InputError(f"the text has {len(tokens):,} tokens, the model takes {length:,}; shorten it")
    return MaskedText(parts, tokens)
