"""SHA256SUMS of a folder: written with it, compared when it is read."""

import os
import re
from pathlib import Path

from ..errors import InputError
from ..schema import checking, read_text, sha256, shown
from .tensors import header

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
