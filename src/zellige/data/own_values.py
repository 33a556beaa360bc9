"""Values that are handed over in Python: texts, integers, a data set of the `datasets` library;
or a dict of these by split."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..base.arguments import of_kind
from ..base.errors import InputError, quoted
from .catalogue import SPLITS
from .file_names import NAMES


def by_split(values: Any, field: str | None = None) -> dict[str, Any]:
    """User data by split; "all" if it has none. Of a data set of `datasets`, the column `field`.

    Raises:
        InputError: no such split, no such column.
    """
    if not isinstance(values, Mapping):
        return {"all": _column(values, field)}
    for name in values:
        if name not in NAMES:
            raise InputError(f"the data has a split {quoted(str(name))}; splits are {', '.join(SPLITS)}")
    splits = {NAMES[name]: _column(value, field) for name, value in values.items()}
    if len(splits) < len(values) or not splits:
        raise InputError(f"the data has splits {', '.join(values) or 'of no name'}; give train, validation and test")
    return {name: splits[name] for name in SPLITS if name in splits}


def _column(values: Any, field: str | None) -> Any:
    """A column of a data set of `datasets`; anything else as it is, as a list where NumPy or pandas holds texts."""
    columns = getattr(values, "column_names", None)
    if columns is not None:
        name = field or (columns[0] if len(columns) == 1 else "text")
        if name not in columns:
            raise InputError(
                f"the data set has no column '{name}' ({', '.join(columns)}); name one: Data.of(data, field=...)"
            )
        return list(values[name])
    if field is not None:
        raise InputError(f"`field` is {quoted(field)}, and there are no columns; leave it out")
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    return values.tolist() if kind in ("O", "U") and hasattr(values, "tolist") else values


def are_texts(values: object) -> bool:
    """Return whether these are texts, by the first of them; InputError if another is not."""
    if not isinstance(values, (list, tuple)) or not values or not isinstance(values[0], str):
        return False
    wrong = next((i for i, text in enumerate(values) if not isinstance(text, str)), None)
    if wrong is not None:
        raise InputError(f"text {wrong:,} of the data is {of_kind(values[wrong])}; it must be a text")
    return True


def integers(values: Any) -> Any:
    """An array, of a tensor or of what calls itself one; lists as they are.
    InputError where these are no values at all."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    if isinstance(values, (list, tuple)):
        if not values:
            raise InputError("the data is an empty list; give texts or whole numbers")
        if isinstance(values[0], (str, bytes)) or not (
            hasattr(values[0], "__len__") or hasattr(values[0], "__index__")
        ):
            raise InputError(f"the first entry of the data is {of_kind(values[0])}; give texts or whole numbers")
        return values
    if not (hasattr(values, "dtype") and hasattr(values, "ndim")):
        raise InputError(
            f"the data is {of_kind(values)}; it must be a list of texts, or whole numbers: a list, array or tensor"
        )
    if not values.ndim or not len(values):
        raise InputError(f"the data has shape {tuple(values.shape)}; give whole numbers (N,), (N, L) or (N, ...)")
    return values


def largest_token(parts: Iterable[Any]) -> int:
    """The largest integer of all parts; -1 where there is none: whoever reads them says what they are."""
    import numpy as np

    largest = -1
    for split in parts:
        for chunk in (
            split if isinstance(split, (list, tuple)) and len({np.shape(entry) for entry in split}) > 1 else [split]
        ):
            array = np.asarray(chunk)
            if array.size and np.issubdtype(array.dtype, np.integer):
                largest = max(largest, int(array.max()))
    return largest
