"""Read texts with masked spans, and fill them with sampled tokens."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..base.errors import InputError
from ..data.tokenizer_base import Tokenizer
from ..models.ends import end_token, trained_on_documents
from ..models.model import Model
from ..samplers.sampler import GAP
from ..show.kinds import added, of
from .tokens import before_word


def approximate(model: Model) -> str | None:
    """A note where the noise does not keep given tokens exactly; None where it does."""
    process = model.method.process
    if inserts(model) and not getattr(model.method.network, "sees_given", False):
        return (
            "nothing is inserted between given tokens, which the network does not know (it was trained with spans 0): "
            "the rest is not drawn from the exact conditional distribution"
        )
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
        parts: the given texts, and between two of them the number of masked tokens; 0: any number.
        fixed: the tokens, -1 where one is masked, GAP where any number is missing. Behind them stands, of a model that
            inserts and was trained on documents, the token that ends the text; of molecules, as many such tokens as fill
            the row (one, if `cut`).
        cut: whether a span has any length, and candidates for it are cut (`gap`).
    """

    parts: list[str | int]
    fixed: list[int]
    cut: bool = False

    def pieces(self, tokens: Sequence[int], tokenizer: Tokenizer) -> list[tuple[str, bool]]:
        """The text with its spans filled from `tokens`, in pieces: (text, whether it was filled in).

        Of SELFIES one piece: only the whole of its symbols is a molecule.
        """
        if getattr(tokenizer, "symbols", ()):
            return [(of(tokenizer).text(tokens), False)]
        pieces, start = [], 0
        inserted = len(tokens) - len(self.fixed) + 1  # tokens of the span of any length
        free = [i for i, token in enumerate(self._filled(inserted)) if token < 0]
        for part in self.parts:
            if isinstance(part, str):
                pieces.append((part, False))
                continue
            positions = free[start : start + (part or inserted)]
            start += len(positions)
            before = list(tokens[: positions[0]][-1:]) if positions else []
            filled = [tokens[i] for i in positions if i < len(tokens)]  # `end` may end a text in its last span
            text = added(tokenizer, before, filled) if positions else ""
            prefix = pieces[-1][0] if pieces else ""
            if (shorter := before_word(tokenizer, prefix)) != prefix:  # the blank before the word is there already
                text = text.removeprefix(" ")
                pieces[-1] = pieces[-1] if positions else (shorter, False)
            pieces.append((text, True))
        return pieces

    def _filled(self, inserted: int) -> list[int]:
        """`fixed` with so many masked tokens in the place of the span of any length."""
        return [entry for token in self.fixed for entry in ([-1] * inserted if token == GAP else [token])]

    def fill(self, tokens: Sequence[int], tokenizer: Tokenizer) -> str:
        """The text with its spans filled from `tokens`; the given parts stay as they are."""
        return "".join(text for text, _ in self.pieces(tokens, tokenizer))

    def length(self, model: Model) -> int | None:
        """Number of tokens of the filled text; None where it is not known before."""
        return None if self.cut or inserts(model) else len(self.fixed)


def inserts(model: Model) -> bool:
    """Return whether the model inserts tokens, so that a span may have any length."""
    return model.method.parameterization == "insertion"


def masked_text(model: Model, text: str, length: int, mask_token: str = "_") -> MaskedText:
    """Read a text with masked spans: each `mask_token` is one missing token, a character, a byte or a subword.

    Two and a star, `__*`, are a span of any length, for a model that inserts tokens or writes from left to right (`gap`;
    then there is no other span). For a model that inserts, the text is a whole one: the token that ends its texts is
    added, if it was trained on documents.

    Raises:
        InputError: nothing to fill, more than `length` tokens, a character that is not in the vocabulary, a span of any
            length that the model cannot fill, or a second one.
    """
    tokenizer, sign = model.tokenizer, re.escape(mask_token)
    spans = re.findall(rf"(?<!{sign}){sign}{sign}\*", text) if mask_token else []
    cut, name = bool(spans) and not inserts(model), model.method.name
    in_blocks = 0 < model.method.block < model.method.window  # it writes from left to right
    if cut and not (in_blocks and model.method.reads_forward):
        why = f"this {name} has no likelihood from left to right" if in_blocks else f"{name} keeps the length of a text"
        raise InputError(
            f"{spans[0]} is a span of any length, and {why}; write one {mask_token} for each missing token, or use a model "
            "of flexmdm, ar or bd3lm, such as the included stories"
        )
    if len(spans) > 1:
        raise InputError(
            f"the text has {len(spans)} spans {spans[0]}; give one, and one {mask_token} for each other token"
        )
    if cut and mask_token in text.replace(spans[0], ""):
        raise InputError(
            f"the text has {spans[0]} and other gaps, and {name} writes from left to right; give one span alone"
        )
    if not mask_token or mask_token not in text:
        raise InputError(
            f"nothing to fill: no '{mask_token}' in the text; mark each missing token with it, or set `mask_token`"
        )
    parts: list[str | int] = []
    tokens: list[int] = []
    if tokenizer.unit == "char":
        # encoded as a whole, so that an error names the position in the text
        stand_in = tokenizer.decode([0])
        plain = text.replace(spans[0], stand_in * len(spans[0])) if spans else text
        tokenizer.encode(plain.replace(mask_token, stand_in * len(mask_token)), "the text")
    signs = "|".join([*(re.escape(span) for span in spans), sign])
    split = re.split(f"({signs})", text)
    for i, part in enumerate(split):
        if i % 2 == 0 and part:
            parts.append(part)
            tokens += tokenizer.encode(before_word(tokenizer, part) if i + 1 < len(split) else part, "the text")
        elif part in spans:
            parts.append(0)
            tokens.append(GAP)
        elif part:
            if parts and isinstance(parts[-1], int) and parts[-1]:
                parts[-1] += 1
            else:
                parts.append(1)
            tokens.append(-1)
    end = end_token(tokenizer, True) if inserts(model) and trained_on_documents(model) else None
    tokens += [] if end is None else [end]
    if of(tokenizer).whole and tokenizer.separator is not None:
        tokens += [tokenizer.separator] * (1 if cut else length - len(tokens))
    if len(tokens) > length:
        raise InputError(f"the text has {len(tokens):,} tokens, the model takes {length:,}; shorten it")
    if cut and tokens[-1] == GAP:
        raise InputError("nothing stands after the span of any length; to continue a text, use zellige sample")
    return MaskedText(parts, tokens, cut)
