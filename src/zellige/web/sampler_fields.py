"""A sampler's options as fields of the page, made from the declaration that the command line is made from."""

import ast
import functools
import inspect
import itertools
import typing
from typing import Any

from .. import samplers
from ..models.sampler_options import SamplerOptions

KINDS = {int: "whole", float: "number", bool: "switch", str: "text"}


@functools.cache
def declared() -> dict[str, dict[str, str]]:
    """Each option by name: the kind of its values, and what it is for."""
    tree: Any = ast.parse(inspect.getsource(SamplerOptions)).body[0]
    notes = {
        field.target.id: note.value.value  # pyright: ignore[reportAttributeAccessIssue]
        for field, note in itertools.pairwise(tree.body)
        if isinstance(field, ast.AnnAssign)
    }
    hints = typing.get_type_hints(SamplerOptions)
    return {
        name: {"kind": next(KINDS[kind] for kind in typing.get_args(hints[name]) if kind in KINDS), "note": _note(note)}
        for name, note in notes.items()
    }


def sampler_fields(sampler: Any) -> list[dict[str, Any]]:
    """Its options, {name, kind, note, default}, in the order of the declaration."""
    taken = inspect.signature(sampler).parameters
    return [{"name": name, "default": taken[name].default} | more for name, more in declared().items() if name in taken]


def _note(text: str) -> str:
    """Without the samplers that the option belongs to: it stands among the fields of one of them."""
    head, _, rest = text.partition(": ")
    return rest if set(head.removeprefix("all but ").split(", ")) <= samplers.SAMPLERS.keys() else text
