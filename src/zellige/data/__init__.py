"""Data: corpora by name or by path, tokenizers, packing.

    corpus = prepare(Data("text", path="letters/*.txt.gz", tokenizer="bytes"), length=256)
    corpus.train[0], corpus.tokenizer.decode(corpus.train[0]["tokens"]), corpus.about

Reading this package imports neither torch nor a tokenizer library; `prepare` does.
"""

from typing import TYPE_CHECKING

from ..base.lazy import lazy
from .catalogue import DATASETS, Source
from .corpus import Corpus, Data, Local
from .prepare import prepare

if TYPE_CHECKING:
    from .rows import Rows, collate
    from .tokenizer import load, require_same
    from .tokenizer_base import Tokenizer

_LATER = {
    "Rows": "data.rows",
    "collate": "data.rows",
    "Tokenizer": "data.tokenizer_base",
    "load": "data.tokenizer",
    "require_same": "data.tokenizer",
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
__getattr__, __dir__ = lazy(__name__, _LATER)
