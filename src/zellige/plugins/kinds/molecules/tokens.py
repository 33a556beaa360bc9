"""Tokens of molecules: the characters of SMILES, or SELFIES.

SELFIES are symbols of which every sequence is a molecule (Krenn et al. 2020, arXiv 1905.13741; the package `selfies`).

A SMILES text becomes a sequence of symbols, an atom with its bond, a branch or a ring each; read back, a symbol that
would give an atom too many bonds is read as one that does not. The spelling may change on the way, the molecule does
not.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from zellige.base.errors import InputError
from zellige.data.folder import folder_key, read_whole, write_meta, written_aside
from zellige.data.tokenizer import Characters
from zellige.data.tokenizer_base import BaseTokenizer, Kind, OutsideVocabulary, token_ids

END = "\n"
_JOINS = "-=#:/\\("  # SMILES that goes on after an atom begins with one of these
DISPLAY = "zellige.plugins.kinds.molecules.display:Molecules"
_SYMBOL = re.compile(r"\[[^\[\]]*\]")


class Smiles(Characters):
    """One token a character of SMILES. A row holds one molecule, ended and filled up with line ends."""

    display = DISPLAY

    def __init__(self, alphabet: Iterable[str], kind: str = "smiles", shape: Sequence[int] = ()):
        super().__init__(alphabet, kind, shape)


def symbols_of(smiles: str) -> list[str]:
    """The symbols of a molecule. Raises InputError where the text is no SMILES, or SELFIES has no symbols for it.

    >>> symbols_of("CC=O")
    ['[C]', '[C]', '[=O]']
    """
    import selfies

    try:
        return _SYMBOL.findall(selfies.encoder(smiles))
    except selfies.EncoderError:
        raise InputError(f"'{smiles}' is no SMILES of a molecule that SELFIES can write; take it out") from None


def symbols_of_part(smiles: str) -> list[str]:
    """The symbols of a molecule or of a part of one: `=O` comes after an atom, and after `CC(=O)` an atom may follow.

    >>> symbols_of_part("CC(=O)")
    ['[C]', '[C]', '[=Branch1]', '[C]', '[=O]']
    """
    before, after = smiles[:1] in tuple(_JOINS), smiles.endswith(")")
    try:
        symbols = symbols_of("C" * before + smiles + "C" * after)
    except InputError:
        return symbols_of(smiles if not before else f"C{smiles}")[int(before) :]
    return symbols[int(before) : len(symbols) - after]


class Selfies(BaseTokenizer):
    """One token a symbol. A row holds one molecule, ended and filled up with line ends; `decode` gives its SMILES.

    symbols: those of the training molecules. shape: (most symbols of a molecule + 1,).

    While positions of a row are masked, `decode` gives its symbols, since only the whole of them is a molecule.
    """

    name, unit, kind = "selfies", "token", "smiles"
    display = DISPLAY
    loses: tuple[Kind, ...] | None = ("spelling",)

    def __init__(self, symbols: Iterable[str], shape: Sequence[int] = ()):
        self.symbols, self.shape = (END, *sorted({*symbols} - {END})), tuple(shape)
        self.size = len(self.symbols)
        self.separator: int | None = 0

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {symbol: i for i, symbol in enumerate(self.symbols)}

    def encode_pieces(self, pieces: Sequence[str], of: str = "the corpus") -> list[np.ndarray]:
        return [np.array(self.encode(piece, of), np.uint32) for piece in pieces]

    def encode(self, text: str, of: str = "the prompt") -> list[int]:
        """The tokens of SMILES, whole or a part, or of symbols: `CC=O` or `[C][C][=O]`; line ends are tokens, too."""
        return [token for line in re.split(f"({END})", text) if line for token in self._line(line, of)]

    def _line(self, line: str, of: str) -> list[int]:
        symbols = [line] if line == END else _SYMBOL.findall(line)
        if "".join(symbols) != line or any(symbol not in self._numbers for symbol in symbols):
            try:
                symbols = symbols_of_part(line)
            except InputError:
                raise InputError(
                    f"'{line}' in {of} is no SMILES that SELFIES can write; close its rings and branches, or give "
                    "symbols: [C][=O]"
                ) from None
        unknown = next((symbol for symbol in symbols if symbol not in self._numbers), None)
        if unknown:
            raise OutsideVocabulary(f"'{unknown}' in {of} is not in the model's vocabulary ({self.describe()})")
        return [self._numbers[symbol] for symbol in symbols]

    def decode(self, tokens: Iterable[int], mask: str = "·") -> str:
        values = token_ids(tokens)
        if any(not 0 <= token < self.size for token in values):
            return "".join(self.symbols[token] if 0 <= token < self.size else mask for token in values)
        import selfies

        lines = "".join(self.symbols[token] for token in values).split(END)
        return END.join(str(selfies.decoder(line)) for line in lines).rstrip(END)

    def describe(self) -> str:
        return f"{self.size - 1} symbols of SELFIES, and what ends a molecule"

    def to_dict(self) -> dict[str, Any]:
        return {"zellige": "selfies", "symbols": [*self.symbols], "shape": [*self.shape]}


class Meta(TypedDict):
    """meta.json of the cache: the size and the sha256 of symbols.txt, a molecule a line."""

    bytes: int
    files: dict[str, str]


def read_symbols(folder: Path) -> dict[str, Any] | None:
    """Contents of a finished folder; None if there is none. InputError if one of its files was changed."""
    return read_whole(folder, Meta, lambda meta: {"symbols.txt": meta["bytes"]})


def translated(lines: Sequence[str], cache: Path) -> list[list[str]]:
    """The symbols of each SMILES text, none of one that SELFIES cannot write; kept in the cache,
    since they take a while."""
    made_by = {"lines": hashlib.sha256(END.join(lines).encode()).hexdigest(), "selfies": version("selfies")}
    folder = cache / "selfies" / folder_key(made_by)
    try:
        meta = read_symbols(folder)
    except InputError:
        meta = None
    if meta is None:
        with written_aside(folder, read_symbols, "molecules") as aside:
            text = END.join(map(_written, lines)).encode()
            (aside / "symbols.txt").write_bytes(text)
            write_meta(aside, {"bytes": len(text)}, {})
    return [_SYMBOL.findall(line) for line in (folder / "symbols.txt").read_text("utf-8").split(END)]


def _written(smiles: str) -> str:
    try:
        return "".join(symbols_of(smiles))
    except InputError:
        return ""
