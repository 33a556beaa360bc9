"""Single fields of a training by their names, as the command line, files of options and sweeps give them: {"train.steps": 500}.

A name is a section and a field; a method's own field may stand alone: "schedule", or "options.schedule".
"""

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, Union

from ..errors import InputError, nearest
from ..schema import either

SECTIONS = ("options", "data", "net", "train")
FORMERLY = {"train.rate": "train.lr"}  # settings by their earlier names


def with_settings(sections: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections with single fields replaced; each section checks all of its new values together.

    Args:
        sections: the dataclasses of SECTIONS.
        settings: values by name; a text is read as on the command line.
    """
    values: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for name, value in settings.items():
        section, field = _field(name, sections)
        kind = typing.get_type_hints(type(sections[section]))[field]
        values[section][field] = read_value(kind, value, name)
    return {name: replace(section, **values[name]) if values[name] else section for name, section in sections.items()}


def _field(name: str, sections: Mapping[str, Any]) -> tuple[str, str]:
    section, _, field = FORMERLY.get(name, name).rpartition(".")
    section = section or "options"
    sections = {name: value for name, value in sections.items() if is_dataclass(value)}  # not an own network
    if section in sections and any(entry.name == field for entry in fields(sections[section])):
        return section, field
    names = [f"{s}.{f.name}".removeprefix("options.") for s, value in sections.items() for f in fields(value)]
    near = nearest(name, names)
    raise InputError(f"no setting `{name}`; " + (f"did you mean `{near}`?" if near else "e.g. train.steps, data.path"))


def read_value(kind: Any, value: Any, name: str) -> Any:
    """Return a value as a field of the type `kind` takes it; texts are read as on the command line."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        values = value if isinstance(value, (list, tuple)) else [value]
        kinds_of_parts = [parts[0]] * len(values) if parts[1:] == (...,) else parts
        if len(values) != len(kinds_of_parts):
            raise InputError(f"`{name}` has {len(values)} values; it must have {len(kinds_of_parts)}")
        return tuple(read_value(part, kind_of_value, name) for part, kind_of_value in zip(kinds_of_parts, values))
    kinds = parts if origin in (Union, types.UnionType) else (kind,)
    if value is None or (type(None) in kinds and str(value) == "None"):
        return None
    for kind_of_value in kinds:
        if kind_of_value is bool and str(value) in ("True", "False"):
            return str(value) == "True"
        try:
            if kind_of_value in (int, float) and not isinstance(value, bool):
                return kind_of_value(str(value).encode("ascii"))  # not the digits of other scripts, which Python reads
        except ValueError:
            continue
    words = [
        word
        for kind_of_value in kinds
        for word in typing.get_args(kind_of_value)
        if typing.get_origin(kind_of_value) is Literal
    ]
    if str in kinds or str(value) in words:
        return str(value)
    must = (
        either(tuple(words))
        if words
        else "True or False"
        if bool in kinds
        else "a number"
        if float in kinds
        else "a whole number"
    )
    raise InputError(f"`{name}` is {value!r}; it must be {must}")
