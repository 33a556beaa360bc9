"""Objects of a user's own file, named as `file.py:name`. Importing one runs the file."""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from .errors import InputError, nearest


def module_of(name: str) -> ModuleType:
    """The module in the file of `file.py:name`. InputError where there is no such file, or it does not import."""
    where = name.rpartition(":")[0]
    file = Path(where)
    if not file.is_file():
        folder = file.absolute().parent
        near = nearest(file.name, [f.name for f in folder.glob("*.py")]) if folder.is_dir() else None
        raise InputError(
            f"no file at '{where}'; " + (f"nearest in that folder: '{near}'" if near else "give the path of a .py file")
        )
    spec = importlib.util.spec_from_loader(file.stem, _Source(file.stem, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"'{where}' does not import ({type(error).__name__}: {error}); run it with python first"
        ) from error
    return module


def object_of(name: str, what: str, fits: Callable[[Any], bool]) -> Any:
    """The object `file.py:name` among those of its file that fit.

    Raises:
        InputError: no such file, it does not import, or it has no `what` of that name.
    """
    module, (where, _, title) = module_of(name), name.rpartition(":")
    own = {n: v for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__ and fits(v)}
    if title not in own:
        near = nearest(title, [*own])
        meant = f"did you mean '{near}'? " if near else ""
        raise InputError(f"no {what} '{title}' in '{where}'; {meant}(there: {', '.join(own) or 'none'})")
    return own[title]


class _Source(importlib.machinery.SourceFileLoader):
    """Compiles the file anew: no bytecode beside a user's file, and none of a version that was there a moment ago."""

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.get_data(self.path), self.path, "exec", dont_inherit=True)
