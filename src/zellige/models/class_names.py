"""The classes that a model was trained with, by name and by number."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..base.arguments import is_number, of_kind
from ..base.errors import InputError, nearest, quoted, some
from ..core.batch import whole_numbers

if TYPE_CHECKING:
    from .model import Model

LISTED = 12  # of the names, in an error
WITHOUT_CLASS = "without the class"  # `class` of a protocol


def class_names(model: "Model") -> list[str]:
    """Names of the classes: those of the training data, else their numbers; [] without classes."""
    if (names := getattr(model, "classes", None)) is not None:  # of a classifier
        return list(names)
    data = (getattr(model, "about", None) or {}).get("data") or {}
    count = model.config.net.classes if getattr(model, "config", None) is not None else 0
    return list(data.get("classes") or map(str, range(count)))


def told_none(model: "Model") -> dict[str, str]:
    """The entry of a protocol for a class-conditional model that is given no class; {} for any other model."""
    return {"class": WITHOUT_CLASS} if class_names(model) else {}


def find_classes(model: "Model", asked: Any) -> Tensor:
    """The numbers (C,) of the classes `asked`: a name or a number, or several.

    Raises:
        InputError: the model has no classes; there is none of that name or number, with the nearest one.
    """
    names = class_names(model)
    if not names:
        raise InputError("the model was trained without classes; leave the class out, or train with `data.labels`")
    if isinstance(asked, Tensor) or hasattr(asked, "tolist"):
        asked = asked.tolist()
    several = asked if isinstance(asked, Sequence) and not isinstance(asked, str) else [asked]
    if not several:
        raise InputError("`classes` is empty; give the name or the number of one")
    return torch.tensor([_number(names, entry) for entry in several])


def text_classes(model: "Model", asked: Any, count: int, fixed: Any = None) -> Tensor:
    """The class of each text (C * count,), `count` of each that is asked for; InputError where several meet several
    rows of `fixed`."""
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
    raise InputError(f"unknown class {quoted(str(asked))}; {hint}the {len(names):,} are {some(names, LISTED)}")
