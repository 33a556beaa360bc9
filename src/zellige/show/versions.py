"""What this runs on: the versions of the library and of what computes, the platform, the commit of a checkout."""

import importlib
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .. import __version__

_PACKAGES = ("torch", "lightning", "numpy", "safetensors")


def versions() -> dict[str, str]:
    """Of zellige, python, what computes; "platform"; "commit" where the package is a git checkout."""
    numbers = {"zellige": __version__, "python": platform.python_version(), "platform": _platform()}
    commit = checkout()
    numbers |= {"commit": commit} if commit else {}
    return numbers | {package: number for package in _PACKAGES if (number := version_of(package))}


def version_of(package: str) -> str | None:
    """The version of a package; None where there is none, or none that says so."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def why_broken(package: str) -> str:
    """How importing a package ends that is installed, in a line: what was made for another build; "" where it ends well, or there
    is none."""
    if version_of(package) is None:
        return ""
    try:
        importlib.import_module(package)
    except Exception as problem:
        return (str(problem).strip().splitlines() or [type(problem).__name__])[0]
    return ""


@cache
def checkout() -> str | None:
    """The git commit of the package, `-dirty` where its files are others; None where it is no checkout."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        commit, changes = (_git(root, *words) for words in (("rev-parse", "HEAD"), ("status", "-s", "-uno")))
    except (OSError, subprocess.SubprocessError):  # no git here, or one that does not trust the folder
        return None
    return commit + ("-dirty" if changes else "")


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


@cache
def _platform() -> str:
    return f"{platform.system()} {platform.machine()}"
