"""Files that survive: files and folders written aside and renamed. A folder is complete or absent, whatever interrupts
it.

A symbolic link under the name of a file that is written is replaced: a run that somebody sent cannot lead outside of
it.
"""

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

from .errors import InputError
from .schema import shown

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the ways in which a system says that there is no room


# ---------------------------------------------------------------------------------------------------- whole folders
def file_suffix(**values: Any) -> str:
    """Return what a file's name says of choices that are not the defaults: `-limit-4-only-ptb`; None, False, ():
    not chosen."""
    words = []
    for name, value in values.items():
        if value is None or value is False or value == ():
            continue
        parts = [] if value is True else value if isinstance(value, (list, tuple)) else [value]
        texts = (f"{part:g}" if isinstance(part, float) else str(part) for part in parts)
        words += [name.replace("_", "-"), *(re.sub(r"[^\w.]+", "-", text) for text in texts)]
    text = "".join(f"-{word}" for word in words)
    return text if len(text) <= 80 else f"-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def free(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, ... that is not there yet."""
    name, n = folder, 1
    while name.exists():
        n += 1
        name = folder.with_name(f"{folder.name}-{n}")
    return name


def make(folder: Path) -> None:
    """Make a folder, and those above it, if need be. InputError where the system does not let one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as problem:  # ValueError: a null character
        raise unwritable(folder, problem) from problem


@contextlib.contextmanager
def made(folder: Path) -> Iterator[None]:
    """A folder for the block: `make`; of the new ones those go again that are empty in the end."""
    new = []
    for path in (folder, *folder.parents):
        if os.path.exists(path):
            break
        new.append(path)
    try:
        make(folder)
        yield
    finally:
        for path in new:
            with contextlib.suppress(OSError):
                path.rmdir()


def write_folder(path: str | Path, write: Callable[[Path], None]) -> Path:
    """Have `write(folder)` fill a folder beside `path`, make sure that it is on the disk, and rename it to `path`.

    Whatever happens, `path` is afterwards the whole new folder or what it was before.

    Raises InputError: the system does not let it be written, or the disk is full (then `is_full`).
    """
    path = Path(path)
    if not path.name:
        raise InputError(f"'{shown(path)}' is not a name that a new folder can take; give one, e.g. 'model'")
    try:
        with made(path.parent):
            _write_folder(path, write)
    except OSError as problem:
        raise unwritable(path, problem) from problem
    return path


def _write_folder(path: Path, write: Callable[[Path], None]) -> None:
    aside, old = (path.with_name(f".{path.name}.{os.getpid()}.{end}") for end in ("part", "old"))
    sweep(path.parent, (path.name,), of_ended=True)
    try:
        for left in (aside, old):
            if os.path.lexists(left):
                remove(left)
        aside.mkdir()
        write(aside)
        readers = stat.S_IMODE(aside.stat().st_mode) & 0o666  # as the umask says; safetensors lets the owner alone read
        for inner in [*aside.rglob("*"), aside]:
            if inner.is_file():
                inner.chmod(readers)
            sync(inner)
        if os.path.lexists(path):
            path.rename(old)
        aside.rename(path)
        sync(path.parent)
        with contextlib.suppress(OSError):
            remove(old)
    except BaseException:
        if not os.path.lexists(path) and os.path.lexists(old):
            old.rename(path)
        shutil.rmtree(aside, ignore_errors=True)
        raise


def sweep(folder: Path, names: Container[str] | None = None, of_ended: bool = False) -> None:
    """Remove what an interrupted `write_folder`, `write_file`, `remove` or `point` left; put back what was moved away.

    Args:
        names: of what alone; by default of everything.
        of_ended: only what a process left that runs no more: others may be writing there.
    """
    for left in [*folder.iterdir()]:
        match = _ASIDE.fullmatch(left.name)
        if not match or (names is not None and match[1] not in names) or (of_ended and _runs(int(match[2]))):
            continue
        with contextlib.suppress(FileNotFoundError):  # another process sweeps, too
            if match[3] == "old" and not (folder / match[1]).exists():
                left.rename(folder / match[1])
            else:
                remove(left)


_ASIDE = re.compile(r"\.(.+)\.([0-9]{1,9})\.(part|old)")


def _runs(process: int) -> bool:
    """Return whether another process of this number runs, as far as the system says without disturbing it."""
    if process == os.getpid() or os.name == "nt":
        return process != os.getpid()
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def remove(path: Path) -> None:
    """Remove a folder so that it is never seen half empty under its name; or a file, or a link."""
    if path.is_symlink() or not path.is_dir():
        return path.unlink()
    if not path.name.endswith((".part", ".old")):
        path = path.rename(path.with_name(f".{path.name}.{os.getpid()}.part"))
    shutil.rmtree(path)


def write_file(path: str | Path, content: str | bytes) -> None:
    """Write a file aside, make sure that it is on the disk, and rename it: it is whole, or what it was before.

    What is no file (/dev/stdout, a pipe) is written to.

    Raises InputError: the system does not let it be written, or the disk is full (then `is_full`).
    """
    path = Path(path)
    data = content.encode("utf-8", errors="backslashreplace") if isinstance(content, str) else content
    try:
        if str(path).startswith(_STREAMS) or stat.S_IFMT(_mode(path)) not in _REPLACED:
            path.write_bytes(data)
        else:
            _write_file(path, data)
    except OSError as problem:
        raise unwritable(path, problem) from problem


_STREAMS = ("/proc/", "/dev/fd/", "/dev/std")  # links that the system makes, to what is open
_REPLACED = (0, stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR)  # the last is an error


def _mode(path: Path) -> int:
    """The kind and the permissions of what has this name, of a link its own; 0 where nothing has it."""
    return path.lstat().st_mode if os.path.lexists(path) else 0


def _write_file(path: Path, data: bytes) -> None:
    with _written_aside(path, data) as aside:
        if stat.S_ISREG(mode := _mode(path)):
            aside.chmod(stat.S_IMODE(mode))
        aside.replace(path)
        with contextlib.suppress(OSError):  # it is there
            sync(path.parent)


@contextlib.contextmanager
def _written_aside(path: Path, data: bytes) -> Iterator[Path]:
    """A file beside `path` with this content, on the disk; gone after the block unless it was renamed.
    Raises OSError."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISREG(_mode(path)) and not os.access(path, os.W_OK):  # a rename would not ask
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    aside = path.with_name(f".{path.name[:40]}.{os.getpid()}.part")
    with contextlib.suppress(OSError):  # a folder that one may write in, but not list
        sweep(path.parent, (path.name[:40],), of_ended=True)
    try:
        aside.unlink(missing_ok=True)
        with aside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield aside
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)


def writable(path: str | Path) -> None:
    """InputError where `write_file` could not write a page of memory: it is tried,
    before there is something to write."""
    path = Path(path)
    try:
        kind = stat.S_IFMT(_mode(path))
        if path.is_char_device() and (kind == stat.S_IFCHR or str(path).startswith(_STREAMS)):
            with path.open("wb", buffering=0) as device:
                device.write(b"")  # nothing, which a full device refuses too
        elif kind in _REPLACED and not (kind and str(path).startswith(_STREAMS)):  # a pipe has its reader later
            with _written_aside(path, bytes(4096)):
                pass
    except (OSError, ValueError) as problem:
        raise unwritable(path, problem) from problem


def unlinked(path: Path) -> Path:
    """The path of a file that is to be appended to, or locked: a link is replaced by a copy of the file that it leads
    to.

    Raises OSError.
    """
    if path.is_symlink():
        content = path.read_bytes() if path.is_file() else b""
        _write_file(path, content)
    return path


def unwritable(path: str | Path, problem: Exception) -> InputError:
    """The sentence for what the system does not let one write."""
    if is_full(problem):
        return InputError(f"no space left while writing '{shown(path)}'; free space and run it again")
    reason = getattr(problem, "strerror", None) or problem
    return InputError(f"cannot write '{shown(path)}' ({reason}); choose another place")


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders; its renames are journaled
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def point(link: Path, name: str) -> None:
    """Make the relative symbolic link `link` lead to its neighbour `name`, where the system has such links.

    Nothing may depend on it; what is no pointer (a folder that a copy has put there) stays as it is.
    """
    aside = link.with_name(f".{link.name}.{os.getpid()}.part")
    if link.is_dir() and not link.is_symlink():
        return
    if link.is_symlink() and os.readlink(link) == name:
        return
    with contextlib.suppress(OSError, NotImplementedError):
        aside.unlink(missing_ok=True)
        aside.symlink_to(name, target_is_directory=True)
        aside.replace(link)


def follow(link: Path) -> Path | None:
    """The folder that a pointer leads to: a symbolic link, a small file with a name in it, or the folder itself;
    else None."""
    if os.path.isfile(link):  # False, not an error, for a name that no file can have
        try:
            with link.open(encoding="utf-8") as file:
                name = file.read(256).strip()
        except (OSError, ValueError):
            return None
        return link.parent / name if _NAME.fullmatch(name) and (link.parent / name).is_dir() else None
    if os.path.islink(link):
        link = link.parent / os.readlink(link)
    return link if os.path.isdir(link) else None


_NAME = re.compile(r"[\w.-]*\w[\w.-]*")  # of a neighbour, not a path


def is_full(problem: BaseException) -> bool:
    """Return whether an error, or its cause, says that the disk is full."""
    return any(isinstance(p, OSError) and p.errno in FULL for p in (problem, problem.__cause__))
