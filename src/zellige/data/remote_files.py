"""Text that lies in a remote store, read through fsspec: s3://bucket/web/*.jsonl.zst, gs://, hf://datasets/...,
https://, memory://.

A path with a scheme names a file, a folder or a glob there, as one without names them here. Nothing is copied: a file
is read block by block each time it is asked for. What it is known by, in place of a sum of its bytes, is what the store
says of it: its size, and its ETag, checksum, generation or time.
"""

import glob
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import IO, Any

from ..base.errors import InputError, nearest
from .remote import Unreachable, silence

SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)(?:://|::.*://)")  # simplecache::s3://... is one of fsspec's, too
MARKS = (
    "etag", "blob_id", "sha256", "md5", "md5hash", "crc32c", "generation", "version_id", "last_modified", "lastmodified",
    "mtime", "updated", "created",
)  # fmt: skip
PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "oss": "ossfs",
    "http": "aiohttp", "https": "aiohttp", "sftp": "paramiko", "ssh": "paramiko", "smb": "smbprotocol",
}  # fmt: skip


def is_remote(path: str) -> bool:
    """Return whether a path has a scheme, such as s3://bucket/a.txt."""
    return SCHEME.match(path) is not None


class RemoteFile:
    """A file of a store: of a Path what readers ask for. info: what the store says of it. inside: the folders that it
    is in below the one that was named."""

    def __init__(self, store: Any, place: str, info: dict[str, Any], inside: tuple[str, ...] = ()):
        self.store, self.place, self.info, self.inside = store, place, info, inside
        pure = PurePosixPath(place.partition("?")[0])
        self.name, self.suffix, self.suffixes = pure.name, pure.suffix, pure.suffixes
        size = info.get("size")
        self.size = 1 if size is None else int(size)  # not all say it; not nothing

    def __str__(self) -> str:
        return self.store.unstrip_protocol(self.place)

    def open(self, mode: str = "rb") -> IO[bytes]:
        return self.store.open(self.place, mode)

    def digest(self) -> str:
        """sha256 of what tells whether it has changed."""
        marks = {name: str(value) for name, value in self.info.items() if name.lower() in MARKS and value is not None}
        marks = marks or {"key": str(self.store.ukey(self.place))}
        state = {"name": str(self), "size": str(self.size)} | marks
        return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


@contextmanager
def answering(path: str) -> Iterator[None]:
    """Turn any exception of a store within the block into one sentence."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"no file at '{path}'; give one that is in that store") from None
    except Exception as problem:
        reason = (str(problem).splitlines() or [""])[0][:120].rstrip(".") or type(problem).__name__
        raise InputError(f"'{path}' cannot be read ({reason}); try again, or copy it here") from None


def find_remote(path: str, readable: Callable[[PurePosixPath], bool]) -> list[RemoteFile]:
    """The files that `path` names, in order of their names; of a folder those that are `readable`."""
    store, place = _store(path)
    several = "*" in path or (not path.startswith("http") and glob.has_magic(path))  # an address may have a "?"
    with answering(path):
        store.invalidate_cache()
        if several:
            entries = store.glob(place, detail=True)
        else:
            info = store.info(place)
            if info["type"] == "file":
                return [RemoteFile(store, place, info)]
            entries = store.find(place, detail=True)
            entries = {name: info for name, info in entries.items() if readable(PurePosixPath(name))}
    if not entries and not several:
        raise InputError(f"no text in folder '{path}' (.txt .md .jsonl .csv .parquet, also .gz .zst .zip); give a glob")
    files = []
    for name, info in sorted(entries.items()):
        if info["type"] == "file":
            below = PurePosixPath(name)
            folder = not several and below.is_relative_to(place)
            files.append(RemoteFile(store, name, info, below.relative_to(place).parts[:-1] if folder else ()))
    if not files:
        raise InputError(f"no file matches '{path}'; give a file, a folder or a glob that is in that store")
    return files


def _store(path: str) -> tuple[Any, str]:
    """The filesystem of a path, and the path within it."""
    import fsspec
    from fsspec.core import url_to_fs

    match = SCHEME.match(path)
    scheme = match[1] if match else ""
    protocols = {*fsspec.available_protocols(), *PACKAGES}
    if scheme not in protocols:
        near = nearest(scheme, sorted(protocols))
        use = f"did you mean '{near}://'?" if near else "use s3://, gs://, hf://, https:// or another of fsspec"
        raise InputError(f"'{path}' has a scheme that is not known, '{scheme}'; {use}")
    if reason := silence(_host(scheme, path)):
        raise Unreachable(f"'{path}' cannot be reached ({reason}); copy it here", reason)
    try:
        store, place = url_to_fs(path)
    except ImportError as problem:
        package = PACKAGES.get(scheme)
        use = f"`pip install {package}`" if package else str(problem)
        raise InputError(f"'{path}' needs a package that is not installed: {use}") from None
    except Exception as problem:
        reason = (str(problem).splitlines() or [type(problem).__name__])[0][:120].rstrip(".")
        raise InputError(f"'{path}' is no path of a store ({reason}); give e.g. s3://bucket/web/*.jsonl") from None
    return store, place


def _host(scheme: str, path: str) -> str:
    """The address to ask first whether it answers, where a library would wait for minutes; "" where there is none."""
    if scheme == "hf":
        from huggingface_hub import constants

        return constants.ENDPOINT
    return path if scheme in ("http", "https") else ""
