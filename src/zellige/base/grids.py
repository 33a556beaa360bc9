"""Names of grids of times, for the option of samplers (`samplers/grid.py`) and of requests (`evaluation/requests.py`).

    grid: str = option(GRID, default="auto", check=known)

Importing this file imports no torch.
"""

import math

from .errors import InputError

GRIDS = ("auto", "uniform", "cosine", "log-snr", "published")
CHAINS = ("uniform", "cosine", "log-snr")  # those whose steps are a model with a bound
GRID = (
    "uniform, cosine, log-snr, published or a step size; published: its authors'; auto: MD4's cosine with its linear schedule, "
    "else uniform"
)
SMALLEST = 1e-6  # step


def known(grid: str) -> str:
    """Return the name of a grid, or the size of its steps; InputError for anything else."""
    size = step_size(grid)
    if size is None and grid not in GRIDS:
        raise InputError(
            f"unknown grid '{grid}'; auto, uniform, cosine, log-snr, published, or the size of a step, such as 0.05"
        )
    if size is not None and not SMALLEST <= size <= 1:
        raise InputError(f"a step of the grid is {grid}; it must be between {SMALLEST:g} and 1")
    return grid


def bounded(grid: str) -> str:
    """Return the name of a grid whose steps have a bound; InputError for another."""
    if known(grid) not in (*CHAINS, "auto"):
        raise InputError(f"the bound of T steps has the grid uniform, cosine, log-snr or auto, not {grid}")
    return grid


def size_steps(grid: str) -> int | None:
    """Number of steps of a grid given by its step size; None for another grid."""
    size = step_size(grid)
    return None if size is None else math.ceil(1 / size - 1e-9)


def step_size(grid: str) -> float | None:
    """Step size that names a grid; None if it is named otherwise."""
    try:
        return float(grid)
    except ValueError:
        return None
