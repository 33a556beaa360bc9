"""Tokenizers: text to integers 0..size-1 and back. The mask token is not among them; a process adds its own.

All are saved as JSON in a model's folder, never pickled:

    characters   one token a character: those found in the corpus, or text8's a-z and space
    bytes        one token a byte, 256 of them, any file
    tokens       the `tokenizers` library: any tokenizer.json, GPT-2 or BERT from their vocabulary files, BPE or sentencepiece
                 trained here
    integers     own tokens without a text: decoded as numbers
    levels       images, grids (levels.py)
    table        rows of categories (table.py)

`unit` says what a token is ("char", "byte", "token", "dim", "note", "cell"); `separator` is the token that ends a
document, if there is one. `mask` is the model's mask where a published tokenizer has it among its tokens: no text gives
it, and it is drawn as a mask. `kind` says what a row is ("text", "image", "grid", "table", or that of a plug-in),
`shape` how long it is where that is fixed, and `ordered` whether neighbouring tokens are neighbours, as grey values are.
"""

import json
import os
from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..base.arguments import is_number
from ..base.errors import InputError
from ..base.files import write_file
from ..base.plugins import Registry, subclass
from ..base.schema import read_json
from ..base.trust import reading
from .chat import chat_of, tokenizer_config
from .readers import MARK
from .tokenizer_base import (
    CONFIG,
    OURS,
    BaseTokenizer,
    Kind,
    OutsideVocabulary,
    Tokenizer,
    definition_hash,
    token_ids,
)

TEXT8 = " abcdefghijklmnopqrstuvwxyz"
END = MARK  # of ours: the token that ends a document
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # unset, the library warns on stderr in every forked worker


class Characters(BaseTokenizer):
    """One token a character, numbered in code-point order.

    kind, shape: of rows that each hold one text of at most so many characters, filled up with line ends.

    >>> Characters("ba ").encode("a b"), Characters(TEXT8).describe()
    ([1, 0, 2], 'a-z and space')
    """

    name, unit = "characters", "char"

    def __init__(self, alphabet: Iterable[str], kind: str = "text", shape: Sequence[int] = ()):
        self.alphabet, self.kind, self.shape = "".join(sorted(set(alphabet))), kind, tuple(shape)
        self.size = len(self.alphabet)
        self._table = np.full(max(map(ord, self.alphabet), default=0) + 2, self.size, np.uint32)  # the last: any other
        self._table[[ord(c) for c in self.alphabet]] = np.arange(self.size)
        joint = [c for c in "\n " if c in self.alphabet]
        self.separator = self.alphabet.index(joint[0]) if joint else None

    def encode_pieces(self, pieces: Sequence[str], of: str = "the corpus") -> list[np.ndarray]:
        return [self._encode(piece, f"in {of} is not in the vocabulary") for piece in pieces]

    def encode(self, text: str, of: str = "the prompt") -> list[int]:
        return self._encode(text, f"at position {{:,}} of {of} is not in the model's vocabulary").tolist()

    def _encode(self, text: str, complaint: str) -> np.ndarray:
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        tokens = self._table[np.minimum(points, len(self._table) - 1)]
        bad = int(np.argmax(tokens == self.size)) if len(tokens) else 0
        if len(tokens) and tokens[bad] == self.size:  # positions count from 0, as Python's own messages do
            symbol = text[bad] if text[bad].isprintable() else text[bad].encode("unicode_escape").decode("ascii")
            raise OutsideVocabulary(f"'{symbol}' {complaint.format(bad)} ({self.describe()})")
        return tokens

    def decode(self, tokens: Iterable[int], mask: str = "·") -> str:
        text = super().decode(tokens, mask)
        return text.rstrip("\n") if self.shape and len(text) > 1 else text

    def _decode(self, tokens: list[int]) -> str:
        return "".join(self.alphabet[t] for t in tokens)

    def describe(self) -> str:
        return _alphabet(self.alphabet)

    def to_dict(self) -> dict[str, Any]:
        entries = {"zellige": "characters", "alphabet": self.alphabet}
        return entries | ({"kind": self.kind, "shape": [*self.shape]} if self.shape else {})


class Bytes(BaseTokenizer):
    """One token a byte: any file, any language, no error."""

    name, unit, raw, size = "bytes", "byte", True, 256

    def __init__(self):
        self.separator: int | None = ord("\n")

    def encode_pieces(self, pieces: Sequence[str], of: str = "the corpus") -> list[np.ndarray]:
        return [np.frombuffer(piece.encode("latin-1"), np.uint8) for piece in pieces]

    def encode(self, text: str, of: str = "the prompt") -> list[int]:
        return list(text.encode("utf-8", "surrogateescape"))

    def _decode(self, tokens: list[int]) -> str:
        return bytes(tokens).decode("utf-8", "replace")

    def describe(self) -> str:
        return "any byte"

    def to_dict(self) -> dict[str, Any]:
        return {"zellige": "bytes"}


class Integers(BaseTokenizer):
    """Own tokens without a text behind them: decoded as numbers with a space between."""

    name = "integers"

    def __init__(self, size: int):
        self.size = size

    def encode_pieces(self, pieces: Sequence[str], of: str = "the corpus") -> list[np.ndarray]:
        return [np.array(self.encode(piece, of), np.uint32) for piece in pieces]

    def encode(self, text: str, of: str = "the prompt") -> list[int]:
        tokens = []
        for word in text.split():
            if not is_number(word) or int(word) >= self.size:
                raise InputError(f"'{word}' in {of} is not in the model's vocabulary ({self.describe()})")
            tokens.append(int(word))
        return tokens

    def decode(self, tokens: Iterable[int], mask: str = "·") -> str:
        return " ".join(str(t) if 0 <= t < self.size else mask for t in token_ids(tokens))

    def describe(self) -> str:
        return f"integers 0 to {self.size - 1:,}"

    def to_dict(self) -> dict[str, Any]:
        return {"zellige": "integers", "size": self.size}


class Tokens(BaseTokenizer):
    """A tokenizer of the `tokenizers` library. Its separator is the end-of-text or sentence token it declares.

    size: of a published model whose table has rows that no token uses, how many rows there are.
    mask: the model's mask, where it is among the tokens.

    Attributes:
        chat: its chat template and special tokens (`chat.chat_of`); {} where it has none.
    """

    loses: tuple[Kind, ...] | None = None

    def __init__(self, inner: Any, name: str, size: int | None = None, mask: int | None = None):
        self.inner, self.name, self.mask = inner, name, mask
        self.chat: dict[str, str] = {}
        inner.no_padding()
        inner.no_truncation()
        self.known = 1 + max(inner.get_vocab(with_added_tokens=True).values(), default=-1)
        self.size = self.known if size is None else size
        candidates = (END, "[SEP]", "</s>", "<eos>", "<|end_of_text|>")
        self.separator = next((i for i in map(inner.token_to_id, candidates) if i is not None), None)

    @property
    def unknown(self) -> int | None:
        return self._unknown

    @cached_property  # of a large vocabulary the definition is megabytes of JSON
    def _unknown(self) -> int | None:
        model = json.loads(self.inner.to_str())["model"]
        sign = model.get("unk_token")
        return model.get("unk_id") if sign is None else self.inner.token_to_id(sign)

    def encode_pieces(self, pieces: Sequence[str], of: str = "the corpus") -> list[np.ndarray]:
        batch = getattr(self.inner, "encode_batch_fast", self.inner.encode_batch)  # fast: without the offsets
        encodings = batch(list(pieces), add_special_tokens=False)
        arrays = [np.array(array("I", e.ids)) for e in encodings]  # five times as fast as NumPy reads a list
        if self.mask is not None and any((ids == self.mask).any() for ids in arrays):
            sign = self.inner.id_to_token(self.mask)
            raise InputError(
                f"{of} holds '{sign}', the model's mask, which is no text; leave it out, or infill with `mask_token`"
            )
        return arrays

    def decode(self, tokens: Iterable[int], mask: str = "·") -> str:
        return super().decode([t if t < self.known else -1 for t in token_ids(tokens)], mask)

    def decode_pieces(self, pieces: Sequence[np.ndarray]) -> list[str]:
        return self.inner.decode_batch([tokens.tolist() for tokens in pieces], skip_special_tokens=False)

    def _decode(self, tokens: list[int]) -> str:
        return self.inner.decode(tokens, skip_special_tokens=False) if tokens else ""

    def describe(self) -> str:
        return f"{self.size:,} tokens"

    def to_dict(self) -> dict[str, Any]:
        definition = json.loads(self.inner.to_str()) | {"zellige": "tokens", "name": self.name}
        more = {"rows": self.size if self.size != self.known else None, "mask": self.mask}
        return definition | {name: value for name, value in more.items() if value is not None}

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json` as the library has it, and the `tokenizer_config.json` that transformers reads."""
        definition = self.inner.to_str()
        known = {*json.loads(definition), "zellige"}
        extra = {key: value for key, value in self.to_dict().items() if key not in known}
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, OURS: extra}
        if self.separator is not None:
            config["eos_token"] = self.inner.id_to_token(self.separator)
        config |= self.chat
        Path(folder).mkdir(parents=True, exist_ok=True)
        for file, text in (("tokenizer.json", definition), (CONFIG, json.dumps(config, ensure_ascii=False, indent=1))):
            write_file(Path(folder) / file, text + "\n")

    @cached_property
    def _fingerprint(self) -> str:
        definition = self.to_dict() | {"name": ""}  # 'gpt2' and a folder with GPT-2's files are the same tokenizer
        return definition_hash({key: value for key, value in definition.items() if key not in ("rows", "mask")})


TOKENIZERS: Registry[type[BaseTokenizer]] = Registry(  # by what a tokenizer.json has: the kind, else the name
    "tokenizer",
    group="zellige.tokenizers",
    fits=subclass(BaseTokenizer, "a class of zellige.data.tokenizer_base.BaseTokenizer"),
)
TOKENIZERS |= {"characters": Characters, "text": Characters, "bytes": Bytes, "integers": Integers}


def load(folder: str | Path) -> Tokenizer:
    """The tokenizer that `save` wrote into `folder`; a plain `tokenizer.json` of the Hugging Face hub will do as
    well."""
    path = Path(folder)
    path = path / "tokenizer.json" if path.is_dir() else path
    try:
        data = dict(read_json(path, dict, "give a tokenizer.json"))
        kind = data.pop(OURS, "tokens")
        if kind != "tokens":
            with reading(str(path)):  # it may name a tokenizer of another package
                return TOKENIZERS[data.get("kind", kind)](**data)
        from tokenizers import Tokenizer as Inner

        config = tokenizer_config(path.parent)
        extra = (
            config[OURS] if isinstance(config.get(OURS), dict) else {}
        )  # what the library cannot store: name and rows
        name = extra.get("name") or path.resolve().parent.name
        tokenizer = Tokens(Inner.from_str(json.dumps(data)), name, extra.get("rows"), extra.get("mask"))
        tokenizer.chat = chat_of(path.parent, config)
        return tokenizer
    except InputError:
        if path.exists():
            raise
        raise InputError(f"no tokenizer.json in '{folder}'; give a folder that a model was saved in") from None
    except Exception as problem:  # the library raises a bare Exception for a wrong definition
        raise InputError(f"'{path}' is not a tokenizer ({problem}); give a tokenizer.json") from None


def require_same(trained: Tokenizer, other: Tokenizer) -> None:
    """InputError unless the two give the same integers (an evaluation, or a resumed run, on other data)."""
    if trained.fingerprint == other.fingerprint:
        return
    if not trained.shape and not other.shape:
        raise InputError(
            f"the run was trained with '{trained.name}' ({trained.size:,}), this data has '{other.name}' "
            f"({other.size:,}); use `data.tokenizer` {trained.name}"
        )
    image = trained.kind == other.kind == "image"
    use = f"use `data.size` {trained.shape[0]} `data.levels` {trained.size}" if image else "give data of that form"
    raise InputError(f"the run was trained on {trained.describe()}, this data has {other.describe()}; {use}")


def _alphabet(symbols: str) -> str:
    """The sorted `symbols` in words: 'a-z and space', or their number when that gets long."""
    names = {" ": "space", "\n": "newline", "\t": "tab"}
    runs: list[str] = []
    for c in symbols:
        if runs and ord(c) == ord(runs[-1][-1]) + 1 and c.isalnum() and runs[-1].isalnum():
            runs[-1] += c
        elif c not in names:
            runs.append(c)
    words = [r if len(r) < 3 else f"{r[0]}-{r[-1]}" for r in runs] + [w for c, w in names.items() if c in symbols]
    if len(words) > 8 or not all(w.isprintable() for w in words):
        return f"{len(symbols):,} characters"
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
