"""What a tokenizer loses of a text: only where that is nothing does the likelihood of the tokens bound that of the
text.

The same tokens stand for every text that is cut into them: in upper and in lower case, with one unknown word or with
another. Their likelihood is that of all these texts together, so a number per character or word of one of them would be
too good, by what was lost. So texts are compared with what their tokens are decoded to (`Comparison`). What is lost
(`Losses`) is kept with the tokens and goes with the rows (`rows.Rows`), which then count no characters, and by that
every unit is chosen.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from .tokenizer_base import Kind, Tokenizer

if TYPE_CHECKING:
    from .readers import Piece

_DROPPED: tuple[Kind, ...] = ("case", "accents")  # the others are changed
SAMPLED = 16  # of the training text, one chunk of so many is compared
EXAMINED = 64  # chunks that differ, in which it is looked what is lost


@dataclass(frozen=True)
class Losses:
    """What of a text does not come back when its tokens are decoded.

    Attributes:
        kinds: what is lost, in the order of `Kind`; () where each text that was compared came back as it was.
        unknown: the share of the tokens that stand for what the vocabulary does not have.
    """

    kinds: tuple[Kind, ...] = ()
    unknown: float = 0.0

    @property
    def lossless(self) -> bool:
        return not self.kinds

    def __str__(self) -> str:
        """`of a tokenizer that drops case, changes spaces; 3.1% unknown`."""
        named = [kind for kind in self.kinds if kind != "unknown"]
        verbs = {
            "drops": [kind for kind in named if kind in _DROPPED],
            "changes": [kind for kind in named if kind not in _DROPPED],
        }
        parts = [f"{verb} {' and '.join(kinds)}" for verb, kinds in verbs.items() if kinds]
        text = f"of a tokenizer that {', '.join(parts)}" if parts else "of a tokenizer"
        share = f"{self.unknown:.1%}" if self.unknown >= 5e-4 else "<0.1%"
        return f"{text}; {share} unknown" if self.unknown else text

    @property
    def protocol(self) -> dict[str, str]:
        """The entry of a protocol: why its numbers are per token; {} where nothing is lost."""
        return {} if self.lossless else {"tokenizer": str(self)}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> "Losses":
        return cls(tuple(entries["kinds"]), entries["unknown"])


LOSSLESS = Losses()


def together(parts: Iterable[tuple[Losses, int]]) -> Losses:
    """Losses of several texts, each of so many tokens."""
    known = [*parts]
    kinds = set[Kind]().union(*(losses.kinds for losses, _ in known))
    total = sum(tokens for _, tokens in known)
    return Losses(_ordered(kinds), sum(losses.unknown * tokens for losses, tokens in known) / max(total, 1))


def _ordered(kinds: set[Kind]) -> tuple[Kind, ...]:
    return tuple(kind for kind in get_args(Kind) if kind in kinds)


def losses_of(tokenizer: Tokenizer, texts: Sequence[str]) -> Losses:
    """Losses of whole texts."""
    comparison = Comparison(tokenizer)
    if tokenizer.loses is None:
        comparison.add([(text, True) for text in texts], tokenizer.encode_pieces(texts))
    return comparison.losses


class Comparison:
    """Compares pieces of a text with what their tokens are decoded to.

    every: one piece of so many; the unknown tokens are counted in all. after: that of the split before, whose text may
    go on.
    """

    def __init__(self, tokenizer: Tokenizer, every: int = 1, after: "Comparison | None" = None):
        self.tokenizer, self.every = tokenizer, every
        self.kinds: set[Kind] = {*(tokenizer.loses or ())}
        self._tokens = self._unknown = self._pieces = self._differing = 0
        self._before: np.ndarray | None = after._before if after else None  # the piece before, where its text goes on

    @property
    def losses(self) -> Losses:
        return Losses(_ordered(self.kinds), self._unknown / max(self._tokens, 1))

    def add(self, pieces: "Sequence[Piece]", tokens: Sequence[np.ndarray]) -> None:
        """Take the next pieces, in order, and the tokens of each."""
        if self.tokenizer.loses is not None:
            return
        self._tokens += sum(map(len, tokens))
        if (unknown := self.tokenizer.unknown) is not None:
            self._unknown += sum(int(np.count_nonzero(ids == unknown)) for ids in tokens)
        sampled = [i for i in range(len(pieces)) if (self._pieces + i) % self.every == 0]
        sampled = sampled if self._differing < EXAMINED else []
        decoded = dict(zip(sampled, self.tokenizer.decode_pieces([tokens[i] for i in sampled]))) if sampled else {}
        for i, (text, ends) in enumerate(pieces):
            if i in decoded and decoded[i] != text:
                self._examine(text, decoded[i], self._after_the_one_before(tokens[i]))
            self._before = None if ends else tokens[i]
        self._pieces += len(pieces)

    def _after_the_one_before(self, tokens: np.ndarray) -> str | None:
        """What a piece is decoded to after the piece before it: some tokenizers drop the space that begins a text, and
        where the text goes on it is there."""
        if self._before is None:
            return None
        before, both = self.tokenizer.decode_pieces([self._before, np.concatenate([self._before, tokens])])
        return both[len(before) :] if both.startswith(before) else None

    def _examine(self, text: str, alone: str, after: str | None) -> None:
        """Find what is lost of a piece, decoded alone and after the one before: of its spaces, and of each word."""
        if text == after or self._differing == EXAMINED:
            return
        self._differing += 1
        spaces = [re.findall(r"\s+", version) for version in (text, alone, after or alone)]
        found: set[Kind] = set() if spaces[0] in spaces[1:] else {"spaces"}
        words = [*dict.fromkeys(text.split())]
        tokens = self.tokenizer.encode_pieces(words)
        for word, ids, back in zip(words, tokens, self.tokenizer.decode_pieces(tokens)):
            if self.tokenizer.unknown is not None and self.tokenizer.unknown in ids:
                found.add("unknown")
            else:
                found |= changed(word, "".join(back.split()))
        self.kinds |= found or {"characters"}


_ALIKE: dict[Kind, Callable[[str], str]] = {  # texts that differ in a kind alone are the same after these
    "accents": lambda text: "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c)),
    "Unicode forms": lambda text: unicodedata.normalize("NFKC", text),
    "case": str.lower,
}


def changed(text: str, decoded: str) -> set[Kind]:
    """The kinds in which a word and what it is decoded to differ, as few as explain it.

    >>> sorted(changed("Café", "cafe")), changed("ﬁ", "fi"), changed("a$", "a"), changed("a", "a")
    (['accents', 'case'], {'Unicode forms'}, {'characters'}, set())
    """

    def same(kinds: Iterable[Kind]) -> bool:
        one, other = text, decoded
        for kind in kinds:
            one, other = _ALIKE[kind](one), _ALIKE[kind](other)
        return one == other

    kinds: tuple[Kind, ...] = tuple(_ALIKE)
    if not same(kinds):
        return {"characters"}
    for kind in kinds:
        fewer: tuple[Kind, ...] = tuple(k for k in kinds if k != kind)
        kinds = fewer if same(fewer) else kinds
    return {*kinds}
