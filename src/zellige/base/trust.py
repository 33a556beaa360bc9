"""Restrictions on files of others: running code, fetching from elsewhere and having changed are named, and asked for.

What is typed, or handed over in Python, is meant. A config, a result, a folder of claims or of a model may come from
anybody. `object_of` runs the file of `file.py:name` and returns the object.
"""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from .errors import InputError, nearest

_allowed = ContextVar("allowed", default=frozenset[str]())
_source = ContextVar("source", default="")


@contextmanager
def allow(code: bool = False, remote: bool = False, changed: bool = False) -> Iterator[None]:
    """Within the block files may name `code` that runs and data that is `remote`,
    and may have `changed` since their checksum."""
    more = {name for name, allowed in (("code", code), ("remote", remote), ("changed", changed)) if allowed}
    before = _allowed.set(_allowed.get() | more)
    try:
        yield
    finally:
        _allowed.reset(before)


@contextmanager
def reading(source: str) -> Iterator[None]:
    """Within the block names come from a file, `source`, and nobody typed them:
    a plug-in of another package is code."""
    before = _source.set(source)
    try:
        yield
    finally:
        _source.reset(before)


def refuse_plugin(what: str) -> None:
    """InputError where a file names `what`, which would run code of another package, and files may name none."""
    if (source := _source.get()) and not may_run_code():
        raise InputError(
            f"'{source}' names the {what}, whose code would run; add `allow_code`, or name it yourself, as `method` "
            "does"
        )


def may_have_changed() -> bool:
    """Return whether files may have changed since they were written, so that no checksum is compared."""
    return "changed" in _allowed.get()


def may_run_code() -> bool:
    """Return whether code that is named may run."""
    return "code" in _allowed.get()


def names_code(name: str) -> bool:
    """Return whether a method is named by its file, as `file.py:Class`."""
    where, colon, _ = name.rpartition(":")
    return bool(colon) and where.endswith(".py")


def refuse_code(name: str, source: str) -> None:
    """InputError where `name`, which stands in `source`, is code that would run, and files may name none."""
    if names_code(name) and not may_run_code():
        raise InputError(
            f"{source} has code run here, '{name}'; read that first, then add `allow_code`, or type it yourself"
        )


def refuse_remote(address: str, source: str) -> None:
    """InputError where `address`, which stands in `source`, would be fetched, and files may name none."""
    if "remote" not in _allowed.get():
        raise InputError(
            f"{source} has data fetched from elsewhere, '{address}'; add `allow_remote`, or give `data.path` yourself"
        )


# ---------------------------------------------------------------------------------------------------- a user's own file
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
