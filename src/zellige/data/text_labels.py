"""The classes of texts: a column beside the text, such as the topic of AG News; one document a row."""

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from . import readers
from .text_source import TextSource

if TYPE_CHECKING:
    from .corpus import Data


def check_pack(data: "Data") -> None:
    """InputError where a row may hold several documents, and so has no class."""
    if data.labels and data.pack != "document":
        raise InputError(
            f"`data.labels` is with `data.pack` {data.pack}; a row must be one document: `data.pack` document"
        )


def document_labels(source: TextSource, meta: dict[str, Any]) -> tuple[dict[str, np.ndarray], list[str]]:
    """The label of each document, by split, and what the classes are called: the catalogue's names, or the values themselves."""
    entry = source.entry
    order = sorted(source.parts, key=lambda part: part != source.whole)  # as the documents were written
    values = list(
        chain.from_iterable(readers.read_labels(p, source.form, entry.label) for o in order for p in source.files[o])
    )
    ranges = {split: of["documents"] for split, of in meta["splits"].items()}
    if len(values) != max(last for _, last in ranges.values()):
        raise InputError(f"{source.tell} has {len(values):,} labels and another number of documents; give one for each")
    first, last = ranges.get("train", (0, len(values)))
    seen = {*values[first:last]}
    known = [str(i + 1) for i in range(len(entry.classes))]  # published ones count from 1
    known = known or sorted(seen, key=lambda value: (len(value), value) if all(map(str.isdecimal, seen)) else value)
    number = {value: i for i, value in enumerate(known)}
    wrong = next((value for value in values if value not in number), None)
    if wrong is not None:
        raise InputError(
            f"{source.tell} has the label '{wrong}', which no training text has; there are {', '.join(known)}"
        )
    labels = np.array([number[value] for value in values], np.int64)
    return {split: labels[first:last] for split, (first, last) in ranges.items()}, list(entry.classes or known)
