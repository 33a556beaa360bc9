"""Molecules from files, a row each."""

from typing import TYPE_CHECKING, Any

import numpy as np

from zellige.base.errors import InputError
from zellige.data import readers
from zellige.data.array_source import Context, Raw, encoded, lines_format, locate_files, read_lines

from .properties import COUNTED, Property
from .tokens import Selfies, Smiles, translated

if TYPE_CHECKING:
    from zellige.data.corpus import Data


def read(data: "Data", context: Context) -> Raw:
    """Molecules, one per row, padded with line ends that count: the distribution is that of whole molecules.

    They are read as SMILES, a token a character, or with `data.tokenizer` selfies as SELFIES, a token a symbol.
    """
    lines, about = read_lines(data, context)
    labels, names = _classes(data, context, lines) if data.labels else (None, ())
    trained = context.tokenizer.name if context.tokenizer else ""
    cut_by = data.tokenizer or (trained if trained == "selfies" else "characters")  # as the model that reads it
    if cut_by not in ("characters", "selfies"):
        raise InputError(
            f"`data.tokenizer` is '{data.tokenizer}'; molecules are cut into characters or selfies, give one of these"
        )
    order = np.random.default_rng(0).permutation(len(lines))  # the file goes from small to large
    if cut_by == "selfies":
        (order, tokenizer, rows), count = _selfies(data, context, lines, order, about), None
    else:
        length = max(map(len, lines)) + 1
        tokenizer = Smiles({*"".join(lines), "\n"}, shape=(length,))
        rows = encoded(tokenizer, "".join(lines[i].ljust(length, "\n") for i in order))
        ends = int(tokenizer.separator or 0)
        count = lambda x: int((x != ends).sum()) + len(x)  # noqa: E731  (a molecule's characters and its end)
    about["protocol"] = (
        f"one molecule a row of {tokenizer.shape[0]}, ended and filled up with line ends, which are modelled; shuffled"
    )
    return Raw(
        {"all": rows}, tokenizer.size, tokenizer=tokenizer, characters=count, about=about,
        classes={} if labels is None else {"all": labels[order]}, names=names,
    )  # fmt: skip


def _selfies(
    data: "Data", context: Context, lines: list[str], order: np.ndarray, about: dict[str, Any]
) -> tuple[np.ndarray, Selfies, np.ndarray]:
    """Molecules as symbols: their order without those that SELFIES cannot write, tokenizer, rows."""
    symbols = translated(lines, context.cache)
    kept = order[[bool(symbols[i]) for i in order]]
    if not len(kept):
        raise InputError(f"SELFIES can write no molecule of '{data.path}'; give SMILES, or leave out `data.tokenizer`")
    if len(kept) < len(order):
        about["left_out"] = [f"{len(order) - len(kept):,} of {len(order):,} molecules, which SELFIES cannot write"]
    tokenizer = Selfies({symbol for i in kept for symbol in symbols[i]}, (max(map(len, symbols)) + 1,))
    number = {symbol: i for i, symbol in enumerate(tokenizer.symbols)}
    rows = np.full((len(kept), *tokenizer.shape), tokenizer.separator, np.uint16)
    for row, i in zip(rows, kept):
        row[: len(symbols[i])] = [number[symbol] for symbol in symbols[i]]
    return kept, tokenizer, rows


def _classes(data: "Data", context: Context, lines: list[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each molecule by `data.labels_by`, and the names of the classes."""
    if not data.labels_by:
        raise InputError(
            f"`data.labels` of molecules needs a property; say which: `data.labels_by` {', '.join(COUNTED)} or a column"
        )
    of = Property.of(data.labels_by)
    if of.name not in COUNTED:
        files, form = locate_files(data, context)[0].values(), lines_format(data)
        values = [value for path in files for value in readers.read_labels(path, form, of.name)]
        if len(values) != len(lines):
            raise InputError(
                f"`data.labels_by` {of.name} has {len(values):,} values for {len(lines):,} molecules; give one for each"
            )
        return of.classes(values)
    counts = [of.counted(line) for line in lines]
    if None in counts:
        wrong = lines[counts.index(None)]
        raise InputError(
            f"'{wrong}' is no SMILES of one molecule, so its {of.name} cannot be counted; take it out of the file"
        )
    return of.classes([*map(str, counts)])
