"""Grids of times for a sampler's steps.

`auto` is the grid of the method (`Diffusion.sampling_grid`): cosine for MD4 with its linear schedule, uniform for the others.

`published` is that of its authors' sampler: steps from t = 1, not PRIOR, to `Diffusion.published_end`, then one more to CLEAN,
which fills in what is still noise (`argmax` last: with the likeliest tokens). RADD's own last step goes to CLEAN.
A number is the size of a step: from t = 1 to 0, the last of them shorter where it does not divide 1.
"""

import math

import torch
from torch import Tensor

from ..core.schedule import CLEAN
from ..errors import InputError
from ..methods.diffusion import Diffusion
from ..requests import declared, option
from .pairing import divisors, one_alpha, ticks, usual_steps
from .sampler import Sampler

GRIDS = ("auto", "uniform", "cosine", "log-snr", "published")

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


def spaced(method: Diffusion, steps: int | None, grid: str = "uniform") -> Tensor:
    """steps + 1 times from the start of sampling to CLEAN; `steps` defaults to the model's own.

    Where no times exist but i/T, `steps` must divide T.
    """
    T = ticks(method)
    grid = getattr(method, "sampling_grid", "uniform") if grid == "auto" else grid
    size = step_size(grid)
    if size is not None and steps is not None:
        raise InputError(f"grid {grid} says how many steps there are; leave out `steps`")
    if steps is None:
        steps = usual_steps(method)
    if steps < 1:
        raise InputError(f"`steps` is {steps}; it must be 1 or more")
    if T and grid != "uniform":
        raise InputError(f"grid '{grid}' needs continuous time; {method.name} has {T:,} steps, use uniform")
    if T and T % steps:
        *leading, last = sorted(divisors(T, steps)[:3], reverse=True)
        use = f"{', '.join(map(str, leading))} or {last}" if leading else last
        raise InputError(f"{steps} steps do not divide the grid T = {T}; use {use}")
    if grid == "uniform":
        return method.grid(steps)
    if grid == "published":
        return _published(method, steps)
    if size is not None:
        times = of_size(1.0, 0.0, size)
    elif grid == "log-snr":
        times = _even_in_log_snr(method, steps)
    else:
        low, high = method.span
        times = low + (high - low) * _share(steps, grid)
    times[0], times[-1] = method.process.start, CLEAN
    return times


def of_size(first: float, last: float, size: float) -> Tensor:
    """Times from `first` down to `last`, `size` apart; the last step may be shorter."""
    steps = math.ceil((first - last) / size - 1e-9)
    times = first - size * torch.arange(steps + 1, dtype=torch.float64)
    times[-1] = last
    return times


def _share(steps: int, grid: str) -> Tensor:
    """steps + 1 numbers from 1 to 0, evenly spaced or on the cosine grid."""
    u = torch.linspace(1.0, 0.0, steps + 1, dtype=torch.float64)
    return torch.sin(math.pi / 2 * u) if grid == "cosine" else u  # MD4 eq. 6


def _published(method: Diffusion, steps: int) -> Tensor:
    end = getattr(method, "published_end", None)
    if end is None:
        raise InputError(f"grid 'published' is not known of {method.name}; use uniform")
    times = end + (1 - end) * _share(steps, method.sampling_grid)
    last = torch.tensor([CLEAN], dtype=times.dtype)
    return torch.cat((times if method.published_fills else times[:-1], last))


def _even_in_log_snr(method: Diffusion, steps: int) -> Tensor:
    if not one_alpha(method.process):
        raise InputError(f"grid 'log-snr' needs one alpha for all tokens; with {method.name} use uniform or cosine")
    schedule, device, (begin, end) = method.process.schedule, method.process.prior.device, method.span
    step = (end - begin) / steps
    ends = torch.tensor([end, begin, end - step, begin + step], dtype=torch.float64, device=device)
    high, low, near_high, near_low = schedule.log_snr(ends)[:, 0]  # MD4 section 3
    begin_snr, end_snr = torch.where(high.isinf(), near_high, high), torch.where(low.isinf(), near_low, low)
    values = begin_snr + (end_snr - begin_snr) * torch.linspace(0.0, 1.0, steps + 1, dtype=torch.float64, device=device)
    return schedule.inverse(values.sigmoid())


GRID = (
    "uniform, cosine, log-snr, published or a step size; published: its authors'; auto: MD4's cosine with its linear schedule, "
    "else uniform"
)


@declared
class OnGrid(Sampler):
    """A sampler whose steps lie on a grid of times."""

    grid: str = option(GRID, default="auto", check=known)

    def times(self, method: Diffusion, steps: int | None) -> Tensor:
        """steps + 1 times from the start of the process to CLEAN: `steps` draws, the last of them of clean tokens."""
        return spaced(method, steps, self.grid)
