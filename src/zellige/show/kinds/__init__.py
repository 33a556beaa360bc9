"""Display of rows of data: as text, images, grids; on a terminal, in a file, in a figure.

    kind = of(model.tokenizer)
    kind.save(Path("x.png"), rows)

A row is what a tokenizer counts: integers 0 .. size - 1, flat, of the tokenizer's `kind` and `shape`. An integer that
is no token (-1, the mask) stands for what is still to come, and every kind shows it as such. A tokenizer
names its display (`BaseTokenizer.display`); without, it is that of its `kind`.
"""

from ...base.plugins import named
from ...data.tokenizer import TOKENIZERS
from ...data.tokenizer_base import Tokenizer
from .grid import Grid
from .image import Image
from .modality import Modality
from .table import Table
from .text import Text, added, token_texts

__all__ = ["KINDS", "Grid", "Image", "Modality", "Table", "Text", "added", "of", "suffixes", "token_texts"]

KINDS: dict[str, type[Modality]] = {"text": Text, "image": Image, "grid": Grid, "table": Table}


def of(tokenizer: Tokenizer) -> Modality:
    """Display of the sequences of a tokenizer."""
    if display := getattr(tokenizer, "display", ""):
        return named(display)(tokenizer)
    return KINDS[tokenizer.kind](tokenizer)


def suffixes() -> list[str]:
    """Every ending of a file that one kind or another can write; .jsonl holds any of them."""
    kinds = [*KINDS.values(), *(named(cls.display) for cls in TOKENIZERS.all().values() if cls.display)]
    return [".jsonl", *dict.fromkeys(suffix for kind in kinds for suffix in kind.suffixes)]
