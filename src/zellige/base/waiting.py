"""Waiting and number of the threads of PyTorch on the CPU, chosen by how busy the machine is.

A thread that has done its part of a matrix product spins until the others have done theirs. On idle cores that is fastest. On
busy ones it takes the time of the very thread that it waits for: a step then takes up to ten times as long as with threads that
sleep (docs/performance.md). Whoever sets one of CHOSEN has decided; nothing is changed then.
"""

import contextlib
import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path

CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
PRESSURE = Path("/proc/pressure/cpu")
BUSY = 10.0  # percent of the last ten seconds in which something waited for a core
SPIN = "10000"  # turns: an idle machine loses little by so few, and one that is busy later less than by more
SMALL = 1e9  # operations of a call of the network, below which a second thread gains nothing


def settle_waiting(environ: MutableMapping[str, str] = os.environ) -> None:
    """Let threads sleep at once where the machine is busy, else spin SPIN turns at most; before torch is imported."""
    if any(name in environ for name in CHOSEN):
        return
    if busy():
        environ["OMP_WAIT_POLICY"] = "passive"
    else:
        environ["GOMP_SPINCOUNT"] = SPIN


def busy() -> bool:
    """Return whether something waits for a core: as Linux measures it; elsewhere, whether as much runs as there are cores."""
    try:
        share = PRESSURE.read_text().split("avg10=")[1].split()[0]  # some avg10=0.24 avg60=... total=...
        return float(share) >= BUSY
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.getloadavg()[0] >= (os.cpu_count() or 1)
    except OSError:  # where there is no such number
        return False


@contextlib.contextmanager
def threads_for(operations: float) -> Iterator[None]:
    """Within the block one thread, where a network evaluation takes less than SMALL operations of a CPU."""
    import torch

    before = torch.get_num_threads()
    if operations < SMALL and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
