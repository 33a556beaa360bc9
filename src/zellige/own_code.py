"""Objects of a user's own file, named as `file.py:name`. Importing one runs the file."""

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

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
    return _imported(where, file.stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _imported(where: str, changed: int) -> ModuleType:
    """Import a file, once for each time that it was changed."""
    file = Path(where)
    spec = importlib.util.spec_from_file_location(file.stem, file)
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
