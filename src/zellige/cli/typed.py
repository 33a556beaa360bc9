"""Command lines as they are typed: made of options that are known, and one option taken out of those that are not."""

import dataclasses
from collections.abc import Container, Mapping, Sequence
from typing import Any

from ..errors import InputError
from .flags import named_fields


def words_of(cls: type, values: Mapping[str, Any], without: Container[str] = (), prefix: str = "") -> list[str]:
    """The command line that gives fields these values, positional ones first; what `parse` makes of it is `cls(**values)`.

    values: by field, those of a section in a mapping of their own; None, "" and () are not typed, nor, of a section, defaults.
    without: options that are left out.
    """
    first, rest = list[str](), list[str]()
    for field, name, hint in named_fields(cls):
        value = values.get(field.name)
        if value is None or value == "" or value == () or value == []:
            continue
        if dataclasses.is_dataclass(hint):
            inner = f"{prefix}{name}." if name else prefix
            rest += words_of(hint, value, without, inner)  # pyright: ignore[reportArgumentType]
            continue
        flag = f"--{prefix}{name}".replace("_", "-")
        if name is None:
            first.append(str(value))
        elif flag in without or (prefix and value == field.default and field.name != "name"):
            continue
        elif isinstance(value, bool):
            rest.append(flag if value else f"--no-{flag[2:]}")
        else:
            rest += [flag, *map(str, value)] if isinstance(value, (list, tuple)) else [f"{flag}={value}"]
    return first + rest


def take(words: Sequence[str], name: str, where: str) -> tuple[str | None, list[str]]:
    """The value of one option, and the command line without the two."""
    for i, word in enumerate(words):
        head, has_value, value = word.partition("=")
        if head == name:
            if not has_value and (i + 1 == len(words) or words[i + 1].startswith("--")):
                raise InputError(f"{name} needs a value; see zellige {where} --help")
            return (
                (value, [*words[:i], *words[i + 1 :]]) if has_value else (words[i + 1], [*words[:i], *words[i + 2 :]])
            )
    return None, list(words)
