"""How much memory this process may take: what surely needs more is refused before anything is allocated."""

import contextlib
import os

from .errors import InputError


def machine_memory() -> float:
    """Bytes that this process may take at most: those of the machine, its container's or its own limit;
    infinite if unknown."""
    limits = [float("inf")]
    with contextlib.suppress(ValueError, OSError, AttributeError):  # Windows has no sysconf
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(ValueError, OSError), open(file, encoding="ascii") as stream:  # "max": no limit
            limits.append(int(stream.read()))
    with contextlib.suppress(ImportError):
        import resource

        soft = resource.getrlimit(resource.RLIMIT_AS)[0]
        limits += [] if soft == resource.RLIM_INFINITY else [soft]
    return min(limits)


def require_memory(needed: float, of: str, memory: float | None = None) -> None:
    """InputError where something needs more bytes than there are; memory: on the device, None: of this machine."""
    memory = machine_memory() if memory is None else memory
    if needed > memory:
        raise InputError(
            f"{of} needs at least {size(needed)} of memory, and there are {size(memory)}; choose smaller sizes"
        )


def size(n: float) -> str:
    """`1.1 GB`, `0.4 MB`, `2,400 TB`"""
    return f"{n / 1e12:,.0f} TB" if n >= 1e13 else f"{n / 1e9:,.1f} GB" if n >= 1e8 else f"{n / 1e6:.1f} MB"
