"""`zellige doctor`: what this machine has: versions, devices, extras, caches, folders that can be written,
the terminal."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..base.requests import declared, option
from ..base.schema import entries_of
from ..data.catalogue import cache_folder
from ..show.numbers import byte_size, counted, path
from ..show.record import version_of, versions, why_broken
from ..show.terminal import Terminal
from . import options
from .common import idle_seed, write_json

EXTRAS = {  # an extra of pyproject.toml -> what it installs
    "data": "datasets",
    "wandb": "wandb",
    "music": "mido",
    "eval": "transformers",
    "fid": "torch-fidelity",
    "mauve": "mauve-text transformers",
    "harness": "lm_eval",
    "web": "fastapi uvicorn",
    "sweep": "optuna",
    "video": "av",
    "tune": "peft transformers",
}


@dataclass(frozen=True)
class Gpu:
    name: str
    bytes: int


@dataclass(frozen=True)
class Devices:
    threads: int
    cores: int
    gpus: list[Gpu]


@dataclass(frozen=True)
class Extra:
    """An extra: which of its packages are missing, what installs it, and why an installed one does not work."""

    missing: list[str]
    install: str
    broken: str | None = None


@dataclass(frozen=True)
class Cache:
    path: str
    bytes: int


@dataclass(frozen=True)
class Screen:
    """The terminal: its columns, colours, whether lines can be drawn again, and the protocol for pictures."""

    columns: int
    colours: int
    moves: bool
    unicode: bool
    pictures: str | None


@dataclass(frozen=True)
class Machine:
    """The report, with the keys of its JSON; `damaged` is None where the caches were not checked."""

    versions: dict[str, str]
    devices: Devices
    extras: dict[str, Extra]
    caches: dict[str, Cache]
    writable: dict[str, bool]
    terminal: Screen
    damaged: list[str] | None = None


@declared
class Doctor:
    usage = "[--json FILE]"

    verify_caches: bool = option(
        "check every cached file, and the texts it was made of, against its checksum; finds damage that left a file's "
        "times unchanged",
        default=False,
    )
    seed: int = idle_seed()


def doctor(words: Sequence[str], terminal: Terminal, began: float) -> int:
    """`zellige doctor`: it ends with 0, since nothing that it finds is wrong in itself;
    with 1 where a file is damaged."""
    arguments = options.parse(
        Doctor, words, "doctor", terminal, about="Show versions, devices, extras and caches, and what is missing."
    )
    with terminal.waiting("looking"):
        machine = Machine(versions(), _devices(), _extras(), _caches(), _writable(), _screen(terminal))
    if arguments.verify_caches:
        machine = replace(machine, damaged=_damaged(terminal))
    for line in _lines(machine):
        terminal.result(line)
    write_json(terminal, "doctor", {"verify_caches": arguments.verify_caches}, entries_of(machine), began)
    return 1 if machine.damaged else 0


def _damaged(terminal: Terminal) -> list[str]:
    from ..data.verified import damages

    at = ["reading the cache"]
    with terminal.waiting(at):
        return list(damages(cache_folder(), lambda place: at.__setitem__(0, f"reading {path(place)}")))


def _devices() -> Devices:
    import torch

    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return Devices(torch.get_num_threads(), os.cpu_count() or 1, [Gpu(gpu.name, gpu.total_memory) for gpu in gpus])


def _extras() -> dict[str, Extra]:
    extras = {
        name: Extra([p for p in packages.split() if version_of(p) is None], f"pip install 'zellige[{name}]'")
        for name, packages in EXTRAS.items()
    }
    if why := why_broken("torchvision"):  # torch-fidelity needs it
        extras |= {"fid": replace(extras["fid"], broken=f"torchvision cannot be imported ({why})")}
    return extras


def _caches() -> dict[str, Cache]:
    hub = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    folders = {"zellige": cache_folder(), "hugging face": hub}
    return {name: Cache(str(folder), _size(folder)) for name, folder in folders.items()}


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


def _screen(terminal: Terminal) -> Screen:
    graphics = terminal.graphics
    protocol = graphics.protocol if graphics else None
    return Screen(terminal.width, terminal.out_hues, terminal.motion, terminal.unicode, protocol)


def _lines(machine: Machine) -> list[str]:
    devices, screen = machine.devices, machine.terminal
    gpus = [f"{gpu.name}, {byte_size(gpu.bytes)}" for gpu in devices.gpus] or ["no GPU"]
    wide = max(map(len, EXTRAS)) + 2
    lines = [
        ("versions", [f"{name} {number}" for name, number in machine.versions.items()]),
        ("devices", [f"CPU, {counted(devices.threads, 'thread')} on {counted(devices.cores, 'core')}", *gpus]),
        ("extras", [f"{name:<{wide}}{_lacks(extra)}" for name, extra in machine.extras.items()]),
        ("caches", [f"{path(cache.path)}, {byte_size(cache.bytes)}" for cache in machine.caches.values()]),
        ("writable", [f"{path(place)}: {'yes' if able else 'no'}" for place, able in machine.writable.items()]),
        (
            "terminal",
            [
                f"{screen.columns} columns, {screen.colours or 'no'} colours",
                f"{'moves' if screen.moves else 'plain lines'}, {'Unicode' if screen.unicode else 'ASCII'}, "
                f"pictures {f'by {screen.pictures}' if screen.pictures else 'as characters'}",
            ],
        ),
    ]
    if machine.damaged is not None:
        lines.append(("damaged", machine.damaged or ["nothing: all that the cache holds is what was written"]))
    return [f"{head if i == 0 else '':<10}{text}" for head, texts in lines for i, text in enumerate(texts)]


def _lacks(extra: Extra) -> str:
    if extra.broken is not None:
        return f"{extra.broken}, and without it nothing trains: install the one that belongs to this build of torch"
    return f"lacks {' and '.join(extra.missing)}: {extra.install}" if extra.missing else "there"
