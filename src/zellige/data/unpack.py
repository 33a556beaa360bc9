"""Files as bytes, also in .gz, .bz2, .xz, .zst and .zip: opened unpacked, and their sums;
what is damaged is one line."""

import bz2
import csv
import gzip
import hashlib
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ..base.errors import InputError, not_installed
from ..base.requests import Progress
from ..base.schema import sha256
from .remote_files import RemoteFile, answering

BLOCK = 1 << 20
Readable = Path | RemoteFile


class _Counted(io.RawIOBase):
    """A file that reports how many of its bytes have been read (for the progress of compressed files)."""

    def __init__(self, inner: IO[bytes], report: Callable[[int], None]):
        self.inner, self.report = inner, report

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.inner.seek(offset, whence)

    def tell(self) -> int:
        return self.inner.tell()

    def readinto(self, buffer) -> int:
        block = self.inner.read(len(buffer))
        buffer[: len(block)] = block
        self.report(len(block))
        return len(block)

    def close(self) -> None:
        self.inner.close()
        super().close()


def read_twice(files: list[Path], progress: Progress | None) -> Callable[[int], None]:
    """Callback for the number of bytes read, for files that are read once for their checksum and once for their
    contents."""
    total, count_read = sum(path.stat().st_size for path in files), 0

    def report(count: int) -> None:
        nonlocal count_read
        count_read += count
        if progress:
            progress(min(count_read // 2, total), total)

    return report


def size_of(path: Readable) -> int:
    """Bytes of a file, packed as it is."""
    return path.size if isinstance(path, RemoteFile) else path.stat().st_size


def digest_files(
    files: Sequence[Any], report: Callable[[int], None], of: Callable[[Path, Callable[[int], None]], str] = sha256
) -> str:
    """sha256 of one file as it stands on disk, or of the list of the files' sums and names. of: gives that of one.

    Of a file of a remote store it is the sum of what the store says of it (`RemoteFile.digest`).
    """
    sums = [path.digest() if isinstance(path, RemoteFile) else of(path, report) for path in files]
    if len(sums) == 1:
        return sums[0]
    return hashlib.sha256("".join(f"{s}  {p.name}\n" for s, p in zip(sums, files)).encode()).hexdigest()


def _open(path: Readable, report: Callable[[int], None]) -> IO[bytes]:
    file = io.BufferedReader(_Counted(path.open("rb"), report), BLOCK)  # pyright: ignore[reportArgumentType]
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return gzip.open(file, "rb")  # pyright: ignore[reportReturnType]
    if suffix == ".bz2":
        return bz2.open(file, "rb")
    if suffix == ".xz":
        return lzma.open(file, "rb")
    if suffix == ".zst":
        stream = arrow_library(path).CompressedInputStream(file, "zstd")
        return io.BufferedReader(stream, BLOCK)  # pyright: ignore[reportReturnType]
    if suffix == ".zip":
        archive = zipfile.ZipFile(file)
        inside = [m for m in archive.infolist() if not m.is_dir() and not re.search(r"(^|/)(\.|__MACOSX/)", m.filename)]
        if len(inside) != 1:
            raise InputError(
                f"'{path}' holds {len(inside):,} files, a .zip is read with one; unpack it, give the folder"
            )
        if inside[0].flag_bits & 1:
            raise InputError(f"'{path}' is encrypted; unpack it, and give what is in it")
        return archive.open(inside[0])
    return file


def read_bytes(path: Readable) -> bytes:
    """All bytes of a file, unpacked."""
    with opened(path, lambda count: None) as file:
        return file.read()


@contextmanager
def opened(path: Readable, report: Callable[[int], None]) -> Iterator[IO[bytes]]:
    """A file, unpacked. report(bytes of the file itself that were read since). InputError: it is damaged,
    or cannot be read."""
    if isinstance(path, RemoteFile):
        with answering(str(path)), _open(path, report) as file:
            yield file
        return
    try:
        with _open(path, report) as file:
            yield file
    except NotImplementedError as problem:  # a .zip
        raise InputError(f"'{path}' is packed in a way that Python does not read ({problem}); unpack it") from None
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, gzip.BadGzipFile) as problem:
        raise InputError(f"'{path}' is damaged ({problem}); copy or download it again") from None
    except (PermissionError, IsADirectoryError) as problem:
        raise InputError(f"'{path}' cannot be read ({problem.strerror}); give a readable file") from None
    except OSError as problem:
        if problem.errno is not None:  # of the disk, and not of what is on it
            raise
        raise InputError(f"'{path}' is damaged ({problem}); copy or download it again") from None


@contextmanager
def of_rows(path: Readable | str) -> Iterator[None]:
    """Within it what Python's `csv` cannot read of a file is an InputError."""
    try:
        yield
    except (
        csv.Error,
        UnicodeDecodeError,
    ) as problem:  # a field that no quotation mark ends, the bytes of something else
        raise InputError(f"'{path}' is no table of rows and columns ({problem}); copy or download it again") from None


def arrow_library(path: Readable) -> Any:
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.ipc  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise not_installed(f"'{path}'", "pyarrow", "data") from None
    return pyarrow
