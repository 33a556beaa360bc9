"""Samples in a notebook: a list of texts and an array of rows that Jupyter shows by their kind (`_repr_html_`)."""

from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .kinds import Modality
from .kinds.text import paragraphs


class Texts(list[str]):
    """A list of texts, which a notebook shows as paragraphs."""

    def _repr_html_(self) -> str:
        return paragraphs(map(escape, self))


class Rows(np.ndarray):
    """An array (N, *shape), which a notebook shows as a picture; what is computed from it is an array like any other."""

    html: Callable[[], str] | None = None

    def _repr_html_(self) -> str | None:
        return self.html() if self.html else None

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __reduce__(self) -> Any:
        """Pickled it is an array."""
        return self.view(np.ndarray).__reduce__()


def shown(kind: Modality, tokens: ArrayLike) -> Texts | Rows:
    """Samples as Python has them, of tokens (N, L) or a list of rows: texts, or an array (N, *shape) of another kind."""
    values = kind.values(tokens)
    if isinstance(values, list):
        return Texts(values)
    rows = np.asarray(values).view(Rows)
    rows.html = lambda: kind.html(tokens)
    return rows
