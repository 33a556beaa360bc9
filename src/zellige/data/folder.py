"""A folder of the cache, whole or not there: written aside, synced, renamed; read only where its sums are those written."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..base.errors import InputError
from ..base.schema import read_json, sealed, sha256, structure
from .sums import Sums

FORMAT = 1


def own_cache() -> Path:
    """The cache of who asks for no other, in the home folder."""
    return Path.home() / ".cache" / "zellige"


def make_place(place: Path) -> None:
    """Make a folder of a cache. All in it is as the umask has it, so that several may share one;
    the own one is made private."""
    with suppress(RuntimeError):  # no home folder
        if place.is_relative_to(own_cache()):
            own_cache().parent.mkdir(parents=True, exist_ok=True)
            own_cache().mkdir(0o700, exist_ok=True)
    place.mkdir(parents=True, exist_ok=True)


def folder_key(what: dict[str, Any]) -> str:
    """The name of the folder for what is made by `what` (JSON)."""
    return hashlib.sha256(json.dumps({"format": FORMAT} | what, sort_keys=True).encode()).hexdigest()[:24]


def read_whole(
    folder: Path, form: type, sizes: Callable[[Any], dict[str, int]], sums: Sums | None = None
) -> dict[str, Any] | None:
    """meta.json of a finished folder; None if there is none.

    Its files are whole as far as `sums` knows them; those that it does not know are read for that, once through.

    form: the TypedDict of meta.json, with the sum of each file in "files". sizes(meta): the bytes of each large file.

    Raises InputError: a file is missing, or is not what was written.
    """
    if not (folder / "meta.json").is_file():
        if folder.is_dir():
            raise InputError(f"'{folder / 'meta.json'}' is missing")
        return None
    meta = read_json(folder / "meta.json")
    structure(meta, form, f"'{folder / 'meta.json'}'")
    sizes_of, sum_of = sizes(meta), (sums or Sums(folder)).of
    for name, expected in meta["files"].items():
        try:
            size = (folder / name).stat().st_size
            right = size == sizes_of.get(name, size) and sum_of(folder / name) == expected
        except OSError as problem:
            raise InputError(f"'{folder / name}' is missing ({problem.strerror})") from None
        if not right:
            raise InputError(f"'{folder / name}' is damaged")
    return meta


def write_meta(aside: Path, meta: dict[str, Any], known: dict[str, str]) -> dict[str, Any]:
    """Write meta.json, sealed, with the sums of all files; returns it. known: the sums that need not be made again."""
    meta["files"] = {file.name: known.get(file.name) or sha256(file) for file in sorted(aside.iterdir())}
    (aside / "meta.json").write_text(json.dumps(sealed(meta), indent=1) + "\n", encoding="utf-8")
    return meta


@contextmanager
def written_aside(folder: Path, whole: Callable[[Path], Any], what: str) -> Iterator[Path]:
    """A folder to write into, which takes the name `folder` at the end; after an error nothing is left.

    whole(folder): reads a finished one; InputError where it is broken. what: the content, in an error: "tokens".
    """
    new = [p for p in [folder.parent, *folder.parent.parents] if not p.exists()]
    try:
        make_place(folder.parent)
        aside = folder.parent / f".{folder.name}-{secrets.token_hex(8)}"
        aside.mkdir()
    except OSError as problem:
        raise InputError(
            f"cannot write {what} to '{folder.parent}' ({problem.strerror}); set `data.cache` or ZELLIGE_CACHE"
        ) from None
    try:
        yield aside
        for file in aside.iterdir():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        try:
            os.rename(aside, folder)
        except OSError:  # another process was first, or a broken folder is in the way
            handle = None
            with suppress(InputError):
                handle = whole(folder)
            if handle is None:
                shutil.rmtree(folder, ignore_errors=True)
                os.rename(aside, folder)
        _sync_folder(folder.parent)
    except BaseException as problem:
        shutil.rmtree(aside, ignore_errors=True)
        for parent in new:
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
        if isinstance(problem, OSError) and problem.errno == 28:
            raise InputError(
                f"no space left in '{folder.parent}' for the {what}; free space, or set `data.cache`"
            ) from None
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
