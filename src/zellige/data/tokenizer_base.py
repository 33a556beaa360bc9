"""Interface of a tokenizer: text to integers and back, and a fingerprint."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from ..base.arguments import checked_methods, of_kind
from ..base.errors import InputError
from ..base.files import write_file

Kind = Literal["case", "accents", "Unicode forms", "spaces", "characters", "spelling", "unknown"]  # of what is lost
CONFIG, OURS = "tokenizer_config.json", "zellige"  # transformers' file, and our entry in it


class OutsideVocabulary(InputError):
    """A text holds a character that the tokenizer does not know."""


@runtime_checkable
class Tokenizer(Protocol):
    """Text to integers and back.

    raw: it reads pieces of a corpus as bytes (one latin-1 character each), not as text. loses: what of a text its
    tokens do not tell, () where each text that it takes comes back as it was; None: it depends on the text
    (`losses.Comparison`). unknown: the token of what is not in the vocabulary.
    """

    name: str
    size: int
    unit: str
    raw: bool
    separator: int | None
    mask: int | None
    loses: tuple[Kind, ...] | None
    kind: str
    shape: tuple[int, ...]
    ordered: bool

    def encode(self, text: str, of: str = "the prompt") -> list[int]: ...

    def encode_pieces(self, pieces: Sequence[str], of: str = "the corpus") -> list[np.ndarray]: ...

    def decode(self, tokens: Iterable[int], mask: str = "·") -> str: ...

    def decode_pieces(self, pieces: Sequence[np.ndarray]) -> list[str]: ...

    def describe(self) -> str: ...

    def to_dict(self) -> dict[str, Any]: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def unknown(self) -> int | None: ...

    def save(self, folder: str | Path) -> None: ...


@checked_methods
class BaseTokenizer:
    name: str
    size: int
    unit: str = "token"
    raw: bool = False
    separator: int | None = None
    mask: int | None = None
    loses: tuple[Kind, ...] | None = ()
    kind: str = "text"
    shape: tuple[int, ...] = ()
    ordered: bool = False
    display: str = ""  # where `show.kinds` has none for its kind: its class of `show.kinds.Modality`, `module:class`

    def __init_subclass__(cls, **more: Any) -> None:
        """Add the checks of arguments to the methods that a subclass overrides."""
        super().__init_subclass__(**more)
        checked_methods(cls)

    def to_dict(self) -> dict[str, Any]:
        """All that defines it, as JSON."""
        raise NotImplementedError

    def describe(self) -> str:
        return self.name

    @property
    def fingerprint(self) -> str:
        """sha256 of its definition: equal exactly if the same text gives the same integers."""
        return self._fingerprint

    @cached_property  # of a large vocabulary the definition is megabytes of JSON: made once
    def _fingerprint(self) -> str:
        return definition_hash(self.to_dict())

    @property
    def unknown(self) -> int | None:
        """The token of what is not in the vocabulary."""
        return None

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json` into `folder`."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_dict(), ensure_ascii=False, indent=1)
        write_file(Path(folder) / "tokenizer.json", text + "\n")

    def encode_pieces(self, pieces: Sequence[str], of: str = "the corpus") -> list[np.ndarray]:
        raise NotImplementedError

    def encode(self, text: str, of: str = "the prompt") -> list[int]:
        """The tokens of `text`. `of` names the text in an error."""
        return self.encode_pieces([text], of)[0].tolist()

    def decode(self, tokens: Iterable[int], mask: str = "·") -> str:
        """The text of `tokens` (integers, an array or a tensor); anything that is not a token is drawn as `mask`."""
        parts, run = [], []
        for token in token_ids(tokens):
            if 0 <= token < self.size and token != self.mask:
                run.append(token)
                continue
            parts += [self._decode(run), mask]
            run = []
        return "".join([*parts, self._decode(run)])

    def decode_pieces(self, pieces: Sequence[np.ndarray]) -> list[str]:
        """The text of each piece: what `encode_pieces` was given, where nothing was lost."""
        return [self.decode(tokens) for tokens in pieces]

    def _decode(self, tokens: list[int]) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<tokenizer {self.name} ({self.size:,}): {self.describe()}>"


def token_ids(tokens: Iterable[int]) -> list[int]:
    """Token ids of any form, (L,), as a list; InputError for anything else."""
    try:
        ids = np.asarray(tokens.tolist() if hasattr(tokens, "tolist") else [*tokens])  # pyright: ignore[reportAttributeAccessIssue]
    except (TypeError, ValueError):  # rows of different lengths
        ids = None
    if ids is None or ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        form = of_kind(tokens) if ids is None else f"{ids.shape} {ids.dtype}"
        raise InputError(f"`tokens` is {form}; it must be a row of whole numbers: a list, an array or a tensor")
    return ids.tolist()


def definition_hash(definition: dict[str, Any]) -> str:
    """sha256 of a definition."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()
