"""Files that survive: files and folders written aside and renamed, tensors without pickle, states as tensors and JSON.

A folder is complete or absent, whatever interrupts the writing. Nothing here unpickles: a file that is a pickle is named
with what it would have run.
"""

import contextlib
import errno
import io
import json
import os
import pickletools
import re
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import InputError
from .schema import checking, read_text, sha256, shown

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the ways in which a system says that there is no room


# ---------------------------------------------------------------------------------------------------- whole folders
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

    Whatever happens, `path` is afterwards the whole new folder or what it was before. A link is followed.

    Raises InputError: the system does not let it be written, or the disk is full (then `is_full`).
    """
    path, target = Path(path), Path(os.path.realpath(path))
    try:
        with made(target.parent):
            _write_folder(target, write)
    except OSError as problem:
        raise unwritable(path, problem) from problem
    return path


def _write_folder(path: Path, write: Callable[[Path], None]) -> None:
    aside, old = (path.with_name(f".{path.name}.{os.getpid()}.{end}") for end in ("part", "old"))
    try:
        for folder in (aside, old):
            shutil.rmtree(folder, ignore_errors=True)
        aside.mkdir()
        write(aside)
        for inner in [*aside.rglob("*"), aside]:
            sync(inner)
        if path.exists():
            path.rename(old)
        aside.rename(path)
        sync(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        if not path.exists() and old.exists():
            old.rename(path)
        shutil.rmtree(aside, ignore_errors=True)
        raise


def sweep(folder: Path) -> None:
    """Remove what an interrupted `write_folder` or `point` left in `folder`; put back what it had moved away."""
    for left in folder.iterdir():
        ours = _ASIDE.fullmatch(left.name)
        if ours and ours[2] == "old" and not (folder / ours[1]).exists():
            left.rename(folder / ours[1])
        elif ours:
            remove(left)


_ASIDE = re.compile(r"\.(.+)\.[0-9]+\.(part|old)")


def remove(path: Path) -> None:
    """Remove a folder so that it is never seen half empty under its name; or a file, or a link."""
    if path.is_symlink() or not path.is_dir():
        return path.unlink()
    if not path.name.endswith((".part", ".old")):
        path = path.rename(path.with_name(f".{path.name}.{os.getpid()}.part"))
    shutil.rmtree(path)


def write_file(path: str | Path, content: str | bytes) -> None:
    """Write a file aside, make sure that it is on the disk, and rename it: it is whole, or what it was before.

    A link is followed; what is no file (/dev/stdout, a pipe) is written to.

    Raises InputError: the system does not let it be written, or the disk is full (then `is_full`).
    """
    path = Path(path)
    data = content.encode("utf-8", errors="backslashreplace") if isinstance(content, str) else content
    try:
        if str(path).startswith(("/dev/", "/proc/")) or (path.exists() and not path.is_file() and not path.is_dir()):
            path.write_bytes(data)
        else:
            _write_file(Path(os.path.realpath(path)), data)
    except OSError as problem:
        raise unwritable(path, problem) from problem


def _write_file(path: Path, data: bytes) -> None:
    with _written_aside(path, data) as aside:
        if path.exists():
            shutil.copymode(path, aside)
        aside.replace(path)
        with contextlib.suppress(OSError):  # it is there
            sync(path.parent)


@contextlib.contextmanager
def _written_aside(path: Path, data: bytes) -> Iterator[Path]:
    """A file beside `path` with this content, on the disk; gone after the block unless it was renamed. Raises OSError."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if path.exists() and not os.access(path, os.W_OK):  # a rename would not ask
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    aside = path.with_name(f".{path.name[:40]}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield aside
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)


def writable(path: str | Path) -> None:
    """InputError where `write_file` could not write a page of memory: it is tried, before there is something to write."""
    path, mode = Path(path), stat.S_IFREG
    try:
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(path).st_mode
        if stat.S_ISCHR(mode):
            with path.open("wb", buffering=0) as device:
                device.write(b"")  # nothing, which a full device refuses too
        elif stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # a pipe has its reader later
            with _written_aside(Path(os.path.realpath(path)), bytes(4096)):
                pass
    except (OSError, ValueError) as problem:
        raise unwritable(path, problem) from problem


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
    """The folder that a pointer leads to: a symbolic link, a small file with a name in it, or the folder itself; else None."""
    if link.is_file():
        try:
            with link.open(encoding="utf-8") as file:
                name = file.read(256).strip()
        except (OSError, ValueError):
            return None
        return link.parent / name if _NAME.fullmatch(name) and (link.parent / name).is_dir() else None
    if link.is_symlink():
        link = link.parent / os.readlink(link)
    return link if link.is_dir() else None


_NAME = re.compile(r"[\w.-]*\w[\w.-]*")  # of a neighbour, not a path


def is_full(problem: BaseException) -> bool:
    """Whether an error, or what caused it, says that the disk is full."""
    return any(isinstance(p, OSError) and p.errno in FULL for p in (problem, problem.__cause__))


def size(n: float) -> str:
    """`1.1 GB`, `0.4 MB`"""
    return f"{n / 1e9:.1f} GB" if n >= 1e8 else f"{n / 1e6:.1f} MB"


# ---------------------------------------------------------------------------------------------------- tensors
def save_tensors(path: Path, tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str] | None = None) -> None:
    """Write named tensors as safetensors; memory that is shared or strided is written out."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    ready: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        ready[name] = tensor.clone() if tensor.data_ptr() in seen else tensor
        seen.add(tensor.data_ptr())
    try:
        save_file(ready, path, metadata=dict(metadata or {}))
    except SafetensorError as problem:
        number = re.search(r"os error (\d+)", str(problem))
        if number:
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from problem
        raise


def load_tensors(path: Path, device: "torch.device | str" = "cpu") -> "tuple[dict[str, Tensor], dict[str, str]]":
    """The named tensors of a safetensors file, and its metadata.

    Raises:
        InputError: it is missing, truncated, a pickle, or something else.
    """
    from safetensors import SafetensorError, safe_open

    metadata = header(path).get("__metadata__") or {}
    try:
        with safe_open(path, "pt", device=str(device)) as file:
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
    except SafetensorError as problem:
        raise InputError(f"'{shown(path)}' is damaged ({problem}); copy or download it again") from None


def header(path: Path) -> dict[str, Any]:
    """The header of a safetensors file: name -> dtype, shape, place; checked against the length of the file."""
    if not path.is_file():
        raise InputError(f"no file at '{shown(path)}'; copy or download the folder again")
    have = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
        if length > 100_000_000:  # not a header: that length is what a pickle or a zip archive begins with
            refuse_pickle(path)
            raise InputError(f"'{shown(path)}' is not a safetensors file; give a folder that Zellige wrote")
        text = file.read(length)
    if len(first) < 8 or len(text) < length:
        raise _truncated(path, have, 8 + length)
    try:
        found = json.loads(text)
        if not all(isinstance(value, str) for value in (found.get("__metadata__") or {}).values()):
            raise TypeError("metadata are texts")
        need = 8 + length + max((e["data_offsets"][1] for n, e in found.items() if n != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise InputError(f"'{shown(path)}' is not a safetensors file; give a folder that Zellige wrote") from None
    if have < need:
        raise _truncated(path, have, need)
    return found


def _truncated(path: Path, have: int, need: int) -> InputError:
    return InputError(f"'{shown(path)}' is truncated ({have:,} of {need:,} bytes); copy or download it again")


# ---------------------------------------------------------------------------------------------------- checksums
CHECKSUMS = "SHA256SUMS"  # of a model's folder, as `sha256sum` writes it and `sha256sum -c` checks it
_LINE = re.compile(r"([0-9a-f]{64})  ([\w.-]+)")


def write_checksums(folder: Path) -> None:
    """Write the sha256 of every file in `folder` into its SHA256SUMS."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name != CHECKSUMS)
    lines = [f"{sha256(folder / name)}  {name}\n" for name in names]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def check_sums(folder: Path, *names: str) -> None:
    """Compare files of a folder with its SHA256SUMS; a folder that has none is of an earlier version, or not ours.

    Args:
        names: of the files; where none are named, all that are listed.

    Raises:
        InputError: one has changed, is missing or is not listed; SHA256SUMS itself is damaged.
    """
    path = folder / CHECKSUMS
    if not checking.get() or not os.path.lexists(path):
        return
    listed: dict[str, str] = {}
    for number, line in enumerate(read_text(path, _ACCEPT).removesuffix("\n").split("\n"), 1):
        entry = _LINE.fullmatch(line)
        if entry is None or entry[2] in listed:
            raise InputError(f"line {number} of '{shown(path)}' is no checksum; {_ACCEPT}")
        listed[entry[2]] = entry[1]
    for name in names or listed:
        file = folder / name
        if name not in listed and file.is_file():
            raise InputError(f"'{shown(path)}' does not list '{name}'; {_ACCEPT}")
        if name in listed and not file.is_file():
            raise InputError(f"'{shown(file)}' is missing; {_ACCEPT}")
        if file.suffix == ".safetensors" and file.is_file():
            header(file)  # says more of a file that is truncated or a pickle
        if name in listed and sha256(file) != listed[name]:
            raise InputError(f"'{shown(file)}' has changed since it was written ({CHECKSUMS}); {_ACCEPT}")


_ACCEPT = "copy the folder again, or take it as it is with --no-checksums"


# ---------------------------------------------------------------------------------------------------- nested states
def pack(value: Any, tensors: "dict[str, Tensor]", name: str = "") -> Any:
    """A nest of dicts, lists, tuples, numbers, texts and tensors as JSON; its tensors go into `tensors`, by their place.

    What JSON has no word for is an object with one key: {"tensor": place}, {"tuple": [...]}, {"items": [[key, value]]}.
    """
    from torch import Tensor

    below = lambda key: f"{name}.{key}" if name else str(key)  # noqa: E731
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, Mapping):
        if all(isinstance(k, str) for k in value) and (len(value) != 1 or not {*value} & _WORDS):
            return {k: pack(v, tensors, below(k)) for k, v in value.items()}
        return {"items": [[k, pack(v, tensors, below(k))] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        inner = [pack(v, tensors, below(i)) for i, v in enumerate(value)]
        return {"tuple": inner} if isinstance(value, tuple) else inner
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{name} is a {type(value).__name__}; a state holds tensors, numbers, texts and nests of them")


_WORDS = {"tensor", "tuple", "items"}


def unpack(plain: Any, tensors: "Mapping[str, Tensor]") -> Any:
    """What `pack` was given."""
    if isinstance(plain, list):
        return [unpack(v, tensors) for v in plain]
    if not isinstance(plain, dict):
        return plain
    if len(plain) == 1 and {*plain} & _WORDS:
        (word, inner), *_ = plain.items()
        if word == "tensor":
            return tensors[inner]
        return tuple(unpack(inner, tensors)) if word == "tuple" else {k: unpack(v, tensors) for k, v in inner}
    return {k: unpack(v, tensors) for k, v in plain.items()}


# ---------------------------------------------------------------------------------------------------- pickles
def refuse_pickle(path: Path) -> None:
    """InputError if the file is a pickle (also inside a zip archive, as torch.save writes), naming what it would run.

    The opcodes are read, nothing is executed.
    """
    refuse_code(path)
    for data in _pickles(path):
        asked = list(_globals(data))
        if asked:
            raise InputError(f"'{shown(path)}' asks to run '{asked[0]}' when loaded; refused, nothing was run")
        if data[:1] == b"\x80":
            raise InputError(f"'{shown(path)}' is a pickle; refused, nothing was run: give a folder that Zellige wrote")


def refuse_code(path: Path, known: Container[str] = ()) -> None:
    """InputError if a pickle names anything but tensors' own classes and what is `known`. Nothing is executed."""
    for data in _pickles(path):
        for name in _globals(data):
            if name not in known and not name.startswith(_PLAIN):
                raise InputError(f"'{shown(path)}' asks to run '{name}' when loaded; refused, nothing was run")


_PLAIN = ("torch.", "torch._utils.", "collections.OrderedDict", "numpy.", "_codecs.encode")


def _pickles(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic[:2] == b"PK":
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if member.endswith(".pkl"):
                    yield archive.read(member)
    elif magic[:1] in (b"\x80", b"(", b"c", b"]", b"}"):
        with path.open("rb") as file:
            yield file.read(64_000_000)


def _globals(data: bytes) -> Iterator[str]:
    """The names that a stream of pickles looks up, in order."""
    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        texts: list[Any] = []  # what was pushed last, texts or None; memo: what was stored
        memo: dict[int, Any] = {}
        try:
            for op, argument, _ in pickletools.genops(stream):
                if op.name in ("GLOBAL", "INST"):
                    yield str(argument).replace(" ", ".")
                elif op.name == "STACK_GLOBAL":
                    yield ".".join(str(t) for t in texts[-2:])
                elif op.name == "MEMOIZE":
                    memo[len(memo)] = texts[-1] if texts else None
                elif op.name in ("BINPUT", "LONG_BINPUT", "PUT") and texts:
                    memo[int(argument)] = texts[-1]  # pyright: ignore[reportArgumentType]
                elif op.name in ("BINGET", "LONG_BINGET", "GET"):
                    texts.append(memo.get(int(argument)))  # pyright: ignore[reportArgumentType]
                elif op.stack_after:
                    texts.append(argument if isinstance(argument, str) else None)
        except Exception:  # not a pickle, or no more of them: what torch.save wrote before 1.6 goes on with raw bytes
            return
