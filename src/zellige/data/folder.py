"""A folder of the cache, whole or not there: written aside, synced, renamed; read only where its sums are those written."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..schema import read_json, sealed, structure
from ..schema import sha256 as file_sha256

FORMAT = 1


def folder_key(what: dict[str, Any]) -> str:
    """The name of the folder for what is made by `what` (JSON)."""
    return hashlib.sha256(json.dumps({"format": FORMAT} | what, sort_keys=True).encode()).hexdigest()[:24]


def read_whole(folder: Path, form: Any, main: str, nbytes: Callable[[Any], int]) -> dict[str, Any] | None:
    """meta.json of a finished folder; None if there is none, or if one of its files is not what was written.

    Every file is read for that, once through (2 GB take about a second): the source's files are too, to know the folder by.

    form: the TypedDict of meta.json, with the "sha256" of the file `main`, which has `nbytes(meta)` bytes.
    """
    if not (folder / "meta.json").is_file():
        return None
    try:
        meta = read_json(folder / "meta.json")
        structure(meta, form, "meta.json")
        whole = (folder / main).stat().st_size == nbytes(meta)
        sums = {main: meta["sha256"]} | meta.get("files", {})  # earlier versions have no sums of the others
        whole = whole and all(file_sha256(folder / name) == wanted for name, wanted in sums.items())
    except (OSError, InputError):
        return None
    return meta if whole else None


def write_meta(aside: Path, meta: dict[str, Any], main: str) -> dict[str, Any]:
    """Write meta.json, sealed, with the sums of all files beside `main`; returns it."""
    meta["files"] = {file.name: file_sha256(file) for file in sorted(aside.iterdir()) if file.name != main}
    (aside / "meta.json").write_text(json.dumps(sealed(meta), indent=1) + "\n", encoding="utf-8")
    return meta


@contextmanager
def written_aside(folder: Path, whole: Callable[[Path], Any], what: str) -> Iterator[Path]:
    """A folder to write into, which takes the name `folder` at the end; after an error nothing is left.

    whole: what reads a finished folder, None where it is broken. what: the content, in an error: "tokens".
    """
    new = [p for p in [folder.parent, *folder.parent.parents] if not p.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as problem:
        raise InputError(
            f"cannot write {what} to '{folder.parent}' ({problem.strerror}); set `data.cache` or ZELLIGE_CACHE"
        ) from None
    try:
        yield aside
        for file in aside.iterdir():
            with file.open("rb") as written:
                os.fsync(written.fileno())
        try:
            os.rename(aside, folder)
        except OSError:  # another process was first, or a broken folder is in the way
            if whole(folder) is None:
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
