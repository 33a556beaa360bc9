"""Single fields of a training by their names, as the command line, files of options and sweeps give them:
{"train.steps": 500}.

A name is a section and a field; a method's own field may stand alone: "schedule", or "options.schedule".
"""

import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ..base.arguments import Annotation, from_text
from ..base.errors import InputError, nearest

SECTIONS = ("options", "data", "net", "train")


def with_settings(sections: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections with single fields replaced; each section checks all of its new values together.

    Args:
        sections: the dataclasses of SECTIONS, or some of them.
        settings: values by name; a text is read as on the command line.
    """
    values: dict[str, dict[str, Any]] = {name: {} for name in sections}
    for name, value in settings.items():
        section, field = _field(name, sections)
        kind = typing.get_type_hints(type(sections[section]))[field]
        values[section][field] = read_value(kind, value, name)
    return {name: replace(section, **values[name]) if values[name] else section for name, section in sections.items()}


def _field(name: str, sections: Mapping[str, Any]) -> tuple[str, str]:
    section, _, field = name.rpartition(".")
    section = section or "options"
    sections = {name: value for name, value in sections.items() if is_dataclass(value)}  # not an own network
    if section in sections and any(entry.name == field for entry in fields(sections[section])):
        return section, field
    names = [f"{s}.{f.name}".removeprefix("options.") for s, value in sections.items() for f in fields(value)]
    near = nearest(name, names)
    raise InputError(f"no setting `{name}`; " + (f"did you mean `{near}`?" if near else "e.g. train.steps, data.path"))


def read_value(kind: Annotation, value: object, name: str) -> Any:
    """Return a value as a field of the type `kind` takes it; texts are read as on the command line."""
    if typing.get_origin(kind) is tuple:
        values, parts = value if isinstance(value, (list, tuple)) else [value], typing.get_args(kind)
        if parts[1:] != (...,) and len(values) != len(parts):
            raise InputError(f"`{name}` has {len(values)} values; it must have {len(parts)}")
        return tuple(from_text(str(part), kind, f"`{name}`") for part in values)
    return None if value is None else from_text(str(value), kind, f"`{name}`")
