"""The classes that a model was told in training: what they are called, and which ones somebody asks for."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..arguments import is_number, of_kind
from ..core.batch import whole_numbers
from ..errors import InputError, nearest, quoted

LISTED = 12  # of the names, in an error


def class_names(model: Any) -> list[str]:
    """What the classes are called: as the data of its training called them, else their numbers; [] of a model without."""
    data = (getattr(model, "about", None) or {}).get("data") or {}
    count = model.config.net.classes if getattr(model, "config", None) is not None else 0
    return list(data.get("classes") or map(str, range(count)))


def told_none(model: Any) -> dict[str, str]:
    """What a protocol says of a model that is told no class: that it is told none, if it knows any."""
    return {"class": "without the class"} if class_names(model) else {}


def find_classes(model: Any, asked: Any) -> Tensor:
    """The numbers (C,) of the classes `asked`: a name or a number, or several.

    Raises:
        InputError: the model has no classes; there is none of that name or number, with the nearest one.
    """
    names = class_names(model)
    if not names:
        raise InputError("the model was trained without classes; ask for none, or train one with `data.labels`")
    if isinstance(asked, Tensor) or hasattr(asked, "tolist"):
        asked = asked.tolist()
    several = asked if isinstance(asked, Sequence) and not isinstance(asked, str) else [asked]
    if not several:
        raise InputError("`classes` is empty; give the name or the number of one")
    return torch.tensor([_number(names, one) for one in several])


def text_classes(model: Any, asked: Any, count: int, fixed: Any = None) -> Tensor:
    """The class of each text (C * count,), `count` of each that is asked for; InputError where several meet several rows of
    `fixed`."""
    classes = find_classes(model, asked)
    rows = 1 if fixed is None or whole_numbers("fixed", fixed).ndim < 2 else len(fixed)
    if len(classes) > 1 and rows > 1:
        raise InputError(f"there are {len(classes)} classes and {rows} rows of `fixed`; give one class, or one row")
    return classes.repeat_interleave(count)


def _number(names: list[str], asked: Any) -> int:
    if isinstance(asked, bool) or not isinstance(asked, (str, int)):
        raise InputError(f"a class is {of_kind(asked)}; it must be a name or a number")
    if isinstance(asked, str) and asked in names:
        return names.index(asked)
    if is_number(str(asked)) and int(asked) < len(names):
        return int(asked)
    near = nearest(str(asked).lower(), [name.lower() for name in names])
    near = next((name for name in names if name.lower() == near), None)
    hint = f"did you mean '{near}'? " if near else ""
    listed = ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")
    raise InputError(f"unknown class {quoted(str(asked))}; {hint}the {len(names):,} are {listed}")
