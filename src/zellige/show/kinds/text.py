"""Running text on a terminal."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from html import escape
from itertools import groupby
from typing import Any

from numpy.typing import ArrayLike

from ...base.errors import InputError
from ...data.tokenizer_base import Tokenizer
from ..style import STYLES, Mark
from .modality import Modality

CHARACTER = 8  # tokens of which one or two characters may be made


class Text(Modality):
    name, many = "text", "texts"
    running = True

    def values(self, rows: ArrayLike) -> list[str]:
        """The texts; lists of tokens may differ in length."""
        return [self.text(row) for row in (rows if isinstance(rows, list) else self.rows(rows).tolist())]

    def pieces(self, row: Sequence[int]) -> list[str]:
        """The text of each token, as it stands in running text."""
        return token_texts(self.tokenizer, row)

    def html(self, rows: ArrayLike, marks: Sequence[Sequence[Mark]] | None = None) -> str:
        """A paragraph for each text; `marks` gives its tokens their colours."""
        each: list[list[int]] = rows if isinstance(rows, list) else self.rows(rows).tolist()
        texts = [escape(self.text(row)) for row in each] if marks is None else map(self._coloured, each, marks)
        return paragraphs(texts)

    def _coloured(self, row: Sequence[int], marks: Sequence[Mark]) -> str:
        pieces, out = self.pieces(row), []
        for mark, run in groupby(zip(marks, pieces), lambda one: one[0]):
            text = escape("".join(piece for _, piece in run))
            out.append(f'<span style="{STYLES[mark]}">{text}</span>' if STYLES[mark] else text)
        return "".join(out)

    def given(self, row: ArrayLike, keep: str | None = None) -> Any:
        raise InputError('`example` and `keep` are for images, music and grids; give a text: "the ____ of the"')


def paragraphs(texts: Iterable[str]) -> str:
    """Paragraphs of HTML that keep their line breaks."""
    return "".join(f'<p style="white-space: pre-wrap">{text}</p>' for text in texts)


def token_texts(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[str]:
    """The text of each token by itself, as it stands in running text;
    of a character of several tokens the last has it."""
    piece = _piece(tokenizer)
    out = [piece(token) for token in tokens]
    partial = ["\ufffd" in text and 0 <= token < tokenizer.size for text, token in zip(out, tokens)]
    i = 0
    while i < len(out):
        stop = next((k for k in range(i, len(out)) if not partial[k]), len(out))
        texts = ((end, tokenizer.decode(list(tokens[i:end]))) for end in range(i + 2, min(stop, i + CHARACTER) + 1))
        end, text = next(((end, text) for end, text in texts if "\ufffd" not in text), (i + 1, out[i]))
        out[i:end] = [""] * (end - i - 1) + [text]
        i = end
    return out


def added(tokenizer: Tokenizer, before: list[int], tokens: list[int]) -> str:
    """The text that `tokens` add after `before`."""
    head, whole = tokenizer.decode(before), tokenizer.decode([*before, *tokens])
    return whole[len(head) :] if whole.startswith(head) else tokenizer.decode(tokens)


def _piece(tokenizer: Tokenizer) -> Callable[[int], str]:
    if tokenizer.unit == "char":
        return cache(lambda token: tokenizer.decode([token]))
    anchor = next((i for i in range(min(tokenizer.size, 5000)) if tokenizer.decode([i]).strip().isalnum()), None)
    return cache(lambda token: added(tokenizer, [] if anchor is None else [anchor], [token]))
