"""Tensors without pickle: safetensors, states as tensors and JSON, and what refuses a pickle."""

import contextlib
import io
import json
import os
import pickletools
import re
import struct
import zipfile
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..schema import checking, read_text, sha256, shown

CHECKSUMS = "SHA256SUMS"  # of a model's folder, as `sha256sum` writes it and `sha256sum -c` checks it
_ACCEPT = "copy the folder again, or take it as it is with `checksums=False`"
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


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write named tensors as safetensors; memory that is shared or strided is written out.

    The same tensors give the same bytes, unless `metadata` has several entries, which safetensors writes in any order.
    """
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


def load_tensors(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, str]]:
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
        entries = json.loads(text)
        if not all(isinstance(value, str) for value in (entries.get("__metadata__") or {}).values()):
            raise TypeError("metadata are texts")
        need = 8 + length + max((e["data_offsets"][1] for n, e in entries.items() if n != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise InputError(f"'{shown(path)}' is not a safetensors file; give a folder that Zellige wrote") from None
    if have < need:
        raise _truncated(path, have, need)
    return entries


def _truncated(path: Path, have: int, need: int) -> InputError:
    return InputError(f"'{shown(path)}' is truncated ({have:,} of {need:,} bytes); copy or download it again")


def pack(value: Any, tensors: dict[str, Tensor], name: str = "") -> Any:
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


def unpack(packed: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What `pack` was given."""
    if isinstance(packed, list):
        return [unpack(v, tensors) for v in packed]
    if not isinstance(packed, dict):
        return packed
    if len(packed) == 1 and {*packed} & _WORDS:
        (word, inner), *_ = packed.items()
        if word == "tensor":
            return tensors[inner]
        return tuple(unpack(inner, tensors)) if word == "tuple" else {k: unpack(v, tensors) for k, v in inner}
    return {k: unpack(v, tensors) for k, v in packed.items()}


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
