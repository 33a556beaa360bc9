"""A disk without room."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def small_disk(room: int) -> Iterator[None]:
    """No file may grow beyond so many bytes: the system's own error, at whatever write it comes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
