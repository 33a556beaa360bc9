"""Modules whose names are imported when they are first used."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy(
    module: str, where: Mapping[str, str], modules: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a module.

    Args:
        module: its `__name__`.
        where: of each public name the module of the library that defines it: "core.batch".
        modules: of each public name of a module the module.
    """

    def get(name: str) -> Any:
        if name in where:
            return getattr(importlib.import_module(f"zellige.{where[name]}"), name)
        if modules and name in modules:
            return importlib.import_module(f"zellige.{modules[name]}")
        from .errors import no_attribute

        raise AttributeError(no_attribute(module, name), name=name, obj=sys.modules[module])

    return get, lambda: sorted(sys.modules[module].__all__)
