"""Processes and their threads: which of several processes this is, and how the threads of PyTorch wait for each other.

What started a process says which it is: torchrun, Slurm's srun, or Lightning on one machine.

A thread of PyTorch that has done its part of a matrix product on a CPU spins until the others have done theirs. On idle
cores that is fastest. On busy ones it takes the time of the very thread that it waits for: a step then takes up to ten
times as long as with threads that sleep (studies/speed). Set one of CHOSEN yourself, and nothing is changed.
"""

import atexit
import contextlib
import os
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from .errors import InputError, quoted

CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
PRESSURE = Path("/proc/pressure/cpu")
BUSY = 10.0  # percent of the last ten seconds in which something waited for a core
SPIN = "10000"  # turns: an idle machine loses little by so few, and one that is busy later less than by more
SMALL = 1e9  # operations of a call of the network, below which a second thread gains nothing


# ---------------------------------------------------------------------------------------------------- which of several
@dataclass(frozen=True)
class Place:
    """A process among those that were started together.

    Attributes:
        launcher: "torchrun", "Slurm" (a job of one process, too), or "" where nothing started this process that would
            again.
        rank, local: its number, and that on its machine; the first is 0.
        world, nodes: how many processes on how many machines. (Of the processes that Lightning starts itself only
            `local`, and so `rank`, is known.)
    """

    launcher: str = ""
    rank: int = 0
    local: int = 0
    world: int = 1
    nodes: int = 1


def this_process() -> Place:
    """Where this process stands. InputError where the environment says what cannot be."""
    local = _number("LOCAL_RANK", 0)
    if "RANK" in os.environ:
        rank, world = _number("RANK", 0), _number("WORLD_SIZE", 1)
        if rank >= world:
            raise InputError(
                f"RANK is {rank} of WORLD_SIZE {world} in the environment; it must be below, as torchrun sets it"
            )
        local_world = _number("LOCAL_WORLD_SIZE", 0) or world
        return Place("torchrun", rank, local, world, _even("torchrun", world, local_world, "--nproc-per-node"))
    if "SLURM_JOB_ID" not in os.environ:
        return Place(rank=local, local=local)
    world = _number("SLURM_STEP_NUM_TASKS", 1)  # what srun sets for a step; the script that calls it has none
    if world < 2:
        return Place("Slurm", local, local)
    nodes = _number("SLURM_STEP_NUM_NODES", 0) or 1
    _even("Slurm", world, nodes, "--ntasks-per-node")
    return Place("Slurm", _number("SLURM_PROCID", 0), _number("SLURM_LOCALID", 0), world, nodes)


def _even(launcher: str, world: int, parts: int, option: str) -> int:
    """world / parts; InputError where some nodes have more processes than others."""
    if world % parts:
        raise InputError(f"{launcher} started {world} processes, not as many on each node; give all the same {option}")
    return world // parts


def _number(name: str, default: int) -> int:
    """A whole number in the environment; the default where it is not set."""
    text = os.environ.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InputError(f"{name} is {quoted(text)} in the environment; it must be a whole number, as torchrun sets it")
    return int(text)


def join(place: Place) -> None:
    """Meet the other processes, so that they can give each other what they have; once is enough."""
    import torch

    if place.world == 1 or torch.distributed.is_initialized():
        return
    address = None
    if place.launcher == "Slurm":
        from lightning.fabric.plugins.environments import SLURMEnvironment

        slurm = SLURMEnvironment(auto_requeue=False)
        address = f"tcp://{slurm.main_address}:{slurm.main_port}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=place.rank, world_size=place.world)
    # gloo's threads, left alone, now and then abort a process that ends
    atexit.register(torch.distributed.destroy_process_group)


# ----------------------------------------------------------------------------------------------- how its threads wait
def settle_waiting(environ: MutableMapping[str, str] = os.environ) -> None:
    """Let threads sleep at once where the machine is busy, else spin SPIN turns at most; before torch is imported."""
    if any(name in environ for name in CHOSEN):
        return
    if busy():
        environ["OMP_WAIT_POLICY"] = "passive"
    else:
        environ["GOMP_SPINCOUNT"] = SPIN


def busy() -> bool:
    """Return whether something waits for a core: as Linux measures it; elsewhere,
    whether as much runs as there are cores."""
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
