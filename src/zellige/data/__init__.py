"""Data: corpora by name or by path, tokenizers, packing.

    corpus = prepare(Data("text", path="letters/*.txt.gz", tokenizer="bytes"), length=256)
    corpus.train[0], corpus.tokenizer.decode(corpus.train[0]["tokens"]), corpus.about

Reading this package imports neither torch nor a tokenizer library; `prepare` does.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .catalogue import DATASETS, Source
from .corpus import Corpus, Data, Local
from .prepare import prepare

if TYPE_CHECKING:
    from .rows import Rows, collate
    from .tokenizer import load, require_same
    from .tokenizer_base import Tokenizer

_LATER = {
    "Rows": "rows",
    "collate": "rows",
    "Tokenizer": "tokenizer_base",
    "load": "tokenizer",
    "require_same": "tokenizer",
}

__all__ = [
    "DATASETS",
    "Corpus",
    "Data",
    "Local",
    "Rows",
    "Source",
    "Tokenizer",
    "collate",
    "load",
    "prepare",
    "require_same",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
