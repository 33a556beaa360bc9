"""Restrictions on files of others: running code, fetching from elsewhere and having changed are named, and asked for.

What is typed, or handed over in Python, is meant. A config, a result, a folder of claims or of a model may come from anybody.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .errors import InputError

_allowed = ContextVar("allowed", default=frozenset[str]())
_source = ContextVar("source", default="")


@contextmanager
def allow(code: bool = False, remote: bool = False, changed: bool = False) -> Iterator[None]:
    """Within the block files may name `code` that runs and data that is `remote`, and may have `changed` since their checksum."""
    more = {name for name, allowed in (("code", code), ("remote", remote), ("changed", changed)) if allowed}
    before = _allowed.set(_allowed.get() | more)
    try:
        yield
    finally:
        _allowed.reset(before)


@contextmanager
def reading(source: str) -> Iterator[None]:
    """Within the block names come from a file, `source`, and nobody typed them: a plug-in of another package is code."""
    before = _source.set(source)
    try:
        yield
    finally:
        _source.reset(before)


def refuse_plugin(what: str) -> None:
    """InputError where a file names `what`, which would run code of another package, and files may name none."""
    if (source := _source.get()) and not may_run_code():
        raise InputError(
            f"'{source}' names the {what}, whose code would run; add `allow_code`, or name it yourself, as `method` does"
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
