"""Pickles, which are refused: their opcodes are read, nothing is executed."""

import contextlib
import io
import pickletools
import zipfile
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from ...base.errors import InputError
from ...base.schema import shown


def refuse_pickle(path: Path) -> None:
    """Refuse a pickle, also inside a zip archive, as torch.save writes it; the InputError names what it would run.

    The opcodes are read, nothing is executed.
    """
    refuse_code(path)
    for data in _pickles(path):
        names = list(_globals(data))
        if names:
            raise InputError(f"'{shown(path)}' asks to run '{names[0]}' when loaded; refused, nothing was run")
        if data[:1] == b"\x80":
            raise InputError(f"'{shown(path)}' is a pickle; refused, nothing was run: give a folder that Zellige wrote")


def refuse_code(path: Path, known: Container[str] = ()) -> None:
    """Refuse a pickle that names anything but the classes of tensors and what is `known`. Nothing is executed."""
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
    """Yield the names that a stream of pickles looks up, in order."""
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
