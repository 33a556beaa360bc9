"""`zellige doctor`: what this machine has: versions, devices, extras, caches, folders that can be written, the terminal."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.catalogue import cache_folder
from ..show.numbers import byte_size, counted, path
from ..show.record import version_of, versions, why_broken
from ..show.terminal import Terminal
from . import options
from .common import IdleSeed, write_json

EXTRAS = {  # an extra of pyproject.toml -> what it installs
    "data": ("datasets",), "wandb": ("wandb",), "music": ("mido",), "eval": ("transformers",),
    "fid": ("torch-fidelity",), "mauve": ("mauve-text", "transformers"), "harness": ("lm_eval",),
    "web": ("fastapi", "uvicorn"), "sweep": ("optuna",), "video": ("av",),
}  # fmt: skip


@dataclass(frozen=True)
class Doctor:
    verify_caches: bool = False
    """check every cached file, and the texts it was made of, against its checksum; finds damage that left a file's
    times unchanged"""
    seed: IdleSeed = 0


def doctor(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige doctor`: it ends with 0, since nothing that it finds is wrong in itself; with 1 where a file is damaged."""
    arguments = options.parse(
        Doctor, words, "doctor", terminal, about="Show versions, devices, extras and caches, and what is missing."
    )
    with terminal.waiting("looking"):
        result = {
            "versions": versions(), "devices": _devices(), "extras": _extras(), "caches": _caches(),
            "writable": _writable(), "terminal": _terminal(terminal),
        }  # fmt: skip
    if arguments.verify_caches:
        result["damaged"] = _damaged(terminal)
    for line in _lines(result):
        terminal.result(line)
    write_json(terminal, "doctor", {"verify_caches": arguments.verify_caches}, result, began)
    return 1 if result.get("damaged") else 0


def _damaged(terminal: Terminal) -> list[str]:
    from ..data.verified import damages

    at = ["reading the cache"]
    with terminal.waiting(at):
        return list(damages(cache_folder(), lambda place: at.__setitem__(0, f"reading {path(place)}")))


def _devices() -> dict[str, Any]:
    import torch

    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return {
        "threads": torch.get_num_threads(), "cores": os.cpu_count(),
        "gpus": [{"name": gpu.name, "bytes": gpu.total_memory} for gpu in gpus],
    }  # fmt: skip


def _extras() -> dict[str, dict[str, Any]]:
    extras: dict[str, dict[str, Any]] = {
        name: {"missing": [p for p in packages if version_of(p) is None], "install": f"pip install 'zellige[{name}]'"}
        for name, packages in EXTRAS.items()
    }
    if why := why_broken("torchvision"):  # torch-fidelity needs it
        extras["fid"]["broken"] = f"torchvision cannot be imported ({why})"
    return extras


def _caches() -> dict[str, dict[str, Any]]:
    hub = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    folders = {"zellige": cache_folder(), "hugging face": hub}
    return {name: {"path": str(folder), "bytes": _size(folder)} for name, folder in folders.items()}


def _size(folder: Path) -> int:
    """The bytes in a folder; a file that goes or that nobody may read counts for nothing."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue
    return total


def _writable() -> dict[str, bool]:
    """Of each folder, or where it is not there yet of the one that it would be made in."""
    places = (Path.cwd(), Path("runs").absolute(), cache_folder().absolute(), Path(tempfile.gettempdir()))
    return {str(place): os.access(next(p for p in (place, *place.parents) if p.exists()), os.W_OK) for place in places}


def _terminal(terminal: Terminal) -> dict[str, Any]:
    graphics = terminal.graphics
    return {
        "columns": terminal.width, "colours": terminal.out_hues, "moves": terminal.motion, "unicode": terminal.unicode,
        "pictures": graphics.protocol if graphics else None,
    }  # fmt: skip


def _lines(result: dict[str, Any]) -> list[str]:
    devices, shell = result["devices"], result["terminal"]
    gpus = [f"{gpu['name']}, {byte_size(gpu['bytes'])}" for gpu in devices["gpus"]] or ["no GPU"]
    wide = max(map(len, EXTRAS)) + 2
    lines = [
        ("versions", [f"{name} {number}" for name, number in result["versions"].items()]),
        ("devices", [f"CPU, {counted(devices['threads'], 'thread')} on {counted(devices['cores'], 'core')}", *gpus]),
        ("extras", [f"{n:<{wide}}{_lacks(e)}" for n, e in result["extras"].items()]),
        ("caches", [f"{path(c['path'])}, {byte_size(c['bytes'])}" for c in result["caches"].values()]),
        ("writable", [f"{path(place)}: {'yes' if able else 'no'}" for place, able in result["writable"].items()]),
        ("terminal", [
            f"{shell['columns']} columns, {shell['colours'] or 'no'} colours",
            f"{'moves' if shell['moves'] else 'plain lines'}, {'Unicode' if shell['unicode'] else 'ASCII'}, "
            f"pictures {'by ' + shell['pictures'] if shell['pictures'] else 'as characters'}",
        ]),
    ]  # fmt: skip
    if "damaged" in result:
        lines.append(("damaged", result["damaged"] or ["nothing: all that the cache holds is what was written"]))
    return [f"{head if i == 0 else '':<10}{text}" for head, texts in lines for i, text in enumerate(texts)]


def _lacks(extra: dict[str, Any]) -> str:
    if "broken" in extra:
        return f"{extra['broken']}, and without it nothing trains: install the one that belongs to this build of torch"
    return f"lacks {' and '.join(extra['missing'])}: {extra['install']}" if extra["missing"] else "there"
